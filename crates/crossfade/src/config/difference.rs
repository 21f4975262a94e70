//! Comparison of two configurations, option by option.
use super::unwritable;
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;

/// An option in which two configurations differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The option.
    pub key: String,
    /// Its values; none where it is not set.
    pub values: [Option<String>; 2],
}

/// The options in which two configurations differ, in alphabetical order.
pub fn differences<T: Serialize>(a: &T, b: &T) -> Result<Vec<Difference>> {
    let (a, b) = (flat(a)?, flat(b)?);
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    let all =
        keys.into_iter().map(|key| Difference { key: key.clone(), values: [&a, &b].map(|c| c.get(key).cloned()) });
    Ok(all.filter(|d| d.values[0] != d.values[1]).collect())
}

/// Fails if a resumed run would differ from the original one; the error lists every option that differs.
pub(super) fn must_equal<T: Serialize>(run: &T, wanted: &T) -> Result<()> {
    let found = differences(run, wanted)?;
    if found.is_empty() {
        return Ok(());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
    let advice = "a resumed run must be the same run; restore these options or start in another directory";
    let changed = found.iter().map(|Difference { key, values: [run, wanted] }| {
        format!("{key}: the run has {}, the configuration {}", text(run), text(wanted))
    });
    Err(Error::Config([advice.to_string()].into_iter().chain(changed).collect()))
}

/// Every option by its full name `section.key`.
fn flat<T: Serialize>(config: &T) -> Result<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    // Through TOML, so that new options are compared without a change here.
    flatten(&toml::Value::try_from(config).map_err(unwritable)?, "", &mut options);
    Ok(options)
}

fn flatten(value: &toml::Value, path: &str, options: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(value, &path, options);
            }
        }
        other => {
            options.insert(path.to_string(), other.to_string());
        }
    }
}
