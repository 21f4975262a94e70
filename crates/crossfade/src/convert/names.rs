//! Maps the names of a reference state dict to those of our networks (§4.7, Appendix B).
use crate::torchfile::Source;
use serde::Serialize;
use std::collections::BTreeMap;

/// Prefixes that trainers and wrappers put before the network's own names, longest first; the last is empty.
const PREFIXES: [&str; 8] = [
    "module.model.model.",
    "first_stage_model.",
    "module.model.",
    "model.model.",
    "ema_model.",
    "module.",
    "model.",
    "",
];

/// Schedule buffers of DDPM-style classes.
const DDPM_BUFFERS: [&str; 17] = [
    "betas",
    "alphas_cumprod",
    "alphas_cumprod_prev",
    "sqrt_alphas_cumprod",
    "sqrt_one_minus_alphas_cumprod",
    "log_one_minus_alphas_cumprod",
    "sqrt_recip_alphas_cumprod",
    "sqrt_recipm1_alphas_cumprod",
    "posterior_variance",
    "posterior_log_variance_clipped",
    "posterior_mean_coef1",
    "posterior_mean_coef2",
    "p2_loss_weight",
    "loss_weight",
    "lvlb_weights",
    "logvar",
    "alphas",
];

/// A tensor whose shape is not the network's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WrongShape {
    /// Name in our network.
    pub name: String,
    /// Shape in our network.
    pub expected: Vec<usize>,
    /// Shape in the file.
    pub found: Vec<usize>,
}

/// Which tensor of the file becomes which parameter.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mapping {
    /// The prefix that was removed.
    pub prefix: String,
    /// Pairs (name in the file, name in our network), sorted by the latter.
    pub mapped: Vec<(String, String)>,
    /// Parameters of our network that the file lacks.
    pub missed: Vec<String>,
    /// Tensors of the file that are not needed, with the reason.
    pub ignored: Vec<(String, String)>,
    /// Tensors of another shape than the network's.
    pub wrong_shape: Vec<WrongShape>,
}

impl Mapping {
    /// One line for each parameter that the file lacks or has in another shape.
    pub fn problems(&self) -> Vec<String> {
        let missed = self.missed.iter().map(|name| format!("missing: {name}"));
        let wrong = self
            .wrong_shape
            .iter()
            .map(|w| format!("wrong shape: {} is {:?} in the file, {:?} in the network", w.name, w.found, w.expected));
        missed.chain(wrong).collect()
    }
}

/// Maps the tensors of `source` to the parameters `expected` (name and shape). The known prefix for which most names
/// fit is removed first; the longest one, if several fit equally.
pub fn map_names(source: &Source, expected: &[(String, Vec<usize>)]) -> Mapping {
    let wanted: BTreeMap<&str, &[usize]> = expected.iter().map(|(n, shape)| (n.as_str(), shape.as_slice())).collect();
    let fitting = |prefix: &str| {
        source.tensors.keys().filter_map(|n| n.strip_prefix(prefix)).filter(|n| wanted.contains_key(n)).count()
    };
    // `max_by_key` returns the last of equals, hence the reversed order.
    let prefix = PREFIXES.into_iter().rev().max_by_key(|prefix| fitting(prefix)).unwrap_or("");

    let mut mapping = Mapping { prefix: prefix.to_string(), ..Mapping::default() };
    let mut missing = wanted.clone();
    for (from, tensor) in &source.tensors {
        let inner = from.strip_prefix(prefix);
        match inner.and_then(|to| wanted.get_key_value(to)) {
            // A counter with the name of a parameter must not become a weight.
            Some((&to, &shape)) if tensor.is_float() => {
                missing.remove(to);
                if shape == tensor.shape {
                    mapping.mapped.push((from.clone(), to.to_string()));
                } else {
                    let (expected, found) = (shape.to_vec(), tensor.shape.clone());
                    mapping.wrong_shape.push(WrongShape { name: to.to_string(), expected, found });
                }
            }
            _ => mapping.ignored.push((from.clone(), reason(from, inner.unwrap_or(from), tensor.dtype))),
        }
    }
    mapping.missed = missing.into_keys().map(str::to_string).collect();
    mapping.mapped.sort_by(|a, b| a.1.cmp(&b.1));
    mapping
}

