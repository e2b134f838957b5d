//! Programs that the guest's kernel and other programs call by other names, and that this program implements.
//!
//! The kernel asks `/sbin/modprobe` for a module when a process mounts a file system or loads a device-mapper
//! target it does not know yet, and mount(8) leaves NFS to `/sbin/mount.nfs`. In a guest both are links to PID 1's
//! own program, since a guest has no programs of a distribution.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::path::Path;
use std::process::ExitCode;

use super::{load_module, load_modules, mount_nfs};
use crate::initramfs::ON_DEMAND;

/// The names, and where they are looked for.
pub(crate) fn names() -> &'static [&'static str] {
    &["/sbin/modprobe", "/sbin/mount.nfs", "/sbin/mount.nfs4"]
}

/// Answers for the program of that name, if it is one of these; `arguments` are without the name.
pub fn applet(name: &Path, arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let done = match name.file_name()?.to_str()? {
        "modprobe" => modprobe(&words),
        "mount.nfs" | "mount.nfs4" => mount_nfs::mount(&words),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{}: {why}", name.display());
            // mount(8) knows it as "the mount failed".
            ExitCode::from(32)
        }
    })
}

/// `modprobe [-q] [--] NAME [PARAMETER…]`, where the kernel's name for a module may be an alias.
fn modprobe(words: &[String]) -> Result<(), String> {
    let mut words = words.iter().filter(|word| !word.starts_with('-'));
    let asked = words.next().ok_or("no module is named")?;
    let parameters = words.cloned().collect::<Vec<_>>().join(" ");
    let name = module_of(asked);
    let list = Path::new(ON_DEMAND).join(&name);
    if !list.exists() {
        return Err(format!("there is no module `{name}` in this guest"));
    }
    if !parameters.is_empty() {
        // The dependencies come first and get none of the parameters.
        let listed = std::fs::read_to_string(&list).unwrap_or_default();
        for dependency in listed.lines().filter(|listed| *listed != name) {
            load_module(dependency, c"").map_err(|error| format!("{dependency}: {error}"))?;
        }
        let parameters = CString::new(parameters).map_err(|error| error.to_string())?;
        return load_module(&name, &parameters).map_err(|error| format!("{name}: {error}"));
    }
    let errors: BTreeMap<String, String> = load_modules(&list);
    match errors.into_iter().next() {
        None => Ok(()),
        Some((module, error)) => Err(format!("{module}: {error}")),
    }
}

/// `fs-xfs` is the module `xfs`, `dm-flakey` is `dm_flakey`.
fn module_of(alias: &str) -> String {
    let name = alias.strip_prefix("fs-").unwrap_or(alias).replace('-', "_");
    // The one file system that lies in a module of another name.
    if name == "nfs4" { "nfsv4".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_aliases_are_understood() {
        for (alias, module) in
            [("fs-xfs", "xfs"), ("fs-nfs4", "nfsv4"), ("dm-log-writes", "dm_log_writes"), ("nfsv3", "nfsv3")]
        {
            assert_eq!(module_of(alias), module);
        }
    }

    #[test]
    fn other_programs_are_not_ours() {
        assert!(applet(Path::new("/usr/bin/volproof"), &[]).is_none());
    }
}
