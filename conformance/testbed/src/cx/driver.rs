//! The driver's process: killed during a call, asked to end, and how much of the machine it holds.

use std::panic::Location;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Call, Cx};
use crate::bed::node_calls::{DriverSize, mounts_at};
use crate::bed::{DriverLoad, StepError};
use crate::failure::Result;

/// The time for a driver to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

impl Cx {
    /// Makes a call, kills the driver `after` that whether it has answered or not, and starts the driver again.
    #[track_caller]
    pub fn driver_dies_during(&self, call: Call, after: Duration) -> impl Future<Output = Result> + use<> {
        let doing = self.shared.begin("cx.driver_dies_during()", Location::caller());
        let shared = self.shared();
        async move {
            let kill = async {
                tokio::time::sleep(after).await;
                shared.bed.kill_driver().await;
            };
            drop(tokio::join!(call, kill));
            let started = shared.bed.start_driver().await;
            doing.done(started.map_err(|error| StepError::of_testbed(&error)))
        }
    }

    /// Makes a call, kills the driver as soon as something is mounted at a path, and starts it again.
    #[track_caller]
    pub fn driver_dies_at_mount(&self, call: Call, path: &Path) -> impl Future<Output = Result> + use<> {
        /// A driver that has mounted nothing by then is killed all the same.
        const LONGEST: Duration = Duration::from_secs(1);
        let doing = self.shared.begin("cx.driver_dies_at_mount()", Location::caller());
        let (shared, path) = (self.shared(), path.to_owned());
        async move {
            let kill = async {
                let end = Instant::now() + LONGEST;
                // No pause: a driver records a mount right after it has made it, and is to be killed in between.
                while mounts_at(&path).is_ok_and(|mounts| mounts.is_empty()) && Instant::now() < end {
                    tokio::task::yield_now().await;
                }
                shared.bed.kill_driver().await;
            };
            drop(tokio::join!(call, kill));
            let started = shared.bed.start_driver().await;
            doing.done(started.map_err(|error| StepError::of_testbed(&error)))
        }
    }

    /// Sends SIGTERM to the driver, and kills it if it does not end.
    #[track_caller]
    pub fn driver_is_terminated(&self) -> impl Future<Output = ()> + use<> {
        let shared = self.shared();
        shared.begin("cx.driver_is_terminated()", Location::caller());
        async move {
            shared.bed.end_driver(GRACE).await;
        }
    }

    /// The number of files and directories below the driver's state directory.
    #[track_caller]
    pub fn driver_files(&self) -> Result<usize> {
        let doing = self.shared.begin("cx.driver_files()", Location::caller());
        doing.done(self.shared.bed.driver_files())
    }

    /// The current load of the driver and of its node.
    #[track_caller]
    pub fn driver_load(&self) -> Result<DriverLoad> {
        let doing = self.shared.begin("cx.driver_load()", Location::caller());
        doing.done(self.shared.bed.driver_load())
    }

    /// The driver's descriptors, threads, processes and memory.
    #[track_caller]
    pub fn driver_size(&self) -> Result<DriverSize> {
        let doing = self.shared.begin("cx.driver_size()", Location::caller());
        doing.done(self.shared.bed.driver_size())
    }
}
