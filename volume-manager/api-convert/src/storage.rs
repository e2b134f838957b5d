//! Claims, volumes, classes and drivers.

use api::names::Namespaced;
use api::object::Meta;
use api::storage::{
    AccessMode, AllowedValues, AttributesClass, Claim, ClaimPhase, ClaimReference, ClaimSpec, ClaimStatus,
    ClaimTemplate, Class, Condition, CsiDriver, CsiSource, DataSource, DriverToken, FlexVolume,
    FsGroupPolicy, LifecycleMode, ModifyProgress, Modifying, NodeAffinity, PersistentSource, Requirement,
    Volume, VolumeMode,
};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Bad, amount};

pub(super) fn claim(claim: core::PersistentVolumeClaim, meta: Meta) -> Result<Claim, Bad> {
    let spec = claim.spec.map(claim_spec).transpose()?.unwrap_or_default();
    let status = claim.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default().into_iter().map(|condition| Condition {
        kind: condition.type_,
        status: condition.status,
        message: condition.message.unwrap_or_default(),
    });
    let allocated = amount(status.allocated_resources.as_ref(), "storage")?;
    let resizes = status.allocated_resource_statuses.unwrap_or_default();
    let status = ClaimStatus {
        phase: match status.phase.as_deref() {
            None | Some("" | "Pending") => ClaimPhase::Pending,
            Some("Bound") => ClaimPhase::Bound,
            Some("Lost") => ClaimPhase::Lost,
            Some(other) => return Err(Bad::new("the phase of a claim", other)),
        },
        capacity: amount(status.capacity.as_ref(), "storage")?,
        allocated: Some(allocated).filter(|allocated| !allocated.is_zero()),
        resize: resizes.get("storage").cloned().unwrap_or_default(),
        conditions: conditions.collect(),
        attributes_class: status.current_volume_attributes_class_name.unwrap_or_default(),
        modifying: status.modify_volume_status.map(modifying).transpose()?,
    };
    Ok(Claim { meta, spec, status })
}

fn modifying(status: core::ModifyVolumeStatus) -> Result<Modifying, Bad> {
    let progress = match status.status.as_str() {
        "Pending" => ModifyProgress::Pending,
        "InProgress" => ModifyProgress::InProgress,
        "Infeasible" => ModifyProgress::Infeasible,
        _ => return Err(Bad::new("the progress of a modification", status.status)),
    };
    Ok(Modifying { target: status.target_volume_attributes_class_name.unwrap_or_default(), progress })
}

pub(super) fn template(template: core::PersistentVolumeClaimTemplate) -> Result<ClaimTemplate, Bad> {
    let meta = template.metadata.unwrap_or_default();
    Ok(ClaimTemplate {
        labels: meta.labels.unwrap_or_default(),
        annotations: meta.annotations.unwrap_or_default(),
        spec: claim_spec(template.spec)?,
    })
}

fn claim_spec(spec: core::PersistentVolumeClaimSpec) -> Result<ClaimSpec, Bad> {
    let resources = spec.resources.unwrap_or_default();
    let source = match (spec.data_source_ref, spec.data_source) {
        (Some(source), _) => Some(DataSource { kind: source.kind, name: source.name }),
        (None, source) => source.map(|source| DataSource { kind: source.kind, name: source.name }),
    };
    Ok(ClaimSpec {
        access_modes: access_modes(spec.access_modes)?,
        request: amount(resources.requests.as_ref(), "storage")?,
        volume: spec.volume_name.unwrap_or_default(),
        mode: volume_mode(spec.volume_mode.as_deref())?,
        class: spec.storage_class_name,
        attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
        data_source: source,
        selector: spec.selector.map(selector),
    })
}

