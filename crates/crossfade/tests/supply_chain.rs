//! Every package in the lock file is one that `deny.toml` allows: its licence and its source. The same rules are checked by
//! `cargo deny check licenses sources`, which takes minutes to compile; this test needs `cargo metadata` and no network.
#![allow(clippy::unwrap_used)]
use serde_json::Value;
use std::collections::BTreeSet;
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
