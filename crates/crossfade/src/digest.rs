//! SHA-256 digests in hexadecimal.
use crate::error::{Error, Result};
use crate::limits;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

/// Computes the digest of bytes that arrive in pieces.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Appends bytes.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// The digest of everything appended so far.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// The digest of a file, read in blocks of 1 MiB.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = limits::open(path)?;
    let (mut hasher, mut block) = (Hasher::default(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut block).map_err(Error::io(path))? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&block[..n]),
        }
    }
}
