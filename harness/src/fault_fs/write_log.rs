//! What was written to a disk, in order, and every state that a power cut could have left it in.
//!
//! Between two flushes a disk may keep what it has received in any order, or lose it. A [`Cut`] says how far
//! a disk got; replayed onto what the disk held at the beginning, it is an image that can be mounted.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

/// A disk writes this many bytes at once, or none of them. File systems rely on it: ext4 writes its superblock,
/// two sectors of old, as one.
const SECTOR: u64 = 4096;

/// One thing that happened to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    Write {
        /// The first byte.
        offset: u64,
        data: Cow<'a, [u8]>,
    },
    /// A range was made to read as zeroes.
    Zero {
        /// The first byte.
        offset: u64,
        /// In bytes.
        length: u64,
    },
    /// Everything before is safe.
    Flush,
    /// The writer had been promised something.
    Mark { label: String },
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the write log `{path}`")]
pub struct WriteLogError {
    /// The log or the image.
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// Appends to a log.
pub(super) struct LogWriter {
    file: File,
}

impl LogWriter {
    /// Begins a log of `disk`, with a copy of what it holds now beside it.
    pub(super) fn start(disk: &File, to: &Path) -> io::Result<LogWriter> {
        super::copy_sparse(disk, &File::create(base_of(to))?)?;
        Ok(LogWriter { file: File::create(to)? })
    }

    pub(super) fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let (kind, offset, data): (u8, u64, &[u8]) = match record {
            Record::Write { offset, data } => (1, *offset, data),
            Record::Zero { offset, length } => (2, *offset, &length.to_le_bytes()),
            Record::Flush => (3, 0, &[]),
            Record::Mark { label } => (4, 0, label.as_bytes()),
        };
        let mut bytes = Vec::with_capacity(17 + data.len());
        bytes.push(kind);
        bytes.extend(offset.to_le_bytes());
        bytes.extend((data.len() as u64).to_le_bytes());
        bytes.extend(data);
        self.file.write_all(&bytes)
    }
}

fn base_of(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".base");
    PathBuf::from(name)
}

/// A log that was read.
#[derive(Debug)]
pub struct WriteLog {
    path: PathBuf,
    records: Vec<Record<'static>>,
}

/// A state in which a power cut could have left a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The number of records that the disk had received.
    pub received: usize,
    /// The writes that the disk had lost: none is older than the last flush.
    pub lost: BTreeSet<usize>,
    /// One of them of which it kept only the first half.
    pub torn: Option<usize>,
}

impl Cut {
    fn clean(received: usize) -> Cut {
        Cut { received, lost: BTreeSet::new(), torn: None }
    }
}

impl WriteLog {
    /// Reads the log that was begun with [`Client::log`](super::Client::log).
    pub fn read(path: &Path) -> Result<WriteLog, WriteLogError> {
        let failed = |source| WriteLogError { path: path.to_owned(), source };
        let mut input = BufReader::new(File::open(path).map_err(failed)?);
        let mut records = Vec::new();
        while let Some(record) = read_record(&mut input).map_err(failed)? {
            records.push(record);
        }
        Ok(WriteLog { path: path.to_owned(), records })
    }

    /// Everything that was written down.
    pub fn records(&self) -> &[Record<'static>] {
        &self.records
    }

