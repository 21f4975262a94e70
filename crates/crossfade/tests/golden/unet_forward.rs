//! Forward passes of the unconditional networks, both heads, with and without augmentation labels.
use crossfade::engine::{Device, from_host, to_host};
use crossfade::nn::{Context, Decoders, Mode};

use crate::case::Case;
use crate::compare;
use crate::nets;

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let net = nets::denoiser(case, &device);
    let single = nets::config(case).decoders == Decoders::One;
    let shape: [usize; 4] = case.shape("x").try_into().unwrap();
    let x = from_host(&case.input("x", &shape), shape, &device);
    let t = case.times();
    let mut failures = Vec::new();

    let raw = net.raw(x.clone(), &t, &Context::default(), Mode::Eval);
    let raw_stats = &case.json["outputs"]["raw_stats"];
    let raw_heads = [("F1", Some(raw.phi.clone())), ("F2", raw.eps.clone())];
    for (name, head) in raw_heads.into_iter().filter_map(|(name, head)| Some((name, head?))) {
        let relative = case.json["outputs"]["phi"]["tolerance"]["rel_l2"].as_f64().unwrap();
        failures.extend(compare::statistics(name, &to_host(head), &raw_stats[name], 2.0 * relative));
    }
    let mut compare = |name: &str, values| failures.extend(compare::output(case, name, &to_host(values), single));
    let heads = net.precondition(x.clone(), &t, raw);
    compare("phi", heads.phi);
    compare("eps", heads.eps);
    if case.json["inputs"]["augment_labels"].is_object() {
        let shape: [usize; 2] = case.shape("augment_labels").try_into().unwrap();
        let labels = from_host(&case.input("augment_labels", &shape), shape, &device);
        let heads = net.heads(x, &t, &Context::default().with_labels(Some(labels)));
        compare("phi_aug", heads.phi);
        compare("eps_aug", heads.eps);
    }
    failures
}
