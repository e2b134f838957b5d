//! Containers: a pod's volumes as the pod itself sees them.

use std::panic::Location;
use std::path::Path;
use std::rc::Rc;

use expect_test::Expect;

use super::{Doing, Shared};
use crate::bed::{PodSpec, Running};
use crate::failure::Result;

/// A running container of a pod.
#[derive(Debug, Clone)]
pub struct Container {
    shared: Rc<Shared>,
    running: Running,
    pod: PodSpec,
}

impl Container {
    pub(super) fn new(shared: Rc<Shared>, running: Running, pod: PodSpec) -> Self {
        Self { shared, running, pod }
    }

    /// Compares everything it sees of its volumes and devices: the root of each with its owner, mode, whether it
    /// can be written to and how mounts travel, and every file in it.
    #[track_caller]
    pub fn sees(&self, view: Expect) -> impl Future<Output = Result> {
        let doing = self.begin("sees()", Location::caller());
        async move {
            let actual = doing.done(self.shared.bed.view(&self.running, &self.pod).await)?;
            self.shared.compare(&view, actual, &doing.at)
        }
    }

    /// Compares who it is: its user and groups, its host name, its environment.
    #[track_caller]
    pub fn is(&self, identity: Expect) -> impl Future<Output = Result> {
        let doing = self.begin("is()", Location::caller());
        async move {
            let actual = doing.done(self.shared.bed.identity(&self.running).await)?;
            self.shared.compare(&identity, actual, &doing.at)
        }
    }

    /// Writes a file, or the beginning of a device, durably.
    #[track_caller]
    pub fn writes(&self, path: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("writes(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.write_inside(&self.running, path, text).await) }
    }

    /// Reads a file, or the beginning of a device, and compares it.
    #[track_caller]
    pub fn reads(&self, path: &str, text: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("reads(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.read_inside(&self.running, path, text).await) }
    }

    /// Reads files of a directory together, while they are replaced, until all hold `last`: they are of one
    /// generation each time, and of more than one in all.
    #[track_caller]
    pub fn follows(&self, directory: &str, names: &[&str], last: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("follows(\"{directory}\")"), Location::caller());
        async move { doing.done(self.shared.bed.follow_inside(&self.running, directory, names, last).await) }
    }

    /// Tries to write a file, and is refused for this reason (`EROFS`, `EACCES`, …).
    #[track_caller]
    pub fn cannot_write(&self, path: &str, reason: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("cannot_write(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.refused_inside(&self.running, path, &[reason]).await) }
    }

    /// Tries to write a file on a disk that is gone. Either the write itself fails (`EIO`), or the file system has
    /// already noticed and takes nothing any more (`EROFS`): which is first is chance.
    #[track_caller]
    pub fn cannot_write_to_lost_disk(&self, path: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("cannot_write_to_lost_disk(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.refused_inside(&self.running, path, &["EIO", "EROFS"]).await) }
    }

    /// Tries to mount, and is refused for this reason.
    #[track_caller]
    pub fn cannot_mount(&self, path: &str, reason: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("cannot_mount(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.mount_refused_inside(&self.running, path, reason).await) }
    }

    /// Makes a node for a disk of the machine, and opens it.
    #[track_caller]
    pub fn opens_node_of(&self, disk: &Path) -> impl Future<Output = Result> {
        let doing = self.begin("opens_node_of()", Location::caller());
        let disk = disk.to_owned();
        async move { doing.done(self.shared.bed.open_node_inside(&self.running, &disk, None).await) }
    }

    /// The same, and is refused for this reason.
    #[track_caller]
    pub fn cannot_open_node_of(&self, disk: &Path, reason: &str) -> impl Future<Output = Result> {
        let doing = self.begin("cannot_open_node_of()", Location::caller());
        let disk = disk.to_owned();
        async move { doing.done(self.shared.bed.open_node_inside(&self.running, &disk, Some(reason)).await) }
    }

    /// Gives a file another name.
    #[track_caller]
    pub fn renames(&self, from: &str, to: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("renames(\"{from}\")"), Location::caller());
        async move { doing.done(self.shared.bed.rename_inside(&self.running, from, to).await) }
    }

    /// Mounts an empty file system on a directory, which is made if it is missing.
    #[track_caller]
    pub fn mounts(&self, path: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("mounts(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.mount_inside(&self.running, path).await) }
    }

    /// Unmounts what [`Self::mounts`] has mounted.
    #[track_caller]
    pub fn unmounts(&self, path: &str) -> impl Future<Output = Result> {
        let doing = self.begin(&format!("unmounts(\"{path}\")"), Location::caller());
        async move { doing.done(self.shared.bed.unmount_inside(&self.running, path).await) }
    }

    fn begin(&self, step: &str, location: &Location<'_>) -> Doing {
        self.shared.begin(&format!("{}.container.{step}", self.pod.name), location)
    }
}
