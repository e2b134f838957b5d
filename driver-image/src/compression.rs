//! Compressed data, recognised by its first bytes: gzip, zstd, or none.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

/// Whether data that begins like this is compressed.
pub(crate) fn is_compressed(begin: &[u8]) -> bool {
    begin.starts_with(GZIP) || begin.starts_with(ZSTD)
}

/// A reader of the decompressed data.
pub(crate) fn decompressed<'a>(data: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut data = BufReader::with_capacity(64 << 10, data);
    let begin = data.fill_buf()?;
    Ok(if begin.starts_with(GZIP) {
        Box::new(MultiGzDecoder::new(data))
    } else if begin.starts_with(ZSTD) {
        Box::new(Frames { data: Some(data), decoder: None })
    } else {
        Box::new(data)
    })
}

/// Several zstd frames, one after the other, as parallel compressors write them.
struct Frames<R: BufRead> {
    data: Option<R>,
    decoder: Option<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.data = self.decoder.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut data) = self.data.take() else { return Ok(0) };
            if data.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.decoder = Some(StreamingDecoder::new(data).map_err(io::Error::other)?);
        }
    }
}
