//! An export of this kernel's own NFS server, without a single program of nfs-utils.
//!
//! The answers of `rpc.mountd` are written into the kernel's caches beforehand. [`rpc`] stands in for `rpcbind` and the
//! MOUNT protocol, which clients of version 3 use, and [`tracking`] for the daemon that remembers clients, so that no client
//! waits for a grace period. Touches `/proc/fs/nfsd`, `/proc/net/rpc`, the
//! ports 111, 2049 and 20048 of this network namespace, and the directory it is given.
//!
//! The kernel has one such server for each network namespace: [`NfsExport::start`] fails if it is running already.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::mount::{MntFlags, MsFlags};
use serde::{Deserialize, Serialize};

use crate::guard::{CloseError, Guard};

mod objects;
mod rpc;
mod tracking;

use rpc::Stub;
use tracking::Tracking;

/// The directory of the files that control the server.
const NFSD: &str = "/proc/fs/nfsd";

/// The name in the kernel's caches of the only client: this machine.
const CLIENT: &str = "volproof";

/// The expiry of cache entries: later than any case.
const FOR_EVER: &str = "2147483647";

/// `insecure_port`, `nosubtreecheck`, `fsid` and `crossmount`: clients may use any port, and the export has the number 0 in
/// handles. Without `root_squash`, as a storage system exports to its nodes.
const FLAGS: u32 = 0x2 | 0x400 | 0x2000 | 0x4000;

/// `root_squash`: a client's root is the user `nobody` here.
const ROOT_SQUASH: u32 = 0x4;

/// The flag that makes an export read-only.
const READ_ONLY: u32 = 0x1;

/// The time for the kernel to release an export's file system after the server has ended.
const RELEASE: Duration = Duration::from_secs(10);

/// A planted fault of the server: a case that passes nevertheless does not check what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Misbehaviour {
    /// The files of the export are gone after the server was stopped and started.
    LosesData,
    /// A withdrawn export can still be used.
    KeepsExport,
    /// The export is read-only.
    ReadOnly,
    /// A stopped server does not start again.
    StaysDown,
    /// A client's root is root, in spite of `root_squash`.
    TrustsRoot,
}

impl Misbehaviour {
    pub const ALL: [Self; 5] =
        [Self::LosesData, Self::KeepsExport, Self::ReadOnly, Self::StaysDown, Self::TrustsRoot];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::LosesData => "loses-data",
            Self::KeepsExport => "keeps-export",
            Self::ReadOnly => "read-only",
            Self::StaysDown => "stays-down",
            Self::TrustsRoot => "trusts-root",
        }
    }
}

