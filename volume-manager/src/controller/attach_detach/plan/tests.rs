//! When a volume comes off a node and when it may go onto one: a row per rule.

use std::sync::Arc;

use api::names::PluginName;
use api::{AccessMode, AttachedVolume, Meta, Node, Pod, Taint};
use plugin_api::Spec;

use super::*;
use crate::plugin::testing::volume;

const LONG_AGO: u64 = 360;

/// `data` on the node `one`, which no pod wants: everything that decides whether it is detached.
#[derive(Debug, Clone, Copy)]
struct Unwanted {
    in_use: bool,
    ready: bool,
    out_of_service: bool,
    /// For how many seconds.
    since: u64,
    force: bool,
    /// Whether the volume should be in the node's `volumesAttached`.
    reported: bool,
    /// Whether the node's object lists it.
    listed: bool,
    /// The state of the last write to the node.
    write: Write,
}

#[derive(Debug, Clone, Copy)]
enum Write {
    None,
    UnderWay,
    Failed,
    /// The write that lists the volume has succeeded.
    Done,
}

const FREE: Unwanted = Unwanted {
    in_use: false,
    ready: true,
    out_of_service: false,
    since: 0,
    force: true,
    reported: false,
    listed: false,
    write: Write::None,
};
const USED: Unwanted = Unwanted { in_use: true, ..FREE };
const DEAD: Unwanted = Unwanted { ready: false, since: LONG_AGO, ..USED };

fn data() -> VolumeName {
    VolumeName::new("kubernetes.io/toy/data")
}

fn steps_for(unwanted: Unwanted) -> String {
    let data_attached = || AttachedVolume { name: data(), device_path: String::new() };
    let taint = Taint { key: "node.kubernetes.io/out-of-service".to_owned(), ..Taint::default() };
    let node = Node {
        ready: unwanted.ready,
        taints: Some(taint).filter(|_| unwanted.out_of_service).into_iter().collect(),
        volumes_attached: Some(data_attached()).filter(|_| unwanted.listed).into_iter().collect(),
        ..Node::default()
    };
    let mut cluster = Cluster::default();
    cluster.nodes.insert("one".into(), Arc::new(node));
    let began = Instant::now();
    let mut book = Book::default();
    let entry = Entry {
        reported: unwanted.reported,
        in_use: unwanted.in_use,
        unwanted_since: Some(began),
        ..Entry::new(true, None, String::new())
    };
    book.put(data(), "one".into(), entry);
    let now = began + Duration::from_secs(unwanted.since);
    let mut reports = Reports::default();
    match unwanted.write {
        Write::None => {}
        Write::UnderWay => reports.begun("one".into()),
        Write::Failed => reports.failed("one".into(), began),
        Write::Done => reports.written(&"one".into(), &[data_attached()]),
    }
    let (places, desired) = (BTreeSet::from([(data(), "one".into())]), Desired::new());
    let steps = plan(&cluster, &reports, (&places, &desired), &book, now, unwanted.force);
    let steps = steps.into_iter().map(|step| match step {
        Step::Unreport(..) => "update the node first".to_owned(),
        Step::Detach { forced: None, .. } => "detach, asking the node".to_owned(),
        Step::Detach { forced: Some(why), .. } => format!("detach, by force: {why}"),
        other => format!("{other:?}"),
    });
    steps.collect::<Vec<_>>().join(" and ")
}

#[tokio::test(start_paused = true)]
async fn unwanted_attachment_is_detached_when_the_node_is_done() {
    for (unwanted, expected) in [
        (FREE, "detach, asking the node"),
        (Unwanted { reported: true, ..FREE }, "update the node first"),
        (Unwanted { listed: true, ..FREE }, "update the node first"),
        // A status write under way may report the volume as attached, and so may one that failed.
        (Unwanted { write: Write::UnderWay, ..FREE }, ""),
        (Unwanted { write: Write::Failed, ..FREE }, ""),
        (Unwanted { write: Write::Failed, ..DEAD }, ""),
        (Unwanted { listed: true, write: Write::Failed, ..FREE }, "update the node first"),
        // The object still lists the volume.
        (Unwanted { write: Write::Done, ..FREE }, "update the node first"),
        (USED, ""),
        (Unwanted { reported: true, listed: true, ..USED }, ""),
        (Unwanted { since: LONG_AGO, ..USED }, ""),
        (Unwanted { ready: false, ..USED }, ""),
        (Unwanted { since: LONG_AGO - 1, ..DEAD }, ""),
        (DEAD, "detach, by force: timeout"),
        (Unwanted { listed: true, ..DEAD }, "update the node first"),
        (Unwanted { force: false, ..DEAD }, ""),
        (Unwanted { out_of_service: true, ..USED }, "detach, by force: out-of-service"),
        (Unwanted { out_of_service: true, ..DEAD }, "detach, by force: out-of-service"),
        (Unwanted { out_of_service: true, force: false, ..DEAD }, "detach, by force: out-of-service"),
        (Unwanted { since: LONG_AGO, ..FREE }, "detach, asking the node"),
        (Unwanted { since: LONG_AGO, force: false, ..FREE }, "detach, asking the node"),
    ] {
        assert_eq!(steps_for(unwanted), expected, "{unwanted:?}");
    }
}

