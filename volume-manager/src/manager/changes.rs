//! Reactions to changed API objects and to drivers that register or unregister.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::follow::News;
use api::names::{AttachmentName, DriverName, SpecName};
use api::{
    Attachment, Claim, CsiDriver, Key, Kind, Node, Object, PersistentSource, Resource, Volume, VolumeSource,
};
use plugin_api::Spec;

use super::Manager;
use crate::event::Registration;
use crate::operation::OperationName;
use crate::recovery;

impl Manager {
    pub(super) fn api_changed(&mut self, kind: Kind, news: News) {
        match news {
            News::Only(there) => self.others_gone(kind, &there),
            News::Applied(Object::CsiDriver(driver)) => self.driver_changed(&driver, true),
            News::Deleted(Object::CsiDriver(driver)) => self.driver_changed(&driver, false),
            News::Applied(Object::Node(node)) => self.node_changed(node),
            News::Applied(Object::Claim(claim)) => self.claim_changed(&claim),
            News::Deleted(Object::Claim(claim)) => {
                self.known.claim_deleted(&claim.key().namespaced_name());
            }
            News::Applied(Object::Volume(volume)) => self.volume_changed(&volume),
            News::Applied(Object::Attachment(attachment)) => self.attachment_changed(attachment, true),
            News::Deleted(Object::Attachment(attachment)) => self.attachment_changed(attachment, false),
            News::Applied(_) | News::Deleted(_) => {}
        }
    }

    /// A list of all objects of a kind has arrived: known objects that it lacks were deleted while the watch
    /// was down.
    fn others_gone(&mut self, kind: Kind, there: &BTreeSet<Key>) {
        let facts = self.known.facts();
        match kind {
            Kind::CsiDriver => {
                for driver in facts.csi_drivers.values().filter(|driver| !there.contains(&driver.key())) {
                    self.driver_changed(driver, false);
                }
                self.known.change(|facts| facts.csi_drivers_known = true);
            }
            Kind::Attachment => {
                for gone in facts.attachments.values().filter(|attachment| !there.contains(&attachment.key()))
                {
                    self.attachment_changed(Arc::clone(gone), false);
                }
            }
            Kind::Claim => self.known.claims_listed(there),
            _ => {}
        }
    }

    fn driver_changed(&mut self, driver: &Arc<CsiDriver>, exists: bool) {
        let name = DriverName::new(&driver.meta.name);
        self.known.change(|facts| {
            if exists {
                facts.csi_drivers.insert(name.clone(), Arc::clone(driver));
            } else {
                facts.csi_drivers.remove(&name);
            }
        });
        let facts = self.known.facts();
        let registry = Arc::clone(self.executor.registry());
        let concerned = self.desired.volumes().filter(|(_, wanted)| {
            let spec = wanted.pods.values().next().map(|by| &by.spec);
            let not_attachable = |spec: &Arc<Spec>| {
                registry.by_name(&wanted.plugin).is_ok_and(|plugin| !plugin.can_attach(spec, &facts))
            };
            wanted.attachable && spec.is_some_and(not_attachable)
        });
        // Only in this direction: a volume that a pod already has without an attachment is not attached
        // afterwards.
        let concerned: Vec<_> = concerned.map(|(volume, _)| volume.clone()).collect();
        for volume in concerned {
            self.desired.set_not_attachable(&volume);
            self.dirty.insert(volume);
        }
    }

    /// A volume waits for the node's object to list it as attached.
    fn node_changed(&mut self, node: Arc<Node>) {
        if node.meta.name != self.executor.context().config.node.as_str() {
            return;
        }
        self.dirty.extend(self.known.change(|facts| facts.see_node(node)));
    }

    /// Resolves pods again that failed on the claim, and ends the expansion back-off of its volume if the claim
    /// has become `NodeResizePending`.
    fn claim_changed(&mut self, claim: &Claim) {
        self.populator.request_claim(&claim.key().namespaced_name(), false);
        if !self.known.becomes_resize_pending(claim) {
            return;
        }
        let actual = &self.actual;
        let concerned = self.pending.end_back_off(|rung| {
            let inner = actual.spec(&rung.key.volume).map(|spec| spec.name());
            rung.name == OperationName::Expand
                && inner.is_some_and(|inner| inner.as_str() == claim.spec.volume)
        });
        self.dirty.extend(concerned);
    }

    /// Resolves pods again whose volume has grown.
    fn volume_changed(&mut self, volume: &Arc<Volume>) {
        self.recovery.observe(recovery::Event::VolumeSeen(Arc::clone(volume)));
        let Some(reference) = &volume.claim else { return };
        let inner = SpecName::new(&volume.meta.name);
        let grown = self.populator.pods_of(&reference.claim).any(|pod| {
            self.desired
                .volumes_of(pod)
                .any(|(_, wanted, by)| by.spec.name() == inner && wanted.size < volume.capacity)
        });
        self.populator.request_claim(&reference.claim, grown);
    }

    fn attachment_changed(&mut self, attachment: Arc<Attachment>, exists: bool) {
        if attachment.node != self.executor.context().config.node.as_str() {
            return;
        }
        let name = AttachmentName::new(&attachment.meta.name);
        let failed = exists && attachment.attach_error.is_some();
        if failed || self.known.facts().attachments.contains_key(&name) {
            self.known.change(|facts| {
                if failed {
                    facts.attachments.insert(name, attachment);
                } else {
                    facts.attachments.remove(&name);
                }
            });
        }
    }

    /// Takes in a driver that was added or removed. When one is added, failed operations on its volumes may be
    /// tried again at once.
    pub(super) fn registered(&mut self, registration: Registration) {
        match registration {
            Registration::Removed { driver } => {
                self.known.change(|facts| drop(facts.registered.remove(&driver)));
            }
            Registration::Added { driver, endpoint } => {
                self.known.register(driver.clone(), endpoint);
                let (actual, desired) = (&self.actual, &self.desired);
                let concerned = self.pending.end_back_off(|rung| {
                    let volume = &rung.key.volume;
                    let wanted = desired.volume(volume).and_then(|wanted| wanted.pods.values().next());
                    let spec = actual.spec(volume).or(wanted.map(|by| &by.spec));
                    spec.and_then(|spec| driver_of(spec)) == Some(&driver)
                });
                self.dirty.extend(concerned);
            }
        }
    }
}

/// The CSI driver of a volume, if it has one.
fn driver_of(spec: &Spec) -> Option<&DriverName> {
    match (spec.persistent_source(), spec.pod_volume().map(|volume| &volume.source)) {
        (Some(PersistentSource::Csi(csi)), _) => Some(&csi.driver),
        (_, Some(VolumeSource::Csi(csi))) => Some(&csi.driver),
        _ => None,
    }
}
