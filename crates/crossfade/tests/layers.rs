//! The modules of this crate form layers: each depends on lower layers only, so that there is no cycle.
//!
//! The layers are those of ARCHITECTURE.md; the dependencies are read from the sources, from `use crate::…` and from paths in
//! the code alike.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The lines of the block of ARCHITECTURE.md that begins with "```layers", lowest first: names before the first "|".
fn layers() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let block = text.split("```layers\n").nth(1).and_then(|rest| rest.split("```").next());
    let block = block.unwrap_or_else(|| panic!("{} has no block of layers", path.display()));
    let names = |line: &str| line.split('|').next().unwrap_or("").split_whitespace().map(str::to_owned).collect();
    block.lines().map(names).collect()
}

/// Every source file with the module that it belongs to; unit tests in files of their own may use any module.
fn sources(dir: &Path, module: Option<&str>, found: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).flatten() {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let owner = module.unwrap_or(&stem);
        if path.is_dir() {
            sources(&path, Some(owner), found);
        } else if path.extension().is_some_and(|e| e == "rs") && stem != "tests" && stem != "lib" {
            found.push((owner.to_owned(), path));
        }
    }
}

/// The code of a file: without comments and without its unit tests.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]").next().unwrap_or_default();
    before_tests.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The identifier at the start of `text`.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The modules that stand right behind `crate::`, alone or in braces.
fn named(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(identifier(rest).to_owned());
            continue;
        };
        let mut depth = 1;
        let mut item = String::new();
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => (),
            }
            if depth == 0 || (depth == 1 && c == ',') {
                names.insert(identifier(item.trim()).to_owned());
                item.clear();
            } else {
                item.push(c);
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

/// For each pair of modules of which the first names the second: one file that does.
fn dependencies() -> BTreeMap<(String, String), PathBuf> {
    let mut files = vec![];
    sources(&root(), None, &mut files);
    let modules: BTreeSet<String> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut found = BTreeMap::new();
    for (module, path) in &files {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for name in named(&code(&text)) {
            if name != *module && modules.contains(&name) {
                found.entry((module.clone(), name)).or_insert_with(|| path.clone());
            }
        }
    }
    found
}

#[test]
fn every_module_has_one_layer() {
    let mut files = vec![];
    sources(&root(), None, &mut files);
    let modules: BTreeSet<String> = files.into_iter().map(|(module, _)| module).collect();
    let listed: Vec<String> = layers().into_iter().flatten().collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), modules, "the layers of ARCHITECTURE.md");
    assert_eq!(listed.len(), modules.len(), "a module is listed twice in ARCHITECTURE.md");
}

#[test]
fn modules_depend_on_lower_layers_only() {
    let layers = layers();
    let level = |name: &str| layers.iter().position(|layer| layer.iter().any(|m| m == name));
    let found = dependencies().into_iter();
    let wrong: Vec<String> = found
        .filter(|((from, to), _)| level(from) <= level(to))
        .map(|((from, to), path)| format!("{from} must not use {to}, which is no lower layer: {}", path.display()))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_are_found_in_imports_and_in_code() {
    let text = "use crate::a::B;\nuse crate::{b::{C, D}, c, d::E};\nfn f() -> crate::e::F { crate::f::g() }\n// crate::no::x\n";
    let names = named(&code(text));
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d", "e", "f"]);
}
