//! The volumes that no claim has, and which of them fits a claim best.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::lookup::Lookup;
use api::names::Namespaced;
use api::{AccessMode, Bytes, Claim, Volume, VolumeMode};

/// Volumes without a claim, and those that are reserved for one, as they were last heard of.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// The free volumes of each class and shape.
    free: BTreeMap<String, BTreeMap<Shape, Shelf>>,
    /// The volumes that name a claim.
    named: Lookup<Namespaced, BTreeMap<String, Arc<Volume>>>,
}

/// What decides, besides class, size, labels and nodes, whether a volume can serve a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    mode: VolumeMode,
    access: BTreeSet<AccessMode>,
}

/// Volumes by their size and name.
type BySize = BTreeMap<(Bytes, String), Arc<Volume>>;

/// A label of a node, with its value.
type Label = (String, String);

/// The free volumes of one class and shape.
#[derive(Debug, Default)]
struct Shelf {
    all: BySize,
    /// The same volumes by the label that a node must have to reach them; under `None` those without such a label.
    by_label: BTreeMap<Option<Label>, BySize>,
}

impl Shelf {
    fn add(&mut self, volume: &Arc<Volume>) {
        let place = (volume.capacity, volume.meta.name.clone());
        self.by_label.entry(label(volume)).or_default().insert(place.clone(), Arc::clone(volume));
        self.all.insert(place, Arc::clone(volume));
    }

    fn remove(&mut self, volume: &Volume) {
        let (place, label) = ((volume.capacity, volume.meta.name.clone()), label(volume));
        self.all.remove(&place);
        if let Some(labelled) = self.by_label.get_mut(&label) {
            labelled.remove(&place);
            if labelled.is_empty() {
                self.by_label.remove(&label);
            }
        }
    }

    /// The smallest volume that serves a claim on a node with these labels, or on any node.
    fn best(&self, claim: &Claim, labels: Option<&BTreeMap<String, String>>) -> Option<&Arc<Volume>> {
        let first = |by_size: &'_ BySize| -> Option<(Bytes, String)> {
            let mut large_enough = by_size.range((claim.spec.request, String::new())..);
            let found = large_enough.find(|(_, volume)| fits(volume, claim) && is_reachable(volume, labels));
            found.map(|(place, _)| place.clone())
        };
        let place = match labels {
            None => first(&self.all),
            Some(labels) => {
                let named = labels.iter().map(|(key, value)| Some((key.clone(), value.clone())));
                let reachable = named.chain([None]).filter_map(|label| self.by_label.get(&label));
                reachable.filter_map(first).min()
            }
        };
        self.all.get(&place?)
    }
}

/// The label that every node has that reaches a volume, where its affinity names one.
fn label(volume: &Volume) -> Option<Label> {
    let [term] = volume.affinity.as_ref()?.terms.as_slice() else { return None };
    let of_one_value = term.iter().find(|one| one.operator == "In" && one.values.len() == 1)?;
    Some((of_one_value.key.clone(), of_one_value.values.first()?.clone()))
}

fn shape(volume: &Volume) -> Shape {
    let access = volume.access_modes.iter().copied().collect();
    Shape { mode: volume.mode.unwrap_or_default(), access }
}

impl Volumes {
    pub(super) fn replace(&mut self, before: Option<&Arc<Volume>>, after: Option<&Arc<Volume>>) {
        if let Some(volume) = before {
            self.take_from_shelf(volume);
            if let Some(reference) = &volume.claim
                && let Some(named) = self.named.get_mut(&reference.claim)
            {
                named.remove(&volume.meta.name);
                if named.is_empty() {
                    self.named.remove(&reference.claim);
                }
            }
        }
        let Some(volume) = after else { return };
        match &volume.claim {
            Some(reference) => {
                let named = self.named.get_or_default(reference.claim.clone());
                named.insert(volume.meta.name.clone(), Arc::clone(volume));
            }
            None => {
                let class = self.free.entry(volume.class.clone()).or_default();
                class.entry(shape(volume)).or_default().add(volume);
            }
        }
    }

    fn take_from_shelf(&mut self, volume: &Volume) {
        let Some(class) = self.free.get_mut(&volume.class) else { return };
        let shape = shape(volume);
        if let Some(shelf) = class.get_mut(&shape) {
            shelf.remove(volume);
            if shelf.all.is_empty() {
                class.remove(&shape);
            }
        }
        if class.is_empty() {
            self.free.remove(&volume.class);
        }
    }

