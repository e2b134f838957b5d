//! System packages: what a build or a run needs that cargo does not bring, and how to get it.
//!
//! The one place of this repository that changes the machine, and only as root on Debian or Ubuntu,
//! only for what is missing, and only after saying what and why.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::workspace::{NOT_PREPARED, is_root, status};

/// A system package and the reason to want it.
#[derive(Debug)]
struct Package {
    debian: &'static str,
    why: &'static str,
    wanted: Wanted,
    present: fn() -> bool,
}

/// The use of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// Nothing can be built without it.
    ToBuild,
    /// Cases that need it are skipped, with the reason.
    ToRunAll,
    /// No guest can be booted; looked for only where one will be.
    ForGuests,
    /// No container image can be made; looked for only where one will be.
    ForImages,
}

const PACKAGES: &[Package] = &[
    Package {
        debian: "libclang-dev",
        why: "loopdev is built with bindgen, which reads C headers through libclang",
        wanted: Wanted::ToBuild,
        present: has_libclang,
    },
    Package {
        debian: "e2fsprogs",
        why: "ext4 volumes are made by mkfs.ext4",
        wanted: Wanted::ToRunAll,
        present: || has_program("mkfs.ext4"),
    },
    Package {
        debian: "xfsprogs",
        why: "xfs volumes are made by mkfs.xfs",
        wanted: Wanted::ToRunAll,
        present: || has_program("mkfs.xfs"),
    },
    Package {
        debian: "btrfs-progs",
        why: "btrfs volumes are made by mkfs.btrfs",
        wanted: Wanted::ToRunAll,
        present: || has_program("mkfs.btrfs"),
    },
    Package {
        debian: "qemu-system-x86",
        why: "guests are run by QEMU",
        wanted: Wanted::ForGuests,
        present: || has_program("qemu-system-x86_64"),
    },
    Package {
        debian: "mmdebstrap",
        why: "the root of a container image is made by mmdebstrap",
        wanted: Wanted::ForImages,
        present: || has_program("mmdebstrap"),
    },
    Package {
        debian: "umoci",
        why: "container images are made by umoci",
        wanted: Wanted::ForImages,
        present: || has_program("umoci"),
    },
    Package {
        debian: "patch",
        why: "the mutants of the volume manager are kept as patches",
        wanted: Wanted::ToRunAll,
        present: || has_program("patch"),
    },
];

/// Makes sure that what a build needs is there, and as far as possible what a run needs. What only guests or images need
/// is looked for if it is named.
///
/// `Err(code)` in the answer means: nothing can be built here, and the reason is printed already.
pub(crate) fn prepare(no_install: bool, also: Option<Wanted>) -> Result<Result<(), ExitCode>> {
    let is_special = |wanted: Wanted| matches!(wanted, Wanted::ForGuests | Wanted::ForImages);
    let asked = |package: &&Package| !is_special(package.wanted) || Some(package.wanted) == also;
    let missing: Vec<&Package> =
        PACKAGES.iter().filter(asked).filter(|package| !(package.present)()).collect();
    if missing.is_empty() {
        return Ok(Ok(()));
    }
    for package in &missing {
        eprintln!("{:>12} {:<14} {}", "Missing", package.debian, package.why);
    }
    if !no_install && is_root() && has_program("apt-get") {
        install(&missing)?;
        return Ok(Ok(()));
    }
    eprintln!();
    eprintln!("hint: {}", advice(&missing));
    if missing.iter().any(|package| package.wanted == Wanted::ToBuild) {
        eprintln!("error: cannot build without `libclang`");
        return Ok(Err(ExitCode::from(NOT_PREPARED)));
    }
    eprintln!("      going on without: what needs them will be skipped");
    Ok(Ok(()))
}

fn advice(missing: &[&Package]) -> String {
    let names = names(missing).join(" ");
    if !has_program("apt-get") {
        format!("install what this system calls {names}")
    } else if is_root() {
        format!("run `apt-get install -y --no-install-recommends {names}`")
    } else {
        format!("run `sudo apt-get install -y --no-install-recommends {names}`")
    }
}

fn names(packages: &[&Package]) -> Vec<&'static str> {
    packages.iter().map(|package| package.debian).collect()
}

fn install(missing: &[&Package]) -> Result<()> {
    eprintln!("{:>12} {}   (--no-install prevents it)", "Installing", names(missing).join(" "));
    // The lists of a fresh machine are empty or old, and then an install fails with a misleading message.
    let updated = status(apt_get().arg("update"))?;
    if !updated.success() {
        eprintln!("warning: `apt-get update` failed; trying with the lists that are there");
    }
    let installed = status(apt_get().args(["install", "-y", "--no-install-recommends"]).args(names(missing)))
        .context("cannot install system packages")?;
    anyhow::ensure!(
        installed.success(),
        "`apt-get install` failed; with --no-install nothing is installed and what is missing is named"
    );
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-qq").env("DEBIAN_FRONTEND", "noninteractive").stdout(std::process::Stdio::null());
    command
}

/// Whether a program can be found, also by people whose PATH lacks the directories of root.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_root = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(of_root).any(|directory| directory.join(name).is_file())
}

/// Whether bindgen will find libclang: where its loader looks, by the names it looks for.
fn has_libclang() -> bool {
    let named = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let mut places: Vec<PathBuf> = named.into_iter().collect();
    for lib in ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/llvm"] {
        places.push(PathBuf::from(lib));
    }
    for entry in std::fs::read_dir("/usr/lib").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("llvm") {
            places.push(entry.path().join("lib"));
            places.push(entry.path().join("lib64"));
        } else if name.ends_with("-linux-gnu") || name.ends_with("-linux-gnueabihf") {
            places.push(entry.path());
        }
    }
    places.iter().any(|place| is_libclang(place) || holds_libclang(place))
}

fn holds_libclang(directory: &Path) -> bool {
    std::fs::read_dir(directory).into_iter().flatten().flatten().any(|entry| is_libclang(&entry.path()))
}

fn is_libclang(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let Some(rest) = name.strip_prefix("libclang") else { return false };
    let versioned = rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (rest.starts_with(".so") || versioned) && rest.contains(".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_distinguished_from_similar_names() {
        for yes in ["libclang.so", "libclang.so.1", "libclang-14.so.14.0.6", "libclang-19.so.1"] {
            assert!(is_libclang(Path::new(yes)), "{yes}");
        }
        for no in ["libclang-cpp.so.14", "libclangAST.a", "libclang.a", "libclang-14.a", "libclangd.so"] {
            assert!(!is_libclang(Path::new(no)), "{no}");
        }
    }

    #[test]
    fn only_a_missing_build_package_stops_the_build() {
        let stops: Vec<_> = PACKAGES.iter().filter(|package| package.wanted == Wanted::ToBuild).collect();
        assert_eq!(names(&stops), ["libclang-dev"]);
    }
}
