//! The daemon of a FUSE volume: a process of its own, which shows the volume's directory at a staging path. It ends
//! with its mount. Mounts the file system, and reads and writes the files of the directory.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use fuser::{Config, MountOption, SessionACL};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

mod files;
mod mirror;

/// The subcommand that starts a daemon.
pub(crate) const SUBCOMMAND: &str = "serve-fuse";

/// What a daemon says when it has mounted.
pub(crate) const READY: &str = "mounted";

/// The calls of the kernel that a daemon serves at a time.
const THREADS: usize = 2;

/// Shows a directory at a path until that is unmounted.
pub(crate) fn serve(directory: &Path, at: &Path, lingers: bool) -> io::Result<()> {
    // Each file that the kernel knows is held open.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let mut config = Config::default();
    let name = MountOption::FSName("fake-csi".to_owned());
    config.mount_options = vec![name, MountOption::DefaultPermissions, MountOption::Dev, MountOption::Suid];
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = fuser::spawn_mount(mirror::Mirror::new(directory)?, at, &config)?;
    // From now on it outlives a driver that is killed with its group.
    let _ = rustix::process::setsid();
    writeln!(io::stdout(), "{READY}")?;
    session.join()?;
    if lingers {
        std::thread::sleep(Duration::from_hours(24));
    }
    Ok(())
}