    /// The names of the volumes that name a claim.
    pub(super) fn naming(&self, claim: &Namespaced) -> impl Iterator<Item = &Arc<Volume>> {
        self.named.get(claim).into_iter().flat_map(BTreeMap::values)
    }

    /// The volume for a claim: one that is reserved for it, or else the smallest that is large enough. `labels` are
    /// those of the node that has to reach it, where that is known.
    pub(super) fn best(
        &self,
        claim: &Claim,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Option<&Arc<Volume>> {
        let name = Namespaced::new(&claim.meta.namespace, &claim.meta.name);
        let is_reserved = |volume: &&Arc<Volume>| {
            volume.claim.as_ref().is_some_and(|reference| {
                (reference.uid.is_empty() || reference.uid == claim.meta.uid) && is_usable(volume, claim)
            })
        };
        if let Some(reserved) = self.naming(&name).find(is_reserved) {
            return Some(reserved);
        }
        let class = self.free.get(claim.spec.class.as_deref().unwrap_or_default())?;
        let wanted = &claim.spec;
        let serves = |shape: &Shape| {
            shape.mode == wanted.mode && wanted.access_modes.iter().all(|mode| shape.access.contains(mode))
        };
        let shelves = class.iter().filter(|(shape, _)| serves(shape));
        let found = shelves.filter_map(|(_, shelf)| shelf.best(claim, labels));
        found.min_by(|a, b| (a.capacity, &a.meta.name).cmp(&(b.capacity, &b.meta.name)))
    }
}

/// Whether a volume can serve a claim that names it, or that it names.
fn is_usable(volume: &Volume, claim: &Claim) -> bool {
    misfit(volume, claim).is_none() && !volume.meta.is_deleting()
}

/// Why a volume cannot serve a claim that asks for it by name.
pub(super) fn misfit(volume: &Volume, claim: &Claim) -> Option<&'static str> {
    let modes_fit = claim.spec.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
    match () {
        () if volume.capacity < claim.spec.request => Some("requested PV is too small"),
        () if volume.class != claim.spec.class.as_deref().unwrap_or_default() => {
            Some("storageClassName does not match")
        }
        () if volume.mode.unwrap_or_default() != claim.spec.mode => Some("incompatible volumeMode"),
        () if !modes_fit => Some("incompatible accessMode"),
        () => None,
    }
}

/// Whether a volume without a claim can serve one that leaves the choice.
pub(super) fn fits(volume: &Volume, claim: &Claim) -> bool {
    #[cfg(test)]
    tests::LOOKED.with(|looked| looked.set(looked.get() + 1));
    let selected =
        claim.spec.selector.as_ref().is_none_or(|selector| {
            selector.iter().all(|requirement| requirement.matches(&volume.meta.labels))
        });
    is_usable(volume, claim) && selected && matches!(volume.phase.as_str(), "" | "Available")
}

