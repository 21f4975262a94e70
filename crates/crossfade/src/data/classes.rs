//! The class of every image of a dataset, and the names of the classes.
use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::limits::CLASSES;

/// The classes of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The name of each class; all are distinct.
    pub names: Vec<String>,
    /// The class of each image, an index into `names`.
    pub of: Vec<u32>,
}

impl Classes {
    /// The classes of images that have these numbers. Without `names` the classes are named by their numbers, from 0 to the
    /// largest one. `origin` is the file that errors name.
    pub fn new(of: Vec<u32>, names: Option<Vec<String>>, origin: &str) -> Result<Self> {
        let count = of.iter().max().map_or(0, |&largest| largest as usize + 1);
        let names = names.unwrap_or_else(|| numbers(count.min(CLASSES.size() + 1)));
        CLASSES.check(count.max(names.len()) as u64).map_err(|why| Error::file(origin, why))?;
        if let Some(image) = of.iter().position(|&class| class as usize >= names.len()) {
            let problem = format!("image {image} has class {}, but there are {} names", of[image], names.len());
            return Err(Error::file(origin, problem));
        }
        let mut seen = HashMap::new();
        for (class, name) in names.iter().enumerate() {
            if name.trim().is_empty() || name.contains(char::is_control) {
                return Err(Error::file(origin, format!("class {class} has the name {name:?}: it must be plain text")));
            }
            if let Some(other) = seen.insert(name, class) {
                return Err(Error::file(origin, format!("the classes {other} and {class} are both named {name:?}")));
            }
        }
        Ok(Self { names, of })
    }

    /// The classes of files: each is named after the first directory of its path. None if a file is in no directory, or if
    /// all are in one.
    pub fn of_directories<'a>(paths: impl Iterator<Item = &'a str>, origin: &str) -> Result<Option<Self>> {
        let mut directories = vec![];
        for path in paths {
            match path.split_once('/') {
                Some((directory, _)) => directories.push(directory),
                None => return Ok(None),
            }
        }
        let mut names = directories.clone();
        // In the order of bytes, as the images.
        names.sort_unstable();
        names.dedup();
        if names.len() < 2 || names.len() > CLASSES.size() {
            return Ok(None);
        }
        let class = |directory: &str| names.binary_search(&directory).map_or(0, |class| class as u32);
        let of = directories.into_iter().map(class).collect();
        Self::new(of, Some(names.iter().map(ToString::to_string).collect()), origin).map(Some)
    }

    /// The number of images of each class.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.names.len()];
        self.of.iter().for_each(|&class| counts[class as usize] += 1);
        counts
    }
}

/// The names of classes that have none: their numbers.
pub(crate) fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|class| class.to_string()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn directories_become_classes_where_every_file_is_in_one_of_several() {
        let classes = |paths: &[&str]| Classes::of_directories(paths.iter().copied(), "here").unwrap();
        let found = classes(&["dog/1.png", "cat/a/2.png", "dog/3.png"]).unwrap();
        assert_eq!((found.names.clone(), found.of.clone()), (vec!["cat".into(), "dog".into()], vec![1, 0, 1]));
        assert_eq!(found.counts(), [1, 2]);
        assert_eq!(classes(&["dog/1.png", "2.png"]), None);
        assert_eq!(classes(&["dog/1.png", "dog/2.png"]), None);
    }

    #[test]
    fn names_are_distinct_and_there_is_one_for_every_class() {
        let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
        assert_eq!(Classes::new(vec![2, 0], None, "x").unwrap().names, ["0", "1", "2"]);
        for (of, given, problem) in [
            (vec![0, 2], names(&["a", "b"]), "image 1 has class 2"),
            (vec![0], names(&["a", "a"]), "both named"),
            (vec![0], names(&["a", " "]), "plain text"),
            (vec![4096], None, "4097 is more than the limit of 4096"),
            (vec![u32::MAX], None, "4294967296 is more than the limit"),
        ] {
            let message = Classes::new(of, given, "x").unwrap_err().to_string();
            assert!(message.contains(problem), "{message}");
        }
    }
}
