//! A limit on the headers of an archive's entries: long names and extensions are read into memory as a whole.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};

/// The most bytes that the headers of one entry may have.
const HEADERS: u64 = 1 << 20;

/// The bytes that headers may still have; `None` while something else is read.
#[derive(Debug, Default)]
pub(crate) struct Headers(Cell<Option<u64>>);

impl Headers {
    /// Has the headers of one entry read, by a reader that belongs to this limit.
    pub(crate) fn limited<T>(&self, read: impl FnOnce() -> T) -> T {
        self.0.set(Some(HEADERS));
        let read = read();
        self.0.set(None);
        read
    }

    pub(crate) fn reader<R>(&self, inner: R) -> Limited<'_, R> {
        Limited { inner, headers: self }
    }
}

/// A reader of an archive.
pub(crate) struct Limited<'a, R> {
    inner: R,
    headers: &'a Headers,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(left) = self.headers.0.get() {
            let left = left.checked_sub(read as u64).ok_or_else(|| {
                let words = format!("the headers of an entry have more than {} KiB", HEADERS >> 10);
                io::Error::new(io::ErrorKind::FileTooLarge, words)
            })?;
            self.headers.0.set(Some(left));
        }
        Ok(read)
    }
}

impl<R: Seek> Seek for Limited<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