impl FromStr for Misbehaviour {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|fault| fault.name() == name).ok_or_else(|| {
            format!("unknown misbehaviour; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// An error of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NfsError {
    /// The machine's own exports must not be touched.
    #[error("cannot serve NFS: this machine's own server is running")]
    InUse,
    /// A call to the kernel was refused.
    #[error("cannot {what} `{path}`")]
    Kernel {
        /// The step that failed.
        what: &'static str,
        /// The kernel's file, or the directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A port is taken.
    #[error("cannot listen on port {port}")]
    Port {
        port: u16,
        #[source]
        source: io::Error,
    },
}

/// A directory that this machine serves to itself.
#[derive(Debug)]
pub struct NfsExport {
    directory: PathBuf,
    misbehaviour: Option<Misbehaviour>,
    /// Whether a client's root is the user `nobody` here.
    squashes_root: bool,
    /// Whether the server has to be stopped. The stubs are dropped after that, as the ending server unregisters with them.
    running: bool,
    /// Whether `start` has mounted the files that control the server.
    mounted: bool,
    tracking: Option<Tracking>,
    _mountd: Stub,
    _rpcbind: Stub,
}

impl NfsExport {
    /// Starts the server, and creates and exports the directory. Takes up to a second.
    ///
    /// # Errors
    /// When the machine serves NFS already, or the kernel refuses.
    pub fn start(directory: &Path, misbehaviour: Option<Misbehaviour>) -> Result<Self, NfsError> {
        fs::create_dir_all(directory).map_err(|source| failed("create", directory, source))?;
        let mounted = mount_control_files()?;
        if is_in_use() {
            return Err(NfsError::InUse);
        }
        let rpcbind = Stub::rpcbind()?;
        let mountd = Stub::mountd(CLIENT, directory)?;
        let tracking = Tracking::start().ok();
        let mut export = Self {
            directory: directory.to_owned(),
            misbehaviour,
            squashes_root: false,
            running: false,
            mounted,
            tracking,
            _mountd: mountd,
            _rpcbind: rpcbind,
        };
        export.serve()?;
        Ok(export)
    }

    /// The directory on the server's side.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The server's address for clients.
    pub fn address(&self) -> &'static str {
        "127.0.0.1"
    }

    /// The path clients ask for: version 4 sees one tree with this export as its root, version 3 sees exports.
    pub fn path(&self, version: u8) -> String {
        match version {
            4 => "/".to_owned(),
            _ => self.directory.to_string_lossy().into_owned(),
        }
    }

    /// Stops the server: clients get no answer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&mut self) -> Result<(), NfsError> {
        self.running = false;
        write("stop", &nfsd("threads"), "0\n")
    }

    /// Starts the stopped server again, with the files that are in the directory.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start_again(&mut self) -> Result<(), NfsError> {
        match self.misbehaviour {
            Some(Misbehaviour::StaysDown) => return Ok(()),
            Some(Misbehaviour::LosesData) => {
                let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
                entries.for_each(|entry| drop(fs::remove_file(entry.path())));
            }
            _ => {}
        }
        self.serve()
    }

    /// Ends the export; clients that have it mounted get a stale handle.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unexport(&self) -> Result<(), NfsError> {
        match self.misbehaviour {
            Some(Misbehaviour::KeepsExport) => Ok(()),
            _ => self.fill_caches(false),
        }
    }

    /// Exports the directory again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn export(&self) -> Result<(), NfsError> {
        self.fill_caches(true)
    }

    /// Makes the export accessible to its owner only, and a client's root the user `nobody` (`root_squash`).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn squash_root(&mut self, owner: u32) -> Result<(), NfsError> {
        let private = fs::Permissions::from_mode(0o700);
        std::os::unix::fs::chown(&self.directory, Some(owner), None)
            .and_then(|()| fs::set_permissions(&self.directory, private))
            .map_err(|source| failed("change owner and mode of", &self.directory, source))?;
        self.squashes_root = true;
        self.fill_caches(true)
    }

    fn serve(&mut self) -> Result<(), NfsError> {
        // Each line must end in a newline, and versions can only be chosen while the server is down.
        write("choose versions in", &nfsd("versions"), "+3 +4 +4.1 +4.2\n")?;
        // The shortest times that a kernel takes. A kernel without these files has its own times.
        drop(write("set", &nfsd("nfsv4leasetime"), "10\n"));
        drop(write("set", &nfsd("nfsv4gracetime"), "10\n"));
        write("listen on the port in", &nfsd("portlist"), "tcp 2049\n")?;
        write("start", &nfsd("threads"), "4\n")?;
        self.running = true;
        // An error is ignored: `tracking` has ended the grace period already, or this kernel has no such file.
        drop(write("end the grace period with", &nfsd("v4_end_grace"), "Y\n"));
        self.fill_caches(true)
    }

    /// Fills the kernel's caches as mountd does: the allowed clients, the exports, and the file systems of handles.
    fn fill_caches(&self, exported: bool) -> Result<(), NfsError> {
        let path = self.directory.display();
        let squash = if self.squashes_root { ROOT_SQUASH } else { 0 };
        let flags = match self.misbehaviour {
            Some(Misbehaviour::ReadOnly) => FLAGS | squash | READ_ONLY,
            Some(Misbehaviour::TrustsRoot) => FLAGS,
            _ => FLAGS | squash,
        };
        let (export, handle) = match exported {
            true => (format!(" {flags} 65534 65534 0"), format!(" {path}")),
            // An entry without its second part says that there is no such export or handle.
            false => (String::new(), String::new()),
        };
        fill("auth.unix.ip", &format!("nfsd 127.0.0.1 {FOR_EVER} {CLIENT}\n"))?;
        fill("nfsd.export", &format!("{CLIENT} {path} {FOR_EVER}{export}\n"))?;
        // Handles of type 1 carry the number of the export, here 0, in four bytes.
        fill("nfsd.fh", &format!("{CLIENT} 1 \\x00000000 {FOR_EVER}{handle}\n"))
    }

    fn end(&mut self) -> Result<(), NfsError> {
        if self.running {
            self.stop()?;
        }
        self.tracking = None;
        // The caches hold the file system of the export until they are flushed to a time after their filling,
        // which they know in whole seconds.
        let deadline = Instant::now() + RELEASE;
        loop {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            for cache in ["nfsd.fh", "nfsd.export", "auth.unix.ip"] {
                let path = PathBuf::from(format!("/proc/net/rpc/{cache}/flush"));
                write("flush", &path, &format!("{now}\n"))?;
            }
            let held = fs::read_to_string("/proc/net/rpc/nfsd.export/content").unwrap_or_default();
            if held.lines().all(|line| line.starts_with('#')) || Instant::now() > deadline {
                break;
            }
            thread::sleep(Duration::from_millis(200));
        }
        if std::mem::take(&mut self.mounted) {
            let unmounted = nix::mount::umount2(NFSD, MntFlags::empty());
            unmounted.map_err(|errno| failed("unmount", Path::new(NFSD), errno.into()))?;
        }
        fs::remove_dir_all(&self.directory).map_err(|source| failed("remove", &self.directory, source))
    }
}

