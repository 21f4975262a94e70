//! Every package in the lock file is one that `deny.toml` allows: its licence and its source, and no second version without a reason.
//! The same rules are checked by `cargo deny check licenses bans sources`, which takes minutes to compile; this test needs cargo alone
//! and no network.
#![allow(clippy::unwrap_used)]
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rules() -> toml::Table {
    std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap()
}

fn texts(value: &toml::Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect()
}

/// The packages that the program is built from on this platform, with tests and build scripts.
fn packages() -> Vec<Value> {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let rustc = String::from_utf8(rustc).unwrap();
    let platform = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let mut command = Command::new(env!("CARGO"));
    // The features that need other compilers' libraries are off, as in the tests; `cargo deny` sees all of them.
    command.args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", platform]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["packages"].as_array().unwrap().clone()
}

fn name(package: &Value) -> String {
    format!("{} {}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap())
}

/// The expression of a package's licence; for packages that only have a file with its text, what `deny.toml` says of it.
fn expression(package: &Value, rules: &toml::Table) -> Option<String> {
    let clarified = rules["licenses"].get("clarify").and_then(toml::Value::as_array).into_iter().flatten();
    let mut of_this = clarified.filter(|entry| entry["crate"].as_str() == package["name"].as_str());
    let stated = package["license"].as_str().map(str::to_string);
    stated.or_else(|| of_this.next().map(|entry| entry["expression"].as_str().unwrap().to_string()))
}

#[test]
fn every_licence_is_allowed() {
    let rules = rules();
    let allowed: BTreeSet<String> = texts(&rules["licenses"]["allow"]).into_iter().collect();
    let exceptions = rules["licenses"].get("exceptions").and_then(toml::Value::as_array).into_iter().flatten();
    let exceptions: Vec<(String, Vec<String>)> =
        exceptions.map(|entry| (entry["crate"].as_str().unwrap().to_string(), texts(&entry["allow"]))).collect();
    let packages = packages();
    assert!(packages.len() > 300, "the packages were not found");
    let mut refused = vec![];
    for package in &packages {
        let Some(text) = expression(package, &rules) else {
            refused.push(format!("{}: states no licence", name(package)));
            continue;
        };
        // As in cargo-deny: older packages write a slash for "or".
        let Ok(parsed) = spdx::Expression::parse_mode(&text, spdx::ParseMode::LAX) else {
            refused.push(format!("{}: {text} is no SPDX expression", name(package)));
            continue;
        };
        let excepted = exceptions.iter().find(|(name, _)| Some(name.as_str()) == package["name"].as_str());
        let allows = |licence: &spdx::LicenseReq| {
            let licence = licence.to_string();
            allowed.contains(&licence) || excepted.is_some_and(|(_, own)| own.contains(&licence))
        };
        if !parsed.evaluate(allows) {
            refused.push(format!("{}: {text}", name(package)));
        }
    }
    assert!(refused.is_empty(), "not in deny.toml:\n{}", refused.join("\n"));
}

#[test]
fn every_source_is_known() {
    let rules = rules();
    let registries = texts(&rules["sources"]["allow-registry"]);
    assert!(texts(&rules["sources"]["allow-git"]).is_empty());
    let allowed = |source: &str| registries.iter().any(|registry| source == format!("registry+{registry}"));
    let members = ["crossfade", "crossfade-cli", "crossfade-kernels", "crossfade-math", "crossfade-serve"];
    for package in packages() {
        match package["source"].as_str() {
            Some(source) => assert!(allowed(source), "{} comes from {source}", name(&package)),
            None => assert!(members.contains(&package["name"].as_str().unwrap()), "{} is no member", name(&package)),
        }
    }
}

/// The versions of each package that is built in several of them.
fn repeated() -> BTreeMap<String, BTreeSet<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "--workspace", "--locked", "--offline", "--duplicates", "--depth", "0", "--prefix", "none"]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        if let [name, version, ..] = line.split(' ').collect::<Vec<_>>()[..] {
            found.entry(name.into()).or_default().insert(version.trim_start_matches('v').into());
        }
    }
    // The same version is listed twice if it is built with two sets of features.
    found.retain(|_, versions| versions.len() > 1);
    found
}

#[test]
fn every_repeated_package_has_a_reason() {
    let rules = rules();
    assert_eq!(rules["bans"]["multiple-versions"].as_str(), Some("deny"));
    let skip = rules["bans"]["skip"].as_array().unwrap();
    let listed: BTreeSet<String> = skip
        .iter()
        .map(|entry| {
            let name = entry["crate"].as_str().unwrap();
            assert!(entry["reason"].as_str().is_some_and(|reason| reason.len() > 5), "{name} has no reason");
            name.to_string()
        })
        .collect();
    let repeated = repeated();
    assert!(repeated.len() > 5, "the packages were not found");
    for (name, versions) in &repeated {
        let others: Vec<&String> = versions.iter().filter(|v| !listed.contains(&format!("{name}@{v}"))).collect();
        assert!(others.len() <= 1, "{name} {versions:?}: update one, or add all but one to [bans] skip of deny.toml");
    }
    // An entry for what is gone would let the next one in unseen.
    let lock: toml::Table = std::fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    let locked = lock["package"].as_array().unwrap().iter();
    let locked: BTreeSet<String> = locked
        .map(|package| format!("{}@{}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap()))
        .collect();
    let gone: Vec<&String> = listed.difference(&locked).collect();
    assert!(gone.is_empty(), "deny.toml lists packages that are not in Cargo.lock: {gone:?}");
}

/// `tools/sbom.py` names every package that the program is built from, with its licence and the hash of `Cargo.lock`.
#[test]
fn the_bill_of_materials_is_complete() {
    let script = root().join("tools/sbom.py");
    let output = match Command::new("python3").arg(&script).arg("--offline").output() {
        Ok(output) => output,
        Err(_) => return,
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bill: Value = serde_json::from_slice(&output.stdout).unwrap();
    let components = bill["components"].as_array().unwrap();
    let names: BTreeSet<&str> = components.iter().map(|part| part["name"].as_str().unwrap()).collect();
    for name in ["crossfade", "crossfade-kernels", "burn", "safetensors", "pytorch-reader", "axum", "png"] {
        assert!(names.contains(name), "{name} is missing");
    }
    for part in components {
        let name = part["name"].as_str().unwrap();
        assert!(part["licenses"][0]["expression"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        let hash = part["hashes"][0]["content"].as_str();
        assert!(name.starts_with("crossfade") || hash.is_some_and(|hash| hash.len() == 64), "{name}: {hash:?}");
    }
}
