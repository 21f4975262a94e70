//! Schedules, grids, estimates and distributions of times: each against its definition.
#![allow(clippy::unwrap_used, non_snake_case)]
use crossfade_math::process::{Ddpm, Flow};
use crossfade_math::*;

#[track_caller]
fn close(a: f64, b: f64, what: impl std::fmt::Debug) {
    assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs())), "{what:?}: {a} is not {b}");
}

/// §2.5: a linear warm-up that ends above 1, then a power of what is left, and never below the floor.
#[test]
fn learning_rates() {
    let lr = LrSchedule { base: 2e-4, floor: 1e-5, steps: 100, warmup: 10, exponent: 2.0 };
    for (step, ratio) in
        [(0, 0.1), (9, 1.0), (10, 1.1), (11, 0.9801), (60, 0.25), (109, 0.05), (110, 0.05), (9999, 0.05)]
    {
        close(lr.ratio(step), ratio, step);
        close(lr.at(step), 2e-4 * ratio, step);
    }
    let plain = LrSchedule { warmup: 0, ..lr };
    assert_eq!((plain.ratio(0), plain.ratio(50)), (1.0, 0.25));
}

#[test]
fn moving_averages() {
    let ema = EmaSchedule { beta: 0.9, update_after: 20, update_every: 8 };
    close(ema.decay(7), 0.75, "1 − 8^(−2/3)");
    assert_eq!((ema.decay(-3), ema.decay(0), ema.decay(1000)), (0.0, 0.0, 0.9));
    use EmaAction::{Average, Copy, Skip};
    for (step, action) in
        [(0, Copy), (1, Skip), (7, Skip), (8, Copy), (16, Copy), (24, Copy), (31, Skip), (32, Average(ema.decay(12)))]
    {
        assert_eq!(ema.action(step), action, "{step}");
    }
    // At once, at every step; 0 steps between updates are taken as 1.
    for update_every in [0, 1] {
        let ema = EmaSchedule { update_after: 0, update_every, beta: 0.9 };
        assert_eq!(
            [0, 1, 2, 3].map(|step| ema.action(step)),
            [Copy, Copy, Average(ema.decay(2)), Average(ema.decay(3))]
        );
    }
    let power = PowerProfile::new(0.1).unwrap();
    assert_eq!((power.action(0), power.decay(0)), (Average(0.0), 0.0));
    assert_eq!(power.action(3), Average(0.75f64.powf(power.gamma + 1.0)));
    assert!(PowerProfile::new(1e-3).is_some() && PowerProfile::new(0.9e-3).is_none());
}

#[test]
fn noise_scales() {
    for (noise, sigma, slope) in [(NoiseScale::Sqrt, 0.6, 1.0), (NoiseScale::Linear, 0.36, 0.72)] {
        close(noise.sigma(0.36), sigma, noise);
        close(noise.variance(0.36), sigma * sigma, noise);
        close(noise.variance_slope(0.36), slope, noise);
        close(noise.time(sigma), 0.36, noise);
    }
}

