//! Mounts, binds, remounts, unmounts. Touches the mount table.

use std::ffi::CString;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use super::command;
use super::systemd::SYSTEMD;
use crate::door::{Bind, Propagation};
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};
use crate::format::DiskContent;
use crate::mount_table::MountEntry;
use crate::options::{MountOptions, MountSpec};

/// Makes a new mount by system call, or by mount(8) if the type needs one of its helpers.
pub(super) fn mount(spec: &MountSpec) -> Result<()> {
    let fs_type = match &spec.fs_type {
        Some(fs_type) => fs_type.clone(),
        None => probed_type(spec)?,
    };
    if needs_helper(&fs_type, &spec.options) {
        by_command(spec)?;
    } else {
        by_call(spec, &fs_type)?;
    }
    Effect::new("mount", &spec.target)
        .source(Path::new(&spec.source))
        .fs_type(Some(&fs_type))
        .options(&spec.options.masked_joined())
        .announce();
    Ok(())
}

fn by_call(spec: &MountSpec, fs_type: &str) -> Result<()> {
    let failed = |error: Errno| HostError::pair(Action::Mount, &spec.source, &spec.target, error);
    let (flags, data) = flags_and_data(&spec.options);
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    let source = if spec.source.is_empty() { "none" } else { &spec.source };
    // A null pointer, since some file systems refuse empty data.
    let data = Some(data.as_c_str()).filter(|data| !data.is_empty());
    rustix::mount::mount(source, &spec.target, fs_type, flags, data).map_err(failed)
}

fn by_command(spec: &MountSpec) -> Result<()> {
    let mount = SYSTEMD.mount(spec);
    command::must("mount", &mount.program, &mount.arguments, &mount.shown).map(drop)
}

/// Runs a program of the administrator, and announces the mount that it has made or removed at `target`.
pub(super) fn run_at(program: &Path, arguments: &[String], target: &Path) -> Result<String> {
    let before = mounted_at(target)?;
    let ran = command::run(&program.to_string_lossy(), arguments)?;
    match (before, mounted_at(target)?) {
        (None, Some(mount)) => Effect::new("mount", target)
            .source(Path::new(&mount.source))
            .fs_type(Some(&mount.fs_type))
            .announce(),
        (Some(_), None) => Effect::new("umount", target).announce(),
        _ => {}
    }
    Ok(ran.output)
}

fn mounted_at(target: &Path) -> Result<Option<MountEntry>> {
    Ok(super::mount_point::table()?.at(target).cloned())
}

/// Whether the kernel alone cannot make this mount: its type has a helper, or it wants a loop device.
fn needs_helper(fs_type: &str, options: &MountOptions) -> bool {
    let base = fs_type.split('.').next().unwrap_or(fs_type);
    let looped = options.plain().iter().any(|option| option == "loop" || option.starts_with("loop="));
    let by_name = fs_type.starts_with("fuse.") || matches!(base, "nfs" | "nfs4" | "cifs");
    // An installed helper is used, as mount(8) does.
    let helper = |name: &str| ["/sbin", "/usr/sbin"].iter().any(|dir| Path::new(dir).join(name).exists());
    looped || by_name || helper(&format!("mount.{fs_type}"))
}

fn probed_type(spec: &MountSpec) -> Result<String> {
    match super::disk::probe(Path::new(&spec.source))? {
        DiskContent::FileSystem(fs_type) => Ok(fs_type),
        // mount(8) says "wrong fs type, bad option, bad superblock" here; the kernel's error is EINVAL.
        DiskContent::Nothing | DiskContent::Partitions => {
            Err(HostError::pair(Action::Mount, &spec.source, &spec.target, Errno::INVAL))
        }
    }
}

/// The first step of a bind mount.
pub(super) fn bind(bind: &Bind) -> Result<()> {
    let call = if bind.recursive {
        rustix::mount::mount_bind_recursive(&bind.source, &bind.target)
    } else {
        rustix::mount::mount_bind(&bind.source, &bind.target)
    };
    call.map_err(|error| HostError::pair(Action::Bind, &bind.source, &bind.target, error))?;
    Effect::new("bind", &bind.target).source(&bind.source).announce();
    Ok(())
}

/// The second step of a bind mount.
pub(super) fn remount_bind(target: &Path, options: &MountOptions) -> Result<()> {
    let (flags, _) = flags_and_data(options);
    rustix::mount::mount_remount(target, MountFlags::BIND | flags, "")
        .map_err(|error| HostError::os(Action::Remount, target, error))?;
    Effect::new("remount", target).options(&options.masked_joined()).announce();
    Ok(())
}

