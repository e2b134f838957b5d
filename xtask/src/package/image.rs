//! The container image, as an OCI layout: a Debian with the tools for file systems, and above it the installation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Release, done};

/// A small Debian, with what the program calls beside what Debian counts as essential.
const DEBIAN: [&str; 5] = [
    "--quiet",
    "--variant=essential",
    "--include=e2fsprogs,xfsprogs,btrfs-progs,kmod,mount,procps",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
];

/// Writes the layout, named after the version. `base` is a root file system as a tar archive, in place of Debian's.
pub(super) fn write(release: &Release, base: Option<&Path>) -> Result<PathBuf> {
    let layout = release.out.join(format!("volproof-{}-image", release.version));
    if layout.exists() {
        fs::remove_dir_all(&layout).with_context(|| format!("cannot remove `{}`", layout.display()))?;
    }
    let image = format!("{}:{}", layout.display(), release.version);
    let lowest = release.out.join("base.tar");
    if base.is_none() {
        let mut debian = release.command("mmdebstrap");
        done(debian.args(DEBIAN).arg(suite()).arg(&lowest))?;
    }
    let upper = release.out.join("installation.tar");
    done(release.tar(&upper).arg("-C").arg(&release.tree).arg("."))?;

    let umoci = |words: &[&str]| {
        let mut umoci = release.command("umoci");
        umoci.args(words);
        umoci
    };
    done(umoci(&["init", "--layout"]).arg(&layout))?;
    done(&mut umoci(&["new", "--image", &image]))?;
    for layer in [base.unwrap_or(&lowest), &upper] {
        done(umoci(&["raw", "add-layer", "--image", &image]).arg(layer))?;
    }
    done(&mut umoci(&[
        "config",
        "--image",
        &image,
        "--architecture",
        &release.architecture,
        "--config.entrypoint",
        "/usr/bin/volproof",
        "--config.cmd",
        "--help",
        "--config.env",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "--config.workingdir",
        "/srv",
        "--config.label",
        &format!("org.opencontainers.image.version={}", release.version),
    ]))?;
    done(umoci(&["gc", "--layout"]).arg(&layout))?;
    for file in [lowest, upper].iter().filter(|file| file.exists()) {
        fs::remove_file(file).with_context(|| format!("cannot remove `{}`", file.display()))?;
    }
    Ok(layout)
}

/// The release of Debian whose keys this machine has: its own, if it is a Debian.
fn suite() -> String {
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        about.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim_matches('"'))
    };
    match (value("ID="), value("VERSION_CODENAME=")) {
        (Some("debian"), Some(name)) => name.to_owned(),
        _ => "stable".to_owned(),
    }
}
