//! The machine's table of attached loop devices, read from sysfs and from the devices themselves.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use linux_raw_sys::loop_device as raw;
use rustix::fs::{Access, AtFlags, accessat};

use super::{LOOP_MAJOR, clear, ioctl, node, wait_detached};
use crate::observe::Device;

/// An attached loop device, of any process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundLoop {
    /// The N of `/dev/loopN`.
    pub number: u32,
    /// The device (`st_dev`) of the file system its backing file lies on.
    pub device: u64,
    /// The backing file's inode there.
    pub inode: u64,
    /// The device the backing file is, when it is a device node itself: a loop over a loop.
    pub over: Option<Device>,
    /// The path of the backing file as the kernel shows it to this process: without its beginning if the mount is gone
    /// from our namespace, with ` (deleted)` if the file has no name any more.
    pub backing: PathBuf,
    /// A number that no other attachment on this machine has had since it booted.
    pub sequence: Option<u64>,
    /// Whether the kernel detaches it at its last close.
    pub autoclear: bool,
}

impl BoundLoop {
    /// Whether this is the same attachment of the same file, and not a later one under the same number.
    pub fn is_same(&self, other: &BoundLoop) -> bool {
        (self.number, self.device, self.inode, self.sequence)
            == (other.number, other.device, other.inode, other.sequence)
    }
}

/// The directory of the disks that are no hardware. Shorter than `/sys/block`, whose entries are links to here.
const VIRTUAL: &str = "/sys/devices/virtual/block";

/// Every attached loop device that we may look at, by number.
pub fn bound() -> Vec<BoundLoop> {
    let mut found: Vec<BoundLoop> = numbers_bound().into_iter().filter_map(ask).collect();
    found.sort_by_key(|bound| bound.number);
    found
}

/// The numbers of the loop devices to which something is attached.
pub(crate) fn numbers_bound() -> Vec<u32> {
    let Ok(disks) = File::open(VIRTUAL) else { return Vec::new() };
    let is_bound = |number: &u32| {
        accessat(&disks, format!("loop{number}/loop"), Access::EXISTS, AtFlags::empty()).is_ok()
    };
    numbers().into_iter().filter(is_bound).collect()
}

/// As [`numbers_bound`], without those whose file is shorter than a sector. One file of the kernel names all others, so that
/// this can be asked around each call to a driver.
pub(crate) fn numbers_with_content() -> Vec<u32> {
    let Ok(partitions) = fs::read_to_string("/proc/partitions") else { return numbers_bound() };
    let names = partitions.lines().filter_map(|line| line.split_whitespace().nth(3));
    names.filter_map(number_in).collect()
}

/// Whether something is attached to loop device `number`.
pub fn is_bound(number: u32) -> bool {
    fs::exists(format!("{VIRTUAL}/loop{number}/loop")).unwrap_or(false)
}

/// The file that is attached to loop device `number` now.
pub fn read(number: u32) -> Option<BoundLoop> {
    is_bound(number).then(|| ask(number)).flatten()
}

/// Opens the device to ask it, which keeps others from detaching it for that moment.
fn ask(number: u32) -> Option<BoundLoop> {
    status(&File::open(node(number)).ok()?, number)
}

/// The file that is attached to the open device. It stays attached as long as the device is open.
pub(crate) fn status(device: &File, number: u32) -> Option<BoundLoop> {
    let info = ioctl::status(device.as_raw_fd()).ok()?;
    let sys = PathBuf::from(format!("{VIRTUAL}/loop{number}"));
    let text = |file: &str| fs::read_to_string(sys.join(file)).ok();
    Some(BoundLoop {
        number,
        device: info.lo_device,
        inode: info.lo_inode,
        over: (info.lo_rdevice != 0).then(|| Device::from_raw(info.lo_rdevice)),
        backing: text("loop/backing_file").map(|path| path.trim_end_matches('\n').into()).unwrap_or_default(),
        sequence: sequence(number),
        autoclear: info.lo_flags & raw::LO_FLAGS_AUTOCLEAR as u32 != 0,
    })
}

/// A number that no other attachment of loop device `number` has had since the machine booted.
pub(crate) fn sequence(number: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("{VIRTUAL}/loop{number}/diskseq")).ok()?;
    text.trim().parse().ok()
}

