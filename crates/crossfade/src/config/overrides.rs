//! Assignments from the command line: `--set section.key=value`.
use super::read::Finding;
use crate::limits::CONFIG_DEPTH;
use toml::{Table, Value};

/// An assignment that was applied: its full key, and its text as the user wrote it.
pub(super) struct Assignment {
    path: String,
    text: String,
}

/// Applies `sets` to `table`; also returns an error message for each assignment that cannot be applied.
pub(super) fn apply<S: AsRef<str>>(table: &mut Table, sets: &[S]) -> (Vec<Assignment>, Vec<String>) {
    let (mut applied, mut problems) = (Vec::new(), Vec::new());
    let mut parsed = Vec::new();
    for set in sets.iter().map(AsRef::as_ref) {
        match parse(set) {
            Ok((path, value)) => parsed.push((path, value, set)),
            Err(message) => problems.push(format!("--set {set}: {message}")),
        }
    }
    // Assignments of `kind` come first, because they drop the options of the old kind.
    parsed.sort_by_key(|(path, _, _)| path.last().is_none_or(|key| key != "kind"));
    for (path, value, set) in parsed {
        match assign(table, &path, value) {
            Ok(()) => applied.push(Assignment { path: path.join("."), text: set.to_string() }),
            Err(message) => problems.push(format!("--set {set}: {message}")),
        }
    }
    (applied, problems)
}

/// The message of a problem, with the assignment that caused it if there is one.
pub(super) fn locate(applied: &[Assignment], problem: &Finding) -> String {
    let within =
        |inner: &str, outer: &str| inner == outer || inner.strip_prefix(outer).is_some_and(|r| r.starts_with('.'));
    // From the last to the first, because a later assignment replaces an earlier one.
    let cause = applied.iter().rev().find(|a| within(&problem.path, &a.path) || within(&a.path, &problem.path));
    match cause {
        Some(cause) => format!("--set {}: {}", cause.text, problem.message),
        None => problem.to_string(),
    }
}

fn parse(set: &str) -> Result<(Vec<String>, Value), String> {
    let (key, value) = set.split_once('=').ok_or("expected section.key=value")?;
    let path: Vec<String> = key.split('.').map(|part| part.trim().to_string()).collect();
    if path.iter().any(String::is_empty) {
        return Err("expected section.key=value".into());
    }
    CONFIG_DEPTH.check(path.len() as u64)?;
    Ok((path, parse_value(value.trim())?))
}

/// A TOML value; text that is not valid TOML is taken as a string without quotes.
fn parse_value(text: &str) -> Result<Value, String> {
    match text.parse::<Value>() {
        Ok(value) => Ok(value),
        Err(error) if text.is_empty() || text.starts_with(['[', '{', '"', '\'']) => Err(error.message().to_string()),
        Err(_) => Ok(Value::String(text.to_string())),
    }
}

fn assign(table: &mut Table, path: &[String], value: Value) -> Result<(), String> {
    let Some((last, sections)) = path.split_last() else {
        return Ok(());
    };
    let mut inner = table;
    for key in sections {
        let next = inner.entry(key).or_insert_with(|| Value::Table(Table::new()));
        inner = next.as_table_mut().ok_or_else(|| format!("`{key}` is no section"))?;
    }
    if last == "kind" && inner.get("kind").is_some_and(|old| *old != value) {
        // Options of the old kind do not apply to the new one. `final_t` is an option of every kind of grid and is kept.
        inner.retain(|key, _| key == "final_t" || key == "keep_objective");
    }
    inner.insert(last.clone(), value);
    Ok(())
}
