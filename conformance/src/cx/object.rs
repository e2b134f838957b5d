//! What pods refer to beside a driver's volumes: config maps, secrets, paths and disks of the machine.

use std::panic::Location;
use std::path::{Path, PathBuf};

use harness::api::VolumeMode;

use super::{Cx, Volume};
use crate::failure::Result;
use crate::worker::scene::SceneError;

impl Cx {
    /// Makes a config map, or changes the one there is.
    #[track_caller]
    pub fn config_map(&self, name: &str, data: &[(&str, &str)]) -> Result {
        let doing = self.shared.begin(&format!("cx.config_map(\"{name}\")"), Location::caller());
        doing.done(self.shared.scene.write_config_map(name, data))
    }

    /// Makes a secret.
    #[track_caller]
    pub fn secret(&self, name: &str, data: &[(&str, &str)]) -> Result {
        let doing = self.shared.begin(&format!("cx.secret(\"{name}\")"), Location::caller());
        doing.done(self.shared.scene.write_secret(name, data))
    }

    /// A directory of the node's machine.
    #[track_caller]
    pub fn machine(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.machine()", Location::caller());
        doing.done(self.shared.scene.machine())
    }

    /// A disk of the node's machine, with nothing on it.
    #[track_caller]
    pub fn disk(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.disk()", Location::caller());
        doing.done(self.shared.scene.add_disk())
    }

    /// Compares something the case has looked up itself.
    #[track_caller]
    pub fn same(&self, what: &str, seen: &str, wanted: &str) -> Result {
        let doing = self.shared.begin(&format!("looking at {what}"), Location::caller());
        let said =
            || SceneError::Broken(vec![format!("Expected {what} to be {wanted:?}, but it is {seen:?}.")]);
        doing.done(if seen == wanted { Ok(()) } else { Err(said()) })
    }

    /// A persistent volume that is a directory of the machine, or a disk with a file system, and its claim.
    #[track_caller]
    pub fn local(&self, name: &str, path: &Path) -> Result<Volume> {
        self.local_as(name, path, VolumeMode::Filesystem, Location::caller())
    }

    /// A persistent volume that is a disk of the machine as it is, and its claim.
    #[track_caller]
    pub fn local_block(&self, name: &str, path: &Path) -> Result<Volume> {
        self.local_as(name, path, VolumeMode::Block, Location::caller())
    }

    /// The same for the ephemeral volume of a pod: the claim has its name, and is the pod's.
    #[track_caller]
    pub fn local_of_pod(&self, pod: &str, volume: &str, path: &Path) -> Result {
        let name = format!("{pod}-{volume}");
        self.local_as(&name, path, VolumeMode::Filesystem, Location::caller())?;
        let doing = self.shared.begin(&format!("cx.local_of_pod(\"{name}\")"), Location::caller());
        doing.done(self.shared.scene.give_to_pod(&name, pod))
    }

    /// A directory of the machine that a process serves (FUSE).
    #[track_caller]
    pub fn fuse(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.fuse()", Location::caller());
        doing.done(self.shared.scene.start_fuse())
    }

    /// Ends that process at once.
    #[track_caller]
    pub fn kill_fuse(&self) -> Result {
        let doing = self.shared.begin("cx.kill_fuse()", Location::caller());
        doing.done(self.shared.scene.kill_fuse())
    }

    fn local_as(&self, name: &str, path: &Path, mode: VolumeMode, at: &Location<'_>) -> Result<Volume> {
        let doing = self.shared.begin(&format!("cx.local(\"{name}\")"), at);
        doing.done(self.shared.scene.write_local(name, path, mode))?;
        Ok(Volume { name: name.to_owned() })
    }
}
