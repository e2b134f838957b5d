//! When each wait ends and how, as a table.

use std::time::Duration;

use api::clock::Instant;
use api::pod::VolumeMount;
use api::{Bytes, Container, Meta};
use expect_test::expect;
use plugin_api::{Mounted, PodRecord, Spec, Transition};

use super::*;
use crate::desired::Wanted;
use crate::few::Few;
use crate::operation::{Key, OperationName};
use crate::plugin::registry::kubelet;
use crate::plugin::testing::{DRIVER, persistent_spec};
use crate::populator::{Books, PodState, Resolved};
use crate::reconstruct::Reconstruction;
use crate::recovery;

/// The waits of one pod, with the state around them.
struct World {
    waits: Waits,
    desired: DesiredState,
    actual: ActualState,
    pods: Populator,
    pending: Pending,
    recovery: Recovery,
    facts: Facts,
    now: Instant,
}

impl World {
    /// Nothing was on disk, and there is no pod.
    fn new() -> Self {
        let mut world = Self {
            waits: Waits::default(),
            desired: DesiredState::default(),
            actual: ActualState::default(),
            pods: Populator::default(),
            pending: Pending::default(),
            recovery: Recovery::default(),
            facts: Facts { csi_drivers_known: true, ..Facts::default() },
            now: Instant::now(),
        };
        world.recovery.observe(recovery::Event::Reconstructed(Reconstruction::default()));
        let view = recovery::View {
            desired: &world.desired,
            actual: &world.actual,
            pods: &world.pods,
            pending: &world.pending,
            registry: &kubelet(),
            paths: &plugin_api::paths::Paths::new("/root"),
            selinux: false,
        };
        world.recovery.decide(view, world.now);
        world
    }

    fn add_pod(&mut self) {
        self.pods.set_pod(Arc::new(pod()));
        self.pods.take_due(&self.facts);
    }

    /// The pod is resolved, and wants its volume.
    fn resolve(&mut self) {
        self.add_pod();
        let (registry, facts) = (kubelet(), self.facts.clone());
        let (desired, actual) = (&mut self.desired, &mut self.actual);
        let books = Books { desired, actual, facts: &facts, registry: &registry };
        let resolved = Resolved { pod: Arc::new(pod()), number: 1, volumes: Vec::new() };
        self.pods.admit(&uid(), resolved, books, self.now);
        let wanted = Wanted {
            plugin: "p".into(),
            attachable: true,
            device_mountable: true,
            gid: None,
            reported_in_use: false,
            size_limit: None,
            size: Bytes::default(),
            label: String::new(),
            original_label: String::new(),
            pods: Few::default(),
        };
        self.desired.add(&"p/v".into(), wanted, uid(), Arc::new(pod()), spec(), "data".into());
    }

    fn mount(&mut self) {
        let attached = Transition::Attached {
            spec: spec(),
            plugin: "p".into(),
            attachable: true,
            device_path: String::new(),
            claim_size: None,
        };
        self.actual.apply(&"p/v".into(), attached);
        let outer = vec!["data".into()];
        let record = PodRecord { pod: uid(), spec: spec(), outer, gid: None, selinux_label: String::new() };
        let mounted = Mounted { path: "/at".into(), read_only: false, managed: true, selinux_relabel: false };
        self.actual.apply(&"p/v".into(), Transition::PodMounted(record, mounted));
    }

    fn run_operation(&mut self) {
        let key = Key::volume(&"p/v".into());
        self.pending.admit(OperationName::Mount, key, Some(uid()), self.now);
    }

    fn wait(&mut self, goal: Goal) -> oneshot::Receiver<Result<(), WaitError>> {
        let (answer, answered) = oneshot::channel();
        let deadline = self.now + Duration::from_secs(1);
        self.waits.observe(Event::Begun { goal, deadline, answer });
        answered
    }

