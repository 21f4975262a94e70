//! Properties that every registered attenuation, noise scale, preconditioner, weight, grid and blend must have (§13).
#![allow(non_snake_case)]
use crossfade_math::*;
use proptest::prelude::*;

fn processes() -> impl Iterator<Item = Adm> {
    Attenuation::ALL.iter().flat_map(|&attenuation| {
        (NoiseScale::ALL.iter())
            .flat_map(move |&noise| Draw::ALL.iter().map(move |&draw| Adm { draw, ..Adm::new(attenuation, noise) }))
    })
}

/// |a − b| within `tolerance` of their size.
#[track_caller]
fn close(a: f64, b: f64, tolerance: f64, what: impl std::fmt::Debug) {
    assert!((a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs())), "{what:?}: {a} is not {b}");
}

/// x_0, as many standard normals as the attenuation with the most drawn parts needs, and eps; |x_0| stays within the sine's
/// reach.
fn inputs() -> impl Strategy<Value = (f64, Vec<f64>, f64)> {
    let most = processes().map(|p| p.drawn_parts()).max().unwrap_or(0);
    (-0.95..0.95f64, prop::collection::vec(-2.5..2.5f64, most), -3.0..3.0f64)
}

proptest! {
    #[test]
    fn H_is_the_integral_of_h((x0, z, _) in inputs(), t in 0.01..0.99f64) {
        for p in processes() {
            let phi = p.phi(&x0, &z[..p.drawn_parts()]);
            prop_assert_eq!(phi.len(), p.attenuation.parts());
            prop_assert_eq!(p.H(&phi, 0.0), 0.0);
            let d = 1e-5;
            let slope = (p.H(&phi, t + d) - p.H(&phi, t - d)) / (2.0 * d);
            close(slope, p.attenuation.h(&phi, &t.into()), 1e-7, p);
            let whole: f64 = gauss_legendre(24).iter()
                .map(|q| 0.5 * q.weight * p.attenuation.h(&phi, &(0.5 * (q.value + 1.0)).into())).sum();
            close(whole, p.H(&phi, 1.0), 1e-10, p);
        }
    }

    #[test]
    fn the_picture_fades_to_zero((x0, z, _) in inputs(), t in 0.0..1.0f64) {
        for p in processes() {
            let phi = p.phi(&x0, &z[..p.drawn_parts()]);
            close(x0 + p.H(&phi, 1.0), 0.0, 1e-12, p);
            close(p.attenuation.mean(&x0, &phi, &t.into()), x0 + p.H(&phi, t), 1e-12, p);
        }
    }

    /// What the laboratory's oracle relies on where an attenuation says that it is affine.
    #[test]
    fn affine_attenuations_are_affine((x0, z, _) in inputs(), t in 0.0..1.0f64) {
        for p in processes().filter(|p| p.attenuation.is_affine()) {
            let z = &z[..p.drawn_parts()];
            let (phi, at_zero) = (p.phi(&x0, z), p.phi(&0.0, z));
            let last = phi.len() - 1;
            prop_assert_eq!(&phi[..last], &at_zero[..last]);
            close(phi[last], at_zero[last] - x0, 1e-12, p);
            let mean = |x0: &f64, phi: &[f64]| p.attenuation.mean(x0, phi, &t.into());
            close(mean(&x0, &phi), (1.0 - t) * x0 + mean(&0.0, &at_zero), 1e-12, p);
        }
    }

    #[test]
    fn the_bridge_ends_at_x0_and_keeps_the_marginals((x0, z, eps) in inputs(), t in 0.02..1.0f64, r in 0.0..0.99f64) {
        for p in processes() {
            let phi = p.phi(&x0, &z[..p.drawn_parts()]);
            let x_t = p.x_t(&x0, &phi, &eps, &t.into());
            close(p.u_tilde(&x_t, &phi, &eps, t, 0.0), x0, 1e-10, p);
            prop_assert_eq!(p.sigma_tilde(t, 0.0), 0.0);
            // q(x_s|x_0) through x_t has the mean x_0 + H_s and the variance σ_s².
            let s = r * t;
            let (var_t, var_s) = (p.noise.variance(t), p.noise.variance(s));
            close(p.u_tilde(&x_t, &phi, &eps, t, s), x0 + p.H(&phi, s) + var_s / var_t.sqrt() * eps, 1e-10, p);
            close(var_s * var_s / var_t + p.sigma_tilde(t, s).powi(2), var_s, 1e-12, p);
            // η = 1 is the bridge.
            let truth = Estimate { x0, phi: phi.clone(), eps, anchor: x0 };
            let x_s = p.ddim(&truth, None, 1.0, t, s);
            close(x_s, p.u_tilde(&x_t, &phi, &eps, t, s), 1e-9, p);
        }
    }

    #[test]
    fn alg2_equals_its_data_form((x0, _, eps) in inputs(), t in 0.02..1.0f64, r in 0.0..0.99f64) {
        let p = Adm::default();
        let (phi, s) = (p.phi(&x0, &[]), r * t);
        let x_t = p.x_t(&x0, &phi, &eps, &t.into());
        close(p.u_tilde(&x_t, &phi, &eps, t, s), s / t * x_t + (1.0 - s / t) * x0, 1e-12, (t, s));
        close(p.sigma_tilde(t, s), (s * (t - s) / t).sqrt(), 1e-12, (t, s));
        // σ = t, §1.5: mean x_t − C s' − ((2 s' t − s'²)/t) eps with s' the step length.
        let p = Adm::new(Attenuation::Constant, NoiseScale::Linear);
        let (x_t, step) = (p.x_t(&x0, &phi, &eps, &t.into()), t - s);
        let mean = x_t - phi[0] * step - (2.0 * step * t - step * step) / t * eps;
        close(p.u_tilde(&x_t, &phi, &eps, t, s), mean, 1e-12, (t, s));
        close(p.sigma_tilde(t, s), (2.0 * step * t - step * step).sqrt() * s / t, 1e-9, (t, s));
    }

    #[test]
    fn both_raw_targets_are_v((x0, _, eps) in inputs(), t in 1e-4..0.9999f64, sigma_data in 0.3..1.5f64) {
        for &noise in NoiseScale::ALL {
            let p = Adm::new(Attenuation::Constant, noise);
            let (phi, sigma) = (p.phi(&x0, &[]), noise.sigma(t));
            let x_t = p.x_t(&x0, &phi, &eps, &t.into());
            let c = Precond::Optimal { sigma_data }.scalings(&p, t);
            let D = (sigma_data * (1.0 - t)).powi(2) + sigma * sigma;
            let v = (sigma_data * (1.0 - t) * eps - sigma * x0 / sigma_data) / D.sqrt();
            close((phi[0] - c.phi[0].skip * x_t) / c.phi[0].out, v, 1e-6, (noise, t));
            close((eps - c.eps.skip * x_t) / c.eps.out, v, 1e-6, (noise, t));
            // λ c_out² = 1, and the single decoder's eps is the two-head eps when F1 = F2.
            let (l_phi, l_eps) = Weighting::Adaptive.lambda(&p, sigma_data, t, 0.0);
            close(l_phi * c.phi[0].out.powi(2), 1.0, 1e-12, t);
            close(l_eps * c.eps.out.powi(2), 1.0, 1e-12, t);
            let F = 0.37;
            let (phi_hat, eps_hat) = (c.phi[0].skip * x_t + c.phi[0].out * F, c.eps.skip * x_t + c.eps.out * F);
            close((x_t + (1.0 - t) * phi_hat) / sigma, eps_hat, 1e-9, t);
        }
    }

    /// With velocity scalings both raw targets are eps − x_0, and the network sees what a rectified flow sees at that share of noise.
    #[test]
    fn velocity_is_the_flow_on_every_noise_scale((x0, _, eps) in inputs(), t in 1e-4..0.9999f64) {
        for &noise in NoiseScale::ALL {
            let p = Adm { precond: Precond::Velocity, time_input: process::TimeInput::NoiseShare, ..Adm::new(Attenuation::Constant, noise) };
            let (phi, x_t) = (p.phi(&x0, &[]), p.x_t(&x0, &p.phi(&x0, &[]), &eps, &t.into()));
            let c = p.scalings(t);
            close((phi[0] - c.phi[0].skip * x_t) / c.phi[0].out, eps - x0, 1e-6, (noise, t));
            close((eps - c.eps.skip * x_t) / c.eps.out, eps - x0, 1e-6, (noise, t));
            close(p.precond.raw_eps_factor(&c), (1.0 - c.eps.skip * noise.sigma(t)) / c.eps.out, 1e-9, t);
            let flow = Process::parse("flow").unwrap();
            let (ours, share) = (p.input(t), p.input(t).noise / 999.0);
            let theirs = flow.input(share);
            close(ours.noise, theirs.noise, 1e-9, t);
            let on_line = flow.gaussian().unwrap().x_t(&x0, &eps, &share.into());
            close(ours.scale * x_t, theirs.scale * on_line, 1e-9, t);
        }
    }

    /// λ of the evidence lower bound: the divergence between two bridges whose phi or eps differs, over a short step.
    #[test]
    fn elbo_weights_are_divergences_of_short_steps((x0, _, eps) in inputs(), t in 0.05..0.95f64) {
        let (step, delta) = (1e-6, 0.1);
        for &noise in NoiseScale::ALL {
            let p = Adm::new(Attenuation::Constant, noise);
            let phi = p.phi(&x0, &[]);
            let x_t = p.x_t(&x0, &phi, &eps, &t.into());
            let mean = |phi: f64, eps: f64| p.u_tilde(&x_t, &[phi], &eps, t, t - step);
            let divergence = |other: f64| {
                let difference = other - mean(phi[0], eps);
                difference * difference / (2.0 * p.sigma_tilde(t, t - step).powi(2) * step)
            };
            let (of_phi, of_eps) = Weighting::Elbo.lambda(&p, 1.0, t, 0.0);
            close(divergence(mean(phi[0] + delta, eps)) / (0.5 * delta * delta * of_phi), 1.0, 1e-3, (noise, t));
            close(divergence(mean(phi[0], eps + delta)) / (0.5 * delta * delta * of_eps), 1.0, 1e-3, (noise, t));
        }
    }

    #[test]
    fn scalings_are_the_specified_ones(t in 1e-4..1.0f64) {
        let c = Precond::default().scalings(&Adm::default(), t);
        let D = t * t - t + 1.0;
        close(c.c_in, 1.0 / D.sqrt(), 1e-12, t);
        close(c.phi[0].skip, (t - 1.0) / D, 1e-12, t);
        close(c.phi[0].out, (t / D).sqrt(), 1e-9, t);
        close(c.eps.skip, t.sqrt() / D, 1e-12, t);
        close(c.eps.out, (1.0 - t) / D.sqrt(), 1e-9, t);
        // §1.3, linear attenuation.
        for (draw, var_a) in [(Draw::Normal, 1.0), (Draw::Clamped, Draw::Clamped.variance())] {
            let sd: f64 = 0.7;
            let p = Adm { draw, ..Adm::new(Attenuation::Linear, NoiseScale::Sqrt) };
            let c = Precond::Optimal { sigma_data: sd }.scalings(&p, t);
            let D = (sd * (1.0 - t)).powi(2) + var_a * (t * (1.0 - t)).powi(2) / 4.0 + t;
            close(c.phi[0].skip, -var_a * t * (1.0 - t) / (2.0 * D), 1e-12, draw);
            close(c.phi[1].skip, (1.0 - t) * (var_a * t / 4.0 - sd * sd) / D, 1e-12, draw);
            close(c.phi[0].out.powi(2), var_a - c.phi[0].skip.powi(2) * D, 1e-10, draw);
            close(c.phi[1].out.powi(2), sd * sd + var_a / 4.0 - c.phi[1].skip.powi(2) * D, 1e-10, draw);
        }
    }

    #[test]
    fn true_heads_give_back_x0_under_every_blend((x0, z, eps) in inputs(), t in 0.02..0.98f64) {
        for p in processes() {
            let phi = p.phi(&x0, &z[..p.drawn_parts()]);
            let x_t = p.x_t(&x0, &phi, &eps, &t.into());
            for blend in Blend::ALL.iter().cloned().chain([Blend::Table(vec![0.2, 0.9, 0.4])]) {
                let e = blend.estimate(&p, &x_t, &phi, &eps, t, Some(1.0));
                close(e.x0, x0, 1e-8, (&p, &blend));
                close(e.anchor, x0, 1e-8, (&p, &blend));
                close(e.eps, eps, 1e-6, (&p, &blend));
                close(p.H(&e.phi, 0.4), p.H(&phi, 0.4), 1e-8, (&p, &blend));
            }
        }
    }

    #[test]
    fn grids_descend_from_one_to_zero(n in 1..200usize, final_t in prop::option::of(1e-6..1e-2f64)) {
        for kind in GridKind::all_in_time() {
            let plain = Grid { kind: kind.clone(), final_t: None }.times(n).unwrap();
            prop_assert_eq!(plain.len(), n + 1);
            let start = if kind == GridKind::DdimQuadratic { 0.801 } else { 1.0 };
            prop_assert_eq!((plain[0], plain[n]), (start, 0.0));
            prop_assert!(plain.windows(2).all(|w| w[0] > w[1]));
            let grid = Grid { kind, final_t }.times(n).unwrap();
            prop_assert!(grid.len() == n + 1 || grid[n] == final_t.unwrap());
        }
    }

    #[test]
    fn weights_are_positive_and_finite(t in 1e-4..0.9999f64) {
        for p in processes() {
            for weighting in Weighting::ALL {
                let (a, b) = weighting.lambda(&p, 1.0, t, 1e-4);
                prop_assert!(a > 0.0 && b > 0.0 && a.is_finite() && b.is_finite(), "{p:?} {weighting:?}");
            }
        }
    }
}

