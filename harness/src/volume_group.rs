//! A volume group of LVM on a loop device, as a guard. Runs `lvm`.
//!
//! Names of volume groups are the machine's: use it where no other has the name, such as in a guest.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::process::Command;

use crate::guard::{CloseError, Guard};
use crate::loop_device::{LoopDevice, LoopError, LoopOptions};

/// A volume group that could not be made or activated.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("cannot attach a loop device for the volume group")]
    Device(#[from] LoopError),
    #[error("cannot run `lvm {command}`")]
    Run {
        command: &'static str,
        #[source]
        source: io::Error,
    },
    /// LVM has refused.
    #[error("`lvm {command}` failed: {output}")]
    Refused { command: &'static str, output: String },
}

/// A volume group. Its logical volumes are deactivated when it is closed; they stay on the image.
#[derive(Debug)]
pub struct VolumeGroup {
    name: String,
    /// `None` once it is closed.
    device: Option<LoopDevice>,
}

impl VolumeGroup {
    /// Makes a volume group on an empty image.
    pub fn create(name: &str, image: File) -> Result<Self, GroupError> {
        let device = LoopDevice::over(image, &LoopOptions::default())?;
        lvm("vgcreate", ["--yes".as_ref(), name.as_ref(), device.path().as_os_str()])?;
        Ok(Self { name: name.to_owned(), device: Some(device) })
    }

    /// Activates the logical volumes on an image with a volume group, as a machine does when it starts.
    pub fn activate(name: &str, image: File) -> Result<Self, GroupError> {
        let device = LoopDevice::over(image, &LoopOptions::default())?;
        lvm("vgchange", ["--activate", "y", name].map(OsStr::new))?;
        Ok(Self { name: name.to_owned(), device: Some(device) })
    }

    fn end(&mut self) -> Result<(), CloseError> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let deactivated = lvm("vgchange", ["--activate", "n", &self.name].map(OsStr::new));
        // Also when a logical volume is in use: the device then says by whom.
        let detached = device.close();
        let failed = |error| CloseError::Os {
            what: format!("deactivate the volume group `{}`", self.name),
            source: io::Error::other(error),
        };
        deactivated.map_err(failed).and(detached)
    }
}

impl Guard for VolumeGroup {
    fn close(mut self) -> Result<(), CloseError> {
        self.end()
    }
}

impl Drop for VolumeGroup {
    fn drop(&mut self) {
        let name = self.name.clone();
        crate::guard::undo(format_args!("the volume group `{name}`"), || self.end());
    }
}

fn lvm<'a>(command: &'static str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<(), GroupError> {
    let program = crate::facts::program("lvm").unwrap_or_else(|| "lvm".into());
    let output = Command::new(program).arg(command).args(arguments).output();
    let output = output.map_err(|source| GroupError::Run { command, source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(GroupError::Refused { command, output: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
}
