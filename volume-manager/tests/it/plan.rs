//! The plan for a desired and an actual state: a pure function, so a row is two states and a plan.

mod properties;
mod requests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::{PodUid, SpecName, VolumeName};
use api::object::Bytes;
use api::{AttachedVolume, Meta, Node, Pod, PodVolume, Volume, VolumeMode, VolumeSource};
use expect_test::{Expect, expect};
use plugin_api::registry::Registry;
use plugin_api::{Facts, Mounted, PodRecord, Spec, Transition};
use testing::{Toy, toy};
use volume_manager::actual::ActualState;
use volume_manager::desired::{DesiredState, Wanted};
use volume_manager::few::Few;
use volume_manager::operation::Operation;
use volume_manager::reconciler::{Step, Worlds, plan};

/// Compares the plan for all volumes of a world, as far as it would be started.
fn check(world: World, expected: Expect) {
    let dirty: BTreeSet<_> = world
        .desired
        .volumes()
        .map(|(volume, _)| volume)
        .chain(world.actual.volumes().map(|(volume, _)| volume))
        .cloned()
        .collect();
    let text: String =
        world.plan(&dirty, Toy::default()).iter().map(|step| format!("{}\n", describe(step))).collect();
    expected.assert_eq(&text);
}

fn describe(step: &Step) -> String {
    let operation = match step {
        Step::Forget(volume) => return format!("forget {volume}"),
        Step::Fail(pod, error) => return format!("fail {pod}: {error}"),
        Step::Start(operation) => operation,
    };
    let (name, volume) = (operation.name(), operation.volume());
    match operation {
        Operation::Mount(mount) | Operation::Map(mount) => format!(
            "{name} {volume} to {} (device {:?}, pod {:?}{})",
            mount.pod.uid(),
            mount.device,
            mount.before,
            if mount.used_elsewhere { ", used elsewhere" } else { "" }
        ),
        Operation::Unmount(unmount) | Operation::Unmap(unmount) => {
            format!("{name} {volume} from {}", unmount.pod)
        }
        Operation::UnmountDevice(device) | Operation::UnmapDevice(device) => {
            format!("{name} {volume} at {}", device.device_mount_path.display())
        }
        Operation::Expand(expand) => {
            format!("{name} {volume} from {} to {}", expand.old_size, expand.new_size)
        }
        Operation::Verify(verify) => {
            format!("{name} {volume}{}", if verify.attachable { "" } else { " (nothing to attach)" })
        }
        Operation::Attach(_) | Operation::Detach(_) => format!("{name} {volume}"),
    }
}

#[derive(Debug)]
struct World {
    desired: DesiredState,
    actual: ActualState,
    facts: Facts,
    running: BTreeSet<PodUid>,
    complete: bool,
    explained: bool,
    orphans: BTreeSet<(PodUid, SpecName)>,
}

impl World {
    fn new() -> Self {
        Self {
            desired: DesiredState::default(),
            actual: ActualState::default(),
            facts: Facts::default(),
            running: BTreeSet::new(),
            complete: true,
            explained: true,
            orphans: BTreeSet::new(),
        }
    }

    /// The plan for some of the volumes, which are the toy's.
    fn plan(&self, dirty: &BTreeSet<VolumeName>, toy: Toy) -> Vec<Step> {
        let worlds = Worlds {
            desired: &self.desired,
            actual: &self.actual,
            facts: &self.facts,
            registry: &Registry::new(vec![Arc::new(toy)]),
            complete: self.complete,
            explained: self.explained,
            orphans: &self.orphans,
        };
        plan(worlds, dirty, |pod| self.running.contains(pod))
    }

    /// The books are not complete yet.
    fn incomplete(mut self) -> Self {
        self.complete = false;
        self
    }

    /// A directory is still being identified.
    fn unexplained(mut self) -> Self {
        self.explained = false;
        self
    }

    /// A pod that runs wants a volume.
    fn wanted(self, volume: &str, pod: &str) -> Self {
        self.wants(volume, pod, |_| {})
    }

    fn wants(mut self, volume: &str, pod: &str, change: impl FnOnce(&mut Wanted)) -> Self {
        let meta = Meta { uid: pod.to_owned(), ..Meta::named("default", pod) };
        let pod = Arc::new(Pod { meta, ..Pod::default() });
        self.running.insert(pod.uid());
        let mut wanted = Wanted {
            plugin: toy::NAME.into(),
            attachable: false,
            device_mountable: true,
            gid: None,
            reported_in_use: false,
            size_limit: None,
            size: Bytes(1),
            label: String::new(),
            original_label: String::new(),
            pods: Few::default(),
        };
        change(&mut wanted);
        self.desired.add(&name(volume), wanted, pod.uid(), pod, spec(volume), volume.into());
        self
    }

    /// A pod that wants nothing any more still runs.
    fn running(mut self, pod: &str) -> Self {
        self.running.insert(pod.into());
        self
    }

