//! The objects that pods refer to beside a driver's volumes: config maps, secrets, services, paths and disks of the
//! machine.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::storage::FsGroupPolicy;
use api::{VolumeMode, VolumeSource};
use harness::fault_fs::Rule as FileRule;
use nix::errno::Errno;

use super::{Cx, Pod, Volume};
use crate::bed::StepError;
use crate::call::Method;
use crate::failure::Result;

impl Cx {
    /// Creates or changes a config map.
    #[track_caller]
    pub fn config_map(&self, name: &str, data: &[(&str, &str)]) -> Result {
        let doing = self.shared.begin(&format!("cx.config_map(\"{name}\")"), Location::caller());
        doing.done(self.shared.bed.write_config_map(name, data))
    }

    #[track_caller]
    pub fn secret(&self, name: &str, data: &[(&str, &str)]) -> Result {
        let doing = self.shared.begin(&format!("cx.secret(\"{name}\")"), Location::caller());
        doing.done(self.shared.bed.write_secret(name, data))
    }

    /// Makes a service: its namespace and name, its address (empty for one that the API server chooses, `None` for
    /// none), its ports by name and number.
    #[track_caller]
    pub fn service(&self, name: (&str, &str), address: &str, ports: &[(&str, i32)]) -> Result {
        let doing = self.shared.begin(&format!("cx.service(\"{}\")", name.1), Location::caller());
        doing.done(self.shared.bed.write_service(name, address, ports))
    }

    /// Installs the program of a FlexVolume driver on the node.
    #[track_caller]
    pub fn flex_volume_driver(&self, driver: &str, program: &str) -> Result {
        let doing = self.shared.begin(&format!("cx.flex_volume_driver(\"{driver}\")"), Location::caller());
        doing.done(self.shared.bed.install_flex_volume_driver(driver, program))
    }

    /// A directory of the node's machine.
    #[track_caller]
    pub fn machine(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.machine()", Location::caller());
        doing.done(self.shared.bed.machine())
    }

    /// A disk of the node's machine, with nothing on it.
    #[track_caller]
    pub fn disk(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.disk()", Location::caller());
        doing.done(self.shared.bed.add_disk())
    }

    /// Compares a part of the last request of a method, by its JSON pointer, with its expected text; an empty text means
    /// that the part is missing.
    #[track_caller]
    pub fn was_asked(&self, method: Method, part: &str, wanted: &str) -> Result {
        let doing = self.shared.begin(&format!("looking at {} {part}", method.name()), Location::caller());
        let asked = doing.done(self.shared.bed.asked(method, part))?;
        let said = || {
            let name = method.name();
            StepError::Broken(vec![format!(
                "{name} should be asked with {part} {wanted:?}, and is with {asked:?}."
            )])
        };
        doing.done(if asked == wanted { Ok(()) } else { Err(said()) })
    }

    /// The path of a pod's volume on the node: its directory, or the link to its device.
    #[track_caller]
    pub fn place(&self, volume: &str, pod: &Pod) -> Result<PathBuf> {
        let doing = self.shared.begin(&format!("cx.place(\"{volume}\")"), Location::caller());
        doing.done(self.shared.bed.place(volume, &pod.spec.name))
    }

    /// Sets the `fsGroupPolicy` of the driver's object.
    #[track_caller]
    pub fn group_policy(&self, policy: FsGroupPolicy) -> Result {
        let doing = self.shared.begin(&format!("cx.group_policy({policy:?})"), Location::caller());
        doing.done(self.shared.bed.change_driver(|driver| driver.fs_group_policy = Some(policy)))
    }

    /// The driver's object asks for volumes to be published again from time to time.
    #[track_caller]
    pub fn republishes(&self) -> Result {
        let doing = self.shared.begin("cx.republishes()", Location::caller());
        doing.done(self.shared.bed.change_driver(|driver| driver.requires_republish = true))
    }

    /// The driver's object asks for its limit of volumes to be refreshed so often.
    #[track_caller]
    pub fn refreshes_volume_limit(&self, period: Duration) -> Result {
        let step = format!("cx.refreshes_volume_limit({} s)", period.as_secs());
        let doing = self.shared.begin(&step, Location::caller());
        let seconds = Some(period.as_secs());
        doing.done(self.shared.bed.change_driver(|driver| driver.allocatable_period = seconds))
    }

    /// Removes the limit of the driver's volumes from the node's CSINode object.
    #[track_caller]
    pub fn removes_volume_limit(&self) -> Result {
        let doing = self.shared.begin("cx.removes_volume_limit()", Location::caller());
        doing.done(self.shared.bed.remove_volume_limit())
    }

    /// Waits until the node's CSINode object has a limit of the driver's volumes.
    #[track_caller]
    pub fn volume_limit(&self) -> impl Future<Output = Result<i32>> {
        let doing = self.shared.begin("cx.volume_limit()", Location::caller());
        async move { doing.done(self.shared.bed.volume_limit().await) }
    }

    /// A volume of the driver's that lives as long as its pod, published with a secret of the pod's namespace.
    #[track_caller]
    pub fn inline_csi(&self, pod: &str, volume: &str, secret: Option<&str>) -> Result<VolumeSource> {
        let doing = self.shared.begin(&format!("cx.inline_csi(\"{volume}\")"), Location::caller());
        doing.done(self.shared.bed.inline_csi(pod, volume, secret))
    }

