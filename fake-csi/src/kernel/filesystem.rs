//! File systems on images: probes, makes, grows and freezes them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use super::{KernelError, tool};

mod ioctl {
    nix::ioctl_write_ptr!(ext4_resize, b'f', 16, u64);
    nix::ioctl_readwrite!(freeze, b'X', 119, i32);
    nix::ioctl_readwrite!(thaw, b'X', 120, i32);
}

/// The file systems that the driver can make, each with the smallest image on which it works and can grow.
pub(crate) const KINDS: [(&str, u64); 3] = [("ext4", 1 << 20), ("xfs", 300 << 20), ("btrfs", 256 << 20)];

/// Bytes of the smallest image for a file system; `None` if the driver does not know it.
pub(crate) fn smallest(fs_type: &str) -> Option<u64> {
    KINDS.iter().find(|(name, _)| *name == fs_type).map(|(_, bytes)| *bytes)
}

/// The content of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Contents {
    /// No byte was ever written.
    Nothing,
    /// A file system of this type.
    Filesystem(&'static str),
    /// Any other data.
    Unknown,
}

/// Reads the signatures itself: the failure of a tool could be taken for an empty image.
pub(crate) fn probe(image: &Path) -> Result<Contents, KernelError> {
    let failed = |source| KernelError::path("probe", image, source);
    let file = File::open(image).map_err(failed)?;
    let magic = |offset: u64, wanted: &[u8]| -> io::Result<bool> {
        let mut found = vec![0; wanted.len()];
        match file.read_exact_at(&mut found, offset) {
            Ok(()) => Ok(found == wanted),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    };
    for (name, offset, wanted) in
        [("ext4", 1080, &b"\x53\xef"[..]), ("xfs", 0, &b"XFSB"[..]), ("btrfs", 65600, &b"_BHRfS_M"[..])]
    {
        if magic(offset, wanted).map_err(failed)? {
            return Ok(Contents::Filesystem(name));
        }
    }
    match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)) {
        Err(rustix::io::Errno::NXIO) => Ok(Contents::Nothing),
        Ok(_) => Ok(Contents::Unknown),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Makes a file system; the image's old content is lost.
pub(crate) fn make(image: &Path, fs_type: &str) -> Result<(), KernelError> {
    let mut command = tool(&format!("mkfs.{fs_type}"));
    match fs_type {
        // Nothing is left to lazy initialisation: its kernel thread would keep the device busy.
        "ext4" => {
            command.args(["-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
        }
        "xfs" => command.args(["-q", "-f", "-K"]),
        _ => command.args(["-q", "-f", "-K"]),
    };
    run(command.arg(image))
}

/// Gives a copy of a file system a UUID of its own, if it could not be mounted beside its original otherwise.
pub(crate) fn make_distinct(image: &Path, fs_type: &str) -> Result<(), KernelError> {
    match fs_type {
        "btrfs" => run(tool("btrfstune").args(["-f", "-u"]).arg(image)),
        // ext4 needs none, and xfs is always mounted with `nouuid`.
        _ => Ok(()),
    }
}

/// Grows an unmounted ext4 to the size of its image. `false` for other types, which grow only while mounted.
///
/// Growing a mounted ext4 needs CAP_SYS_RESOURCE, which a container may lack; this needs no capability.
pub(crate) fn grow_unmounted(image: &Path, fs_type: &str) -> Result<bool, KernelError> {
    if fs_type != "ext4" {
        return Ok(false);
    }
    // resize2fs insists on a check. Its exit code 1 means that errors were repaired.
    let check = tool("e2fsck").args(["-f", "-p"]).arg(image).output();
    if let Ok(output) = check
        && output.status.code().is_none_or(|code| code > 1)
    {
        let output = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        return Err(KernelError::Tool { command: format!("e2fsck {}", image.display()), output });
    }
    run(tool("resize2fs").arg(image)).map(|()| true)
}

/// Grows a mounted file system to the size of its device.
pub(crate) fn grow(mounted_at: &Path, fs_type: &str, device_bytes: u64) -> Result<(), KernelError> {
    match fs_type {
        "ext4" => grow_ext4(mounted_at, device_bytes),
        "xfs" => run(tool("xfs_growfs").arg(mounted_at)),
        "btrfs" => run(tool("btrfs").args(["filesystem", "resize", "max"]).arg(mounted_at)),
        _ => Ok(()),
    }
}

fn grow_ext4(mounted_at: &Path, device_bytes: u64) -> Result<(), KernelError> {
    let failed = |source: io::Error| KernelError::path("grow", mounted_at, source);
    let root = File::open(mounted_at).map_err(failed)?;
    let now = rustix::fs::fstatvfs(&root).map_err(|errno| failed(errno.into()))?;
    let blocks = device_bytes / now.f_bsize;
    // SAFETY: the descriptor is open, and the kernel reads one u64.
    match unsafe { ioctl::ext4_resize(root.as_raw_fd(), &blocks) } {
        Ok(_) => Ok(()),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// A frozen file system: completely on its device, and writers wait until this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen(File);

impl Frozen {
    pub(crate) fn new(mounted_at: &Path) -> Result<Self, KernelError> {
        let root = File::open(mounted_at).map_err(|source| KernelError::path("open", mounted_at, source))?;
        let mut unused = 0;
        // SAFETY: the descriptor is open, and the argument is not used by the kernel.
        unsafe { ioctl::freeze(root.as_raw_fd(), &mut unused) }
            .map_err(|errno| KernelError::path("freeze", mounted_at, errno))?;
        Ok(Self(root))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        thaw_opened(&self.0);
    }
}

/// Thaws the file system at a path, if it is frozen.
pub(crate) fn thaw(mounted_at: &Path) {
    match File::open(mounted_at) {
        Ok(root) => thaw_opened(&root),
        Err(error) => {
            tracing::error!(%error, path = %mounted_at.display(), "cannot open a mount point; its file system may stay frozen")
        }
    }
}

fn thaw_opened(root: &File) {
    let mut unused = 0;
    // SAFETY: the descriptor is open, and the argument is not used by the kernel.
    match unsafe { ioctl::thaw(root.as_raw_fd(), &mut unused) } {
        // EINVAL: the file system was not frozen.
        Ok(_) | Err(nix::Error::EINVAL) => {}
        Err(errno) => tracing::error!(%errno, "cannot thaw a file system; its writers stay blocked"),
    }
}

/// Runs a tool. The error has its output.
fn run(command: &mut Command) -> Result<(), KernelError> {
    let program = words(command);
    let output = command
        .output()
        .map_err(|error| KernelError::Tool { command: program.clone(), output: error.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let mut text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.is_empty() {
        text = output.status.to_string();
    }
    Err(KernelError::Tool { command: program, output: text })
}

fn words(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}
