//! Loop devices, found by their backing file.
//!
//! The kernel detaches the device of a mounted file system with its last mount: the driver closes its own descriptor
//! right after mounting. A block volume may be closed between two opens, so its device stays attached until the
//! driver detaches it, and survives the driver's death.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use linux_raw_sys::loop_device::{loop_config, loop_info64};

use super::KernelError;

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;

mod ioctl {
    use linux_raw_sys::loop_device::{loop_config, loop_info64};

    nix::ioctl_none_bad!(get_free, 0x4c82);
    nix::ioctl_none_bad!(clear, 0x4c01);
    nix::ioctl_none_bad!(set_capacity, 0x4c07);
    nix::ioctl_read_bad!(get_status, 0x4c05, loop_info64);
    nix::ioctl_write_ptr_bad!(set_status, 0x4c04, loop_info64);
    nix::ioctl_write_ptr_bad!(configure, 0x4c0a, loop_config);
}

/// The time at which the device is detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// By the kernel, after the last mount or close.
    UntilUnused,
    /// By the driver, which must not forget it.
    UntilDetached,
}

/// An open loop device.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    file: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `image` to a free device.
    pub(crate) fn attach(image: &Path, read_only: bool, lifetime: Lifetime) -> Result<Self, KernelError> {
        let backing = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .open(image)
            .map_err(|source| KernelError::path("open", image, source))?;
        let control = File::open("/dev/loop-control")
            .map_err(|source| KernelError::path("open", "/dev/loop-control", source))?;
        let config = configuration(&backing, read_only, lifetime);
        loop {
            // SAFETY: the descriptor is open for the duration of the call, which takes no argument.
            let number = unsafe { ioctl::get_free(control.as_raw_fd()) }
                .map_err(|errno| KernelError::path("find a loop device for", image, errno))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = match open_device(&path, read_only) {
                Ok(file) => file,
                // Another process took the free number first.
                Err(error) if is_lost_race(&error) => continue,
                Err(source) => return Err(KernelError::path("open", path, source)),
            };
            // SAFETY: `config` is a whole `loop_config`, and both descriptors outlive the call.
            match unsafe { ioctl::configure(file.as_raw_fd(), &config) } {
                Ok(_) => return Ok(Self { file, path }),
                Err(nix::Error::EBUSY) => {}
                Err(errno) => return Err(KernelError::pair("attach", image, path, errno)),
            }
        }
    }

    /// The read-only or writable device that `image` is attached to.
    pub(crate) fn find(image: &Path, read_only: bool) -> Result<Option<Self>, KernelError> {
        let wanted = match fs::metadata(image) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(KernelError::path("look at", image, source)),
        };
        for path in attached(image)? {
            // The device may have been detached since the listing, and attached to another file.
            let Ok(file) = open_device(&path, read_only) else { continue };
            let Some(status) = status(&file) else { continue };
            let same = status.lo_device == wanted.dev() && status.lo_inode == wanted.ino();
            if same && (status.lo_flags & READ_ONLY != 0) == read_only {
                return Ok(Some(Self { file, path }));
            }
        }
        Ok(None)
    }

    /// The device of `image`, attached if necessary.
    ///
    /// Two processes get the same device for an image, since two devices would have separate page caches.
    pub(crate) fn find_or_attach(
        image: &Path,
        read_only: bool,
        lifetime: Lifetime,
    ) -> Result<Self, KernelError> {
        let guard = File::open(image).map_err(|source| KernelError::path("open", image, source))?;
        rustix::fs::flock(&guard, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|errno| KernelError::path("lock", image, errno))?;
        match Self::find(image, read_only)? {
            Some(device) => {
                if lifetime == Lifetime::UntilDetached {
                    device.keep()?;
                }
                Ok(device)
            }
            None => Self::attach(image, read_only, lifetime),
        }
    }

    /// Clears the flag that lets the kernel detach the device: its last user may be closing it.
    fn keep(&self) -> Result<(), KernelError> {
        let Some(mut status) = status(&self.file) else { return Ok(()) };
        if status.lo_flags & AUTOCLEAR == 0 {
            return Ok(());
        }
        status.lo_flags &= !AUTOCLEAR;
        // SAFETY: the descriptor is open, and `status` is what the kernel gave us but for one flag.
        unsafe { ioctl::set_status(self.file.as_raw_fd(), &status) }
            .map(drop)
            .map_err(|errno| KernelError::path("keep", &self.path, errno))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the device's size to that of its file.
    pub(crate) fn grow(&self) -> Result<(), KernelError> {
        // SAFETY: the descriptor is open, and the call takes no argument.
        unsafe { ioctl::set_capacity(self.file.as_raw_fd()) }
            .map(drop)
            .map_err(|errno| KernelError::path("grow", &self.path, errno))
    }

    /// Writes the device's page cache to its file.
    pub(crate) fn sync(&self) -> Result<(), KernelError> {
        self.file.sync_all().map_err(|source| KernelError::path("sync", &self.path, source))
    }

    /// Detaches the device: at once, or at its last close if it is open elsewhere.
    pub(crate) fn detach(self) -> Result<(), KernelError> {
        self.sync()?;
        // SAFETY: the descriptor is open, and the call takes no argument.
        match unsafe { ioctl::clear(self.file.as_raw_fd()) } {
            Ok(_) | Err(nix::Error::ENXIO) => Ok(()),
            Err(errno) => Err(KernelError::path("detach", &self.path, errno)),
        }
    }
}

