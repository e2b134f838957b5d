//! When the claims of a pod are resolved, and the desired state after that.

use std::time::Duration;

use api::pod::{Content, SeLinuxOptions, VolumeMount};
use api::storage::ClaimTemplate;
use api::{AccessMode, Container, CsiDriver, Meta, PodVolume, VolumeSource};
use expect_test::{Expect, expect};
use plugin_api::{Mounted, PodRecord, Transition};

use super::*;
use crate::plugin::testing::{DRIVER, volume};

/// A populator with its desired state and a clock that does not advance.
struct Fixture {
    populator: Populator,
    desired: DesiredState,
    actual: ActualState,
    facts: Facts,
    registry: Registry,
    now: Instant,
}

type Volumes = Vec<(OuterName, Result<Found, String>)>;

impl Fixture {
    fn new() -> Self {
        Self {
            populator: Populator::default(),
            desired: DesiredState::default(),
            actual: ActualState::default(),
            facts: Facts { csi_drivers_known: true, ..Facts::default() },
            registry: crate::plugin::registry::kubelet(),
            now: Instant::now(),
        }
    }

    /// The looks that begin now, by pod and number.
    fn looks(&mut self) -> Vec<(String, u64)> {
        let looks = self.populator.take_due(&self.facts);
        looks.into_iter().map(|look| (look.pod.uid().to_string(), look.number)).collect()
    }

    /// A look of this number has given this.
    fn gives(&mut self, pod: &Pod, number: u64, volumes: Volumes) -> Vec<String> {
        let resolved = Resolved { pod: Arc::new(pod.clone()), number, volumes };
        let books = Books {
            desired: &mut self.desired,
            actual: &mut self.actual,
            facts: &self.facts,
            registry: &self.registry,
        };
        let concerned = self.populator.admit(&pod.uid(), resolved, books, self.now);
        concerned.iter().map(ToString::to_string).collect()
    }

    /// A look begins and gives this.
    fn look(&mut self, pod: &Pod, volumes: Volumes) -> Vec<String> {
        let looks = self.looks();
        let [(_, number)] = looks[..] else { panic!("one look: {looks:?}") };
        self.gives(pod, number, volumes)
    }

    /// Enters the volume into the actual state, as one that the pod has mounted.
    fn has(&mut self, pod: &Pod, volume: &str, spec: Spec) {
        let (volume, spec) = (volume.into(), Arc::new(spec));
        let attached = Transition::Attached {
            plugin: self.registry.pick(&spec).expect("it is one of ours").name(),
            spec: Arc::clone(&spec),
            attachable: false,
            device_path: String::new(),
            claim_size: None,
        };
        self.actual.apply(&volume, attached);
        let record =
            PodRecord { pod: pod.uid(), spec, outer: Vec::new(), gid: None, selinux_label: String::new() };
        let mounted = Mounted { path: "/at".into(), read_only: false, managed: true, selinux_relabel: false };
        self.actual.apply(&volume, Transition::PodMounted(record, mounted));
    }

    fn retry(&self) -> Option<Duration> {
        self.populator.next_retry().map(|due| due - self.now)
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        self.populator.expire(self.now);
    }
}

/// A pod that refers to a claim of its own name, and to one of its own.
fn pod(name: &str) -> Pod {
    let claim = VolumeSource::Claim { claim: "shared".to_owned(), read_only: false };
    let own = VolumeSource::Ephemeral { template: Box::new(ClaimTemplate::default()) };
    let mount = VolumeMount { volume: "data".to_owned(), ..VolumeMount::default() };
    Pod {
        meta: Meta { uid: name.into(), ..Meta::named("default", name) },
        volumes: vec![
            PodVolume { name: "data".into(), source: claim },
            PodVolume { name: "own".into(), source: own },
        ],
        containers: vec![Container { mounts: vec![mount], ..Container::default() }],
        ..Pod::default()
    }
}

fn shared() -> Namespaced {
    Namespaced::new("default", "shared")
}

fn found(spec: Spec) -> Result<Found, String> {
    Ok(Found { spec, gid: Some("7".to_owned()), claim_capacity: Some(Bytes(1)) })
}

