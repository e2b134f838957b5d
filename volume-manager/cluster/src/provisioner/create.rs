//! A claim's volume: asked of the driver, and written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::Namespaced;
use api::storage::{ClaimReference, CsiSource};
use api::{
    AttributesClass, Bytes, Claim, Class, Key, Kind, Meta, PersistentSource, Resource, Severity, Volume,
    VolumeMode,
};
use csi_proto::v1;
use tonic::Code;

use super::asked::{self, Step};
use super::parameters::{self, SecretKind};
use super::{BEING_MADE, FINALIZER, ProvisionReconciler, topology};
use crate::class_parameters::of_driver;
use crate::found::{find, hold, release};
use crate::reconcile_error::is_unknown;
use crate::{ReconcileError, annotations, capability, secrets};

/// The attribute of each PersistentVolume with the identity of its provisioner.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

impl ProvisionReconciler {
    /// Has the volume of a claim made.
    pub(super) async fn provision(&self, key: &Key) -> Result<(), ReconcileError> {
        let Some(claim) = find::<Claim>(&*self.api, key).await? else {
            self.refused().remove(key);
            self.events.forget(key);
            return Ok(());
        };
        let refused = self.refused().contains(key);
        match asked::next(&claim, &self.config.driver, refused) {
            Step::Make => {}
            Step::Release => return release(&*self.api, key, &claim.meta, &[BEING_MADE]).await,
            Step::Nothing => return Ok(()),
        }
        let name = format!("pvc-{}", claim.meta.uid);
        if find::<Volume>(&*self.api, &Key::cluster(Kind::Volume, &name)).await?.is_some() {
            return release(&*self.api, key, &claim.meta, &[BEING_MADE]).await;
        }
        let class_name = claim.spec.class.clone().unwrap_or_default();
        let class: Arc<Class> = api::get(&*self.api, "", &class_name).await?;
        // The scheduler chooses no node for a claim that is being deleted: what an earlier call left is found without
        // one.
        let lacks_node = !claim.meta.annotations.contains_key(annotations::SELECTED_NODE);
        if class.wait_for_consumer && lacks_node && !claim.meta.is_deleting() {
            return Ok(());
        }
        let message = format!(
            "External provisioner is provisioning volume for claim \"{}/{}\"",
            key.namespace, key.name
        );
        self.write_event(&claim, Severity::Normal, "Provisioning", message).await?;
        let outcome = self.make(&claim, &class, &name).await;
        match outcome {
            Ok(()) => {
                let message = format!("Successfully provisioned volume {name}");
                self.write_event(&claim, Severity::Normal, "ProvisioningSucceeded", message).await?;
                let Some(claim) = find::<Claim>(&*self.api, key).await? else { return Ok(()) };
                release(&*self.api, key, &claim.meta, &[BEING_MADE]).await
            }
            Err(failure) => {
                let message =
                    format!("failed to provision volume with StorageClass {class_name:?}: {failure}");
                self.write_event(&claim, Severity::Warning, "ProvisioningFailed", message).await?;
                if failure.code() == Some(Code::ResourceExhausted) {
                    self.choose_node_again(&claim, &class).await?;
                }
                Err(failure)
            }
        }
    }