/// Normal deviates for the Monte Carlo checks.
struct Normals(u64);

impl Normals {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
    fn next(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Simulates the forward process as Brownian motion in σ² and regresses x_s on x_t: slope and residual must be the bridge's.
#[test]
fn bridge_agrees_with_monte_carlo_for_all_functions() {
    let mut normals = Normals(1);
    for p in processes() {
        let (x0, t, s) = (0.4, 0.7, 0.25);
        let z: Vec<f64> = (0..p.drawn_parts()).map(|_| normals.next()).collect();
        let phi = p.phi(&x0, &z);
        let (var_t, var_s) = (p.noise.variance(t), p.noise.variance(s));
        const N: usize = 200_000;
        let (mut bias, mut spread) = (0.0, 0.0);
        for _ in 0..N {
            let w_s = var_s.sqrt() * normals.next();
            let w_t = w_s + (var_t - var_s).sqrt() * normals.next();
            let (x_s, x_t) = (x0 + p.H(&phi, s) + w_s, x0 + p.H(&phi, t) + w_t);
            let eps = w_t / var_t.sqrt();
            let error = x_s - p.u_tilde(&x_t, &phi, &eps, t, s);
            bias += error / N as f64;
            // The residual must not depend on x_t either.
            spread += error * error / N as f64;
            assert!(error.is_finite());
        }
        assert!(bias.abs() < 5.0 * p.sigma_tilde(t, s) / (N as f64).sqrt(), "{p:?}: bias {bias}");
        close(spread, p.sigma_tilde(t, s).powi(2), 0.01, p);
    }
}

/// The moments behind the preconditioner, against samples of the process itself.
#[test]
fn moments_agree_with_monte_carlo() {
    let mut normals = Normals(2);
    for p in processes() {
        // The sine saturates beyond its reach; its moments must hold there too.
        let (sigma_data, t) = (0.5, 0.35);
        const N: usize = 200_000;
        let parts = p.attenuation.parts();
        let mut rows = Vec::with_capacity(N);
        for _ in 0..N {
            let x0 = sigma_data * normals.next();
            let z: Vec<f64> = (0..p.drawn_parts()).map(|_| normals.next()).collect();
            let phi = p.phi(&x0, &z);
            let mean = p.attenuation.mean(&x0, &phi, &t.into());
            rows.push((mean, phi));
        }
        type Row = (f64, Vec<f64>);
        let mean = |f: &dyn Fn(&Row) -> f64| rows.iter().map(f).sum::<f64>() / N as f64;
        let m = p.attenuation.moments(sigma_data, p.draw, t);
        let e = mean(&|r| r.0);
        close(m.signal, mean(&|r| (r.0 - e).powi(2)), 0.01, p);
        for i in 0..parts {
            let a = mean(&|r| r.1[i]);
            let tolerance = 0.02 * m.phi[i].var.max(1.0);
            close(m.phi[i].var, mean(&|r| (r.1[i] - a).powi(2)), tolerance, (p, i));
            close(m.phi[i].cov, mean(&|r| (r.1[i] - a) * (r.0 - e)), tolerance, (p, i));
        }
    }
}

/// Unit variance in and out: the raw targets of every attenuation have variance 1 under the optimal preconditioner.
#[test]
fn optimal_scalings_conserve_variance() {
    for p in processes() {
        for t in [1e-4, 0.1, 0.5, 0.9, 1.0] {
            let c = Precond::Optimal { sigma_data: 0.5 }.scalings(&p, t);
            let m = p.attenuation.moments(0.5, p.draw, t);
            let D = m.signal + p.noise.variance(t);
            close(c.c_in * c.c_in * D, 1.0, 1e-12, p);
            for (scaling, part) in c.phi.iter().zip(&m.phi) {
                close(scaling.out.powi(2) + D * scaling.skip.powi(2), part.var, 1e-9, (p, t));
            }
            close(c.eps.out.powi(2) + D * c.eps.skip.powi(2), 1.0, 1e-12, (p, t));
        }
    }
}

#[test]
fn names_lead_back_to_their_entries() {
    macro_rules! check {
        ($($Enum:ident: $all:expr),*) => {
            $(for entry in $all {
                assert_eq!(&$Enum::parse(entry.name()).unwrap(), entry);
            })*
        };
    }
    check!(
        Attenuation: Attenuation::ALL, NoiseScale: NoiseScale::ALL, Draw: Draw::ALL, Weighting: Weighting::ALL,
        LossNorm: LossNorm::ALL, Blend: Blend::ALL, Precond: &Precond::all(), GridKind: &GridKind::all()
    );
}

#[test]
fn grids_are_read_from_the_command_line() {
    assert_eq!(GridKind::from_argument("quadratic").unwrap(), GridKind::DdimQuadratic);
    assert!(GridKind::from_argument("unifrm-t").unwrap_err().contains("did you mean 'uniform-t'?"));
    let explicit = GridKind::from_argument("explicit:1, 0.5").unwrap();
    assert_eq!(explicit, GridKind::Explicit { times: vec![1.0, 0.5] });
    let explicit = Grid { kind: GridKind::Explicit { times: vec![0.5, 0.6] }, final_t: None };
    assert!(explicit.times(2).unwrap_err().contains("descend"));
}

mod gaussian {
    use crossfade_math::Coef;
    use crossfade_math::process::{BetaSchedule, Ddpm, Ve};
    use crossfade_math::{Gaussian, GaussianFn, Process, ProcessFn};
    use crossfade_math::{Grid, GridKind};

    const TIMES: [f64; 6] = [0.0104, 0.0995, 0.3003, 0.5005, 0.8013, 0.9996];

    /// f and g² are what α and σ say, by central differences; inside the cells of the discrete chain.
    #[test]
    fn rates_are_the_derivatives() {
        for process in Gaussian::all() {
            for t in TIMES {
                let h = 1e-7;
                let slope = |f: &dyn Fn(f64) -> f64| (f(t + h) - f(t - h)) / (2.0 * h);
                let f = slope(&|t| process.alpha(t).ln());
                let g2 = slope(&|t| process.sigma(t).powi(2)) - 2.0 * f * process.sigma(t).powi(2);
                let (ours_f, ours_g2) = process.rates(t);
                assert!((ours_f - f).abs() < 1e-4 * (1.0 + f.abs()), "{process:?} at {t}: {ours_f} {f}");
                assert!((ours_g2 - g2).abs() < 1e-4 * (1.0 + g2.abs()), "{process:?} at {t}: {ours_g2} {g2}");
            }
        }
    }

    /// The raw target with x_t gives x_0 and eps back.
    #[test]
    fn a_perfect_network_gives_both_back() {
        for process in Gaussian::all() {
            for t in TIMES {
                let (x0, eps, at) = (0.37, -1.21, Coef::Same(t));
                let x_t = process.x_t(&x0, &eps, &at);
                let pair = process.prediction(&x_t, &process.raw_target(&x0, &eps, &at), &at);
                assert!((pair.x0 - x0).abs() < 1e-9 && (pair.eps - eps).abs() < 1e-9, "{process:?} at {t}: {pair:?}");
                assert!(process.process().input(t).noise.is_finite() && process.process().input(t).scale > 0.0);
            }
        }
    }

    #[test]
    fn grids_descend_and_times_of_ratios_are_inverse() {
        for process in Gaussian::all() {
            for kind in GridKind::all() {
                let start = if kind == GridKind::DdimQuadratic { 0.801 } else { 1.0 };
                let grid = Grid { kind, final_t: None };
                for n in [1, 2, 5, 10, 100] {
                    let times = grid.times_on(&process, n).unwrap();
                    assert_eq!((times.len(), times[0], times[n]), (n + 1, start, 0.0), "{process:?} {grid:?}");
                }
                assert!(grid.times_on(&process, 0).is_err());
            }
            for t in TIMES {
                assert!((process.time_of_ratio(process.ratio(t)) - t).abs() < 1e-9, "{process:?} {t}");
            }
        }
        let discrete = Process::Ddpm(Ddpm::default()).gaussian().unwrap();
        for kind in [GridKind::UniformT, GridKind::UniformSqrt] {
            let grid = Grid { kind, final_t: None };
            assert!(grid.times_on(&discrete, 1001).unwrap_err().contains("1000 times"));
            let all = grid.times_on(&discrete, 1000).unwrap();
            assert!(all.windows(2).all(|w| (w[0] - w[1] - 1e-3).abs() < 1e-12));
        }
        assert!(Grid { kind: GridKind::LOG_SNR, final_t: None }.times(5).is_err());
        // The chains end where the published ones do.
        let latent = Process::Ddpm(Ddpm { schedule: BetaSchedule::ScaledLinear }).gaussian().unwrap();
        for (process, alpha_bar) in [(discrete, 4.0358e-5), (latent, 1.42304e-4)] {
            let found = process.alpha(1.0).powi(2);
            assert!((found / alpha_bar - 1.0).abs() < 1e-4, "{process:?}: {found}");
        }
    }

    /// Names lead back to their processes, training times lie inside, and wrong options are named.
    #[test]
    fn every_process_is_complete() {
        for process in Process::all() {
            assert!(process.validate().is_empty(), "{process:?}");
            for (u, z) in [(0.0, -4.0), (0.3, 0.0), (1.0 - 1e-16, 4.0)] {
                let t = process.training_time(u, z);
                // EDM's law has no upper end; the rest stay in (0, 1].
                assert!(t >= 0.0 && (t <= 1.0 || process.name() == "edm"), "{process:?}: {t}");
                assert!(process.input(t.max(1e-6)).noise.is_finite());
            }
        }
        let bad = Process::Ve(Ve { sigma_min: 3.0, sigma_max: -1.0 }).validate();
        assert!(
            bad.len() == 2 && bad.iter().any(|p| p.key == "sigma_max" && p.message.starts_with("must be positive")),
            "{bad:?}"
        );
    }
}

/// At t = 1 the ε head says nothing of x_0 (§9): alone it gives zero; blended, the φ head speaks.
#[test]
fn at_the_start_eps_alone_gives_zero() {
    for p in processes() {
        let normals: Vec<f64> = (0..p.drawn_parts()).map(|part| 0.3 - 0.5 * part as f64).collect();
        let phi = p.phi(&0.6, &normals);
        let at = |blend: Blend| blend.estimate(&p, &0.9, &phi, &0.9, 1.0, None).x0;
        assert_eq!(at(Blend::Eps), 0.0, "{p:?}");
        assert_eq!(at(Blend::Average), at(Blend::Phi), "{p:?}");
    }
}

mod times {
    use crossfade_math::{Adm, Process, ProcessFn, TimeDistribution, TrainingTimes};

    /// Evenly spread quantiles of both numbers that a time is drawn from.
    fn quantiles(n: usize) -> impl Iterator<Item = (f64, f64)> {
        // The normal quantile by bisection of its distribution function.
        let cdf = |z: f64| 0.5 * (1.0 + libm::erf(z / std::f64::consts::SQRT_2));
        (0..n).map(move |i| {
            let u = (i as f64 + 0.5) / n as f64;
            let (mut low, mut high) = (-8.0, 8.0);
            for _ in 0..60 {
                let mid = 0.5 * (low + high);
                if cdf(mid) < u { low = mid } else { high = mid }
            }
            (u, 0.5 * (low + high))
        })
    }

    fn continuous() -> impl Iterator<Item = Process> {
        Process::all()
            .into_iter()
            .filter(|p| p.gaussian().is_none_or(|g| crossfade_math::GaussianFn::tick(&g).is_none()))
    }

    /// The density is that of the drawn times: equal shares below any time.
    #[test]
    fn densities_belong_to_the_draws() {
        let n = 4000;
        for process in continuous() {
            for distribution in TimeDistribution::all().into_iter().filter(|d| *d != TimeDistribution::Own) {
                let times = TrainingTimes { distribution, keep_objective: false };
                if !times.validate(&process).is_empty() {
                    continue;
                }
                let drawn: Vec<f64> = quantiles(n).map(|(u, z)| times.draw(&process, u, z).t).collect();
                for (from, to) in [(0.05, 0.2), (0.2, 0.5), (0.5, 0.9)] {
                    let share = drawn.iter().filter(|t| (from..to).contains(*t)).count() as f64 / n as f64;
                    let steps = 2000;
                    let width = (to - from) / f64::from(steps);
                    let middle = |i: i32| from + width * (f64::from(i) + 0.5);
                    let integral: f64 = (0..steps).map(|i| width * times.density(&process, middle(i)).unwrap()).sum();
                    assert!((share - integral).abs() < 2e-3, "{process:?} {distribution:?}: {share} {integral}");
                }
            }
        }
    }

    /// With the objective kept, a weighted mean over the drawn times is the mean over the process's own.
    #[test]
    fn importance_weights_keep_the_objective() {
        let n = 20_000;
        // A loss that vanishes at both ends, where weights are limited and distributions hardly draw.
        let loss = |t: f64| if (0.05..0.95).contains(&t) { (3.0 * t).sin() } else { 0.0 };
        for process in [Process::from(Adm::default()), Process::parse("flow").unwrap(), Process::parse("vp").unwrap()] {
            let own: f64 = quantiles(n).map(|(u, z)| loss(process.training_time(u, z))).sum::<f64>() / n as f64;
            for distribution in [
                TimeDistribution::Power { exponent: 2.0 },
                TimeDistribution::LogitNormal { mean: 0.0, std: 1.0 },
                TimeDistribution::UniformShare { shift: 1.5 },
            ] {
                let times = TrainingTimes { distribution, keep_objective: true };
                let drawn = quantiles(n).map(|(u, z)| times.draw(&process, u, z));
                let mean = drawn.map(|d| d.weight * loss(d.t)).sum::<f64>() / n as f64;
                assert!((mean - own).abs() < 2e-3, "{process:?} {distribution:?}: {mean} {own}");
            }
        }
    }

    /// Every way to read the time tells any two times apart and stays finite to the ends.
    #[test]
    fn time_inputs_rise_with_the_time() {
        use crossfade_math::process::TimeInput;
        for &time_input in TimeInput::ALL {
            for &noise in crossfade_math::NoiseScale::ALL {
                let process = Process::from(Adm { noise, time_input, ..Adm::default() });
                let read: Vec<f64> = [1e-4, 0.01, 0.3, 0.7, 0.99, 1.0].map(|t| process.input(t).noise).to_vec();
                assert!(read.iter().all(|v| v.is_finite()) && read.windows(2).all(|w| w[0] < w[1]), "{read:?}");
                let (small, input) = (process.log_time_input(0.3), process.input(0.3));
                let log = time_input == TimeInput::Log;
                assert_eq!(small.noise, if log { 0.3f64.ln() } else { input.noise / 999.0 });
                assert!(small.scale == input.scale && (log || (0.0..=1.0).contains(&small.noise)));
            }
        }
    }

    #[test]
    fn the_default_is_the_process_s_own() {
        for process in Process::all() {
            let drawn = TrainingTimes::default().draw(&process, 0.3, -0.4);
            assert_eq!((drawn.t, drawn.weight), (process.training_time(0.3, -0.4), 1.0));
            assert!(TrainingTimes::default().validate(&process).is_empty());
        }
        let cld = Process::parse("cld").unwrap();
        let times =
            TrainingTimes { distribution: TimeDistribution::parse("log-normal").unwrap(), keep_objective: false };
        assert_eq!(times.validate(&cld)[0].key, "kind");
    }
}
