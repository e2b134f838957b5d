//! The Debian package: `dpkg-deb` packs the tree of an installation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;

use super::{Release, done};

/// Writes the package. It depends on nothing: the program is linked statically.
pub(super) fn write(release: &Release) -> Result<PathBuf> {
    let Release { version, architecture, .. } = release;
    let about = release.tree.join("DEBIAN");
    fs::create_dir(&about)?;
    fs::set_permissions(&about, fs::Permissions::from_mode(0o755))?;
    fs::write(
        about.join("control"),
        format!(
            "Package: volproof
Version: {version}
Architecture: {architecture}
Maintainer: The authors of volproof <volproof@invalid>
Section: devel
Priority: optional
Recommends: e2fsprogs, xfsprogs, btrfs-progs
Suggests: qemu-system-x86
Description: proves that a CSI driver keeps its promises
 volproof drives a CSI driver as a kubelet would, on a real kernel and without a
 Kubernetes cluster, and checks each promise of the driver and of the node that
 uses it: in the mount table, on the devices, and in the order of the calls.
"
        ),
    )?;
    let package = release.out.join(format!("volproof_{version}_{architecture}.deb"));
    done(
        release.command("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&release.tree).arg(&package),
    )?;
    // The other parts have no use for it.
    fs::remove_dir_all(about)?;
    Ok(package)
}
