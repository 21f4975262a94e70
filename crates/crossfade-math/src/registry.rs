//! The one way to register something under a name: attenuations, grids, samplers, tasks, protocols.
//!
//! [`registry!`](crate::registry!) turns a list of entries into an enum that a configuration reads by these names, the list
//! of all entries for tests and help texts, and a `parse` that suggests the nearest known name.
//!
//! ```
//! crossfade_math::registry! {
//!     /// A norm of an error.
//!     #[derive(Copy, Eq, Default)]
//!     pub enum Norm("norm") {
//!         /// The absolute error.
//!         #[default]
//!         L1 = "l1",
//!         /// The squared error.
//!         L2 = "l2" | "mse",
//!     }
//! }
//! assert_eq!(Norm::ALL, &[Norm::L1, Norm::L2]);
//! assert_eq!(Norm::L2.name(), "l2");
//! assert_eq!(Norm::parse("mse").unwrap(), Norm::L2);
//! assert!(Norm::parse("l3").unwrap_err().to_string().contains("did you mean 'l1'"));
//! ```
use std::fmt;

/// A name that no entry of a registry has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// What kind of thing was looked up, such as "sampler".
    pub what: &'static str,
    /// The name that was asked for.
    pub name: String,
    /// Every valid name.
    pub known: &'static [&'static str],
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} '{}'", self.what, self.name)?;
        if let Some(meant) = nearest(&self.name, self.known) {
            write!(f, " (did you mean '{meant}'?)")?;
        }
        write!(f, "; known: {}", self.known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

/// The known name nearest to `typed`, if it is near enough to be a typing error.
pub fn nearest<'a>(typed: &str, known: &[&'a str]) -> Option<&'a str> {
    // The distance takes time in proportion to the product of both lengths, and `typed` may come from a hostile file.
    let length = typed.chars().count();
    if length > 64 {
        return None;
    }
    let distance = |name: &str| strsim::osa_distance(&typed.to_lowercase(), &name.to_lowercase());
    let best = known.iter().copied().min_by_key(|name| distance(name))?;
    // At most one error in three letters: for short names a looser limit would suggest unrelated words.
    (distance(best) <= (length / 3).clamp(1, 3)).then_some(best)
}

