//! The library's error type. Whatever a user can cause is an `Err` that names the path, key or shape and says what to
//! do; programming errors panic.
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// An error that a user can cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{}: {}", path.shown(), visible(&source.to_string()))]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not what it should be: damaged, foreign, too large or hostile.
    #[error("{}: {}", path.shown(), indented(message))]
    File {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// A request that cannot be fulfilled: a bad option, an unknown name, values that contradict each other.
    #[error("{}", indented(.0))]
    Request(String),
    /// All problems of a configuration, one a line.
    #[error("{}", one_each(.0))]
    Config(Vec<String>),
    /// The run itself failed: the loss is NaN, or the device reported an error.
    #[error("{}", indented(.0))]
    Run(String),
}

/// `Result` with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl From<crossfade_math::UnknownName> for Error {
    fn from(unknown: crossfade_math::UnknownName) -> Self {
        Self::Request(unknown.to_string())
    }
}

impl Error {
    /// An I/O error with the path it happened at; use as `.map_err(Error::io(path))`.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { path, source }
    }

    /// A file that is not what it should be.
    pub fn file(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::File { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// All problems that a type found with its options.
    pub fn config(problems: &[crossfade_math::Problem]) -> Self {
        Self::Config(problems.iter().map(ToString::to_string).collect())
    }

    /// A request that cannot be fulfilled.
    pub fn request(message: impl Into<String>) -> Self {
        Self::Request(message.into())
    }
}

/// Text that came from outside (a name in an archive, a file name, a recipe) as it may be printed: control characters, with
/// which it could forge lines or steer the terminal, and marks that turn the direction of writing are escaped.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |_| true)
}

/// As [`visible`], for texts of several lines, all of which this program has made: what came from outside and is in them must be
/// [`visible`] already, or it could add lines of its own.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !matches!(c, '\n' | '\t'))
}

/// A message of one line or with a list of lines below. A list is indented, whoever has made it, so that no message can add what
/// looks like a line of this program.
fn indented(text: &str) -> String {
    visible_lines(text).lines().collect::<Vec<_>>().join("\n  ").replace("\n    ", "\n  ")
}

/// Problems, one a line.
fn one_each(problems: &[String]) -> String {
    problems.iter().map(|problem| visible(problem)).collect::<Vec<_>>().join("\n")
}

/// A path as it may be printed. A test refuses `Path::display` in the sources: it prints what is in a name as it is.
pub trait Shown {
    /// The path as [`visible`] text; bytes that are no UTF-8 are replaced.
    fn shown(&self) -> String;
}

impl Shown for Path {
    fn shown(&self) -> String {
        visible(&self.to_string_lossy()).into_owned()
    }
}

/// A path in JSON, for reports: serde's own form of a path fails on names that are not UTF-8, after the work was done.
pub fn serialize_path<S: serde::Serializer>(path: &Path, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// As [`serialize_path`], for a path that may be absent.
pub fn serialize_optional_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    match path {
        Some(path) => serialize_path(path, serializer),
        None => serializer.serialize_none(),
    }
}

fn escaped(text: &str, wanted: impl Fn(char) -> bool) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let bad = |c: char| (c.is_control() || turns(c)) && wanted(c);
    if !text.chars().any(bad) {
        return Cow::Borrowed(text);
    }
    let one = |c: char| if bad(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}