/// A volume of the bench's driver that could hold 2.
fn disk() -> Spec {
    let mut disk = volume("pv", DRIVER, "h");
    disk.capacity = Bytes(2);
    Spec::persistent(Arc::new(disk), false)
}

fn inline(name: &str, source: VolumeSource) -> Spec {
    Spec::inline(Arc::new(PodVolume { name: name.into(), source }))
}

fn wrong() -> Volumes {
    vec![("data".into(), Err("wrong".to_owned()))]
}

#[test]
fn nothing_is_looked_at_before_the_drivers_are_known() {
    let mut f = Fixture::new();
    f.facts.csi_drivers_known = false;
    f.populator.set_pod(Arc::new(pod("web")));
    assert_eq!(f.looks(), []);
    f.facts.csi_drivers_known = true;
    assert_eq!(f.looks(), [("web".to_owned(), 1)]);
    assert_eq!(f.looks(), [], "it is being looked at");
}

#[test]
fn a_look_that_is_asked_for_during_another_follows_it() {
    let mut f = Fixture::new();
    let web = pod("web");
    f.populator.set_pod(Arc::new(web.clone()));
    f.populator.set_pod(Arc::new(pod("db")));
    assert_eq!(f.looks(), [("db".to_owned(), 1), ("web".to_owned(), 2)]);
    f.populator.request(&web.uid(), false);
    assert_eq!(f.looks(), [], "one at a time");
    assert!(f.populator.is_resolving(&web.uid()));
    f.gives(&web, 2, vec![]);
    assert!(f.populator.is_resolving(&web.uid()), "it waits for the next");
    assert!(!f.populator.is_resolving(&"other".into()));
    assert_eq!(f.looks(), [("web".to_owned(), 3)]);
    f.gives(&web, 3, vec![]);
    assert!(!f.populator.is_resolving(&web.uid()));
    assert_eq!(f.populator.busy().collect::<Vec<_>>(), [&PodUid::from("db")]);
    assert_eq!(f.looks(), [], "it was asked for once");
}

#[test]
fn a_look_that_was_overtaken_gives_nothing() {
    let mut f = Fixture::new();
    f.facts.csi_drivers.insert(DRIVER.into(), Arc::new(CsiDriver::default()));
    let web = pod("web");
    let volumes = || vec![("data".into(), found(disk()))];
    assert_eq!(f.gives(&web, 1, volumes()), [""; 0], "the pod is unknown");
    f.populator.set_pod(Arc::new(web.clone()));
    assert_eq!(f.looks(), [("web".to_owned(), 1)]);
    f.populator.remove_pod(&web.uid());
    assert_eq!(f.gives(&web, 1, volumes()), [""; 0], "it is gone");
    f.populator.set_pod(Arc::new(web.clone()));
    assert_eq!(f.looks(), [("web".to_owned(), 2)]);
    assert_eq!(f.gives(&web, 1, volumes()), [""; 0], "it is another pod now");
    assert!(f.populator.is_resolving(&web.uid()));
    assert_eq!(f.gives(&web, 2, volumes()).len(), 1);
}

#[test]
fn failures_climb_a_ladder_that_a_success_ends() {
    let mut f = Fixture::new();
    let web = pod("web");
    f.populator.set_pod(Arc::new(web.clone()));
    for wait in [500, 1000, 2000] {
        f.look(&web, wrong());
        assert_eq!(f.retry(), Some(Duration::from_millis(wait)));
        assert!(f.desired.errors_of(&web.uid()).is_some());
        f.pass(wait - 1);
        assert_eq!(f.looks(), []);
        f.pass(1);
        assert_eq!(f.retry(), None);
    }
    f.look(&web, vec![]);
    assert_eq!(f.retry(), None);
    assert_eq!(f.desired.errors_of(&web.uid()), None, "what was wrong is right");
    f.populator.request(&web.uid(), false);
    f.look(&web, wrong());
    assert_eq!(f.retry(), Some(Duration::from_millis(500)));
}

