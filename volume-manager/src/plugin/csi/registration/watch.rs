//! Watches the directory of registration sockets.
//!
//! Reads that directory and its subdirectories; registers drivers whose sockets appear and deregisters those
//! whose sockets vanish.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::clock::Clock;
use host::watch::DirWatch;
use host::{FileKind, Host};
use tokio::task::JoinSet;

use super::Registrar;

/// The first pause after a failed registration, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(122);

/// Distinguishes a socket from a later one of the same name.
type Identity = (host::DeviceNumber, u64, Option<SystemTime>);

/// Registers the drivers whose sockets are in `dir` or appear there, until it is dropped.
///
/// Each socket has a task of its own: a driver that does not answer does not delay the others.
pub async fn run(registrar: Registrar, host: Arc<dyn Host>, clock: Arc<dyn Clock>, dir: PathBuf) {
    let mut ears = match DirWatch::new() {
        Ok(ears) => ears,
        Err(error) => {
            tracing::error!(dir = %dir.display(), %error, "cannot create a directory watch; drivers cannot register");
            return;
        }
    };
    if let Err(error) = host.make_dir_all(&dir, 0o750).await {
        tracing::error!(
            error = api::error::chain(&error),
            "cannot create the directory of registration sockets"
        );
    }
    let mut known: BTreeMap<PathBuf, (Identity, JoinSet<()>)> = BTreeMap::new();
    loop {
        let present = Present::look(&*host, &ears, &dir).await;
        let gone = known.iter().filter(|(path, (identity, _))| present.lacks(path, *identity));
        let old: Vec<PathBuf> = gone.map(|(path, _)| path.clone()).collect();
        for path in old {
            // The task ends first: it might be registering the socket that is gone.
            if let Some((_, mut task)) = known.remove(&path) {
                task.shutdown().await;
            }
            registrar.socket_removed(&path).await;
        }
        for (path, identity) in present.sockets {
            known.entry(path.clone()).or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn(register(registrar.clone(), Arc::clone(&clock), path));
                (identity, task)
            });
        }
        if let Err(error) = ears.changed().await {
            tracing::error!(%error, "cannot read directory changes; drivers that appear or vanish from now on are not noticed");
            return;
        }
    }
}

/// Repeats the registration until it succeeds.
async fn register(registrar: Registrar, clock: Arc<dyn Clock>, socket: PathBuf) {
    let mut pause = FIRST_PAUSE;
    loop {
        match registrar.socket_created(&socket).await {
            Ok(driver) => {
                tracing::info!(%driver, socket = %socket.display(), "driver registered");
                return;
            }
            Err(error) => {
                let error = api::error::chain(&error);
                tracing::warn!(socket = %socket.display(), error, "cannot register a driver; retrying after a pause");
            }
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The sockets found by one look at the directories.
#[derive(Debug, Default)]
struct Present {
    sockets: BTreeMap<PathBuf, Identity>,
    /// Directories that could not be read: sockets in them may still exist.
    unread: Vec<PathBuf>,
}

impl Present {
    /// The sockets in a directory and its subdirectories, at any depth, without names that begin with a dot.
    /// Each directory is watched before it is read, so that no socket that appears in between is missed.
    async fn look(host: &dyn Host, ears: &DirWatch, dir: &Path) -> Self {
        let mut present = Self::default();
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            if let Err(error) = ears.add(&dir) {
                tracing::warn!(dir = %dir.display(), %error, "cannot watch a directory of registration sockets; changes in it are not noticed");
            }
            let entries = match host.read_dir(&dir).await {
                Ok(entries) => entries,
                // The directory was removed after it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    tracing::warn!(
                        error = api::error::chain(&error),
                        "cannot read a directory of registration sockets; drivers in it stay as they are"
                    );
                    present.unread.push(dir);
                    continue;
                }
            };
            for entry in entries {
                if entry.name.as_encoded_bytes().starts_with(b".") {
                    continue;
                }
                let path = dir.join(&entry.name);
                match entry.kind {
                    FileKind::Directory => dirs.push(path),
                    FileKind::Socket | FileKind::Unknown => {
                        let Ok(there) = host.symlink_metadata(&path).await else { continue };
                        if there.kind == FileKind::Socket {
                            present.sockets.insert(path, (there.dev, there.ino, there.born));
                        }
                    }
                    _ => {}
                }
            }
        }
        present
    }

    /// Whether a socket is certainly gone, or replaced by a new one.
    fn lacks(&self, path: &Path, identity: Identity) -> bool {
        self.sockets.get(path) != Some(&identity) && !self.unread.iter().any(|dir| path.starts_with(dir))
    }
}

