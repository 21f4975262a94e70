//! The tables of docs/METHOD.md (§2, §4.1, §9), computed once more from what they say: constants, names and formulas that no
//! identity between functions could check.
#![allow(clippy::unwrap_used, non_snake_case)]
use crossfade_math::process::{BetaSchedule, Cld, Ddpm, Edm, Extra, Flow, Outputs, TimeInput, Ve, Vp};
use crossfade_math::*;

#[track_caller]
fn close(a: f64, b: f64, what: impl std::fmt::Debug) {
    assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs())), "{what:?}: {a} is not {b}");
}

#[track_caller]
fn all_close<const N: usize>(a: [f64; N], b: [f64; N], what: impl std::fmt::Debug + Copy) {
    a.into_iter().zip(b).enumerate().for_each(|(k, (a, b))| close(a, b, (what, k)));
}

fn process(name: &str) -> Process {
    Process::parse(name).unwrap()
}

const NAMES: [&str; 9] = ["adm", "ddpm", "ddpm-x0", "vp", "ve", "edm", "flow", "lsgm", "cld"];

/// §2.2 at t = 0.36 and t_min = 0.01, where σ is 0.6 or 0.36.
#[test]
fn weightings() {
    let (t, t_min) = (0.36f64, 0.01);
    for (noise, sigma, slope) in [(NoiseScale::Sqrt, 0.6f64, 1.0), (NoiseScale::Linear, 0.36, 0.72)] {
        let p = Adm::new(Attenuation::Constant, noise);
        let D = 0.64f64.powi(2) + sigma * sigma;
        for (name, phi, eps) in [
            ("adaptive", D / sigma.powi(2), D / 0.4096),
            ("ones", 1.0, 1.0),
            ("reciprocal", 1.0 / 0.36, 1.0 / 0.64),
            ("exponential", 1.433_329_414_560_340_4, 1.896_480_879_304_951_5),
            ("elbo", 1.0 / slope, slope / sigma.powi(2)),
            ("reference", D / sigma.powi(2), D / 0.65),
            ("reference-linear", 4.160_493_827_160_494, 1.306_745_562_130_177_5),
            ("older-release", 1.0 / 0.36, 1.0 / 0.65),
            ("diffusion-edge", 1.36 / 0.6, (1.64f64 / 0.65).sqrt()),
        ] {
            let (of_phi, of_eps) = Weighting::parse(name).unwrap().lambda(&p, 1.0, t, t_min);
            all_close([of_phi, of_eps], [phi, eps], (name, noise));
        }
    }
    assert_eq!(
        ["l1", "l2", "l1-l2"].map(|name| LossNorm::parse(name).unwrap().shares()),
        [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)]
    );
}

/// §4.1 at t = 0.36.
#[test]
fn preconditioners() {
    let (t, log) = (0.36f64, -1.021_651_247_531_981_4);
    for (noise, sigma) in [(NoiseScale::Sqrt, 0.6f64), (NoiseScale::Linear, 0.36)] {
        let (D, older, edge) = (0.4096 + sigma * sigma, 1.36f64.sqrt(), 1.1296f64.sqrt());
        let optimal = [-0.64 / D, sigma / D.sqrt(), sigma / D, 0.64 / D.sqrt()];
        let releases = [-0.64, 0.36 / older, 0.6, 0.8 / older];
        for (name, c_in, c_noise, heads) in [
            ("optimal", 1.0 / D.sqrt(), log, optimal),
            ("older-release", 1.0 / older, log, releases),
            ("conditional", 1.0, log, releases),
            ("diffusion-edge", 1.0, log / 4.0, [0.64, 0.36 / edge, 0.6, 0.8 / edge]),
            ("velocity", 1.0 / (0.64 + sigma), log, [-1.0, sigma, 1.0, 0.64].map(|v| v / (0.64 + sigma))),
            ("repeated", 1.0 / D.sqrt(), log, optimal),
            ("none", 1.0 / D.sqrt(), log, [0.0, 1.0, 0.0, 1.0]),
        ] {
            let precond = Precond::parse(name).unwrap();
            for attenuation in [Attenuation::Constant, Attenuation::Linear] {
                if attenuation != Attenuation::Constant && matches!(name, "optimal" | "velocity") {
                    continue;
                }
                let c = precond.scalings(&Adm::new(attenuation, noise), t);
                assert_eq!(c.phi.len(), attenuation.parts());
                for phi in &c.phi {
                    all_close([phi.skip, phi.out, c.eps.skip, c.eps.out], heads, (name, noise));
                }
                all_close([c.c_in, c.c_noise], [c_in, c_noise], (name, noise));
                close(precond.raw_eps_factor(&c), if name == "velocity" { 1.0 } else { c.eps.out }, name);
            }
        }
    }
    for (sigma_data, wrong) in [(0.5, 0), (0.0, 1), (-1.0, 1), (f64::INFINITY, 1), (f64::NAN, 1)] {
        assert_eq!(Precond::Optimal { sigma_data }.validate().len(), wrong, "{sigma_data}");
    }
    assert!(Precond::Velocity.validate().is_empty());
}

