//! VolumeAttachment objects: for the node, whether a volume is attached and with which publish context; for the
//! attach/detach controller, making and deleting them.
//!
//! The node only reads them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::names::{AttachmentName, DriverName, NodeName, VolumeHandle};
use api::{ApiError, ApiSource, Attachment, Key, Kind, Meta, Resource};
use async_trait::async_trait;
use plugin_api::error::Failure;
use plugin_api::{Attacher, OperationContext, Remote, Spec, VolumePlugin};

use super::CsiPlugin;
use super::error::CsiError;
use super::volume::CsiVolume;

/// Why a volume is not attached or detached. Every one of these may be different at the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    /// The object cannot be read, or does not exist.
    #[error("volume {handle} has GET error for volume attachment {name}")]
    Get { handle: VolumeHandle, name: AttachmentName, source: ApiError },
    /// The object is being deleted.
    #[error("volume attachment is being deleted")]
    Deleting,
    /// The driver could not attach or detach; this is its message.
    #[error("{0}")]
    Failed(String),
    /// The attacher has not reported success or an error yet.
    #[error("volume {handle} is not attached for volume attachment {name}")]
    NotAttached { handle: VolumeHandle, name: AttachmentName },
    /// The external attacher did not attach in time.
    #[error("timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}")]
    AttachTimeout { driver: DriverName, handle: VolumeHandle },
    /// The external attacher did not detach in time.
    #[error("timed out waiting for external-attacher of {driver} CSI driver to detach volume {handle}")]
    DetachTimeout { driver: DriverName, handle: VolumeHandle },
    /// The name of the volume to detach is not `driver^handle`.
    #[error("cannot detach `{0}`: it names no driver and volume")]
    BadName(String),
}

/// Checks once that the volume is attached. The caller's back-off is the wait.
pub(crate) async fn check(
    api: &dyn ApiSource,
    name: &AttachmentName,
    handle: &VolumeHandle,
) -> Result<(), AttachmentError> {
    let attachment = get(api, name, handle).await?;
    if attachment.meta.is_deleting() {
        return Err(AttachmentError::Deleting);
    }
    if attachment.attached {
        return Ok(());
    }
    match &attachment.attach_error {
        Some(error) => Err(AttachmentError::Failed(error.message.clone())),
        None => Err(AttachmentError::NotAttached { handle: handle.clone(), name: name.clone() }),
    }
}

/// The publish context from ControllerPublishVolume, for the driver's node service.
pub(crate) async fn publish_context(
    api: &dyn ApiSource,
    name: &AttachmentName,
    handle: &VolumeHandle,
) -> Result<BTreeMap<String, String>, AttachmentError> {
    Ok(get(api, name, handle).await?.metadata.clone())
}

async fn get(
    api: &dyn ApiSource,
    name: &AttachmentName,
    handle: &VolumeHandle,
) -> Result<Arc<Attachment>, AttachmentError> {
    let failed = |source| AttachmentError::Get { handle: handle.clone(), name: name.clone(), source };
    api::get(api, "", name.as_str()).await.map_err(failed)
}

/// The controller's time limit for the external attacher, and its first poll interval. Each interval is five
/// per cent longer; the kubelet's longest, seven seconds, is not reached within the limit.
const ATTACH_DEADLINE: Duration = Duration::from_secs(120);
const FIRST_LOOK: Duration = Duration::from_millis(500);

#[async_trait]
impl Attacher for CsiPlugin {
    async fn wait_for_attach(
        &self,
        cx: &OperationContext,
        spec: &Spec,
        _device_path: &str,
    ) -> Result<String, Failure> {
        let volume = CsiVolume::persistent(spec)?;
        let name = volume.attachment(&cx.config.node);
        check(&*cx.api, &name, &volume.handle).await.map_err(CsiError::from)?;
        Ok(name.to_string())
    }

