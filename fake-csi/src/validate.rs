//! Checks of a request alone: required fields, the specification's limits of sizes, plain paths.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use csi_proto::json::TOKENS_KEY;
use csi_proto::v1;
use csi_proto::v1::volume_capability::AccessType;
use csi_proto::v1::volume_capability::access_mode::Mode as WireMode;
use tonic::Status;

use crate::books::{Access, Capability, Mode};
use crate::kernel::mount;

/// Bytes of a string, unless the specification has another limit for its field.
pub(crate) const STRING_LIMIT: usize = 128;
/// Bytes of a node's id.
pub(crate) const NODE_ID_LIMIT: usize = 256;
/// Bytes of all keys and values of a map together.
pub(crate) const MAP_LIMIT: usize = 4096;

/// A string that must not be empty.
pub(crate) fn required(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("{field} is missing")));
    }
    at_most(field, value, STRING_LIMIT)
}

/// A name or an id: not empty, within the limit, without control characters.
pub(crate) fn name(field: &str, value: &str) -> Result<(), Status> {
    required(field, value)?;
    if value.chars().any(char::is_control) {
        return Err(Status::invalid_argument(format!("{field} holds control characters")));
    }
    Ok(())
}

/// A string that may be empty.
pub(crate) fn at_most(field: &str, value: &str, limit: usize) -> Result<(), Status> {
    if value.len() > limit {
        let length = value.len();
        return Err(Status::invalid_argument(format!("{field} has {length} bytes, more than {limit}")));
    }
    Ok(())
}

/// A map. Service account tokens are not counted: the caller does not choose their size.
pub(crate) fn map(field: &str, map: &BTreeMap<String, String>) -> Result<(), Status> {
    let counted = map.iter().filter(|(key, _)| *key != TOKENS_KEY);
    let bytes: usize = counted.map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAP_LIMIT {
        return Err(Status::invalid_argument(format!("{field} has {bytes} bytes, more than {MAP_LIMIT}")));
    }
    Ok(())
}

/// A path that must not be empty: absolute and without `..`.
pub(crate) fn path(field: &str, value: &str) -> Result<PathBuf, Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("{field} is missing")));
    }
    let path = Path::new(value);
    if !path.is_absolute() || path.components().any(|step| step == Component::ParentDir) {
        return Err(Status::invalid_argument(format!("{field} `{value}` is not a plain absolute path")));
    }
    if value.contains('\0') {
        return Err(Status::invalid_argument(format!("{field} holds a zero byte")));
    }
    // Components drop doubled and trailing slashes, so one target has one spelling in the books.
    Ok(path.components().collect())
}

/// A path at which the caller expects the volume. The books say whether the volume is there.
pub(crate) fn some_path(field: &str, value: &str) -> Result<PathBuf, Status> {
    if value.is_empty() || value.contains('\0') {
        return Err(Status::invalid_argument(format!("{field} is missing")));
    }
    Ok(Path::new(value).components().collect())
}

/// A path that must not be a symbolic link: its target is not the path that the caller named.
pub(crate) fn not_a_link(field: &str, path: &Path) -> Result<(), Status> {
    match mount::is_link(path) {
        true => Err(Status::invalid_argument(format!("{field} `{}` is a symbolic link", path.display()))),
        false => Ok(()),
    }
}

/// A capability that must be complete.
pub(crate) fn capability(capability: Option<&v1::VolumeCapability>) -> Result<Capability, Status> {
    let missing = |what: &str| Status::invalid_argument(format!("volume_capability{what} is missing"));
    let capability = capability.ok_or_else(|| missing(""))?;
    let access = match capability.access_type.as_ref().ok_or_else(|| missing(".access_type"))? {
        AccessType::Block(_) => Access::Block,
        AccessType::Mount(mount) => access_by_mount(mount)?,
    };
    let mode = capability.access_mode.as_ref().ok_or_else(|| missing(".access_mode"))?.mode();
    let mode = mode_of(mode).ok_or_else(|| missing(".access_mode.mode"))?;
    Ok(Capability { access, mode })
}

/// At least one capability.
pub(crate) fn capabilities(list: &[v1::VolumeCapability]) -> Result<Vec<Capability>, Status> {
    if list.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities is missing"));
    }
    list.iter().map(|item| capability(Some(item))).collect()
}

fn access_by_mount(mount: &v1::volume_capability::MountVolume) -> Result<Access, Status> {
    at_most("fs_type", &mount.fs_type, STRING_LIMIT)?;
    at_most("volume_mount_group", &mount.volume_mount_group, STRING_LIMIT)?;
    let flags: usize = mount.mount_flags.iter().map(String::len).sum();
    if flags > MAP_LIMIT {
        return Err(Status::invalid_argument(format!(
            "mount_flags has {flags} bytes, more than {MAP_LIMIT}"
        )));
    }
    if !mount.volume_mount_group.is_empty() && mount.volume_mount_group.parse::<u32>().is_err() {
        let group = &mount.volume_mount_group;
        return Err(Status::invalid_argument(format!("volume_mount_group `{group}` is no number")));
    }
    Ok(Access::Mount {
        fs_type: mount.fs_type.clone(),
        flags: mount.mount_flags.clone(),
        group: mount.volume_mount_group.clone(),
    })
}

fn mode_of(mode: WireMode) -> Option<Mode> {
    Some(match mode {
        WireMode::Unknown => return None,
        WireMode::SingleNodeWriter => Mode::SingleNodeWriter,
        WireMode::SingleNodeReaderOnly => Mode::SingleNodeReaderOnly,
        WireMode::MultiNodeReaderOnly => Mode::MultiNodeReaderOnly,
        WireMode::MultiNodeSingleWriter => Mode::MultiNodeSingleWriter,
        WireMode::MultiNodeMultiWriter => Mode::MultiNodeMultiWriter,
        WireMode::SingleNodeSingleWriter => Mode::SingleNodeSingleWriter,
        WireMode::SingleNodeMultiWriter => Mode::SingleNodeMultiWriter,
    })
}