    /// Whether a device at its target is read-only: the device itself, or its bind.
    #[track_caller]
    pub fn target_is_read_only(&self, volume: &Volume, pod: &Pod) -> Result<bool> {
        let doing =
            self.shared.begin(&format!("looking at the device of `{}`", volume.name), Location::caller());
        doing.done(self.shared.bed.target_is_read_only(&volume.name, &pod.spec.name))
    }

    /// Takes away what the driver has put at its target for a device, behind its back and the node's.
    #[track_caller]
    pub fn loses_target(&self, volume: &Volume, pod: &Pod) -> Result {
        let doing = self.shared.begin(&format!("cx.loses_target(\"{}\")", volume.name), Location::caller());
        doing.done(self.shared.bed.lose_target(&volume.name, &pod.spec.name))
    }

    /// A disk of the node's machine with an ext4 that has lost its root.
    #[track_caller]
    pub fn corrupt_disk(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.corrupt_disk()", Location::caller());
        doing.done(self.shared.bed.add_corrupt_disk())
    }

    /// Compares something the case has looked up itself.
    #[track_caller]
    pub fn same(&self, what: &str, seen: &str, wanted: &str) -> Result {
        let doing = self.shared.begin(&format!("looking at {what}"), Location::caller());
        let said =
            || StepError::Broken(vec![format!("Expected {what} to be {wanted:?}, but it is {seen:?}.")]);
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

    /// Creates a volume for a pod's generic ephemeral volume: the claim has the name for it, and is owned by the pod.
    #[track_caller]
    pub fn local_of_pod(&self, pod: &str, volume: &str, path: &Path) -> Result {
        let name = format!("{pod}-{volume}");
        self.local_as(&name, path, VolumeMode::Filesystem, Location::caller())?;
        let doing = self.shared.begin(&format!("cx.local_of_pod(\"{name}\")"), Location::caller());
        doing.done(self.shared.bed.give_to_pod(&name, pod))
    }

    /// A directory of the machine that a process serves (FUSE).
    #[track_caller]
    pub fn fuse(&self) -> Result<PathBuf> {
        let doing = self.shared.begin("cx.fuse()", Location::caller());
        doing.done(self.shared.bed.start_fuse())
    }

    /// Lets some of its answers go wrong from now on.
    #[track_caller]
    pub fn spoil_fuse(&self, rule: FileRule) -> Result {
        let doing = self.shared.begin("cx.spoil_fuse()", Location::caller());
        doing.done(self.shared.bed.spoil_fuse(rule))
    }

    /// Looks at a path, and finds that it is answered with this error: a case about an error that never came proves nothing.
    #[track_caller]
    pub fn answers(&self, path: &Path, errno: Errno) -> Result {
        let doing = self.shared.begin(&format!("cx.answers({errno:?})"), Location::caller());
        let wrong = other_answer(std::fs::metadata(path).map(drop), errno);
        doing.done(wrong.map_or(Ok(()), |wrong| Err(StepError::Broken(vec![wrong]))))
    }

    /// Waits until a call is not answered because of that.
    #[track_caller]
    pub fn fuse_hangs(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("cx.fuse_hangs()", Location::caller());
        async move { doing.done(self.shared.bed.fuse_hangs().await) }
    }

    /// Lets all go well again. What was not answered fails.
    #[track_caller]
    pub fn mend_fuse(&self) -> Result {
        let doing = self.shared.begin("cx.mend_fuse()", Location::caller());
        doing.done(self.shared.bed.mend_fuse())
    }

    /// Ends that process at once.
    #[track_caller]
    pub fn kill_fuse(&self) -> Result {
        let doing = self.shared.begin("cx.kill_fuse()", Location::caller());
        doing.done(self.shared.bed.kill_fuse())
    }

    fn local_as(&self, name: &str, path: &Path, mode: VolumeMode, at: &Location<'_>) -> Result<Volume> {
        let doing = self.shared.begin(&format!("cx.local(\"{name}\")"), at);
        doing.done(self.shared.bed.write_local(name, path, mode))?;
        Ok(Volume { name: name.to_owned() })
    }
}

/// The answer to a look at a path, if it is not this error.
fn other_answer(looked: std::io::Result<()>, expected: Errno) -> Option<String> {
    let answer = match looked {
        Ok(()) => "no error".to_owned(),
        Err(error) if error.raw_os_error() == Some(expected as i32) => return None,
        Err(error) => error.to_string(),
    };
    Some(format!("The file system should answer {expected:?}, and answers {answer}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_that_does_not_come_is_noticed() {
        let fails = |errno: Errno| Err(std::io::Error::from_raw_os_error(errno as i32));
        for errno in [Errno::ESTALE, Errno::EIO, Errno::EACCES, Errno::EHOSTDOWN, Errno::ENODEV, Errno::EPERM]
        {
            assert_eq!(other_answer(fails(errno), errno), None, "{errno:?}");
            assert!(other_answer(Ok(()), errno).is_some_and(|wrong| wrong.contains("no error")), "{errno:?}");
            assert!(other_answer(fails(Errno::ENOENT), errno).is_some(), "{errno:?}");
        }
    }
}
