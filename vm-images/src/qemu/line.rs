//! A socket to the emulator that carries lines of text.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// A socket, and what came of a line that has not ended.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    held: Vec<u8>,
}

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, held: Vec::new() }
    }

    pub(super) fn say(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// Says a line and hands over an open file with it.
    pub(super) fn say_with(&mut self, mut line: Vec<u8>, file: impl AsFd) -> io::Result<()> {
        line.push(b'\n');
        let files = [file.as_fd().as_raw_fd()];
        // The file travels with the first byte, and a socket may take less than the line at once.
        let (first, rest) = line.split_at(1);
        let socket = self.stream.as_raw_fd();
        let with = [ControlMessage::ScmRights(&files)];
        sendmsg::<()>(socket, &[IoSlice::new(first)], &with, MsgFlags::empty(), None)?;
        self.stream.write_all(rest)
    }

    /// The next line. One that does not end within the time is kept for the next call, and the error is
    /// `TimedOut`.
    pub(super) fn hear(&mut self, within: Duration) -> io::Result<String> {
        let deadline = Instant::now() + within;
        let mut searched = 0;
        loop {
            if let Some(end) = self.held[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.held.split_off(searched + end + 1);
                let line = std::mem::replace(&mut self.held, rest);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            searched = self.held.len();
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(left))?;
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.held.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_waits_for_its_other_half() {
        let (mut there, here) = UnixStream::pair().unwrap();
        let mut line = Line::new(here);
        there.write_all(b"one\ntw").unwrap();
        assert_eq!(line.hear(Duration::from_secs(5)).unwrap(), "one\n");
        let error = line.hear(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        there.write_all(b"o\n").unwrap();
        assert_eq!(line.hear(Duration::from_secs(5)).unwrap(), "two\n");
        drop(there);
        assert_eq!(line.hear(Duration::from_secs(5)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
