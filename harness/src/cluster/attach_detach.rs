//! The attach/detach controller and the attacher beside a driver, as one role.
//!
//! The order it keeps: a volume is attached once a pod on the node wants it, and detached only when the node
//! no longer says that it uses it. `volumesAttached` loses a volume before its attachment goes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::names::{AttachmentName, VolumeName};
use api::node::AttachedVolume;
use api::storage::{AttachmentError, CsiSource};
use api::{
    ApiError, Attachment, Change, Claim, CsiDriver, Key, Kind, Meta, Node, Patch, PatchBody,
    PersistentSource, Pod, Volume, VolumeMode, Watch,
};
use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use tokio::task::AbortHandle;
use tonic::Status;
use tonic::transport::Channel;

use super::Cluster;
use crate::driver::Capabilities;
use crate::proxy::within;

/// How long one call may take: the attacher's own deadline.
const CALL: Duration = Duration::from_secs(15);

/// A running controller for one driver and one node. Dropping it ends it.
#[derive(Debug)]
pub struct AttachDetach {
    task: AbortHandle,
}

impl AttachDetach {
    /// Starts the controller. Attaching takes at least `delay`.
    pub fn start(
        cluster: Cluster,
        channel: Channel,
        capabilities: Capabilities,
        node: &str,
        delay: Duration,
    ) -> Self {
        let node = node.to_owned();
        let controller = Controller { cluster, channel, capabilities, node, delay, failures: 0 };
        Self { task: tokio::spawn(controller.run()).abort_handle() }
    }
}

