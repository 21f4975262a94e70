//! Samplers for critically damped Langevin diffusion (§9): the state is (x, v), and only v is driven by noise.
use super::{Hooks, Sampler, Setting, State, steps};
use crate::error::Result;
use crossfade_math::Field;
use crossfade_math::process::Cld;
use std::cell::Cell;

/// The interface of a network for these samplers.
pub trait VelocityScore<F> {
    /// ∇_v ln p_t(x, v).
    fn score(&self, x: &F, v: &F, t: f64) -> Result<F>;

    /// Network evaluations that this takes at time t: 2 where the network is guided.
    fn evaluations(&self, _t: f64) -> usize {
        1
    }
}

/// A network and the process that it was trained for.
pub struct CldProblem<'a, F> {
    /// The network, or an oracle.
    pub net: &'a dyn VelocityScore<F>,
    /// The process that it was trained for.
    pub cld: Cld,
    evaluations: Cell<usize>,
}

impl<'a, F: Field> CldProblem<'a, F> {
    /// The problem of `net` under `cld`.
    pub fn new(net: &'a dyn VelocityScore<F>, cld: Cld) -> Self {
        Self { net, cld, evaluations: Cell::new(0) }
    }

    /// The score that the network predicts.
    fn score(&self, x: &F, v: &F, t: f64) -> Result<F> {
        self.evaluations.set(self.evaluations.get() + self.net.evaluations(t));
        self.net.score(x, v, t)
    }
}

impl<F: Field> Setting<F> for CldProblem<'_, F> {
    /// Standard normals for x and v, which `solve` scales to the prior.
    type Start = (F, F);
    fn kind(&self) -> String {
        "cld".into()
    }
    fn evaluations(&self) -> &Cell<usize> {
        &self.evaluations
    }
    fn solve(&self, sampler: Sampler, times: &[f64], (x, v): (F, F), hooks: &mut Hooks<F>) -> Option<Result<F>> {
        let (sx, sv) = self.cld.prior();
        sampler.loops().cld.map(|run| run(self, times, (x.scale(sx), v.scale(sv)), hooks))
    }
}

/// One step of Euler–Maruyama backwards in time: dx = −βv/M, dv = βx + Γβv/M + 2Γβ score, with noise √(2Γβ) in v. In
/// the last step no noise is added.
fn euler_step<F: Field>(
    p: &CldProblem<F>,
    (x, v): (&F, &F),
    (n, t, s): (usize, f64, f64),
    hooks: &mut Hooks<F>,
) -> Result<(F, F)> {
    let (gamma, inverse) = (p.cld.damping(), p.cld.inverse_mass);
    let score = p.score(x, v, t)?;
    let h = p.cld.integral(t) - p.cld.integral(s);
    let moved = F::lincomb(&[(1.0.into(), x), ((-h * inverse).into(), v)]);
    let mut pushed =
        F::lincomb(&[((1.0 + gamma * inverse * h).into(), v), (h.into(), x), ((2.0 * gamma * h).into(), &score)]);
    if s > 0.0 {
        // Noise 4n, so that the numbering of noise is the same as in `sscs`, which draws four per step.
        pushed = F::lincomb(&[(1.0.into(), &pushed), ((2.0 * gamma * h).sqrt().into(), &(hooks.noise)(4 * n))]);
    }
    Ok((moved, pushed))
}

/// Euler–Maruyama. The network does not predict x_0, so observers get x in its place.
pub(crate) fn euler_maruyama<F: Field>(
    p: &CldProblem<F>,
    times: &[f64],
    (mut x, mut v): (F, F),
    hooks: &mut Hooks<F>,
) -> Result<F> {
    for (n, t, s) in steps(times) {
        (hooks.observe)(State { step: n, t, x_t: &x, x0: &x });
        (x, v) = euler_step(p, (&x, &v), (n, t, s), hooks)?;
    }
    Ok(x)
}

/// The symmetric splitting of CLD's authors (§9). The reverse equation is split into dx = −βv/M, dv = βx − Γβv/M +
/// noise, which is the forward process with reversed velocity and is solved exactly, and dv = 2Γβ (score + v/M), for
/// which the score is evaluated once, at the first time of the step. The last step is a step of Euler without noise, as
/// in the authors' code. Step n uses the noises 4n to 4n + 3.
pub fn sscs<F: Field>(p: &CldProblem<F>, times: &[f64], (mut x, mut v): (F, F), hooks: &mut Hooks<F>) -> Result<F> {
    for (n, t, s) in steps(times) {
        (hooks.observe)(State { step: n, t, x_t: &x, x0: &x });
        if s == 0.0 {
            (x, v) = euler_step(p, (&x, &v), (n, t, s), hooks)?;
            continue;
        }
        let h = p.cld.integral(t) - p.cld.integral(s);
        let gain = 2.0 * p.cld.damping() * h;
        (x, v) = exact(&p.cld, 0.5 * h, (&x, &v), [&(hooks.noise)(4 * n), &(hooks.noise)(4 * n + 1)]);
        let score = p.score(&x, &v, t)?;
        v = F::lincomb(&[((1.0 + gain * p.cld.inverse_mass).into(), &v), (gain.into(), &score)]);
        (x, v) = exact(&p.cld, 0.5 * h, (&x, &v), [&(hooks.noise)(4 * n + 2), &(hooks.noise)(4 * n + 3)]);
    }
    Ok(x)
}

/// An exact draw from the forward process over ∫β = b with reversed velocity.
fn exact<F: Field>(cld: &Cld, b: f64, (x, v): (&F, &F), [z_x, z_v]: [&F; 2]) -> (F, F) {
    let m = cld.transition(b);
    let (l_xx, l_xv, l_vv) = cld.noise(b).cholesky();
    let next_x = F::lincomb(&[(m[0][0].into(), x), ((-m[0][1]).into(), v), (l_xx.into(), z_x)]);
    let next_v = F::lincomb(&[((-m[1][0]).into(), x), (m[1][1].into(), v), ((-l_xv).into(), z_x), (l_vv.into(), z_v)]);
    (next_x, next_v)
}
