//! Samplers of critically damped Langevin diffusion (§9): the state is (x, v), and only v is driven by noise.
use super::{Hooks, Sampled, State, check_times, steps};
use crate::error::{Error, Result};
use crossfade_math::Field;
use crossfade_math::cld::Cld;

/// All that these samplers may know of a network.
pub trait VelocityScore<F> {
    /// ∇_v ln p_t(x, v).
    fn score(&self, x: &F, v: &F, t: f64) -> Result<F>;
}

/// The samplers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CldSampler {
    /// Euler–Maruyama on the reverse equation.
    EulerMaruyama,
    /// Symmetric splitting: half an exact step of the part without the score, a whole step of the score, the other half.
    Sscs,
}

impl CldSampler {
    /// Every sampler.
    pub const ALL: [Self; 2] = [Self::EulerMaruyama, Self::Sscs];

    /// The name used on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::EulerMaruyama => "euler-maruyama",
            Self::Sscs => "sscs",
        }
    }

    /// The sampler of that name.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|s| s.name() == name)
            .ok_or_else(|| Error::request(format!("unknown sampler '{name}' of CLD; known: euler-maruyama, sscs")))
    }

    /// Runs from standard normals `x` and `v` (both are scaled here) over `times` (descending, first 1, last 0). Step n of
    /// Euler–Maruyama takes noise n, of SSCS noises 4n to 4n + 3.
    pub fn run<F: Field>(
        self,
        net: &dyn VelocityScore<F>,
        cld: &Cld,
        times: &[f64],
        (x, v): (F, F),
        hooks: &mut Hooks<F>,
    ) -> Result<Sampled<F>> {
        check_times(times)?;
        let (sx, sv) = cld.prior();
        let start = (x.scale(sx), v.scale(sv));
        let x0 = match self {
            Self::EulerMaruyama => euler_maruyama(net, cld, times, start, hooks)?,
            Self::Sscs => sscs(net, cld, times, start, hooks)?,
        };
        Ok(Sampled { x0, nfe: times.len() - 1 })
    }
}

/// Backwards in time: dx = −βv/M, dv = βx + Γβv/M + 2Γβ score, noise √(2Γβ) in v. The last noise is dropped.
fn euler_maruyama<F: Field>(
    net: &dyn VelocityScore<F>,
    cld: &Cld,
    times: &[f64],
    (mut x, mut v): (F, F),
    hooks: &mut Hooks<F>,
) -> Result<F> {
    let (gamma, inverse) = (cld.damping(), cld.inverse_mass);
    for (n, t, s) in steps(times) {
        let score = net.score(&x, &v, t)?;
        let h = cld.integral(t) - cld.integral(s);
        let next = F::lincomb(&[(1.0.into(), &x), ((-h * inverse).into(), &v)]);
        v = F::lincomb(&[((1.0 + gamma * inverse * h).into(), &v), (h.into(), &x), ((2.0 * gamma * h).into(), &score)]);
        if s > 0.0 {
            v = F::lincomb(&[(1.0.into(), &v), ((2.0 * gamma * h).sqrt().into(), &(hooks.noise)(n))]);
        }
        x = next;
        (hooks.observe)(State { step: n, t, x_t: &x, x0: &x });
    }
    Ok(x)
}

/// The reverse equation is dx = −βv/M, dv = βx − Γβv/M + noise (exact: an equilibrium process with the velocity turned)
/// plus dv = 2Γβ (score + v/M). The last step is one of Euler without noise, as its authors do.
fn sscs<F: Field>(
    net: &dyn VelocityScore<F>,
    cld: &Cld,
    times: &[f64],
    (mut x, mut v): (F, F),
    hooks: &mut Hooks<F>,
) -> Result<F> {
    for (n, t, s) in steps(times) {
        let h = cld.integral(t) - cld.integral(s);
        if s == 0.0 {
            return euler_maruyama(net, cld, &[t, s], (x, v), hooks);
        }
        (x, v) = exact_half(cld, 0.5 * h, (&x, &v), [&(hooks.noise)(4 * n), &(hooks.noise)(4 * n + 1)]);
        // In the middle the state has had half of the step's exact part only: its time is still t for the score part.
        let score = net.score(&x, &v, t)?;
        let gain = 2.0 * cld.damping() * h;
        v = F::lincomb(&[((1.0 + gain * cld.inverse_mass).into(), &v), (gain.into(), &score)]);
        (x, v) = exact_half(cld, 0.5 * h, (&x, &v), [&(hooks.noise)(4 * n + 2), &(hooks.noise)(4 * n + 3)]);
        (hooks.observe)(State { step: n, t, x_t: &x, x0: &x });
    }
    Ok(x)
}

/// The forward process over ∫β = b with the velocity turned round, drawn exactly.
fn exact_half<F: Field>(cld: &Cld, b: f64, (x, v): (&F, &F), [z_x, z_v]: [&F; 2]) -> (F, F) {
    let m = cld.transition(b);
    let (l_xx, l_xv, l_vv) = cld.noise(b).cholesky();
    let next_x = F::lincomb(&[(m[0][0].into(), x), ((-m[0][1]).into(), v), (l_xx.into(), z_x)]);
    let next_v = F::lincomb(&[((-m[1][0]).into(), x), (m[1][1].into(), v), ((-l_xv).into(), z_x), (l_vv.into(), z_v)]);
    (next_x, next_v)
}