/// Why the tensor `from` (`inner` without the prefix) is not needed.
fn reason(from: &str, inner: &str, dtype: &str) -> String {
    // Buffers and counters are recognised by the last part of their name, at any depth.
    let last = inner.rsplit('.').next().unwrap_or(inner);
    let why = match last {
        _ if from.starts_with("first_stage_model.") => "autoencoder, not part of this network",
        _ if from.split('.').any(|part| part == "perceptual_loss") => "perceptual network of the training loss",
        _ if inner.starts_with("loss.") => "training loss of the autoencoder",
        "resample_filter" => "fixed 2x2 mean filter",
        "relative_position_index" => "index table, rebuilt from the window size",
        "num_batches_tracked" => "counter of the batch norm",
        _ if from == "eps" => "smallest time, a setting of the sampler",
        _ if from == "scale_factor" => "latent scale, a setting of the latent space",
        _ if from == "initted" || from == "step" => "bookkeeping of the EMA",
        _ if DDPM_BUFFERS.contains(&from) => "noise schedule of a DDPM class, unused",
        _ if !dtype.contains('f') => return format!("{dtype} buffer, not a weight"),
        _ => "not a parameter of this network",
    };
    why.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torchfile::{TensorF32, Weights};

    fn source(names: &[(&str, &[usize], &'static str)]) -> Source {
        let tensor = |shape: &[usize], dtype| TensorF32 {
            shape: shape.to_vec(),
            data: vec![0.5; shape.iter().product()],
            dtype,
        };
        let tensors = names.iter().map(|(n, shape, dtype)| (n.to_string(), tensor(shape, dtype))).collect();
        Source { tensors, step: None, weights: Weights::Model }
    }

    fn expected() -> Vec<(String, Vec<usize>)> {
        vec![("enc.a.weight".into(), vec![2, 3]), ("enc.a.bias".into(), vec![2]), ("g".into(), vec![1])]
    }

    #[test]
    fn every_prefix_is_found() {
        for prefix in PREFIXES {
            let names: Vec<String> = expected().iter().map(|(n, _)| format!("{prefix}{n}")).collect();
            let entries =
                [(&*names[0], &[2, 3][..], "f32"), (&*names[1], &[2][..], "f16"), (&*names[2], &[1][..], "f32")];
            let mapping = map_names(&source(&entries), &expected());
            assert_eq!(mapping.prefix, prefix);
            assert_eq!(mapping.mapped.len(), 3, "{prefix}");
            assert!(mapping.problems().is_empty() && mapping.ignored.is_empty());
        }
    }

    #[test]
    fn most_names_decide_the_prefix() {
        // the autoencoder has an enc.a.bias too, but only one name fits there
        let mapping = map_names(
            &source(&[
                ("model.model.enc.a.weight", &[2, 3], "f32"),
                ("model.model.enc.a.bias", &[2], "f32"),
                ("model.model.g", &[1], "f64"),
                ("first_stage_model.enc.a.bias", &[2], "f32"),
            ]),
            &expected(),
        );
        assert_eq!(mapping.prefix, "model.model.");
        let why = "autoencoder, not part of this network".to_string();
        assert_eq!(mapping.ignored, [("first_stage_model.enc.a.bias".to_string(), why)]);
        assert_eq!(mapping.mapped[2], ("model.model.g".to_string(), "g".to_string()));
    }

    #[test]
    fn missed_and_wrong_shapes_are_all_listed() {
        let mapping = map_names(&source(&[("enc.a.weight", &[3, 2], "f32"), ("g", &[1], "i64")]), &expected());
        assert_eq!(mapping.missed, ["enc.a.bias", "g"]);
        assert_eq!(mapping.wrong_shape[0].found, [3, 2]);
        assert_eq!(mapping.problems().len(), 3);
        assert_eq!(mapping.ignored, [("g".to_string(), "i64 buffer, not a weight".to_string())]);
    }

    #[test]
    fn buffers_are_ignored_with_their_reason() {
        let names = [
            ("eps", "smallest time"),
            ("scale_factor", "latent scale"),
            ("model.model.enc.16x16_down.conv0.resample_filter", "mean filter"),
            ("perceptual_loss.net.slice1.0.weight", "perceptual"),
            ("first_stage_model.loss.logvar", "autoencoder"),
            ("sqrt_alphas_cumprod", "noise schedule"),
            ("betas", "noise schedule"),
            ("model.model.map_label.weight", "not a parameter of this network"),
        ];
        let mut entries: Vec<_> = names.iter().map(|(n, _)| (*n, &[1usize][..], "f32")).collect();
        entries.push(("model.model.g", &[1], "f32"));
        let mapping = map_names(&source(&entries), &expected());
        for (name, why) in names {
            let found = mapping.ignored.iter().find(|(n, _)| n == name);
            assert!(found.is_some_and(|(_, reason)| reason.contains(why)), "{name}: {found:?}");
        }
    }
}
