//! The findings of §10.4: orders of convergence on the mixture, and how grids lose them.
#![allow(clippy::unwrap_used)]
use crossfade::lab::{LabConfig, LabReport, run};
use crossfade::math::{Adm, Attenuation, Blend, Grid, GridKind, NoiseScale, Process};
use crossfade::sample::{AttenuationProblem, Hooks, Sampler};

/// The samplers of attenuation.
fn of_attenuation() -> impl Iterator<Item = Sampler> {
    Sampler::ALL.iter().copied().filter(|s| s.uses_attenuation(&Process::default()))
}

fn order(report: &LabReport, sampler: Sampler, grid: &str) -> f64 {
    let orders = &report.curve(Attenuation::Constant, sampler, grid).unwrap().orders;
    orders[orders.len() - 1]
}

/// §13: slopes on the uniform-√t grid from N = 80 to 320; uniform t loses the order.
#[test]
fn solvers_reach_their_order_on_the_mixture() {
    let deterministic = of_attenuation().filter(|s| !s.is_stochastic()).collect();
    let report = run(
        &LabConfig {
            samples: 200,
            samplers: deterministic,
            grids: vec![GridKind::UniformSqrt, GridKind::UniformT],
            evaluations: vec![80, 160, 320],
            ..LabConfig::default()
        },
        &mut |_, _| (),
    )
    .unwrap();
    let on_sqrt = |s| order(&report, s, "uniform-sqrt");
    assert!((on_sqrt(Sampler::FirstOrder) - 1.0).abs() < 0.1, "{report}");
    assert!((on_sqrt(Sampler::Ab2) - 2.0).abs() < 0.1, "{report}");
    assert!((on_sqrt(Sampler::Data2M) - 2.0).abs() < 0.1, "{report}");
    assert!((on_sqrt(Sampler::Midpoint) - 2.0).abs() < 0.1, "{report}");
    assert!((on_sqrt(Sampler::PredictorCorrector) - 2.8).abs() < 0.25, "{report}");
    let on_t = |s| order(&report, s, "uniform-t");
    assert!((0.6..0.9).contains(&on_t(Sampler::FirstOrder)), "{report}");
    assert!((1.3..1.8).contains(&on_t(Sampler::Ab2)), "{report}");
}

/// Every sampler under every attenuation and noise scale brings a Gaussian's mean and spread back with enough steps.
#[test]
fn every_sampler_reaches_the_data_under_every_attenuation() {
    std::thread::scope(|scope| {
        for &noise in NoiseScale::ALL {
            scope.spawn(move || Attenuation::ALL.iter().for_each(|&attenuation| reaches_the_data(attenuation, noise)));
        }
    });
}

fn reaches_the_data(attenuation: Attenuation, noise: NoiseScale) {
    let config = LabConfig {
        dim: 2,
        components: 1,
        std: 0.15,
        samples: 400,
        attenuations: vec![attenuation],
        noise,
        grids: vec![GridKind::UniformSqrt],
        evaluations: vec![4, 64],
        ..LabConfig::default()
    };
    let report = run(&config, &mut |_, _| ()).unwrap();
    for curve in &report.curves {
        let last = curve.cells.last().unwrap();
        // 400 samples in two dimensions are about 0.01 from each other; the mean heads of the nonlinear attenuations leave
        // a bias of their own.
        let bound = if attenuation == Attenuation::Sine { 0.06 } else { 0.03 };
        assert!(last.w2 < bound, "{noise:?}\n{report}");
        assert!(last.evaluations <= 64 && last.evaluations >= last.steps, "{report}");
    }
}

/// N = 1 works for every sampler, grid and blend: no 0/0, and the evaluations are counted.
#[test]
fn one_step_is_finite_for_every_sampler_grid_and_blend() {
    let config = LabConfig { dim: 2, components: 3, samples: 20, ..LabConfig::default() };
    let process = Adm::default();
    let oracle = crossfade::lab::Oracle::new(config.mixture(), process);
    for sampler in of_attenuation() {
        for kind in GridKind::all_in_time() {
            for blend in Blend::ALL {
                for (steps, final_t) in [(1, None), (1, Some(1e-3)), (2, None), (3, Some(1e-4))] {
                    let times = Grid { kind: kind.clone(), final_t }.times(steps).unwrap();
                    let mut problem = AttenuationProblem::new(&oracle, process);
                    problem.blend = blend.clone();
                    problem.clip = Some(1.5);
                    let mut seen = vec![];
                    let mut hooks = Hooks {
                        noise: &mut |step| crossfade::lab::normals(2, 20, 1, step as u64),
                        observe: &mut |state| seen.push((state.step, state.t)),
                    };
                    let start = crossfade::lab::normals(2, 20, 0, 0);
                    let out = sampler.run(&problem, &times, start, &mut hooks).unwrap();
                    assert!(out.x0.data.iter().all(|x| x.is_finite()), "{sampler:?} {kind:?} {blend:?}");
                    assert_eq!(seen.len(), times.len() - 1, "every state is offered");
                    assert!(out.nfe >= seen.len() && out.nfe <= 2 * seen.len(), "{sampler:?}: {}", out.nfe);
                }
            }
        }
    }
}

/// A grid that does not end at 0 is refused, not run.
#[test]
fn bad_times_are_refused() {
    let config = LabConfig { dim: 1, components: 1, samples: 2, ..LabConfig::default() };
    let oracle = crossfade::lab::Oracle::new(config.mixture(), Adm::default());
    let problem = AttenuationProblem::new(&oracle, Adm::default());
    let start = crossfade::lab::normals(1, 2, 0, 0);
    let mut hooks = Hooks { noise: &mut |_| unreachable!(), observe: &mut |_| () };
    for times in [vec![], vec![1.0], vec![1.0, 0.5], vec![0.5, 0.7, 0.0]] {
        assert!(Sampler::Ab2.run(&problem, &times, start.clone(), &mut hooks).is_err());
    }
    let bad = LabConfig { dim: 0, evaluations: vec![], ..config };
    let message = run(&bad, &mut |_, _| ()).err().unwrap().to_string();
    assert!(message.contains("dim") && message.contains("evaluations"), "{message}");
}
