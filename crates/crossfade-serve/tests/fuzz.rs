//! Every fuzz target over its seeds, its corpus and mutations of them. cargo-fuzz finds new inputs; this keeps what it has found.
#![allow(clippy::unwrap_used)]
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

use fuzz::mutate::{Random, mutated, words};
use fuzz::{TARGETS, Target};
use std::path::{Path, PathBuf};

/// Mutations of each target: seconds for all of them.
const MUTATIONS: usize = 250;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The committed inputs of a target, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = root().join("corpus").join(target.name);
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn dictionary(target: &Target) -> Vec<Vec<u8>> {
    let file = root().join("dictionaries").join(target.name);
    words(&std::fs::read_to_string(file).unwrap_or_default())
}

/// Runs a target; a failure names it and keeps the input where it can be looked at.
fn check(target: &Target, input: &[u8]) {
    let run = std::panic::AssertUnwindSafe(|| (target.run)(input));
    if std::panic::catch_unwind(run).is_err() {
        let file = std::env::temp_dir().join(format!("crossfade-fuzz-{}.input", target.name));
        std::fs::write(&file, input).unwrap();
        panic!("the target {} fails on the {} bytes in {}", target.name, input.len(), file.display());
    }
}

fn run(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let mut inputs = (target.seeds)();
    assert!(!inputs.is_empty());
    inputs.extend(corpus(target));
    let words = dictionary(target);
    for input in inputs.iter().map(Vec::as_slice).chain([&[][..]]) {
        check(target, input);
    }
    let mut random = Random(7);
    for _ in 0..MUTATIONS {
        check(target, &mutated(&inputs, &words, &mut random));
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        /// The names of the tests below.
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { run(stringify!($name)); })*
    };
}
targets! {
    tensors, checkpoint, pickle, torch, png, photo, recipe, zip, npz, mat, cifar, idx, config, texts, request, http,
}

/// Every target is wrapped for cargo-fuzz, and tested here.
#[test]
fn every_target_is_listed() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, TESTED);
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not in fuzz/Cargo.toml");
        let wrapper = std::fs::read_to_string(root().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(wrapper.contains(&format!("::{name}(input)")), "{wrapper}");
    }
    let wrappers = std::fs::read_dir(root().join("fuzz_targets")).unwrap().count();
    assert_eq!(wrappers, names.len(), "a wrapper of no target");
}

/// Seeds are what a target reads to its end, or they lead a fuzzer nowhere: each differs from damage in what it reaches.
#[test]
#[ignore = "writes files: the seeds of all targets, before a campaign"]
fn write_seeds() {
    for target in TARGETS {
        let folder = root().join("corpus").join(target.name);
        std::fs::create_dir_all(&folder).unwrap();
        for (k, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{k:02}")), seed).unwrap();
        }
    }
}
