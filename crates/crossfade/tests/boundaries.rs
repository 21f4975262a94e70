//! The tensor engine is named only where it belongs, so that the rest can be read and tested without it.
use std::path::{Path, PathBuf};

/// Folders and files that may name the engine.
const INSIDE: [&str; 5] = ["engine/", "nn/", "loss/", "train/", "bench/"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_engine_stays_inside() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![];
    sources(&root, &mut files);
    assert!(files.len() > 40, "the sources were not found");
    for file in files {
        let name = file.strip_prefix(&root).map(|p| p.to_string_lossy().replace('\\', "/")).unwrap_or_default();
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let names_it = text.lines().any(|line| line.contains("burn::") && !line.trim_start().starts_with("//"));
        let allowed = INSIDE.iter().any(|inside| name.starts_with(inside));
        assert!(allowed || !names_it, "{name} names the engine; use the vocabulary of `engine` instead");
    }
}

/// The formulas know neither tensors nor files, the kernels no engine.
#[test]
fn lower_crates_stay_small() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, allowed) in [("crossfade-math", vec!["serde", "strsim"]), ("crossfade-kernels", vec!["rayon"])] {
        let text = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap_or_default();
        let section = text.split("[dependencies]").nth(1).and_then(|s| s.split("\n[").next()).unwrap_or_default();
        let found: Vec<&str> =
            section.lines().filter_map(|l| l.split(['.', ' ', '=']).next()).filter(|l| !l.is_empty()).collect();
        assert_eq!(found, allowed, "dependencies of {name}");
    }
}
