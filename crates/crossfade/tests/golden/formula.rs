//! The formula from which all weights and inputs of the golden set are made (golden README, section 1).
use crossfade::nn::named::fnv1a;

use crate::case::{Case, floats, usizes};

/// u in [-1, 1) of a tensor whose hashed name has hash `hash`, at flat index `i`.
pub fn u(hash: u64, i: u64) -> f64 {
    let s = hash.wrapping_add(i).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let s = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let s = (s ^ (s >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let s = s ^ (s >> 31);
    (s >> 11) as f64 * 2f64.powi(-53) * 2.0 - 1.0
}

/// The first `count` values of the tensor with this (salted) name, each a function of its u.
pub fn values(name: &str, count: usize, value: impl Fn(f64) -> f64) -> Vec<f32> {
    let hash = fnv1a(name);
    (0..count as u64).map(|i| value(u(hash, i)) as f32).collect()
}

/// How an input follows from u.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// √3·u, of unit variance.
    Unit,
    /// u.
    Uniform,
    /// (u + 1)/2.
    Half,
}

impl Rule {
    pub fn parse(rule: &str) -> Self {
        match rule {
            rule if rule.starts_with("sqrt(3)*u") => Self::Unit,
            "v=(u+1)/2" | "(u+1)/2" => Self::Half,
            rule if rule == "u" || rule.starts_with("u ") => Self::Uniform,
            other => panic!("unknown rule {other:?}"),
        }
    }

    fn value(self, u: f64) -> f64 {
        match self {
            Self::Unit => 3f64.sqrt() * u,
            Self::Uniform => u,
            Self::Half => (u + 1.0) / 2.0,
        }
    }

    /// The first `count` values of the tensor with this (salted) name.
    pub fn values(self, name: &str, count: usize) -> Vec<f32> {
        values(name, count, |u| self.value(u))
    }
}

/// A parameter or floating-point buffer of the (salted) name and shape.
pub fn parameter(name: &str, shape: &[usize]) -> Vec<f32> {
    let fan_in: usize = shape.iter().skip(1).product();
    let rule: Box<dyn Fn(f64) -> f64> = match shape.len() {
        _ if name.ends_with("running_mean") => Box::new(|u| 0.1 * u),
        _ if name.ends_with("running_var") => Box::new(|u| 1.0 + 0.1 * u),
        _ if name.ends_with("time_mlp.0.W") => Box::new(|u| u),
        _ if name.ends_with(".g") => Box::new(|u| 1.0 + 0.1 * u),
        2.. => Box::new(move |u| u * (3.0 / fan_in as f64).sqrt()),
        _ if name.ends_with("weight") => Box::new(|u| 1.0 + 0.1 * u),
        _ => Box::new(|u| 0.1 * u),
    };
    values(name, shape.iter().product(), rule)
}

pub fn check(case: &Case) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, want) in case.json["names"].as_object().unwrap() {
        let hash = fnv1a(&format!("{}{name}", case.salt));
        let first: Vec<f64> = (0..8).map(|i| u(hash, i)).chain([u(hash, 100_000)]).collect();
        let mut stored = floats(&want["u_first8"]);
        stored.extend(want["u_at_100000"].as_f64());
        if want["fnv1a64"].as_str() != Some(&hash.to_string()) {
            failures.push(format!("hash of {name}: {hash}"));
        }
        if !equal(&first, &stored) {
            failures.push(format!("u of {name}: {first:?}, expected {stored:?}"));
        }
    }
    for (name, want) in case.json["parameter_examples"].as_object().unwrap() {
        let values = parameter(&format!("{}{name}", case.salt), &usizes(&want["shape"]));
        let first: Vec<f64> = values.iter().take(4).map(|&v| f64::from(v)).collect();
        if !equal(&first, &floats(&want["first4_f32"])) {
            failures.push(format!("values of {name}: {first:?}"));
        }
    }
    failures
}

/// Equal but for the last bit, which the JSON reader does not keep.
fn equal(ours: &[f64], stored: &[f64]) -> bool {
    ours.len() == stored.len() && ours.iter().zip(stored).all(|(a, b)| (a - b).abs() < 1e-15)
}

#[test]
fn golden_formula_is_that_of_the_readme() {
    assert_eq!(u(fnv1a("x"), 0), -0.5975834313129111);
    assert_eq!(u(fnv1a("x"), 2), 0.8816097008060189);
}
