//! The API objects in the books, as views of their kinds.

use serde_json::Value;

use super::Books;
use crate::event::{ApiChange, Verb};
use crate::object::{ApiObject, Attachment, Claim, Node, PersistentVolume, Pod};

impl Books {
    /// The object of a kind with this name, which is `namespace/name` for a kind with namespaces.
    pub fn object<'a, T: ApiObject<'a>>(&'a self, name: &str) -> Option<T> {
        self.objects.get(&T::KIND)?.get(name).map(T::of)
    }

    /// All objects of a kind with their names.
    pub fn objects<'a, T: ApiObject<'a>>(&'a self) -> impl Iterator<Item = (&'a str, T)> {
        let of_kind = self.objects.get(&T::KIND).into_iter().flatten();
        of_kind.map(|(name, body)| (name.as_str(), T::of(body)))
    }

    /// The persistent volumes of a handle: more than one if their drivers differ.
    pub fn persistent_volumes<'a>(
        &'a self,
        handle: &str,
    ) -> impl Iterator<Item = (&'a str, PersistentVolume<'a>)> {
        self.objects().filter(move |(_, volume): &(_, PersistentVolume)| volume.csi_handle() == Some(handle))
    }

    /// The persistent volume of a handle, if the trace has its object.
    pub fn persistent_volume(&self, handle: &str) -> Option<(&str, PersistentVolume<'_>)> {
        self.persistent_volumes(handle).next()
    }

    /// The claim that is given the volume of a handle.
    pub fn claim_of(&self, handle: &str) -> Option<(&str, Claim<'_>)> {
        let (volume, _) = self.persistent_volume(handle)?;
        self.objects().find(|(_, claim): &(_, Claim)| claim.volume_name() == Some(volume))
    }

    /// The attachments of a persistent volume.
    pub fn attachments<'a>(&'a self, volume: &str) -> impl Iterator<Item = (&'a str, Attachment<'a>)> {
        self.objects()
            .filter(move |(_, attachment): &(_, Attachment)| attachment.volume_name() == Some(volume))
    }

    /// Whether a node is out of service or not ready: then detaching may be forced.
    pub fn any_node_is_lost(&self) -> bool {
        self.objects::<Node>().any(|(_, node)| node.is_lost())
    }

    pub(super) fn api(&mut self, change: &ApiChange) {
        if let Some(attachment) = change.of::<Attachment>()
            && attachment.is_being_deleted()
            && self.any_node_is_lost()
        {
            // A deletion is not taken back: the volume counts as detached, although the driver is called later.
            let volume = attachment.volume_name().and_then(|name| self.object::<PersistentVolume>(name));
            let handle = volume.map(|volume| volume.handle().to_owned());
            self.forced.extend(handle);
        }
        if change.verb == Verb::Delete {
            self.objects.entry(change.kind).or_default().remove(&change.object);
            return;
        }
        if let Some(volumes) = change.of::<Node>().and_then(Node::volumes_in_use) {
            self.in_use = Some(volumes.into_iter().map(str::to_owned).collect());
        }
        if let Some(uid) = change.of::<Pod>().map(Pod::uid).filter(|uid| !uid.is_empty()) {
            let name = change.object.rsplit('/').next().unwrap_or(&change.object);
            self.uids.insert(name.to_owned(), uid.to_owned());
        }
        let of_kind = self.objects.entry(change.kind).or_default();
        match of_kind.get_mut(&change.object) {
            Some(known) => merge(known, &change.body),
            None => _ = of_kind.insert(change.object.clone(), change.body.clone()),
        }
    }
}

/// Merges the changed fields of an object: maps are merged, lists and plain values are replaced.
fn merge(known: &mut Value, change: &Value) {
    match (known, change) {
        (Value::Object(known), Value::Object(change)) => {
            for (field, value) in change {
                match known.get_mut(field) {
                    Some(known) => merge(known, value),
                    None => _ = known.insert(field.clone(), value.clone()),
                }
            }
        }
        (known, change) => *known = change.clone(),
    }
}
