//! The API objects of a scenario.

use std::collections::BTreeMap;

use api::names::{AttachmentName, DriverName, Namespaced, NodeName, PluginName, VolumeHandle, VolumeName};
use api::node::AttachedVolume;
use api::object::Owner;
use api::pod::{InlineCsi, SeLinuxOptions, VolumeDevice, VolumeMount};
use api::storage::{
    Attachment, ClaimReference, ClaimSpec, ClaimStatus, ClaimTemplate, CsiSource, DriverToken, FsGroupPolicy,
    LifecycleMode, NodeAffinity, Requirement,
};
use api::{
    AccessMode, Bytes, Claim, ClaimPhase, Container, CsiDriver, CsiNode, CsiNodeDriver, Meta, Node,
    PersistentSource, Pod, PodVolume, Secret, Sensitive, Volume, VolumeMode, VolumeSource,
};
use volume_manager::plugin::csi;

use crate::driver::{NAME, SIZE};
use crate::script::{Scenario, Tokens};

/// The node with the manager.
pub(crate) const NODE: &str = "node-1";
/// The other node, if the scenario has one.
pub(crate) const NEIGHBOUR: &str = "node-2";

/// A volume that a pod may not use, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// Its claim is not bound.
    Unbound,
    /// Its claim is being deleted and has no protection finalizer.
    Going,
    /// Its node affinity does not match this node.
    Elsewhere,
    /// It is a block volume, and the pod mounts it as a filesystem.
    OtherMode,
    /// Its claim has the name of the pod's own claim, and belongs to another owner.
    SomebodyElses,
}

impl Forbidden {
    /// The objects that exist from the start.
    pub(crate) const ALL: [Self; 5] =
        [Self::Unbound, Self::Going, Self::Elsewhere, Self::OtherMode, Self::SomebodyElses];

    /// The forbidden volume that a pod asks for, if any.
    pub(crate) fn of(scenario: &Scenario, pod: u32) -> Option<Self> {
        let asks = scenario.forbidden && pod % 4 == 3;
        // Depends on the seed, too: a script has a dozen pods, and the first of them must cover each kind.
        let kind = scenario.seed.wrapping_add(u64::from(pod / 4)) % Self::ALL.len() as u64;
        asks.then(|| Self::ALL[kind as usize])
    }

