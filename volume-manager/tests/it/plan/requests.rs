//! The fields of a planned operation, each from its entry in the states.

use plugin_api::Before;
use testing::toy::GrownBy;

use super::*;

/// The operations that are planned where volumes are of this toy.
fn planned_with(world: &World, toy: Toy) -> Vec<Operation> {
    let steps = world.plan(&BTreeSet::from([name("data")]), toy).into_iter();
    let started =
        steps.filter_map(|step| if let Step::Start(operation) = step { Some(operation) } else { None });
    started.collect()
}

fn planned(world: &World) -> Operation {
    let mut operations = planned_with(world, Toy::default());
    assert_eq!(operations.len(), 1, "{operations:?}");
    operations.remove(0)
}

/// `data` is staged, with its device at `attachment`.
fn staged() -> World {
    let at = Transition::DeviceMounted {
        path: "/global/data".into(),
        device_path: "attachment".to_owned(),
        selinux_label: String::new(),
    };
    World::new().attached("data").learns("data", at)
}

#[test]
fn mount_request_has_the_state_of_the_books() {
    let wants = |world: World| {
        world.wants("data", "web", |wanted| {
            wanted.gid = Some("7".to_owned());
            wanted.size_limit = Some(Bytes(5));
            wanted.attachable = true;
        })
    };
    let Operation::Mount(plain) = planned(&wants(staged())) else { panic!("it is mounted") };
    assert_eq!(
        (plain.expansion_failed, plain.expansion_blocked, plain.used_elsewhere),
        (false, false, false)
    );
    assert_eq!((plain.device, plain.before), (Before::Mounted, Before::Absent));
    assert_eq!((plain.gid.as_deref(), plain.size_limit, plain.attachable), (Some("7"), Some(Bytes(5)), true));
    assert_eq!((&*plain.device_path, &*plain.selinux_label), ("attachment", ""));
    assert_eq!(plain.outer, ["data".into()]);

    let labelled = staged().wants("data", "web", |wanted| wanted.label = "label".to_owned());
    let Operation::Mount(labelled) = planned(&labelled) else { panic!("it is mounted") };
    assert_eq!(labelled.selinux_label, "label");

    for (pod, inner, may_have) in [("web", "data", false), ("other", "more", false), ("other", "data", true)]
    {
        let mut left = wants(staged());
        left.orphans = BTreeSet::from([(pod.into(), inner.into())]);
        let Operation::Mount(left) = planned(&left) else { panic!("it is mounted") };
        assert_eq!(left.used_elsewhere, may_have, "{pod} {inner}");
    }

    let failed = wants(staged()).learns("data", Transition::ExpansionFailed(true));
    let Operation::Mount(failed) = planned(&failed) else { panic!("it is mounted") };
    assert_eq!((failed.expansion_failed, failed.expansion_blocked), (true, false));
    let blocked = wants(staged()).learns("data", Transition::ExpansionBlocked);
    let Operation::Mount(blocked) = planned(&blocked) else { panic!("it is mounted") };
    assert_eq!((blocked.expansion_failed, blocked.expansion_blocked), (false, true));
}

#[test]
fn expansion_request_has_the_path_and_the_earlier_failure() {
    let grown = |failed| {
        let world = staged().mounted("data", "web").wants("data", "web", |wanted| wanted.size = Bytes(2));
        let world = world.learns("data", Transition::ExpansionFailed(failed));
        let Operation::Expand(expand) = planned(&world) else { panic!("it grows") };
        (expand.device_path.clone(), expand.expansion_failed, expand.mounted.path.clone(), expand.pod.uid())
    };
    for failed in [false, true] {
        assert_eq!(grown(failed), ("attachment".to_owned(), failed, "/target".into(), "web".into()));
    }
}

#[test]
fn only_what_can_grow_on_the_node_does() {
    let world = staged().mounted("data", "web").wants("data", "web", |wanted| wanted.size = Bytes(2));
    assert_eq!(planned_with(&world, Toy::default()).len(), 1);
    for grown_by in [GrownBy::Controller, GrownBy::Nothing] {
        let toy = Toy::default();
        toy.set_grown_by(grown_by);
        assert_eq!(planned_with(&world, toy).len(), 0, "{grown_by:?}");
    }
}

#[test]
fn unmount_request_has_the_mount_and_unstage_request_its_path() {
    let Operation::Unmount(unmount) = planned(&staged().mounted("data", "web")) else { panic!("it goes") };
    assert_eq!((unmount.pod.as_str(), unmount.inner.as_str()), ("web", "data"));
    assert_eq!(unmount.spec, Some(spec("data")));
    let Operation::UnmountDevice(unstage) = planned(&staged()) else { panic!("it goes") };
    assert_eq!((&*unstage.device_path, &unstage.device_mount_path), ("attachment", &"/global/data".into()));
    assert_eq!((&unstage.spec, unstage.plugin.as_str()), (&spec("data"), toy::NAME));
}

#[test]
fn only_a_persistent_volumes_size_is_asked_for() {
    let verify = |spec: Arc<Spec>| {
        let mut world = World::new().wanted("data", "web");
        let wanted = world.desired.volume(&name("data")).expect("a line above").clone();
        let pod = Arc::clone(&wanted.pods[&"web".into()].pod);
        world.desired.add(&name("data"), wanted, pod.uid(), pod, spec, "data".into());
        let Operation::Verify(verify) = planned(&world) else { panic!("it is verified") };
        verify.wants_size
    };
    assert!(verify(spec("data")));
    let source = VolumeSource::Secret(Default::default());
    assert!(!verify(Arc::new(Spec::inline(Arc::new(PodVolume { name: "data".into(), source })))));
}
