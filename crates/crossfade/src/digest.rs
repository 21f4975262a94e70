//! SHA-256 in hexadecimal: which bytes these are.
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes that come one after the other.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// More bytes.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The digest of some bytes.
pub fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// The digest of a file, however large.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let (mut hasher, mut block) = (Hasher::default(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).map_err(Error::io(path))? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&block[..n]),
        }
    }
}
