//! A writer that changes each line before it passes it on. Touches nothing else.

use std::io::{self, Write};

/// Changes single lines.
pub trait Change {
    /// The bytes to write in place of a line. Only a last line may be without its newline.
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

/// A writer that changes lines. A line without its newline is written when the writer is flushed.
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

    /// Changes and writes the line that was collected so far.
    fn write_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.to.write_all(&self.change.change(line))
    }
}

impl<W: Write, C: Change> Write for Changed<W, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.write_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_line()?;
        }
        self.to.flush()
    }
}
