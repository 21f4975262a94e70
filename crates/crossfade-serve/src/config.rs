//! What a server is started with.
use crossfade::checkpoint::{self, Checkpoint};
use crossfade::digest::sha256;
use crossfade::{Error, Result, limits};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens the checkpoint of a model.
pub type Open = Box<dyn Fn() -> Result<Checkpoint> + Send + Sync>;

/// A model to serve.
pub struct ModelSource {
    /// Its name in requests.
    pub name: String,
    /// Opens its checkpoint: at the start, and again whenever its weights are loaded.
    pub open: Open,
}

impl ModelSource {
    /// The model that `[NAME=]PATH` describes: a checkpoint, or the newest one of a run directory as it is now.
    pub fn parse(text: &str) -> Result<Self> {
        let named = text.split_once('=').filter(|(name, _)| is_name(name));
        let (name, path) = match named {
            Some((name, path)) => (Some(name.to_string()), path),
            None => (None, text),
        };
        let file = checkpoint::newest(Path::new(path))?;
        let name = name.or_else(|| default_name(Path::new(path))).ok_or_else(|| {
            Error::request(format!(
                "{text}: no name can be made of this path; write NAME={text} with letters and digits"
            ))
        })?;
        Ok(Self { name, open: Box::new(move || Checkpoint::open(&file)) })
    }
}

/// Whether a text can be the name of a model.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:@".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(plain)
}

/// The name of a run directory, or of a file without its ending. The checkpoints of a run are called after the run.
fn default_name(path: &Path) -> Option<String> {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let folder = path.parent().filter(|folder| path.is_file() && folder.ends_with("checkpoints"));
    let found = match folder.and_then(Path::parent) {
        Some(run) => name(run),
        None if path.is_dir() => name(path),
        None => stem(path),
    };
    found.filter(|name| is_name(name))
}

/// What a request, a client and the store may hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request.
    pub max_body: usize,
    /// Pixels of a picture that is sent, and of a result.
    pub max_pixels: usize,
    /// Pictures of a job.
    pub max_count: u64,
    /// Steps of a sampler.
    pub max_steps: usize,
    /// Jobs that wait, of all clients.
    pub max_queue: usize,
    /// Jobs that wait, of one client.
    pub max_queue_per_client: usize,
    /// Requests that create a job, for one client.
    pub requests_per_minute: u32,
    /// Open connections.
    pub max_connections: usize,
    /// Bytes of all requests that are being read or checked; at least one of `max_body` has room.
    pub max_bodies: usize,
    /// How long a peer may leave something undone.
    pub times: Times,
    /// How long finished jobs are kept.
    pub keep: Duration,
    /// Bytes of finished jobs that are kept; the oldest go first.
    pub keep_bytes: u64,
    /// How long a request waits for its pictures.
    pub wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: 32 << 20,
            max_pixels: 4 << 20,
            max_count: 64,
            max_steps: 1000,
            max_queue: 256,
            max_queue_per_client: 64,
            requests_per_minute: 600,
            max_connections: 1024,
            max_bodies: 256 << 20,
            times: Times::default(),
            keep: Duration::from_secs(7 * 24 * 3600),
            keep_bytes: 1 << 30,
            wait: Duration::from_secs(600),
        }
    }
}

/// How long a peer may leave something undone before its connection is closed.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The headers of a request, also on a connection that is kept open.
    pub header: Duration,
    /// The body of a request.
    pub body: Duration,
    /// Reading nothing of an answer.
    pub write: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let [header, body, write] = [20, 60, 60].map(Duration::from_secs);
        Self { header, body, write }
    }
}

/// Where jobs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// A database of PostgreSQL, which several servers can share.
    Postgres(String),
}

impl StoreAddress {
    /// `postgres://…` or the path of a file.
    pub fn parse(text: &str) -> Self {
        match text.starts_with("postgres://") || text.starts_with("postgresql://") {
            true => Self::Postgres(text.into()),
            false => Self::Sqlite(text.into()),
        }
    }
}

/// Everything that a server is started with.
pub struct ServeConfig {
    /// The address to listen on.
    pub bind: SocketAddr,
    /// The address that clients know the server by, for the URLs of pictures. None for `http://` and the host that a request
    /// names, which is wrong behind a proxy with TLS.
    pub public_url: Option<String>,
    /// The models.
    pub models: Vec<ModelSource>,
    /// Where jobs are kept.
    pub store: StoreAddress,
    /// Names and tokens of those who may ask; empty for everybody.
    pub tokens: Vec<(String, String)>,
    /// The limits.
    pub limits: Limits,
    /// Images of one forward pass.
    pub max_batch: usize,
    /// Images of a job that one thread samples together.
    pub chunk: usize,
    /// Threads that run samplers.
    pub slots: usize,
    /// Bytes of weights that stay loaded.
    pub memory: u64,
    /// Bytes of previews that are kept for readers of events.
    pub previews: usize,
    /// How long running jobs may go on after SIGTERM.
    pub drain: Duration,
    /// How long a job belongs to a server that says nothing.
    pub lease: Duration,
}

impl ServeConfig {
    /// The defaults for these models.
    pub fn new(bind: SocketAddr, models: Vec<ModelSource>, store: StoreAddress) -> Self {
        Self {
            bind,
            public_url: None,
            models,
            store,
            tokens: vec![],
            limits: Limits::default(),
            max_batch: 16,
            chunk: 8,
            slots: 32,
            memory: 2 << 30,
            previews: 64 << 20,
            drain: Duration::from_secs(30),
            lease: Duration::from_secs(15),
        }
    }
}

/// The least length of a token.
const MIN_TOKEN: usize = 16;

/// Reads `TOKEN` or `NAME TOKEN` of each line.
pub fn read_tokens(path: &Path) -> Result<Vec<(String, String)>> {
    let text = String::from_utf8(limits::read(path, &limits::TOKEN)?);
    let text = text.map_err(|_| Error::file(path, "is not UTF-8 text; is it a token file?"))?;
    let mut tokens = vec![];
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, token) = match words[..] {
            // Jobs belong to the name: it must not change when a line is added before this one. Names that are written
            // down have no space, so that none is equal to this one.
            [token] => (format!("token {}", &sha256(token.as_bytes())[..16]), token),
            [name, token] => (name.to_string(), token),
            _ => return Err(Error::file(path, format!("line {}: write TOKEN or NAME TOKEN", number + 1))),
        };
        if token.len() < MIN_TOKEN {
            let problem = format!("line {}: a token has at least {MIN_TOKEN} characters", number + 1);
            return Err(Error::file(path, problem));
        }
        tokens.push((name, token.to_string()));
    }
    if tokens.is_empty() {
        return Err(Error::file(path, "has no tokens; write one on a line"));
    }
    Ok(tokens)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_token_does_not_depend_on_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read_tokens(file.path()).unwrap()
        };
        let one = read("one-0123456789abcdef\n");
        let two = read("# more\nnew-0123456789abcdef\nalice alice-0123456789ab\none-0123456789abcdef\n");
        assert_eq!(two[2], one[0]);
        assert_ne!(two[0].0, one[0].0);
        assert_eq!(two[1].0, "alice");
        assert!(!one[0].0.contains("0123456789abcdef"), "the name does not tell the token");
    }
}
