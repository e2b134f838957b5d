//! Patterns: blocks made from a seed, at the start, in the middle and at the end of a file or a device.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The size of a block.
const BLOCK: usize = 64 << 10;

/// The size of a file; a pattern on a device fills the device.
const FILE: u64 = 1 << 20;

/// Writes the blocks. `durable` has them, and the name of the file, on the disk before this returns. Returns up to where it wrote.
pub(crate) fn write(path: &Path, seed: u64, durable: bool) -> io::Result<u64> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let mut end = 0;
    for at in offsets(&mut file, u64::MAX)? {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&block(seed, at))?;
        end = at + BLOCK as u64;
    }
    if durable {
        file.sync_all()?;
        let directory = path.parent().filter(|_| file.metadata().is_ok_and(|found| found.is_file()));
        directory.map(|directory| File::open(directory)?.sync_all()).transpose()?;
    }
    Ok(end)
}

/// Whether a file or device has each block of the pattern.
pub(crate) fn is_there(path: &Path, seed: u64) -> io::Result<bool> {
    is_there_within(path, seed, u64::MAX)
}

/// Whether a copy of a device that was written up to `most` has each block of the pattern.
pub(crate) fn is_there_within(path: &Path, seed: u64, most: u64) -> io::Result<bool> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut found = vec![0; BLOCK];
    for at in offsets(&mut file, most)? {
        file.seek(SeekFrom::Start(at))?;
        match file.read_exact(&mut found) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if found != block(seed, at) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn offsets(file: &mut File, most: u64) -> io::Result<[u64; 3]> {
    let is_device = file.metadata()?.file_type().is_block_device();
    let size = if is_device { file.seek(SeekFrom::End(0))?.min(most) } else { FILE };
    let last = size.saturating_sub(BLOCK as u64);
    Ok([0, last / 2, last])
}

/// The block at an offset: never a block of zeros, nor that of another offset or seed.
fn block(seed: u64, at: u64) -> Vec<u8> {
    let mut state = (seed ^ at.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut words = Vec::with_capacity(BLOCK);
    while words.len() < BLOCK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend(state.to_le_bytes());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_found_until_a_byte_of_any_block_differs() {
        let directory = std::env::temp_dir().join(format!("volproof-pattern-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("data");
        assert!(!is_there(&path, 7).unwrap(), "there is no file");
        write(&path, 7, true).unwrap();
        assert!(is_there(&path, 7).unwrap() && !is_there(&path, 8).unwrap());
        for at in offsets(&mut File::open(&path).unwrap(), u64::MAX).unwrap() {
            write(&path, 7, false).unwrap();
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            file.seek(SeekFrom::Start(at + 9)).unwrap();
            file.write_all(&[block(7, at)[9] ^ 1]).unwrap();
            assert!(!is_there(&path, 7).unwrap(), "the block at {at} differs");
        }
        write(&path, 7, false).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(FILE - 1).unwrap();
        assert!(!is_there(&path, 7).unwrap(), "it is too short");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
