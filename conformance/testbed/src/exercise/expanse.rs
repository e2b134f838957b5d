//! Blocks with their own offset in them: at the start, in the middle and at the end of a large file, or all over a device.
//!
//! A block has bytes from the seed, with a stamp in each of its sectors. So a block that was lost, torn, or taken from
//! another offset or time is recognised, and making a block costs no more than copying it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use super::dice;

const BLOCK: u64 = 64 << 10;
const SECTOR: usize = 512;

/// The least number of bytes that are written: more than a cache or a first extent holds.
const LEAST: u64 = 16 << 20;

/// And at most, so that a large volume takes no longer.
const MOST: u64 = 24 << 20;

/// The arrangement of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The length of the file, or of the used part of the device.
    pub(crate) length: u64,
    /// From the beginning of a block to that of the next, in each part.
    stride: u64,
    /// The number of blocks in each part.
    blocks: u64,
    /// The number of parts: the first at the start, the last at the end.
    parts: u64,
}

impl Shape {
    /// Blocks at the start, in the middle and at the end of a file on a volume with `free` bytes; `None` if that is too
    /// little.
    pub(crate) fn of_file(free: u64) -> Option<Self> {
        let written = (free / 2).min(MOST);
        let blocks = written / 3 / BLOCK;
        // The gaps between the parts are not written and take no space.
        (written >= LEAST).then_some(Self { length: 4 * blocks * BLOCK * 3, stride: BLOCK, blocks, parts: 3 })
    }

    /// On a device of `length` bytes: a block in each of many places.
    pub(crate) fn of_device(length: u64) -> Self {
        let stride = (length / 256 / BLOCK).max(1) * BLOCK;
        Self { length: length / BLOCK * BLOCK, stride, blocks: (length / stride).max(1), parts: 1 }
    }

    /// The offsets of the blocks, in order.
    fn offsets(self) -> impl Iterator<Item = u64> {
        let part = self.stride * self.blocks;
        let last = self.length.saturating_sub(part);
        let start = move |number: u64| match self.parts {
            0 | 1 => 0,
            parts => last * number / (parts - 1) / BLOCK * BLOCK,
        };
        (0..self.parts)
            .flat_map(move |number| (0..self.blocks).map(move |at| start(number) + at * self.stride))
    }
}

/// Blocks of one seed.
#[derive(Debug, Clone)]
pub(crate) struct Expanse {
    seed: u64,
    shape: Shape,
    base: Vec<u8>,
}

impl Expanse {
    pub(crate) fn new(seed: u64, shape: Shape) -> Self {
        Self { seed, shape, base: dice::bytes(seed, usize::try_from(BLOCK).unwrap_or(0)) }
    }

    /// Writes all blocks and has them on the disk.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            file.set_len(self.shape.length)?;
        }
        for at in self.shape.offsets() {
            file.write_all_at(&self.block(at), at)?;
        }
        file.sync_all()
    }

    /// The first difference, with its offset. The file is dropped from the page cache first, if the kernel does so.
    pub(crate) fn difference(&self, path: &Path) -> io::Result<Option<String>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some("the file is not there".to_owned()));
            }
            opened => opened?,
        };
        let metadata = file.metadata()?;
        let length = match metadata.file_type().is_block_device() {
            true => file.seek(SeekFrom::End(0))?,
            false => metadata.len(),
        };
        if length < self.shape.length {
            return Ok(Some(format!("it should be {} bytes long, and is {length}", self.shape.length)));
        }
        let forget = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        let _ = nix::fcntl::posix_fadvise(&file, 0, 0, forget);
        let mut found = vec![0; self.base.len()];
        for at in self.shape.offsets() {
            file.read_exact_at(&mut found, at)?;
            let expected = self.block(at);
            if expected == found {
                continue;
            }
            if let Some(byte) = expected.iter().zip(&found).position(|(expected, seen)| expected != seen) {
                return Ok(Some(self.said(at, byte, &expected, &found)));
            }
        }
        Ok(None)
    }

    fn said(&self, at: u64, byte: usize, expected: &[u8], found: &[u8]) -> String {
        let show = |bytes: &[u8]| {
            let shown = bytes[byte..].iter().take(8).map(|byte| format!("{byte:02x}"));
            shown.collect::<String>()
        };
        let sector = byte / SECTOR * SECTOR;
        let stamp = found.get(sector..sector + 8).and_then(|stamp| stamp.try_into().ok());
        let from = stamp.map_or(0, u64::from_le_bytes) ^ self.seed;
        let is_stamp =
            from.is_multiple_of(SECTOR as u64) && from < self.shape.length && from != at + sector as u64;
        let moved = if is_stamp { format!("; this is what belongs at {from}") } else { String::new() };
        let differing =
            expected.chunks(SECTOR).zip(found.chunks(SECTOR)).filter(|(one, two)| one != two).count();
        format!(
            "at offset {}: expected {}, seen {}; {differing} of {} sectors of this block differ{moved}",
            at + byte as u64,
            show(expected),
            show(found),
            found.len() / SECTOR
        )
    }

    fn block(&self, at: u64) -> Vec<u8> {
        let mut block = self.base.clone();
        for (number, sector) in block.chunks_mut(SECTOR).enumerate() {
            let stamp = self.seed ^ (at + (number * SECTOR) as u64);
            sector[..8].copy_from_slice(&stamp.to_le_bytes());
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_are_at_its_start_middle_and_end() {
        let shape = Shape::of_file(60 << 20).unwrap();
        let offsets: Vec<u64> = shape.offsets().collect();
        assert!(offsets.len() as u64 * BLOCK >= LEAST);
        assert_eq!(offsets[0], 0);
        assert_eq!(offsets.last().map(|last| last + BLOCK), Some(shape.length));
        assert!(offsets.windows(2).all(|pair| pair[0] + BLOCK <= pair[1]), "no block is in another");
        assert_eq!(Shape::of_file(20 << 20), None, "there is too little space");
    }

    #[test]
    fn block_that_is_lost_moved_or_torn_is_named_by_its_offset() {
        let path = std::env::temp_dir().join(format!("volproof-expanse-{}", std::process::id()));
        let expanse = Expanse::new(9, Shape::of_device(40 << 20));
        expanse.write(&path).unwrap();
        assert_eq!(expanse.difference(&path).unwrap(), None);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let second = expanse.shape.stride;
        for (bytes, words) in [(vec![0; 4096], "8 of 128 sectors"), (expanse.block(0), "belongs at 0")] {
            file.write_all_at(&bytes, second).unwrap();
            let said = expanse.difference(&path).unwrap().expect("the block differs");
            let at: u64 = said.split([' ', ':']).nth(2).unwrap().parse().unwrap();
            assert!((second..second + 512).contains(&at) && said.contains(words), "{said}");
            file.write_all_at(&expanse.block(second), second).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }
}
