//! Properties of every plan, for any desired and actual state.

use proptest::prelude::*;

use super::*;

const VOLUMES: [&str; 3] = ["a", "b", "raw"];
const PODS: [&str; 3] = ["p", "q", "r"];

/// An entry of the states.
#[derive(Debug, Clone, Copy)]
enum Entry {
    Wanted(usize, usize),
    Running(usize),
    Stopped(usize),
    Attached(usize),
    Staged(usize),
    Mounted(usize, usize),
    Uncertain(usize, usize),
    Refreshed(usize),
}

fn entry() -> impl Strategy<Value = Entry> {
    let (volume, pod) = (0..VOLUMES.len(), 0..PODS.len());
    prop_oneof![
        (volume.clone(), pod.clone()).prop_map(|(volume, pod)| Entry::Wanted(volume, pod)),
        pod.clone().prop_map(Entry::Running),
        pod.clone().prop_map(Entry::Stopped),
        volume.clone().prop_map(Entry::Attached),
        volume.clone().prop_map(Entry::Staged),
        (volume.clone(), pod.clone()).prop_map(|(volume, pod)| Entry::Mounted(volume, pod)),
        (volume, pod.clone()).prop_map(|(volume, pod)| Entry::Uncertain(volume, pod)),
        pod.prop_map(Entry::Refreshed),
    ]
}

prop_compose! {
    fn world()(entries in prop::collection::vec(entry(), 0..14), complete: bool, explained: bool) -> World {
        let mut world = entries.into_iter().fold(World::new(), World::with);
        (world.complete, world.explained) = (complete, explained);
        world
    }
}

impl World {
    fn with(self, entry: Entry) -> Self {
        match entry {
            Entry::Wanted(volume, pod) => self.wanted(VOLUMES[volume], PODS[pod]),
            Entry::Running(pod) => self.running(PODS[pod]),
            Entry::Stopped(pod) => self.stopped(PODS[pod]),
            Entry::Attached(volume) => self.attached(VOLUMES[volume]),
            Entry::Staged(volume) => self.staged(VOLUMES[volume]),
            Entry::Mounted(volume, pod) => self.mounted(VOLUMES[volume], PODS[pod]),
            Entry::Uncertain(volume, pod) => {
                let known = self.actual.volume(&name(VOLUMES[volume])).is_some();
                let world = if known { self } else { self.staged(VOLUMES[volume]) };
                world.uncertain(VOLUMES[volume], PODS[pod])
            }
            Entry::Refreshed(pod) => self.refreshed(PODS[pod]),
        }
    }

    fn plan_of(&self, dirty: &[&str]) -> Vec<Step> {
        self.plan(&dirty.iter().map(|volume| name(volume)).collect(), Toy::default())
    }
}

/// In which part of a plan a step belongs.
fn part(step: &Step) -> u8 {
    match step {
        Step::Start(Operation::Unmount(_) | Operation::Unmap(_)) => 0,
        Step::Start(Operation::UnmountDevice(_) | Operation::UnmapDevice(_)) | Step::Forget(_) => 2,
        _ => 1,
    }
}

proptest! {
    #[test]
    fn unmounts_come_first_and_what_leaves_the_node_last(world in world()) {
        let parts: Vec<u8> = world.plan_of(&VOLUMES).iter().map(part).collect();
        prop_assert!(parts.is_sorted(), "{parts:?}");
    }

    #[test]
    fn nothing_leaves_before_the_books_are_complete(world in world()) {
        let steps = world.plan_of(&VOLUMES);
        let may_leave = |step: &Step| match part(step) {
            0 => world.complete,
            2 => world.complete && world.explained,
            _ => true,
        };
        prop_assert!(steps.iter().all(may_leave));
    }

    #[test]
    fn a_pod_loses_what_it_neither_wants_nor_may_use_and_nothing_else(world in world()) {
        let mut unmounted = BTreeSet::new();
        for step in world.plan_of(&VOLUMES) {
            if let Step::Start(Operation::Unmount(unmount) | Operation::Unmap(unmount)) = step {
                prop_assert!(unmounted.insert((unmount.volume.clone(), unmount.pod.clone())), "twice");
            }
        }
        let has = world.actual.volumes().flat_map(|(volume, record)| {
            record.pods.keys().map(move |pod| (volume.clone(), pod.clone()))
        });
        let leaves = |(volume, pod): &(VolumeName, PodUid)| {
            world.complete && !world.desired.wants(volume, pod) && !world.running.contains(pod)
        };
        prop_assert_eq!(unmounted, has.filter(leaves).collect::<BTreeSet<_>>());
    }

    #[test]
    fn a_volume_leaves_the_node_only_when_no_pod_has_it_or_wants_it(world in world()) {
        for step in world.plan_of(&VOLUMES).iter().filter(|step| part(step) == 2) {
            let volume = match step {
                Step::Start(operation) => operation.volume().clone(),
                Step::Forget(volume) => volume.clone(),
                Step::Fail(..) => continue,
            };
            prop_assert!(world.desired.volume(&volume).is_none());
            prop_assert!(world.actual.volume(&volume).is_some_and(|record| record.pods.is_empty()));
        }
    }

    #[test]
    fn only_pods_that_run_and_want_a_volume_get_it(world in world()) {
        for step in world.plan_of(&VOLUMES) {
            if let Step::Start(Operation::Mount(mount) | Operation::Map(mount)) = step {
                let pod = mount.pod.uid();
                prop_assert!(world.running.contains(&pod) && world.desired.wants(&mount.volume, &pod));
                prop_assert!(world.actual.volume(&mount.volume).is_some(), "before it is attached");
            }
        }
    }

    #[test]
    fn volumes_are_planned_for_each_on_its_own(world in world()) {
        let text = |steps: Vec<Step>| steps.iter().map(describe).collect::<Vec<_>>();
        let mut together = text(world.plan_of(&VOLUMES));
        let mut apart: Vec<String> = VOLUMES.iter().flat_map(|volume| text(world.plan_of(&[volume]))).collect();
        together.sort();
        apart.sort();
        prop_assert_eq!(together, apart);
        prop_assert!(world.plan_of(&[]).is_empty());
    }
}
