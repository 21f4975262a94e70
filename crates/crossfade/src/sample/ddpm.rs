//! DDPM's ancestral sampler on any number of steps (SPEC §9), the baseline.
use super::{Hooks, Sampled, State};
use crate::error::Result;
use crossfade_math::{Ddpm, Field};

/// Runs `steps` steps from `x` at k = T down to 0. `eps` is the network's prediction at (x_k, k/T); x̂_0 is limited to ±clip.
pub fn ancestral<F: Field>(
    ddpm: &Ddpm,
    steps: usize,
    clip: Option<f64>,
    eps: &dyn Fn(&F, f64) -> Result<F>,
    mut x: F,
    hooks: &mut Hooks<F>,
) -> Result<Sampled<F>> {
    let bars = ddpm.alpha_bars();
    let visited = ddpm.respaced(steps);
    for (step, pair) in visited.windows(2).enumerate() {
        let (t, s) = (bars[pair[0]], bars[pair[1]]);
        let noise = eps(&x, ddpm.time(pair[0]))?;
        // x̂_0 = (x − √(1−ᾱ) eps)/√ᾱ.
        let x0 = F::lincomb(&[((1.0 / t.sqrt()).into(), &x), ((-((1.0 - t) / t).sqrt()).into(), &noise)]);
        let x0 = clip.map_or_else(|| x0.clone(), |c| x0.clamp(-c, c));
        (hooks.observe)(State { step, t: ddpm.time(pair[0]), x_t: &x, x0: &x0 });
        let q = Ddpm::posterior(t, s);
        x = F::lincomb(&[(q.x0.into(), &x0), (q.x_t.into(), &x)]);
        if q.sigma > 0.0 {
            x = F::lincomb(&[(1.0.into(), &x), (q.sigma.into(), &(hooks.noise)(step))]);
        }
    }
    Ok(Sampled { x0: x, nfe: visited.len() - 1 })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    /// With the exact eps of data N(0.5, 0.3²) many steps end at that law, and a single one at its mean.
    #[test]
    fn the_exact_prediction_leads_to_the_data() {
        let ddpm = Ddpm::default();
        let bars = ddpm.alpha_bars();
        let (mean, variance) = (0.5, 0.09);
        let eps = |x: &f64, t: f64| {
            let bar = bars[(t * 1000.0).round() as usize];
            Ok((1.0 - bar).sqrt() * (x - bar.sqrt() * mean) / (bar * variance + 1.0 - bar))
        };
        let run = |steps: usize, k: u64| {
            let mut z = Stream::new(2, k, 0, Purpose::Lab);
            let start = z.normal();
            let mut hooks = Hooks { noise: &mut |_| z.normal(), observe: &mut |_| () };
            ancestral(&ddpm, steps, None, &eps, start, &mut hooks).unwrap()
        };
        let ends: Vec<f64> = (0..4000).map(|k| run(200, k).x0).collect();
        let got = ends.iter().sum::<f64>() / 4000.0;
        let spread = ends.iter().map(|x| (x - got).powi(2)).sum::<f64>() / 4000.0;
        assert!((got - mean).abs() < 0.02 && (spread - variance).abs() < 0.01, "{got} {spread}");
        let one = run(1, 0);
        assert!(one.nfe == 1 && (one.x0 - mean).abs() < 0.02, "{}", one.x0);
    }
}
