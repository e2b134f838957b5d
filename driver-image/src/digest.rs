//! SHA-256 digests of documents and layers.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// A digest as lowercase hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest(String);

impl Digest {
    /// From `sha256:…`; `None` for other algorithms and for what is no digest.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix("sha256:")?)
    }

    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(is_digit)).then(|| Self(hex.to_owned()))
    }

    pub(crate) fn of(mut data: impl Read) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = data.read(&mut buffer)?;
            if read == 0 {
                let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                return Ok(Self(hex));
            }
            hash.update(&buffer[..read]);
        }
    }

    pub(crate) fn hex(&self) -> &str {
        &self.0
    }

    /// The name of the blob with this digest in an image layout.
    pub(crate) fn blob(&self) -> String {
        format!("blobs/sha256/{}", self.0)
    }
}
