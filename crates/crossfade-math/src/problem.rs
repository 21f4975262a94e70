//! Problems with options as data, so that a caller who knows the section and line of the key can add them.
use std::fmt;

/// One option whose value makes no sense.
///
/// Types that are read from a configuration return a list of these from `validate`, so that all problems are reported at
/// once and the reader of the file never has to parse a key back out of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The option, relative to the section of the type that reports it, such as `width` or `encoder.stride`; empty
    /// for a problem of the section itself.
    pub key: String,
    /// What is wrong and what to do about it, written to follow "`key`: ".
    pub message: String,
}

impl Problem {
    /// A problem of `key`.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }

    /// The same problem as seen from outside the section: the key of `section.key`.
    pub fn within(self, section: &str) -> Self {
        let key = match self.key.as_str() {
            "" => section.to_string(),
            key => format!("{section}.{key}"),
        };
        Self { key, ..self }
    }

    /// Adds a problem of `key` to `problems` unless `ok`.
    pub fn require(problems: &mut Vec<Self>, ok: bool, key: &str, message: impl Into<String>) {
        if !ok {
            problems.push(Self::new(key, message));
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.key, self.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_grow_by_their_section() {
        let problem = Problem::new("width", "must be positive").within("network");
        assert_eq!(problem.to_string(), "network.width: must be positive");
        assert_eq!(Problem::new("", "is missing").within("network").key, "network");
    }

    #[test]
    fn only_broken_requirements_are_problems() {
        let mut problems = vec![];
        Problem::require(&mut problems, true, "a", "fine");
        Problem::require(&mut problems, false, "b", "wrong");
        assert_eq!(problems, [Problem::new("b", "wrong")]);
    }
}
