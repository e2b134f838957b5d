//! The API objects of a play, from a scenario or manifests. Writes to the cluster and nothing else.

use anyhow::Result;
use api::storage::{DriverToken, FsGroupPolicy, LifecycleMode};
use api::{AccessMode, ConfigMap, CsiDriver, Meta, Object, Resource, Secret, Service};
use harness::Layout;
use harness::api_server::{ApiServer, VolumeRequest};
use harness::driver::Capabilities;
use harness::manifest::Manifest;

use super::files::Files;
use super::manifest;
use super::scenario::{Scenario, VolumeConf};
use super::world::World;

/// The CSIDriver object of a scenario.
pub(super) fn driver_object(name: &str, scenario: &Scenario) -> CsiDriver {
    let options = &scenario.driver;
    let policy = match options.fs_group_policy.as_deref() {
        Some("None") => FsGroupPolicy::None,
        Some("File") => FsGroupPolicy::File,
        _ => FsGroupPolicy::ReadWriteOnceWithFsType,
    };
    let token = |audience: &String| DriverToken { audience: audience.clone(), expiration: None };
    CsiDriver {
        meta: Meta::named("", name),
        attach_required: options.attach_required,
        pod_info: options.pod_info_on_mount,
        fs_group_policy: Some(policy),
        lifecycle_modes: vec![LifecycleMode::Persistent, LifecycleMode::Ephemeral],
        tokens: options.token_audiences.iter().map(token).collect(),
        requires_republish: options.requires_republish,
        ..CsiDriver::default()
    }
}

/// The CSIDriver object of the files, or one as the driver's author would install it.
pub(super) fn driver_as_written(
    capabilities: &Capabilities,
    manifest: &Manifest,
    files: &Files,
) -> Result<CsiDriver> {
    let written = files.driver.as_ref().map(|driver| manifest::objects(driver.clone(), "")).transpose()?;
    let written = written.unwrap_or_default().into_iter().find_map(CsiDriver::from_object);
    match written {
        Some(driver) if driver.meta.name == capabilities.name => Ok(CsiDriver::clone(&driver)),
        Some(driver) => {
            anyhow::bail!(
                "the CSIDriver is `{}`, but the driver is `{}`",
                driver.meta.name,
                capabilities.name
            )
        }
        // Without it a node publishes no inline volume.
        None => Ok(CsiDriver {
            pod_info: manifest.volume.inline,
            ..harness::api_server::driver_object(capabilities)
        }),
    }
}

/// The request for a volume of a scenario.
pub(super) fn request(volume: &VolumeConf) -> VolumeRequest {
    let mode = |mode: &String| match mode.as_str() {
        "ReadOnlyMany" => AccessMode::ReadOnlyMany,
        "ReadWriteMany" => AccessMode::ReadWriteMany,
        "ReadWriteOncePod" => AccessMode::ReadWriteOncePod,
        _ => AccessMode::ReadWriteOnce,
    };
    VolumeRequest {
        name: volume.name.clone(),
        size: volume.size_mi << 20,
        block: volume.block,
        access_modes: volume.access_modes.iter().map(mode).collect(),
        fs_type: volume.fs_type.clone(),
        mount_options: Vec::new(),
        read_only: volume.pv_read_only,
        source: None,
        fuse: false,
    }
}

/// Makes the config maps, secrets and services.
pub(super) fn create_objects(api: &ApiServer, scenario: &Scenario, layout: &Layout) -> Result<()> {
    let root = World::root_path(layout).to_string_lossy().into_owned();
    let kinds = [
        ("ConfigMap", &scenario.config_maps),
        ("Secret", &scenario.secrets),
        ("Service", &scenario.services),
    ];
    for (kind, document) in kinds.iter().flat_map(|(kind, all)| all.iter().map(move |one| (*kind, one))) {
        create(api, manifest::of_kind(kind, document, &root)?)?;
    }
    Ok(())
}

/// Makes an object whose kind is only known now.
pub(super) fn create(api: &ApiServer, object: Object) -> Result<()> {
    match object.clone() {
        Object::Secret(_) => create_as::<Secret>(api, object),
        Object::ConfigMap(_) => create_as::<ConfigMap>(api, object),
        Object::Service(_) => create_as::<Service>(api, object),
        other => anyhow::bail!("a scenario has no place for {:?}", other.key()),
    }
}

fn create_as<R: Resource>(api: &ApiServer, object: Object) -> Result<()> {
    if let Some(object) = R::from_object(object) {
        api.create(R::clone(&object))?;
    }
    Ok(())
}
