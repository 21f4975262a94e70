//! Reads TOML into a configuration and collects all problems, not only the first one.
//!
//! Serde stops at the first error and, inside tagged enums, does not report its position. So the key that causes an
//! error is found by trial: it is the key whose removal makes the error disappear or change. The problem is recorded,
//! the key is removed, and reading starts again.
use super::sections::LEFT_OUT;
use crate::limits::CONFIG_SEARCH;
use crossfade_math::nearest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use toml::{Table, Value};

/// The largest number of problems that are reported at once.
pub(super) const MAX_PROBLEMS: usize = 50;

/// A problem with the value of a key.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The full key, `section.key`.
    pub path: String,
    /// The message: what is wrong and how to correct it.
    pub message: String,
    /// Whether the problem is a missing key.
    pub missing: bool,
    /// Keys whose values are unknown because of this problem; checks that depend on them are skipped.
    pub doubtful: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// The full key of `key` in `section`.
pub(super) fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_string() } else { format!("{section}.{key}") }
}

/// The configuration in `table`, with defaults for values that cannot be used, and all problems.
pub(super) fn read<T: DeserializeOwned + Serialize + Default>(table: &Table) -> (T, Vec<Finding>) {
    let mut search = Search::of(table);
    let mut table = table.clone();
    let mut problems: Vec<Finding> = Vec::new();
    let mut rounds = 0;
    let value = loop {
        let error = match attempt::<T>(&table) {
            Ok(value) => break value,
            Err(error) => error,
        };
        let mut path = blame::<T>(&table, &error, &mut search);
        let mut problem = explain::<T>(&table, &error, &path);
        // Without a valid kind, the other options of the section cannot be checked: they belong to another kind than
        // the default.
        if path.len() > 1
            && path.last().is_some_and(|key| key == "kind")
            && error.message().starts_with("unknown variant")
        {
            path.pop();
            problem.doubtful = vec![path.join(".")];
        }
        let missing = quoted(error.message()).next().filter(|_| problem.missing);
        let known = missing.is_some_and(|key| problems.iter().any(|p| p.path == join(&problem.path, key)));
        if !known {
            problems.push(problem);
        }
        rounds += 1;
        if path.is_empty() || rounds > MAX_PROBLEMS {
            return (T::default(), problems);
        }
        remove(&mut table, &path);
    };
    // Serde ignores unknown options of enum variants without fields. Keys that are not in the serialised result had no
    // effect, or they were given their default value, which some options leave out.
    let resolved = Table::try_from(&value).unwrap_or_default();
    let mut ignored = Vec::new();
    report_ignored(&table, &resolved, "", &mut ignored);
    // A key that could not be tried any more is taken for one that nothing reads, so that it is refused.
    let ignored =
        ignored.into_iter().filter(|problem| !search.goes_on() || accepts_anything::<T>(&table, &problem.path));
    problems.extend(ignored.take(MAX_PROBLEMS));
    (value, problems)
}

/// How many times a configuration may still be read to find the causes of its errors. Each error may take a reading for each key
/// and each reading takes time for all keys, so that without this a hostile file would take half a minute.
struct Search {
    left: u64,
}

impl Search {
    fn of(table: &Table) -> Self {
        fn size(value: &Value) -> u64 {
            8 + match value {
                Value::String(text) => text.len() as u64,
                Value::Array(list) => list.iter().map(size).sum(),
                Value::Table(table) => size_of_table(table),
                _ => 0,
            }
        }
        fn size_of_table(table: &Table) -> u64 {
            table.iter().map(|(key, value)| key.len() as u64 + size(value)).sum()
        }
        Self { left: CONFIG_SEARCH.max / size_of_table(table).max(1) }
    }

    /// Whether there is one more reading, which is then counted.
    fn goes_on(&mut self) -> bool {
        let goes_on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        goes_on
    }
}

fn attempt<T: DeserializeOwned>(table: &Table) -> Result<T, toml::de::Error> {
    table.clone().try_into()
}

/// The path of the key that causes `error`, outermost section first; that of its section if the search has taken too long.
fn blame<T: DeserializeOwned>(table: &Table, error: &toml::de::Error, search: &mut Search) -> Vec<String> {
    let mut path = Vec::new();
    while let Some(key) = culprit::<T>(table, &path, error, search) {
        path.push(key);
    }
    path
}

