//! Boots a guest and holds the line to it; a guest never outlives the thread that booted it.
//!
//! All that is shared with the emulator is handed to it as open files: there is no socket, no log and no
//! directory that a killed run could leave behind.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::descriptors::hand_over;
use crate::protocol::{CONTROL_PORT, DATA_PORT, Order, Told};
use line::Line;

mod accelerator;
mod disk;
mod line;
mod log;
mod machine;
mod shell;
mod snapshot;

pub use accelerator::{Accelerator, Verdict, probe};
pub use disk::Disk;
pub use log::{KernelTrouble, complaints_in, trouble_in};
pub use machine::{Machine, WITHIN};
pub use shell::shell;
pub use snapshot::SnapshotError;

/// The descriptors of the emulator's lines and of the file for the kernel log. They are fixed, since its arguments
/// contain them and a snapshot needs the same arguments.
const CONTROL_FD: RawFd = 20;
const DATA_FD: RawFd = 21;
const MONITOR_FD: RawFd = 22;
const LOG_FD: RawFd = 23;

/// The pause between two looks at the kernel log during a wait.
const LOOK: Duration = Duration::from_millis(50);

/// The time for a failing kernel to print its messages.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The time for a file to get into the guest or out of it.
const TRANSFER: Duration = Duration::from_secs(60);

/// The files and settings that a guest is booted with.
#[derive(Debug, Clone)]
pub struct Boot {
    pub qemu: PathBuf,
    pub kernel: PathBuf,
    /// The root, as [`crate::initramfs`] wrote it.
    pub initramfs: PathBuf,
    /// The arguments of PID 1.
    pub init: Vec<String>,
    pub memory_mib: u32,
    pub accelerator: Accelerator,
    /// Disks that outlive the guest, as raw files.
    pub disks: Vec<PathBuf>,
    /// The disk with the driver's root, which the guest only reads.
    pub root: Option<PathBuf>,
    /// How long the guest may take until it is up.
    pub within: Duration,
}

/// An error of booting, or the end of a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The emulator could not be started.
    #[error("cannot start `{qemu}`")]
    Start { qemu: PathBuf, source: io::Error },
    /// The guest did not say hello in time.
    #[error("the guest did not come up within {within:?}: {last}")]
    NoHello {
        /// The time limit.
        within: Duration,
        /// The last line of its kernel log, or what the emulator said.
        last: String,
    },
    /// The guest ended before it said hello.
    #[error("the guest ended before it came up: {last}")]
    Stillborn {
        /// What the emulator said, or the last line of its kernel log.
        last: String,
    },
    /// The guest's kernel is in trouble.
    #[error("the guest's kernel failed: {0}")]
    Kernel(KernelTrouble),
    /// The line to the guest is closed.
    #[error("the guest is gone: {last}")]
    Gone {
        /// What the emulator said last.
        last: String,
        source: io::Error,
    },
    /// The guest did not answer in time.
    #[error("the guest did not answer within {}s", within.as_secs())]
    Silent {
        /// The time limit.
        within: Duration,
    },
    /// The caller gave up.
    #[error("the guest is no longer wanted")]
    Unwanted,
    /// The answer does not belong to the last order.
    #[error("the guest answered out of turn: {said}")]
    OutOfTurn { said: String },
    /// The guest could not execute an order.
    #[error("the guest could not: {why}")]
    Refused { why: String },
    /// A file from the guest could not be written.
    #[error("cannot keep what the guest gave in `{path}`")]
    Keep {
        /// The directory on this machine.
        path: PathBuf,
        source: io::Error,
    },
    /// A snapshot could not be taken or used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

#[derive(Debug)]
pub struct Guest {
    control: Line,
    data: UnixStream,
    monitor: Line,
    child: Child,
    /// The output of the guest's kernel on its console.
    log: File,
    /// The output of the emulator.
    complaints: File,
    /// The bytes of the log that were searched for trouble, and the result.
    searched: u64,
    trouble: Option<KernelTrouble>,
}

/// The start of a guest. A snapshot is passed to the emulator once that has sent its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Kernel,
    Snapshot,
}