    async fn attach(&self, remote: &Remote<'_>, spec: &Spec, node: &NodeName) -> Result<String, Failure> {
        let volume = CsiVolume::persistent(spec)?;
        let name = volume.attachment(node);
        let wanted = Attachment {
            meta: Meta::named("", name.as_str()),
            attacher: volume.driver.to_string(),
            node: node.to_string(),
            volume: volume.inner.to_string(),
            ..Attachment::default()
        };
        match remote.api.create(wanted.into_object()).await {
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
        let attached = wait(remote, &name, || look_attached(remote.api, &name, &volume)).await;
        let timeout = AttachmentError::AttachTimeout { driver: volume.driver.clone(), handle: volume.handle };
        attached.unwrap_or(Err(timeout)).map_err(CsiError::from)?;
        // Only the node knows the path of a CSI volume's device.
        Ok(String::new())
    }

    async fn detach(&self, remote: &Remote<'_>, volume: &str, node: &NodeName) -> Result<(), Failure> {
        let (driver, handle) = match volume.split('^').collect::<Vec<_>>()[..] {
            [driver, handle] if !handle.is_empty() => (DriverName::new(driver), VolumeHandle::new(handle)),
            _ => return Err(CsiError::from(AttachmentError::BadName(volume.to_owned())).into()),
        };
        let name = AttachmentName::of(&handle, &driver, node);
        match remote.api.delete(&Key::cluster(Kind::Attachment, name.as_str())).await {
            Err(error) if error.is_not_found() => return Ok(()),
            deleted => deleted?,
        }
        let detached = wait(remote, &name, || look_detached(remote.api, &name)).await;
        let timeout = AttachmentError::DetachTimeout { driver, handle };
        Ok(detached.unwrap_or(Err(timeout)).map_err(CsiError::from)?)
    }

    async fn is_attached(&self, remote: &Remote<'_>, spec: &Spec, node: &NodeName) -> Result<bool, Failure> {
        let volume = CsiVolume::persistent(spec)?;
        if !self.can_attach(spec, remote.facts) {
            return Ok(true);
        }
        match api::get::<Attachment>(remote.api, "", volume.attachment(node).as_str()).await {
            Ok(attachment) => Ok(attachment.attached),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Calls `look` at each change of an attachment until it has an answer; `None` after the deadline. It is also
/// called at growing intervals, as in the kubelet, since a change may be missed.
async fn wait<F>(
    remote: &Remote<'_>,
    name: &AttachmentName,
    look: impl Fn() -> F,
) -> Option<Result<(), AttachmentError>>
where
    F: Future<Output = Option<Result<(), AttachmentError>>>,
{
    let deadline = remote.clock.now() + ATTACH_DEADLINE;
    let mut pause = FIRST_LOOK;
    let changes = remote.changes.of(&Key::cluster(Kind::Attachment, name.as_str()));
    loop {
        let mut changed = pin!(changes.notified());
        // Enabled before the look, so that a change after the look is not missed.
        changed.as_mut().enable();
        if let Some(answer) = look().await {
            return Some(answer);
        }
        let next = remote.clock.now() + pause;
        if next > deadline {
            return None;
        }
        tokio::select! {
            biased;
            () = changed => {}
            () = remote.clock.sleep_until(next) => pause = pause.mul_f64(1.05),
        }
    }
}

async fn look_attached(
    api: &dyn ApiSource,
    name: &AttachmentName,
    volume: &CsiVolume,
) -> Option<Result<(), AttachmentError>> {
    match check(api, name, &volume.handle).await {
        // The API server may not have the object yet, and the attacher may not have reported: both may change.
        Err(AttachmentError::Get { .. } | AttachmentError::NotAttached { .. }) => None,
        answer => Some(answer),
    }
}

async fn look_detached(api: &dyn ApiSource, name: &AttachmentName) -> Option<Result<(), AttachmentError>> {
    match api::get::<Attachment>(api, "", name.as_str()).await {
        Err(error) if error.is_not_found() => Some(Ok(())),
        Err(_) => None,
        Ok(attachment) => {
            let error = attachment.detach_error.as_ref()?;
            Some(Err(AttachmentError::Failed(error.message.clone())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use api::clock::{Clock as _, TokioClock};
    use plugin_api::{Changes, Facts};

    use super::*;
    use testing::MemoryApi;

    #[tokio::test(start_paused = true)]
    async fn poll_interval_grows_up_to_the_deadline() {
        let (api, clock, facts, changes) =
            (MemoryApi::default(), TokioClock, Facts::default(), Changes::default());
        let remote = Remote { api: &api, clock: &clock, facts: &facts, changes: &changes };
        let (began, looks) = (clock.now(), RefCell::new(Vec::new()));
        let look = || {
            looks.borrow_mut().push((clock.now() - began).as_millis());
            std::future::ready(None)
        };
        assert!(wait(&remote, &"csi-1".into(), look).await.is_none());
        let looks = looks.into_inner();
        let pauses: Vec<_> = looks.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(pauses[..4], [500, 525, 552, 579]);
        let (last, longest) = (looks[looks.len() - 1], pauses[pauses.len() - 1]);
        assert!((120_000 - longest * 105 / 100..=120_000).contains(&last), "{last}");
    }

    #[tokio::test(start_paused = true)]
    async fn notified_change_ends_a_pause() {
        let (api, clock, facts, changes) =
            (MemoryApi::default(), TokioClock, Facts::default(), Changes::default());
        let remote = Remote { api: &api, clock: &clock, facts: &facts, changes: &changes };
        let (began, looks) = (clock.now(), RefCell::new(0));
        let look = || {
            *looks.borrow_mut() += 1;
            std::future::ready((*looks.borrow() == 2).then_some(Ok(())))
        };
        let telling = async {
            clock.sleep(Duration::from_millis(3)).await;
            changes.notify(&Key::cluster(Kind::Attachment, "csi-2"));
            changes.notify(&Key::cluster(Kind::Attachment, "csi-1"));
        };
        let name = AttachmentName::new("csi-1");
        let (answer, ()) = tokio::join!(wait(&remote, &name, look), telling);
        assert!(answer.is_some_and(|answer| answer.is_ok()));
        assert_eq!((clock.now() - began).as_millis(), 3, "it did not wait for its next look");
    }
}
