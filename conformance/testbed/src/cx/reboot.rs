//! The machine starts anew, or the driver's container is replaced.

use std::panic::Location;

use super::Cx;
use crate::failure::Result;

impl Cx {
    /// Ends the machine in an orderly way, and starts it again without mounts and loop devices. The files on the node's disk
    /// and in the driver's directory are there, and those in `/run` and `/tmp` are not.
    #[track_caller]
    pub fn machine_reboots(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("cx.machine_reboots()", Location::caller());
        async move { doing.done(self.shared.bed.reboot().await) }
    }

    /// Replaces the driver's container by another one, as each update does: the files that only its container had are
    /// gone, and all mounts stay.
    #[track_caller]
    pub fn driver_is_replaced(&self) -> impl Future<Output = Result> {
        let doing = self.shared.begin("cx.driver_is_replaced()", Location::caller());
        async move { doing.done(self.shared.bed.replace_driver().await) }
    }
}
