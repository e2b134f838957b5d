//! The cluster as the controller sees it, and what its pods want attached where.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::follow::News;
use api::names::{DriverName, Namespaced, NodeName, PluginName, PodUid, VolumeName};
use api::{
    AttachedVolume, Attachment, Claim, ClaimPhase, Key, Kind, Node, Object, Pod, PodVolume, Resource, Volume,
    VolumeSource,
};
use plugin_api::registry::Registry;
use plugin_api::{Facts, Spec};

/// Only nodes that say so leave attaching to the controller.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The kinds the controller follows.
pub(super) const FOLLOWED: [Kind; 6] =
    [Kind::Node, Kind::Claim, Kind::Volume, Kind::CsiDriver, Kind::Attachment, Kind::Pod];

/// Every object that matters, as last seen.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<NodeName, Arc<Node>>,
    pub(super) volumes: BTreeMap<String, Arc<Volume>>,
    pub(super) attachments: BTreeMap<String, Arc<Attachment>>,
    pub(super) facts: Facts,
    pods: BTreeMap<Namespaced, Arc<Pod>>,
    claims: BTreeMap<Namespaced, Arc<Claim>>,
    synced: BTreeSet<Kind>,
}

/// A volume that pods want attached to a node.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) spec: Arc<Spec>,
    pub(super) plugin: PluginName,
    pub(super) pods: BTreeMap<PodUid, Arc<Pod>>,
}

/// Volumes that pods of a node want.
pub(super) type Desired = BTreeMap<(VolumeName, NodeName), Wanted>;

impl Cluster {
    /// Takes a change in. Names the node whose object was just seen.
    pub(super) fn take(&mut self, kind: Kind, news: News) -> Option<NodeName> {
        match news {
            News::Only(there) => {
                self.synced.insert(kind);
                self.keep_only(kind, &there);
                None
            }
            News::Applied(object) => self.put(object),
            News::Deleted(object) => {
                self.remove(&object);
                None
            }
        }
    }

    /// Records a written `volumesAttached`. The rest of the answer is not used: a watch may have reported a newer object
    /// meanwhile, or the deletion of the node.
    pub(super) fn take_written(&mut self, node: &NodeName, written: &[AttachedVolume]) {
        if let Some(node) = self.nodes.get_mut(node) {
            Arc::make_mut(node).volumes_attached = written.to_vec();
        }
    }

    /// Forgets the objects of a kind that are not in the list: they were deleted while the watch was interrupted.
    fn keep_only(&mut self, kind: Kind, there: &BTreeSet<Key>) {
        match kind {
            Kind::Node => self.nodes.retain(|_, node| there.contains(&node.key())),
            Kind::Pod => self.pods.retain(|_, pod| there.contains(&pod.key())),
            Kind::Claim => self.claims.retain(|_, claim| there.contains(&claim.key())),
            Kind::Volume => self.volumes.retain(|_, volume| there.contains(&volume.key())),
            Kind::Attachment => self.attachments.retain(|_, attachment| there.contains(&attachment.key())),
            Kind::CsiDriver => {
                self.facts.csi_drivers.retain(|_, driver| there.contains(&driver.key()));
            }
            _ => {}
        }
    }

    /// Whether everything has been seen at least once. Nothing is decided before.
    pub(super) fn is_known(&self) -> bool {
        FOLLOWED.iter().all(|kind| self.synced.contains(kind))
    }

    fn put(&mut self, object: Object) -> Option<NodeName> {
        let name = object.meta().name.clone();
        let key = object.key().namespaced_name();
        match object {
            Object::Node(node) => {
                let name = NodeName::new(name);
                self.nodes.insert(name.clone(), node);
                return Some(name);
            }
            Object::Pod(pod) => drop(self.pods.insert(key, pod)),
            Object::Claim(claim) => drop(self.claims.insert(key, claim)),
            Object::Volume(volume) => drop(self.volumes.insert(name, volume)),
            Object::Attachment(attachment) => drop(self.attachments.insert(name, attachment)),
            Object::CsiDriver(driver) => {
                self.facts.csi_drivers.insert(DriverName::new(name), driver);
            }
            _ => {}
        }
        None
    }

    fn remove(&mut self, object: &Object) {
        let name = &object.meta().name;
        let key = object.key().namespaced_name();
        match object {
            Object::Node(_) => drop(self.nodes.remove(&NodeName::new(name))),
            Object::Pod(_) => drop(self.pods.remove(&key)),
            Object::Claim(_) => drop(self.claims.remove(&key)),
            Object::Volume(_) => drop(self.volumes.remove(name)),
            Object::Attachment(_) => drop(self.attachments.remove(name)),
            Object::CsiDriver(_) => drop(self.facts.csi_drivers.remove(&DriverName::new(name))),
            _ => {}
        }
    }

    /// Whether the controller attaches volumes to a node.
    pub(super) fn manages(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|node| node.meta.annotations.contains_key(MANAGED))
    }

    /// Whether the node has the out-of-service taint: it is gone for good.
    pub(super) fn is_out_of_service(&self, node: &NodeName) -> bool {
        let taints = self.nodes.get(node).into_iter().flat_map(|node| &node.taints);
        taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
    }

    /// Whether a node is alive and well. One without an object is not.
    pub(super) fn is_ready(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|node| node.ready)
    }

    /// Everything that pods want attached.
    pub(super) fn desired(&self, registry: &Registry) -> Desired {
        let mut desired = Desired::new();
        for pod in self.pods.values().filter(|pod| !is_over(pod)) {
            let node = NodeName::new(&pod.node);
            if !self.manages(&node) {
                continue;
            }
            for volume in &pod.volumes {
                let Some(spec) = self.spec(pod, volume) else { continue };
                let Some((plugin, name)) = self.attachable(registry, &spec) else { continue };
                let wanted = desired.entry((name, node.clone())).or_insert_with(|| Wanted {
                    spec: Arc::new(spec),
                    plugin,
                    pods: BTreeMap::new(),
                });
                wanted.pods.insert(pod.uid(), Arc::clone(pod));
            }
        }
        desired
    }

    /// The unique name of a volume, if it is one that is attached.
    pub(super) fn attachable(&self, registry: &Registry, spec: &Spec) -> Option<(PluginName, VolumeName)> {
        let plugin = registry.pick(spec).ok()?;
        if !plugin.can_attach(spec, &self.facts) {
            return None;
        }
        let name = plugin.volume_name(spec).ok()?;
        Some((plugin.name(), VolumeName::shared(&plugin.name(), &name)))
    }

    /// The volume a pod refers to; `None` while its claim is not bound to it.
    fn spec(&self, pod: &Pod, volume: &PodVolume) -> Option<Spec> {
        let (claim, read_only) = match &volume.source {
            VolumeSource::Claim { claim, read_only } => (claim.clone(), *read_only),
            VolumeSource::Ephemeral { .. } => (format!("{}-{}", pod.meta.name, volume.name), false),
            _ => return Some(Spec::inline(Arc::new(volume.clone()))),
        };
        let claim = self.claims.get(&Namespaced::new(&pod.meta.namespace, claim))?;
        let volume = self.volumes.get(&claim.spec.volume)?;
        let bound = claim.status.phase == ClaimPhase::Bound
            && volume.claim.as_ref().is_some_and(|reference| reference.uid == claim.meta.uid);
        bound.then(|| Spec::persistent(Arc::clone(volume), read_only))
    }
}

/// Whether a pod will never use its volumes again.
fn is_over(pod: &Pod) -> bool {
    matches!(pod.phase.as_str(), "Succeeded" | "Failed")
}