/// §2.1: how attenuation tells the time.
#[test]
fn time_inputs() {
    for (noise, sigma) in [(NoiseScale::Sqrt, 0.6f64), (NoiseScale::Linear, 0.36)] {
        for (name, expected) in [
            ("log", 0.36f64.ln()),
            ("linear", 359.64),
            ("log-snr", 999.0 * ((sigma / 0.64).ln() + 6.0) / 12.0),
            ("noise-share", 999.0 * sigma / (0.64 + sigma)),
        ] {
            let time_input = TimeInput::parse(name).unwrap();
            let p = Adm { time_input, ..Adm::new(Attenuation::Constant, noise) };
            close(p.input(0.36).noise, expected, (name, noise));
            let log = if name == "log" { expected } else { expected / 999.0 };
            close(p.log_time_input(0.36).noise, log, (name, noise));
        }
        let p = Adm { time_input: TimeInput::LogSnr, ..Adm::new(Attenuation::Constant, noise) };
        assert_eq!((p.input(1e-9).noise, p.input(1.0 - 1e-9).noise), (0.0, 999.0), "limited to ±6");
    }
}

/// §9 at t = 0.3: the coefficients, what the network reads, when it is trained and last evaluated.
#[test]
fn processes() {
    let B: f64 = 0.1 * 0.3 + 0.5 * 19.9 * 0.09;
    let vp = ((-0.5 * B).exp(), (1.0 - (-B).exp()).sqrt());
    let ve = 0.01 * 5000f64.powf(0.3);
    let uniform = 1e-5 + (1.0 - 1e-5) * 0.2504;
    let edm_time = (-1.2f64 + 1.2 * 0.5).exp() / 80.0;
    let edm_norm = (576.25f64).sqrt();
    let eps = [0.0, 1.0];
    for (name, alpha_sigma, input, time, t_end, target) in [
        ("adm", (0.7, 0.3f64.sqrt()), [1.0 / 0.79f64.sqrt(), 0.3f64.ln()], 1e-4 + 0.9999 * 0.2504, 1e-4, eps),
        ("vp", vp, [1.0, 299.7], uniform, 1e-3, eps),
        ("lsgm", vp, [1.0, 299.7], uniform, 1e-3, eps),
        ("ve", (1.0, ve), [1.0 / (1.0 + ve * ve).sqrt(), (ve / 2.0).ln()], uniform, 1e-5, eps),
        (
            "edm",
            (1.0, 24.0),
            [1.0 / edm_norm, 24f64.ln() / 4.0],
            edm_time,
            0.002 / 80.0,
            [48.0 / edm_norm, -0.5 / edm_norm],
        ),
        ("flow", (0.7, 0.3), [1.0, 299.7], 0.2504, 1e-3, [-1.0, 1.0]),
    ] {
        let p = process(name);
        let g = p.gaussian().unwrap();
        all_close([g.alpha(0.3), g.sigma(0.3)], [alpha_sigma.0, alpha_sigma.1], name);
        assert_eq!((g.alpha(0.0), g.sigma(0.0)), (1.0, 0.0), "{name}");
        all_close([p.input(0.3).scale, p.input(0.3).noise], input, name);
        close(p.training_time(0.2504, 0.5), time, name);
        close(g.t_end(), t_end, name);
        all_close([g.target(0.3).x0, g.target(0.3).eps], target, name);
        assert_eq!(g.tick(), None, "{name}");
    }
    assert_eq!((NoiseScale::Linear.t_end(), Vp::default().beta_max, Ve::default().sigma_max), (0.001, 20.0, 50.0));
    let cld = process("cld");
    all_close(
        [cld.input(0.3).scale, cld.input(0.3).noise, cld.training_time(0.2504, 0.5)],
        [1.0, 299.7, uniform],
        "cld",
    );
    // Networks with random frequencies read ln t, also where it would be infinite.
    for name in ["ddpm", "vp", "ve", "edm", "flow", "lsgm", "cld"] {
        let p = process(name);
        for (t, read) in [(0.3, 0.3f64.ln()), (0.0, 1e-6f64.ln())] {
            assert_eq!((p.log_time_input(t).noise, p.log_time_input(0.3).scale), (read, p.input(0.3).scale), "{name}");
        }
    }
}

