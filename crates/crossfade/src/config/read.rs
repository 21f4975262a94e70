//! From TOML to values, collecting every problem instead of the first.
//!
//! Serde stops at the first error and, inside tagged enums, forgets where it was. So the key to blame is found by trial:
//! the one without which the error goes away or becomes another. It is recorded, removed, and reading starts again.
use crossfade_math::nearest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// Most problems reported at once.
const MAX_PROBLEMS: usize = 50;

/// Something wrong with a key.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    /// The key, with its sections.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Whether something is missing there.
    pub missing: bool,
    /// Keys whose values are unknown because of this problem.
    pub doubtful: Vec<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

/// A text with the lines of its keys.
pub(super) struct Document {
    /// What could be read.
    pub table: Table,
    /// Broken lines: number and message.
    pub syntax: Vec<(usize, String)>,
    origin: String,
    lines: HashMap<String, usize>,
}

impl Document {
    /// Reads what can be read.
    pub fn parse(text: &str, origin: &str) -> Self {
        let mut readable = text.to_string();
        let mut syntax: Vec<(usize, String)> = Vec::new();
        // The parser gives up within a broken line, so it is blanked and the rest is read again.
        loop {
            let (parsed, errors) = DeTable::parse_recoverable(&readable);
            let mut lines = HashMap::new();
            collect_lines(&readable, parsed.get_ref(), "", &mut lines);
            let table: Result<Table, _> = serde::Deserialize::deserialize(toml::Deserializer::from(parsed));
            let mut fresh: Vec<(usize, String)> = (errors.iter().chain(table.as_ref().err()))
                .map(|e| (e.span().map_or(1, |span| line_of(&readable, span.start)), e.message()))
                .map(|(line, message)| (line, format!("{origin}:{line}: {message}")))
                .filter(|(line, _)| syntax.iter().all(|(known, _)| known != line))
                .collect();
            fresh.sort_by_key(|(line, _)| *line);
            fresh.dedup_by_key(|(line, _)| *line);
            fresh.truncate(MAX_PROBLEMS);
            if fresh.is_empty() || syntax.len() >= MAX_PROBLEMS {
                return Self { table: table.unwrap_or_default(), syntax, origin: origin.to_string(), lines };
            }
            readable = blanked(&readable, &fresh);
            syntax.extend(fresh);
        }
    }

    /// Whether the key stands on a line that could not be read.
    pub fn is_broken(&self, path: &str) -> bool {
        let line = self.lines.get(path);
        self.syntax.iter().any(|(broken, _)| Some(broken) == line)
    }

    /// The problem as `origin:LINE: key: message`, with the line for sorting. The line is the key's or, if it is not in the
    /// file, its section's.
    pub fn locate(&self, problem: &Problem) -> (usize, String) {
        let mut path = problem.path.as_str();
        loop {
            if let Some(&line) = self.lines.get(path) {
                return (line, format!("{}:{line}: {problem}", self.origin));
            }
            match path.rsplit_once('.') {
                Some((section, _)) => path = section,
                None => return (usize::MAX, format!("{}: {problem}", self.origin)),
            }
        }
    }
}

/// The text with spaces for the broken lines; a broken header takes its section along.
fn blanked(text: &str, broken: &[(usize, String)]) -> String {
    let mut skipping = false;
    let lines = text.split('\n').enumerate().map(|(i, line)| {
        let header = line.trim_start().starts_with('[');
        let bad = broken.iter().any(|(number, _)| *number == i + 1);
        skipping = if header { bad } else { skipping };
        if bad || skipping { " ".repeat(line.len()) } else { line.to_string() }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&b| b == b'\n').count()
}

fn collect_lines(text: &str, table: &DeTable, section: &str, lines: &mut HashMap<String, usize>) {
    for (key, value) in table.iter() {
        let path = join(section, key.get_ref());
        lines.insert(path.clone(), line_of(text, key.span().start));
        match value.get_ref() {
            DeValue::Table(inner) => collect_lines(text, inner, &path, lines),
            DeValue::Array(list) => {
                for (i, item) in list.iter().enumerate() {
                    if let DeValue::Table(inner) = item.get_ref() {
                        let path = join(&path, &i.to_string());
                        lines.insert(path.clone(), line_of(text, item.span().start));
                        collect_lines(text, inner, &path, lines);
                    }
                }
            }
            _ => (),
        }
    }
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_string() } else { format!("{section}.{key}") }
}

