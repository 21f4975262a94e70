//! The documentation points at files that exist: relative links of every chapter, and the sources that METHOD.md names.
#![allow(clippy::unwrap_used)]
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files in a folder of the repository.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect()
}

/// The parts of `text` between `open` and the next `close`.
fn between<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split_once(close)).map(|(inside, _)| inside).collect()
}

#[test]
fn links_lead_to_files() {
    let mut links = 0;
    for file in ["", "docs", "studies", "tools"].into_iter().flat_map(markdown) {
        let text = std::fs::read_to_string(&file).unwrap();
        // A link to a place on the web, or to a heading of the same file, names no file. Formulas may look like a link to (t).
        let local = |link: &&str| !link.contains("://") && !link.starts_with('#') && link.len() > 1;
        for link in between(&text, "](", ')').into_iter().filter(local) {
            let path = link.split('#').next().unwrap_or(link);
            let target = file.with_file_name("").join(path);
            assert!(target.exists(), "{} links to {link}, which does not exist", file.display());
            links += 1;
        }
    }
    assert!(links > 50, "only {links} links were found");
}

#[test]
fn method_names_sources_that_exist() {
    let text = std::fs::read_to_string(root().join("docs/METHOD.md")).unwrap();
    let crates = root().join("crates");
    // METHOD.md says: files are relative to crossfade-math/src, written math/…, and to crossfade/src; tests to their crate.
    let exists = |name: &str| {
        let places = match name.strip_prefix("math/") {
            Some(name) => vec![crates.join("crossfade-math/src").join(name)],
            None => {
                vec![crates.join("crossfade/src").join(name), crates.join("crossfade").join(name), root().join(name)]
            }
        };
        // The table of §7 names files relative to metrics/.
        places.iter().any(|path| path.exists()) || crates.join("crossfade/src/metrics").join(name).exists()
    };
    let missing: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.ends_with(".rs") && !name.contains(' ') && !exists(name))
        .collect();
    assert!(missing.is_empty(), "docs/METHOD.md names files that do not exist: {missing:?}");
}

/// `tools/README.md` has a row for each script and for no other.
#[test]
fn every_tool_has_a_row() {
    let text = std::fs::read_to_string(root().join("tools/README.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let first = rows.iter().map(|row| row.split(" | ").next().unwrap_or(row));
    let listed: Vec<&str> = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let tools: Vec<String> = std::fs::read_dir(root().join("tools"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, path)| name != "README.md" && name != "__pycache__" && (path.is_file() || path.is_dir()))
        .map(|(name, path)| if path.is_dir() { format!("{name}/") } else { name })
        .collect();
    assert!(tools.len() > 15, "the scripts were not found");
    for tool in &tools {
        assert!(listed.contains(&tool.as_str()), "tools/README.md has no row for {tool}");
    }
    for name in listed.iter().filter(|name| name.contains('.') || name.ends_with('/')) {
        assert!(tools.iter().any(|tool| tool == name), "tools/README.md has a row for {name}, which does not exist");
    }
}
