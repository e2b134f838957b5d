//! Expanding a volume on the node: while a pod uses it, or while it is mounted for a pod.
//!
//! Reads and writes the claim's status; the plugin does the expansion.
//!
//! There are two kinds of external resizers. The newer kind records in the claim how far the expansion has come
//! ([`recover`](Task::recover)), so that a size that turns out infeasible can be taken back; the older kind
//! does not ([`grow_legacy`](Task::grow_legacy)).

use std::path::PathBuf;
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::PluginName;
use api::storage::Condition;
use api::{
    AccessMode, Bytes, Claim, ClaimStatusPatch, Kind, Patch, PatchBody, Pod, Reference, Resource, Severity,
    VolumeMode,
};
use plugin_api::error::{Classified, Failure, Sign};
use plugin_api::registry::Registry;
use plugin_api::{Expand, Mounted, OperationContext, Reason, Spec, Transition};

use super::{ExpandVolume, Failed, MountVolume};

/// The claim's resize status that asks the node to expand.
pub(crate) const NODE_RESIZE_PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
/// The condition with the reason of a failed expansion.
const NODE_ERROR: &str = "NodeResizeError";
/// Conditions that are removed when the expansion is done.
const RESIZE_CONDITIONS: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", NODE_ERROR];
/// The annotation of a claim whose expansion on one node is enough for all nodes that use it.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// Expands a volume that a pod uses.
pub(crate) async fn run(
    expand: &ExpandVolume,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let failed = |source: Failure| {
        let (step, reason) = ("NodeExpandVolume.NodeExpandVolume failed", Reason::VolumeResizeFailed);
        Failed::with_event(step, reason, expand.spec.name(), source)
    };
    if expand.new_size.is_zero() || expand.old_size.is_zero() {
        return Err(failed(UnknownSize.into()));
    }
    let task = Task {
        cx,
        registry,
        spec: &expand.spec,
        plugin: &expand.plugin,
        pod: &expand.pod,
        mounted: &expand.mounted,
        device_path: &expand.device_path,
        failed_before: expand.expansion_failed,
    };
    let claim = task.claim().await.map_err(failed)?;
    if let Some(grown) = task.grow(&claim, expand.old_size, expand.new_size).await.map_err(failed)? {
        cx.mark.last(Transition::Resized(grown));
    }
    Ok(())
}

/// Expands a volume whose size grew while it was not in use, before the pod gets it.
pub(super) async fn during_mount(
    cx: &OperationContext,
    registry: &Registry,
    mount: &MountVolume,
    mounted: &Mounted,
    device_path: &str,
) -> Result<(), Failure> {
    let plugin = registry.by_name(&mount.plugin)?;
    let Some(volume) = mount.spec.volume() else { return Ok(()) };
    if mount.expansion_blocked || !plugin.expander().is_some_and(|expander| expander.requires_resize()) {
        return Ok(());
    }
    if volume.claim.is_none() {
        return Ok(());
    }
    let task = Task {
        cx,
        registry,
        spec: &mount.spec,
        plugin: &mount.plugin,
        pod: &mount.pod,
        mounted,
        device_path,
        failed_before: mount.expansion_failed,
    };
    let claim = task.claim().await?;
    if claim.status.capacity < volume.capacity {
        // The new size is recorded when the claim is resolved again.
        task.grow(&claim, claim.status.capacity, volume.capacity).await?;
    }
    Ok(())
}

struct Task<'a> {
    cx: &'a OperationContext,
    registry: &'a Registry,
    spec: &'a Arc<Spec>,
    plugin: &'a PluginName,
    pod: &'a Arc<Pod>,
    mounted: &'a Mounted,
    device_path: &'a str,
    /// Whether an earlier attempt failed for good.
    failed_before: bool,
}

