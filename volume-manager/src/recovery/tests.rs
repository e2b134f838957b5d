//! The steps after each event in each state, as tables: a changed decision is a changed line here.

use api::Meta;
use api::names::PluginName;
use expect_test::{Expect, expect};
use plugin_api::error::Unfit;
use plugin_api::{PodRecord, Rebuilt, Spec};

use super::*;
use crate::desired::Wanted;
use crate::few::Few;
use crate::operation::{Key, OperationName};
use crate::plugin::registry::kubelet;
use crate::plugin::testing::{DRIVER, volume};

const CSI: &str = "kubernetes.io/csi";

/// Recovery with the state around it, to which steps are applied as the manager does.
struct World {
    recovery: Recovery,
    desired: DesiredState,
    actual: ActualState,
    pods: Populator,
    pending: Pending,
    registry: Registry,
    paths: Paths,
    now: Instant,
}

impl World {
    /// All pods have been added: there are none.
    fn new() -> Self {
        let mut pods = Populator::default();
        pods.set_sources_ready();
        assert!(pods.settle());
        Self {
            recovery: Recovery::default(),
            desired: DesiredState::default(),
            actual: ActualState::default(),
            pods,
            pending: Pending::default(),
            registry: kubelet(),
            paths: paths(),
            now: Instant::now(),
        }
    }

    fn after(events: Vec<Event>) -> Self {
        let mut world = Self::new();
        for event in events {
            world.recovery.observe(event);
            world.decide();
        }
        world
    }

    /// A pod with the uid `web` wants the volume.
    fn want(&mut self) {
        let wanted = Wanted {
            plugin: CSI.into(),
            attachable: true,
            device_mountable: true,
            gid: None,
            reported_in_use: false,
            size_limit: None,
            size: api::Bytes::default(),
            label: String::new(),
            original_label: String::new(),
            pods: Few::default(),
        };
        self.desired.add(&name(), wanted, pod().uid(), Arc::new(pod()), Arc::new(spec()), "data".into());
        self.recovery.observe(Event::DesiredChanged);
    }

    /// Decides and carries out until nothing is left to do. All steps, in a line.
    fn decide(&mut self) -> String {
        let mut text = Vec::new();
        loop {
            let view = View {
                desired: &self.desired,
                actual: &self.actual,
                pods: &self.pods,
                pending: &self.pending,
                registry: &self.registry,
                paths: &self.paths,
                selinux: false,
            };
            let steps = self.recovery.decide(view, self.now);
            if steps.is_empty() {
                return text.join(", ");
            }
            text.extend(steps.into_iter().map(|step| self.carry_out(step)));
        }
    }

    fn carry_out(&mut self, step: Step) -> String {
        match step {
            Step::Adopt(Recovered { volume, plugin, rebuilt, pod }) => {
                let record = pod.clone().map(|pod| PodRecord {
                    pod,
                    spec: Arc::new(rebuilt.spec.clone()),
                    outer: Vec::new(),
                    gid: None,
                    selinux_label: String::new(),
                });
                self.actual.add_reconstructed(&volume, &plugin, &rebuilt, record);
                pod.map_or_else(|| "adopt".to_owned(), |pod| format!("adopt of {pod}"))
            }
            Step::Correct(volume, attached) => {
                self.actual.correct(&volume, attached.as_ref());
                format!("correct {}", if attached.is_some() { "attached" } else { "detached" })
            }
            Step::ListInUse(volumes) => format!("list {} in use", volumes.len()),
            Step::Call(Call::ReadNode) => "read node".to_owned(),
            Step::Call(Call::SearchDirectory(_)) => "search directory".to_owned(),
            Step::Call(Call::SearchStage(_)) => "search stage".to_owned(),
            Step::ReviewInUse => "review in use".to_owned(),
            Step::Wake(pod) => format!("wake {pod}"),
            Step::Announce(known) => format!("knows {}", known.as_str()),
            Step::WakeAll => "wake all".to_owned(),
            Step::PlanAll => "plan all".to_owned(),
            Step::Count(counter) => format!("count {counter}"),
        }
    }
}

