//! The library of models that ship: a name stands wherever a checkpoint is asked for.
//!
//! This crate defines what a model is, where its bytes are looked for and how they are verified. A program that has models
//! names them once with [`install`], with their bytes in itself ([`Content::Embedded`]) or in files beside it. Users of the
//! library carry no weights.
use crate::digest::sha256;
use crate::error::{Error, Result, Shown};
use crate::files::{create_directories, write_atomic};
use crate::limits;
use crossfade_math::nearest;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A trained model with a name.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name on the command line: letters, digits and hyphens.
    pub name: &'static str,
    /// The name of its task, as in `task.kind`.
    pub task: &'static str,
    /// Whether the commands of its task use it where no checkpoint is named.
    pub default: bool,
    /// Its measured quality in one line.
    pub quality: &'static str,
    /// The size of its file in bytes.
    pub bytes: u64,
    /// SHA-256 of its file, in hexadecimal.
    pub sha256: &'static str,
    /// Its card: data and licences, training, quality, what it is for and not for.
    pub card: &'static str,
    /// Where its bytes are.
    pub content: Content,
}

/// Where the bytes of a model are.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// In the program itself.
    Embedded(&'static [u8]),
    /// In a file of one of the [`directories`], which can be fetched from a URL if one is known.
    File {
        /// The URL.
        url: Option<&'static str>,
    },
}

static INSTALLED: OnceLock<&'static [Model]> = OnceLock::new();

/// Names the models of this program. Only the first call has an effect, so that names keep their meaning.
pub fn install(models: &'static [Model]) {
    INSTALLED.get_or_init(|| models);
}

/// The models of this program; none unless it has called [`install`].
pub fn all() -> &'static [Model] {
    INSTALLED.get().copied().unwrap_or_default()
}

/// The model that `path` names: a name without directories.
pub fn of(path: &Path) -> Option<&'static Model> {
    all().iter().find(|model| path.as_os_str() == model.name)
}

/// The model called `name`; the error suggests the nearest name.
pub fn named(name: &str) -> Result<&'static Model> {
    of(Path::new(name)).ok_or_else(|| unknown("model", name, all()))
}

/// The model that the commands of a task use where no checkpoint is named.
pub fn default_of(task: &str) -> Option<&'static Model> {
    all().iter().find(|model| model.default && model.task == task)
}

/// `path` as it is meant in a file of the directory `dir`: relative to it, unless it is the name of a model and no such file
/// exists.
pub fn relative_to(dir: &Path, path: &Path) -> PathBuf {
    let file = dir.join(path);
    if of(path).is_some() && !file.exists() { path.to_path_buf() } else { file }
}

/// The error for a checkpoint that is no file and no model. What looks like a name gets the nearest name as advice.
pub(crate) fn no_checkpoint(path: &Path, error: std::io::Error) -> Error {
    let name = path.to_str().filter(|name| !name.contains(['/', '\\', '.']) && !name.is_empty());
    match name {
        Some(name) if error.kind() == std::io::ErrorKind::NotFound => unknown("file, run or model", name, all()),
        _ => Error::io(path)(error),
    }
}

fn unknown(what: &str, name: &str, models: &[Model]) -> Error {
    let names: Vec<&str> = models.iter().map(|model| model.name).collect();
    let meant = nearest(name, &names).map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
    let known = match names.as_slice() {
        [] => "no models ship with this program".into(),
        names => format!("the models are {}", names.join(", ")),
    };
    Error::request(format!("no {what} is called `{name}`{meant}; {known}"))
}

