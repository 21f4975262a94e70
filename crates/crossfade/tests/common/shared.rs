//! Images, weights and reference results that are not part of this repository.
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file or folder of the shared material, which lies in `CROSSFADE_SHARED` or in `shared` beside the project. If it is
/// absent that is said, past the harness, which keeps what passing tests print to itself.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    let root = std::env::var_os("CROSSFADE_SHARED").map_or_else(|| beside.to_path_buf(), PathBuf::from);
    let found = root.join(path);
    if found.exists() {
        return Some(found);
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "{test}: skipped, {} is absent (see CROSSFADE_SHARED)", found.display());
    None
}
