//! Finding and reading cases.
use std::path::PathBuf;

use serde_json::Value;

use crate::formula::Rule;
use crate::npy;
use crate::shared::shared;

/// One folder of the golden set.
pub struct Case {
    pub name: String,
    pub kind: String,
    /// Prepended to every name before hashing.
    pub salt: String,
    pub dir: PathBuf,
    pub json: Value,
}

/// All cases by name; none, with a message, if there is no golden set.
pub fn cases() -> Vec<Case> {
    let named = std::env::var_os("CROSSFADE_GOLDEN").map(PathBuf::from);
    let Some(root) = named.or_else(|| shared("golden/public")) else { return Vec::new() };
    let entries = std::fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
    let mut dirs: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(|p| p.join("case.json").exists()).collect();
    dirs.sort();
    dirs.into_iter().map(Case::read).collect()
}

impl Case {
    fn read(dir: PathBuf) -> Self {
        // Python writes numbers that JSON does not have.
        let text = std::fs::read_to_string(dir.join("case.json")).unwrap().replace(" NaN", " null");
        let json: Value = serde_json::from_str(&text).unwrap();
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Self { name: text("case"), kind: text("kind"), salt: text("salt"), dir, json }
    }

    /// The values of an input given as {name, shape, rule}; inputs without a shape have that of another.
    pub fn input(&self, key: &str, shape: &[usize]) -> Vec<f32> {
        let input = &self.json["inputs"][key];
        let rule = Rule::parse(input["rule"].as_str().unwrap());
        rule.values(&format!("{}{}", self.salt, input["name"].as_str().unwrap()), shape.iter().product())
    }

    /// The shape of an input.
    pub fn shape(&self, key: &str) -> Vec<usize> {
        usizes(&self.json["inputs"][key]["shape"])
    }

    /// The times, rounded to f32 as the reference does.
    pub fn times(&self) -> Vec<f64> {
        floats(&self.json["inputs"]["t"]).into_iter().map(|t| f64::from(t as f32)).collect()
    }

    /// The stored values of an output: those of the f64 run where there are some.
    pub fn stored(&self, output: &str) -> Vec<f64> {
        let output = &self.json["outputs"][output];
        let file = output["file_f64run"].as_str().or(output["file"].as_str()).unwrap();
        npy::read(&self.dir.join(file))
    }
}

pub fn usizes(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

pub fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}