impl Model {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.safetensors", self.name)
    }

    /// Whether the program contains it.
    pub fn is_embedded(&self) -> bool {
        matches!(self.content, Content::Embedded(_))
    }

    /// The file that holds it, if it is not in the program and is found in one of the [`directories`].
    pub fn found(&self) -> Option<PathBuf> {
        let mut files = directories().into_iter().map(|dir| dir.join(self.file_name()));
        files.find(|file| !self.is_embedded() && file.is_file())
    }

    /// Its bytes, after their SHA-256 has been verified.
    pub fn read(&self) -> Result<Cow<'static, [u8]>> {
        match self.content {
            Content::Embedded(bytes) => {
                self.verify(bytes, Path::new(self.name))?;
                Ok(Cow::Borrowed(bytes))
            }
            Content::File { .. } => {
                let file = self.found().ok_or_else(|| Error::request(self.absent()))?;
                // One byte more is enough to see that it is another file.
                let bytes = limits::read_at_most(&file, self.bytes)?.unwrap_or_default();
                self.verify(&bytes, &file)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Stores `bytes` in the data directory, if they are those of the model.
    pub fn store(&self, bytes: &[u8]) -> Result<PathBuf> {
        let dir = data_directory()?;
        let file = dir.join(self.file_name());
        self.verify(bytes, &file)?;
        create_directories(&dir)?;
        write_atomic(&file, bytes)?;
        Ok(file)
    }

    /// An error unless `bytes` are those of the model. A changed model would make plausible but other pictures, so that
    /// nothing is ever used unverified.
    fn verify(&self, bytes: &[u8], path: &Path) -> Result<()> {
        let found = sha256(bytes);
        if found == self.sha256 {
            return Ok(());
        }
        let message = format!("not the model {}: its SHA-256 is {found}, expected {}", self.name, self.sha256);
        Err(Error::file(path, message))
    }

    /// What to do if its file is nowhere.
    fn absent(&self) -> String {
        let places: Vec<_> = directories().iter().map(|dir| dir.shown()).collect();
        let how = match self.content {
            Content::File { url: Some(_) } => format!("fetch it with `crossfade models get {}`, or ", self.name),
            _ => String::new(),
        };
        let (name, file) = (self.name, self.file_name());
        format!("the model {name} is not on this machine; {how}put {file} in one of {}", places.join(", "))
    }
}

/// Where the files of models are looked for: the directory `CROSSFADE_MODELS`, `models` beside the program or up to two levels
/// above it (as in a clone of the repository, where programs are built in `target/release`), and the data directory.
pub fn directories() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok().and_then(|file| file.canonicalize().ok());
    let beside = program.iter().flat_map(|file| file.ancestors().skip(1).take(3)).map(|dir| dir.join("models"));
    let mut all: Vec<PathBuf> = variable("CROSSFADE_MODELS").into_iter().chain(beside).collect();
    all.extend(data_directory().ok().filter(|dir| !all.contains(dir)));
    all
}

/// Where fetched models are stored: the directory `CROSSFADE_MODELS`, or `crossfade/models` in the platform's directory for
/// the data of programs.
pub fn data_directory() -> Result<PathBuf> {
    if let Some(path) = variable("CROSSFADE_MODELS") {
        return Ok(path);
    }
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")))
    };
    let base = base.ok_or_else(|| Error::request("no directory for data is known; set CROSSFADE_MODELS to one"))?;
    Ok(base.join("crossfade/models"))
}

/// The path in a variable of the environment. An empty one counts as not set, as the XDG specification demands.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MODEL: Model = Model {
        name: "shapes",
        task: "generate",
        default: true,
        quality: "none",
        bytes: 5,
        // Of b"bytes".
        sha256: "277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9",
        card: "",
        content: Content::Embedded(b"bytes"),
    };

    #[test]
    fn bytes_are_verified_before_they_are_used() {
        assert_eq!(*MODEL.read().unwrap(), *b"bytes");
        let tampered = Model { content: Content::Embedded(b"bytez"), ..MODEL };
        let error = tampered.read().unwrap_err().to_string();
        assert!(error.contains("SHA-256") && error.contains("shapes"), "{error}");
        assert!(MODEL.store(b"other").is_err());
    }

    #[test]
    fn unknown_names_get_the_nearest() {
        let models = [MODEL, Model { name: "faces", ..MODEL }];
        let error = unknown("model", "shaeps", &models).to_string();
        assert!(error.contains("did you mean `shapes`?") && error.contains("shapes, faces"), "{error}");
        assert!(!unknown("model", "zebra", &models).to_string().contains("did you mean"));
        assert!(unknown("model", "zebra", &[]).to_string().contains("no models ship"));
    }
}