    /// The states that matter: for each flush the one directly after it, and, of what followed it up to the
    /// next, with the last write torn, with every other write lost, and with only the last one kept.
    pub fn cuts(&self) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let mut epoch = 0;
        for (index, record) in self.records.iter().enumerate() {
            if *record == Record::Flush {
                cuts.extend(self.reordered(epoch, index));
                cuts.push(Cut::clean(index + 1));
                epoch = index + 1;
            }
        }
        cuts.extend(self.reordered(epoch, self.records.len()));
        cuts
    }

    /// States of a disk that was cut off before the flush at `end`, having received all before it.
    fn reordered(&self, begin: usize, end: usize) -> Vec<Cut> {
        let is_change =
            |index: &usize| matches!(self.records[*index], Record::Write { .. } | Record::Zero { .. });
        let changes: Vec<usize> = (begin..end).filter(is_change).collect();
        let Some((last, others)) = changes.split_last() else { return Vec::new() };
        let mut cuts = vec![Cut { torn: Some(*last), ..Cut::clean(end) }];
        if !others.is_empty() {
            let every_other = others.iter().copied().step_by(2).collect();
            cuts.push(Cut { lost: every_other, ..Cut::clean(end) });
            cuts.push(Cut { lost: others.iter().copied().collect(), ..Cut::clean(end) });
        }
        cuts
    }

    /// The marks that the writer had got before the cut, each after a flush.
    pub fn promised(&self, cut: &Cut) -> Vec<&str> {
        let Some(flush) = self.records[..cut.received].iter().rposition(|r| *r == Record::Flush) else {
            return Vec::new();
        };
        // A mark directly behind the flush was made with nothing more written.
        let after = self.records[flush + 1..].iter();
        let until = flush + 1 + after.take_while(|record| matches!(record, Record::Mark { .. })).count();
        self.records[..until]
            .iter()
            .filter_map(|record| match record {
                Record::Mark { label } => Some(label.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Writes the disk as it was after a cut to `image`.
    pub fn replay(&self, cut: &Cut, image: &Path) -> Result<(), WriteLogError> {
        let failed = |source| WriteLogError { path: image.to_owned(), source };
        let base = File::open(base_of(&self.path)).map_err(failed)?;
        let image =
            File::options().create(true).truncate(true).read(true).write(true).open(image).map_err(failed)?;
        super::copy_sparse(&base, &image).map_err(failed)?;
        for (index, record) in self.records[..cut.received].iter().enumerate() {
            if !cut.lost.contains(&index) {
                apply(record, cut.torn == Some(index), &image).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn apply(record: &Record<'_>, torn: bool, image: &File) -> io::Result<()> {
    match record {
        Record::Write { offset, data } => {
            // Torn where a sector ends, not where the write began.
            let middle = (offset + data.len() as u64 / 2) / SECTOR * SECTOR;
            let kept = if torn { middle.saturating_sub(*offset) as usize } else { data.len() };
            image.write_all_at(&data[..kept], *offset)
        }
        Record::Zero { offset, length } if !torn => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(image, hole, *offset, *length)?)
        }
        Record::Zero { .. } | Record::Flush | Record::Mark { .. } => Ok(()),
    }
}

fn read_record(input: &mut impl Read) -> io::Result<Option<Record<'static>>> {
    let mut head = [0; 17];
    match input.read_exact(&mut head) {
        // The last record of a log whose server was killed may be cut off.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    let mut data = vec![0; number(9) as usize];
    match input.read_exact(&mut data) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let offset = number(1);
    Ok(Some(match head[0] {
        1 => Record::Write { offset, data: data.into() },
        2 => Record::Zero { offset, length: u64::from_le_bytes(std::array::from_fn(|i| data[i])) },
        3 => Record::Flush,
        4 => Record::Mark { label: String::from_utf8_lossy(&data).into_owned() },
        other => return Err(io::Error::other(format!("there is no record of kind {other}"))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8) -> Record<'static> {
        Record::Write { offset, data: vec![byte; 8192].into() }
    }

    fn mark(label: &str) -> Record<'static> {
        Record::Mark { label: label.to_owned() }
    }

    fn logged(records: &[Record<'_>]) -> (tempfile::TempDir, WriteLog) {
        let dir = tempfile::tempdir().unwrap();
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(32768).unwrap();
        let path = dir.path().join("log");
        let mut writer = LogWriter::start(&disk, &path).unwrap();
        for record in records {
            writer.write(record).unwrap();
        }
        let log = WriteLog::read(&path).unwrap();
        assert_eq!(log.records(), records);
        (dir, log)
    }

    fn image(log: &WriteLog, cut: &Cut, dir: &tempfile::TempDir) -> Vec<u8> {
        let image = dir.path().join("image");
        log.replay(cut, &image).unwrap();
        let bytes = std::fs::read(image).unwrap();
        // The first byte of each sector is enough.
        bytes.iter().copied().step_by(4096).collect()
    }

    #[test]
    fn every_flush_and_what_could_follow_it_is_a_state() {
        let records = [
            write(0, 1),
            Record::Flush,
            mark("one"),
            write(8192, 2),
            write(16384, 3),
            write(24576, 4),
            Record::Flush,
            mark("two"),
        ];
        let (dir, log) = logged(&records);
        let seen: Vec<(Vec<u8>, Vec<&str>)> =
            log.cuts().iter().map(|cut| (image(&log, cut, &dir), log.promised(cut))).collect();
        let none = Vec::<&str>::new();
        let expected = vec![
            (vec![1, 0, 0, 0, 0, 0, 0, 0], none),
            (vec![1, 1, 0, 0, 0, 0, 0, 0], vec!["one"]),
            (vec![1, 1, 2, 2, 3, 3, 4, 0], vec!["one"]),
            (vec![1, 1, 0, 0, 3, 3, 4, 4], vec!["one"]),
            (vec![1, 1, 0, 0, 0, 0, 4, 4], vec!["one"]),
            (vec![1, 1, 2, 2, 3, 3, 4, 4], vec!["one", "two"]),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_mark_without_a_flush_before_it_is_no_promise() {
        let (_dir, log) = logged(&[write(0, 1), mark("forgot to sync"), write(8192, 2), Record::Flush]);
        let last = log.cuts().pop().unwrap();
        assert_eq!(log.promised(&last), ["forgot to sync"]);
        let first = Cut::clean(2);
        assert_eq!(log.promised(&first), Vec::<&str>::new());
    }

    #[test]
    fn zeroes_are_replayed() {
        let (dir, log) = logged(&[write(0, 1), Record::Zero { offset: 0, length: 4096 }, Record::Flush]);
        let last = log.cuts().pop().unwrap();
        assert_eq!(image(&log, &last, &dir), [0, 1, 0, 0, 0, 0, 0, 0]);
    }
}
