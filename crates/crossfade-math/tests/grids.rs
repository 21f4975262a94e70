//! The options of grids that are spaced by the noise level κ = σ/α (§3.2).
#![allow(clippy::unwrap_used)]
use crossfade_math::process::{Ddpm, Edm, Flow, Ve};
use crossfade_math::{Adm, Gaussian, GaussianFn, Grid, GridKind, Process};

fn times(kind: GridKind, process: &Gaussian, n: usize) -> Result<Vec<f64>, String> {
    Grid { kind, final_t: None }.times_on(process, n)
}

fn log_snr(kappa_max: f64, kappa_min: f64, curvature: f64) -> GridKind {
    GridKind::LogSnr { kappa_max: Some(kappa_max), kappa_min: Some(kappa_min), curvature: Some(curvature) }
}

fn gaussian(process: impl Into<Process>) -> Gaussian {
    process.into().gaussian().unwrap()
}

/// After t = 1 the noise levels begin at kappa_max and end at kappa_min, and lie uniformly in (κ^c − 1)/c between them.
#[test]
fn levels_lie_between_their_bounds() {
    for process in [gaussian(Adm::default()), gaussian(Process::Flow(Flow::default()))] {
        for c in [-0.5, 0.0, 1.0 / 7.0, 1.0] {
            let found = times(log_snr(5.0, 0.1, c), &process, 9).unwrap();
            assert_eq!((found.len(), found[0], found[9]), (10, 1.0, 0.0));
            let kappa: Vec<f64> = found[1..9].iter().map(|&t| process.ratio(t)).collect();
            assert!((kappa[0] - 5.0).abs() < 1e-6 && (kappa[7] - 0.1).abs() < 1e-6, "{process:?} {c}: {kappa:?}");
            let z: Vec<f64> = kappa.iter().map(|k| if c == 0.0 { k.ln() } else { (k.powf(c) - 1.0) / c }).collect();
            let spaces: Vec<f64> = z.windows(2).map(|w| w[0] - w[1]).collect();
            assert!(spaces.iter().all(|s| (s / spaces[0] - 1.0).abs() < 1e-6), "{process:?} {c}: {spaces:?}");
        }
    }
}

/// `karras` is `log-snr` with the curvature 1/ρ.
#[test]
fn karras_is_a_curvature() {
    let process = gaussian(Adm::default());
    let karras = GridKind::Karras { rho: 7.0, kappa_max: Some(20.0), kappa_min: Some(0.05) };
    assert_eq!(times(karras, &process, 10), times(log_snr(20.0, 0.05, 1.0 / 7.0), &process, 10));
}

/// Few evaluations: one is at t = 1 only; the second of two is in the middle of the range.
#[test]
fn one_and_two_evaluations() {
    let process = gaussian(Adm::default());
    assert_eq!(times(log_snr(4.0, 0.25, 0.0), &process, 1).unwrap(), [1.0, 0.0]);
    let two = times(log_snr(4.0, 0.25, 0.0), &process, 2).unwrap();
    assert!(two.len() == 3 && (process.ratio(two[1]) - 1.0).abs() < 1e-9, "{two:?}");
}

/// Processes with some of the picture left at t = 1 start at their own κ, or at t = 1 and then at kappa_max below it.
#[test]
fn processes_with_a_finite_start() {
    let edm = gaussian(Process::Edm(Edm::default()));
    let own = times(GridKind::LOG_SNR, &edm, 5).unwrap();
    assert!((edm.ratio(own[0]) - 80.0).abs() < 1e-9 && edm.ratio(own[1]) < 40.0, "{own:?}");
    let bounded = times(log_snr(20.0, 0.1, 0.0), &edm, 5).unwrap();
    assert!(bounded[0] == 1.0 && (edm.ratio(bounded[1]) - 20.0).abs() < 1e-6, "{bounded:?}");
    // A bound above the process's largest noise is that noise.
    assert_eq!(times(log_snr(500.0, 0.1, 0.0), &edm, 5), times(log_snr(80.0, 0.1, 0.0), &edm, 5));
    // A bound below its smallest time is the noise at that time: VE has none below.
    let ve = gaussian(Process::Ve(Ve::default()));
    let last = times(log_snr(20.0, 1e-9, 0.0), &ve, 6).unwrap()[5];
    assert!((ve.ratio(last) / ve.ratio(ve.t_end()) - 1.0).abs() < 1e-6);
}

