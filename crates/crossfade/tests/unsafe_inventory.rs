//! Unsafe code is where `docs/UNSAFE.md` says, and says why it is sound.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every source file, with its name below `crates`.
fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let crates = root().join("crates");
    let mut files = vec![];
    for entry in std::fs::read_dir(&crates).unwrap() {
        for part in ["src", "tests", "examples", "benches"] {
            let dir = entry.as_ref().unwrap().path().join(part);
            if dir.is_dir() {
                walk(&dir, &mut files);
            }
        }
    }
    assert!(files.len() > 200, "the sources were not found");
    let name = |path: &PathBuf| path.strip_prefix(&crates).unwrap().to_string_lossy().replace('\\', "/");
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// A line without its comment and without what stands in quotation marks.
fn code(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split('"').step_by(2).collect()
}

/// The word that begins an unsafe block, function or implementation. Built from parts, so that this file has none.
fn marks() -> [String; 3] {
    ["{", "fn ", "impl "].map(|what| format!("{}safe {what}", "un"))
}

/// Blocks, functions and implementations.
fn counts(text: &str) -> [usize; 3] {
    marks().map(|mark| text.lines().map(|line| code(line).matches(&mark).count()).sum())
}

#[test]
fn the_inventory_is_complete() {
    let found: BTreeMap<String, [usize; 3]> = sources()
        .into_iter()
        .map(|(name, text)| (name, counts(&text)))
        .filter(|(_, counts)| counts.iter().any(|n| *n > 0))
        .collect();
    let text = std::fs::read_to_string(root().join("docs/UNSAFE.md")).unwrap();
    let rows =
        text.lines().skip_while(|line| !line.starts_with("| file |")).skip(2).take_while(|line| line.starts_with('|'));
    let mut listed = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let numbers = [2, 3, 4].map(|at| cells[at].parse().unwrap());
        assert!(cells[5].len() > 10, "{row}: what must hold?");
        assert!(listed.insert(cells[1].trim_matches('`').to_string(), numbers).is_none(), "{row} twice");
    }
    assert_eq!(listed, found, "docs/UNSAFE.md against the sources: [blocks, functions, implementations]");
}

/// Blocks and implementations say why they are sound, functions what their callers must promise. Clippy checks the blocks too,
/// but not those that macros make.
#[test]
fn every_one_says_why() {
    let [block, function, implementation] = marks();
    // Methods of these traits have the contracts of the trait.
    let of_traits = ["run", "load_at", "store_at", "transpose"].map(|name| format!("{function}{name}"));
    let mut silent = vec![];
    for (name, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = code(line);
            // A statement may go over some lines, and its comment over more.
            let above = || lines[at.saturating_sub(5)..at].iter();
            let documented = || {
                let docs = lines[..at].iter().rev().take_while(|line| {
                    let line = line.trim_start();
                    line.starts_with("///") || line.starts_with("#[") || line.starts_with("//")
                });
                docs.into_iter().any(|line| line.contains("# Safety"))
            };
            let explained = (!code.contains(&block) && !code.contains(&implementation))
                || above().any(|line| line.contains("SAFETY:"));
            let promised =
                !code.contains(&function) || of_traits.iter().any(|method| code.contains(method)) || documented();
            if !explained || !promised {
                silent.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    assert!(silent.is_empty(), "no SAFETY comment, or no section # Safety:\n{}", silent.join("\n"));
}

/// The crates that read files have none at all, whatever a macro makes.
#[test]
fn readers_forbid_it() {
    for krate in ["crossfade", "crossfade-math"] {
        let text = std::fs::read_to_string(root().join("crates").join(krate).join("src/lib.rs")).unwrap();
        assert!(text.contains(&format!("#![forbid({}safe_code)]", "un")), "{krate}");
    }
}
