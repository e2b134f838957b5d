//! The links in `/dev/disk/by-path` to the disks of iSCSI sessions, which udev makes where it runs. Makes and removes
//! these links, and reads sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// The group of the kernel's own messages. Those of udev have another one.
const OF_KERNEL: u32 = 1;

/// A thread that keeps the links, until it is dropped.
#[derive(Debug)]
pub(super) struct Links {
    /// Its end wakes the thread.
    alive: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Links {
    pub(super) fn keep() -> io::Result<Self> {
        let events = listen()?;
        let (over, alive) = io::pipe()?;
        let thread = thread::spawn(move || follow(&events, &over));
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// A socket with the kernel's messages about its devices.
fn listen() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkKObjectUEvent;
    let events = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
    bind(events.as_raw_fd(), &NetlinkAddr::new(0, OF_KERNEL))?;
    Ok(events)
}

fn follow(events: &OwnedFd, over: &PipeReader) {
    let (sys, dev) = (Path::new("/sys"), Path::new("/dev"));
    let mut made = BTreeMap::new();
    loop {
        let mut ready =
            [PollFd::new(events.as_fd(), PollFlags::POLLIN), PollFd::new(over.as_fd(), PollFlags::POLLIN)];
        // An error is an interruption.
        let _ = poll(&mut ready, PollTimeout::NONE);
        if ready[1].any().unwrap_or(false) {
            update(dev, &mut made, BTreeMap::new());
            return;
        }
        forget(events);
        update(dev, &mut made, wanted(sys, dev));
    }
}

/// Takes all messages off the socket: the links follow from sysfs, also when messages were lost.
fn forget(events: &OwnedFd) {
    let mut message = [0; 4096];
    // An overflow is an error, too, and is reported once.
    while recv(events.as_raw_fd(), &mut message, MsgFlags::empty()) != Err(nix::Error::EAGAIN) {}
}

/// The links by name, each with the name of its disk.
///
/// A disk that is being removed loses its device before it leaves sysfs.
fn wanted(sys: &Path, dev: &Path) -> BTreeMap<String, String> {
    let mut links = BTreeMap::new();
    for session in entries(&sys.join("class/iscsi_session")) {
        let Some((target, portal)) = names(sys, &session) else { continue };
        let targets =
            entries(&session.join("device")).into_iter().filter(|path| name(path).starts_with("target"));
        for unit in targets.flat_map(|target| entries(&target)) {
            let Some((_, number)) = name(&unit).rsplit_once(':') else { continue };
            for disk in entries(&unit.join("block")).iter().map(|disk| name(disk)) {
                if dev.join(disk).exists() {
                    links.insert(format!("ip-{portal}-iscsi-{target}-lun-{number}"), disk.to_owned());
                }
            }
        }
    }
    links
}

/// The target of a session, and the address of its portal.
fn names(sys: &Path, session: &Path) -> Option<(String, String)> {
    let number = name(session).strip_prefix("session")?;
    let connection = sys.join(format!("class/iscsi_connection/connection{number}:0"));
    let read = |path: PathBuf| Some(fs::read_to_string(path).ok()?.trim().to_owned());
    let address = read(connection.join("persistent_address"))?;
    let port = read(connection.join("persistent_port"))?;
    Some((read(session.join("targetname"))?, format!("{address}:{port}")))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Makes the links that are missing, and removes those that are not wanted any more, with their directories.
fn update(dev: &Path, made: &mut BTreeMap<String, String>, wanted: BTreeMap<String, String>) {
    let disks = dev.join("disk");
    let place = disks.join("by-path");
    // Without a link the driver says that it waits for it: no error here says more.
    for link in made.iter().filter(|(link, disk)| wanted.get(*link) != Some(disk)).map(|(link, _)| link) {
        let _ = fs::remove_file(place.join(link));
    }
    for (link, disk) in wanted.iter().filter(|(link, disk)| made.get(*link) != Some(disk)) {
        let _ = fs::create_dir_all(&place);
        let _ = symlink(format!("../../{disk}"), place.join(link));
    }
    if wanted.is_empty() {
        // Other links in them keep them.
        let _ = fs::remove_dir(&place).and_then(|()| fs::remove_dir(&disks));
    }
    *made = wanted;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: &str = "ip-127.0.0.1:3260-iscsi-iqn.2026-01.dev.volproof:disks-lun-2";

    /// A machine with a session and the disk `sda`, as Linux 6.12 shows it.
    fn machine() -> tempfile::TempDir {
        let machine = tempfile::tempdir().unwrap();
        let of_session = "sys/class/iscsi_session/session3";
        let of_connection = "sys/class/iscsi_connection/connection3:0";
        let unit = format!("{of_session}/device/target2:0:0/2:0:0:2");
        for (path, text) in [
            (format!("{of_session}/targetname"), "iqn.2026-01.dev.volproof:disks\n"),
            (format!("{of_connection}/persistent_address"), "127.0.0.1\n"),
            (format!("{of_connection}/persistent_port"), "3260\n"),
            (format!("{unit}/block/sda/size"), "8\n"),
            (format!("{of_session}/device/target2:0:0/power/control"), "auto\n"),
            ("dev/sda".to_owned(), ""),
        ] {
            let path = machine.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        machine
    }

    #[test]
    fn disk_of_a_session_has_the_link_of_udev_as_long_as_it_has_a_device() {
        let machine = machine();
        let (sys, dev) = (machine.path().join("sys"), machine.path().join("dev"));
        assert_eq!(wanted(&sys, &dev), BTreeMap::from([(LINK.to_owned(), "sda".to_owned())]));
        fs::remove_file(dev.join("sda")).unwrap();
        assert_eq!(wanted(&sys, &dev), BTreeMap::new());
    }

    #[test]
    fn links_follow_the_disks_and_leave_no_directory() {
        let machine = machine();
        let (dev, mut made) = (machine.path().join("dev"), BTreeMap::new());
        let link = dev.join("disk/by-path").join(LINK);
        for disk in ["sda", "sdb"] {
            update(&dev, &mut made, BTreeMap::from([(LINK.to_owned(), disk.to_owned())]));
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("../..").join(disk));
        }
        assert!(fs::canonicalize(&link).is_err(), "there is no `sdb`");
        update(&dev, &mut made, BTreeMap::new());
        assert!(!dev.join("disk").exists());
    }
}