#[test]
fn new_request_skips_the_back_off() {
    let mut f = Fixture::new();
    let (web, db) = (pod("web"), pod("db"));
    for pod in [&web, &db] {
        f.populator.set_pod(Arc::new(pod.clone()));
        f.look(pod, wrong());
    }
    f.populator.request(&web.uid(), false);
    f.look(&web, vec![]);
    f.pass(500);
    assert_eq!(f.looks(), [("db".to_owned(), 4)], "the retry of `web` is over, and no other");
}

#[test]
fn a_retry_that_comes_due_during_a_look_follows_it() {
    let mut f = Fixture::new();
    let web = pod("web");
    f.populator.set_pod(Arc::new(web.clone()));
    let looks = f.looks();
    f.populator.request(&web.uid(), false);
    f.gives(&web, looks[0].1, wrong());
    assert_eq!(f.looks(), [("web".to_owned(), 2)]);
    f.pass(500);
    assert_eq!(f.looks(), [], "one at a time");
    f.gives(&web, 2, vec![]);
    assert_eq!(f.looks(), [("web".to_owned(), 3)]);
}

/// The two ways in which a pod ends: its object is deleted, or its containers have ended.
const GONE: [fn(&mut Populator, &PodUid); 2] =
    [Populator::remove_pod, |populator, pod| populator.set_state(pod, PodState::RuntimeGone)];

#[test]
fn a_pod_that_is_gone_leaves_nothing_to_do() {
    for gone in GONE {
        let mut f = Fixture::new();
        let (web, db) = (pod("web"), pod("db"));
        f.populator.set_pod(Arc::new(web.clone()));
        f.look(&web, wrong());
        gone(&mut f.populator, &web.uid());
        assert_eq!(f.retry(), None, "no retry is due");

        let mut f = Fixture::new();
        f.populator.set_pod(Arc::new(db.clone()));
        f.look(&db, wrong());
        f.populator.set_pod(Arc::new(web.clone()));
        f.look(&web, wrong());
        gone(&mut f.populator, &web.uid());
        f.populator.request(&web.uid(), true);
        assert!(!f.populator.is_busy());
        f.pass(500);
        assert_eq!(f.looks(), [("db".to_owned(), 3)], "its retry went with it, and no other");

        f.populator.set_pod(Arc::new(pod("due")));
        gone(&mut f.populator, &"due".into());
        assert_eq!(f.looks(), []);
        f.populator.set_pod(Arc::new(pod("looked-at")));
        let looks = f.looks();
        f.populator.request(&"looked-at".into(), true);
        gone(&mut f.populator, &"looked-at".into());
        f.gives(&pod("looked-at"), looks[0].1, vec![]);
        f.gives(&db, 3, vec![]);
        assert!(!f.populator.is_busy(), "nor is one looked at once more");
    }
}

#[test]
fn a_claim_names_the_pods_that_refer_to_it() {
    let mut f = Fixture::new();
    f.populator.set_pod(Arc::new(pod("web")));
    f.populator.set_pod(Arc::new(pod("db")));
    let of = |f: &Fixture, claim: Namespaced| -> Vec<String> {
        f.populator.pods_of(&claim).map(ToString::to_string).collect()
    };
    assert_eq!(of(&f, shared()), ["db", "web"]);
    assert_eq!(of(&f, Namespaced::new("default", "web-own")), ["web"], "also those of its own");
    f.populator.remove_pod(&"web".into());
    assert_eq!(of(&f, shared()), ["db"]);
    assert_eq!(of(&f, Namespaced::new("default", "web-own")), [""; 0]);
    f.populator.remove_pod(&"db".into());
    assert!(f.populator.by_claim.is_empty(), "claims without a pod are dropped");
}

#[test]
fn a_claim_that_changes_concerns_pods_that_lack_it() {
    let mut f = Fixture::new();
    let (web, db) = (pod("web"), pod("db"));
    for (pod, volumes) in [(&web, vec![]), (&db, wrong())] {
        f.populator.set_pod(Arc::new(pod.clone()));
        f.look(pod, volumes);
    }
    f.populator.request_claim(&shared(), false);
    assert_eq!(f.looks(), [("db".to_owned(), 3)]);
    f.gives(&db, 3, vec![]);
    f.populator.request_claim(&shared(), false);
    assert_eq!(f.looks(), [], "both have it");
    f.populator.request_claim(&shared(), true);
    assert_eq!(f.looks().len(), 2);
    f.populator.request_claim(&Namespaced::new("other", "shared"), true);
    assert_eq!(f.populator.busy().count(), 2);
}

