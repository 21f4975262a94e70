//! The weight files that metrics need: their URL, their hash, and their place in the cache.
use crate::digest::sha256;
use crate::error::{Error, Result, Shown};
use crate::files::{create_directories, write_atomic};
use std::path::PathBuf;

/// A weight file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name on the command line.
    pub name: &'static str,
    /// The metrics that need it.
    pub purpose: &'static str,
    /// Its file name in the cache.
    pub file: &'static str,
    /// The URL from which it is downloaded.
    pub url: &'static str,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Every known weight file.
pub const ENTRIES: &[Entry] = &[Entry {
    name: "inception",
    purpose: "FID, KID, precision and recall, Inception Score",
    file: "pt_inception-2015-12-05-6726825d.pth",
    url: "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth",
    sha256: "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    bytes: 95_628_359,
}];

impl Entry {
    /// The entry called `name`.
    pub fn named(name: &str) -> Result<&'static Self> {
        ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
            Error::request(format!("no weights are called {name:?}; there are: {}", names.join(", ")))
        })
    }

    /// Its path in the cache.
    pub fn path(&self) -> Result<PathBuf> {
        Ok(cache_directory()?.join(self.file))
    }

    /// Advice for users without network access.
    pub fn by_hand(&self) -> Result<String> {
        let path = self.path()?;
        Ok(format!("fetch {} by other means and put it at {}", self.url, path.shown()))
    }

    /// The path of the file in the cache; an error with advice if it is not there.
    pub fn cached(&self) -> Result<PathBuf> {
        let path = self.path()?;
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::request(format!(
            "the weights {:?} are not in the cache: run `crossfade weights get {}`, give a file with --weights, or {}",
            self.name,
            self.name,
            self.by_hand()?
        )))
    }

    /// Writes `bytes` to the cache if their hash is right. Nothing is ever used unverified: a truncated download
    /// would give plausible but wrong values.
    pub fn store(&self, bytes: &[u8]) -> Result<PathBuf> {
        let found = sha256(bytes);
        let path = self.path()?;
        if found != self.sha256 {
            let message = format!(
                "not stored: the SHA-256 is {found}, expected {}; try again, or {}",
                self.sha256,
                self.by_hand()?
            );
            return Err(Error::file(&path, message));
        }
        if let Some(directory) = path.parent() {
            create_directories(directory)?;
        }
        write_atomic(&path, bytes)?;
        Ok(path)
    }
}

/// The directory `CROSSFADE_CACHE`, or `crossfade` in the platform's cache directory.
pub fn cache_directory() -> Result<PathBuf> {
    // An empty variable counts as not set, as the XDG specification demands.
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(path) = variable("CROSSFADE_CACHE") {
        return Ok(path);
    }
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Caches"))
    } else {
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")))
    };
    let base = base.ok_or_else(|| Error::request("no directory for caches is known; set CROSSFADE_CACHE to one"))?;
    Ok(base.join("crossfade"))
}