/// The key below `path` whose removal makes `error` disappear. A key whose removal causes a "missing field" error is the
/// second choice.
fn culprit<T: DeserializeOwned>(
    table: &Table,
    path: &[String],
    error: &toml::de::Error,
    search: &mut Search,
) -> Option<String> {
    let is_missing = |e: &toml::de::Error| e.message().starts_with("missing field");
    let mut keys = keys(table, path)?;
    // The key that serde names is the most likely cause. `kind` is tried last, because removing it changes which other
    // keys are valid.
    keys.sort_by_key(|key| (quoted(error.message()).next() != Some(key), key == "kind"));
    let mut second = None;
    for key in keys {
        if !search.goes_on() {
            return None;
        }
        let mut without = table.clone();
        let mut path = path.to_vec();
        path.push(key.clone());
        remove(&mut without, &path);
        match attempt::<T>(&without) {
            Err(other) if other.to_string() == error.to_string() => (),
            Err(other) if is_missing(&other) => {
                if !is_missing(error) && second.is_none() {
                    second = Some(key);
                }
            }
            _ => return Some(key),
        }
    }
    second
}

fn at<'a>(table: &'a Table, path: &[String]) -> Option<&'a Table> {
    match path.split_first() {
        None => Some(table),
        Some((first, rest)) => rest.iter().try_fold(table.get(first)?, below)?.as_table(),
    }
}

/// The value under a key of a section, or at an index of a list of sections.
fn below<'a>(value: &'a Value, key: &String) -> Option<&'a Value> {
    match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => value.get(key),
    }
}

/// The keys of a section, or the indices of a list of sections.
fn keys(table: &Table, path: &[String]) -> Option<Vec<String>> {
    if let Some(section) = at(table, path) {
        return Some(section.keys().cloned().collect());
    }
    let (first, rest) = path.split_first()?;
    let list = rest.iter().try_fold(table.get(first)?, below)?.as_array()?;
    list.iter().all(Value::is_table).then(|| (0..list.len()).map(|i| i.to_string()).collect())
}

fn remove(table: &mut Table, path: &[String]) {
    match path {
        [] => (),
        [key] => {
            table.remove(key);
        }
        [list, index, rest @ ..] if table.get(list).is_some_and(Value::is_array) => {
            let item = index.parse::<usize>().ok().and_then(|i| table.get_mut(list)?.as_array_mut()?.get_mut(i));
            match (item, rest) {
                // The section is emptied and not removed, so that the indices of the others stay valid.
                (Some(item), []) => *item = Value::Table(Table::new()),
                (Some(Value::Table(inner)), rest) => remove(inner, rest),
                _ => (),
            }
        }
        [section, rest @ ..] => {
            if let Some(inner) = table.get_mut(section).and_then(Value::as_table_mut) {
                remove(inner, rest);
            }
        }
    }
}

/// The words in backticks.
fn quoted(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2)
}

/// Translates an error of serde to the terms of the configuration.
fn explain<T: DeserializeOwned + Serialize + Default>(
    table: &Table,
    error: &toml::de::Error,
    path: &[String],
) -> Finding {
    let message = error.message();
    let names: Vec<&str> = quoted(message).collect();
    let full = path.join(".");
    let plain = |message: String| Finding { path: full.clone(), message, missing: false, doubtful: vec![full.clone()] };
    match names.split_first() {
        Some((name, known)) if message.starts_with("unknown field") => unknown_key::<T>(table, path, name, known),
        Some((name, known)) if message.starts_with("unknown variant") => {
            let meant = nearest(name, known).map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
            plain(format!("unknown value `{name}`{meant}; known: {}", known.join(", ")))
        }
        Some((name, _)) if message.starts_with("missing field") => {
            let kinds = Some(kinds::<T>(table, path)).filter(|kinds| *name == "kind" && !kinds.is_empty());
            let kinds = kinds.map_or(String::new(), |kinds| format!(", one of: {kinds}"));
            Finding { missing: true, ..plain(format!("`{name}` is missing{kinds}")) }
        }
        _ => plain(in_plain_words(message)),
    }
}

fn unknown_key<T: Serialize + Default>(table: &Table, path: &[String], name: &str, known: &[&str]) -> Finding {
    let section = path[..path.len().saturating_sub(1)].join(".");
    let defaults = Table::try_from(T::default()).unwrap_or_default();
    let elsewhere = |key: &&String| **key != section && defaults[*key].as_table().is_some_and(|t| t.contains_key(name));
    let (hint, mut doubtful) = if let Some(meant) = nearest(name, known) {
        (format!("; did you mean `{meant}`?"), vec![join(&section, meant)])
    } else if let Some(other) = defaults.keys().find(elsewhere) {
        (format!("; there is one in [{other}]"), vec![join(other, name)])
    } else {
        (format!("; known: {}", known.join(", ")), Vec::new())
    };
    // A key that is also given under its correct name has a known value.
    doubtful.retain(|key| {
        let keys: Vec<_> = key.split('.').map(str::to_string).collect();
        let found = keys.split_last().and_then(|(last, sections)| at(table, sections)?.get(last));
        found.is_none()
    });
    Finding { path: path.join("."), message: format!("unknown key{hint}"), missing: false, doubtful }
}