#[test]
fn all_pods_are_known_once_each_was_looked_at() {
    let mut f = Fixture::new();
    let web = pod("web");
    assert!(!f.populator.settle() && !f.populator.sources_ready());
    f.populator.set_pod(Arc::new(web.clone()));
    f.populator.set_sources_ready();
    assert!(f.populator.sources_ready());
    assert!(!f.populator.settle(), "it waits for a look");
    let looks = f.looks();
    assert!(!f.populator.settle(), "it is being looked at");
    f.gives(&web, looks[0].1, wrong());
    assert!(!f.populator.all_added());
    assert!(f.populator.settle());
    assert!(f.populator.all_added());
    assert!(!f.populator.settle(), "that is news only once");
}

#[test]
fn pods_that_change_meanwhile_are_not_waited_for() {
    for gone in GONE {
        let mut f = Fixture::new();
        f.populator.set_pod(Arc::new(pod("web")));
        assert!(f.populator.is_busy(), "one is to be looked at");
        f.populator.set_sources_ready();
        f.looks();
        assert!(f.populator.is_busy(), "one is being looked at");
        f.populator.set_pod(Arc::new(pod("later")));
        f.populator.set_sources_ready();
        assert!(!f.populator.settle());
        gone(&mut f.populator, &"web".into());
        assert!(f.populator.settle());
    }
}

#[test]
fn a_pod_that_is_ending_gets_what_it_had_at_the_start_and_nothing_later() {
    let mut f = Fixture::new();
    let web = pod("web");
    let of_web = PodUid::from("web");
    f.populator.set_state(&of_web, PodState::Terminating);
    f.populator.set_pod(Arc::new(web.clone()));
    assert_eq!(f.look(&web, vec![("data".into(), found(disk()))]).len(), 1);
    f.populator.set_sources_ready();
    f.populator.settle();
    f.populator.request(&of_web, true);
    assert_eq!(f.looks(), []);
    f.populator.set_state(&of_web, PodState::Running);
    f.populator.request(&of_web, true);
    let looks = f.looks();
    f.populator.set_state(&of_web, PodState::Terminating);
    assert_eq!(f.gives(&web, looks[0].1, vec![("data".into(), found(disk()))]), [""; 0]);
}

#[test]
fn containers_may_run_until_all_pods_are_known() {
    let mut f = Fixture::new();
    let web = PodUid::from("web");
    assert!(f.populator.may_run(&web), "the pods are not known yet");
    f.populator.set_sources_ready();
    assert!(!f.populator.may_run(&web));
    f.populator.set_pod(Arc::new(pod("web")));
    assert!(f.populator.may_run(&web));
    f.populator.forget(&web);
    assert!(f.populator.may_run(&web), "it has an object");
    f.populator.set_state(&web, PodState::Terminating);
    assert!(f.populator.may_run(&web));
    f.populator.remove_pod(&web);
    assert!(f.populator.may_run(&web), "its object says nothing of its containers");
    assert_eq!(f.populator.pods().count(), 0);
    f.populator.forget(&web);
    assert!(!f.populator.may_run(&web));
}

#[test]
fn content_is_refreshed_at_a_sync() {
    let mut f = Fixture::new();
    let web = pod("web");
    let config = || inline("settings", VolumeSource::ConfigMap(Content::default()));
    let scratch =
        || inline("scratch", VolumeSource::EmptyDir { medium: String::new(), size_limit: Some(Bytes(5)) });
    let volumes = || vec![("settings".into(), found(config())), ("scratch".into(), found(scratch()))];
    f.populator.set_pod(Arc::new(web.clone()));
    let names = f.look(&web, volumes());
    for (name, spec) in names.iter().zip([config(), scratch()]) {
        f.has(&web, name, spec);
    }
    let refreshed = |f: &Fixture| -> Vec<bool> {
        names
            .iter()
            .map(|name| f.actual.entry(&name.as_str().into(), &web.uid()).unwrap().needs_remount)
            .collect()
    };
    f.populator.request_claim(&shared(), true);
    assert_eq!(f.look(&web, volumes()).len(), 2);
    assert_eq!(refreshed(&f), [false, false], "that was no sync");
    f.populator.request(&web.uid(), true);
    assert_eq!(f.look(&web, volumes()).len(), 3);
    assert_eq!(refreshed(&f), [true, false], "a directory of the pod's own stays as it is");
    f.has(&web, &names[0], config());
    assert_eq!(refreshed(&f), [false, false], "it has been");
    f.populator.set_pod(Arc::new(web.clone()));
    f.look(&web, volumes());
    assert_eq!(refreshed(&f), [true, false], "a pod that changes is synced");
}

