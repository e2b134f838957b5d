//! Limits of the machine's resources for the driver of a case and its containers, and whether the driver has reached
//! one.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use harness::cgroup::{self, Beside, Cgroup, Limits};
use harness::container::{self, DeviceGroup, Spec};
use harness::facts;
use harness::ledger::{Entry, Ledger};
use harness::observe::Device;
use harness::sandbox::Sandbox;

use crate::message::Orders;

/// Processes and threads: a driver written in Go has dozens, one that forks without end has thousands.
const TASKS: u64 = 2048;

/// Memory beside the volumes: what fills the disk must find it full before its memory is.
const MEMORY: u64 = 1 << 30;

/// A control group for the driver; none where this user can have none, or the driver is not ours to limit.
pub fn of_driver(orders: &Orders, sandbox: &Sandbox) -> Option<Arc<Cgroup>> {
    if orders.rootless || orders.manifest.is_running_already() {
        return None;
    }
    let ledger = sandbox.ledger()?;
    let name = name(&ledger);
    write_down(&ledger, cgroup::places(&name).ok()?)?;
    let limits = Limits { tasks: TASKS, memory: sandbox.bytes() + MEMORY };
    // If it cannot be made, `doctor` reports the reason.
    let mut cgroup = Cgroup::create(&name, limits).ok()?;
    // The disks of a guest are its cases' own: those of an iSCSI target appear while a case runs.
    if let Some(opened) = opened_disks(&orders.manifest.host_paths).filter(|_| !facts::in_guest()) {
        // If the kernel refuses the program, the head of the report names that.
        let _ = cgroup.limit_disks(&opened);
    }
    Some(Arc::new(cgroup))
}

/// The disks that a manifest opens; none at all are kept from a driver to which a directory of devices is open.
fn opened_disks(paths: &[PathBuf]) -> Option<Vec<Device>> {
    let is_of_devices =
        |path: &PathBuf| path.is_dir() && (path.starts_with("/dev") || path == Path::new("/"));
    let number = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        metadata.file_type().is_block_device().then(|| Device::from_raw(metadata.rdev()))
    };
    (!paths.iter().any(is_of_devices)).then(|| paths.iter().filter_map(number).collect())
}

/// The groups of a case's containers.
#[derive(Debug)]
pub struct DeviceGroups {
    /// The ledger of the groups; `None` if this user can have no group.
    ledger: Option<Arc<Ledger>>,
}

impl DeviceGroups {
    pub fn of(orders: &Orders, sandbox: &Sandbox) -> Self {
        Self { ledger: sandbox.ledger().filter(|_| !orders.rootless) }
    }

    /// A group in which a container uses the devices that its configuration allows; none where it cannot be made.
    pub fn make(&self, spec: &Spec) -> Option<DeviceGroup> {
        let ledger = self.ledger.as_deref()?;
        let path = container::device_group(&name(ledger)).ok()?;
        write_down(ledger, vec![path.clone()])?;
        DeviceGroup::create(&path, spec).ok()
    }
}

/// A name nothing else has. In its PID namespace every worker has the same number.
fn name(ledger: &Ledger) -> String {
    let run = ledger.path().parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("volproof-{run}-{:x}", now.as_nanos())
}

fn write_down(ledger: &Ledger, paths: Vec<PathBuf>) -> Option<()> {
    ledger.record(&Entry::Cgroups { paths }).ok()
}

/// The number of control groups that are named.
const GROUPS: usize = 3;

/// Describes the control groups that appeared while the driver ran, and are not thrown away with it: a line for each that
/// is the driver's, and one line for all that may be another program's.
pub fn groups_stay(beside: &Beside) -> Vec<String> {
    let name = |group: &PathBuf| format!("`{}`", group.display());
    if beside.by_us {
        let line = |group| {
            let group = name(group);
            format!(
                "the control group {group} was made by the driver, or by a command of its manifest, and stays on the machine"
            )
        };
        return beside.groups.iter().map(line).collect();
    }
    let named: Vec<String> = beside.groups.iter().take(GROUPS).map(name).collect();
    let more = match beside.groups.len().saturating_sub(GROUPS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let line = format!(
        "control groups were made while the driver ran, by the driver or by another program, and stay on the machine: {}{more}",
        named.join(", ")
    );
    if named.is_empty() { Vec::new() } else { vec![line] }
}

/// The limits that the driver has reached, each with the cause.
pub fn used_up(cgroup: Option<&Cgroup>, state: &Path) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    if let Some(cgroup) = cgroup {
        let (hits, limits) = (cgroup.hits(), cgroup.limits());
        if hits.tasks > 0 {
            let what = format!("it may have {} processes and threads, and wanted more", limits.tasks);
            said.push(("used up its processes", what));
        }
        if hits.memory > 0 {
            let what = format!("it may have {} MiB, and was killed for wanting more", limits.memory >> 20);
            said.push(("used up its memory", what));
        }
    }
    if let Ok(disk) = nix::sys::statvfs::statvfs(state)
        && disk.blocks_available() == 0
    {
        let bytes = disk.blocks() * disk.fragment_size();
        said.push(("used up its disk", format!("it may have {} MiB, and has filled them", bytes >> 20)));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_may_be_another_programs_are_one_line() {
        let groups = ["a", "b", "c", "d"].map(|name| Path::new("/cgroup").join(name)).to_vec();
        let theirs = groups_stay(&Beside { groups: groups.clone(), by_us: false });
        assert_eq!(theirs.len(), 1, "{theirs:?}");
        assert!(theirs[0].ends_with(": `/cgroup/a`, `/cgroup/b`, `/cgroup/c` and 1 more"), "{theirs:?}");
        assert_eq!(groups_stay(&Beside { groups, by_us: true }).len(), 4);
        assert_eq!(groups_stay(&Beside::default()), Vec::<String>::new());
    }
}