    /// The containers of a pod are gone, even if it wants volumes.
    fn stopped(mut self, pod: &str) -> Self {
        self.running.remove(&pod.into());
        self
    }

    fn attached(self, volume: &str) -> Self {
        let spec = spec(volume);
        let attached = Transition::Attached {
            spec,
            plugin: toy::NAME.into(),
            attachable: false,
            device_path: String::new(),
            claim_size: Some(Bytes(1)),
        };
        self.learns(volume, attached)
    }

    fn staged(self, volume: &str) -> Self {
        let path = PathBuf::from(format!("/global/{volume}"));
        let staged =
            Transition::DeviceMounted { path, device_path: String::new(), selinux_label: String::new() };
        self.attached(volume).learns(volume, staged)
    }

    fn mounted(self, volume: &str, pod: &str) -> Self {
        let world = if self.actual.volume(&name(volume)).is_some() { self } else { self.staged(volume) };
        let mounted =
            Mounted { path: "/target".into(), read_only: false, managed: true, selinux_relabel: false };
        world.learns(volume, Transition::PodMounted(record(volume, pod, ""), mounted))
    }

    fn mounted_with(self, volume: &str, pod: &str, label: &str) -> Self {
        let mounted =
            Mounted { path: "/target".into(), read_only: false, managed: true, selinux_relabel: false };
        self.staged(volume).learns(volume, Transition::PodMounted(record(volume, pod, label), mounted))
    }

    fn uncertain(self, volume: &str, pod: &str) -> Self {
        self.learns(volume, Transition::PodFailed(record(volume, pod, ""), ErrorClass::Uncertain))
    }

    fn learns(mut self, volume: &str, transition: Transition) -> Self {
        self.actual.apply(&name(volume), transition);
        self
    }

    fn refreshed(mut self, pod: &str) -> Self {
        self.actual.require_remount(&pod.into(), |_| true);
        self
    }

    fn node_has(mut self, volume: &str) -> Self {
        let attached = AttachedVolume { name: name(volume), device_path: String::new() };
        self.facts.see_node(Arc::new(Node { volumes_attached: vec![attached], ..Node::default() }));
        self
    }

    fn node_is_unfollowed(mut self) -> Self {
        self.facts.node_unfollowed = true;
        self
    }

    fn node_has_nothing(mut self) -> Self {
        self.facts.see_node(Arc::new(Node::default()));
        self
    }
}

fn name(volume: &str) -> VolumeName {
    volume.into()
}

/// A volume whose name begins with `raw` is a device.
fn spec(volume: &str) -> Arc<Spec> {
    let mode = if volume.starts_with("raw") { VolumeMode::Block } else { VolumeMode::Filesystem };
    let meta = Meta::named("", volume);
    Arc::new(Spec::persistent(Arc::new(Volume { meta, mode: Some(mode), ..Volume::default() }), false))
}

fn record(volume: &str, pod: &str, label: &str) -> PodRecord {
    PodRecord {
        pod: pod.into(),
        spec: spec(volume),
        outer: vec![volume.into()],
        gid: None,
        selinux_label: label.to_owned(),
    }
}