pub(super) fn volume(volume: core::PersistentVolume, meta: Meta) -> Result<Volume, Bad> {
    let spec = volume.spec.unwrap_or_default();
    let claim = spec.claim_ref.as_ref().map(|reference| ClaimReference {
        claim: Namespaced::new(
            reference.namespace.clone().unwrap_or_default(),
            reference.name.clone().unwrap_or_default(),
        ),
        uid: reference.uid.clone().unwrap_or_default(),
    });
    let mode = volume_mode(spec.volume_mode.as_deref())?;
    Ok(Volume {
        meta,
        capacity: amount(spec.capacity.as_ref(), "storage")?,
        access_modes: access_modes(spec.access_modes.clone())?,
        claim,
        mount_options: spec.mount_options.clone().unwrap_or_default(),
        mode: Some(mode),
        affinity: spec.node_affinity.clone().and_then(|affinity| affinity.required).map(affinity),
        reclaim: spec.persistent_volume_reclaim_policy.clone().unwrap_or_else(|| "Retain".to_owned()),
        class: spec.storage_class_name.clone().unwrap_or_default(),
        attributes_class: spec.volume_attributes_class_name.clone().unwrap_or_default(),
        source: source(spec),
        phase: volume.status.and_then(|status| status.phase).unwrap_or_default(),
    })
}