impl Guard for NfsExport {
    fn close(mut self) -> Result<(), CloseError> {
        self.end().map_err(|error| match error {
            NfsError::Kernel { what, path, source } => {
                CloseError::Os { what: format!("{what} `{}`", path.display()), source }
            }
            other => {
                CloseError::Os { what: "end the NFS server".to_owned(), source: io::Error::other(other) }
            }
        })
    }
}

impl Drop for NfsExport {
    fn drop(&mut self) {
        if self.running {
            drop(self.stop());
        }
        if self.mounted {
            let _ = nix::mount::umount2(NFSD, MntFlags::MNT_DETACH);
        }
    }
}

/// Whether the kernel's NFS server already runs.
pub(crate) fn is_in_use() -> bool {
    threads() > 0
}

fn threads() -> u32 {
    fs::read_to_string(nfsd("threads")).ok().and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Mounts the files that control the server, if they are not there. Returns whether it has mounted them.
fn mount_control_files() -> Result<bool, NfsError> {
    let directory = Path::new(NFSD);
    // Loads the module, without which there is not even the directory.
    drop(rustix::mount::fsopen("nfsd", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC));
    if nfsd("threads").exists() {
        return Ok(false);
    }
    nix::mount::mount(Some("nfsd"), directory, Some("nfsd"), MsFlags::empty(), None::<&str>)
        .map_err(|errno| failed("mount", directory, errno.into()))?;
    Ok(true)
}

fn nfsd(file: &str) -> PathBuf {
    Path::new(NFSD).join(file)
}

fn fill(cache: &str, line: &str) -> Result<(), NfsError> {
    write("fill", &PathBuf::from(format!("/proc/net/rpc/{cache}/channel")), line)
}

fn write(what: &'static str, path: &Path, text: &str) -> Result<(), NfsError> {
    let written =
        OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| failed(what, path, source))
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> NfsError {
    NfsError::Kernel { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_misbehaviour_parses_from_its_name() {
        for fault in Misbehaviour::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("polite".parse::<Misbehaviour>().unwrap_err().contains("loses-data"));
    }
}