/// The values of `table`, defaults in place of what could not be used, and all problems.
pub(super) fn read<T: DeserializeOwned + Serialize + Default>(table: &Table) -> (T, Vec<Problem>) {
    let mut table = table.clone();
    let mut problems: Vec<Problem> = Vec::new();
    let mut rounds = 0;
    let value = loop {
        let error = match attempt::<T>(&table) {
            Ok(value) => break value,
            Err(error) => error,
        };
        let path = blame::<T>(&table, &error);
        let problem = explain::<T>(&table, &error, &path);
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
    // Variants without options accept any; what does not come back had no effect.
    let resolved = Table::try_from(&value).unwrap_or_default();
    idle(&table, &resolved, "", &mut problems);
    (value, problems)
}

fn attempt<T: DeserializeOwned>(table: &Table) -> Result<T, toml::de::Error> {
    table.clone().try_into()
}

/// The keys, outermost first, that lead to what causes `error`.
fn blame<T: DeserializeOwned>(table: &Table, error: &toml::de::Error) -> Vec<String> {
    let mut path = Vec::new();
    while let Some(key) = culprit::<T>(table, &path, error) {
        path.push(key);
    }
    path
}

/// The key below `path` without which `error` is not raised. One whose absence is an error of its own comes second.
fn culprit<T: DeserializeOwned>(table: &Table, path: &[String], error: &toml::de::Error) -> Option<String> {
    let is_missing = |e: &toml::de::Error| e.message().starts_with("missing field");
    let mut keys = keys(table, path)?;
    // The key that serde names is the likeliest, the one that decides about all others the least.
    keys.sort_by_key(|key| (quoted(error.message()).next() != Some(key), key == "kind"));
    let mut second = None;
    for key in keys {
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

/// What a section holds under a key, or a list of sections at a place.
fn below<'a>(value: &'a Value, key: &String) -> Option<&'a Value> {
    match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => value.get(key),
    }
}

/// The keys of a section, or the places of a list of sections.
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
        [list, place, rest @ ..] if table.get(list).is_some_and(Value::is_array) => {
            let item = place.parse::<usize>().ok().and_then(|i| table.get_mut(list)?.as_array_mut()?.get_mut(i));
            match (item, rest) {
                // An emptied section keeps the places of the others.
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

/// Serde's message in the words of a configuration.
fn explain<T: DeserializeOwned + Serialize + Default>(
    table: &Table,
    error: &toml::de::Error,
    path: &[String],
) -> Problem {
    let message = error.message();
    let names: Vec<&str> = quoted(message).collect();
    let full = path.join(".");
    let plain = |message: String| Problem { path: full.clone(), message, missing: false, doubtful: vec![full.clone()] };
    match names.split_first() {
        Some((name, known)) if message.starts_with("unknown field") => unknown_key::<T>(table, path, name, known),
        Some((name, known)) if message.starts_with("unknown variant") => {
            let meant = nearest(name, known).map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
            plain(format!("unknown value `{name}`{meant}; known: {}", known.join(", ")))
        }
        Some((name, _)) if message.starts_with("missing field") => {
            let kinds = Some(kinds::<T>(table, path)).filter(|kinds| *name == "kind" && !kinds.is_empty());
            let kinds = kinds.map_or(String::new(), |kinds| format!(", one of: {kinds}"));
            Problem { missing: true, ..plain(format!("`{name}` is missing{kinds}")) }
        }
        _ => plain(in_plain_words(message)),
    }
}

fn unknown_key<T: Serialize + Default>(table: &Table, path: &[String], name: &str, known: &[&str]) -> Problem {
    let section = path[..path.len().saturating_sub(1)].join(".");
    let defaults = Table::try_from(T::default()).unwrap_or_default();
    let elsewhere = |key: &&String| defaults[*key].as_table().is_some_and(|t| t.contains_key(name));
    let (hint, mut doubtful) = if let Some(meant) = nearest(name, known) {
        (format!("; did you mean `{meant}`?"), vec![join(&section, meant)])
    } else if let Some(other) = defaults.keys().find(elsewhere) {
        (format!("; there is one in [{other}]"), vec![join(other, name)])
    } else {
        (format!("; known: {}", known.join(", ")), Vec::new())
    };
    // What is given under its right name too is not in doubt.
    doubtful.retain(|key| {
        let keys: Vec<_> = key.split('.').map(str::to_string).collect();
        let found = keys.split_last().and_then(|(last, sections)| at(table, sections)?.get(last));
        found.is_none()
    });
    Problem { path: path.join("."), message: format!("unknown key{hint}"), missing: false, doubtful }
}

/// The values that `kind` can have in the table at `path`: what serde says when it is none of them.
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

/// Rust's type names in the words of a configuration.
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
        e if e.starts_with("struct ") || e.starts_with("internally tagged enum ") => "a section",
        e if e.starts_with("enum ") || e == "string or map" => "one of its names, in quotes",
        e => e,
    };
    let found = found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    format!("{found} found, {expected} expected")
}

/// Reports keys that were read but are not in the result.
fn idle(given: &Table, resolved: &Table, section: &str, problems: &mut Vec<Problem>) {
    for (key, value) in given {
        let path = join(section, key);
        match (value, resolved.get(key)) {
            (Value::Table(given), Some(Value::Table(resolved))) => idle(given, resolved, &path, problems),
            (_, Some(_)) => (),
            (_, None) => {
                let kind = resolved.get("kind").and_then(Value::as_str);
                let kind = kind.map_or(String::new(), |kind| format!("; kind `{kind}` has no such option"));
                let message = format!("unknown key{kind}");
                problems.push(Problem { path, message, missing: false, doubtful: Vec::new() });
            }
        }
    }
}

/// A process whose section may leave out its kind: serde's tagged enums need the tag, so that the default is put in first.
pub(super) fn process<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<crossfade_math::Process, D::Error> {
    let mut section = <Table as serde::Deserialize>::deserialize(deserializer)?;
    section.entry("kind").or_insert_with(|| crossfade_math::Process::default().name().into());
    // The message alone: `explain` recognises serde's own messages.
    section.try_into().map_err(|e: toml::de::Error| serde::de::Error::custom(e.message()))
}
