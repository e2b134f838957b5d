//! The limits of an image, and what an image has used of them. A few bytes can be compressed data of any length.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::Path;

use crate::error::ImageError;

/// The most that an image may unpack to.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 8 << 30, entries: 2_000_000 }
    }
}

impl Limits {
    /// The limits for messages.
    pub(crate) fn words(self) -> String {
        let bytes = match self.bytes {
            gigabytes if gigabytes.is_multiple_of(1 << 30) => format!("{} GiB", gigabytes >> 30),
            bytes => format!("{bytes} bytes"),
        };
        format!("{bytes} or {} entries", self.entries)
    }
}

/// The part of the limits that is left to one pass over an image.
pub(crate) struct Budget<'a> {
    limits: Limits,
    /// Bytes that may still be read from compressed data.
    read: Cell<u64>,
    /// Bytes that may still be written: a sparse file has more of them than its archive.
    written: Cell<u64>,
    entries: Cell<u64>,
    is_exhausted: Cell<bool>,
    is_unwanted: &'a dyn Fn() -> bool,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(limits: Limits, is_unwanted: &'a dyn Fn() -> bool) -> Self {
        Self {
            limits,
            // An entry has a header, and is padded.
            read: Cell::new(limits.bytes.saturating_add(limits.entries.saturating_mul(4096))),
            written: Cell::new(limits.bytes),
            entries: Cell::new(limits.entries),
            is_exhausted: Cell::new(false),
            is_unwanted,
        }
    }

    /// The error of a pass over this image that was ended by the caller or by the limits; `None` if it was not.
    pub(crate) fn ended(&self, image: &Path) -> Option<ImageError> {
        let image = image.to_owned();
        if (self.is_unwanted)() {
            return Some(ImageError::Unwanted { image });
        }
        self.is_exhausted.get().then(|| ImageError::TooLarge { image, limit: self.limits.words() })
    }

    /// Takes an entry with so many bytes.
    pub(crate) fn take_entry(&self, bytes: u64) -> io::Result<()> {
        self.take(&self.entries, 1)?;
        self.take(&self.written, bytes)
    }

    /// Decompressed data, which ends with an error at the limit and when the caller gives up.
    pub(crate) fn reader<R: Read>(&self, inner: R) -> Limited<'_, 'a, R> {
        Limited { inner, budget: self }
    }

    fn take(&self, from: &Cell<u64>, amount: u64) -> io::Result<()> {
        match from.get().checked_sub(amount) {
            Some(left) => {
                from.set(left);
                Ok(())
            }
            None => {
                self.is_exhausted.set(true);
                Err(io::Error::other("too much"))
            }
        }
    }
}

/// A reader within a budget.
pub(crate) struct Limited<'b, 'a, R> {
    inner: R,
    budget: &'b Budget<'a>,
}

impl<R: Read> Read for Limited<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.budget.is_unwanted)() {
            return Err(io::Error::other("the caller gave up"));
        }
        let read = self.inner.read(buffer)?;
        self.budget.take(&self.budget.read, read as u64)?;
        Ok(read)
    }
}