fn paths() -> Paths {
    Paths::new("/root")
}

fn name() -> VolumeName {
    VolumeName::new("kubernetes.io/csi/d.example^h")
}

fn spec() -> Spec {
    Spec::persistent(persistent(), false)
}

fn persistent() -> Arc<Volume> {
    Arc::new(volume("pv", DRIVER, "h"))
}

fn pod() -> api::Pod {
    api::Pod { meta: Meta { uid: "web".into(), ..Meta::named("default", "web") }, ..api::Pod::default() }
}

fn found() -> Found {
    let plugin = PluginName::from(CSI);
    let path = "/root/pods/web/volumes/kubernetes.io~csi/pv".into();
    Found { pod: "web".into(), plugin, inner: "pv".into(), path, mode: api::VolumeMode::Filesystem }
}

fn recovered() -> Recovered {
    let at = paths().csi_global_mount(&DRIVER.into(), &"h".into());
    let rebuilt = Rebuilt { spec: spec(), device_mount_path: Some(at), selinux_label: None };
    Recovered { volume: name(), plugin: CSI.into(), rebuilt, pod: Some("web".into()) }
}

fn stage() -> UnidentifiedStage {
    UnidentifiedStage {
        plugin: CSI.into(),
        at: paths().csi_global_mount(&DRIVER.into(), &"h".into()),
        mode: api::VolumeMode::Filesystem,
        pods: BTreeSet::new(),
        why: "no record".to_owned(),
    }
}

fn failure() -> Failure {
    Unfit::NoAbility { plugin: CSI.to_owned(), ability: "read a record" }.into()
}

fn unavailable() -> ApiError {
    ApiError::Unavailable { reason: "away".to_owned() }
}

fn nothing_on_disk() -> Event {
    Event::Reconstructed(Reconstruction::default())
}

fn volume_on_disk() -> Event {
    Event::Reconstructed(Reconstruction { volumes: vec![recovered()], ..Reconstruction::default() })
}

fn directory_on_disk() -> Event {
    Event::Reconstructed(Reconstruction { failed: vec![(found(), failure())], ..Reconstruction::default() })
}

fn stage_on_disk() -> Event {
    Event::Reconstructed(Reconstruction { lost: vec![stage()], ..Reconstruction::default() })
}

fn unreadable_directories() -> Event {
    Event::Reconstructed(Reconstruction { incomplete: true, ..Reconstruction::default() })
}

fn node_read() -> Event {
    let attached = AttachedVolume { name: name(), device_path: String::new() };
    Event::NodeRead(Ok(Arc::new(Node {
        volumes_attached: vec![attached],
        volumes_in_use: vec![name()],
        ..Node::default()
    })))
}

fn node_not_read() -> Event {
    Event::NodeRead(Err(unavailable()))
}

fn directory_searched(identified: Identified) -> Event {
    Event::DirectorySearched(found(), identified)
}

fn stage_searched(result: Result<Option<Arc<Volume>>, ApiError>) -> Event {
    Event::StageSearched(stage().at, result)
}