#[test]
fn refresh_waits_until_all_volumes_resolve() {
    let mut f = Fixture::new();
    let web = pod("web");
    let config = || inline("settings", VolumeSource::ConfigMap(Content::default()));
    let volumes = || vec![("settings".into(), found(config()))];
    f.populator.set_pod(Arc::new(web.clone()));
    let name = f.look(&web, volumes()).remove(0);
    f.has(&web, &name, config());
    let refreshed = |f: &Fixture| f.actual.entry(&name.as_str().into(), &web.uid()).unwrap().needs_remount;
    f.populator.request(&web.uid(), true);
    f.look(&web, [volumes(), wrong()].concat());
    assert!(!refreshed(&f), "something is wrong with the pod");
    f.pass(500);
    f.look(&web, volumes());
    assert!(refreshed(&f), "the sync is not over before");
}

/// Compares the desired state after a resolution of `web` whose volume `data` has this spec.
fn wants(change: impl FnOnce(&mut Fixture), spec: Spec, expected: Expect) {
    let mut f = Fixture::new();
    change(&mut f);
    let mut web = pod("web");
    web.security.selinux =
        Some(Box::new(SeLinuxOptions { level: "s0:c1".to_owned(), ..SeLinuxOptions::default() }));
    f.populator.set_pod(Arc::new(web.clone()));
    f.look(&web, vec![("data".into(), found(spec))]);
    let mut text = String::new();
    for (volume, wanted) in f.desired.volumes() {
        let Wanted { plugin, attachable, device_mountable, gid, size_limit, size, .. } = wanted;
        let (label, original) = (&wanted.label, &wanted.original_label);
        text += &format!(
            "{volume} of {plugin}: attachable {attachable}, step per node {device_mountable}, group {gid:?},\n\
             limit {size_limit:?}, size {size}, label {label:?} of {original:?}, reported {}, pods {}\n",
            wanted.reported_in_use,
            wanted.pods.len(),
        );
    }
    text.extend(f.desired.errors().values().flatten().map(|error| format!("{error}\n")));
    expected.assert_eq(&text);
}

fn driver(change: impl FnOnce(&mut CsiDriver)) -> impl FnOnce(&mut Fixture) {
    let mut object = CsiDriver { attach_required: false, ..CsiDriver::default() };
    change(&mut object);
    move |f| drop(f.facts.csi_drivers.insert(DRIVER.into(), Arc::new(object)))
}