    async fn make(&self, claim: &Claim, class: &Class, name: &str) -> Result<(), ReconcileError> {
        let bad = |error: parameters::BadClass| ReconcileError::unfit(error.to_string());
        let secret = |kind| parameters::secret(class, kind, claim, name).map_err(bad);
        let boxed = |kind| secret(kind).map(|secret| secret.map(Box::new));
        if claim.spec.selector.is_some() {
            return Err(ReconcileError::unfit("claim Selector is not supported"));
        }
        let provisioner_secret = secret(SecretKind::Provisioner)?;
        let mut source = CsiSource {
            driver: self.config.driver.as_str().into(),
            fs_type: match claim.spec.mode {
                VolumeMode::Filesystem => parameters::fs_type(class),
                VolumeMode::Block => String::new(),
            },
            controller_publish_secret: boxed(SecretKind::ControllerPublish)?,
            node_stage_secret: boxed(SecretKind::NodeStage)?,
            node_publish_secret: boxed(SecretKind::NodePublish)?,
            controller_expand_secret: boxed(SecretKind::ControllerExpand)?,
            node_expand_secret: boxed(SecretKind::NodeExpand)?,
            ..CsiSource::default()
        };
        let mut volume = Volume {
            meta: Meta::named("", name),
            access_modes: claim.spec.access_modes.clone(),
            claim: Some(ClaimReference {
                claim: Namespaced::new(&claim.meta.namespace, &claim.meta.name),
                uid: claim.meta.uid.clone(),
            }),
            mount_options: class.mount_options.clone(),
            mode: Some(claim.spec.mode),
            reclaim: class.reclaim.clone(),
            class: class.meta.name.clone(),
            attributes_class: claim.spec.attributes_class.clone(),
            ..Volume::default()
        };
        let content = self.content(claim).await?;
        let request = v1::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(v1::CapacityRange {
                required_bytes: claim.spec.request.0.cast_signed(),
                limit_bytes: 0,
            }),
            volume_capabilities: capability::each_of_claim(&volume, &source, self.config.fine_modes),
            parameters: of_driver(&class.parameters).into_iter().collect(),
            secrets: secrets::read(&*self.api, provisioner_secret.as_ref()).await?,
            volume_content_source: content.clone(),
            accessibility_requirements: self.requirement(claim, class).await?,
            mutable_parameters: self.mutable_parameters(claim).await?,
        };
        // Before the call: from then on there may be a volume, which the claim has to outlive.
        hold(&*self.api, &claim.key(), &claim.meta, BEING_MADE).await?;
        let certain = self.refused().remove(&claim.key()) || !claim.meta.has_finalizer(BEING_MADE);
        let answer = match self.service.create(request, self.config.call_limit).await {
            Ok(answer) => answer,
            Err(status) => {
                // An error says nothing of what an earlier call of unknown outcome has left.
                if certain && !is_unknown(status.code()) {
                    self.refused().insert(claim.key());
                }
                return Err(ReconcileError::Driver(status));
            }
        };
        let made = answer
            .volume
            .ok_or_else(|| ReconcileError::unfit("the answer to CreateVolume holds no volume"))?;
        self.check(claim, &made, content.as_ref(), provisioner_secret.as_ref()).await?;
        source.handle = made.volume_id.as_str().into();
        source.attributes = made.volume_context.into_iter().collect();
        source.attributes.insert(IDENTITY.to_owned(), format!("volproof-{}", self.config.driver));
        volume.capacity = match u64::try_from(made.capacity_bytes) {
            Ok(0) | Err(_) => claim.spec.request,
            Ok(bytes) => Bytes(bytes),
        };
        volume.affinity = topology::affinity(&made.accessible_topology);
        volume.source = PersistentSource::Csi(Box::new(source));
        let annotations = &mut volume.meta.annotations;
        annotations.insert(annotations::PROVISIONED_BY.to_owned(), self.config.driver.clone());
        if let Some(secret) = provisioner_secret {
            annotations.insert(annotations::DELETION_SECRET_NAME.to_owned(), secret.name);
            annotations.insert(annotations::DELETION_SECRET_NAMESPACE.to_owned(), secret.namespace);
        }
        volume.meta.finalizers.push(FINALIZER.to_owned());
        match self.api.create(volume.into_object()).await {
            // It was written while the answer got lost.
            Err(error) if error.is_conflict() => Ok(()),
            answer => answer.map(drop).map_err(ReconcileError::from),
        }
    }

    /// Takes back a volume that is not what was asked for.
    async fn check(
        &self,
        claim: &Claim,
        made: &v1::Volume,
        content: Option<&v1::VolumeContentSource>,
        secret: Option<&Namespaced>,
    ) -> Result<(), ReconcileError> {
        let size = u64::try_from(made.capacity_bytes).unwrap_or_default();
        let reason = match () {
            () if made.volume_id.is_empty() => {
                return Err(ReconcileError::unfit("CreateVolume answered a volume without an id"));
            }
            () if size != 0 && size < claim.spec.request.0 => format!(
                "created volume capacity {size} less than requested capacity {}",
                claim.spec.request.0
            ),
            () if content.is_some() && made.content_source.as_ref() != content => {
                "volume content source missing or another than asked for".to_owned()
            }
            () => return Ok(()),
        };
        let request = v1::DeleteVolumeRequest {
            volume_id: made.volume_id.clone(),
            secrets: secrets::read(&*self.api, secret).await?,
        };
        match self.service.delete(request, self.config.call_limit).await {
            Ok(_) => {
                self.refused().insert(claim.key());
                Err(ReconcileError::unfit(reason))
            }
            Err(status) => Err(ReconcileError::unfit(format!("{reason}; deleting it failed: {status}"))),
        }
    }

    /// The attributes that a claim's volume is made with.
    async fn mutable_parameters(&self, claim: &Claim) -> Result<BTreeMap<String, String>, ReconcileError> {
        let name = &claim.spec.attributes_class;
        if name.is_empty() {
            return Ok(BTreeMap::new());
        }
        if !self.config.modifies {
            return Err(ReconcileError::unfit("CSI driver does not support VolumeAttributesClass"));
        }
        let class: Arc<AttributesClass> = api::get(&*self.api, "", name).await?;
        if class.driver != self.config.driver {
            return Err(ReconcileError::unfit(format!("VAC {name:?} is of the driver {}", class.driver)));
        }
        Ok(class.parameters.clone())
    }

    /// Has the scheduler choose again where the place that it chose has no room.
    async fn choose_node_again(&self, claim: &Claim, class: &Class) -> Result<(), ReconcileError> {
        if !class.wait_for_consumer {
            return Ok(());
        }
        let Some(claim) = find::<Claim>(&*self.api, &claim.key()).await? else { return Ok(()) };
        let mut claim = Claim::clone(&claim);
        if claim.meta.annotations.remove(annotations::SELECTED_NODE).is_some() {
            self.api.update(claim.into_object()).await?;
        }
        Ok(())
    }
}
