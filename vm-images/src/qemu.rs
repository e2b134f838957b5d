//! Boots a guest and holds the line to it; a guest never outlives the process that booted it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::protocol::{CONTROL_PORT, DATA_PORT, Order, Told};

mod accelerator;
mod log;
mod snapshot;

pub use accelerator::{Accelerator, Verdict, probe};
pub use log::{KernelTrouble, trouble_in};
pub use snapshot::SnapshotError;

/// What a guest is booted from.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The emulator's program.
    pub qemu: PathBuf,
    /// The kernel image.
    pub kernel: PathBuf,
    /// The root, as [`crate::initramfs`] wrote it.
    pub initramfs: PathBuf,
    /// What PID 1 is called with after its own name.
    pub init: Vec<String>,
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// Disks that outlive the guest, as raw files.
    pub disks: Vec<PathBuf>,
}

/// What stood in the way of booting, or ended a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The emulator could not be started.
    #[error("cannot start `{qemu}`")]
    Start {
        /// Its program.
        qemu: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The guest did not say hello in time.
    #[error("the guest did not come up within {}s: {last}", within.as_secs())]
    NoHello {
        /// How long was waited.
        within: Duration,
        /// The last line of its kernel log, or what the emulator said.
        last: String,
    },
    /// The guest's kernel is in trouble.
    #[error("the guest's kernel failed: {0}")]
    Kernel(KernelTrouble),
    /// The line to the guest is dead.
    #[error("the guest is gone")]
    Gone(#[source] io::Error),
    /// The guest did not answer in time.
    #[error("the guest did not answer within {}s", within.as_secs())]
    Silent {
        /// How long was waited.
        within: Duration,
    },
    /// It answered something that was not asked.
    #[error("the guest answered out of turn: {said}")]
    OutOfTurn {
        /// What it said.
        said: String,
    },
    /// It could not do what was asked.
    #[error("the guest could not: {why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// A snapshot could not be taken or used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    control: BufReader<UnixStream>,
    data: UnixStream,
    monitor: BufReader<UnixStream>,
    child: Child,
    /// Sockets, kernel log and what the emulator said; dropped after the emulator.
    dir: TempDir,
}

impl Guest {
    /// Boots a guest and waits for its hello.
    pub fn boot(boot: &Boot, within: Duration) -> Result<(Self, Told), GuestError> {
        let mut guest = Self::start(boot, None, within)?;
        let hello = guest.hear(within).map_err(|error| guest.why_no_hello(error, within))?;
        Ok((guest, hello))
    }

    /// Starts the emulator and takes its three lines; the guest itself may not be up yet.
    fn start(boot: &Boot, from: Option<&Path>, within: Duration) -> Result<Self, GuestError> {
        let failed = |source| GuestError::Start { qemu: boot.qemu.clone(), source };
        let dir = tempfile::Builder::new().prefix("volproof-vm.").tempdir().map_err(failed)?;
        // We listen and the emulator connects: there is nothing to poll for.
        let listen = |name: &str| UnixListener::bind(dir.path().join(name));
        let listeners = ["control", "data", "monitor"].map(listen);
        let mut command = Command::new(&boot.qemu);
        command.args(arguments(boot, dir.path()));
        if let Some(snapshot) = from {
            command.arg("-incoming").arg(format!("file:{}", snapshot.display()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(dir.path().join("qemu.log")).map_err(failed)?);
        // Its own group, so that Ctrl-C at the terminal reaches us and not the guest.
        command.process_group(0);
        // SAFETY: prctl is the only call between fork and exec.
        unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
        let mut child = command.spawn().map_err(failed)?;
        let [control, data, monitor] =
            listeners.map(|listener| listener.and_then(|listener| accept(&listener, &mut child, within)));
        match (control, data, monitor) {
            (Ok(control), Ok(data), Ok(monitor)) => {
                let (control, monitor) = (BufReader::new(control), BufReader::new(monitor));
                Ok(Self { control, data, monitor, child, dir })
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                let _ = child.kill();
                let _ = child.wait();
                let said = fs::read_to_string(dir.path().join("qemu.log")).unwrap_or_default();
                let said = said.lines().last().unwrap_or("it said nothing").to_owned();
                Err(failed(io::Error::new(error.kind(), format!("{error}: {said}"))))
            }
        }
    }

    /// Gives an order.
    pub fn order(&mut self, order: &Order) -> Result<(), GuestError> {
        let mut line = serde_json::to_vec(order).expect("orders are plain data");
        line.push(b'\n');
        self.control.get_mut().write_all(&line).map_err(GuestError::Gone)
    }

    /// The next thing the guest tells.
    pub fn hear(&mut self, within: Duration) -> Result<Told, GuestError> {
        let line = read_line(&mut self.control, within).map_err(|error| self.why_silent(error, within))?;
        serde_json::from_str(&line).map_err(|_| GuestError::OutOfTurn { said: line })
    }

    /// Puts a file into the guest.
    pub fn put(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), GuestError> {
        self.order(&Order::Put { path: path.to_owned(), len: content.len() as u64, mode })?;
        self.data.write_all(content).map_err(GuestError::Gone)?;
        match self.hear(Duration::from_secs(60))? {
            Told::Taken { error: None } => Ok(()),
            Told::Taken { error: Some(why) } => Err(GuestError::Refused { why }),
            other => Err(GuestError::OutOfTurn { said: format!("{other:?}") }),
        }
    }

    /// Fetches a file or a directory, as a tar archive.
    pub fn get(&mut self, path: &str) -> Result<Vec<u8>, GuestError> {
        self.order(&Order::Get { path: path.to_owned() })?;
        match self.hear(Duration::from_secs(60))? {
            Told::Given { len, error: None } => {
                let mut archive = vec![0; usize::try_from(len).unwrap_or(0)];
                self.data.read_exact(&mut archive).map_err(GuestError::Gone)?;
                Ok(archive)
            }
            Told::Given { error: Some(why), .. } => Err(GuestError::Refused { why }),
            other => Err(GuestError::OutOfTurn { said: format!("{other:?}") }),
        }
    }

    /// The guest's kernel log so far.
    pub fn kernel_log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join("serial.log")).unwrap_or_default())
            .into_owned()
    }

    /// Powers the guest off and waits for the emulator to go.
    pub fn close(mut self) -> Result<(), GuestError> {
        self.order(&Order::PowerOff)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.child.try_wait().map_err(GuestError::Gone)?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(GuestError::Silent { within: Duration::from_secs(10) })
    }

    /// Ends the guest as a power cut would.
    pub fn cut_power(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn why_silent(&mut self, error: io::Error, within: Duration) -> GuestError {
        if let Some(trouble) = trouble_in(&self.kernel_log()) {
            return GuestError::Kernel(trouble);
        }
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => GuestError::Silent { within },
            _ => GuestError::Gone(error),
        }
    }

    fn why_no_hello(&self, error: GuestError, within: Duration) -> GuestError {
        match error {
            GuestError::Silent { .. } | GuestError::Gone(_) => {
                let log = self.kernel_log();
                let last = log.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
                GuestError::NoHello { within, last: last.unwrap_or_else(|| "its kernel said nothing".into()) }
            }
            other => other,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// One line from a socket, within a time.
fn read_line(from: &mut BufReader<UnixStream>, within: Duration) -> io::Result<String> {
    let deadline = Instant::now() + within;
    let mut line = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        from.get_ref().set_read_timeout(Some(left))?;
        // A timeout keeps what was read so far in `line`, and the loop goes on or gives up.
        match from.read_until(b'\n', &mut line) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if line.ends_with(b"\n") => return Ok(String::from_utf8_lossy(&line).into_owned()),
            Ok(_) => {}
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn accept(listener: &UnixListener, child: &mut Child, within: Duration) -> io::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + within;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if child.try_wait()?.is_some() => return Err(io::Error::other("it exited at once")),
            Err(_) if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The emulator's arguments; a snapshot is only good for the very same ones.
fn arguments(boot: &Boot, dir: &Path) -> Vec<String> {
    let place = |name: &str| dir.join(name).display().to_string();
    let append = format!(
        "console=ttyS0 rdinit=/init panic=-1 oops=panic loglevel=4 printk.time=1 -- {}",
        boot.init.join(" ")
    );
    let mut arguments: Vec<String> = [
        ["-M", "pc"],
        ["-accel", boot.accelerator.argument()],
        ["-cpu", boot.accelerator.processor()],
        // One processor: two made tests no faster under emulation, and some ten times slower.
        ["-smp", "1"],
        ["-m", &boot.memory_mib.to_string()],
        ["-display", "none"],
        ["-kernel", &boot.kernel.display().to_string()],
        ["-initrd", &boot.initramfs.display().to_string()],
        ["-append", &append],
        ["-serial", &format!("file:{}", place("serial.log"))],
        ["-device", "virtio-serial-pci"],
        ["-chardev", &format!("socket,id=control,path={}", place("control"))],
        ["-device", &format!("virtserialport,chardev=control,name={CONTROL_PORT}")],
        ["-chardev", &format!("socket,id=data,path={}", place("data"))],
        ["-device", &format!("virtserialport,chardev=data,name={DATA_PORT}")],
        ["-chardev", &format!("socket,id=monitor,path={}", place("monitor"))],
        ["-mon", "chardev=monitor,mode=control"],
    ]
    .iter()
    .flatten()
    .map(|word| (*word).to_owned())
    .collect();
    arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_owned));
    for disk in &boot.disks {
        arguments.extend(["-drive".to_owned(), format!("file={},format=raw,if=virtio", disk.display())]);
    }
    arguments
}