/// DDPM's chain as a product, and between its times.
#[test]
fn the_chain_of_ddpm() {
    let linear: fn(f64) -> f64 = |s| 1e-4 + s * (0.02 - 1e-4);
    let scaled: fn(f64) -> f64 = |s| (0.0015f64.sqrt() + s * (0.0195f64.sqrt() - 0.0015f64.sqrt())).powi(2);
    for (schedule, beta) in [(BetaSchedule::Linear, linear), (BetaSchedule::ScaledLinear, scaled)] {
        let p = Process::Ddpm(Ddpm { schedule });
        let g = p.gaussian().unwrap();
        let product = |i: usize| (0..i).map(|k| 1.0 - beta(k as f64 / 999.0)).product::<f64>();
        for i in [1, 2, 300, 999, 1000] {
            let t = i as f64 / 1000.0;
            all_close([g.alpha(t).powi(2), g.sigma(t).powi(2)], [product(i), 1.0 - product(i)], (schedule, i));
            all_close([p.input(t).scale, p.input(t).noise], [1.0, i as f64 - 1.0], i);
            // A time belongs to the step before it.
            let slope = 1000.0 * (1.0 - beta((i - 1) as f64 / 999.0)).ln();
            all_close([g.rates(t).0, g.rates(t).1], [0.5 * slope, -slope], (schedule, i));
        }
        // ln ᾱ is straight between two times.
        close(g.alpha(0.3007).powi(2), product(300).powf(0.3) * product(301).powf(0.7), schedule);
        assert_eq!((g.tick(), g.t_end(), g.target(0.3).x0, g.target(0.3).eps), (Some(0.001), 0.001, 0.0, 1.0));
    }
    let p = process("ddpm");
    for (uniform, step) in [(0.0, 1.0), (0.0009, 1.0), (0.001, 2.0), (0.2504, 251.0), (0.9999, 1000.0), (1.0, 1000.0)] {
        close(p.training_time(uniform, 0.5), step / 1000.0, uniform);
    }
    assert!(process("ddpm-x0").gaussian().unwrap().alpha(0.3) == p.gaussian().unwrap().alpha(0.3));
}

/// What follows from the kind of a process.
#[test]
fn kinds() {
    let karras = GridKind::Karras { rho: 7.0, kappa_max: None, kappa_min: None };
    for (name, sampler, grid, outputs, first_known) in [
        ("adm", "ab2", GridKind::UniformT, Outputs::Heads, true),
        ("ddpm", "ancestral", GridKind::UniformT, Outputs::Target, false),
        ("ddpm-x0", "ancestral", GridKind::UniformT, Outputs::TargetAndX0, false),
        ("vp", "euler-maruyama", GridKind::UniformT, Outputs::Target, false),
        ("ve", "reverse-diffusion", GridKind::UniformT, Outputs::Target, false),
        ("edm", "heun", karras, Outputs::Target, false),
        ("flow", "ddim", GridKind::UniformT, Outputs::Target, true),
        ("lsgm", "euler-maruyama", GridKind::UniformT, Outputs::MixedTarget, false),
        ("cld", "sscs", GridKind::UniformSqrt, Outputs::Target, false),
    ] {
        let p = process(name);
        assert_eq!((p.sampler(), p.grid(), p.outputs()), (sampler, grid, outputs), "{name}");
        assert_eq!(p.first_step_is_known(), first_known, "{name}");
        let is_cld = name == "cld";
        assert_eq!((p.inputs(), p.estimates_x0(), p.phi_parts()), (if is_cld { 2 } else { 1 }, !is_cld, 1), "{name}");
        assert_eq!(p.extra(), Extra { phi: 0, velocity: is_cld }, "{name}");
        assert_eq!((p.needs_latents(), p.adm().is_some()), (name == "lsgm", name == "adm"));
        assert_eq!(p.gaussian().map(|g| g.name()), (!is_cld).then_some(name));
        for blend in Blend::ALL {
            let allowed = match outputs {
                Outputs::Heads => true,
                Outputs::TargetAndX0 => matches!(blend.name(), "heads" | "phi" | "eps"),
                _ => blend.name() == "heads",
            };
            assert_eq!(p.blends(blend), allowed, "{name} {blend:?}");
        }
        if name != "edm" {
            assert_eq!(p.time_density(0.3), 1.0, "{name}");
        }
    }
    assert_eq!(Process::all().len(), NAMES.len());
    for (attenuation, parts, known) in
        [("linear", 2, true), ("cubic", 4, true), ("exponential", 2, true), ("sine", 2, false)]
    {
        let p = Process::from(Adm::new(Attenuation::parse(attenuation).unwrap(), NoiseScale::Sqrt));
        assert_eq!((p.phi_parts(), p.extra().phi, p.first_step_is_known()), (parts, parts - 1, known), "{attenuation}");
        assert!(p.gaussian().is_none());
    }
}