/// The times of each grid from its definition (§3.2).
#[test]
fn grids() {
    let times = |kind: GridKind, final_t: Option<f64>, n: usize| Grid { kind, final_t }.times(n);
    let expect = |kind: GridKind, expected: &[f64]| {
        let found = times(kind.clone(), None, expected.len() - 1).unwrap();
        assert_eq!(found.len(), expected.len(), "{kind:?}");
        found.iter().zip(expected).for_each(|(a, b)| close(*a, *b, (&kind, &found)));
    };
    expect(GridKind::UniformT, &[1.0, 0.75, 0.5, 0.25, 0.0]);
    expect(GridKind::Auto, &[1.0, 0.5, 0.0]);
    expect(GridKind::UniformSqrt, &[1.0, 0.5625, 0.25, 0.0625, 0.0]);
    expect(GridKind::DdimQuadratic, &[0.801, 0.201, 0.001, 0.0]);
    expect(GridKind::Reference { sigma_min: 0.01 }, &[1.0, 0.50005, 1e-4, 0.0]);
    expect(GridKind::Reference { sigma_min: 0.01 }, &[1.0, 0.0]);
    let middle = (0.5 * (1.0 + 0.02f64.powf(1.0 / 7.0))).powi(14);
    expect(GridKind::Power { rho: 7.0, sigma_min: 0.02 }, &[1.0, middle, 4e-4, 0.0]);
    // The final evaluation lies below the last one, or is left out.
    assert_eq!(times(GridKind::UniformT, Some(1e-4), 2).unwrap(), [1.0, 0.5, 1e-4, 0.0]);
    for final_t in [0.5, 0.7] {
        assert_eq!(times(GridKind::UniformT, Some(final_t), 2).unwrap(), [1.0, 0.5, 0.0]);
    }
    assert!(times(GridKind::UniformT, Some(-1.0), 2).is_err() && times(GridKind::UniformT, None, 0).is_err());
    for wrong in [vec![0.5, 0.5], vec![], vec![1.0, 0.2, 0.3]] {
        assert!(times(GridKind::Explicit { times: wrong }, None, 1).is_err());
    }
    // EDM's own times: σ^{1/7} is uniform from 80 to 0.002.
    let edm = Process::parse("edm").unwrap().gaussian().unwrap();
    let found = Grid { kind: edm.process().grid(), final_t: None }.times_on(&edm, 5).unwrap();
    let (first, last) = (80f64.powf(1.0 / 7.0), 0.002f64.powf(1.0 / 7.0));
    for (i, t) in found[..5].iter().enumerate() {
        assert!((t - (first + i as f64 / 4.0 * (last - first)).powi(7) / 80.0).abs() < 1e-9, "{found:?}");
    }
    // Attenuation has no finite level at t = 1: the others begin at 80, and one alone lies in the middle.
    let adm = Process::default().gaussian().unwrap();
    let found = Grid { kind: GridKind::LOG_SNR, final_t: None }.times_on(&adm, 3).unwrap();
    assert!(found[0] == 1.0 && (adm.ratio(found[1]) / 80.0 - 1.0).abs() < 1e-6, "{found:?}");
    assert!((adm.ratio(found[2]) / adm.ratio(1e-4) - 1.0).abs() < 1e-6, "{found:?}");
    let ddpm = Process::Ddpm(Ddpm::default()).gaussian().unwrap();
    let error = Grid { kind: GridKind::UniformT, final_t: Some(1e-4) }.times_on(&ddpm, 3).unwrap_err();
    assert!(error.contains("whole steps"), "{error}");
    assert!(
        GridKind::all().iter().all(|kind| kind.needs_ratio() == matches!(kind.name(), "karras" | "log-snr" | "images"))
    );
    assert_eq!(GridKind::all_in_time().len(), GridKind::all().len() - 3);
}

/// Options that are left out have the values of the papers.
#[test]
fn defaults() {
    let grid = |name: &str| GridKind::parse(name).unwrap();
    assert_eq!(grid("power"), GridKind::Power { rho: 7.0, sigma_min: 0.02 });
    assert_eq!(grid("karras"), GridKind::Karras { rho: 7.0, kappa_max: None, kappa_min: None });
    assert_eq!(grid("reference"), GridKind::Reference { sigma_min: 0.01 });
    let times = |name: &str| TimeDistribution::parse(name).unwrap();
    assert_eq!(times("power"), TimeDistribution::Power { exponent: 2.0 });
    assert_eq!(times("logit-normal"), TimeDistribution::LogitNormal { mean: 0.0, std: 1.0 });
    assert_eq!(times("log-normal"), TimeDistribution::LogNormal { mean: -1.2, std: 1.2 });
    assert_eq!(times("uniform-share"), TimeDistribution::UniformShare { shift: 1.0 });
    assert_eq!(Precond::parse("optimal").unwrap(), Precond::Optimal { sigma_data: 1.0 });
}

/// The mean of phi over its draws, which the mean of the images determines where attenuation is affine.
#[test]
fn the_mean_of_phi() {
    for &attenuation in Attenuation::ALL {
        for &draw in Draw::ALL {
            let p = Adm { draw, ..Adm::new(attenuation, NoiseScale::Sqrt) };
            let Some(mean) = p.mean_phi(&0.3) else {
                assert_eq!(attenuation.name(), "sine");
                continue;
            };
            assert_ne!(attenuation.name(), "sine");
            let nodes = joint_nodes(&draw.nodes(if p.drawn_parts() > 2 { 10 } else { 24 }), p.drawn_parts());
            for (part, mean) in mean.iter().enumerate() {
                let of = |q: &JointNode| q.weight * attenuation.solve(&0.3, &q.values)[part];
                let found: f64 = nodes.iter().map(of).sum();
                assert!((found - mean).abs() < 1e-3, "{attenuation:?} {draw:?}: {found} {mean}");
            }
        }
    }
}

