//! A TOML file with the line numbers of its keys, read as far as its syntax allows.
use super::read::{Finding, MAX_PROBLEMS, join};
use crate::limits::{CONFIG, CONFIG_DEPTH, CONFIG_KEY, CONFIG_KEYS};
use std::collections::HashMap;
use toml::Table;
use toml::de::{DeTable, DeValue};

/// A parsed file with the line number of each key.
pub(super) struct Document {
    /// The content, without lines that cannot be parsed.
    pub table: Table,
    /// Lines with syntax errors: number and message.
    pub syntax: Vec<(usize, String)>,
    origin: String,
    lines: HashMap<String, usize>,
}

/// Where the lines of a text begin. Counting them anew for every key and every error would make reading quadratic.
struct Starts(Vec<usize>);

impl Starts {
    fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    /// The number of the line with this byte, from 1.
    fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at)
    }
}

impl Document {
    /// Parses `text`; `origin` is its file name for messages. An error if it is above a limit: here and not where files are
    /// read, because the configuration inside a checkpoint comes this way too.
    pub fn parse(text: &str, origin: &str) -> Result<Self, String> {
        CONFIG.check(text.len() as u64)?;
        Self::read(text, origin)
    }

    fn read(text: &str, origin: &str) -> Result<Self, String> {
        let mut readable = text.to_string();
        let mut syntax: Vec<(usize, String)> = Vec::new();
        // The parser stops at a syntax error, so the line is blanked and the text is parsed again to find further errors.
        loop {
            let (parsed, errors) = DeTable::parse_recoverable(&readable);
            let (mut lines, starts) = (HashMap::new(), Starts::of(&readable));
            collect_lines(&starts, parsed.get_ref(), "", &mut lines)?;
            let table: Result<Table, _> = serde::Deserialize::deserialize(toml::Deserializer::from(parsed));
            let mut fresh: Vec<(usize, String)> = (errors.iter().chain(table.as_ref().err()))
                .map(|e| (e.span().map_or(1, |span| starts.line(span.start)), e.message()))
                .map(|(line, message)| (line, format!("{origin}:{line}: {message}")))
                .filter(|(line, _)| syntax.iter().all(|(known, _)| known != line))
                .collect();
            fresh.sort_by_key(|(line, _)| *line);
            fresh.dedup_by_key(|(line, _)| *line);
            fresh.truncate(MAX_PROBLEMS);
            if fresh.is_empty() || syntax.len() >= MAX_PROBLEMS {
                return Ok(Self { table: table.unwrap_or_default(), syntax, origin: origin.to_string(), lines });
            }
            readable = blanked(&readable, &fresh);
            syntax.extend(fresh);
        }
    }

    /// Whether the key is on a line with a syntax error.
    pub(crate) fn is_broken(&self, path: &str) -> bool {
        let line = self.lines.get(path);
        self.syntax.iter().any(|(broken, _)| Some(broken) == line)
    }

    /// The problem as `origin:LINE: key: message`, and its line for sorting. If the key is not in the file, the line is
    /// that of its section.
    pub(crate) fn locate(&self, problem: &Finding) -> (usize, String) {
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

/// The text with broken lines replaced by spaces. If the header of a section is broken, the whole section is, because its
/// keys would be taken for those of the section before.
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

/// The lines of all keys; the reason if a key is too long or nested too deeply, or if there are too many. They are counted while
/// they are collected, because each is kept with the names of its sections.
fn collect_lines(
    starts: &Starts,
    table: &DeTable,
    section: &str,
    lines: &mut HashMap<String, usize>,
) -> Result<(), String> {
    let keep = |lines: &mut HashMap<String, usize>, path: &str, at: usize| {
        CONFIG_KEY.check(path.len() as u64)?;
        CONFIG_DEPTH.check(1 + path.matches('.').count() as u64)?;
        lines.insert(path.to_string(), starts.line(at));
        CONFIG_KEYS.check(lines.len() as u64)
    };
    for (key, value) in table.iter() {
        let path = join(section, key.get_ref());
        keep(lines, &path, key.span().start)?;
        match value.get_ref() {
            DeValue::Table(inner) => collect_lines(starts, inner, &path, lines)?,
            DeValue::Array(list) => {
                for (i, item) in list.iter().enumerate() {
                    if let DeValue::Table(inner) = item.get_ref() {
                        let path = join(&path, &i.to_string());
                        keep(lines, &path, item.span().start)?;
                        collect_lines(starts, inner, &path, lines)?;
                    }
                }
            }
            _ => (),
        }
    }
    Ok(())
}
