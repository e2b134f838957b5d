//! Damage to the manager's disk while the manager is down: a record is lost or wrong, or a mount is dead.
//!
//! The manager can recover from all of it with one exception: an inline volume of a deleted pod is named by its
//! record only. Without that, its mount must stay and be reported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::names::PodUid;
use contracts::event::{Disturbance, Event};
use host::errno::{ENOTCONN, Errno};
use host::fake::FakeKernel;

use crate::world::{ROOT, World};

/// The file name of a record.
const RECORD: &str = "vol_data.json";

/// Damage to a record or to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The record is gone.
    Lost,
    /// The record is empty.
    Emptied,
    /// The record is truncated.
    Truncated,
    /// The record is that of another volume.
    Foreign,
    /// The record is not text.
    Garbage,
    /// The server of a mount is gone: every access to it fails with ENOTCONN.
    Dead,
}

impl Damage {
    /// All kinds of damage.
    pub(crate) const ALL: [Self; 6] =
        [Self::Lost, Self::Emptied, Self::Truncated, Self::Foreign, Self::Garbage, Self::Dead];
}

impl World {
    /// Damages the `which`-th record or mount, counted modulo their number.
    pub(crate) fn damage(&mut self, damage: Damage, which: usize) {
        let kernel = &self.kernel;
        let kinds = match damage {
            Damage::Dead => vec![mounts(kernel)],
            _ => records(kernel),
        };
        let all: Vec<&PathBuf> = kinds.iter().flatten().collect();
        let Some(path) = (!all.is_empty()).then(|| all[which % all.len()]) else { return };
        let alike = kinds.iter().find(|kind| kind.contains(path)).expect("it is of one of the kinds");
        strike(kernel, damage, path, alike).expect("what was found is there");
        let at = path.display().to_string();
        self.trace.record(Event::Disturbed(match damage {
            Damage::Dead => Disturbance::MountDead { path: at },
            Damage::Lost => Disturbance::RecordLost { path: at },
            _ => Disturbance::RecordDamaged { path: at },
        }));
        if damage != Damage::Dead {
            let dir = path.parent().expect("a record is in a directory");
            self.damaged.insert(dir.to_owned(), kernel.is_mount_point(&dir.join("mount")));
        }
    }

    /// The mounts of inline volumes whose records are lost, which the manager cannot identify. Each must be
    /// reported and must keep its pod from ending. Also returns descriptions of those that are not or do not.
    pub(crate) async fn unexplained(&self) -> (BTreeSet<String>, Vec<String>) {
        let (mut kept, mut wrong) = (BTreeSet::new(), Vec::new());
        let lost = self.damaged.iter().filter(|(dir, _)| dir.ends_with("inline"));
        let mounted = lost.filter(|(dir, _)| self.kernel.is_mount_point(&dir.join("mount")));
        for (dir, was_mounted) in mounted {
            let manager = self.manager().expect("it runs at the end");
            let is_reported = manager
                .dump()
                .await
                .is_some_and(|dump| dump.unexplained.contains_key(&dir.display().to_string()));
            let pod = dir.components().rev().nth(3).expect("it is below its pod").as_os_str();
            let pod = PodUid::new(pod.to_string_lossy());
            kept.insert(dir.join("mount").display().to_string());
            // A later mount by the driver is found at the next start.
            if !was_mounted {
                continue;
            }
            if !is_reported || manager.wait_unmounted(&pod, Duration::from_secs(1)).await.is_ok() {
                wrong.push(format!("no report of the mount at {}", dir.display()));
            }
        }
        (kept, wrong)
    }
}

/// Damages what is at `path`; `alike` are the records from which another volume's can be copied.
fn strike(kernel: &FakeKernel, damage: Damage, path: &Path, alike: &[PathBuf]) -> Result<(), Errno> {
    let write = |content: &[u8]| kernel.write_file(path, content, 0o600);
    let content = || kernel.read_file(path);
    match damage {
        Damage::Lost => kernel.remove_file(path),
        Damage::Emptied => write(b""),
        Damage::Truncated => content().and_then(|content| write(&content[..content.len() / 2])),
        Damage::Foreign => {
            let own = content()?;
            // One of a directory of the same name is the hardest to distinguish: pods give their volumes the
            // same names.
            let name = |record: &Path| record.parent().and_then(Path::file_name).map(ToOwned::to_owned);
            let mut alike: Vec<&PathBuf> = alike.iter().collect();
            alike.sort_by_key(|other| name(other) != name(path));
            let mut others = alike.into_iter().filter_map(|other| kernel.read_file(other).ok());
            let other = others.find(|other| *other != own);
            write(&other.unwrap_or_else(|| br#"{"who":"knows"}"#.to_vec()))
        }
        Damage::Garbage => write(b"\xff\0garbage"),
        Damage::Dead => kernel.break_filesystem(path, ENOTCONN),
    }
}

/// The records of pods' volumes, of stages and of block volumes, each kind sorted.
fn records(kernel: &FakeKernel) -> Vec<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    let csi = root.join("plugins/kubernetes.io/csi");
    let below =
        |dirs: Vec<PathBuf>, name: &str| dirs.into_iter().map(|dir| dir.join(name)).collect::<Vec<_>>();
    let entries = |dirs: Vec<PathBuf>| dirs.iter().flat_map(|dir| entries(kernel, dir)).collect::<Vec<_>>();
    let pods = entries(below(entries(vec![root.join("pods")]), "volumes/kubernetes.io~csi"));
    let stages = entries(vec![csi.join(crate::driver::NAME)]);
    let devices = below(entries(vec![csi.join("volumeDevices")]), "data");
    let there = |record: &PathBuf| kernel.symlink_metadata(record).is_ok();
    [pods, stages, devices].map(|dirs| below(dirs, RECORD).into_iter().filter(there).collect()).into()
}

/// The mounts of filesystem volumes, sorted.
fn mounts(kernel: &FakeKernel) -> Vec<PathBuf> {
    let table = kernel.mount_table();
    let points = table.entries().iter().map(|entry| entry.mount_point.clone());
    let mut points: Vec<PathBuf> =
        points.filter(|point| point.ends_with("mount") || point.ends_with("globalmount")).collect();
    points.sort();
    points
}

/// The entries of a directory, sorted; empty if it does not exist.
fn entries(kernel: &FakeKernel, dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        kernel.read_dir(dir).into_iter().flatten().map(|entry| dir.join(entry.name)).collect();
    paths.sort();
    paths
}
