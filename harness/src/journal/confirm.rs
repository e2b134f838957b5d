//! Looks at the kernel for what the node says it has done. Reads links, directories and sysfs only.
//!
//! Mounts are not looked at here: for those the kernel reports events, which `kernel` matches.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use contracts::event::EffectKind;

use super::Announcement;
use crate::loop_device::table;

/// The field of an announcement with the file's inode; it is not part of the trace.
pub(super) const INODE: &str = "inode";

/// Whether the node's tree and the loop devices are as the announcement says.
pub(super) fn shows(said: &Announcement) -> bool {
    let path = said.path.as_path();
    match said.effect {
        EffectKind::Link => leads_to(path, said.fields.get("to").map(String::as_str)),
        EffectKind::Unlink | EffectKind::Rmdir | EffectKind::Remove => is_missing(path),
        EffectKind::Mkdir => is_kind(path, fs::FileType::is_dir),
        EffectKind::Write => is_kind(path, fs::FileType::is_file),
        EffectKind::Rename => said.fields.get("to").is_none_or(|to| !is_missing(Path::new(to))),
        EffectKind::Chmod => has_mode(path, said.fields.get("to").map(String::as_str)),
        EffectKind::Lock => said.source.as_deref().is_none_or(|device| backs(path, device)),
        EffectKind::Unlock => {
            is_unbound(path, said.source.as_deref(), said.fields.get(INODE).map(String::as_str))
        }
        EffectKind::Mount
        | EffectKind::Bind
        | EffectKind::Remount
        | EffectKind::Umount
        | EffectKind::Chown
        | EffectKind::Format
        | EffectKind::Grow => true,
    }
}

fn leads_to(link: &Path, to: Option<&str>) -> bool {
    fs::read_link(link).is_ok_and(|target| to.is_none_or(|to| target == Path::new(to)))
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

fn is_kind(path: &Path, kind: impl FnOnce(&fs::FileType) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| kind(&found.file_type()))
}

fn has_mode(path: &Path, mode: Option<&str>) -> bool {
    let wanted = mode.and_then(|mode| u32::from_str_radix(mode.trim_start_matches("0o"), 8).ok());
    let Some(wanted) = wanted else { return true };
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o7777 == wanted)
}

/// Whether the loop device holds this file open.
fn backs(file: &Path, device: &Path) -> bool {
    sysfs(device, "backing_file").is_some_and(|backing| Path::new(&backing) == file)
}

/// Whether the loop device has let go of the file, or will at its last close: a device that was detached
/// stays bound as long as any process, such as udev, has it open. Over another file, it has been taken by the next,
/// whose file may well have the same name in another sandbox.
fn is_unbound(device: &Path, held: Option<&Path>, inode: Option<&str>) -> bool {
    let is_let_go = match (sysfs(device, "backing_file"), held) {
        (None, _) => true,
        (Some(now), Some(held)) => {
            held != Path::new(now.strip_suffix(" (deleted)").unwrap_or(&now))
                || inode.is_some_and(|inode| inode_under(device).as_deref() != Some(inode))
        }
        (Some(_), None) => false,
    };
    is_let_go || sysfs(device, "autoclear").as_deref() == Some("1")
}

fn inode_under(device: &Path) -> Option<String> {
    let number = device.file_name()?.to_str()?.strip_prefix("loop")?.parse().ok()?;
    table::read(number).map(|bound| format!("{}:{}", bound.device, bound.inode))
}

fn sysfs(device: &Path, attribute: &str) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    let text = fs::read_to_string(format!("/sys/block/{name}/loop/{attribute}")).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[track_caller]
    fn check(effect: &str, path: &Path, to: Option<&str>, shown: bool) {
        let fields = to.map(|to| BTreeMap::from([("to".to_owned(), to.to_owned())])).unwrap_or_default();
        let said =
            Announcement { effect: effect.parse().unwrap(), path: path.to_owned(), source: None, fields };
        assert_eq!(shows(&said), shown, "{effect} {}", path.display());
    }

    #[test]
    fn only_effects_the_kernel_shows_are_confirmed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("made")).unwrap();
        fs::write(path("file"), "x").unwrap();
        std::os::unix::fs::symlink("/dev/loop3", path("link")).unwrap();

        check("mkdir", &path("made"), None, true);
        check("mkdir", &path("file"), None, false);
        check("write", &path("file"), None, true);
        check("write", &path("absent"), None, false);
        check("link", &path("link"), Some("/dev/loop3"), true);
        check("link", &path("link"), Some("/dev/loop4"), false);
        check("unlink", &path("link"), None, false);
        check("rmdir", &path("absent"), None, true);
        check("remove", &path("file"), None, false);
    }

    #[test]
    fn a_device_that_is_no_loop_device_backs_nothing() {
        assert!(!backs(Path::new("/x"), Path::new("/dev/null")));
        assert!(is_unbound(Path::new("/dev/null"), None, None));
    }
}
