//! The kernel's messages during a case, and defects of the kernel among them.
//!
//! Reads `/dev/kmsg` from the beginning of the case on. A message that names a device of the case counts for the case;
//! a defect that names no device counts for the run.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

mod splat;

pub use splat::{Splat, SplatKind, devices_named, splats};

#[derive(Debug, thiserror::Error)]
#[error("cannot read the kernel's messages")]
pub struct KernelLogError(#[from] io::Error);

/// A position in the kernel's messages.
#[derive(Debug)]
pub struct KernelLog {
    device: File,
}

/// A message of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Counts from boot.
    pub sequence: u64,
    /// Microseconds since boot.
    pub micros: u64,
    /// Severity of syslog(2): 0 is an emergency, 3 an error, 7 for debugging.
    pub level: u8,
    pub text: String,
}

impl KernelLog {
    /// Starts after the last existing message.
    pub fn start() -> Result<KernelLog, KernelLogError> {
        let mut options = OpenOptions::new();
        let mut device =
            options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open("/dev/kmsg")?;
        device.seek(SeekFrom::End(0))?;
        Ok(KernelLog { device })
    }

    /// Messages since the last call, or since the start. Does not block.
    pub fn read(&mut self) -> Result<Vec<Message>, KernelLogError> {
        let mut messages = Vec::new();
        // Each read returns a whole record of at most 8 KiB.
        let mut record = [0; 8192];
        loop {
            match self.device.read(&mut record) {
                Ok(0) => return Ok(messages),
                Ok(length) => messages.extend(parse(&String::from_utf8_lossy(&record[..length]))),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(messages),
                    // Messages were overwritten before they were read: go on with the oldest existing one.
                    Some(libc::EPIPE | libc::EINTR) => {}
                    _ => return Err(error.into()),
                },
            }
        }
    }
}

/// Parses `6,1234,567890,-;text`. Continuation lines begin with a space and are for programs.
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
    fn record_is_parsed_into_its_fields() {
        let message = parse("28,1042,99000123,-;EXT4-fs (loop3): mounted\n SUBSYSTEM=x\n").unwrap();
        assert_eq!((message.level, message.sequence, message.micros), (4, 1042, 99_000_123));
        assert_eq!(message.text, "EXT4-fs (loop3): mounted");
    }

    #[test]
    fn message_after_the_start_is_read_once() {
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
