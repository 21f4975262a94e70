//! Texts that name a class.

/// The class that a text names: its name, or a text in which the names of exactly one class occur as whole words. Where none
/// does, singular and plural are the same. The error lists the classes.
pub fn class_of(prompt: &str, classes: &[String]) -> Result<String, String> {
    let wanted = words(prompt);
    let plain = |class: &&String| class.trim().to_lowercase() == prompt.trim().to_lowercase();
    if let Some(class) = classes.iter().find(plain) {
        return Ok(class.clone());
    }
    let named: Vec<(&String, Vec<String>)> = classes.iter().map(|class| (class, words(class))).collect();
    let naming = |same: fn(&str, &str) -> bool| -> Vec<_> {
        named.iter().filter(|(_, name)| contains(&wanted, name, same)).collect()
    };
    let exactly = naming(|a, b| a == b);
    let found = if exactly.is_empty() { naming(same_but_for_number) } else { exactly };
    // In "a hot dog" the class "hot dog" is meant and not "dog".
    let longest: Vec<_> = found
        .iter()
        .filter(|(class, name)| {
            !found
                .iter()
                .any(|(other, of)| other != class && of.len() > name.len() && contains(of, name, |a, b| a == b))
        })
        .collect();
    match longest[..] {
        [(class, _)] => Ok((*class).clone()),
        _ => {
            let listed: Vec<&str> = classes.iter().take(MAX_LISTED).map(String::as_str).collect();
            let more = classes.len().saturating_sub(MAX_LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let problem = if longest.is_empty() { "names no class" } else { "names several classes" };
            Err(format!("the prompt {problem} of this model; it draws {}{more}", listed.join(", ")))
        }
    }
}

/// The largest number of names that an error lists.
const MAX_LISTED: usize = 100;

/// Words in lower case, without punctuation.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Whether `part` occurs in `all`, word by word.
fn contains(all: &[String], part: &[String], same: fn(&str, &str) -> bool) -> bool {
    let at = |window: &[String]| window.iter().zip(part).all(|(a, b)| same(a, b));
    !part.is_empty() && all.windows(part.len()).any(at)
}

/// Whether two English words are equal, or one is the regular plural of the other.
fn same_but_for_number(a: &str, b: &str) -> bool {
    let (one, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let of_y = one.strip_suffix('y').is_some_and(|stem| many.strip_prefix(stem) == Some("ies"));
    one == many || of_y || many.strip_prefix(one).is_some_and(|end| ["s", "es"].contains(&end))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_names_one_class_or_is_refused() {
        let classes: Vec<String> =
            ["cat", "dog", "hot dog", "Sea lion", "7", "berries", "dogs"].map(String::from).to_vec();
        let of = |prompt: &str| class_of(prompt, &classes);
        assert_eq!(of("cat").unwrap(), "cat");
        assert_eq!(of(" CAT ").unwrap(), "cat");
        assert_eq!(of("a picture of a cat, in oil").unwrap(), "cat");
        assert_eq!(of("one hot dog please").unwrap(), "hot dog");
        assert_eq!(of("sea-lion").unwrap(), "Sea lion");
        assert_eq!(of("7").unwrap(), "7");
        assert_eq!(of("two cats").unwrap(), "cat", "the plural of a class");
        assert_eq!(of("a ripe berry").unwrap(), "berries", "the singular of a class");
        assert_eq!((of("a dog").unwrap(), of("some dogs").unwrap()), ("dog".into(), "dogs".into()), "both are classes");
        for (prompt, problem) in [("a catalogue", "no class"), ("cat and dog", "several"), ("", "no class")] {
            let message = of(prompt).unwrap_err();
            assert!(message.contains(problem) && message.contains("Sea lion"), "{prompt}: {message}");
        }
    }
}