fn wanted_by(pods: &[(&str, &str)], modes: &[AccessMode]) -> Wanted {
    let mut of = volume("pv", "toy", "data");
    of.access_modes = modes.to_vec();
    let pods = pods.iter().map(|(namespace, name)| {
        let meta = Meta { uid: format!("{namespace}/{name}"), ..Meta::named(*namespace, *name) };
        let pod = Arc::new(Pod { meta, ..Pod::default() });
        (pod.uid(), pod)
    });
    Wanted {
        spec: Arc::new(Spec::persistent(Arc::new(of), false)),
        plugin: PluginName::new("kubernetes.io/toy"),
        pods: pods.collect(),
        uses: Default::default(),
    }
}

/// The step for a pod on `two` that wants a volume of these modes, with these entries in the book.
fn step_on_two(modes: &[AccessMode], book: &[(&str, &str, bool)]) -> &'static str {
    let mut desired = Desired::new();
    desired.insert((data(), "two".into()), wanted_by(&[("default", "web")], modes));
    let mut entries = Book::default();
    for (volume, node, certain) in book {
        let entry = Entry { in_use: true, ..Entry::new(*certain, None, String::new()) };
        entries.put(VolumeName::new(format!("kubernetes.io/toy/{volume}")), (*node).into(), entry);
    }
    let places: BTreeSet<_> = desired.keys().cloned().collect();
    let (cluster, reports) = (Cluster::default(), Reports::default());
    match &plan(&cluster, &reports, (&places, &desired), &entries, Instant::now(), true)[..] {
        [] => "",
        [Step::Attach(volume, node)] if *volume == data() && node.as_str() == "two" => "attach",
        [Step::Conflict(volume, node, _)] if *volume == data() && node.as_str() == "two" => "conflict",
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_one_node_goes_nowhere_while_it_certainly_is_elsewhere() {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
    for (modes, book, expected) in [
        (&[ReadWriteOnce][..], &[][..], "attach"),
        (&[ReadWriteOnce], &[("data", "two", true)], ""),
        (&[ReadWriteOnce], &[("data", "two", false)], "attach"),
        (&[ReadWriteOnce], &[("data", "one", true)], "conflict"),
        (&[ReadWriteOncePod], &[("data", "one", true)], "conflict"),
        // The attachment object and the driver decide.
        (&[ReadWriteOnce], &[("data", "one", false)], "attach"),
        (&[ReadWriteOnce], &[("data", "one", false), ("data", "three", true)], "conflict"),
        (&[ReadWriteOnce], &[("data", "two", false), ("data", "three", true)], "conflict"),
        (&[ReadWriteOnce], &[("another", "one", true), ("more", "one", true)], "attach"),
        (&[ReadWriteMany], &[("data", "one", true)], "attach"),
        (&[ReadOnlyMany], &[("data", "one", true)], "attach"),
        (&[ReadWriteOnce, ReadOnlyMany], &[("data", "one", true)], "attach"),
        (&[], &[("data", "one", true)], "attach"),
    ] {
        assert_eq!(step_on_two(modes, book), expected, "{modes:?} {book:?}");
    }
}

#[test]
fn multi_attach_event_names_pods_of_its_own_namespace() {
    let (mine, yours) = ("default", "other");
    for (others, expected) in [
        (&[][..], "exclusively attached to one node and can't be attached to another"),
        (&[(mine, "a")], "used by pod(s) a"),
        (&[(mine, "a"), (mine, "b")], "used by pod(s) a, b"),
        (&[(yours, "a")], "used by 1 pod(s) in different namespaces"),
        (&[(yours, "a"), (yours, "b")], "used by 2 pod(s) in different namespaces"),
        (&[(mine, "a"), (yours, "b")], "used by pod(s) a and 1 pod(s) in different namespaces"),
    ] {
        let mut desired = Desired::new();
        let wanted = wanted_by(&[(mine, "web")], &[]);
        desired.insert((data(), "two".into()), wanted.clone());
        desired.insert((data(), "one".into()), wanted_by(others, &[]));
        let another = VolumeName::new("kubernetes.io/toy/another");
        desired.insert((another, "one".into()), wanted_by(&[(mine, "uninvolved")], &[]));
        let text = conflict(&desired, &data(), &"two".into(), &wanted);
        assert_eq!(text, format!("Multi-Attach error for volume \"pv\" Volume is already {expected}"));
    }
}