    /// The waits that end, in words.
    fn decide(&mut self, decide: impl FnOnce(&mut Waits, View<'_>) -> Vec<Step>) -> String {
        let view = View {
            desired: &self.desired,
            actual: &self.actual,
            pods: &self.pods,
            pending: &self.pending,
            recovery: &self.recovery,
            facts: &self.facts,
            node: &"node".into(),
        };
        let steps = decide(&mut self.waits, view).into_iter().map(|step| match step {
            Step::ForgetErrors(_) => "forget errors".to_owned(),
            Step::End { result: Ok(()), .. } => "done".to_owned(),
            Step::End { result: Err(error), .. } => error.to_string(),
        });
        let text = steps.collect::<Vec<_>>().join(", ");
        if text.is_empty() { "-".to_owned() } else { text }
    }
}

fn uid() -> PodUid {
    "web".into()
}

/// A pod with a container that uses the volume `data`.
fn pod() -> Pod {
    let mount = VolumeMount { volume: "data".to_owned(), ..VolumeMount::default() };
    Pod {
        meta: Meta { uid: "web".into(), ..Meta::named("default", "web") },
        containers: vec![Container { mounts: vec![mount], ..Container::default() }],
        ..Pod::default()
    }
}

fn spec() -> Arc<Spec> {
    Arc::new(persistent_spec("pv", DRIVER, "h"))
}

/// A state of the world: its name, and the function that leads to it.
type State = (&'static str, fn(&mut World));

#[test]
fn waits_in_each_state() {
    let states: [State; 9] = [
        ("not read back", |world| world.recovery = Recovery::default()),
        ("no pod", |_| {}),
        ("being resolved", World::add_pod),
        ("not mounted", World::resolve),
        ("being mounted", |world| {
            world.resolve();
            world.run_operation();
        }),
        ("failed", |world| {
            world.resolve();
            world.desired.add_error(&uid(), "it is refused".to_owned());
        }),
        ("mounted", |world| {
            world.resolve();
            world.mount();
        }),
        ("mounted, failed", |world| {
            world.resolve();
            world.mount();
            world.desired.add_error(&uid(), "it is refused".to_owned());
        }),
        ("ended", |world| {
            world.resolve();
            world.pods.set_state(&uid(), PodState::RuntimeGone);
            world.desired.remove_pod(&uid());
        }),
    ];
    let goals = [
        ("mounted", Goal::Mounted(uid(), Some(Arc::new(pod())))),
        ("unmounted", Goal::Unmounted(uid())),
        ("idle", Goal::Idle),
    ];
    let mut text = String::new();
    for (state, reach) in states {
        for (label, goal) in &goals {
            let mut world = World::new();
            reach(&mut world);
            let _answered = world.wait(goal.clone());
            let now = world.now;
            let early = world.decide(|waits, view| waits.decide(view, now));
            text.push_str(&format!("{state:<15} {label:<9} {early}\n"));
            if early == "-" {
                world.now += Duration::from_secs(1);
                let now = world.now;
                let late = world.decide(|waits, view| waits.decide(view, now));
                text.push_str(&format!("{:<15} {label:<9} {late}\n", "  deadline"));
            }
        }
    }
    expect![[r#"
        not read back   mounted   unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context canceled
        not read back   unmounted -
          deadline      unmounted mounted volumes=[volumes on disk that are not reconstructed yet]: context deadline exceeded
        not read back   idle      -
          deadline      idle      the manager is not idle: reconstruct volumes from disk: context deadline exceeded
        no pod          mounted   unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context canceled
        no pod          unmounted done
        no pod          idle      done
        being resolved  mounted   -
          deadline      mounted   unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context deadline exceeded
        being resolved  unmounted done
        being resolved  idle      -
          deadline      idle      the manager is not idle: look at web: context deadline exceeded
        not mounted     mounted   -
          deadline      mounted   unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: context deadline exceeded
        not mounted     unmounted done
        not mounted     idle      done
        being mounted   mounted   -
          deadline      mounted   unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: context deadline exceeded
        being mounted   unmounted -
          deadline      unmounted mounted volumes=[volume_mount p/v web]: context deadline exceeded
        being mounted   idle      -
          deadline      idle      the manager is not idle: volume_mount p/v web: context deadline exceeded
        failed          mounted   forget errors, unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: it is refused
        failed          unmounted done
        failed          idle      done
        mounted         mounted   done
        mounted         unmounted -
          deadline      unmounted mounted volumes=[data]: context deadline exceeded
        mounted         idle      done
        mounted, failed mounted   done
        mounted, failed unmounted -
          deadline      unmounted mounted volumes=[data]: context deadline exceeded
        mounted, failed idle      done
        ended           mounted   unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: context canceled
        ended           unmounted done
        ended           idle      done
    "#]].assert_eq(&text);
}

#[test]
fn errors_end_one_wait_of_their_pod() {
    let mut world = World::new();
    world.resolve();
    world.desired.add_error(&uid(), "it is refused".to_owned());
    let _answered = [(); 2].map(|()| world.wait(Goal::Mounted(uid(), None)));
    let now = world.now;
    let ended = world.decide(|waits, view| waits.decide(view, now));
    expect!["forget errors, unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: it is refused"].assert_eq(&ended);
}

#[test]
fn wait_is_checked_again_once_its_pod_has_changed() {
    let mut world = World::new();
    world.resolve();
    let _answered = world.wait(Goal::Mounted(uid(), None));
    let now = world.now;
    assert_eq!(world.decide(|waits, view| waits.decide(view, now)), "-");
    world.mount();
    assert_eq!(world.decide(|waits, view| waits.decide(view, now)), "-", "no change was reported to it");
    world.waits.observe(Event::Changed(&uid()));
    assert_eq!(world.decide(|waits, view| waits.decide(view, now)), "done");
}

#[test]
fn wait_without_a_listener_is_dropped() {
    let mut world = World::new();
    drop(world.wait(Goal::Idle));
    let now = world.now;
    assert_eq!(world.decide(|waits, view| waits.decide(view, now)), "-");
    assert_eq!(world.waits.next_deadline(), None);
}

#[test]
fn canceled_waits_name_the_volumes_that_are_missing() {
    let mut world = World::new();
    world.resolve();
    let _answered = [Goal::Mounted(uid(), None), Goal::Unmounted(uid())].map(|goal| world.wait(goal));
    let ended = world.decide(|waits, view| waits.cancel(view, &uid()));
    expect![
        "unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: context canceled"
    ]
    .assert_eq(&ended);
}
