//! Names, shapes, order and number of the parameters of full-size networks.
use crossfade::nn::{UNetConfig, preset};
use sha2::{Digest, Sha256};

use crate::case::Case;

/// The reference's network, our preset, and the parts of phi.
const NETS: [(&str, &str, usize); 9] = [
    ("two_m192_cifar", "cifar10-two-m192", 1),
    ("two_m192_cifar_linear", "cifar10-two-m192", 2),
    ("two_m160_cifar", "cifar10-two-m160", 1),
    ("sd2_m160_cifar", "cifar10-one-m160", 1),
    ("sd_m192_cifar", "cifar10-one-m192", 1),
    ("two_m128_cifar", "cifar10-two-m128", 1),
    ("two_m96_celeba", "celeba-two-m96", 1),
    ("sd2_m128_celeba", "celeba-one-m128", 1),
    ("two_m128_celeba", "celeba-two-m128", 1),
];

pub fn check(case: &Case) -> Vec<String> {
    let nets = case.json["nets"].as_object().unwrap();
    let known = NETS.iter().filter_map(|(name, preset, parts)| Some((name, nets.get(*name)?, preset, *parts)));
    let mut failures = Vec::new();
    for (name, want, preset_name, parts) in known {
        for (key, got) in facts(&preset(preset_name).unwrap(), parts) {
            let expected = want[key].as_str().map_or_else(|| want[key].to_string(), str::to_owned);
            if got != expected {
                failures.push(format!("{name}: {key} is {got}, expected {expected}"));
            }
        }
    }
    failures
}

pub fn skips(case: &Case) -> Vec<String> {
    let nets = case.json["nets"].as_object().unwrap().keys();
    nets.filter(|name| NETS.iter().all(|(known, ..)| known != name)).cloned().collect()
}

fn facts(config: &UNetConfig, parts: usize) -> [(&'static str, String); 6] {
    let entry = |(name, shape): (String, Vec<usize>)| (format!("model.{name}"), shape);
    let parameters: Vec<_> = config.parameter_shapes(parts).into_iter().map(entry).collect();
    let buffers = config.buffer_names().into_iter().map(|name| entry((name, vec![1, 1, 2, 2])));
    let all: Vec<_> = parameters.iter().cloned().chain(buffers).collect();
    let order: String = parameters.iter().map(|(name, _)| format!("{name}\n")).collect();
    [
        ("param_count", config.parameter_count(parts).to_string()),
        ("entries", all.len().to_string()),
        ("param_entries", parameters.len().to_string()),
        ("sha256", listing(&all)),
        ("params_sha256", listing(&parameters)),
        ("order_sha256", sha256(&order)),
    ]
}

fn listing(entries: &[(String, Vec<usize>)]) -> String {
    let mut lines: Vec<String> =
        entries.iter().map(|(name, shape)| format!("{name} {}\n", format!("{shape:?}").replace(' ', ""))).collect();
    lines.sort();
    sha256(&lines.concat())
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