/// The chain of DDPM gets its own times, each once.
#[test]
fn discrete_times_are_whole_steps() {
    let ddpm = gaussian(Process::Ddpm(Ddpm::default()));
    for n in [1, 2, 10, 100] {
        for kind in [log_snr(20.0, 0.05, 0.0), GridKind::Images] {
            let found = times(kind, &ddpm, n).unwrap();
            assert_eq!(found.len(), n + 1);
            assert!(found.windows(2).all(|w| w[0] > w[1]));
            assert!(found.iter().all(|t| (t * 1000.0 - (t * 1000.0).round()).abs() < 1e-9), "{found:?}");
        }
    }
}

#[test]
fn bounds_that_mean_nothing_are_refused() {
    let process = gaussian(Adm::default());
    for (kappa_max, kappa_min, curvature) in [
        (1.0, 1.0, 0.0),
        (0.1, 1.0, 0.0),
        (1.0, 0.0, 0.0),
        (-1.0, 0.1, 0.0),
        (f64::NAN, 0.1, 0.0),
        (2.0, f64::NAN, 0.0),
    ] {
        let error = times(log_snr(kappa_max, kappa_min, curvature), &process, 5).unwrap_err();
        assert!(error.contains("kappa_min"), "{error}");
    }
    assert!(times(log_snr(2.0, 0.1, f64::NAN), &process, 5).unwrap_err().contains("curvature"));
    // Above the largest noise of the process, although below kappa_max.
    let edm = gaussian(Process::Edm(Edm::default()));
    assert!(times(log_snr(500.0, 100.0, 0.0), &edm, 5).unwrap_err().contains("below kappa_max"));
}

/// The bounds of `images` widen with the number of evaluations.
#[test]
fn more_evaluations_reach_finer_detail() {
    let process = gaussian(Adm::default());
    let [few, many] = [5, 20].map(|n| times(GridKind::Images, &process, n).unwrap());
    let ends = |times: &[f64]| (process.ratio(times[1]), process.ratio(times[times.len() - 2]));
    assert!(ends(&few).0 < ends(&many).0 && ends(&few).1 > ends(&many).1);
}

/// The steps that DDIM's published code takes on CIFAR-10: int(linspace(0, √800, N)²), counted from 0.
#[test]
fn ddim_steps_are_those_of_its_code() {
    let ddpm = gaussian(Process::Ddpm(Ddpm::default()));
    let steps = |n: usize| -> Vec<i64> {
        let found = times(GridKind::DdimQuadratic, &ddpm, n).unwrap();
        found[..n].iter().rev().map(|t| (t * 1000.0).round() as i64 - 1).collect()
    };
    assert_eq!(steps(10), [0, 9, 39, 88, 158, 246, 355, 483, 632, 800]);
    assert_eq!(steps(5), [0, 50, 200, 450, 800]);
    assert_eq!(steps(1), [800]);
    // With many steps the code repeats the first ones; here each is taken once.
    let many = steps(100);
    assert!(many.windows(2).all(|w| w[0] < w[1]) && many[99] == 800, "{many:?}");
}

/// Explicit times are taken as they are: the first is where sampling starts.
#[test]
fn explicit_times_may_start_below_one() {
    let explicit = |times: &[f64]| Grid { kind: GridKind::Explicit { times: times.to_vec() }, final_t: None }.times(7);
    assert_eq!(explicit(&[0.8, 0.3]).unwrap(), [0.8, 0.3, 0.0]);
    assert_eq!(explicit(&[1.0, 0.3, 0.0]).unwrap(), [1.0, 0.3, 0.0]);
    for wrong in [vec![], vec![0.0], vec![1.5, 0.2], vec![0.2, 0.3], vec![f64::NAN]] {
        assert!(explicit(&wrong).unwrap_err().contains("descend"), "{wrong:?}");
    }
}

#[test]
fn a_grid_is_one_line_of_text() {
    let read = |text: &str| GridKind::from_argument(text);
    assert_eq!(read("log-snr:kappa_max=20, kappa_min=0.1").unwrap().argument(), "log-snr:kappa_max=20,kappa_min=0.1");
    for kind in GridKind::all() {
        assert_eq!(kind.argument(), kind.name());
    }
    for text in ["karras:rho=3,kappa_min=0.05", "power:sigma_min=0.1", "explicit:1,0.6,0.25", "log-snr:curvature=-0.5"]
    {
        assert_eq!(read(text).unwrap().argument(), text);
    }
    for (text, part) in [
        ("log-snr:kapa_min=1", "known: kappa_max, kappa_min, curvature"),
        ("log-snr:0.1", "option=number"),
        ("log-snr:kappa_min=x", "x: invalid float"),
        ("uniform-t:rho=1", "it has none"),
        ("explicit", "float"),
        ("explicit:", "cannot parse float"),
        ("log-snt", "did you mean 'log-snr'?"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
