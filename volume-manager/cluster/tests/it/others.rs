//! Claims that are bound and used, with all that belongs to them.

use api::group_snapshot::{GroupContentSource, GroupMember, GroupSource};
use api::names::{DriverName, Namespaced, VolumeHandle};
use api::protection::{CLAIM, VOLUME};
use api::snapshot::{ContentSource, ContentStatus, SnapshotSource, SnapshotStatus};
use api::storage::{ClaimReference, ClaimTemplate, CsiSource, Requirement};
use api::{
    AccessMode, Attachment, AttributesClass, Bytes, Claim, ClaimPhase, Class, CsiNode, CsiNodeDriver,
    GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent, Meta, Node, Owner, PersistentSource, Pod,
    PodVolume, Resource, Snapshot, SnapshotClass, SnapshotContent, Volume, VolumeMode, VolumeSource,
};
use testing::MemoryApi;

pub(crate) const DRIVER: &str = "a.csi.example.com";
pub(crate) const NODE: &str = "node-1";
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(crate) const ATTACHER: &str = "external-attacher/a-csi-example-com";

/// The number of claims in a namespace.
const BESIDE: usize = 10;

/// The classes and the node.
pub(crate) fn furnish(api: &MemoryApi) {
    for (name, wait_for_consumer) in [("fast", false), ("late", true)] {
        let class = Class {
            meta: Meta::named("", name),
            provisioner: DRIVER.to_owned(),
            reclaim: "Delete".to_owned(),
            wait_for_consumer,
            ..Class::default()
        };
        api.put(class.into_object());
    }
    let snapshots = SnapshotClass {
        meta: Meta::named("", "daily"),
        driver: DRIVER.to_owned(),
        deletion: "Delete".to_owned(),
        ..SnapshotClass::default()
    };
    api.put(snapshots.into_object());
    let groups = GroupSnapshotClass {
        meta: Meta::named("", "weekly"),
        driver: DRIVER.to_owned(),
        deletion: "Delete".to_owned(),
        ..GroupSnapshotClass::default()
    };
    api.put(groups.into_object());
    let gold = AttributesClass {
        meta: Meta::named("", "gold"),
        driver: DRIVER.to_owned(),
        ..AttributesClass::default()
    };
    api.put(gold.into_object());
    node(api, NODE, "a");
}

/// A node that has the driver, in a zone.
fn node(api: &MemoryApi, name: &str, zone: &str) {
    let mut driver =
        CsiNodeDriver { name: DRIVER.to_owned(), node_id: name.to_owned(), ..CsiNodeDriver::default() };
    driver.topology_keys.push("zone".to_owned());
    let drivers = CsiNode { meta: Meta::named("", name), drivers: vec![driver] };
    api.put(drivers.into_object());
    let mut node = Node { meta: Meta::named("", name), ready: true, ..Node::default() };
    node.meta.labels.insert("zone".to_owned(), zone.to_owned());
    api.put(node.into_object());
}

/// A claim that was provisioned, bound, attached, used by a pod and snapshotted, one that was made for its pod, and a
/// node.
pub(crate) fn add(api: &MemoryApi, number: usize) {
    let (namespace, name) = (format!("n{}", number / BESIDE), format!("c{number}"));
    node(api, &format!("other-{number}"), ["a", "b", "c"][number % 3]);
    api.put(bound(&namespace, &name).into_object());
    api.put(volume(&namespace, &name).into_object());
    let mut attachment = attachment(&name);
    attachment.attached = true;
    attachment.meta.finalizers.push(ATTACHER.to_owned());
    api.put(attachment.into_object());
    let mut content = content(&namespace, &name);
    content.status =
        ContentStatus { handle: format!("cut-{number}"), ready: true, ..ContentStatus::default() };
    let mut snapshot = snapshot(&namespace, &name);
    snapshot.status =
        SnapshotStatus { content: content.meta.name.clone(), ready: true, ..SnapshotStatus::default() };
    api.put(content.into_object());
    api.put(snapshot.into_object());
    let mut content = group_content(&namespace, &name);
    content.status.handle = format!("group-{number}");
    content.status.ready = true;
    content.status.members =
        vec![GroupMember { snapshot: format!("cut-{number}"), ..GroupMember::default() }];
    let mut group = group(&namespace, &name);
    (group.status.content, group.status.ready) = (content.meta.name.clone(), true);
    api.put(content.into_object());
    api.put(group.into_object());
    let mut pod = pod(&namespace, &format!("p{number}"), &name);
    pod.volumes.push(own());
    let mut claim = bound(&namespace, &format!("p{number}-own"));
    claim.meta.owners.push(Owner {
        kind: "Pod".to_owned(),
        name: pod.meta.name.clone(),
        uid: pod.meta.uid.clone(),
        controller: true,
        ..Owner::default()
    });
    api.put(volume(&namespace, &claim.meta.name).into_object());
    api.put(claim.into_object());
    api.put(pod.into_object());
}

