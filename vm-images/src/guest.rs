//! PID 1 of a guest: mounts, modules, loopback, then orders from the host until it says power off.
//!
//! A guest boots without a shell or any other program, and every exit ends in power off: a guest that has lost its host
//! must not go on.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

use crate::initramfs::{MODULE_DIR, MODULE_ORDER};
use crate::protocol::{CONTROL_PORT, DATA_PORT, DRIVER_ROOT, Order, Told};

mod applet;
mod mount_nfs;
mod program;

pub use applet::applet;
pub(crate) use applet::names as applet_names;

/// The first mounts, in this order.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", "ptmxmode=0666"),
    ("tmpfs", "/dev/shm", ""),
    ("tmpfs", "/tmp", ""),
    ("tmpfs", "/run", ""),
    ("tmpfs", "/var/lib", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

/// The archive of the guest may have brought files there, which a mount would hide.
const MAY_HAVE_FILES: &str = "/tmp";

/// Links that programs expect and no kernel makes.
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("/proc/mounts", "/etc/mtab"),
    // What a driver keeps there is gone after a reboot.
    ("/run", "/var/run"),
    ("/run/lock", "/var/lock"),
];

/// Writes messages to the host, whole lines at a time.
#[derive(Clone)]
pub(crate) struct Voice(Arc<Mutex<File>>);

impl Voice {
    /// Tells the host; one that does not listen any more is noticed by the loop that reads its orders.
    pub(crate) fn tell(&self, told: &Told) {
        let mut line = serde_json::to_vec(told).expect("what is told is plain data");
        line.push(b'\n');
        let mut port = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = port.write_all(&line);
    }
}

/// Brings the guest up and serves orders; power is off when this would return.
pub fn main() -> ! {
    if let Err(error) = serve() {
        eprintln!("guest: {error}");
    }
    power_off()
}

/// Brings the guest up and gives a shell on its console; power is off when that ends.
pub fn shell() -> ! {
    come_up();
    println!("This is a guest of volproof; its power is off when you leave this shell.\n");
    if let Err(error) = program::on_the_console("/bin/sh") {
        eprintln!("guest: there is no shell: {error}");
    }
    power_off()
}

fn come_up() -> BTreeMap<String, String> {
    if let Err(errno) = leave_the_first_root() {
        eprintln!("guest: containers cannot be started: {errno}");
    }
    mount_all();
    let module_errors = load_modules(Path::new(MODULE_ORDER));
    if let Some(disk) = read_only_disk(Path::new("/sys/block")) {
        mount_driver_root(&disk);
    }
    loopback_up();
    module_errors
}

fn serve() -> io::Result<()> {
    let module_errors = come_up();
    let control = open_port(CONTROL_PORT)?;
    let mut data = open_port(DATA_PORT)?;
    let voice = Voice(Arc::new(Mutex::new(control.try_clone()?)));
    voice.tell(&hello(&module_errors));
    let programs = program::Programs::new(voice.clone());
    for line in BufReader::new(control).lines() {
        match serde_json::from_str::<Order>(&line?) {
            Ok(Order::Hello { now_ns }) => {
                set_clock(now_ns);
                voice.tell(&hello(&module_errors));
            }
            Ok(Order::Run(run)) => programs.start(run),
            Ok(Order::Kill { id }) => programs.kill(id),
            Ok(Order::Put { path, len, mode }) => {
                let error = take(&mut data, Path::new(&path), len, mode).err().map(|error| error.to_string());
                voice.tell(&Told::Taken { error });
            }
            Ok(Order::Get { path }) => give(&mut data, &voice, Path::new(&path))?,
            Ok(Order::PowerOff) => {
                voice.tell(&Told::Bye);
                return Ok(());
            }
            Err(error) => voice.tell(&Told::Refused { why: error.to_string() }),
        }
    }
    Ok(())
}

/// Moves to a root mount that covers the kernel's first one: no process can pivot away from the first one, as a container
/// has to.
fn leave_the_first_root() -> nix::Result<()> {
    const NEXT: &str = "/root-of-all";
    // An error means that the directory exists.
    let _ = fs::create_dir(NEXT);
    mount(Some("/"), NEXT, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    nix::unistd::chdir(NEXT)?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
    nix::unistd::chroot(".")?;
    nix::unistd::chdir("/")
}

fn mount_all() {
    for (kind, at, options) in MOUNTS {
        // A kernel without one of these still boots; programs that need it report that themselves.
        let _ = fs::create_dir_all(at);
        if hides_files(at, Path::new(at)) {
            let _ = fs::set_permissions(at, fs::Permissions::from_mode(0o1777));
            continue;
        }
        if let Err(error) = mount(Some(*kind), *at, Some(*kind), MsFlags::empty(), Some(*options)) {
            eprintln!("guest: cannot mount {kind} on {at}: {error}");
        }
    }
    let _ = fs::create_dir_all("/var").and_then(|()| fs::create_dir_all("/run/lock"));
    for (to, at) in LINKS {
        let _ = std::os::unix::fs::symlink(to, at);
    }
}

/// The disk that can only be read. A guest has at most one, with the driver's root.
fn read_only_disk(disks: &Path) -> Option<PathBuf> {
    let disks = fs::read_dir(disks).ok()?.flatten();
    let is_read_only = |disk: &fs::DirEntry| {
        disk.file_name().to_string_lossy().starts_with("vd")
            && fs::read_to_string(disk.path().join("ro")).is_ok_and(|said| said.trim() == "1")
    };
    let disk = disks.into_iter().find(is_read_only)?;
    Some(Path::new("/dev").join(disk.file_name()))
}

/// Without its root the driver is not started, which is reported there.
fn mount_driver_root(disk: &Path) {
    let mounted = fs::create_dir_all(DRIVER_ROOT).and_then(|()| {
        let flags = MsFlags::MS_RDONLY;
        mount(Some(disk), DRIVER_ROOT, Some("ext4"), flags, None::<&str>).map_err(io::Error::from)
    });
    if let Err(error) = mounted {
        let _ = fs::remove_dir(DRIVER_ROOT);
        eprintln!("guest: cannot mount the driver's root: {error}");
    }
}

/// Whether a mount at a path would hide files that the archive has brought into its directory.
fn hides_files(at: &str, directory: &Path) -> bool {
    at == MAY_HAVE_FILES && fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some())
}

