//! The machine's disks, which a driver in a control group may not use. Reads sysfs, changes nothing.

use std::fs;
use std::path::Path;

use super::device_rules::{BLOCK, MAKE, READ, Rule, WRITE};
use crate::loop_device::LOOP_MAJOR;
use crate::observe::Device;

/// The major number of partitions and of NVMe disks.
const EXTENDED_MAJOR: u32 = 259;

/// The deepest stack of mapped devices that is followed.
const DEPTH: u32 = 8;

const USE: i32 = READ | WRITE;

/// Rules that allow loop devices, mapped devices on them, and the `opened` disks, and no other disk. Device nodes may be
/// made for any number.
pub(super) fn rules(opened: &[Device]) -> Vec<Rule> {
    let disk = |allow, major: Option<u32>, minor: Option<u32>| Rule {
        allow,
        kind: Some(BLOCK),
        major: major.map(u32::cast_signed),
        minor: minor.map(u32::cast_signed),
        access: MAKE | USE,
    };
    let any = Rule { allow: true, kind: None, major: None, minor: None, access: MAKE | USE };
    let mut rules = vec![any, disk(false, None, None), Rule { access: MAKE, ..disk(true, None, None) }];
    let mapped = mapper_major();
    let majors = [Some(LOOP_MAJOR), mapped, Some(EXTENDED_MAJOR)];
    rules.extend(majors.into_iter().flatten().map(|major| disk(true, Some(major), None)));
    // Devices of these two majors may be on loop devices or on the machine's disks.
    let shared = [mapped, Some(EXTENDED_MAJOR)];
    let machines =
        all().into_iter().filter(|(name, device)| shared.contains(&Some(device.major)) && !is_ours(name));
    rules.extend(machines.map(|(_, device)| disk(false, Some(device.major), Some(device.minor))));
    // Nodes may be made of the machine's, too: it is another matter to use them.
    rules.push(Rule { access: MAKE, ..disk(true, None, None) });
    rules.extend(opened.iter().map(|device| disk(true, Some(device.major), Some(device.minor))));
    rules
}

/// The number of mapped devices, where the kernel has any.
fn mapper_major() -> Option<u32> {
    let text = fs::read_to_string("/proc/devices").ok()?;
    let (_, blocks) = text.split_once("Block devices:")?;
    blocks.lines().find_map(|line| line.trim().strip_suffix(" device-mapper")?.trim().parse().ok())
}

/// All disks and partitions, by name.
fn all() -> Vec<(String, Device)> {
    let names = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let with_number = |name: String| {
        let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
        Some((name, Device::parse(&number)?))
    };
    names.filter_map(with_number).collect()
}

/// Whether a device is a partition of a loop device, or a mapped device on loop devices alone.
fn is_ours(name: &str) -> bool {
    name.starts_with("loop") || (name.starts_with("dm-") && stands_on_loops(name, DEPTH))
}

fn stands_on_loops(name: &str, depth: u32) -> bool {
    let below = fs::read_dir(Path::new("/sys/class/block").join(name).join("slaves"));
    let mut below =
        below.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    below.all(|below| match depth.checked_sub(1) {
        Some(depth) if below.starts_with("dm-") => stands_on_loops(&below, depth),
        _ => below.starts_with("loop"),
    })
}
