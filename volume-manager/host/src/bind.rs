//! Bind mounts as the kubelet makes them, in two steps; device nodes are bound over a file. Touches a [`Host`].

use std::path::Path;

use crate::door::{Bind, Host};
use crate::error::{HostError, Result};
use crate::file::FileKind;
use crate::options::MountOptions;

/// Binds `source` on `target` (07 §3): a plain bind, then a remount with the flags of `options` and of the
/// source's file system. `bind` and `remount` among the options are ignored.
///
/// If the remount fails, the bind stays: the caller cleans up.
pub async fn mount(host: &dyn Host, source: &Path, target: &Path, options: &MountOptions) -> Result<()> {
    let netdev = options.contains("_netdev");
    host.bind(&Bind { netdev, ..Bind::new(source, target) }).await?;
    let inherited = host.statfs(source).await?.bind_options();
    let mut options = options.without(|option| matches!(option, "bind" | "remount"));
    for option in inherited {
        if !options.contains(option) {
            options.push(option);
        }
    }
    host.remount_bind(source, target, &options).await
}

/// Binds the device node `device` over the file `file`, which is made (0750) if it is missing.
///
/// If `file` shows this device already, nothing changes. If it shows another device, as after a restart of
/// the driver, that device's lock and bind are removed first: the kubelet's `mapBindMountDevice` would leave
/// the pod with the old device.
pub async fn device_node(host: &dyn Host, device: &Path, file: &Path) -> Result<()> {
    match host.symlink_metadata(file).await {
        Ok(there) if there.kind.is_device() && host.is_mount_point(file).await? => {
            if there.rdev == host.metadata(device).await?.rdev {
                return Ok(());
            }
            if let Some(lock) = host.find_lock(file).await? {
                host.unlock_device(&lock).await?;
            }
            host.unmount(file).await?;
        }
        Ok(_) => {}
        Err(error) if error.is_not_found() => make_file(host, file, 0o750).await?,
        Err(error) => return Err(error),
    }
    mount(host, device, file, &MountOptions::default()).await
}

/// Unmounts the device node from `file` if it shows one. The file stays. Missing: success.
pub async fn release_device_node(host: &dyn Host, file: &Path) -> Result<()> {
    match host.symlink_metadata(file).await {
        Ok(there) if there.kind.is_device() => host.unmount(file).await,
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Device nodes in a directory: one for each pod that still refers to a block volume. Missing directory: none.
pub async fn device_nodes_in(host: &dyn Host, dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = match host.read_dir(dir).await {
        Ok(entries) => entries,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let path = dir.join(entry.name);
        // The directory lists the file below; only a stat sees the node bound over it.
        if host.symlink_metadata(&path).await?.kind.is_device() {
            nodes.push(path);
        }
    }
    Ok(nodes)
}

async fn make_file(host: &dyn Host, file: &Path, mode: u32) -> Result<()> {
    match host.create_file(file, mode).await {
        Err(error) if !error.is_exists() => Err(error),
        _ => Ok(()),
    }
}

/// Makes the target for a bind of this kind: a directory (0750) or a file (0640), with parents (0750).
/// Existing: success.
pub async fn make_target(host: &dyn Host, target: &Path, kind: FileKind) -> Result<(), HostError> {
    if kind == FileKind::Directory {
        return host.make_dir_all(target, 0o750).await;
    }
    if let Some(parent) = target.parent() {
        host.make_dir_all(parent, 0o750).await?;
    }
    make_file(host, target, 0o640).await
}
