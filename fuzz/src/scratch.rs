//! Files for readers that take paths, and what holds for every error.
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder of this process, in memory where the system has such a place: an execution writes a file or two.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let parent = Some(PathBuf::from("/dev/shm")).filter(|dir| dir.is_dir()).unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("crossfade-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// A file of the folder with these bytes. Each name belongs to one target, so that targets may run side by side.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
        std::fs::create_dir_all(parent).unwrap();
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Checks an error: it is written for people, and nothing from outside steers their terminal.
pub fn refused(error: &impl std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.trim().is_empty(), "an error without a message");
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let bad = text.chars().find(|&c| (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c));
    assert!(bad.is_none(), "an error prints {bad:?}: {text:?}");
}

/// The value, or nothing after its error was checked.
pub fn accepted<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| refused(&error)).ok()
}
