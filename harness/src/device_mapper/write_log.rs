//! The log of writes to a disk, in their order, as the kernel's `log-writes` target keeps it.
//!
//! After a power cut a disk holds all writes before its last flush, and any part of the later ones. Here the power is cut
//! at a flush: all writes up to it are there, and none of the later ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first bytes of a log.
const MAGIC: u64 = 0x006a_7366_7773_6872;

const FLUSH: u64 = 1;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

/// Bytes of an entry's fields: first sector, sectors, flags, and length of the data behind them.
const ENTRY: usize = 32;

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    offset: u64,
    flags: u64,
    /// The written data; the text of a mark.
    data: Vec<u8>,
}

/// A log, read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteLog {
    entries: Vec<Entry>,
    bytes: u64,
}

/// A moment at which the power may be cut: everything before it is on the disk for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut(usize);

impl WriteLog {
    /// Reads the log of a disk of a size in bytes.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn read(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0)?;
        let (magic, count, sector) =
            (word(&head, 0), word(&head, 16), u64::from(u32::from_ne_bytes(last(&head))));
        if magic != MAGIC || sector < 512 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no log of writes"));
        }
        let (mut at, mut entries) = (sector, Vec::new());
        for _ in 0..count {
            let mut head = [0; ENTRY];
            file.read_exact_at(&mut head, at)?;
            let (first, sectors, flags) = (word(&head, 0), word(&head, 8), word(&head, 16));
            let length = if flags & MARK != 0 { word(&head, 24) } else { 0 };
            // The text of a mark is in the entry's own sector.
            let written = if flags & (MARK | DISCARD) == 0 { sectors * sector } else { 0 };
            let (from, many) =
                if flags & MARK != 0 { (at + ENTRY as u64, length) } else { (at + sector, written) };
            let mut data = vec![0; usize::try_from(many).map_err(io::Error::other)?];
            file.read_exact_at(&mut data, from)?;
            entries.push(Entry { offset: first * sector, flags, data });
            at += sector + written;
        }
        Ok(Self { entries, bytes })
    }

    /// Every moment at which something was made durable, in order.
    pub fn cuts(&self) -> Vec<Cut> {
        let durable =
            |(at, entry): (usize, &Entry)| (entry.flags & (FLUSH | FUA) != 0).then_some(Cut(at + 1));
        self.entries.iter().enumerate().filter_map(durable).collect()
    }

    /// About `most` of the cuts, each with its number; another seed chooses others. The last one, after everything was
    /// synced, is always among them.
    pub fn some_cuts(&self, most: usize, seed: u64) -> Vec<(usize, Cut)> {
        let cuts = self.cuts();
        let step = cuts.len().div_ceil(most).max(1);
        let first = usize::try_from(seed).unwrap_or_default() % step;
        let is_chosen = |number: usize| {
            number + 1 == cuts.len() || number >= first && (number - first).is_multiple_of(step)
        };
        cuts.iter().copied().enumerate().filter(|(number, _)| is_chosen(*number)).collect()
    }

    /// The moment at which that word was written into it.
    pub fn marked(&self, mark: &str) -> Option<Cut> {
        let is_it = |entry: &Entry| entry.flags & MARK != 0 && entry.data == mark.as_bytes();
        self.entries.iter().position(is_it).map(Cut)
    }

    /// Writes the disk as it was then into a file or device, which must be empty.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn replay(&self, until: Cut, to: &Path) -> io::Result<()> {
        let file = File::options().write(true).open(to)?;
        let written = |entry: &&Entry| entry.flags & (MARK | DISCARD) == 0;
        for entry in self.entries[..until.0].iter().filter(written) {
            file.write_all_at(&entry.data, entry.offset)?;
        }
        file.sync_all()
    }

    /// The size of the disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn last(head: &[u8; 28]) -> [u8; 4] {
    head[24..].try_into().expect("four bytes")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn entry(sector: u64, sectors: u64, flags: u64, length: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [sector, sectors, flags, length].iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.resize(512, 0);
        bytes
    }

    fn log(entries: &[Vec<u8>], count: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes: Vec<u8> = [MAGIC, 1, count].iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.extend(512_u32.to_ne_bytes());
        bytes.resize(512, 0);
        bytes.extend(entries.concat());
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn a_disk_is_what_was_written_until_the_cut() {
        let mut mark = entry(0, 0, MARK, 4);
        mark[ENTRY..ENTRY + 4].copy_from_slice(b"here");
        let (ones, twos) = (vec![1; 512], vec![2; 512]);
        let entries = [
            entry(0, 1, 0, 0),
            ones,
            entry(0, 0, FLUSH, 0),
            mark,
            entry(1, 1, DISCARD, 0),
            entry(0, 1, FUA, 0),
            twos,
        ];
        let log = WriteLog::read(log(&entries, 5).path(), 1024).unwrap();
        assert_eq!(log.cuts(), [Cut(2), Cut(5)]);
        assert_eq!(log.marked("here"), Some(Cut(2)));
        assert_eq!(log.marked("there"), None);
        for (cut, byte) in [(Cut(0), 0), (Cut(2), 1), (Cut(5), 2)] {
            let disk = tempfile::NamedTempFile::new().unwrap();
            disk.as_file().set_len(1024).unwrap();
            log.replay(cut, disk.path()).unwrap();
            assert_eq!(std::fs::read(disk.path()).unwrap()[0], byte);
        }
    }

    #[test]
    fn last_cut_is_always_among_the_chosen() {
        for count in 0..40 {
            let entries = vec![entry(0, 0, FLUSH, 0); count];
            let log = WriteLog::read(log(&entries, count as u64).path(), 1024).unwrap();
            let all: Vec<_> = log.cuts().into_iter().enumerate().collect();
            for seed in 0..40 {
                let chosen = log.some_cuts(8, seed);
                assert_eq!(chosen.last(), all.last(), "{count} cuts, seed {seed}");
                assert!(chosen.is_sorted() && chosen.iter().all(|cut| all.contains(cut)), "{chosen:?}");
                assert!(chosen.len() <= 9 && chosen.len() >= count.min(4), "{chosen:?}");
            }
        }
    }

    #[test]
    fn another_seed_chooses_other_cuts() {
        let log = WriteLog::read(log(&vec![entry(0, 0, FLUSH, 0); 40], 40).path(), 1024).unwrap();
        let tried: BTreeSet<_> = (0..5).flat_map(|seed| log.some_cuts(8, seed)).collect();
        assert_eq!(tried.len(), 40);
    }

    #[test]
    fn file_without_a_log_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        assert!(WriteLog::read(file.path(), 0).is_err());
    }
}