pub const PROGRAM: &str = "qemu-system-x86_64";

/// The path of the emulator, if it is installed.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|path| path.is_file())
}

/// The `unwanted` of a caller that never gives up.
pub fn patient() -> bool {
    false
}

impl Guest {
    /// Boots a guest and waits for its hello, unless `unwanted` becomes true.
    pub fn boot(
        boot: &Boot,
        within: Duration,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<(Self, Told), GuestError> {
        let mut guest = Self::start(boot, From::Kernel)?;
        let hello = guest.hear(within, unwanted).map_err(|error| guest.why_no_hello(error, within))?;
        Ok((guest, hello))
    }

    /// Starts the emulator; the guest itself may not be up yet.
    fn start(boot: &Boot, from: From) -> Result<Self, GuestError> {
        let failed = |source| GuestError::Start { qemu: boot.qemu.clone(), source };
        let memory = |name| memfd_create(name, MFdFlags::MFD_CLOEXEC).map(File::from);
        let log = memory(c"volproof-console").map_err(|errno| failed(errno.into()))?;
        let complaints = memory(c"volproof-qemu").map_err(|errno| failed(errno.into()))?;
        let mut command = Command::new(&boot.qemu);
        command.args(arguments(boot));
        if from == From::Snapshot {
            command.args(["-incoming", "defer"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(complaints.try_clone().map_err(failed)?);
        // Its own group, so that Ctrl-C at the terminal reaches us and not the guest.
        command.process_group(0);
        let mut handed: Vec<(OwnedFd, RawFd)> = vec![(log.try_clone().map_err(failed)?.into(), LOG_FD)];
        let mut line = |number| -> io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            handed.push((theirs.into(), number));
            Ok(ours)
        };
        let control = Line::new(line(CONTROL_FD).map_err(failed)?);
        let data = line(DATA_FD).map_err(failed)?;
        let monitor = Line::new(line(MONITOR_FD).map_err(failed)?);
        hand_over(&mut command, handed);
        // SAFETY: prctl is the only call between fork and exec.
        unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
        let child = command.spawn().map_err(failed)?;
        // Their ends of the lines close with `command`, so that the emulator's end is the lines' end.
        drop(command);
        Ok(Self { control, data, monitor, child, log, complaints, searched: 0, trouble: None })
    }

    pub fn order(&mut self, order: &Order) -> Result<(), GuestError> {
        let line = serde_json::to_vec(order).expect("orders are plain data");
        self.control.say(line).map_err(|error| self.why_gone(error))
    }

    /// The guest's next message within a time; `None` if it sends none. A failing kernel is an error even if the guest
    /// sends a message.
    pub fn next(&mut self, within: Duration) -> Result<Option<Told>, GuestError> {
        let heard = self.control.hear(within);
        if let Some(trouble) = self.trouble() {
            return Err(GuestError::Kernel(trouble));
        }
        match heard {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(message) => Ok(Some(message)),
                Err(_) => Err(GuestError::OutOfTurn { said: line }),
            },
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(self.why_gone(error)),
        }
    }

    /// The guest's next message, unless `unwanted` becomes true.
    pub fn hear(&mut self, within: Duration, unwanted: &dyn Fn() -> bool) -> Result<Told, GuestError> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(message) = self.next(LOOK)? {
                return Ok(message);
            }
            if unwanted() {
                return Err(GuestError::Unwanted);
            }
            if Instant::now() >= deadline {
                return Err(GuestError::Silent { within });
            }
        }
    }

    /// How long the emulator has waited for a processor since it began.
    pub fn starved(&self) -> Duration {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let statistics =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
        statistics.map(|statistics| run_delay(&statistics)).max().unwrap_or_default()
    }