/// A claim without a volume.
pub(crate) fn claim(namespace: &str, name: &str) -> Claim {
    let mut claim = Claim { meta: Meta::named(namespace, name), ..Claim::default() };
    claim.meta.uid = format!("claim-{name}");
    claim.meta.finalizers.push(CLAIM.to_owned());
    claim.spec.access_modes = vec![AccessMode::ReadWriteOnce];
    claim.spec.request = Bytes(1);
    claim.spec.class = Some("fast".to_owned());
    claim
}

/// A claim that is bound to its [`volume`].
pub(crate) fn bound(namespace: &str, name: &str) -> Claim {
    let mut claim = claim(namespace, name);
    claim.meta.annotations.insert("pv.kubernetes.io/bind-completed".to_owned(), "yes".to_owned());
    claim.spec.volume = format!("pv-{name}");
    (claim.status.phase, claim.status.capacity) = (ClaimPhase::Bound, Bytes(1));
    claim
}

pub(crate) fn volume(namespace: &str, claim: &str) -> Volume {
    let reference =
        ClaimReference { claim: Namespaced::new(namespace, claim), uid: format!("claim-{claim}") };
    let mut volume = Volume {
        meta: Meta::named("", format!("pv-{claim}")),
        capacity: Bytes(1),
        access_modes: vec![AccessMode::ReadWriteOnce],
        claim: Some(reference),
        mode: Some(VolumeMode::Filesystem),
        class: "fast".to_owned(),
        reclaim: "Delete".to_owned(),
        phase: "Bound".to_owned(),
        source: PersistentSource::Csi(Box::new(CsiSource {
            driver: DriverName::new(DRIVER),
            handle: VolumeHandle::new(format!("handle-of-{claim}")),
            ..CsiSource::default()
        })),
        ..Volume::default()
    };
    volume.meta.annotations.insert(PROVISIONED_BY.to_owned(), DRIVER.to_owned());
    volume.meta.finalizers.push(VOLUME.to_owned());
    volume
}

/// The attachment of a claim's volume, before it is attached.
pub(crate) fn attachment(claim: &str) -> Attachment {
    Attachment {
        meta: Meta::named("", format!("csi-{claim}")),
        attacher: DRIVER.to_owned(),
        node: NODE.to_owned(),
        volume: format!("pv-{claim}"),
        ..Attachment::default()
    }
}

pub(crate) fn snapshot(namespace: &str, claim: &str) -> Snapshot {
    let mut snapshot =
        Snapshot { meta: Meta::named(namespace, format!("of-{claim}")), ..Snapshot::default() };
    snapshot.meta.uid = format!("snapshot-{claim}");
    snapshot.source = SnapshotSource::Claim(claim.to_owned());
    snapshot.class = Some("daily".to_owned());
    snapshot
}

/// The content of a claim's [`snapshot`], before it is taken.
pub(crate) fn content(namespace: &str, claim: &str) -> SnapshotContent {
    SnapshotContent {
        meta: Meta::named("", format!("snapcontent-snapshot-{claim}")),
        snapshot: Namespaced::new(namespace, format!("of-{claim}")),
        snapshot_uid: format!("snapshot-{claim}"),
        driver: DRIVER.to_owned(),
        class: "daily".to_owned(),
        deletion: "Delete".to_owned(),
        source: ContentSource::Volume(format!("handle-of-{claim}")),
        ..SnapshotContent::default()
    }
}

/// A group snapshot of the claims with the label of a claim's name.
pub(crate) fn group(namespace: &str, claim: &str) -> GroupSnapshot {
    let mut group =
        GroupSnapshot { meta: Meta::named(namespace, format!("group-{claim}")), ..GroupSnapshot::default() };
    group.meta.uid = format!("group-{claim}");
    let labelled =
        Requirement { key: claim.to_owned(), operator: "Exists".to_owned(), ..Requirement::default() };
    group.source = GroupSource::Claims(vec![labelled]);
    group.class = Some("weekly".to_owned());
    group
}

/// The content of a claim's [`group`], before it is taken.
pub(crate) fn group_content(namespace: &str, claim: &str) -> GroupSnapshotContent {
    GroupSnapshotContent {
        meta: Meta::named("", format!("groupsnapcontent-group-{claim}")),
        group: Namespaced::new(namespace, format!("group-{claim}")),
        group_uid: format!("group-{claim}"),
        driver: DRIVER.to_owned(),
        class: "weekly".to_owned(),
        deletion: "Delete".to_owned(),
        source: GroupContentSource::Volumes(vec![format!("handle-of-{claim}")]),
        ..GroupSnapshotContent::default()
    }
}

/// A pod on the node that uses a claim.
pub(crate) fn pod(namespace: &str, name: &str, claim: &str) -> Pod {
    let mut pod = Pod { meta: Meta::named(namespace, name), ..Pod::default() };
    pod.meta.uid = format!("pod-{name}");
    pod.node = NODE.to_owned();
    let source = VolumeSource::Claim { claim: claim.to_owned(), read_only: false };
    pod.volumes.push(PodVolume { name: "data".into(), source });
    pod
}

/// A volume whose claim is made for its pod.
pub(crate) fn own() -> PodVolume {
    let template = ClaimTemplate { spec: claim("", "").spec, ..ClaimTemplate::default() };
    PodVolume { name: "own".into(), source: VolumeSource::Ephemeral { template: Box::new(template) } }
}
