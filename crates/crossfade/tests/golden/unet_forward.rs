//! Forward passes of the unconditional networks.
use crossfade::engine::{Device, from_host, to_host};

use crate::case::Case;
use crate::compare;
use crate::nets::network;

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let net = network(case, &device);
    let shape: [usize; 4] = case.shape("x").try_into().unwrap();
    let x = from_host(&case.input("x", &shape), shape, &device);
    let t = case.times();
    // temporary: sqrt(t) nets only
    let d: Vec<f64> = t.iter().map(|t| (t * t - t + 1.0).powf(-0.5)).collect();
    let c_in = crossfade::engine::column(&d, &device);
    let c_noise = crossfade::engine::vector(&t.iter().map(|t| t.ln()).collect::<Vec<_>>(), &device);
    let raw = net.forward(x * c_in, c_noise, None, None);
    let want = &case.json["outputs"]["raw_stats"];
    let mut f = compare::statistics("F1", &to_host(raw.phi), &want["F1"], 5e-6);
    if let Some(eps) = raw.eps {
        f.extend(compare::statistics("F2", &to_host(eps), &want["F2"], 5e-6));
    }
    f
}
