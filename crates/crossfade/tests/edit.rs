//! From a picture (§3.6): inversion, and sampling that starts at a noised picture.
#![allow(clippy::unwrap_used)]
use crossfade::lab::{GaussianOracle, Mixture, Oracle, Points};
use crossfade::math::{Adm, Attenuation, Grid, GridKind, NoiseScale, Process};
use crossfade::sample::gaussian::GaussianProblem;
use crossfade::sample::{AttenuationProblem, Form, Sampler};

/// The root mean square of what a round trip of `steps` steps changes.
fn round_trip_error(process: &Process, sampler: Sampler, grid: &GridKind, steps: usize) -> f64 {
    let mixture = Mixture::random(2, 3, 0.3, 0.6, 1);
    let x0 = mixture.sample(40, 5);
    let times = sampler.times(process, &Grid { kind: grid.clone(), final_t: None }, steps).unwrap();
    let (inverted, back): (_, Points) = match sampler.form(process).unwrap() {
        Form::Attenuation(adm) => {
            let oracle = Oracle::new(mixture, adm);
            let (inverted, back) = sampler.round_trip(&AttenuationProblem::new(&oracle, adm), &times, &x0).unwrap();
            (inverted.x_t, back.x0)
        }
        Form::Gaussian(gaussian) => {
            let oracle = GaussianOracle { mixture, process: gaussian };
            let (inverted, back) = sampler.round_trip(&GaussianProblem::new(&oracle, gaussian), &times, &x0).unwrap();
            (inverted.x_t, back.x0)
        }
        Form::Velocity(_) => unreachable!("cld has no invertible sampler"),
    };
    assert!(inverted.data.iter().all(|v| v.is_finite()), "{} {}", process.name(), sampler.name());
    let squares: f64 = back.data.iter().zip(&x0.data).map(|(a, b)| (a - b).powi(2)).sum();
    (squares / x0.data.len() as f64).sqrt()
}

/// On the exact denoisers of a mixture, twice the steps divide the error of a round trip by 2 to the sampler's order.
#[test]
fn a_round_trip_has_the_order_of_its_sampler() {
    let attenuations = NoiseScale::ALL.iter().map(|&noise| Process::from(Adm::new(Attenuation::Constant, noise)));
    let others = Process::all().into_iter().filter(|p| ["flow", "edm", "vp", "ve"].contains(&p.name()));
    let linear = Process::from(Adm::new(Attenuation::Linear, NoiseScale::Sqrt));
    for process in attenuations.chain([linear]).chain(others) {
        let samplers = Sampler::invertible(&process);
        assert!(samplers.iter().any(|s| s.order() == 1) && samplers.iter().any(|s| s.order() == 2), "{process:?}");
        for sampler in samplers {
            // Grids whose last step becomes shorter with their number; EDM's own one ends at little noise at any number.
            let grid = match process.name() {
                "adm" => GridKind::UniformSqrt,
                "edm" => sampler.grid(&process, &GridKind::Auto),
                _ => GridKind::UniformT,
            };
            let [few, many] = [40, 160].map(|steps| round_trip_error(&process, sampler, &grid, steps));
            let (order, wanted) = ((few / many).log2() / 2.0, f64::from(sampler.order()));
            assert!(order > wanted - 0.35, "{} {}: {few} {many}, order {order}", process.name(), sampler.name());
            assert!(many < if wanted == 1.0 { 0.03 } else { 1e-3 }, "{} {}: {many}", process.name(), sampler.name());
        }
    }
}