/// The events that lead to a state, by its name.
type State = (&'static str, fn() -> Vec<Event>);
/// A change of the world, by its name.
type Change = (&'static str, fn(&mut World));

/// Lets each change happen in each state, and writes down what follows and how far recovery is then.
fn table(states: &[State], changes: &[Change], expected: Expect) {
    let mut text = String::new();
    for (state, way) in states {
        for (label, happen) in changes {
            let mut world = World::after(way());
            happen(&mut world);
            let steps = world.decide();
            let progress = format!("{:?}", world.recovery.progress());
            text.push_str(&format!("{state:<9} {label:<15} {progress:<14} {steps}\n"));
        }
    }
    expected.assert_eq(&text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>());
}

fn observe(world: &mut World, event: Event) {
    world.recovery.observe(event);
}

#[test]
fn volumes_on_disk_are_compared_with_the_node() {
    table(
        &[
            ("start", Vec::new),
            ("failed", || vec![volume_on_disk(), node_not_read()]),
            ("done", || vec![volume_on_disk(), node_read()]),
        ],
        &[
            ("nothing", |_| {}),
            ("no volume", |world| observe(world, nothing_on_disk())),
            ("volume", |world| observe(world, volume_on_disk())),
            ("unreadable", |world| observe(world, unreadable_directories())),
            ("node", |world| observe(world, node_read())),
            ("no node", |world| observe(world, node_not_read())),
            ("a second", |world| world.now += READ_AGAIN),
        ],
        expect![[r#"
            start     nothing         Reconstructing
            start     no volume       Complete       knows volumes, wake all, plan all
            start     volume          Comparing      count reconstructed, adopt of web, knows volumes, wake all, plan all, read node
            start     unreadable      Comparing      knows volumes, wake all, plan all, read node
            start     node            Reconstructing list 1 in use, knows node, plan all
            start     no node         Reconstructing
            start     a second        Reconstructing
            failed    nothing         Comparing
            failed    no volume       Comparing      knows volumes, wake all, plan all
            failed    volume          Comparing      count reconstructed, adopt of web, knows volumes, wake all, plan all
            failed    unreadable      Comparing      knows volumes, wake all, plan all
            failed    node            Complete       list 1 in use, correct attached, knows node, plan all
            failed    no node         Comparing
            failed    a second        Comparing      read node
            done      nothing         Complete
            done      no volume       Complete       knows volumes, wake all, plan all
            done      volume          Comparing      count reconstructed, adopt of web, knows volumes, wake all, plan all, read node
            done      unreadable      Identifying    knows volumes, wake all, plan all
            done      node            Complete       knows node, plan all
            done      no node         Complete
            done      a second        Complete
        "#]],
    );
}

#[test]
fn unidentified_directory_is_searched_for() {
    table(
        &[
            ("found", || vec![directory_on_disk()]),
            ("searched", || vec![directory_on_disk(), node_read()]),
            ("overtaken", || vec![directory_on_disk(), node_read(), Event::VolumeSeen(persistent())]),
            ("unknown", || {
                vec![directory_on_disk(), node_read(), directory_searched(Identified::Unknown(None))]
            }),
            ("failed", || {
                let failed = directory_searched(Identified::Unknown(Some(failure())));
                vec![directory_on_disk(), node_read(), failed]
            }),
        ],
        &[
            ("nothing", |_| {}),
            ("node", |world| observe(world, node_read())),
            ("identified", |world| observe(world, directory_searched(Identified::Recovered(recovered())))),
            ("empty", |world| observe(world, directory_searched(Identified::Nothing))),
            ("unknown", |world| observe(world, directory_searched(Identified::Unknown(None)))),
            ("failed", |world| observe(world, directory_searched(Identified::Unknown(Some(failure()))))),
            ("volume appears", |world| observe(world, Event::VolumeSeen(persistent()))),
            ("other appears", |world| {
                observe(world, Event::VolumeSeen(Arc::new(volume("other", DRIVER, "other"))));
            }),
            ("pod wants it", World::want),
            ("half a minute", |world| world.now += Duration::from_secs(30)),
        ],
        expect![[r#"
            found     nothing         Comparing
            found     node            Identifying    list 1 in use, knows node, plan all, count orphan_searches, search directory
            found     identified      Comparing      wake web, review in use, adopt of web, plan all
            found     empty           Complete       wake web, review in use, plan all
            found     unknown         Complete       wake web, review in use, count orphan_search_errors, plan all
            found     failed          Comparing      wake web, review in use, count orphan_search_errors, plan all
            found     volume appears  Comparing
            found     other appears   Comparing
            found     pod wants it    Comparing      review in use, adopt of web
            found     half a minute   Comparing
            searched  nothing         Identifying
            searched  node            Identifying    knows node, plan all
            searched  identified      Comparing      wake web, review in use, adopt of web, plan all, read node
            searched  empty           Complete       wake web, review in use, plan all
            searched  unknown         Complete       wake web, review in use, count orphan_search_errors, plan all
            searched  failed          Identifying    wake web, review in use, count orphan_search_errors, plan all
            searched  volume appears  Identifying
            searched  other appears   Identifying
            searched  pod wants it    Comparing      review in use, adopt of web, read node
            searched  half a minute   Identifying
            overtaken nothing         Identifying
            overtaken node            Identifying    knows node, plan all
            overtaken identified      Comparing      wake web, review in use, adopt of web, plan all, read node
            overtaken empty           Complete       wake web, review in use, plan all
            overtaken unknown         Identifying    wake web, review in use, count orphan_search_errors, plan all, count orphan_searches, search directory
            overtaken failed          Identifying    wake web, review in use, count orphan_search_errors, plan all, count orphan_searches, search directory
            overtaken volume appears  Identifying
            overtaken other appears   Identifying
            overtaken pod wants it    Comparing      review in use, adopt of web, read node
            overtaken half a minute   Identifying
            unknown   nothing         Complete
            unknown   node            Complete       knows node, plan all
            unknown   identified      Comparing      wake web, review in use, adopt of web, plan all, read node
            unknown   empty           Complete       wake web, review in use, plan all
            unknown   unknown         Complete       wake web, review in use, count orphan_search_errors, plan all
            unknown   failed          Identifying    wake web, review in use, count orphan_search_errors, plan all
            unknown   volume appears  Identifying    count orphan_searches, search directory
            unknown   other appears   Complete
            unknown   pod wants it    Comparing      review in use, adopt of web, read node
            unknown   half a minute   Complete
            failed    nothing         Identifying
            failed    node            Identifying    knows node, plan all
            failed    identified      Comparing      wake web, review in use, adopt of web, plan all, read node
            failed    empty           Complete       wake web, review in use, plan all
            failed    unknown         Complete       wake web, review in use, count orphan_search_errors, plan all
            failed    failed          Identifying    wake web, review in use, count orphan_search_errors, plan all
            failed    volume appears  Identifying    count orphan_searches, search directory
            failed    other appears   Identifying
            failed    pod wants it    Comparing      review in use, adopt of web, read node
            failed    half a minute   Identifying    count orphan_searches, search directory
        "#]],
    );
}

#[test]
fn unidentified_stage_is_searched_for() {
    table(
        &[
            ("found", || vec![stage_on_disk()]),
            ("searched", || vec![stage_on_disk(), node_read()]),
            ("overtaken", || vec![stage_on_disk(), node_read(), Event::VolumeSeen(persistent())]),
            ("unknown", || vec![stage_on_disk(), node_read(), stage_searched(Ok(None))]),
            ("failed", || vec![stage_on_disk(), node_read(), stage_searched(Err(unavailable()))]),
        ],
        &[
            ("nothing", |_| {}),
            ("node", |world| observe(world, node_read())),
            ("identified", |world| observe(world, stage_searched(Ok(Some(persistent()))))),
            ("unknown", |world| observe(world, stage_searched(Ok(None)))),
            ("failed", |world| observe(world, stage_searched(Err(unavailable())))),
            ("volume appears", |world| observe(world, Event::VolumeSeen(persistent()))),
            ("other appears", |world| {
                observe(world, Event::VolumeSeen(Arc::new(volume("other", DRIVER, "other"))));
            }),
            ("pod wants it", World::want),
            ("half a minute", |world| world.now += Duration::from_secs(30)),
        ],
        expect![[r#"
            found     nothing         Comparing
            found     node            Identifying    list 1 in use, knows node, plan all, count lost_searches, search stage
            found     identified      Comparing      review in use, adopt
            found     unknown         Complete       review in use, count lost_search_errors
            found     failed          Comparing      review in use, count lost_search_errors
            found     volume appears  Comparing
            found     other appears   Comparing
            found     pod wants it    Comparing      review in use, adopt
            found     half a minute   Comparing
            searched  nothing         Identifying
            searched  node            Identifying    knows node, plan all
            searched  identified      Comparing      review in use, adopt, read node
            searched  unknown         Complete       review in use, count lost_search_errors
            searched  failed          Identifying    review in use, count lost_search_errors
            searched  volume appears  Identifying
            searched  other appears   Identifying
            searched  pod wants it    Comparing      review in use, adopt, read node
            searched  half a minute   Identifying
            overtaken nothing         Identifying
            overtaken node            Identifying    knows node, plan all
            overtaken identified      Comparing      review in use, adopt, read node
            overtaken unknown         Identifying    review in use, count lost_search_errors, count lost_searches, search stage
            overtaken failed          Identifying    review in use, count lost_search_errors, count lost_searches, search stage
            overtaken volume appears  Identifying
            overtaken other appears   Identifying
            overtaken pod wants it    Comparing      review in use, adopt, read node
            overtaken half a minute   Identifying
            unknown   nothing         Complete
            unknown   node            Complete       knows node, plan all
            unknown   identified      Comparing      review in use, adopt, read node
            unknown   unknown         Complete       review in use, count lost_search_errors
            unknown   failed          Identifying    review in use, count lost_search_errors
            unknown   volume appears  Identifying    count lost_searches, search stage
            unknown   other appears   Complete
            unknown   pod wants it    Comparing      review in use, adopt, read node
            unknown   half a minute   Complete
            failed    nothing         Identifying
            failed    node            Identifying    knows node, plan all
            failed    identified      Comparing      review in use, adopt, read node
            failed    unknown         Complete       review in use, count lost_search_errors
            failed    failed          Identifying    review in use, count lost_search_errors
            failed    volume appears  Identifying    count lost_searches, search stage
            failed    other appears   Identifying    count lost_searches, search stage
            failed    pod wants it    Comparing      review in use, adopt, read node
            failed    half a minute   Identifying    count lost_searches, search stage
        "#]],
    );
}

#[test]
fn directory_in_use_is_not_searched_for() {
    table(
        &[("found", || vec![directory_on_disk()])],
        &[
            ("pods missing", |world| {
                world.pods = Populator::default();
                observe(world, node_read());
            }),
            ("pod may run", |world| {
                world.pods.set_pod(Arc::new(pod()));
                observe(world, node_read());
            }),
            ("operation runs", |world| {
                // The search for the volume that the directory is named after, for its pod.
                let web: PodUid = "web".into();
                let record = PodRecord {
                    pod: web.clone(),
                    spec: Arc::new(spec()),
                    outer: Vec::new(),
                    gid: None,
                    selinux_label: String::new(),
                };
                let Recovered { volume, plugin, rebuilt, .. } = recovered();
                world.actual.add_reconstructed(&volume, &plugin, &rebuilt, Some(record));
                world.pending.admit(OperationName::Unmount, Key::volume(&volume), Some(web), world.now);
                observe(world, node_read());
            }),
        ],
        expect![[r#"
            found     pods missing    Identifying    list 1 in use, knows node, plan all
            found     pod may run     Identifying    list 1 in use, knows node, plan all
            found     operation runs  Identifying    list 1 in use, knows node, plan all
        "#]],
    );
}

#[test]
fn nothing_is_concluded_before_its_steps_are_handed_out() {
    let mut world = World::new();
    world.recovery.observe(volume_on_disk());
    assert_eq!(world.recovery.progress(), Progress::Reconstructing);
    assert!(world.recovery.is_in_doubt_about(&"web".into()));
    world.decide();
    world.recovery.observe(node_read());
    assert_eq!(world.recovery.progress(), Progress::Comparing, "the volume is not corrected yet");
    world.decide();
    assert_eq!(world.recovery.progress(), Progress::Complete);
}

#[test]
fn stage_is_adopted_for_each_pod_that_it_may_be_published_for() {
    let pods = BTreeSet::from(["a".into(), "b".into()]);
    let lost = vec![UnidentifiedStage { pods, ..stage() }];
    let on_disk = Event::Reconstructed(Reconstruction { lost, ..Reconstruction::default() });
    let mut world = World::after(vec![on_disk, node_read()]);
    assert_eq!(world.recovery.unidentified_of(&"a".into()).count(), 1);
    world.recovery.observe(stage_searched(Ok(Some(persistent()))));
    let steps = world.decide();
    assert_eq!(steps, "review in use, adopt of a, adopt of b, adopt, read node");
    assert_eq!(world.recovery.unidentified_of(&"a".into()).count(), 0);
}
