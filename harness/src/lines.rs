//! A writer that changes each line before it passes it on. Touches nothing else.

use std::io::{self, Write};

/// A change of lines.
pub trait Change {
    /// The bytes in place of a line, which may lack its end.
    fn change(&self, line: Vec<u8>) -> Vec<u8>;
}

/// `None` changes nothing.
impl<C: Change> Change for Option<C> {
    fn change(&self, line: Vec<u8>) -> Vec<u8> {
        match self {
            Some(change) => change.change(line),
            None => line,
        }
    }
}

/// A writer of changed lines. A line without an end is written when the writer is flushed.
#[derive(Debug)]
pub struct Changed<W, C> {
    to: W,
    change: C,
    line: Vec<u8>,
}

impl<W: Write, C: Change> Changed<W, C> {
    pub fn new(to: W, change: C) -> Self {
        Self { to, change, line: Vec::new() }
    }

    pub fn into_inner(self) -> W {
        self.to
    }

    /// Writes the part of a line that has been read.
    fn pass(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.to.write_all(&self.change.change(line))
    }
}

impl<W: Write, C: Change> Write for Changed<W, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.pass()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.pass()?;
        }
        self.to.flush()
    }
}