/// Detaches it, if it is still that attachment, and waits until it is gone.
///
/// # Errors
/// When it stays; the error says why.
pub fn detach(bound: &BoundLoop) -> Result<(), String> {
    let Ok(device) = File::open(node(bound.number)) else {
        return if is_bound(bound.number) { Err("cannot be opened".to_owned()) } else { Ok(()) };
    };
    // Looked at again through the open device: as long as that is open, no process can attach another file.
    if !status(&device, bound.number).is_some_and(|now| now.is_same(bound)) {
        return Ok(());
    }
    clear(device.as_raw_fd()).map_err(|error| error.to_string())?;
    drop(device);
    wait_detached(bound.number).map_err(|error| error.to_string())
}

/// The numbers of all loop devices there are, attached or not.
pub(crate) fn numbers() -> Vec<u32> {
    let Ok(disks) = fs::read_dir(VIRTUAL) else { return Vec::new() };
    let names = disks.flatten().filter_map(|disk| disk.file_name().into_string().ok());
    names.filter_map(|name| number_in(&name)).collect()
}

/// The number of the loop device of this name.
fn number_in(name: &str) -> Option<u32> {
    name.strip_prefix("loop")?.parse().ok()
}

/// Makes loop devices that are free writable again. A driver that has made one read-only leaves it so to the next user,
/// who can neither write to it nor mount it.
pub fn free_from_read_only() {
    let is_read_only = |number: &u32| {
        fs::read_to_string(format!("{VIRTUAL}/loop{number}/ro")).is_ok_and(|ro| ro.trim() == "1")
    };
    for number in numbers().into_iter().filter(is_read_only).filter(|number| !is_bound(*number)) {
        // Without the right to do so it stays as it is.
        drop(File::open(node(number)).and_then(|device| ioctl::allow_writes(device.as_raw_fd())));
    }
}

/// The newest attachment of any disk on this machine: later ones have greater numbers.
pub fn latest_sequence() -> Option<u64> {
    let disks = fs::read_dir("/sys/block").ok()?;
    let sequences = disks.flatten().filter_map(|disk| fs::read_to_string(disk.path().join("diskseq")).ok());
    sequences.filter_map(|number| number.trim().parse().ok()).max()
}

/// Those of `all` that lie on one of `devices`, and those that are attached over them: the lock of a block volume is a
/// loop device over the device node of another. The topmost come first.
pub fn lying_on(all: &[BoundLoop], owns: impl Fn(&BoundLoop) -> bool) -> Vec<BoundLoop> {
    let mut ours: Vec<BoundLoop> = all.iter().filter(|bound| owns(bound)).cloned().collect();
    let mut reached = 0;
    while reached < ours.len() {
        let below = Device { major: LOOP_MAJOR, minor: ours[reached].number };
        let above = all.iter().filter(|bound| bound.over == Some(below));
        let new: Vec<BoundLoop> = above.filter(|bound| !ours.contains(bound)).cloned().collect();
        ours.extend(new);
        reached += 1;
    }
    ours.reverse();
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(number: u32, device: u64, over: Option<u32>) -> BoundLoop {
        BoundLoop {
            number,
            device,
            inode: u64::from(number) + 100,
            over: over.map(|minor| Device { major: LOOP_MAJOR, minor }),
            backing: PathBuf::from("/f"),
            sequence: None,
            autoclear: false,
        }
    }

    fn numbers(loops: &[BoundLoop]) -> Vec<u32> {
        loops.iter().map(|bound| bound.number).collect()
    }

    #[test]
    fn a_lock_over_a_lock_over_ours_is_ours_and_goes_first() {
        let all = [bound(0, 5, None), bound(1, 6, Some(4)), bound(4, 6, Some(7)), bound(7, 44, None)];
        assert_eq!(numbers(&lying_on(&all, |bound| bound.device == 44)), [1, 4, 7]);
    }

    #[test]
    fn a_loop_over_a_strangers_loop_is_not_ours() {
        let all = [bound(0, 5, None), bound(1, 6, Some(0)), bound(2, 44, None)];
        assert_eq!(numbers(&lying_on(&all, |bound| bound.device == 44)), [2]);
    }
}
