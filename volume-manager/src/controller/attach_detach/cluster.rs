//! The cluster as the controller sees it, and what its pods want attached where.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::follow::News;
use api::names::{DriverName, Namespaced, NodeName, PluginName, PodUid, VolumeName};
use api::{
    AttachedVolume, Attachment, ClaimPhase, Key, Kind, Node, Object, Pod, PodVolume, Resource, Volume,
    VolumeSource,
};
use plugin_api::registry::Registry;
use plugin_api::{Facts, Spec};

use super::pods::Pods;

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
    /// Everything that pods want attached, as of the last [`resolve`](Self::resolve).
    pub(super) desired: Desired,
    pods: Pods,
    /// The attachments that each pod wants.
    places: BTreeMap<Namespaced, Vec<Place>>,
    synced: BTreeSet<Kind>,
}

/// A node whose object was just seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeenNode {
    pub(super) name: NodeName,
    /// Whether something has changed that its attachments depend on, besides the volumes in use.
    pub(super) differs: bool,
}

/// A volume that pods want attached to a node.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) spec: Arc<Spec>,
    pub(super) plugin: PluginName,
    pub(super) pods: BTreeMap<PodUid, Arc<Pod>>,
    /// How each of these pods uses it.
    pub(super) uses: BTreeMap<Namespaced, Use>,
}

/// A pod's use of a volume.
#[derive(Debug, Clone)]
pub(super) struct Use {
    pod: PodUid,
    spec: Arc<Spec>,
    plugin: PluginName,
}

impl Wanted {
    fn by(of: &Use) -> Self {
        let (spec, plugin) = (Arc::clone(&of.spec), of.plugin.clone());
        Self { spec, plugin, pods: BTreeMap::new(), uses: BTreeMap::new() }
    }

    /// Takes in how another pod uses it. Where a pod names it twice, the first use counts.
    fn add(&mut self, key: &Namespaced, pod: &Arc<Pod>, of: Use) {
        self.pods.insert(pod.uid(), Arc::clone(pod));
        self.uses.entry(key.clone()).or_insert(of);
        self.choose();
    }

    /// Takes a pod away. Says whether it was the last one.
    fn remove(&mut self, key: &Namespaced) -> bool {
        if let Some(of) = self.uses.remove(key) {
            self.pods.remove(&of.pod);
        }
        self.choose();
        self.uses.is_empty()
    }

    /// The first pod by name decides how it is attached.
    fn choose(&mut self) {
        if let Some(first) = self.uses.values().next() {
            (self.spec, self.plugin) = (Arc::clone(&first.spec), first.plugin.clone());
        }
    }
}

/// A volume on a node.
pub(super) type Place = (VolumeName, NodeName);

/// Volumes that pods of a node want.
pub(super) type Desired = BTreeMap<Place, Wanted>;