/// Registers the variants of an enum under names.
///
/// ```text
/// registry! {
///     /// Documentation, and derives besides Clone, Debug, PartialEq, Serialize and Deserialize.
///     #[derive(Default)]
///     pub enum Kind("what it is called in errors", tag = "kind", dispatch = each_kind) {
///         Unit = "unit" => entry,
///         Inline { #[serde(default = "one")] scale: f64 = one() } = "inline" | "alias" => entry,
///         Options(Options) = "options" => entry,
///     }
///     placeholder { Auto = "auto" => entry }
///     needs_data { Table(Vec<f64>) = "table" => entry }
/// }
/// ```
///
/// - Without `tag`, configurations hold the name itself, and `Kind::ALL` lists the entries. With it, they hold a section
///   whose key `tag` is the name, and `Kind::all()` lists the entries with the default values of their options.
/// - `placeholder` entries have a name, but are not listed: something else is chosen in their place before use.
/// - `needs_data` entries are not listed either, and have no default that `parse` could return.
/// - With `dispatch`, a macro of that name runs one expression for whichever variant there is, statically, so that it
///   may call generic functions: `each_kind!(self, entry e => e.order)` gives it the expression behind `=>`,
///   `each_kind!(self, options o => o.check())` the variant's options, `each_kind!(self, options o, entry e => …)` both.
#[macro_export]
macro_rules! registry {
    (@list [] [$($value:expr),*]) => {
        /// Every entry, for tests and help texts.
        pub const ALL: &'static [Self] = &[$($value),*];
    };
    (@list [$tag:literal] [$($value:expr),*]) => {
        /// Every entry with the default values of its options, for tests and help texts.
        pub fn all() -> ::std::vec::Vec<Self> {
            ::std::vec![$($value),*]
        }
    };
    (@dispatch ($d:tt) [] $($entries:tt)*) => {};
    (@dispatch ($d:tt) [$each:ident] $Enum:ident $({ $Name:ident [$($entry:expr)?] })*) => {
        macro_rules! $each {
            ($d value:expr, entry $d e:ident => $d body:expr) => {
                match $d value { $($Enum::$Name { .. } => { $(let $d e = $entry;)? $d body })* }
            };
            ($d value:expr, options $d o:ident => $d body:expr) => {
                match $d value { $($Enum::$Name($d o) => $d body,)* }
            };
            ($d value:expr, options $d o:ident, entry $d e:ident => $d body:expr) => {
                match $d value { $($Enum::$Name($d o) => { $(let $d e = $entry;)? $d body })* }
            };
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $Enum:ident($what:literal $(, tag = $tag:literal)? $(, dispatch = $each:ident)?) {
            $(
                $(#[$attribute:meta])*
                $Name:ident
                $({ $($(#[$field_attribute:meta])* $field:ident: $Field:ty = $value:expr),* $(,)? })?
                $(($Options:ty))?
                = $name:literal $(| $alias:literal)* $(=> $entry:expr)?
            ),* $(,)?
        }
        $(placeholder {
            $($(#[$p_attribute:meta])* $P:ident = $p_name:literal $(=> $p_entry:expr)?),* $(,)?
        })?
        $(needs_data {
            $(
                $(#[$d_attribute:meta])*
                $D:ident
                $({ $($(#[$d_field_attribute:meta])* $d_field:ident: $DField:ty),* $(,)? })?
                $(($Data:ty))?
                = $d_name:literal $(=> $d_entry:expr)?
            ),* $(,)?
        })?
    ) => {
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        $(#[serde(tag = $tag)])?
        $(#[$meta])*
        $vis enum $Enum {
            $($(
                $(#[$p_attribute])*
                #[serde(rename = $p_name)]
                $P,
            )*)?
            $(
                $(#[$attribute])*
                #[serde(rename = $name $(, alias = $alias)*)]
                $Name $({ $($(#[$field_attribute])* $field: $Field),* })? $(($Options))?,
            )*
            $($(
                $(#[$d_attribute])*
                #[serde(rename = $d_name)]
                $D $({ $($(#[$d_field_attribute])* $d_field: $DField),* })? $(($Data))?,
            )*)?
        }

        #[allow(dead_code, reason = "a registry has the same functions whether or not all are called")]
        impl $Enum {
            $crate::registry!(@list [$($tag)?] [
                $(Self::$Name $({ $($field: $value),* })? $((<$Options>::default()))?),*
            ]);

            /// The names of all entries, without [`Self::aliases`].
            pub const NAMES: &'static [&'static str] = &[$($($p_name,)*)? $($name),*];

            /// The name used in configurations, on the command line and in tables.
            pub fn name(&self) -> &'static str {
                match self {
                    $($(Self::$P => $p_name,)*)?
                    $(Self::$Name { .. } => $name,)*
                    $($(Self::$D { .. } => $d_name,)*)?
                }
            }

            /// Other names that [`Self::parse`] understands for this entry.
            pub fn aliases(&self) -> &'static [&'static str] {
                match self {
                    $($(Self::$P => &[],)*)?
                    $(Self::$Name { .. } => &[$($alias),*],)*
                    $($(Self::$D { .. } => &[],)*)?
                }
            }

            /// The entry of that name, with the default values of its options.
            pub fn parse(name: &str) -> ::std::result::Result<Self, $crate::UnknownName> {
                match name {
                    $($($p_name => Ok(Self::$P),)*)?
                    $($name $(| $alias)* => {
                        Ok(Self::$Name $({ $($field: $value),* })? $((<$Options>::default()))?)
                    })*
                    _ => Err($crate::UnknownName { what: $what, name: name.into(), known: Self::NAMES }),
                }
            }
        }

        $crate::registry! { @dispatch ($) [$($each)?] $Enum
            $($({ $P [$($p_entry)?] })*)?
            $({ $Name [$($entry)?] })*
            $($({ $D [$($d_entry)?] })*)?
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Options {
        order: u32,
    }

    impl Default for Options {
        fn default() -> Self {
            Self { order: 3 }
        }
    }

    /// What an entry may add: here a factor.
    struct Factor(u32);

    registry! {
        /// One variant of each form.
        #[derive(Copy)]
        enum Kind("kind", tag = "kind", dispatch = each_kind) {
            /// With the default options.
            First(Options) = "first" => Factor(2),
            /// The same options, another entry.
            Second(Options) = "second" | "zweite" => Factor(5),
        }
    }

    registry! {
        /// Units, one of which is a placeholder, and one with data.
        #[derive(Default)]
        enum Choice("choice") {
            /// A.
            One = "one",
            /// B.
            Scaled { scale: f64 = 2.0 } = "scaled",
        }
        placeholder {
            /// Not decided.
            #[default]
            Auto = "auto",
        }
        needs_data {
            /// Values.
            Table(Vec<f64>) = "table",
        }
    }

    impl Kind {
        fn product(&self) -> u32 {
            each_kind!(self, options o, entry e => o.order * e.0)
        }
        fn factor(&self) -> u32 {
            each_kind!(self, entry e => e.0)
        }
        fn options(&self) -> &Options {
            each_kind!(self, options o => o)
        }
    }

    #[test]
    fn entries_have_names_options_and_dispatch() {
        let names: Vec<_> = Kind::all().iter().map(Kind::name).collect();
        assert_eq!(names, Kind::NAMES);
        assert_eq!(Kind::parse("zweite").unwrap(), Kind::Second(Options { order: 3 }));
        assert_eq!(Kind::all().iter().map(Kind::aliases).collect::<Vec<_>>(), [&[][..], &["zweite"][..]]);
        let products: Vec<_> = Kind::all().iter().map(Kind::product).collect();
        assert_eq!(products, [6, 15]);
        assert_eq!((Kind::all()[1].factor(), Kind::all()[0].options().order), (5, 3));
    }

    #[test]
    fn placeholders_and_data_are_not_listed() {
        assert_eq!(Choice::ALL, [Choice::One, Choice::Scaled { scale: 2.0 }]);
        assert_eq!(Choice::NAMES, ["auto", "one", "scaled"]);
        assert_eq!(Choice::parse("auto").unwrap(), Choice::default());
        assert_eq!(Choice::Table(vec![]).name(), "table");
        assert!(Choice::parse("table").is_err());
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let text = Choice::parse("scald").unwrap_err().to_string();
        assert_eq!(text, "unknown choice 'scald' (did you mean 'scaled'?); known: auto, one, scaled");
        let text = Choice::parse("none of these").unwrap_err().to_string();
        assert_eq!(text, "unknown choice 'none of these'; known: auto, one, scaled");
    }

    #[test]
    fn typing_errors_are_recognised_and_other_words_are_not() {
        let known = ["steps", "batch", "accumulate", "flip", "log_every"];
        for (typed, meant) in [("bacth", "batch"), ("step", "steps"), ("Batch", "batch"), ("log-every", "log_every")] {
            assert_eq!(nearest(typed, &known), Some(meant));
        }
        assert_eq!(nearest("epochs", &known), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!(nearest(&"steps".repeat(1000), &known), None);
    }
}