impl Drop for AttachDetach {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Controller {
    cluster: Cluster,
    channel: Channel,
    capabilities: Capabilities,
    node: String,
    delay: Duration,
    failures: u32,
}

/// Why a volume was not attached or detached. It is tried again, so nobody but the log hears of it.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("cannot call the driver")]
    Driver(#[source] Status),
    #[error("cannot write the objects of an attachment")]
    Api(#[from] ApiError),
}

/// A volume of the driver that a pod wants.
#[derive(Clone)]
struct Wanted {
    volume: String,
    csi: CsiSource,
    block: bool,
}

impl Controller {
    async fn run(mut self) {
        let kinds = [Kind::Pod, Kind::Node, Kind::Claim, Kind::Volume, Kind::CsiDriver];
        let mut watches = kinds.map(|kind| self.cluster.watch(kind));
        loop {
            let settled = self.pass().await;
            self.failures = if settled { 0 } else { self.failures.saturating_add(1) };
            // An attacher begins with one second; here nobody is served by waiting so long.
            let pause = Duration::from_millis(100) * 2u32.saturating_pow(self.failures.min(10));
            tokio::select! {
                biased;
                () = changed(&mut watches) => {}
                () = tokio::time::sleep(pause), if !settled => {}
            }
        }
    }

    /// Detaches what nobody wants, then attaches what somebody does. Returns whether all of it worked.
    async fn pass(&self) -> bool {
        let Some(node) = self.cluster.get::<Node>("", &self.node) else { return true };
        let wanted = self.wanted();
        let mut settled = true;
        for attachment in self.cluster.list::<Attachment>() {
            let mine = attachment.attacher == self.capabilities.name && attachment.node == self.node;
            let name = self.unique(&attachment.volume);
            let used = name.is_some_and(|name| node.volumes_in_use.contains(&name));
            if mine && !used && !wanted.contains_key(&attachment.volume) {
                settled &= worked(self.detach(&attachment).await);
            }
        }
        for volume in wanted.values() {
            settled &= worked(self.attach(volume).await);
        }
        settled
    }

    fn wanted(&self) -> BTreeMap<String, Wanted> {
        let driver = self.cluster.get::<CsiDriver>("", &self.capabilities.name);
        if driver.is_some_and(|driver| !driver.attach_required) {
            return BTreeMap::new();
        }
        let mut wanted = BTreeMap::new();
        for pod in self.cluster.list::<Pod>() {
            let ended = ["Succeeded", "Failed"].contains(&pod.phase.as_str());
            if ended || pod.node != self.node {
                continue;
            }
            for claim in pod.claims() {
                let Some(claim) = self.cluster.get::<Claim>(&pod.meta.namespace, &claim) else { continue };
                let Some(volume) = self.cluster.get::<Volume>("", &claim.spec.volume) else { continue };
                let PersistentSource::Csi(csi) = &volume.source else { continue };
                if csi.driver.as_str() == self.capabilities.name {
                    let name = volume.meta.name.clone();
                    let block = volume.mode == Some(VolumeMode::Block);
                    wanted.insert(name.clone(), Wanted { volume: name, csi: (**csi).clone(), block });
                }
            }
        }
        wanted
    }

    async fn attach(&self, wanted: &Wanted) -> Result<(), Trouble> {
        let driver = wanted.csi.driver.clone();
        let name = AttachmentName::of(&wanted.csi.handle, &driver, &self.node.as_str().into()).to_string();
        let symbols = self.cluster.journal().symbols();
        symbols.name_attachment(&symbols.volume(wanted.csi.handle.as_str()), &name);
        let known = self.cluster.get::<Attachment>("", &name);
        if known.as_ref().is_some_and(|known| known.attached || known.meta.is_deleting()) {
            return Ok(());
        }
        if known.is_none() {
            let finalizer = format!("external-attacher/{}", driver.as_str().replace('.', "-"));
            let mut meta = Meta::named("", &name);
            meta.finalizers.push(finalizer);
            let (attacher, node, volume) = (driver.to_string(), self.node.clone(), wanted.volume.clone());
            self.cluster
                .seen_by(super::CONTROLLER)
                .create(api::Object::Attachment(
                    Attachment { meta, attacher, node, volume, ..Attachment::default() }.into(),
                ))
                .await?;
        }
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let answer = self.publish(wanted).await;
        let (attached, metadata, attach_error, trouble) = match answer {
            Ok(context) => (true, context, None, None),
            Err(status) => {
                let code = Some(i32::from(status.code()));
                let error = AttachmentError { message: status.message().to_owned(), code };
                (false, BTreeMap::new(), Some(error), Some(Trouble::Driver(status)))
            }
        };
        let body = PatchBody::AttachmentStatus { attached, metadata, attach_error, detach_error: None };
        self.cluster.patch(Patch::of(Key::cluster(Kind::Attachment, &name), body))?;
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        self.report(|attached| {
            attached.insert(unique(&wanted.csi));
        })?;
        Ok(())
    }

    async fn detach(&self, attachment: &Attachment) -> Result<(), Trouble> {
        if let Some(name) = self.unique(&attachment.volume) {
            self.report(|attached| {
                attached.remove(&name);
            })?;
        }
        let key = Key::cluster(Kind::Attachment, &attachment.meta.name);
        self.cluster.seen_by(super::CONTROLLER).delete(&key).await?;
        if let Some(csi) = self.source(&attachment.volume)
            && let Err(status) = self.unpublish(csi.handle.as_str()).await
        {
            let error =
                AttachmentError { message: status.message().to_owned(), code: Some(status.code().into()) };
            let body = PatchBody::AttachmentStatus {
                attached: attachment.attached,
                metadata: attachment.metadata.clone(),
                attach_error: None,
                detach_error: Some(error),
            };
            self.cluster.patch(Patch::of(key, body))?;
            return Err(Trouble::Driver(status));
        }
        self.cluster.patch(Patch::of(key, PatchBody::Finalizers(Vec::new())))?;
        Ok(())
    }

    /// Changes what the node's object says is attached.
    fn report(&self, change: impl FnOnce(&mut BTreeSet<VolumeName>)) -> Result<(), ApiError> {
        let Some(node) = self.cluster.get::<Node>("", &self.node) else { return Ok(()) };
        let before: BTreeSet<VolumeName> =
            node.volumes_attached.iter().map(|known| known.name.clone()).collect();
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        let attached = |name| AttachedVolume { name, device_path: String::new() };
        let body = PatchBody::VolumesAttached(after.into_iter().map(attached).collect());
        self.cluster.patch(Patch::of(Key::cluster(Kind::Node, &self.node), body)).map(drop)
    }

    /// A driver that does not publish is attached by saying so.
    async fn publish(&self, wanted: &Wanted) -> Result<BTreeMap<String, String>, Status> {
        if !self.capabilities.controller_can("PUBLISH_UNPUBLISH_VOLUME") {
            return Ok(BTreeMap::new());
        }
        use v1::volume_capability::access_mode::Mode;
        use v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
        let finer = self.capabilities.controller_can("SINGLE_NODE_MULTI_WRITER");
        let mode = if finer { Mode::SingleNodeMultiWriter } else { Mode::SingleNodeWriter };
        let access_type = match wanted.block {
            true => AccessType::Block(BlockVolume {}),
            false => {
                AccessType::Mount(MountVolume { fs_type: wanted.csi.fs_type.clone(), ..Default::default() })
            }
        };
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: wanted.csi.handle.to_string(),
            node_id: self.capabilities.node_id.clone(),
            volume_capability: Some(v1::VolumeCapability {
                access_mode: Some(AccessMode { mode: mode.into() }),
                access_type: Some(access_type),
            }),
            volume_context: wanted.csi.attributes.clone().into_iter().collect(),
            ..Default::default()
        };
        let mut client = ControllerClient::new(self.channel.clone());
        let answer = client.controller_publish_volume(within(request, CALL)).await?;
        Ok(answer.into_inner().publish_context.into_iter().collect())
    }

    async fn unpublish(&self, handle: &str) -> Result<(), Status> {
        if !self.capabilities.controller_can("PUBLISH_UNPUBLISH_VOLUME") {
            return Ok(());
        }
        let request = v1::ControllerUnpublishVolumeRequest {
            volume_id: handle.to_owned(),
            node_id: self.capabilities.node_id.clone(),
            ..Default::default()
        };
        let mut client = ControllerClient::new(self.channel.clone());
        client.controller_unpublish_volume(within(request, CALL)).await.map(drop)
    }

    fn source(&self, volume: &str) -> Option<CsiSource> {
        let volume = self.cluster.get::<Volume>("", volume)?;
        match &volume.source {
            PersistentSource::Csi(csi) => Some((**csi).clone()),
            _ => None,
        }
    }

    fn unique(&self, volume: &str) -> Option<VolumeName> {
        self.source(volume).as_ref().map(unique)
    }
}

fn worked(done: Result<(), Trouble>) -> bool {
    if let Err(trouble) = &done {
        tracing::debug!(?trouble, "will be tried again");
    }
    done.is_ok()
}

fn unique(csi: &CsiSource) -> VolumeName {
    VolumeName::new(format!("kubernetes.io/csi/{}^{}", csi.driver, csi.handle))
}

/// Returns when anything has changed, having taken all changes that are there.
async fn changed(watches: &mut [Watch; 5]) {
    let [pods, nodes, claims, volumes, drivers] = watches;
    let first: Option<Change> = tokio::select! {
        biased;
        change = pods.recv() => change,
        change = nodes.recv() => change,
        change = claims.recv() => change,
        change = volumes.recv() => change,
        change = drivers.recv() => change,
    };
    if first.is_none() {
        // The store is gone, and with it everything there was to do.
        std::future::pending::<()>().await;
    }
    for watch in watches {
        while watch.try_recv().is_ok() {}
    }
}
