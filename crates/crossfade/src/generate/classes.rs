//! The class of each image that a class-conditional network makes.
use crate::config::RANDOM_CLASS as RANDOM;
use crate::error::{Error, Result};
use crate::rng::{Purpose, Stream};
use crossfade_math::nearest;

/// `sample.class` for all classes in turn.
const ALL: &str = "all";
/// `sample.class` for images without a class.
const NONE: &str = "none";
/// The largest number of names that an error lists.
const MAX_LISTED: usize = 40;

/// Which class an image gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClassChoice {
    /// None: the network's unconditional prediction.
    None,
    /// Drawn uniformly from (seed, image).
    Random,
    /// Image k gets class k mod n of these n.
    Each(Vec<u32>),
}

impl ClassChoice {
    /// The choice that `text` names: `random`, `none`, `all`, or names or numbers of classes with commas between them.
    pub fn parse(text: &str, names: &[String]) -> Result<Self> {
        match text {
            RANDOM => return Ok(Self::Random),
            NONE => return Ok(Self::None),
            ALL => return Ok(Self::Each((0..names.len() as u32).collect())),
            _ => (),
        }
        // A name may have commas of its own.
        if let Some(class) = class(text, names) {
            return Ok(Self::Each(vec![class]));
        }
        let one = |name: &str| class(name, names).ok_or_else(|| unknown(name, names));
        text.split(',').map(|name| one(name.trim())).collect::<Result<_>>().map(Self::Each)
    }

    /// The class of image `index` of a seed, of `count` classes.
    pub fn of(&self, seed: u64, index: u64, count: usize) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Random => Some(Stream::new(seed, index, 0, Purpose::Class).below(count as u64) as u32),
            Self::Each(classes) => Some(classes[(index % classes.len() as u64) as usize]),
        }
    }

    /// The text from which [`ClassChoice::parse`] gets exactly this class.
    pub fn text(class: Option<u32>, names: &[String]) -> String {
        let Some(class) = class else { return NONE.into() };
        let wanted = Self::Each(vec![class]);
        let name = names.get(class as usize).filter(|name| Self::parse(name, names).is_ok_and(|found| found == wanted));
        name.cloned().unwrap_or_else(|| class.to_string())
    }
}

/// The class with this name or number.
fn class(text: &str, names: &[String]) -> Option<u32> {
    let exact = names.iter().position(|name| name == text);
    let lower = || names.iter().position(|name| name.to_lowercase() == text.to_lowercase());
    let number = || text.parse().ok().filter(|&number: &usize| number < names.len());
    exact.or_else(lower).or_else(number).map(|class| class as u32)
}

fn unknown(typed: &str, names: &[String]) -> Error {
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let meant = nearest(typed, &known).map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
    let more = known.len().saturating_sub(MAX_LISTED);
    let listed = known[..known.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Error::request(format!(
        "no class is called `{typed}`{meant}; the classes are {listed}{more}, or their numbers from 0; also random, all, none"
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["cat", "Dog", "tench, Tinca tinca", "none", "1"].map(String::from).to_vec()
    }

    #[test]
    fn classes_are_named_numbered_listed_or_drawn() {
        let parse = |text: &str| ClassChoice::parse(text, &names());
        let each = |classes: &[u32]| ClassChoice::Each(classes.to_vec());
        assert_eq!(parse("cat").unwrap(), each(&[0]));
        assert_eq!(parse("dog, cat").unwrap(), each(&[1, 0]));
        assert_eq!(parse("tench, Tinca tinca").unwrap(), each(&[2]));
        assert_eq!(parse("0,3").unwrap(), each(&[0, 3]));
        assert_eq!(parse("1").unwrap(), each(&[4]), "a name goes before a number");
        assert_eq!(parse("all").unwrap(), each(&[0, 1, 2, 3, 4]));
        assert_eq!(parse("none").unwrap(), ClassChoice::None);
        assert_eq!(parse("random").unwrap(), ClassChoice::Random);
        let message = parse("cta").unwrap_err().to_string();
        assert!(message.contains("did you mean `cat`") && message.contains("Dog"), "{message}");
        assert!(parse("5").is_err() && parse("").is_err() && parse("cat,").is_err());
        for class in [0, 2, 3, 4].map(Some).into_iter().chain([None]) {
            let text = ClassChoice::text(class, &names());
            let found = parse(&text).unwrap();
            assert_eq!(found.of(3, 9, 5), class, "{text}");
        }
    }

    #[test]
    fn drawn_classes_are_uniform_and_depend_on_seed_and_image_alone() {
        let mut counts = [0; 5];
        (0..10_000).for_each(|k| counts[ClassChoice::Random.of(7, k, 5).unwrap() as usize] += 1);
        assert!(counts.iter().all(|&count| (1850..2150).contains(&count)), "{counts:?}");
        let drawn = |seed| (0..64).map(|k| ClassChoice::Random.of(seed, k, 5)).collect::<Vec<_>>();
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_eq!(
            (0..4).map(|k| ClassChoice::Each(vec![3, 1]).of(0, k, 5).unwrap()).collect::<Vec<_>>(),
            [3, 1, 3, 1]
        );
    }
}