#[test]
fn a_new_volume_is_verified_then_mounted() {
    check(
        World::new().wanted("data", "web"),
        expect![[r#"
        verify_controller_attached_volume data (nothing to attach)
    "#]],
    );
    check(
        World::new().wanted("data", "web").attached("data"),
        expect![[r#"
        volume_mount data to web (device Absent, pod Absent)
    "#]],
    );
    check(
        World::new().wanted("raw", "web").attached("raw"),
        expect![[r#"
        map_volume raw to web (device Absent, pod Absent)
    "#]],
    );
}

#[test]
fn volume_in_its_desired_state_is_left_alone() {
    check(World::new().wanted("data", "web").mounted("data", "web"), expect![[""]]);
}

#[test]
fn wanted_volume_stays_mounted_without_running_containers() {
    check(World::new().wanted("data", "web").mounted("data", "web").stopped("web"), expect![[""]]);
}

#[test]
fn a_volume_leaves_the_old_pod_before_it_enters_the_new() {
    check(
        World::new().mounted("data", "old").wanted("data", "new"),
        expect![[r#"
        volume_unmount data from old
        volume_mount data to new (device Mounted, pod Absent, used elsewhere)
    "#]],
    );
}

#[test]
fn unmounts_start_before_mounts_and_mounts_before_unstages() {
    check(
        World::new().staged("a").wanted("b", "web").attached("b").mounted("c", "old"),
        expect![[r#"
        volume_unmount c from old
        volume_mount b to web (device Absent, pod Absent)
        unmount_device a at /global/a
    "#]],
    );
}

#[test]
fn nothing_is_unstaged_while_a_pod_s_hold_on_it_may_be_found() {
    check(
        World::new().mounted("a", "old").staged("b").unexplained(),
        expect![[r#"
            volume_unmount a from old
        "#]],
    );
}

#[test]
fn nothing_is_taken_away_while_the_books_are_incomplete() {
    check(
        World::new().mounted("a", "old").staged("b").wanted("c", "web").incomplete(),
        expect![[r#"
        verify_controller_attached_volume c (nothing to attach)
    "#]],
    );
}

#[test]
fn unwanted_volume_stays_while_containers_may_run() {
    check(World::new().mounted("data", "old").running("old"), expect![[""]]);
}

#[test]
fn a_volume_leaves_the_node_in_three_steps() {
    check(
        World::new().mounted("data", "old"),
        expect![[r#"
        volume_unmount data from old
    "#]],
    );
    check(
        World::new().staged("data"),
        expect![[r#"
        unmount_device data at /global/data
    "#]],
    );
    check(
        World::new().attached("data"),
        expect![[r#"
        forget data
    "#]],
    );
    check(
        World::new().staged("raw"),
        expect![[r#"
        unmap_device raw at /global/raw
    "#]],
    );
}

#[test]
fn wanted_volume_stays_staged() {
    check(
        World::new().staged("data").wanted("data", "web"),
        expect![[r#"
        volume_mount data to web (device Mounted, pod Absent)
    "#]],
    );
}

#[test]
fn uncertain_volume_is_remounted_or_unmounted() {
    check(
        World::new().wanted("data", "web").staged("data").uncertain("data", "web"),
        expect![[r#"
        volume_mount data to web (device Mounted, pod Uncertain)
    "#]],
    );
    check(
        World::new().staged("data").uncertain("data", "web"),
        expect![[r#"
        volume_unmount data from web
    "#]],
    );
}

#[test]
fn a_stage_that_may_be_there_is_undone() {
    let failed = Transition::DeviceFailed {
        path: "/global/data".into(),
        class: ErrorClass::Uncertain,
        selinux_label: String::new(),
    };
    check(
        World::new().attached("data").learns("data", failed),
        expect![[r#"
        unmount_device data at /global/data
    "#]],
    );
}

#[test]
fn a_stage_that_is_being_tried_is_neither_undone_nor_forgotten() {
    let trying = Transition::DeviceUncertain { path: "/global/data".into() };
    check(World::new().attached("data").learns("data", trying), expect![[""]]);
}

#[test]
fn other_pods_are_seen() {
    check(
        World::new().mounted("data", "a").wanted("data", "a").wanted("data", "b"),
        expect![[r#"
        volume_mount data to b (device Mounted, pod Absent, used elsewhere)
    "#]],
    );
    check(
        World::new().staged("data").uncertain("data", "a").running("a").wanted("data", "b"),
        expect![[r#"
        volume_mount data to b (device Mounted, pod Absent, used elsewhere)
    "#]],
    );
}

#[test]
fn a_refresh_comes_before_a_growth() {
    let world = || World::new().mounted("data", "web").wants("data", "web", |wanted| wanted.size = Bytes(2));
    check(
        world(),
        expect![[r#"
        volume_fs_resize data from 1 to 2
    "#]],
    );
    check(
        world().refreshed("web"),
        expect![[r#"
        volume_mount data to web (device Mounted, pod Mounted)
    "#]],
    );
    check(world().learns("data", Transition::ExpansionBlocked), expect![[""]]);
}

#[test]
fn attachable_volumes_wait_for_the_node_to_say_both_things() {
    let world = |reported| {
        World::new().wants("data", "web", move |wanted| {
            wanted.attachable = true;
            wanted.reported_in_use = reported;
        })
    };
    check(world(false).node_has("data"), expect![[""]]);
    check(world(true).node_has_nothing(), expect![[""]]);
    // A node that was not heard of yet has reported nothing, unless nodes are not followed.
    check(world(true), expect![[""]]);
    check(
        world(true).node_is_unfollowed(),
        expect![[r#"
        verify_controller_attached_volume data
    "#]],
    );
    check(
        world(true).node_has("data"),
        expect![[r#"
        verify_controller_attached_volume data
    "#]],
    );
}

#[test]
fn another_label_is_another_volume() {
    let world = || {
        World::new()
            .mounted_with("data", "old", "a")
            .wants("data", "new", |wanted| wanted.label = "b".to_owned())
    };
    check(
        world(),
        expect![[r#"
        volume_unmount data from old
        fail new: waiting for unmount of volume "data", because it is already mounted to a different pod with a different SELinux label
    "#]],
    );
    let unpublished = world().learns("data", Transition::PodUnmounted("old".into()));
    check(
        unpublished,
        expect![[r#"
        fail new: waiting for unmount of volume "data", because it is already mounted to a different pod with a different SELinux label
        unmount_device data at /global/data
    "#]],
    );
}