impl Task<'_> {
    async fn claim(&self) -> Result<Arc<Claim>, Failure> {
        let reference = self.spec.volume().and_then(|volume| volume.claim.as_ref()).ok_or(NoClaim)?;
        let (namespace, name) = (&reference.claim.namespace, &reference.claim.name);
        Ok(api::get(&*self.cx.api, namespace, name).await?)
    }

    /// Expands the volume. Returns the new size if the expansion needs no further attempt.
    async fn grow(&self, claim: &Claim, old: Bytes, new: Bytes) -> Result<Option<Bytes>, Failure> {
        if self.spec.read_only {
            let message = format!(
                "MountVolume.NodeExpandVolume failed for volume \"{}\" requested read-only file system",
                self.spec.name()
            );
            self.emit(claim, Severity::Warning, Reason::FileSystemResizeFailed, message);
            return Ok(Some(new));
        }
        if !claim.status.resize.is_empty() || claim.status.allocated.is_some() {
            let new = claim.status.allocated.unwrap_or(new);
            return self.recover(claim, old, new).await;
        }
        self.grow_legacy(claim, old, new).await
    }

    async fn grow_legacy(&self, claim: &Claim, old: Bytes, new: Bytes) -> Result<Option<Bytes>, Failure> {
        match self.call(old, new).await {
            Ok(()) => {
                self.emit_success(claim);
                if claim.status.capacity < new {
                    self.record_done(claim, new).await?;
                }
                Ok(Some(new))
            }
            Err(failure) => match failure.sign() {
                Some(Sign::NotSupported) => Ok(Some(new)),
                Some(Sign::InUse) => {
                    self.cx.mark.apply(Transition::ExpansionBlocked).await;
                    Ok(Some(new))
                }
                _ => Err(failure),
            },
        }
    }

    async fn recover(&self, claim: &Claim, old: Bytes, new: Bytes) -> Result<Option<Bytes>, Failure> {
        let plan = Plan::of(claim, new, self.failed_before);
        if !plan.allowed {
            return Ok(plan.updated.then_some(new));
        }
        let claim = match plan.updated {
            true => Arc::new(claim.clone()),
            false => self.mark_in_progress(claim).await?,
        };
        match self.call(old, new).await {
            Ok(()) => {
                self.emit_success(&claim);
                match plan.updated {
                    true => self.forget_failure(&claim).await?,
                    false => self.record_done(&claim, new).await?,
                }
                if self.failed_before {
                    self.cx.mark.apply(Transition::ExpansionFailed(false)).await;
                }
                Ok(Some(new))
            }
            Err(failure) => self.recover_from(&claim, &plan, new, failure).await,
        }
    }

    async fn recover_from(
        &self,
        claim: &Claim,
        plan: &Plan,
        new: Bytes,
        failure: Failure,
    ) -> Result<Option<Bytes>, Failure> {
        let (sign, class) = (failure.sign(), failure.class());
        if sign == Some(Sign::NotSupported) && plan.updated {
            return Ok(Some(new));
        }
        let is_final = class == ErrorClass::Final;
        if is_final && sign != Some(Sign::InUse) {
            self.cx.mark.apply(Transition::ExpansionFailed(true)).await;
        }
        // The condition says why the size is not reached yet, even if a retry may reach it. A claim that has
        // its size already gets none: this node would have to clear it again, and a pod that leaves first would
        // leave it there for ever. The pod's event reports the failure.
        if class != ErrorClass::Transient && !plan.updated {
            let infeasible = is_final && (plan.infeasible_if_it_fails || sign == Some(Sign::Infeasible));
            self.record_failure(claim, infeasible, &failure).await?;
        }
        if sign == Some(Sign::InUse) {
            self.cx.mark.apply(Transition::ExpansionBlocked).await;
            return Ok(None);
        }
        Err(failure)
    }

    async fn call(&self, old_size: Bytes, new_size: Bytes) -> Result<(), Failure> {
        let plugin = self.registry.by_name(self.plugin)?;
        let expander = plugin.expander().ok_or(NoClaim)?;
        let request = match self.spec.mode() {
            VolumeMode::Filesystem => {
                let staging = plugin.device_mounter().filter(|_| plugin.can_device_mount(self.spec));
                let staging = staging.map(|mounter| mounter.device_mount_path(&self.cx.paths, self.spec));
                Expand {
                    spec: Arc::clone(self.spec),
                    new_size,
                    old_size,
                    volume_path: self.mounted.path.clone(),
                    device_path: self.device_path.to_owned(),
                    staging_path: staging.transpose()?.unwrap_or_default(),
                }
            }
            VolumeMode::Block => Expand {
                spec: Arc::clone(self.spec),
                new_size,
                old_size,
                volume_path: PathBuf::from(self.device_path),
                device_path: self.device_path.to_owned(),
                staging_path: self.cx.paths.csi_block_staging(&self.spec.name()),
            },
        };
        expander.expand(self.cx, &request).await
    }

    /// The kubelet writes "MountVolume" whether or not the volume is in use.
    fn emit_success(&self, claim: &Claim) {
        let message = format!(
            "MountVolume.NodeExpandVolume succeeded for volume \"{}\" {}",
            self.spec.name(),
            self.pod.node
        );
        self.emit(claim, Severity::Normal, Reason::FileSystemResizeSuccessful, message);
    }

    /// Emits the event about the pod and about the claim.
    fn emit(&self, claim: &Claim, severity: Severity, reason: Reason, message: String) {
        let pod = Reference::to(Kind::Pod, &self.pod.meta);
        self.cx.events.emit(pod, severity, reason, message.clone());
        self.cx.events.emit(Reference::to(Kind::Claim, &claim.meta), severity, reason, message);
    }

    async fn mark_in_progress(&self, claim: &Claim) -> Result<Arc<Claim>, Failure> {
        let status = ClaimStatusPatch { resize: Some(IN_PROGRESS.to_owned()), ..Default::default() };
        self.patch(claim, status).await
    }

    async fn record_done(&self, claim: &Claim, new: Bytes) -> Result<(), Failure> {
        let mut conditions = claim.status.conditions.clone();
        conditions.retain(|condition| !RESIZE_CONDITIONS.contains(&condition.kind.as_str()));
        let status = ClaimStatusPatch {
            capacity: Some(new),
            resize: Some(String::new()),
            conditions: Some(conditions),
            ..Default::default()
        };
        self.patch(claim, status).await.map(drop)
    }

    /// Removes the error condition from a claim that already has its size.
    async fn forget_failure(&self, claim: &Claim) -> Result<(), Failure> {
        let mut conditions = claim.status.conditions.clone();
        conditions.retain(|condition| condition.kind != NODE_ERROR);
        if conditions.len() == claim.status.conditions.len() {
            return Ok(());
        }
        let status = ClaimStatusPatch { conditions: Some(conditions), ..Default::default() };
        self.patch(claim, status).await.map(drop)
    }

    async fn record_failure(
        &self,
        claim: &Claim,
        infeasible: bool,
        failure: &Failure,
    ) -> Result<(), Failure> {
        let mut conditions = claim.status.conditions.clone();
        conditions.retain(|condition| condition.kind != NODE_ERROR);
        conditions.push(Condition {
            kind: NODE_ERROR.to_owned(),
            status: "True".to_owned(),
            message: format!("failed to expand pvc with {}", failure.user_message()),
        });
        let status = ClaimStatusPatch {
            resize: infeasible.then(|| INFEASIBLE.to_owned()),
            conditions: Some(conditions),
            ..Default::default()
        };
        // Without the version of the claim: what the node has seen is written over any concurrent change.
        let patch = Patch::of(claim.key(), PatchBody::ClaimStatus(status));
        self.cx.api.patch(patch).await?;
        Ok(())
    }

    async fn patch(&self, claim: &Claim, status: ClaimStatusPatch) -> Result<Arc<Claim>, Failure> {
        let patch = Patch::of_version(claim.key(), &claim.meta, PatchBody::ClaimStatus(status));
        let stored = self.cx.api.patch(patch).await?;
        Ok(Claim::from_object(stored).unwrap_or_else(|| Arc::new(claim.clone())))
    }
}