#[test]
fn volumes_are_wanted_as_they_are() {
    let single = || {
        let mut disk = volume("pv", DRIVER, "h");
        disk.access_modes = vec![AccessMode::ReadWriteOncePod];
        Spec::persistent(Arc::new(disk), false)
    };
    wants(
        driver(|_| {}),
        disk(),
        expect![[r#"
        kubernetes.io/csi/d.example^h of kubernetes.io/csi: attachable false, step per node true, group Some("7"),
        limit None, size 2, label "" of "", reported false, pods 1
    "#]],
    );
    wants(
        driver(|object| object.attach_required = true),
        disk(),
        expect![[r#"
        kubernetes.io/csi/d.example^h of kubernetes.io/csi: attachable true, step per node true, group Some("7"),
        limit None, size 2, label "" of "", reported false, pods 1
    "#]],
    );
    let enforcing = |f: &mut Fixture| {
        driver(|object| object.selinux_mount = true)(f);
        f.facts.selinux = true;
    };
    wants(
        enforcing,
        single(),
        expect![[r#"
        kubernetes.io/csi/d.example^h of kubernetes.io/csi: attachable false, step per node true, group Some("7"),
        limit None, size 0, label "system_u:object_r:container_file_t:s0:c1" of "system_u:object_r:container_file_t:s0:c1", reported false, pods 1
    "#]],
    );
    wants(
        |f| {
            driver(|_| {})(f);
            f.facts.selinux = true;
        },
        single(),
        expect![[r#"
        kubernetes.io/csi/d.example^h of kubernetes.io/csi: attachable false, step per node true, group Some("7"),
        limit None, size 0, label "" of "", reported false, pods 1
    "#]],
    );
    wants(
        enforcing,
        disk(),
        expect![[r#"
        kubernetes.io/csi/d.example^h of kubernetes.io/csi: attachable false, step per node true, group Some("7"),
        limit None, size 2, label "" of "system_u:object_r:container_file_t:s0:c1", reported false, pods 1
    "#]],
    );
    let scratch = VolumeSource::EmptyDir { medium: String::new(), size_limit: Some(Bytes(5)) };
    wants(
        |_| {},
        inline("data", scratch),
        expect![[r#"
        kubernetes.io/empty-dir/web-data of kubernetes.io/empty-dir: attachable false, step per node false, group Some("7"),
        limit Some(Bytes(5)), size 0, label "" of "", reported false, pods 1
    "#]],
    );
    wants(
        |_| {},
        Spec::persistent(Arc::new(volume("../pv", DRIVER, "h")), false),
        expect![[r#"
        volume name "../pv" cannot name a directory
    "#]],
    );
}

#[test]
fn a_second_pod_cannot_have_another_label_and_the_same_pod_keeps_its_own() {
    let mut f = Fixture::new();
    driver(|object| object.selinux_mount = true)(&mut f);
    f.facts.selinux = true;
    let mut single = volume("pv", DRIVER, "h");
    single.access_modes = vec![AccessMode::ReadWriteOncePod];
    let single = Spec::persistent(Arc::new(single), false);
    let labelled = |name: &str, level: &str| {
        let mut pod = pod(name);
        pod.security.selinux =
            Some(Box::new(SeLinuxOptions { level: level.to_owned(), ..SeLinuxOptions::default() }));
        pod
    };
    for (pod, errors) in [
        (labelled("web", "s0:c1"), false),
        (labelled("db", "s0:c2"), true),
        (labelled("same", "s0:c1"), false),
        (labelled("web", "s0:c3"), false),
    ] {
        f.populator.set_pod(Arc::new(pod.clone()));
        f.look(&pod, vec![("data".into(), found(single.clone()))]);
        assert_eq!(f.desired.errors_of(&pod.uid()).is_some(), errors, "{}", pod.meta.name);
    }
}

#[test]
fn a_volume_that_grew_is_wanted_larger_unless_it_is_only_read() {
    let mut f = Fixture::new();
    driver(|_| {})(&mut f);
    let web = pod("web");
    f.populator.set_pod(Arc::new(web.clone()));
    let name: VolumeName = f.look(&web, vec![("data".into(), found(disk()))])[0].as_str().into();
    let attached = Transition::Attached {
        spec: Arc::new(disk()),
        plugin: "kubernetes.io/csi".into(),
        attachable: false,
        device_path: String::new(),
        claim_size: None,
    };
    f.actual.apply(&name, attached);
    for (read_only, capacity, wanted) in [(true, 3, 2), (false, 3, 3), (true, 9, 3)] {
        let mut grown = volume("pv", DRIVER, "h");
        grown.capacity = Bytes(capacity);
        let spec = Spec { read_only, ..Spec::persistent(Arc::new(grown), read_only) };
        f.populator.request(&web.uid(), false);
        f.look(&web, vec![("data".into(), found(spec))]);
        assert_eq!(f.desired.volume(&name).unwrap().size, Bytes(wanted), "{read_only} {capacity}");
        let known = f.actual.volume(&name).unwrap().size;
        assert_eq!(known, Bytes(u64::from(wanted == 3)), "what the claim could hold, once that counts");
    }
}