/// The possible values of `kind` in the table at `path`, taken from serde's message for an invalid one.
fn kinds<T: DeserializeOwned>(table: &Table, path: &[String]) -> String {
    let mut probe = table.clone();
    let inner = path.iter().try_fold(&mut probe, |table, key| table.get_mut(key)?.as_table_mut());
    inner.map(|inner| inner.insert("kind".into(), Value::String("?".into())));
    match attempt::<T>(&probe) {
        Err(error) if error.message().starts_with("unknown variant `?`") => {
            quoted(error.message()).skip(1).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    }
}

/// Translates Rust's type names to the terms of the configuration.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_string();
    };
    let expected = match expected {
        "usize" | "u64" | "u32" | "u8" => "a whole number from 0 up",
        "f64" => "a number",
        "a boolean" => "true or false",
        "path string" => "a path in quotes",
        "a sequence" => "a list",
        "a map" => "a section",
        e if e.starts_with("struct ") || e.starts_with("internally tagged enum ") => "a section",
        e if e.starts_with("enum ") || e == "string or map" => "one of its names, in quotes",
        e => e,
    };
    let found = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    format!("{found} found, {expected} expected")
}

/// Whether any value of a key is accepted, because nothing reads it. No option is a date.
fn accepts_anything<T: DeserializeOwned>(table: &Table, path: &str) -> bool {
    let (mut probe, keys) = (table.clone(), path.split('.').collect::<Vec<_>>());
    let Some((last, sections)) = keys.split_last() else { return true };
    let inner = sections.iter().try_fold(&mut probe, |table, key| table.get_mut(*key)?.as_table_mut());
    let (Some(inner), Ok(date)) = (inner, "2000-01-01".parse()) else { return true };
    inner.insert((*last).to_string(), Value::Datetime(date));
    attempt::<T>(&probe).is_ok()
}

/// Reports keys that were accepted but are not in the serialised result.
fn report_ignored(given: &Table, resolved: &Table, section: &str, problems: &mut Vec<Finding>) {
    for (key, value) in given {
        let path = join(section, key);
        match (value, resolved.get(key)) {
            (Value::Table(given), Some(Value::Table(resolved))) => report_ignored(given, resolved, &path, problems),
            (_, Some(_)) => (),
            (_, None) if LEFT_OUT.contains(&path.as_str()) => (),
            (_, None) => {
                let kind = resolved.get("kind").and_then(Value::as_str);
                let kind = kind.map_or(String::new(), |kind| format!("; kind `{kind}` has no such option"));
                let message = format!("unknown key{kind}");
                problems.push(Finding { path, message, missing: false, doubtful: Vec::new() });
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde::{Deserialize, Deserializer};
    use std::cell::Cell;

    thread_local! {
        static READINGS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts how often it is read. Each of its keys that begin with `z` is an error that does not name the key.
    #[derive(Default, Serialize)]
    struct Counted {}

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            READINGS.set(READINGS.get() + 1);
            let table = Table::deserialize(deserializer)?;
            match table.iter().find(|(key, _)| key.starts_with('z')) {
                Some((_, value)) => Err(serde::de::Error::custom(format!("wrong: {value}"))),
                None => Ok(Self {}),
            }
        }
    }

    fn counted(keys: usize, errors: usize) -> (u64, Vec<Finding>) {
        let keys = (0..keys).map(|k| (format!("a{k:04}"), Value::Integer(1)));
        let errors = (0..errors).map(|k| (format!("z{k:04}"), Value::Integer(k as i64)));
        READINGS.set(0);
        let (_, found) = read::<Counted>(&keys.chain(errors).collect());
        (READINGS.get(), found)
    }

    #[test]
    fn every_error_of_a_usual_configuration_is_found() {
        let (_, found) = counted(0, 30);
        let paths: Vec<&str> = found.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, (0..30).map(|k| format!("z{k:04}")).collect::<Vec<_>>());
    }

    /// 1,900 keys and 50 errors were 95,000 readings of all keys.
    #[test]
    fn the_search_ends() {
        let (readings, found) = counted(1900, 50);
        let most = CONFIG_SEARCH.max / (1950 * 13) + 2 * (MAX_PROBLEMS as u64 + 1);
        assert!(readings <= most, "{readings} readings, {most} at most");
        assert!(!found.is_empty() && found.iter().all(|problem| problem.message.contains("wrong")), "{found:?}");
    }
}
