//! Files as distributions pack them: with xz (Debian), with zstd (Ubuntu), or not at all. Told by how they begin.

use std::io::{self, BufRead, BufReader, Read};

use liblzma::read::XzDecoder;
use ruzstd::decoding::StreamingDecoder;

const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// The name endings of compressed files.
const ENDINGS: [&str; 2] = [".xz", ".zst"];

/// A reader of the decompressed data.
pub(crate) fn unpacked<'a>(packed: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut packed = BufReader::new(packed);
    let begin = packed.fill_buf()?;
    Ok(if begin.starts_with(XZ) {
        Box::new(XzDecoder::new(packed))
    } else if begin.starts_with(ZSTD) {
        Box::new(StreamingDecoder::new(packed).map_err(io::Error::other)?)
    } else {
        Box::new(packed)
    })
}

/// A name without the ending of how it is packed.
pub(crate) fn plain_name(name: &str) -> &str {
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    #[test]
    fn compression_is_recognised_by_the_first_bytes() {
        let whole = b"\x7fELF and so on".repeat(1000);
        let xz = liblzma::encode_all(whole.as_slice(), 1).unwrap();
        let zstd = compress_to_vec(whole.as_slice(), CompressionLevel::Fastest);
        for packed in [whole.clone(), xz, zstd] {
            let mut out = Vec::new();
            unpacked(packed.as_slice()).unwrap().read_to_end(&mut out).unwrap();
            assert_eq!(out, whole);
        }
    }

    #[test]
    fn damaged_package_is_an_error() {
        let mut packed = compress_to_vec(b"hello".repeat(100).as_slice(), CompressionLevel::Fastest);
        packed.truncate(8);
        let read = unpacked(packed.as_slice()).and_then(|mut reader| reader.read_to_end(&mut Vec::new()));
        assert!(read.is_err());
    }
}