pub(super) fn set_propagation(target: &Path, propagation: Propagation, recursive: bool) -> Result<()> {
    let flag = match propagation {
        Propagation::Shared => MountPropagationFlags::SHARED,
        Propagation::Private => MountPropagationFlags::PRIVATE,
        Propagation::Slave => MountPropagationFlags::DOWNSTREAM,
        Propagation::Unbindable => MountPropagationFlags::UNBINDABLE,
    };
    let flags = if recursive { flag | MountPropagationFlags::REC } else { flag };
    rustix::mount::mount_change(target, flags)
        .map_err(|error| HostError::os(Action::Propagate, target, error))?;
    Effect::new("remount", target).options(propagation.word(recursive)).announce();
    Ok(())
}

/// Unmounts the topmost mount. A directory that is no mount is left alone. The effect is announced unless the
/// caller has given up.
pub(super) fn unmount(target: &Path, given_up: impl Fn() -> bool) -> Result<()> {
    if unmount_topmost(target, UnmountFlags::NOFOLLOW)? && !given_up() {
        Effect::new("umount", target).announce();
    }
    Ok(())
}

/// Unmounts without waiting for the server, after the caller has given up [`unmount`].
pub(super) fn unmount_forced(target: &Path) -> Result<()> {
    if super::mount_point::is_root_of_mount(target) != Ok(false) {
        unmount_topmost(target, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE)?;
    }
    // Announced also if the mount was gone already: the call that was given up, and is silent since, took it out
    // of the tree. The kernel does that first and talks to the server afterwards, so the mount is unmounted
    // although that call may still wait.
    Effect::new("umount", target).announce();
    Ok(())
}

/// `false` if there is no mount.
fn unmount_topmost(target: &Path, flags: UnmountFlags) -> Result<bool> {
    match rustix::mount::unmount(target, flags) {
        Ok(()) => Ok(true),
        // Not a mount point. EINVAL stays an error for a mount that an outer user namespace has locked.
        Err(Errno::INVAL) if !super::mount_point::is_root_of_mount(target).unwrap_or(false) => Ok(false),
        Err(error) => Err(HostError::os(Action::Unmount, target, error)),
    }
}

/// Splits options as mount(8) does: flags of the kernel, and data for the file system. Options for user space
/// are dropped.
fn flags_and_data(options: &MountOptions) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data = Vec::new();
    let secrets = options.sensitive().iter().map(|secret| secret.expose().as_str());
    for option in options.plain().iter().map(String::as_str).chain(secrets) {
        if let Some((flag, on)) = flag_of(option) {
            flags.set(flag, on);
        } else if !is_for_user_space(option) {
            data.push(option);
        }
    }
    (flags, data.join(","))
}

/// The kernel's flag for an option, and whether the option sets or clears it.
fn flag_of(option: &str) -> Option<(MountFlags, bool)> {
    Some(match option {
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "nosuid" => (MountFlags::NOSUID, true),
        "suid" => (MountFlags::NOSUID, false),
        "nodev" => (MountFlags::NODEV, true),
        "dev" => (MountFlags::NODEV, false),
        "noexec" => (MountFlags::NOEXEC, true),
        "exec" => (MountFlags::NOEXEC, false),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "async" => (MountFlags::SYNCHRONOUS, false),
        "dirsync" => (MountFlags::DIRSYNC, true),
        "noatime" => (MountFlags::NOATIME, true),
        "atime" => (MountFlags::NOATIME, false),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "diratime" => (MountFlags::NODIRATIME, false),
        "relatime" => (MountFlags::RELATIME, true),
        "norelatime" => (MountFlags::RELATIME, false),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "lazytime" => (MountFlags::LAZYTIME, true),
        "nolazytime" => (MountFlags::LAZYTIME, false),
        "mand" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, true),
        "nomand" => (MountFlags::PERMIT_MANDATORY_FILE_LOCKING, false),
        "silent" => (MountFlags::SILENT, true),
        "loud" => (MountFlags::SILENT, false),
        "nosymfollow" => (MountFlags::from_bits_retain(0x100), true),
        "symfollow" => (MountFlags::from_bits_retain(0x100), false),
        _ => return None,
    })
}

fn is_for_user_space(option: &str) -> bool {
    matches!(
        option,
        "defaults"
            | "_netdev"
            | "auto"
            | "noauto"
            | "user"
            | "nouser"
            | "users"
            | "owner"
            | "group"
            | "nofail"
            | "bind"
            | "rbind"
            | "remount"
    ) || ["x-", "X-", "comment="].iter().any(|prefix| option.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_split_between_kernel_and_file_system() {
        let options = MountOptions::new(["ro,nodev,size=1m,defaults,_netdev,x-systemd.automount", "rw"]);
        let (flags, data) = flags_and_data(&options);
        assert_eq!(flags, MountFlags::NODEV, "the later rw wins");
        assert_eq!(data, "size=1m");
    }

    #[test]
    fn label_with_commas_reaches_the_file_system_unsplit() {
        let options = MountOptions::new(["context=\"a:b:c:s0:c1,c2\",ro"]);
        assert_eq!(flags_and_data(&options).1, "context=\"a:b:c:s0:c1,c2\"");
    }
}
