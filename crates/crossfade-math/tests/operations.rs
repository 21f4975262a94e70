//! Rules of integration, the operations on fields, the sine and Langevin diffusion: each against its definition.
#![allow(clippy::unwrap_used, non_snake_case)]
use crossfade_math::process::{Cld, Cov2};
use crossfade_math::solver::{ab2, adams_bashforth, adams_moulton, bridge_J1, data_J1, midpoint};
use crossfade_math::*;

#[track_caller]
fn close(a: f64, b: f64, what: impl std::fmt::Debug) {
    assert!((a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs())), "{what:?}: {a} is not {b}");
}

/// Rules with known nodes, exactness, and the empty cases.
#[test]
fn rules_of_integration() {
    let rule = |n: usize| gauss_legendre(n).into_iter().map(|q| (q.value, q.weight)).collect::<Vec<_>>();
    for (n, expected) in [
        (1, vec![(0.0, 2.0)]),
        (2, vec![(1.0 / 3f64.sqrt(), 1.0), (-1.0 / 3f64.sqrt(), 1.0)]),
        (3, vec![(0.6f64.sqrt(), 5.0 / 9.0), (0.0, 8.0 / 9.0), (-0.6f64.sqrt(), 5.0 / 9.0)]),
    ] {
        let found = rule(n);
        assert_eq!(found.len(), n);
        found
            .iter()
            .zip(expected)
            .for_each(|(a, b)| assert!((a.0 - b.0).abs() < 1e-14 && (a.1 - b.1).abs() < 1e-13, "{found:?}"));
    }
    for n in 1..12 {
        for power in 0..2 * n as i32 {
            let sum: f64 = rule(n).iter().map(|(x, w)| w * x.powi(power)).sum();
            let exact = if power % 2 == 0 { 2.0 / f64::from(power + 1) } else { 0.0 };
            assert!((sum - exact).abs() < 1e-13, "{n} nodes, x^{power}");
        }
    }
    assert!(adams_bashforth(&[], 1.0).is_empty());
    // A line through the value now and the one at a part of the step, integrated over the step.
    let line = |z: f64| 2.0 - 3.0 * z;
    close(0.4 * line(0.0) + midpoint(0.4, 0.1) * (line(0.1) - line(0.0)), 0.8 - 1.5 * 0.16, "midpoint");
    close(0.4 * line(0.0) + ab2(0.4, 0.3) * (line(0.0) - line(-0.3)), 0.8 - 1.5 * 0.16, "ab2");
    assert_eq!(adams_moulton(0.4, None), (0.2, 0.0));
    // The limits at s = 0.
    assert_eq!((bridge_J1(NoiseScale::Sqrt, 0.3, 0.0), data_J1(NoiseScale::Linear, 0.3, 0.0)), (-0.3, -0.3));
    close(data_J1(NoiseScale::Sqrt, 0.3, 0.0), -0.3, "data");
    close(bridge_J1(NoiseScale::Linear, 0.3, 0.0), -0.3, "bridge");
}

#[test]
fn fields_and_coefficients() {
    let (same, each) = (Coef::Same(2.0), Coef::Each(vec![1.0, 3.0]));
    let minus = |a: &Coef, b: &Coef| a.zip(b, |a, b| a - b);
    assert_eq!(minus(&same, &Coef::Same(5.0)), Coef::Same(-3.0));
    assert_eq!(minus(&same, &each), Coef::Each(vec![1.0, -1.0]));
    assert_eq!(minus(&each, &same), Coef::Each(vec![-1.0, 1.0]));
    assert_eq!(minus(&each, &Coef::Each(vec![4.0, 4.0])), Coef::Each(vec![-3.0, -1.0]));
    assert_eq!((same.same(), Coef::Each(vec![7.0]).same(), each.map(|c| -c)), (2.0, 7.0, Coef::Each(vec![-1.0, -3.0])));
    assert!(std::panic::catch_unwind(|| Coef::Each(vec![1.0, 3.0]).same()).is_err());
    let x = 0.5f64;
    assert_eq!((Field::mul(&x, &3.0), Field::div(&x, &2.0), x.scale(4.0)), (1.5, 0.25, 2.0));
    assert_eq!((x.plus(&1.0), x.minus(&2.0), Field::clamp(&x, -0.1, 0.1)), (1.5, -1.5, 0.1));
    close(Field::asin(&x).sin(), 0.5, "asin");
    close(Field::exp(&x), 0.5f64.exp(), "exp");
    for (z, sinc, exprel) in [(0.0, 1.0, 1.0), (1e-9, 1.0, 1.0 + 5e-10), (2.0, 2f64.sin() / 2.0, 2f64.exp_m1() / 2.0)] {
        assert!((Field::sinc(&z) - sinc).abs() < 1e-15 && (Field::exprel(&z) - exprel).abs() < 1e-14, "{z}");
    }
}