fn source(spec: core::PersistentVolumeSpec) -> PersistentSource {
    if let Some(csi) = spec.csi {
        return PersistentSource::Csi(Box::new(CsiSource {
            driver: csi.driver.into(),
            handle: csi.volume_handle.into(),
            fs_type: csi.fs_type.unwrap_or_default(),
            read_only: csi.read_only.unwrap_or_default(),
            attributes: csi.volume_attributes.unwrap_or_default(),
            controller_publish_secret: csi.controller_publish_secret_ref.map(secret),
            node_stage_secret: csi.node_stage_secret_ref.map(secret),
            node_publish_secret: csi.node_publish_secret_ref.map(secret),
            controller_expand_secret: csi.controller_expand_secret_ref.map(secret),
            node_expand_secret: csi.node_expand_secret_ref.map(secret),
        }));
    }
    if let Some(nfs) = spec.nfs {
        let read_only = nfs.read_only.unwrap_or_default();
        return PersistentSource::Nfs { server: nfs.server, path: nfs.path, read_only };
    }
    if let Some(path) = spec.host_path {
        return PersistentSource::HostPath { path: path.path, kind: path.type_.unwrap_or_default() };
    }
    if let Some(local) = spec.local {
        return PersistentSource::Local { path: local.path, fs_type: local.fs_type.unwrap_or_default() };
    }
    if let Some(flex) = spec.flex_volume {
        let secret = flex.secret_ref.unwrap_or_default();
        return PersistentSource::FlexVolume(Box::new(FlexVolume {
            driver: flex.driver,
            fs_type: flex.fs_type.unwrap_or_default(),
            read_only: flex.read_only.unwrap_or_default(),
            options: flex.options.unwrap_or_default(),
            secret: secret.name,
            secret_namespace: secret.namespace.unwrap_or_default(),
        }));
    }
    const COMMON: &[&str] = &[
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    PersistentSource::Other { kind: super::kind_of(&spec, COMMON) }
}

pub(super) fn selector(selector: LabelSelector) -> Vec<Requirement> {
    let label = |(key, value)| Requirement { key, operator: "In".to_owned(), values: vec![value] };
    let labels = selector.match_labels.unwrap_or_default().into_iter().map(label);
    let expressions = selector.match_expressions.unwrap_or_default().into_iter();
    let expressions = expressions.map(|expression| Requirement {
        key: expression.key,
        operator: expression.operator,
        values: expression.values.unwrap_or_default(),
    });
    labels.chain(expressions).collect()
}

fn secret(reference: core::SecretReference) -> Box<Namespaced> {
    Namespaced::new(reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default()).into()
}

fn affinity(required: core::NodeSelector) -> NodeAffinity {
    let requirement = |expression: core::NodeSelectorRequirement| Requirement {
        key: expression.key,
        operator: expression.operator,
        values: expression.values.unwrap_or_default(),
    };
    let terms = required.node_selector_terms.into_iter();
    let terms = terms.map(|term| {
        term.match_expressions.unwrap_or_default().into_iter().map(requirement).collect::<Vec<_>>()
    });
    NodeAffinity { terms: terms.collect() }
}

fn access_modes(modes: Option<Vec<String>>) -> Result<Vec<AccessMode>, Bad> {
    let mode = |mode: String| match mode.as_str() {
        "ReadWriteOnce" => Ok(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Ok(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Ok(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Ok(AccessMode::ReadWriteOncePod),
        _ => {
            let what = "an access mode (ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod)";
            Err(Bad::new(what, mode))
        }
    };
    modes.unwrap_or_default().into_iter().map(mode).collect()
}

fn volume_mode(mode: Option<&str>) -> Result<VolumeMode, Bad> {
    match mode {
        None | Some("Filesystem") => Ok(VolumeMode::Filesystem),
        Some("Block") => Ok(VolumeMode::Block),
        Some(other) => Err(Bad::new("a volume mode", other)),
    }
}

pub(super) fn class(class: storage::StorageClass, meta: Meta) -> Result<Class, Bad> {
    Ok(Class {
        meta,
        provisioner: class.provisioner,
        parameters: class.parameters.unwrap_or_default(),
        reclaim: class.reclaim_policy.unwrap_or_else(|| "Delete".to_owned()),
        mount_options: class.mount_options.unwrap_or_default(),
        allow_expansion: class.allow_volume_expansion.unwrap_or_default(),
        wait_for_consumer: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        allowed_topologies: class.allowed_topologies.into_iter().flatten().map(allowed_topology).collect(),
    })
}

fn allowed_topology(term: core::TopologySelectorTerm) -> Vec<AllowedValues> {
    let allowed =
        |one: core::TopologySelectorLabelRequirement| AllowedValues { key: one.key, values: one.values };
    term.match_label_expressions.into_iter().flatten().map(allowed).collect()
}

pub(super) fn attributes_class(
    class: storage::VolumeAttributesClass,
    meta: Meta,
) -> Result<AttributesClass, Bad> {
    Ok(AttributesClass { meta, driver: class.driver_name, parameters: class.parameters.unwrap_or_default() })
}

pub(super) fn driver(driver: storage::CSIDriver, meta: Meta) -> Result<CsiDriver, Bad> {
    let spec = driver.spec;
    let defaults = CsiDriver::default();
    let modes = spec.volume_lifecycle_modes.unwrap_or_default().into_iter().map(|mode| match mode.as_str() {
        "Persistent" => Ok(LifecycleMode::Persistent),
        "Ephemeral" => Ok(LifecycleMode::Ephemeral),
        _ => Err(Bad::new("a lifecycle mode", mode)),
    });
    let modes = modes.collect::<Result<Vec<_>, _>>()?;
    let tokens = spec.token_requests.unwrap_or_default().into_iter();
    let period = spec.node_allocatable_update_period_seconds.and_then(|period| u64::try_from(period).ok());
    Ok(CsiDriver {
        meta,
        attach_required: spec.attach_required.unwrap_or(defaults.attach_required),
        pod_info: spec.pod_info_on_mount.unwrap_or_default(),
        fs_group_policy: match spec.fs_group_policy.as_deref() {
            None => defaults.fs_group_policy,
            Some("None") => Some(FsGroupPolicy::None),
            Some("File") => Some(FsGroupPolicy::File),
            Some("ReadWriteOnceWithFSType") => Some(FsGroupPolicy::ReadWriteOnceWithFsType),
            Some(other) => return Err(Bad::new("a policy for groups", other)),
        },
        lifecycle_modes: if modes.is_empty() { defaults.lifecycle_modes } else { modes },
        tokens: tokens
            .map(|token| DriverToken { audience: token.audience, expiration: token.expiration_seconds })
            .collect(),
        token_in_secrets: spec.service_account_token_in_secrets.unwrap_or_default(),
        requires_republish: spec.requires_republish.unwrap_or_default(),
        selinux_mount: spec.se_linux_mount.unwrap_or_default(),
        allocatable_period: period,
    })
}
