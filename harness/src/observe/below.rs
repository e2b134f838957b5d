//! The file or directory at a path underneath its mounts. Looks at it through a detached copy of the mount around it.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::mount::{OpenTreeFlags, open_tree};

/// The mode of the directory or file at a path below all mounts; nothing for a link, a device, or where nothing is.
///
/// # Errors
/// When the kernel does not let us look.
pub fn mode_below_mounts(path: &Path) -> io::Result<Option<u32>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    // The mount that the parent is on, without those that lie on it.
    let tree = open_tree(CWD, parent, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let found = match statat(&tree, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok([FileType::Directory, FileType::RegularFile].contains(&kind).then_some(found.st_mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_has_its_own_mode_and_link_and_nothing_have_none() {
        let ground = tempfile::tempdir().unwrap();
        let (link, directory) = (ground.path().join("link"), ground.path().join("directory"));
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o705)).unwrap();
        // Without the right to copy a mount there is no answer.
        let Ok(of_link) = mode_below_mounts(&link) else { return };
        assert_eq!(of_link, None);
        assert_eq!(mode_below_mounts(&ground.path().join("none")).unwrap(), None);
        assert_eq!(mode_below_mounts(&directory).unwrap(), Some(0o705));
    }
}