impl Cluster {
    /// Takes a change in. Names the nodes whose objects were just seen, or are gone.
    pub(super) fn take(&mut self, kind: Kind, news: News) -> Vec<SeenNode> {
        match news {
            News::Only(there) => {
                self.synced.insert(kind);
                self.keep_only(kind, &there)
            }
            News::Applied(object) => self.put(object).into_iter().collect(),
            News::Deleted(object) => self.remove(&object).into_iter().collect(),
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
    fn keep_only(&mut self, kind: Kind, there: &BTreeSet<Key>) -> Vec<SeenNode> {
        let is_there = |key: &Namespaced| there.contains(&Key::namespaced(kind, &key.namespace, &key.name));
        match kind {
            Kind::Node => {
                let gone = self.nodes.values().filter(|node| !there.contains(&node.key()));
                let gone: Vec<_> = gone.map(|node| NodeName::new(&node.meta.name)).collect();
                return gone.into_iter().map(|name| self.forget_node(name)).collect();
            }
            Kind::Pod => self.pods.others(is_there).iter().for_each(|pod| self.pods.remove(pod)),
            Kind::Claim => {
                self.pods.other_claims(is_there).iter().for_each(|claim| self.pods.remove_claim(claim));
            }
            Kind::Volume => {
                let gone = self.volumes.values().filter(|volume| !there.contains(&volume.key()));
                let gone: Vec<_> = gone.map(|volume| volume.meta.name.clone()).collect();
                gone.iter().for_each(|name| self.forget_volume(name));
            }
            Kind::Attachment => self.attachments.retain(|_, attachment| there.contains(&attachment.key())),
            Kind::CsiDriver => {
                self.facts.csi_drivers.retain(|_, driver| there.contains(&driver.key()));
                self.pods.all_changed();
            }
            _ => {}
        }
        Vec::new()
    }

    fn forget_node(&mut self, name: NodeName) -> SeenNode {
        self.nodes.remove(&name);
        self.pods.node_changed(name.as_str());
        SeenNode { name, differs: true }
    }

    fn forget_volume(&mut self, name: &str) {
        self.volumes.remove(name);
        self.pods.volume_changed(name);
    }

    /// Whether everything has been seen at least once. Nothing is decided before.
    pub(super) fn is_known(&self) -> bool {
        FOLLOWED.iter().all(|kind| self.synced.contains(kind))
    }

    /// The PersistentVolumes and nodes of the attachments that say attached, as last seen.
    pub(super) fn attached(&self) -> BTreeSet<(&str, &str)> {
        let attached = self.attachments.values().filter(|attachment| attachment.attached);
        attached.map(|attachment| (attachment.volume.as_str(), attachment.node.as_str())).collect()
    }

    fn put(&mut self, object: Object) -> Option<SeenNode> {
        let name = object.meta().name.clone();
        let key = object.key().namespaced_name();
        match object {
            Object::Node(node) => {
                let named = NodeName::new(&name);
                let before = self.nodes.get(&named);
                let differs = before.is_none_or(|before| decides(before) != decides(&node));
                if before.is_none_or(|before| is_managed(before) != is_managed(&node)) {
                    self.pods.node_changed(&name);
                }
                self.nodes.insert(named.clone(), node);
                return Some(SeenNode { name: named, differs });
            }
            Object::Pod(pod) => self.pods.put(key, pod),
            Object::Claim(claim) => self.pods.put_claim(key, claim),
            Object::Volume(volume) => {
                self.pods.volume_changed(&name);
                self.volumes.insert(name, volume);
            }
            Object::Attachment(attachment) => drop(self.attachments.insert(name, attachment)),
            Object::CsiDriver(driver) => {
                self.facts.csi_drivers.insert(DriverName::new(name), driver);
                self.pods.all_changed();
            }
            _ => {}
        }
        None
    }

    fn remove(&mut self, object: &Object) -> Option<SeenNode> {
        let name = &object.meta().name;
        let key = object.key().namespaced_name();
        match object {
            Object::Node(_) => return Some(self.forget_node(NodeName::new(name))),
            Object::Pod(_) => self.pods.remove(&key),
            Object::Claim(_) => self.pods.remove_claim(&key),
            Object::Volume(_) => self.forget_volume(name),
            Object::Attachment(_) => drop(self.attachments.remove(name)),
            Object::CsiDriver(_) => {
                self.facts.csi_drivers.remove(&DriverName::new(name));
                self.pods.all_changed();
            }
            _ => {}
        }
        None
    }

    /// Whether the controller attaches volumes to a node.
    pub(super) fn manages(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|node| is_managed(node))
    }

    /// Whether the node has the out-of-service taint: it is gone for good.
    pub(super) fn is_out_of_service(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|node| has_gone(node))
    }

    /// Whether a node is alive and well. One without an object is not.
    pub(super) fn is_ready(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|node| node.ready)
    }

    /// Finds out anew what those pods want attached whose volumes may be others than they were. Returns the attachments that
    /// they wanted or want.
    pub(super) fn resolve(&mut self, registry: &Registry) -> BTreeSet<Place> {
        let mut touched = BTreeSet::new();
        for key in self.pods.take_unresolved() {
            for place in self.places.remove(&key).unwrap_or_default() {
                if self.desired.get_mut(&place).is_some_and(|wanted| wanted.remove(&key)) {
                    self.desired.remove(&place);
                }
                touched.insert(place);
            }
            let wanted = self.wanted_by(&key, registry);
            let Some(pod) = self.pods.get(&key).filter(|_| !wanted.is_empty()) else { continue };
            for (place, of) in &wanted {
                let wanted = self.desired.entry(place.clone()).or_insert_with(|| Wanted::by(of));
                wanted.add(&key, pod, of.clone());
            }
            let places: Vec<_> = wanted.into_iter().map(|(place, _)| place).collect();
            touched.extend(places.iter().cloned());
            self.places.insert(key, places);
        }
        touched
    }

    /// What a pod wants attached, and how it uses it.
    fn wanted_by(&self, key: &Namespaced, registry: &Registry) -> Vec<(Place, Use)> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.is_over()) else { return Vec::new() };
        let node = NodeName::new(&pod.node);
        if !self.manages(&node) {
            return Vec::new();
        }
        let of = |volume: &PodVolume| {
            let spec = self.spec(pod, volume)?;
            let (plugin, name) = self.attachable(registry, &spec)?;
            Some(((name, node.clone()), Use { pod: pod.uid(), spec: Arc::new(spec), plugin }))
        };
        pod.volumes.iter().filter_map(of).collect()
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
        let claim = self.pods.claim(&Namespaced::new(&pod.meta.namespace, claim))?;
        let volume = self.volumes.get(&claim.spec.volume)?;
        let bound = claim.status.phase == ClaimPhase::Bound
            && volume.claim.as_ref().is_some_and(|reference| reference.uid == claim.meta.uid);
        bound.then(|| Spec::persistent(Arc::clone(volume), read_only))
    }
}

fn is_managed(node: &Node) -> bool {
    node.meta.annotations.contains_key(MANAGED)
}

fn has_gone(node: &Node) -> bool {
    node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// What the attachments of a node depend on, besides the volumes in use.
fn decides(node: &Node) -> (bool, bool, bool, &[AttachedVolume]) {
    (is_managed(node), node.ready, has_gone(node), &node.volumes_attached)
}