    /// Sets the guest's clock, which answers with another hello.
    fn set_clock(&mut self, within: Duration, unwanted: &dyn Fn() -> bool) -> Result<Told, GuestError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.order(&Order::Hello { now_ns: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX) })?;
        self.hear(within, unwanted)
    }

    /// Puts a file into the guest.
    pub fn put(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), GuestError> {
        self.order(&Order::Put { path: path.to_owned(), len: content.len() as u64, mode })?;
        self.data.write_all(content).map_err(|error| self.why_gone(error))?;
        match self.hear(TRANSFER, &patient)? {
            Told::Taken { error: None } => Ok(()),
            Told::Taken { error: Some(why) } => Err(GuestError::Refused { why }),
            other => Err(GuestError::OutOfTurn { said: format!("{other:?}") }),
        }
    }

    /// Fetches a file or a directory, as a tar archive.
    pub fn get(&mut self, path: &str) -> Result<Vec<u8>, GuestError> {
        self.order(&Order::Get { path: path.to_owned() })?;
        match self.hear(TRANSFER, &patient)? {
            Told::Given { len, error: None } => {
                received(&mut self.data, len).map_err(|error| self.why_gone(error))
            }
            Told::Given { error: Some(why), .. } => Err(GuestError::Refused { why }),
            other => Err(GuestError::OutOfTurn { said: format!("{other:?}") }),
        }
    }

    /// Fetches a directory's content into a directory of this machine.
    pub fn fetch(&mut self, path: &str, into: &Path) -> Result<(), GuestError> {
        let archive = self.get(path)?;
        let mut archive = tar::Archive::new(archive.as_slice());
        // Owners and times of the guest mean nothing here.
        archive.set_preserve_mtime(false);
        archive.unpack(into).map_err(|source| GuestError::Keep { path: into.to_owned(), source })
    }

    /// The guest's kernel log so far.
    pub fn kernel_log(&self) -> String {
        text(&self.log, 0)
    }

    /// Powers the guest off and waits for the emulator to go.
    pub fn close(mut self) -> Result<(), GuestError> {
        self.order(&Order::PowerOff)?;
        let within = Duration::from_secs(10);
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if self.child.try_wait().map_err(|error| self.why_gone(error))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(GuestError::Silent { within })
    }

    /// Ends the guest as a power cut would.
    pub fn cut_power(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The trouble in the kernel log. Once found, it stays.
    fn trouble(&mut self) -> Option<KernelTrouble> {
        if self.trouble.is_some() {
            return self.trouble.clone();
        }
        let new = text(&self.log, self.searched);
        // A line that has not ended is looked at again.
        let whole = new.rfind('\n').map_or(0, |end| end + 1);
        self.trouble = trouble_in(&new[..whole]);
        self.searched += whole as u64;
        if self.trouble.is_some() {
            // The lines after the first one say what is wrong.
            let deadline = Instant::now() + LAST_WORDS;
            while Instant::now() < deadline && !matches!(self.child.try_wait(), Ok(Some(_))) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.trouble.clone()
    }

    fn why_gone(&mut self, source: io::Error) -> GuestError {
        match self.trouble() {
            Some(trouble) => GuestError::Kernel(trouble),
            None => {
                let said = text(&self.complaints, 0);
                let last = said.lines().last().or(Some("its power is off")).map(str::to_owned);
                GuestError::Gone { last: last.unwrap_or_default(), source }
            }
        }
    }

    fn why_no_hello(&self, error: GuestError, within: Duration) -> GuestError {
        let logs = [text(&self.complaints, 0), self.kernel_log()];
        let last = logs.iter().find_map(|log| log.lines().last().map(str::to_owned));
        let last = last.unwrap_or_else(|| "its kernel said nothing".into());
        match error {
            GuestError::Silent { .. } => GuestError::NoHello { within, last },
            GuestError::Gone { .. } => GuestError::Stillborn { last },
            other => other,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// The text of a file from an offset. Each byte that is no text is replaced by one that is.
fn text(file: &File, from: u64) -> String {
    let size = file.metadata().map_or(0, |meta| meta.len());
    let mut bytes = vec![0; usize::try_from(size.saturating_sub(from)).unwrap_or(0)];
    let read = file.read_at(&mut bytes, from).unwrap_or(0);
    bytes.truncate(read);
    bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

/// The emulator's arguments; a snapshot is only good for the very same ones.
fn arguments(boot: &Boot) -> Vec<String> {
    let socket = |name: &str, number: RawFd| format!("socket,id={name},fd={number}");
    let mut arguments = of_the_machine(boot, "loglevel=4");
    arguments.extend(
        [
            ["-chardev", &format!("file,id=console,path=/proc/self/fd/{LOG_FD}")],
            ["-serial", "chardev:console"],
            ["-device", "virtio-serial-pci"],
            ["-chardev", &socket("control", CONTROL_FD)],
            ["-device", &format!("virtserialport,chardev=control,name={CONTROL_PORT}")],
            ["-chardev", &socket("data", DATA_FD)],
            ["-device", &format!("virtserialport,chardev=data,name={DATA_PORT}")],
            ["-chardev", &socket("monitor", MONITOR_FD)],
            ["-mon", "chardev=monitor,mode=control"],
        ]
        .iter()
        .flatten()
        .map(|word| (*word).to_owned()),
    );
    arguments
}

/// The arguments without those for the lines to the guest.
fn of_the_machine(boot: &Boot, loglevel: &str) -> Vec<String> {
    // A busy machine gives an emulated timer its time too late for the kernel's check of it, which panics.
    let append = format!(
        "console=ttyS0 rdinit=/init panic=-1 oops=panic no_timer_check {loglevel} printk.time=1 \
         sysctl.kernel.hung_task_timeout_secs=30 -- {}",
        boot.init.join(" ")
    );
    let mut arguments: Vec<String> = [
        ["-M", "pc"],
        ["-cpu", boot.accelerator.processor()],
        // One processor: with two, no test was faster under emulation, and some were ten times slower.
        ["-smp", "1"],
        ["-m", &boot.memory_mib.to_string()],
        ["-display", "none"],
        ["-kernel", &boot.kernel.display().to_string()],
        ["-initrd", &boot.initramfs.display().to_string()],
        ["-append", &append],
    ]
    .iter()
    .flatten()
    .map(|word| (*word).to_owned())
    .collect();
    arguments.extend(boot.accelerator.arguments().iter().map(|word| (*word).to_owned()));
    arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    // The other disks come first: a case finds its own by its number.
    let disks =
        boot.disks.iter().map(|disk| (disk, "")).chain(boot.root.iter().map(|root| (root, ",readonly=on")));
    for (disk, mode) in disks {
        // A comma in the name of a file is doubled.
        let file = disk.display().to_string().replace(',', ",,");
        arguments.extend(["-drive".to_owned(), format!("file={file},format=raw,if=virtio{mode}")]);
    }
    arguments
}

/// The most bytes of a file from a guest: the guest names the length, and is not trusted.
const MOST: u64 = 1 << 30;

/// Reads a number of bytes from a guest. Allocates only as bytes arrive.
fn received(data: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    if length > MOST {
        let why = format!("the guest announces {length} bytes, and {MOST} are the most that is fetched");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut bytes = Vec::new();
    data.take(length).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        // A guest that dies half-way closes the line.
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The time that a thread has waited for a processor, by its `schedstat`: nanoseconds on one, nanoseconds of waiting, turns.
fn run_delay(statistics: &str) -> Duration {
    let waited = statistics.split_whitespace().nth(1).and_then(|waited| waited.parse().ok());
    waited.map_or(Duration::ZERO, Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_for_a_processor_is_the_second_number() {
        assert_eq!(run_delay("188091 2500000000 2\n"), Duration::from_millis(2500));
        assert_eq!(run_delay(""), Duration::ZERO);
    }

    #[test]
    fn announced_length_is_not_believed() {
        assert_eq!(received(&mut &b"abcd"[..], 3).unwrap(), b"abc");
        let kind = |length| received(&mut &b"abcd"[..], length).unwrap_err().kind();
        assert_eq!(kind(5), io::ErrorKind::UnexpectedEof);
        // The largest length does not allocate more than arrives.
        assert_eq!(kind(MOST), io::ErrorKind::UnexpectedEof);
        assert_eq!(kind(u64::MAX), io::ErrorKind::InvalidData);
    }
}