/// Whether the node may expand a volume whose claim records how far the expansion has come.
struct Plan {
    /// The claim has its size already; only this node is missing.
    updated: bool,
    /// The node may expand.
    allowed: bool,
    /// The user has asked for another size meanwhile: if this one fails again, it is infeasible.
    infeasible_if_it_fails: bool,
}

impl Plan {
    fn of(claim: &Claim, new: Bytes, failed_before: bool) -> Self {
        let resize = claim.status.resize.as_str();
        let updated = claim.status.capacity >= new && resize.is_empty();
        let every_node = claim.spec.access_modes.contains(&AccessMode::ReadWriteMany)
            && !claim.meta.annotations.contains_key(NOT_REQUIRED);
        let allowed = match resize {
            "" => updated && every_node,
            NODE_RESIZE_PENDING | IN_PROGRESS => true,
            _ => false,
        };
        Self { updated, allowed, infeasible_if_it_fails: failed_before && claim.spec.request != new }
    }
}

/// The volume has no claim, or its plugin cannot expand it. The reconciler does not plan such an expansion.
#[derive(Debug, thiserror::Error)]
#[error("the volume cannot be grown on this node")]
struct NoClaim;

impl Classified for NoClaim {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}

/// The old or the new size is not known.
#[derive(Debug, thiserror::Error)]
#[error("the size of the volume is not known")]
struct UnknownSize;

impl Classified for UnknownSize {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_says_whether_the_node_is_to_grow_the_volume() {
        let claim = |capacity, resize: &str, modes: &[AccessMode]| {
            let mut claim = Claim::default();
            claim.status.capacity = Bytes(capacity);
            claim.status.resize = resize.to_owned();
            claim.spec.access_modes = modes.to_vec();
            claim
        };
        use AccessMode::{ReadWriteMany, ReadWriteOnce};
        for (claim, updated, allowed) in [
            (claim(1, NODE_RESIZE_PENDING, &[ReadWriteOnce]), false, true),
            (claim(1, IN_PROGRESS, &[ReadWriteOnce]), false, true),
            (claim(1, INFEASIBLE, &[ReadWriteOnce]), false, false),
            (claim(1, "ControllerResizeInProgress", &[ReadWriteOnce]), false, false),
            (claim(1, "", &[ReadWriteOnce]), false, false),
            (claim(1, "", &[ReadWriteMany]), false, false),
            (claim(2, "", &[ReadWriteOnce]), true, false),
            (claim(2, "", &[ReadWriteMany]), true, true),
            (claim(2, NODE_RESIZE_PENDING, &[ReadWriteOnce]), false, true),
        ] {
            let plan = Plan::of(&claim, Bytes(2), false);
            assert_eq!((plan.updated, plan.allowed), (updated, allowed), "{:?}", claim.status);
        }
    }

    #[test]
    fn failed_size_above_the_claims_request_is_infeasible() {
        let mut claim = Claim::default();
        claim.spec.request = Bytes(1);
        assert!(Plan::of(&claim, Bytes(2), true).infeasible_if_it_fails);
        assert!(!Plan::of(&claim, Bytes(2), false).infeasible_if_it_fails);
        claim.spec.request = Bytes(2);
        assert!(!Plan::of(&claim, Bytes(2), true).infeasible_if_it_fails);
    }
}
