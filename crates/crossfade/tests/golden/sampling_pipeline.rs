//! The whole way from noise to pixels in latent space, with a stand-in decoder.
use crossfade::engine::{Device, Images, Tensor, from_host, to_host};
use crossfade::math::{Grid, GridKind};
use crossfade::nn::functional::upsample2x;
use crossfade::sample::{AttenuationProblem, Hooks, Sampler};

use crate::case::{Case, usizes};
use crate::compare;
use crate::formula::{Rule, values};
use crate::nets;

/// Ten times the rounding of the reference in this sampler (case `sample_const_latent_det`); this case was computed in f32
/// only and has no figure of its own.
const ROUNDING: f64 = 1.6e-5;

pub fn check(case: &Case) -> Vec<String> {
    let device = Device::flex();
    let net = nets::denoiser(case, &device);
    let inputs = &case.json["inputs"];
    let shape = |key: &str| -> [usize; 4] { usizes(&inputs[key]["shape"]).try_into().unwrap() };
    let name = |key: &str| format!("{}{}", case.salt, inputs[key]["name"].as_str().unwrap());
    let tensor = |key: &str, values: Vec<f32>| -> Tensor<4> { from_host(&values, shape(key), &device) };
    let count = |key: &str| shape(key).iter().product::<usize>();

    let number = |key: &str| case.json[key].as_f64().unwrap();
    let kind = GridKind::Reference { sigma_min: number("sigma_min") };
    let times = Grid { kind, final_t: None }.times(number("N") as usize).unwrap();
    let evaluated = net.conditioned(None);
    let problem = AttenuationProblem::new(&evaluated, *net.process.adm().unwrap());
    let start = Images(tensor("initial noise", Rule::Unit.values(&name("initial noise"), count("initial noise"))));
    let mut hooks = Hooks { noise: &mut |_| unreachable!("a deterministic sampler"), observe: &mut |_| () };
    let z = Sampler::FirstOrder.run(&problem, &times, start, &mut hooks).unwrap().x0.0;
    let predicted = unit_pixels(upsample2x(z / number("scale_factor")));

    let known = tensor("cond", Rule::Uniform.values(&name("cond"), count("cond")));
    let mask = tensor("mask", values(&name("mask"), count("mask"), |u| f64::from(u8::from(u > 0.0))));
    let pasted = paste(predicted.clone(), unit_pixels(known), mask);
    let compare = |name: &str, x| compare::output_within(case, name, &to_host(x), false, ROUNDING);
    [compare("without_mask", predicted), compare("with_mask", pasted)].concat()
}

/// Pixels in [0, 1] from images in [−1, 1] (§3.2).
fn unit_pixels(x: Tensor<4>) -> Tensor<4> {
    ((x + 1.0) * 0.5).clamp(0.0, 1.0)
}

/// mask·known + (1 − mask)·predicted, where the mask is 1 at known pixels (§3.2).
fn paste(predicted: Tensor<4>, known: Tensor<4>, mask: Tensor<4>) -> Tensor<4> {
    known * mask.clone() + predicted * (-mask + 1.0)
}
