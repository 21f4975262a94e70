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
