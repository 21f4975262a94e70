//! A tour in one dimension: how a picture fades, how a sampler brings it back, and what a better solver saves.
//!
//! `cargo run --release --example tour`
#![allow(clippy::print_stdout)]
use crossfade::lab::{Mixture, Oracle, Points, median, normals};
use crossfade::math::{Attenuation, Grid, GridKind, NoiseScale, Process};
use crossfade::sample::{Hooks, Problem, Sampler};

fn main() -> crossfade::Result<()> {
    // The process: x_t = x_0 + H_t(phi) + sqrt(t)·eps. With constant attenuation phi = −x_0 and H_t = −t·x_0, so the
    // "picture" x_0 = 0.8 fades linearly while the noise rises.
    let process = Process::new(Attenuation::Constant, NoiseScale::Sqrt);
    let (x0, eps) = (0.8, -0.3);
    let phi = process.phi(&x0, &[]);
    println!("   t     x_t");
    for t in [0.0, 0.25, 0.5, 0.75, 1.0] {
        println!("{t:5.2} {:7.3}", process.x_t(&x0, &phi, &eps, &t.into()));
    }

    // One step of the reverse process may have any length: from t = 1 to s = 0 with the true phi and eps is exact.
    let x_1 = process.x_t(&x0, &phi, &eps, &1.0.into());
    println!("\none step back from t = 1: {:.3}", process.u_tilde(&x_1, &phi, &eps, 1.0, 0.0));

    // Real data has many x_0 for one x_t. For a mixture of Gaussians the best network is known; it stands in for a
    // trained one and knows nothing but E[phi | x_t] and E[eps | x_t].
    let data = Mixture { dim: 1, weights: vec![0.3, 0.7], means: vec![vec![-0.6], vec![0.5]], std: 0.1 };
    let oracle = Oracle::new(data.clone(), process);
    let problem = Problem::new(&oracle, process);
    let start = normals(1, 2000, 0, 0);

    let solve = |sampler: Sampler, steps: usize| -> crossfade::Result<Points> {
        let grid = Grid { kind: GridKind::UniformSqrt, final_t: None };
        let times = grid.times(steps).map_err(crossfade::Error::Request)?;
        let mut hooks = Hooks { noise: &mut |step| normals(1, 2000, 1, step as u64), observe: &mut |_| () };
        Ok(sampler.run(&problem, &times, start.clone(), &mut hooks)?.x0)
    };

    // Where does the exact equation take these 2000 points? A thousand steps tell; then few steps are compared.
    let exact = solve(Sampler::PredictorCorrector, 1000)?;
    println!("\nmedian error   5 steps   10 steps   20 steps");
    for sampler in [Sampler::FirstOrder, Sampler::Ab2, Sampler::PredictorCorrector] {
        print!("{:<12}", sampler.name());
        for steps in [5, 10, 20] {
            print!("  {:9.5}", median(&solve(sampler, steps)?, &exact));
        }
        println!();
    }

    // And does the sampler give the data's weights? 30 % should lie on the left.
    let sampled = solve(Sampler::Alg2, 10)?;
    let left = sampled.data.iter().filter(|x| **x < 0.0).count() as f64 / 20.0;
    println!("\nAlg. 2, 10 steps: {left:.1} % of the samples on the left, 30 % in the data");
    Ok(())
}
