//! The calls of device-mapper, which no crate wraps: a fixed header, and behind it a table or a message.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

/// The device for these requests.
const CONTROL: &str = "/dev/mapper/control";

/// A `struct dm_ioctl`, and the offsets of its fields that are used here.
const HEADER: usize = 312;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const DEV: usize = 40;
const NAME: usize = 48;
const NAME_LENGTH: usize = 128;

/// A `struct dm_target_spec`: first sector, length, status, next, type.
const TARGET: usize = 40;
const TARGET_TYPE: usize = 24;

const SUSPEND: u32 = 1 << 1;
/// A mounted file system is not frozen first: a disk that fails gives no warning.
const SKIP_LOCKFS: u32 = 1 << 10;

const DEV_CREATE: u32 = 3;
const DEV_REMOVE: u32 = 4;
const DEV_SUSPEND: u32 = 6;
const TABLE_LOAD: u32 = 9;
const TARGET_MSG: u32 = 14;

/// A call about the device of a name.
#[derive(Debug)]
pub(super) struct Call {
    header: Vec<u8>,
}

impl Call {
    pub(super) fn named(name: &str) -> Self {
        let mut header = vec![0; HEADER];
        // The interface's version; the kernel answers with its own.
        put(&mut header, 0, &4_u32.to_ne_bytes());
        // The last byte of the field stays zero.
        let name = &name.as_bytes()[..name.len().min(NAME_LENGTH - 1)];
        put(&mut header, NAME, name);
        Self { header }
    }

    /// Makes a device without a table. Returns its number.
    pub(super) fn create(self) -> io::Result<(u32, u32)> {
        let answer = self.send(DEV_CREATE, 0, 0, &[])?;
        let dev = u64::from_ne_bytes(answer[DEV..DEV + 8].try_into().expect("eight bytes"));
        Ok((libc::major(dev), libc::minor(dev)))
    }

    pub(super) fn remove(self) -> io::Result<()> {
        self.send(DEV_REMOVE, 0, 0, &[]).map(drop)
    }

    /// Prepares a table of one target, which counts from the next resume on.
    pub(super) fn load(self, sectors: u64, target: &str, arguments: &str) -> io::Result<()> {
        let mut table = vec![0; (TARGET + arguments.len() + 1).next_multiple_of(8)];
        put(&mut table, 8, &sectors.to_ne_bytes());
        put(&mut table, TARGET_TYPE, target.as_bytes());
        put(&mut table, TARGET, arguments.as_bytes());
        self.send(TABLE_LOAD, 0, 1, &table).map(drop)
    }

    pub(super) fn suspend(self) -> io::Result<()> {
        self.send(DEV_SUSPEND, SUSPEND | SKIP_LOCKFS, 0, &[]).map(drop)
    }

    pub(super) fn resume(self) -> io::Result<()> {
        self.send(DEV_SUSPEND, 0, 0, &[]).map(drop)
    }

    /// Says something to the target at the device's beginning.
    pub(super) fn message(self, text: &str) -> io::Result<()> {
        let mut message = vec![0; 8 + text.len() + 1];
        put(&mut message, 8, text.as_bytes());
        self.send(TARGET_MSG, 0, 0, &message).map(drop)
    }

    fn send(mut self, number: u32, flags: u32, targets: u32, data: &[u8]) -> io::Result<Vec<u8>> {
        let size = u32::try_from(HEADER + data.len()).expect("tables are short");
        put(&mut self.header, DATA_SIZE, &size.to_ne_bytes());
        put(&mut self.header, DATA_START, &(HEADER as u32).to_ne_bytes());
        put(&mut self.header, TARGET_COUNT, &targets.to_ne_bytes());
        put(&mut self.header, FLAGS, &flags.to_ne_bytes());
        let mut bytes = self.header;
        bytes.extend_from_slice(data);
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        // `_IOWR(0xfd, number, struct dm_ioctl)`.
        let request = 0xc138_fd00 | number;
        // SAFETY: the kernel reads and writes as many bytes as `data_size` says, which is the length of `bytes`.
        match unsafe { libc::ioctl(control.as_raw_fd(), request as libc::Ioctl, bytes.as_mut_ptr()) } {
            0 => Ok(bytes),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}