/// Loads the modules of a list, in its order; a module that is loaded already is no error.
fn load_modules(list: &Path) -> BTreeMap<String, String> {
    let listed = fs::read_to_string(list).unwrap_or_default();
    let load = |name: &str| Some((name.to_owned(), load_module(name, c"").err()?.to_string()));
    listed.lines().filter_map(load).collect()
}

fn load_module(name: &str, parameters: &CStr) -> io::Result<()> {
    let file = File::open(Path::new(MODULE_DIR).join(format!("{name}.ko")))?;
    match finit_module(file, parameters, ModuleInitFlags::empty()) {
        Ok(()) | Err(nix::Error::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn loopback_up() {
    // SAFETY: the socket is a plain descriptor closed below, and the request is a zeroed struct whose name
    // and flags are set before the kernel reads it.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &request) != 0 {
            eprintln!("guest: cannot bring up lo: {}", io::Error::last_os_error());
        }
        libc::close(socket);
    }
}

fn hello(module_errors: &BTreeMap<String, String>) -> Told {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let uptime: f64 = read("/proc/uptime").split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
    Told::Hello {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        uptime_ms: (uptime * 1000.0) as u64,
        module_errors: module_errors.clone(),
    }
}

/// Opens the virtio port of that name; the device may come up a moment after its module.
fn open_port(name: &str) -> io::Result<File> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(path) = find_port(name) {
            return OpenOptions::new().read(true).write(true).open(path);
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("there is no virtio port `{name}`")));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn find_port(name: &str) -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let port = ports
        .flatten()
        .find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|found| found.trim() == name))?;
    Some(Path::new("/dev").join(port.file_name()))
}

fn set_clock(now_ns: i64) {
    let now = libc::timespec { tv_sec: now_ns / 1_000_000_000, tv_nsec: now_ns % 1_000_000_000 };
    // SAFETY: `now` is a valid timespec that lives for the call.
    if unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &now) } != 0 {
        eprintln!("guest: cannot set the clock: {}", io::Error::last_os_error());
    }
}

fn take(data: &mut File, path: &Path, len: u64, mode: u32) -> io::Result<()> {
    // The bytes are on their way even after an error here, and must be taken off the port.
    let mut bytes = data.take(len);
    let written = (|| {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
        io::copy(&mut bytes, &mut file)
    })();
    io::copy(&mut bytes, &mut io::sink())?;
    written.map(drop)
}

fn give(data: &mut File, voice: &Voice, path: &Path) -> io::Result<()> {
    let archive = (|| {
        let mut archive = tar::Builder::new(Vec::new());
        archive.follow_symlinks(false);
        if path.is_dir() {
            archive.append_dir_all(".", path)?;
        } else {
            archive.append_path_with_name(path, path.file_name().unwrap_or_default())?;
        }
        archive.into_inner()
    })();
    match archive {
        Ok(bytes) => {
            voice.tell(&Told::Given { len: bytes.len() as u64, error: None });
            data.write_all(&bytes)
        }
        Err(error) => {
            voice.tell(&Told::Given { len: 0, error: Some(error.to_string()) });
            Ok(())
        }
    }
}

fn power_off() -> ! {
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // Only a PID 1 without the right to power off comes here, and its end is a panic of the kernel.
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_of_the_driver_is_the_one_that_can_only_be_read() {
        let disks = tempfile::tempdir().unwrap();
        for (name, read_only) in [("loop0", "1"), ("vda", "0"), ("vdb", "1")] {
            fs::create_dir(disks.path().join(name)).unwrap();
            fs::write(disks.path().join(name).join("ro"), format!("{read_only}\n")).unwrap();
        }
        assert_eq!(read_only_disk(disks.path()), Some(PathBuf::from("/dev/vdb")));
        fs::write(disks.path().join("vdb/ro"), "0\n").unwrap();
        assert_eq!(read_only_disk(disks.path()), None);
    }

    #[test]
    fn files_below_the_directory_for_temporary_files_are_not_mounted_over() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!hides_files("/tmp", dir.path()), "an empty one is mounted like the others");
        fs::write(dir.path().join("my-driver"), "").unwrap();
        assert!(hides_files("/tmp", dir.path()));
        assert!(!hides_files("/run", dir.path()));
    }
}