    fn name(self, pod: u32) -> String {
        match self {
            Self::SomebodyElses => format!("p{pod}-own"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// Whether a pod has a generic ephemeral volume.
pub(crate) fn has_its_own(scenario: &Scenario, pod: u32) -> bool {
    scenario.ephemeral && pod % 4 == 1
}

/// Whether a pod has an inline volume.
pub(crate) fn has_inline(scenario: &Scenario, pod: u32) -> bool {
    scenario.inline && pod % 3 != 2
}

/// A disk of the driver with its PersistentVolume and claim.
pub(crate) struct Disk {
    pub(crate) handle: String,
    pub(crate) block: bool,
    pub(crate) volume: Volume,
    pub(crate) claim: Claim,
}

impl Disk {
    fn new(scenario: &Scenario, name: &str, block: bool) -> Self {
        let handle = format!("disk-{name}");
        let volume = volume(scenario, name, &handle, block);
        Self { handle, block, volume, claim: claim(name, block) }
    }

    /// One of the scenario's volumes.
    pub(crate) fn numbered(scenario: &Scenario, number: usize) -> Self {
        let mut disk = Self::new(scenario, &format!("v{number}"), scenario.volumes[number]);
        if let PersistentSource::Csi(csi) = &mut disk.volume.source
            && scenario.secrets
        {
            let secret = Some(Box::new(Namespaced::new("default", SECRET)));
            match number % 2 {
                0 => csi.node_stage_secret = secret.clone(),
                _ => csi.node_publish_secret = secret.clone(),
            }
            if number.is_multiple_of(3) {
                csi.node_expand_secret = secret;
            }
        }
        disk
    }

    /// The disk of a pod's generic ephemeral volume.
    pub(crate) fn own(scenario: &Scenario, pod: u32) -> Self {
        let mut disk = Self::new(scenario, &format!("p{pod}-own"), false);
        disk.claim.meta.owners = vec![owner(&pod_uid(pod))];
        disk
    }

    /// A disk that `pod` may not use.
    pub(crate) fn forbidden(scenario: &Scenario, why: Forbidden, pod: u32) -> Self {
        let mut disk = Self::new(scenario, &why.name(pod), why == Forbidden::OtherMode);
        match why {
            Forbidden::Unbound => disk.claim.status.phase = ClaimPhase::Lost,
            Forbidden::Going => disk.claim.meta.deleted = Some("2026-01-01T00:00:00Z".to_owned()),
            Forbidden::Elsewhere => disk.volume.affinity = Some(zone("b")),
            Forbidden::OtherMode => {}
            Forbidden::SomebodyElses => disk.claim.meta.owners = vec![owner("uid-of-somebody-else")],
        }
        disk
    }

    /// The VolumeAttachment, with status attached.
    pub(crate) fn attachment(&self) -> Attachment {
        let name = AttachmentName::of(
            &VolumeHandle::new(&self.handle),
            &DriverName::new(NAME),
            &NodeName::new(NODE),
        );
        Attachment {
            meta: Meta::named("", name.to_string()),
            attacher: NAME.to_owned(),
            node: NODE.to_owned(),
            volume: self.volume.meta.name.clone(),
            attached: true,
            metadata: BTreeMap::from([("slot".to_owned(), self.handle.clone())]),
            ..Attachment::default()
        }
    }

    /// The entry in the node's list of attached volumes.
    pub(crate) fn attached(&self) -> AttachedVolume {
        let name = VolumeName::shared(&PluginName::new(csi::NAME), &format!("{NAME}^{}", self.handle));
        AttachedVolume { name, device_path: String::new() }
    }
}

fn owner(uid: &str) -> Owner {
    Owner { uid: uid.to_owned(), controller: true, ..Owner::default() }
}

fn zone(zone: &str) -> NodeAffinity {
    let operator = "In".to_owned();
    let requirement = Requirement { key: "zone".to_owned(), operator, values: vec![zone.to_owned()] };
    NodeAffinity { terms: vec![vec![requirement]] }
}

/// The secret that all volumes share.
const SECRET: &str = "credentials";

/// Name and namespace of the secret.
pub(crate) fn secret_name() -> (String, String) {
    (SECRET.to_owned(), "default".to_owned())
}

pub(crate) fn secret() -> Secret {
    let data = BTreeMap::from([("key".to_owned(), Sensitive::new(b"of the simulation".to_vec()))]);
    Secret { meta: Meta::named("default", SECRET), data }
}

/// A node, with the annotation for an attach/detach controller if there is one.
pub(crate) fn node(scenario: &Scenario, name: &str) -> Node {
    let mut meta = Meta::named("", name);
    meta.labels.insert("zone".to_owned(), "a".to_owned());
    if scenario.controlled {
        let managed = "volumes.kubernetes.io/controller-managed-attach-detach".to_owned();
        meta.annotations.insert(managed, "true".to_owned());
    }
    Node { meta, ready: true, ..Node::default() }
}

/// The CSINode object with the driver and the node's id.
pub(crate) fn csi_node(name: &str) -> CsiNode {
    let driver =
        CsiNodeDriver { name: NAME.to_owned(), node_id: name.to_owned(), ..CsiNodeDriver::default() };
    CsiNode { meta: Meta::named("", name), drivers: vec![driver] }
}

pub(crate) fn driver(scenario: &Scenario) -> CsiDriver {
    CsiDriver {
        meta: Meta::named("", NAME),
        attach_required: scenario.attachable,
        requires_republish: scenario.republishes,
        selinux_mount: scenario.alone,
        pod_info: scenario.tells_pods,
        lifecycle_modes: match scenario.inline {
            true => vec![LifecycleMode::Persistent, LifecycleMode::Ephemeral],
            false => vec![LifecycleMode::Persistent],
        },
        tokens: scenario.tokens.iter().map(|_| token()).collect(),
        token_in_secrets: scenario.tokens == Some(Tokens::InSecrets),
        fs_group_policy: Some(match scenario.seed % 3 {
            0 => FsGroupPolicy::None,
            1 => FsGroupPolicy::File,
            _ => FsGroupPolicy::ReadWriteOnceWithFsType,
        }),
        ..CsiDriver::default()
    }
}

/// The token that the driver asks for.
fn token() -> DriverToken {
    DriverToken { audience: "vault".to_owned(), expiration: Some(600) }
}

fn volume(scenario: &Scenario, name: &str, handle: &str, block: bool) -> Volume {
    Volume {
        meta: Meta::named("", format!("pv-{name}")),
        capacity: Bytes(SIZE),
        access_modes: modes(scenario),
        claim: Some(ClaimReference { claim: Namespaced::new("default", name), uid: format!("claim-{name}") }),
        mode: Some(mode(block)),
        affinity: scenario.forbidden.then(|| zone("a")),
        source: PersistentSource::Csi(Box::new(CsiSource {
            driver: DriverName::new(NAME),
            handle: VolumeHandle::new(handle),
            fs_type: "ext4".to_owned(),
            attributes: BTreeMap::from([("tier".to_owned(), "fast".to_owned())]),
            ..CsiSource::default()
        })),
        ..Volume::default()
    }
}

fn claim(name: &str, block: bool) -> Claim {
    let mut meta = Meta::named("default", name);
    meta.uid = format!("claim-{name}");
    Claim {
        meta,
        spec: ClaimSpec { volume: format!("pv-{name}"), mode: mode(block), ..ClaimSpec::default() },
        status: ClaimStatus { phase: ClaimPhase::Bound, capacity: Bytes(SIZE), ..ClaimStatus::default() },
    }
}

pub(crate) fn modes(scenario: &Scenario) -> Vec<AccessMode> {
    vec![match (scenario.alone, scenario.one_node) {
        (true, _) => AccessMode::ReadWriteOncePod,
        (false, true) => AccessMode::ReadWriteOnce,
        (false, false) => AccessMode::ReadWriteMany,
    }]
}

pub(crate) fn mode(block: bool) -> VolumeMode {
    if block { VolumeMode::Block } else { VolumeMode::Filesystem }
}

fn pod_uid(number: u32) -> String {
    format!("uid-{number}")
}

/// A pod with these volumes of the scenario, and with the other volumes that pods of the scenario have.
pub(crate) fn pod(scenario: &Scenario, number: u32, volumes: &[usize]) -> Pod {
    let mut pod = claiming_pod(scenario, NODE, &format!("p{number}"), number, volumes);
    let name = |volume: usize| format!("v{volume}");
    if let Some(first) = volumes.first().filter(|_| scenario.named_twice) {
        add(&mut pod, "again", claimed(&name(*first)), scenario.volumes[*first]);
    }
    let rest = (0..scenario.volumes.len()).find(|volume| !volumes.contains(volume));
    if let Some(other) = rest.filter(|_| scenario.unused) {
        pod.volumes.push(PodVolume { name: "unused".into(), source: claimed(&name(other)) });
    }
    if scenario.scratch {
        add(&mut pod, "scratch", VolumeSource::EmptyDir { medium: String::new(), size_limit: None }, false);
    }
    if has_inline(scenario, number) {
        add(&mut pod, "inline", inline(scenario, number), false);
    }
    let own = || {
        let mut template = ClaimTemplate::default();
        if scenario.provisioned {
            template.spec = crate::claims::spec(scenario, false);
        }
        VolumeSource::Ephemeral { template: Box::new(template) }
    };
    match Forbidden::of(scenario, number) {
        Some(Forbidden::SomebodyElses) => add(&mut pod, "own", own(), false),
        Some(why) => add(&mut pod, "forbidden", claimed(&why.name(number)), false),
        None if has_its_own(scenario, number) => add(&mut pod, "own", own(), false),
        None => {}
    }
    pod.security.fs_group = scenario.grouped.then_some(2000);
    if scenario.alone {
        let level = format!("s0:c{}", number % 2);
        pod.security.selinux = Some(Box::new(SeLinuxOptions { level, ..SeLinuxOptions::default() }));
    }
    pod
}

/// A pod of the other node.
pub(crate) fn pod_elsewhere(scenario: &Scenario, number: u32, volumes: &[usize]) -> Pod {
    claiming_pod(scenario, NEIGHBOUR, &format!("e{number}"), number, volumes)
}

/// A pod that claims these volumes and has no others.
fn claiming_pod(scenario: &Scenario, node: &str, name: &str, number: u32, volumes: &[usize]) -> Pod {
    let mut pod = Pod { meta: Meta::named("default", name), ..Pod::default() };
    pod.meta.uid = pod_uid(number);
    pod.node = node.to_owned();
    pod.containers = vec![Container { name: "c".to_owned(), ..Container::default() }];
    for volume in volumes {
        let name = format!("v{volume}");
        add(&mut pod, &name, claimed(&name), scenario.volumes[*volume]);
    }
    pod
}

/// An inline volume of the driver.
fn inline(scenario: &Scenario, pod: u32) -> VolumeSource {
    VolumeSource::Csi(InlineCsi {
        driver: DriverName::new(NAME),
        read_only: pod.is_multiple_of(2),
        attributes: BTreeMap::from([("size".to_owned(), "small".to_owned())]),
        secret: scenario.secrets.then(|| SECRET.to_owned()),
        ..InlineCsi::default()
    })
}

fn claimed(claim: &str) -> VolumeSource {
    VolumeSource::Claim { claim: claim.to_owned(), read_only: false }
}

/// Adds a volume to a pod, and a mount of it to the pod's container.
fn add(pod: &mut Pod, name: &str, source: VolumeSource, device: bool) {
    pod.volumes.push(PodVolume { name: name.into(), source });
    let (volume, container) = (name.to_owned(), &mut pod.containers[0]);
    match device {
        true => container.devices.push(VolumeDevice { volume, path: format!("/dev/{name}") }),
        false => {
            let path = format!("/data/{name}");
            container.mounts.push(VolumeMount { volume, path, ..VolumeMount::default() });
        }
    }
}