pub(super) fn is_reachable(volume: &Volume, labels: Option<&BTreeMap<String, String>>) -> bool {
    match (labels, &volume.affinity) {
        (Some(labels), Some(affinity)) => affinity.matches(labels),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce};
    use api::Meta;
    use api::storage::{ClaimReference, NodeAffinity, Requirement};

    use super::*;

    thread_local! {
        /// How often a volume was held against a claim.
        pub(super) static LOOKED: Cell<u64> = const { Cell::new(0) };
    }

    /// The volumes that are looked at for a claim on the last node, where each node has a volume of its own.
    fn looked(nodes: usize) -> u64 {
        let mut all = Volumes::default();
        let label = |node: usize| ("kubernetes.io/hostname".to_owned(), format!("node-{node}"));
        for node in 0..nodes {
            let (key, value) = label(node);
            let here = Requirement { key, operator: "In".into(), values: vec![value] };
            let mut local = volume(&format!("v{node}"), 9);
            local.affinity = Some(NodeAffinity { terms: vec![vec![here]] });
            all.replace(None, Some(&Arc::new(local)));
            let block = Volume { mode: Some(VolumeMode::Block), ..volume(&format!("b{node}"), 6) };
            all.replace(None, Some(&Arc::new(block)));
        }
        LOOKED.set(0);
        let found = all.best(&claim(), Some(&[label(nodes - 1)].into()));
        assert_eq!(found.map(|volume| volume.meta.name.clone()), Some(format!("v{}", nodes - 1)));
        LOOKED.get()
    }

    #[test]
    fn volumes_of_other_nodes_and_other_shapes_are_not_looked_at() {
        assert_eq!((looked(100), looked(10_000)), (1, 1));
    }

    fn volume(name: &str, size: u64) -> Volume {
        Volume {
            meta: Meta::named("", name),
            capacity: Bytes(size),
            access_modes: vec![ReadWriteOnce],
            mode: Some(VolumeMode::Filesystem),
            class: "fast".to_owned(),
            ..Volume::default()
        }
    }

    fn claim() -> Claim {
        let mut claim = Claim { meta: Meta::named("default", "data"), ..Claim::default() };
        claim.meta.uid = "uid-data".to_owned();
        claim.spec.access_modes = vec![ReadWriteOnce];
        claim.spec.request = Bytes(5);
        claim.spec.class = Some("fast".to_owned());
        claim
    }

    fn reserved(volume: Volume, uid: &str) -> Volume {
        let claim = Namespaced::new("default", "data");
        Volume { claim: Some(ClaimReference { claim, uid: uid.to_owned() }), ..volume }
    }

    fn best(volumes: &[Volume], claim: &Claim) -> Option<String> {
        let mut all = Volumes::default();
        volumes.iter().for_each(|volume| all.replace(None, Some(&Arc::new(volume.clone()))));
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        all.best(claim, Some(&labels)).map(|volume| volume.meta.name.clone())
    }

    #[test]
    fn smallest_volume_that_is_large_enough_is_the_best() {
        let volumes = [volume("large", 9), volume("small", 4), volume("middle", 6), volume("other", 6)];
        assert_eq!(best(&volumes, &claim()).as_deref(), Some("middle"));
        assert_eq!(best(&volumes[1..2], &claim()), None);
    }

    #[test]
    fn volume_that_does_not_fit_is_passed_over() {
        let in_zone = |zone: &str| {
            let zone = Requirement { key: "zone".into(), operator: "In".into(), values: vec![zone.into()] };
            Some(NodeAffinity { terms: vec![vec![zone]] })
        };
        let rows = [
            (Volume { class: String::new(), ..volume("v", 5) }, false),
            (Volume { mode: Some(VolumeMode::Block), ..volume("v", 5) }, false),
            (Volume { access_modes: vec![ReadOnlyMany], ..volume("v", 5) }, false),
            (Volume { access_modes: vec![ReadWriteMany, ReadWriteOnce], ..volume("v", 5) }, true),
            (Volume { phase: "Released".to_owned(), ..volume("v", 5) }, false),
            (Volume { affinity: in_zone("b"), ..volume("v", 5) }, false),
            (Volume { affinity: in_zone("a"), ..volume("v", 5) }, true),
            (reserved(volume("v", 5), "another"), false),
            (reserved(volume("v", 5), "uid-data"), true),
            (reserved(volume("v", 5), ""), true),
            (reserved(volume("v", 4), ""), false),
        ];
        for (volume, fits) in rows {
            assert_eq!(best(std::slice::from_ref(&volume), &claim()).is_some(), fits, "{volume:?}");
        }
    }

    #[test]
    fn labels_decide_where_the_claim_selects() {
        let mut labelled = volume("labelled", 9);
        labelled.meta.labels.insert("tier".to_owned(), "gold".to_owned());
        let tier = Requirement { key: "tier".into(), operator: "In".into(), values: vec!["gold".into()] };
        let mut claim = claim();
        claim.spec.selector = Some(vec![tier]);
        assert_eq!(best(&[volume("plain", 5), labelled], &claim).as_deref(), Some("labelled"));
    }

    #[test]
    fn reserved_volume_is_preferred_to_a_smaller_one() {
        let volumes = [volume("free", 5), reserved(volume("mine", 50), "")];
        assert_eq!(best(&volumes, &claim()).as_deref(), Some("mine"));
    }

    #[test]
    fn volume_that_was_taken_is_free_no_more() {
        let (free, taken) = (Arc::new(volume("v", 5)), Arc::new(reserved(volume("v", 5), "another")));
        let mut all = Volumes::default();
        all.replace(None, Some(&free));
        all.replace(Some(&free), Some(&taken));
        assert!(all.best(&claim(), None).is_none());
        all.replace(Some(&taken), None);
        assert!(all.free.is_empty() && all.named.is_empty());
    }
}
