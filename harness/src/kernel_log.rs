//! The kernel's messages while a case ran, and whether one of them is a defect of the kernel itself.
//!
//! Reads `/dev/kmsg`, from where it stood when the case began. Messages belong to nobody: one that names a
//! device of the case is the case's, and a defect that names none is the run's.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

mod splat;

pub use splat::{Splat, SplatKind, devices_named, splats};

/// Why the messages cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the kernel's messages")]
pub struct KernelLogError(#[from] io::Error);

/// A place in the kernel's messages.
#[derive(Debug)]
pub struct KernelLog {
    device: File,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its number since boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub micros: u64,
    /// Its severity: 0 is an emergency, 3 an error, 7 a remark.
    pub level: u8,
    /// What it says.
    pub text: String,
}

impl KernelLog {
    /// Starts behind the last message there is.
    pub fn start() -> Result<KernelLog, KernelLogError> {
        let mut options = OpenOptions::new();
        let mut device =
            options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open("/dev/kmsg")?;
        device.seek(SeekFrom::End(0))?;
        Ok(KernelLog { device })
    }

    /// Every message since the last call, or since the start. Never waits.
    pub fn read(&mut self) -> Result<Vec<Message>, KernelLogError> {
        let mut messages = Vec::new();
        // The device gives one whole record a call, at most 8 KiB.
        let mut record = [0; 8192];
        loop {
            match self.device.read(&mut record) {
                Ok(0) => return Ok(messages),
                Ok(length) => messages.extend(parse(&String::from_utf8_lossy(&record[..length]))),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(messages),
                    // Messages were overwritten before they were read: go on with the oldest there is.
                    Some(libc::EPIPE | libc::EINTR) => {}
                    _ => return Err(error.into()),
                },
            }
        }
    }
}

/// `6,1234,567890,-;text`, then continuation lines that begin with a space and are not for people.
fn parse(record: &str) -> Option<Message> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    Some(Message {
        // The facility is above the three bits of the severity.
        level: (priority & 7) as u8,
        sequence: fields.next()?.parse().ok()?,
        micros: fields.next()?.parse().ok()?,
        text: text.lines().next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_taken_apart() {
        let message = parse("28,1042,99000123,-;EXT4-fs (loop3): mounted\n SUBSYSTEM=x\n").unwrap();
        assert_eq!((message.level, message.sequence, message.micros), (4, 1042, 99_000_123));
        assert_eq!(message.text, "EXT4-fs (loop3): mounted");
    }

    #[test]
    fn what_is_written_after_the_start_is_read_once() {
        let Ok(mut log) = KernelLog::start() else {
            eprintln!("ignored: the kernel's messages cannot be read by this user");
            return;
        };
        let marker = format!("volproof: test {}", std::process::id());
        // Without an end of line the kernel waits for more of the message.
        if std::fs::write("/dev/kmsg", format!("{marker}\n")).is_err() {
            eprintln!("ignored: this user cannot write a message");
            return;
        }
        let count = |messages: &[Message]| messages.iter().filter(|m| m.text == marker).count();
        assert_eq!(count(&log.read().unwrap()), 1);
        assert_eq!(count(&log.read().unwrap()), 0);
    }
}
