//! Listening to the directory drivers put their registration sockets into.
//!
//! Reads that directory and the directories in it; registers what appears and deregisters what vanishes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::watch::DirWatch;
use host::{FileKind, Host, HostError};
use tokio::task::JoinSet;

use super::Registrar;
use crate::clock::Clock;

/// How long after a failed registration the next is tried, and how long at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(122);

/// Tells one socket from another that is made later under the same name.
type Identity = (host::DeviceNumber, u64);

/// Registers the drivers whose sockets are in `dir`, and those that will be, until it is dropped.
///
/// Every socket has a task of its own: a driver that does not answer keeps nobody waiting.
pub async fn run(registrar: Registrar, host: Arc<dyn Host>, clock: Arc<dyn Clock>, dir: PathBuf) {
    let mut ears = match DirWatch::new() {
        Ok(ears) => ears,
        Err(error) => {
            tracing::error!(dir = %dir.display(), %error, "drivers cannot register");
            return;
        }
    };
    if let Err(error) = host.make_dir_all(&dir, 0o750).await {
        tracing::error!(error = crate::error::chain(&error), "there is no place for drivers to register");
    }
    let mut known: BTreeMap<PathBuf, (Identity, JoinSet<()>)> = BTreeMap::new();
    loop {
        let present = match sockets(&*host, &ears, &dir).await {
            Ok(present) => present,
            Err(error) => {
                tracing::warn!(error = crate::error::chain(&error), "sockets of drivers are not read");
                BTreeMap::new()
            }
        };
        let gone = |path: &PathBuf, identity: &Identity| present.get(path) != Some(identity);
        let old: Vec<PathBuf> = known
            .iter()
            .filter(|(path, (identity, _))| gone(path, identity))
            .map(|(p, _)| p.clone())
            .collect();
        for path in old {
            // The task ends first: it might be registering what is being removed.
            if let Some((_, mut task)) = known.remove(&path) {
                task.shutdown().await;
            }
            registrar.socket_removed(&path).await;
        }
        for (path, identity) in present {
            known.entry(path.clone()).or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn(register(registrar.clone(), Arc::clone(&clock), path));
                (identity, task)
            });
        }
        if let Err(error) = ears.changed().await {
            tracing::error!(%error, "drivers are no longer heard");
            return;
        }
    }
}

/// Tries until the driver is registered.
async fn register(registrar: Registrar, clock: Arc<dyn Clock>, socket: PathBuf) {
    let mut pause = FIRST_PAUSE;
    loop {
        match registrar.socket_created(&socket).await {
            Ok(driver) => {
                tracing::info!(%driver, socket = %socket.display(), "registered");
                return;
            }
            Err(error) => {
                let error = crate::error::chain(&error);
                tracing::warn!(socket = %socket.display(), error, "not registered");
            }
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The sockets in a directory and in the directories in it, whatever their depth. Names that begin with a
/// dot do not count. Listening begins before looking, so that nothing appears unseen in between.
async fn sockets(
    host: &dyn Host,
    ears: &DirWatch,
    dir: &Path,
) -> Result<BTreeMap<PathBuf, Identity>, HostError> {
    let mut found = BTreeMap::new();
    let mut unread = vec![dir.to_owned()];
    while let Some(dir) = unread.pop() {
        if let Err(error) = ears.add(&dir) {
            tracing::warn!(dir = %dir.display(), %error, "not listened to");
        }
        let entries = match host.read_dir(&dir).await {
            Ok(entries) => entries,
            // It went between its listing and its reading.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            if entry.name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = dir.join(&entry.name);
            match entry.kind {
                FileKind::Directory => unread.push(path),
                FileKind::Socket | FileKind::Unknown => {
                    let Ok(there) = host.symlink_metadata(&path).await else { continue };
                    if there.kind == FileKind::Socket {
                        found.insert(path, (there.dev, there.ino));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found)
}
