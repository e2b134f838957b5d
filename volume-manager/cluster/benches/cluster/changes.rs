//! A change for each controller, and what it has done when it has seen it.

use std::any::Any;
use std::sync::Arc;

use api::clock::TokioClock;
use api::{
    ApiSource, Attachment, Bytes, Claim, ClaimPhase, GroupSnapshotContent, Key, Kind, Pod, Resource,
    SnapshotContent, Volume,
};
use cluster::{
    Attacher, AttacherConfig, Binder, Ephemeral, GroupSnapshotController, GroupSnapshotter,
    GroupSnapshotterConfig, Modifier, ModifierConfig, Placement, Protection, Provisioner, ProvisionerConfig,
    Resizer, ResizerConfig, SnapshotController, Snapshotter, SnapshotterConfig,
};
use testing::MemoryApi;

use crate::obedient::Obedient;
use crate::others;
use crate::others::DRIVER;

/// One change, which is to be made for the claim of this namespace and name.
pub(crate) struct Change {
    pub(crate) controller: &'static str,
    /// It runs until this is dropped.
    pub(crate) start: fn(Arc<dyn ApiSource>) -> Box<dyn Any>,
    /// What has to be there before.
    pub(crate) before: fn(&MemoryApi, &str, &str),
    pub(crate) make: fn(&MemoryApi, &str, &str),
    pub(crate) is_done: fn(&MemoryApi, &str, &str) -> bool,
}

fn put(api: &MemoryApi, object: impl Resource) {
    api.put(object.into_object());
}

fn bound(api: &MemoryApi, namespace: &str, name: &str) {
    put(api, others::volume(namespace, name));
    put(api, others::bound(namespace, name));
}

/// The objects that are there for a claim's change, and because of it.
pub(crate) fn made(api: &MemoryApi, namespace: &str, name: &str) -> Vec<Key> {
    let of_cluster = [
        (Kind::Volume, format!("pv-{name}")),
        (Kind::Volume, format!("pvc-claim-{name}")),
        (Kind::Attachment, format!("csi-{name}")),
        (Kind::SnapshotContent, format!("snapcontent-snapshot-{name}")),
        (Kind::GroupSnapshotContent, format!("groupsnapcontent-group-{name}")),
    ];
    let kinds = [Kind::Pod, Kind::Claim, Kind::Snapshot, Kind::GroupSnapshot, Kind::Notification];
    let in_namespace = kinds.into_iter().flat_map(|kind| api.all_in(kind, namespace));
    let of_cluster = of_cluster.into_iter().map(|(kind, name)| Key::cluster(kind, name));
    in_namespace.map(|object| object.key()).chain(of_cluster).collect()
}

pub(crate) fn all() -> Vec<Change> {
    volumes().into_iter().chain(claims()).chain(snapshots()).collect()
}

fn volumes() -> [Change; 4] {
    [
        Change {
            controller: "attacher",
            start: |api| {
                let config = AttacherConfig::new(DRIVER);
                Box::new(Attacher::start(config, api, TokioClock::shared(), Arc::new(Obedient)))
            },
            before: |api, namespace, name| put(api, others::volume(namespace, name)),
            make: |api, _, name| put(api, others::attachment(name)),
            is_done: |api, _, name| {
                api.read::<Attachment>("", &format!("csi-{name}"))
                    .is_some_and(|attachment| attachment.attached)
            },
        },
        Change {
            controller: "provisioner",
            start: |api| {
                let config =
                    ProvisionerConfig { topology: true, clones: true, ..ProvisionerConfig::new(DRIVER) };
                Box::new(Provisioner::start(config, api, TokioClock::shared(), Arc::new(Obedient)))
            },
            before: |_, _, _| {},
            make: |api, namespace, name| {
                let mut claim = others::claim(namespace, name);
                let asked = "volume.kubernetes.io/storage-provisioner";
                claim.meta.annotations.insert(asked.to_owned(), DRIVER.to_owned());
                put(api, claim);
            },
            is_done: |api, _, name| api.read::<Volume>("", &format!("pvc-claim-{name}")).is_some(),
        },
        Change {
            controller: "resizer",
            start: |api| {
                let config = ResizerConfig::new(DRIVER);
                Box::new(Resizer::start(config, api, TokioClock::shared(), Arc::new(Obedient)))
            },
            before: bound,
            make: |api, namespace, name| {
                let mut larger = others::bound(namespace, name);
                larger.spec.request = Bytes(2);
                put(api, larger);
            },
            is_done: |api, namespace, name| api.claim(namespace, name).status.capacity == Bytes(2),
        },
        Change {
            controller: "modifier",
            start: |api| {
                let config = ModifierConfig::new(DRIVER);
                Box::new(Modifier::start(config, api, TokioClock::shared(), Arc::new(Obedient)))
            },
            before: bound,
            make: |api, namespace, name| {
                let mut claim = others::bound(namespace, name);
                claim.spec.attributes_class = "gold".to_owned();
                put(api, claim);
            },
            is_done: |api, namespace, name| api.claim(namespace, name).status.attributes_class == "gold",
        },
    ]
}