/// Detaches every device of `image`, and returns their number.
pub(crate) fn detach_all(image: &Path) -> Result<usize, KernelError> {
    let mut count = 0;
    for read_only in [true, false] {
        while let Some(device) = LoopDevice::find(image, read_only)? {
            let path = device.path.clone();
            device.detach()?;
            count += 1;
            if !wait_until_detached(&path, image) {
                // Another process has the device open. The kernel detaches it at its last close.
                break;
            }
        }
    }
    Ok(count)
}

/// Devices whose backing file's path is below `directory`, with those paths.
pub(crate) fn below(directory: &Path) -> Result<Vec<(PathBuf, PathBuf)>, KernelError> {
    Ok(listed()?.into_iter().filter(|(_, file)| file.starts_with(directory)).collect())
}

/// Devices whose backing file may be `image`, by path. Of a file that the same driver opened in another mount
/// namespace, before its container was restarted, sysfs shows only the end of the path.
fn attached(image: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let may_be = |file: &Path| file == image || image.ends_with(file.strip_prefix("/").unwrap_or(file));
    Ok(listed()?.into_iter().filter(|(_, file)| may_be(file)).map(|(device, _)| device).collect())
}

fn listed() -> Result<Vec<(PathBuf, PathBuf)>, KernelError> {
    const BLOCK: &str = "/sys/devices/virtual/block";
    let mut found = Vec::new();
    for entry in fs::read_dir(BLOCK).map_err(|source| KernelError::path("list", BLOCK, source))?.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b"loop") {
            continue;
        }
        // Missing if the device is not attached.
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let file = file.trim_end_matches('\n');
        let file = file.strip_suffix(" (deleted)").unwrap_or(file);
        found.push((Path::new("/dev").join(name), PathBuf::from(file)));
    }
    Ok(found)
}

/// Whether a device of `image` is in use. One that was unmounted goes a moment later if another process has just looked at
/// it.
pub(crate) fn stays_attached(image: &Path) -> Result<bool, KernelError> {
    for _ in 0..50 {
        // By the identity of the file: images of drivers in other sandboxes have the same path.
        if LoopDevice::find(image, false)?.is_none() {
            return Ok(false);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(true)
}

fn wait_until_detached(device: &Path, image: &Path) -> bool {
    for _ in 0..50 {
        match attached(image) {
            Ok(devices) if devices.iter().all(|path| path != device) => return true,
            _ => std::thread::sleep(std::time::Duration::from_millis(2)),
        }
    }
    false
}

fn status(file: &File) -> Option<loop_info64> {
    // SAFETY: `loop_info64` is numbers only, for which zero is a value.
    let mut status: loop_info64 = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and `status` is a whole `loop_info64` to be written to.
    unsafe { ioctl::get_status(file.as_raw_fd(), &mut status) }.ok()?;
    Some(status)
}

fn configuration(backing: &File, read_only: bool, lifetime: Lifetime) -> loop_config {
    // SAFETY: `loop_config` is numbers only, for which zero is a value and mostly the right one.
    let mut config: loop_config = unsafe { std::mem::zeroed() };
    config.fd = u32::try_from(backing.as_raw_fd()).expect("an open descriptor is not negative");
    config.info.lo_flags = if read_only { READ_ONLY } else { 0 };
    if lifetime == Lifetime::UntilUnused {
        config.info.lo_flags |= AUTOCLEAR;
    }
    config
}

fn open_device(path: &Path, read_only: bool) -> io::Result<File> {
    const O_CLOEXEC: i32 = nix::libc::O_CLOEXEC;
    OpenOptions::new().read(true).write(!read_only).custom_flags(O_CLOEXEC).open(path)
}

fn is_lost_race(error: &io::Error) -> bool {
    use nix::libc::{ENODEV, ENOENT, ENXIO};
    matches!(error.raw_os_error(), Some(ENODEV | ENOENT | ENXIO))
}