/// The weight of x̂_0^φ in each blend, from the estimate for heads that disagree.
#[test]
fn blends_weigh_the_heads() {
    let table = Blend::Table(vec![0.2, 0.9, 0.4]);
    let cases: &[(Blend, &[(f64, f64)])] = &[
        (Blend::Phi, &[(0.3, 1.0)]),
        (Blend::Eps, &[(0.3, 0.0)]),
        (Blend::Average, &[(0.3, 0.5)]),
        (Blend::Heads, &[(0.3, 0.3), (0.8, 0.8)]),
        (Blend::Reference, &[(0.3, 0.3), (0.8, 0.8)]),
        (Blend::Table(vec![]), &[(0.3, 0.5)]),
        // Bins in √t: centres at 1/6, 3/6 and 5/6, straight between them, constant outside.
        (
            table,
            &[
                (1.0 / 36.0, 0.2),
                (0.25, 0.9),
                (25.0 / 36.0, 0.4),
                (1.0 / 9.0, 0.55),
                (4.0 / 9.0, 0.65),
                (1e-4, 0.2),
                (0.98, 0.4),
            ],
        ),
    ];
    let (x_t, of_phi, eps) = (0.7, 0.4, -0.5);
    for noise in NoiseScale::ALL {
        let p = Adm::new(Attenuation::Constant, *noise);
        for (blend, points) in cases {
            for &(t, w) in *points {
                let estimate = blend.estimate(&p, &x_t, &[-of_phi], &eps, t, None);
                let of_eps = (x_t - noise.sigma(t) * eps) / (1.0 - t);
                let x0 = w * of_phi + (1.0 - w) * of_eps;
                close(estimate.x0, x0, (blend, t));
                match blend {
                    // Both heads as they are.
                    Blend::Heads => {
                        assert_eq!((estimate.phi[0], estimate.eps, estimate.anchor), (-of_phi, eps, estimate.x0))
                    }
                    Blend::Reference => {
                        close(estimate.phi[0], -x0, t);
                        close(estimate.eps, eps, t);
                        close(estimate.anchor, x_t + t * x0 - noise.sigma(t) * eps, t);
                    }
                    // eps is what the blended x_0 leaves.
                    _ => {
                        close((1.0 - t) * x0 + noise.sigma(t) * estimate.eps, x_t, (blend, t));
                        close(estimate.anchor, x0, t);
                        close(estimate.phi[0], -x0, t);
                    }
                }
                let clipped = blend.estimate(&p, &x_t, &[-of_phi], &eps, t, Some(0.1));
                close(clipped.x0, x0.clamp(-0.1, 0.1), (blend, t));
            }
        }
    }
}

/// Estimates of processes x_t = α_t x_0 + σ_t eps, for one time and for a time of each sample.
#[test]
fn estimates_of_gaussian_processes() {
    for g in Gaussian::all() {
        let (x0, eps, t, s) = (0.37, -1.21, 0.801, 0.3);
        let (x_t, x_s) = (g.x_t(&x0, &eps, &t.into()), g.x_t(&x0, &eps, &s.into()));
        close(x_t, g.alpha(t) * x0 + g.sigma(t) * eps, g.name());
        let between = g.prediction_between(&x_t, &t.into(), &x_s, &s.into());
        let of_x0 = g.prediction_of_x0(&x_t, x0, t);
        for found in [between, of_x0] {
            close(found.x0, x0, g.name());
            close(found.eps, eps, g.name());
        }
        let kappa = g.sigma(t) / g.alpha(t);
        close(g.ratio(t), kappa, g.name());
        close(g.half_log_snr(t), -kappa.ln(), g.name());
        close(g.start_deviation(t), (g.alpha(t).powi(2) + g.sigma(t).powi(2)).sqrt(), g.name());
        assert_eq!(g.start_deviation(1.0), g.sigma(1.0));
        // An error of the raw output moves v = eps − x_0 by the factor times it.
        let raw = g.raw_target(&x0, &eps, &t.into());
        let (right, moved) = (g.prediction(&x_t, &raw, &t.into()), g.prediction(&x_t, &(raw + 0.1), &t.into()));
        let change = (moved.eps - moved.x0) - (right.eps - right.x0);
        close(change.abs(), 0.1 * g.velocity_factor(t), g.name());
    }
    let flow = Process::Flow(Flow {}).gaussian().unwrap();
    let eps_only = Process::default().gaussian().unwrap();
    close(flow.velocity_factor(0.3), 1.0, "flow");
    close(eps_only.velocity_factor(0.36), 1.0 + 0.6 / 0.64, "eps");
    // Nothing of the image is left at t = 1.
    let found = eps_only.prediction(&0.9, &0.2, &1.0.into());
    assert_eq!((found.x0, found.eps), (0.0, 0.9));
}