fn claims() -> [Change; 4] {
    [
        Change {
            controller: "binder",
            start: |api| Box::new(Binder::start(api, TokioClock::shared())),
            before: |api, namespace, name| put(api, others::claim(namespace, name)),
            make: |api, namespace, name| put(api, others::volume(namespace, name)),
            is_done: |api, namespace, name| api.claim(namespace, name).status.phase == ClaimPhase::Bound,
        },
        Change {
            controller: "ephemeral claims",
            start: |api| Box::new(Ephemeral::start(api, TokioClock::shared())),
            before: bound,
            make: |api, namespace, name| {
                let mut pod = others::pod(namespace, name, name);
                pod.volumes.push(others::own());
                put(api, pod);
            },
            is_done: |api, namespace, name| api.read::<Claim>(namespace, &format!("{name}-own")).is_some(),
        },
        Change {
            controller: "placement",
            start: |api| Box::new(Placement::start(api, TokioClock::shared())),
            before: |api, namespace, name| {
                let mut claim = others::claim(namespace, name);
                claim.spec.class = Some("late".to_owned());
                put(api, claim);
            },
            make: |api, namespace, name| put(api, others::pod(namespace, name, name)),
            is_done: |api, namespace, name| {
                let claim = api.claim(namespace, name);
                claim.meta.annotations.contains_key("volume.kubernetes.io/selected-node")
            },
        },
        Change {
            controller: "protection",
            start: |api| Box::new(Protection::start(api, TokioClock::shared())),
            before: |api, namespace, name| {
                bound(api, namespace, name);
                put(api, others::pod(namespace, name, name));
                let mut claim = api.claim(namespace, name);
                claim.meta.deleted = Some("now".to_owned());
                put(api, claim);
            },
            make: |api, namespace, name| api.remove(&Key::namespaced(Kind::Pod, namespace, name)),
            is_done: |api, namespace, name| {
                api.read::<Claim>(namespace, name).is_none() && api.read::<Pod>(namespace, name).is_none()
            },
        },
    ]
}

fn snapshots() -> [Change; 4] {
    [
        Change {
            controller: "snapshot controller",
            start: |api| Box::new(SnapshotController::start(api, TokioClock::shared())),
            before: bound,
            make: |api, namespace, name| put(api, others::snapshot(namespace, name)),
            is_done: |api, _, name| content(api, name).is_some(),
        },
        Change {
            controller: "snapshotter",
            start: |api| {
                let config = SnapshotterConfig::new(DRIVER);
                Box::new(Snapshotter::start(config, api, TokioClock::shared(), Arc::new(Obedient)))
            },
            before: |_, _, _| {},
            make: |api, namespace, name| put(api, others::content(namespace, name)),
            is_done: |api, _, name| content(api, name).is_some_and(|content| content.status.ready),
        },
        Change {
            controller: "group controller",
            start: |api| Box::new(GroupSnapshotController::start(api, TokioClock::shared())),
            before: |api, namespace, name| {
                put(api, others::volume(namespace, name));
                let mut claim = others::bound(namespace, name);
                claim.meta.labels.insert(name.to_owned(), String::new());
                put(api, claim);
            },
            make: |api, namespace, name| put(api, others::group(namespace, name)),
            is_done: |api, _, name| group_content(api, name).is_some(),
        },
        Change {
            controller: "group snapshotter",
            start: |api| {
                let config = GroupSnapshotterConfig::new(DRIVER);
                Box::new(GroupSnapshotter::start(config, api, TokioClock::shared(), Arc::new(Obedient)))
            },
            before: |_, _, _| {},
            make: |api, namespace, name| put(api, others::group_content(namespace, name)),
            is_done: |api, _, name| group_content(api, name).is_some_and(|content| content.status.ready),
        },
    ]
}

fn content(api: &MemoryApi, name: &str) -> Option<SnapshotContent> {
    api.read("", &format!("snapcontent-snapshot-{name}"))
}

fn group_content(api: &MemoryApi, name: &str) -> Option<GroupSnapshotContent> {
    api.read("", &format!("groupsnapcontent-group-{name}"))
}
