//! The linear multistep sampler of k-diffusion (§9): Adams–Bashforth in κ = σ/α for y = x/α, for which dy = eps dκ.
use super::{GaussianProblem, Hooks, observe, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::GaussianFn;
use crossfade_math::solver::adams_bashforth;

/// Values of eps in the polynomial that is integrated over a step.
const VALUES: usize = 4;

/// y_s = y_t + Σ_j c_j eps_{n−j}, where c_j is the integral over the step of the j-th Lagrange polynomial in κ. The first
/// steps have fewer values. Because Σ c_j = κ_s − κ_t, this is the step of DDIM plus Σ_{j≥1} c_j (eps_{n−j} − eps_n), which is also
/// defined where α_t = 0 and κ is infinite; eps from there is in no later polynomial.
pub(crate) fn lms<F: Field>(p: &GaussianProblem<F>, times: &[f64], mut x: F, hooks: &mut Hooks<F>) -> Result<F> {
    // eps and κ of the steps so far, the newest first.
    let (mut values, mut nodes): (Vec<F>, Vec<f64>) = (vec![], vec![]);
    for (n, t, s) in steps(times) {
        let prediction = observe(p, hooks, n, &x, t)?;
        let (alpha, sigma) = (p.process.alpha(s), p.process.sigma(s));
        let ddim = F::lincomb(&[(alpha.into(), &prediction.x0), (sigma.into(), &prediction.eps)]);
        if !p.process.ratio(t).is_finite() {
            x = ddim;
            continue;
        }
        values.insert(0, prediction.eps);
        nodes.insert(0, p.process.ratio(t));
        values.truncate(VALUES);
        nodes.truncate(VALUES);
        let weights = adams_bashforth(&nodes, p.process.ratio(s));
        let mut terms = vec![(1.0.into(), &ddim)];
        let correction: f64 = weights[1..].iter().sum();
        terms.push(((-alpha * correction).into(), &values[0]));
        terms.extend(weights.iter().zip(&values).skip(1).map(|(c, eps)| ((alpha * c).into(), eps)));
        x = F::lincomb(&terms);
    }
    Ok(x)
}