/// EDM's density is that of its times: the probability of a normal number is that of its time.
#[test]
fn times_of_edm() {
    let edm = Edm { log_mean: -0.7, log_std: 0.8, sigma_max: 20.0, ..Edm::default() };
    for z in [-2.0, -0.3, 0.0, 1.1] {
        let slope = (edm.training_time(0.5, z + 1e-6) - edm.training_time(0.5, z - 1e-6)) / 2e-6;
        let normal = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let density = edm.time_density(edm.training_time(0.5, z)) * slope;
        assert!((density / normal - 1.0).abs() < 1e-8, "{z}: {density} {normal}");
    }
}

/// Options without a meaning, and the keys that messages name.
#[test]
fn problems() {
    let keys = |p: Process| p.validate().into_iter().map(|problem| problem.key).collect::<Vec<_>>();
    for name in NAMES {
        assert!(process(name).validate().is_empty(), "{name}");
    }
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(
            keys(Process::Vp(Vp { beta_max: bad, ..Vp::default() })).last().unwrap(),
            if bad > 0.0 || bad.is_nan() { "beta_max" } else { "beta_min" }
        );
        assert!(keys(Process::Ve(Ve { sigma_max: bad, ..Ve::default() })).contains(&"sigma_max".to_string()));
        for (edm, key) in [
            (Edm { sigma_data: bad, ..Edm::default() }, "sigma_data"),
            (Edm { log_std: bad, ..Edm::default() }, "log_std"),
            (Edm { sigma_min: bad, ..Edm::default() }, "sigma_min"),
        ] {
            assert!(keys(Process::Edm(edm)).contains(&key.to_string()), "{bad} {key}");
        }
        for (cld, key) in [
            (Cld { inverse_mass: bad, ..Cld::default() }, "inverse_mass"),
            (Cld { beta: bad, ..Cld::default() }, "beta"),
            (Cld { gamma: bad, ..Cld::default() }, "gamma"),
        ] {
            assert_eq!(keys(Process::Cld(cld)), [key]);
        }
    }
    for (log_mean, wrong) in [(-50.0, 0), (50.0, 0), (-50.1, 1), (50.1, 1), (f64::NAN, 1)] {
        assert_eq!(keys(Process::Edm(Edm { log_mean, ..Edm::default() })).len(), wrong, "{log_mean}");
    }
    // A smallest value that is not below the largest.
    for (low, high, wrong) in [(1.0, 2.0, 0), (2.0, 2.0, 1), (3.0, 2.0, 1)] {
        assert_eq!(keys(Process::Vp(Vp { beta_min: low, beta_max: high })).len(), wrong);
        assert_eq!(keys(Process::Ve(Ve { sigma_min: low, sigma_max: high })).len(), wrong);
        assert_eq!(keys(Process::Lsgm(Vp { beta_min: low, beta_max: high })).len(), wrong);
    }
    for (t_min, wrong) in [(0.5, 0), (0.0, 1), (1.0, 1), (-0.1, 1), (f64::NAN, 1)] {
        assert_eq!(keys(Adm { t_min, ..Adm::default() }.into()).len(), wrong, "{t_min}");
    }
    let velocity = |attenuation| Adm { precond: Precond::Velocity, ..Adm::new(attenuation, NoiseScale::Sqrt) };
    assert!(keys(velocity(Attenuation::Constant).into()).is_empty());
    assert_eq!(keys(velocity(Attenuation::Linear).into()), ["precond.kind"]);
    let linear = Adm::new(Attenuation::Linear, NoiseScale::Sqrt);
    assert!(keys(linear.into()).is_empty());
    assert_eq!(keys(Adm { precond: Precond::Optimal { sigma_data: 0.0 }, ..linear }.into()), ["precond.sigma_data"]);
    assert!(Flow {}.validate().is_empty());
}
