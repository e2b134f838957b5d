//! The size of a driver and its node, counted before and after many volumes have come and gone.

use harness::observe;

use super::{Bed, Result, StepError};

/// The size of the driver's process and of its resources in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverLoad {
    descriptors: u64,
    threads: u64,
    processes: u64,
    memory: u64,
    mounts: u64,
    loops: u64,
    files: u64,
}

impl DriverLoad {
    /// Each thing, how many there were and are, and from how many more on something stays of each cycle.
    pub fn beside(&self, before: &Self, cycles: u64, memory: u64) -> [(&'static str, u64, u64, u64); 7] {
        [
            ("descriptors in the driver", before.descriptors, self.descriptors, cycles),
            ("threads in the driver", before.threads, self.threads, cycles),
            ("processes of the driver", before.processes, self.processes, cycles),
            ("memory in the driver (bytes)", before.memory, self.memory, memory),
            ("mounts", before.mounts, self.mounts, cycles),
            ("loop devices", before.loops, self.loops, cycles),
            ("files in the driver's directory", before.files, self.files, cycles),
        ]
    }
}

impl Bed {
    pub(crate) fn driver_load(&self) -> Result<DriverLoad> {
        let size = self.driver_size()?;
        let mounts = observe::snapshot().map_err(|error| StepError::ours(&error))?;
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Ok(DriverLoad {
            descriptors: count(size.descriptors),
            threads: count(size.threads),
            processes: count(size.processes),
            memory: self.driver_memory()?,
            mounts: count(mounts.len()),
            loops: count(self.driver_loops().len()),
            files: count(self.driver_files()?),
        })
    }

    /// The driver's resident memory.
    fn driver_memory(&self) -> Result<u64> {
        let pid = self.driver().try_lock().ok().and_then(|driver| driver.pid());
        let pid = pid.ok_or_else(|| StepError::Ours(vec!["the driver has no process".to_owned()]))?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|error| StepError::ours(&error))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| StepError::Ours(vec!["the kernel does not say its memory".to_owned()]))
    }
}