/// Densities against the slope of the draws, with options that are not the defaults.
#[test]
fn densities_are_those_of_the_draws() {
    let distributions = [
        TimeDistribution::Uniform,
        TimeDistribution::Power { exponent: 3.0 },
        TimeDistribution::LogitNormal { mean: 0.3, std: 0.8 },
        TimeDistribution::LogNormal { mean: -0.7, std: 0.6 },
        TimeDistribution::UniformShare { shift: 2.5 },
    ];
    for name in ["adm", "flow", "vp", "ve", "edm"] {
        let process = Process::parse(name).unwrap();
        for distribution in distributions {
            let times = TrainingTimes { distribution, keep_objective: false };
            let normal = matches!(distribution.name(), "logit-normal" | "log-normal");
            for (u, z) in [(0.3, -0.6), (0.5, 0.1), (0.65, 0.8)] {
                let at = |step: f64| {
                    if normal { times.draw(&process, u, z + step) } else { times.draw(&process, u + step, z) }
                };
                let (t, slope) = (at(0.0).t, (at(1e-6).t - at(-1e-6).t) / 2e-6);
                let expected = if normal { (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt() } else { 1.0 };
                let found = times.density(&process, t).unwrap() * slope;
                assert!((found / expected - 1.0).abs() < 1e-4, "{name} {distribution:?}: {found} {expected}");
                // Samples are weighted by own density over drawn density, at most 20.
                let kept = TrainingTimes { keep_objective: true, ..times }.draw(&process, u, z);
                let weight = process.time_density(t) / times.density(&process, t).unwrap();
                close(kept.weight, weight.min(20.0), (name, distribution));
                assert_eq!((kept.t, at(0.0).weight), (t, 1.0));
            }
        }
    }
    // The smallest time is that of the distribution, or the first of a chain; chains take the next larger time.
    let uniform = TrainingTimes { distribution: TimeDistribution::Uniform, keep_objective: false };
    let [flow, ddpm] = ["flow", "ddpm"].map(|name| Process::parse(name).unwrap());
    assert_eq!((uniform.draw(&flow, 0.0, 0.0).t, uniform.draw(&flow, 1.0, 0.0).t), (1e-4, 1.0));
    for (u, t) in [(0.0, 0.001), (0.3004, 0.301), (1.0, 1.0)] {
        close(uniform.draw(&ddpm, u, 0.0).t, t, u);
    }
    // Without noise levels the process's own times are taken.
    let cld = Process::parse("cld").unwrap();
    for distribution in
        [TimeDistribution::LogNormal { mean: 0.0, std: 1.0 }, TimeDistribution::UniformShare { shift: 1.0 }]
    {
        let times = TrainingTimes { distribution, keep_objective: false };
        close(times.draw(&cld, 0.3, 0.2).t, cld.training_time(0.3, 0.2), distribution);
        assert_eq!(times.density(&cld, 0.3), None);
        assert_eq!(times.validate(&cld)[0].key, "kind");
    }
}

#[test]
fn options_of_times_are_checked() {
    let flow = Process::parse("flow").unwrap();
    let keys = |distribution, keep_objective| {
        let problems = TrainingTimes { distribution, keep_objective }.validate(&flow);
        problems.into_iter().map(|problem| problem.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(TimeDistribution::Own, true), ["keep_objective"]);
    assert!(keys(TimeDistribution::Own, false).is_empty() && keys(TimeDistribution::Uniform, true).is_empty());
    for (value, wrong) in [(1.0, 0), (0.0, 1), (-1.0, 1), (f64::INFINITY, 1), (f64::NAN, 1)] {
        assert_eq!(keys(TimeDistribution::Power { exponent: value }, true).len(), wrong, "{value}");
        assert_eq!(keys(TimeDistribution::UniformShare { shift: value }, true).len(), wrong, "{value}");
        assert_eq!(keys(TimeDistribution::LogNormal { mean: 0.0, std: value }, true).len(), wrong, "{value}");
        assert_eq!(keys(TimeDistribution::LogitNormal { mean: 0.0, std: value }, true).len(), wrong, "{value}");
    }
    assert_eq!(keys(TimeDistribution::LogitNormal { mean: f64::NAN, std: 1.0 }, true), ["mean"]);
    assert!(keys(TimeDistribution::LogNormal { mean: -3.0, std: 1.0 }, true).is_empty());
}

/// §10.7: the levels of 8-bit images, and the unit of the bound.
#[test]
fn levels_and_bits() {
    assert_eq!([0, 51, 255].map(level), [-1.0, -0.6, 1.0]);
    close(bits_per_dim(12.0 * std::f64::consts::LN_2, 4), 3.0, "bits");
    // At the largest noise the prior costs half the squares in units of the noise.
    let range = NoiseRange::new(Process::parse("ve").unwrap().gaussian().unwrap(), KAPPA_MIN, 20.0).unwrap();
    close(range.kappa_max(), 20.0, "cut");
    close(range.prior(8.0), 0.01, "prior");
}