/// §1.2: the drawn part of the sine stays in [−1, 1], and images beyond its reach have the nearest angle.
#[test]
fn the_sine_keeps_its_draws() {
    for (drawn, kept) in [(-0.5, -0.5), (0.7, 0.7), (-3.0, -1.0), (3.0, 1.0)] {
        let phi = Attenuation::Sine.solve(&0.3, &[drawn]);
        assert_eq!(phi[0], kept);
        let reach = (0.5 * kept).sin() / (0.5 * kept);
        close(phi[1], -0.5 * kept - (0.3 / reach).asin(), drawn);
        for x0 in [-2.0, 2.0f64] {
            let c = Attenuation::Sine.solve(&x0, &[drawn])[1];
            close(c, -0.5 * kept - x0.signum() * std::f64::consts::FRAC_PI_2, (x0, drawn));
        }
    }
}

/// §9: what CLD starts from, and how its normals make a state.
#[test]
fn langevin() {
    let cld = Cld { inverse_mass: 4.0, beta: 3.0, gamma: 0.04 };
    assert_eq!((cld.mass(), cld.damping(), cld.prior(), cld.integral(0.5)), (0.25, 1.0, (1.0, 0.5), 1.5));
    assert_eq!(Cov2::default().cholesky(), (0.0, 0.0, 0.0));
    assert_eq!(Cov2 { xx: -1e-18, xv: 0.0, vv: 4.0 }.cholesky(), (0.0, 0.0, 2.0));
    let cov = Cov2 { xx: 4.0, xv: 2.0, vv: 3.0 };
    assert_eq!((cov.det(), cov.cholesky()), (8.0, (2.0, 1.0, 2f64.sqrt())));
    assert_eq!(cov.plus(&cov), Cov2 { xx: 8.0, xv: 4.0, vv: 6.0 });
    // m Σ mᵀ by hand.
    assert_eq!(cov.moved(&[[1.0, 2.0], [0.0, -1.0]]), Cov2 { xx: 24.0, xv: -8.0, vv: 3.0 });
    for t in [0.05, 0.4, 0.9] {
        let (cov, [x, v]) = (cld.covariance(t), cld.forward(t));
        assert_eq!([x[0], v[0]], <[f64; 2]>::from(cld.mean(t)));
        close(x[1] * x[1] + x[2] * x[2], cov.xx, t);
        close(x[1] * v[1] + x[2] * v[2], cov.xv, t);
        close(v[1] * v[1] + v[2] * v[2], cov.vv, t);
        close(cld.score_scale(t), (cov.xx / cov.det()).sqrt(), t);
        close(cld.mixing(t) * cld.score_scale(t) * cov.vv, 1.0, t);
        // The published forms on both sides of y = 1.
        let (y, noise) = (4.0 * cld.integral(t), cld.noise(cld.integral(t)));
        let e = (-y).exp();
        close(noise.xx, 1.0 - e * (1.0 + y + 0.5 * y * y), t);
        close(noise.xv, y * y * e / 4.0, t);
        close(noise.vv, 0.25 * (1.0 - e * (1.0 - y + 0.5 * y * y)), t);
    }
    // A state of (x_t, v_t) is one linear map of x_0 and two normals.
    let (process, t) = (Process::Cld(cld), 0.4);
    let state = process.forward(&0.7, &-0.3, &[1.1], &t.into()).state;
    for (found, row) in state.iter().zip(cld.forward(t)) {
        close(*found, row[0] * 0.7 + row[1] * 1.1 + row[2] * -0.3, t);
    }
    assert_eq!(process.raw_target(&0.7, &-0.3, &t.into()), -0.3);
}