#[cfg(test)]
mod tests {
    use api::clock::TokioClock;
    use host::errno;
    use host::fake::{FakeHost, FakeKernel, Order, Rule};

    use super::*;

    /// A driver that registers again removes its socket and creates a new one. Both may happen before the next
    /// look, and most filesystems give the new socket the same inode number.
    #[tokio::test]
    async fn a_socket_that_was_made_anew_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("d.sock");
        let (host, ears) = (host::linux::LinuxHost::new(), DirWatch::new().unwrap());
        let bind = || drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        bind();
        let before = Present::look(&host, &ears, dir.path()).await.sockets[&socket];
        // Longer than a tick of the kernel's clock.
        TokioClock.sleep(Duration::from_millis(50)).await;
        host.remove_file(&socket).await.unwrap();
        bind();
        let now = Present::look(&host, &ears, dir.path()).await;
        assert!(now.sockets.contains_key(&socket) && now.lacks(&socket, before));
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_read_takes_no_driver_away() {
        let kernel = FakeKernel::new();
        let dir = Path::new("/registry");
        let (near, far) = (dir.join("near.sock"), dir.join("sub/far.sock"));
        kernel.make_dir_all(&dir.join("sub"), 0o750).unwrap();
        for socket in [&near, &far] {
            kernel.make_node(socket, FileKind::Socket, host::DeviceNumber::default(), 0o600).unwrap();
        }
        let host = FakeHost::new(kernel);
        let ears = DirWatch::new().unwrap();
        let before = Present::look(&host, &ears, dir).await;
        let known = |path: &PathBuf| before.sockets[path];
        assert!(!before.lacks(&near, known(&near)) && !before.lacks(&far, known(&far)));
        assert!(before.lacks(&near, known(&far)), "made anew");

        host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("read_dir").below(dir.join("sub")));
        let now = Present::look(&host, &ears, dir).await;
        assert!(!now.lacks(&near, known(&near)) && !now.lacks(&far, known(&far)));
        assert!(now.lacks(&dir.join("gone.sock"), known(&far)));
    }

    #[tokio::test]
    async fn sockets_count_at_any_depth_and_neither_hidden_names_nor_other_files_do() {
        let kernel = FakeKernel::new();
        let dir = Path::new("/registry");
        let socket = |below: &str| {
            let path = dir.join(below);
            kernel.make_dir_all(path.parent().unwrap(), 0o750).unwrap();
            kernel.make_node(&path, FileKind::Socket, host::DeviceNumber::default(), 0o600).unwrap();
        };
        let there = ["a.sock", "sub/b.sock", "sub/sub/c.sock"];
        there.iter().chain(&[".hidden.sock", ".dir/d.sock", "sub/.e.sock"]).for_each(|below| socket(below));
        kernel.write_file(&dir.join("plain"), b"", 0o600).unwrap();
        kernel.symlink(&dir.join("a.sock"), &dir.join("link.sock")).unwrap();
        let ears = DirWatch::new().unwrap();
        let present = Present::look(&FakeHost::new(kernel.clone()), &ears, dir).await;
        let found: Vec<_> = present.sockets.keys().cloned().collect();
        assert_eq!(found, there.map(|below| dir.join(below)));
    }
}
