//! Measuring how far each head can be trusted: the weight w(t) of the blend x̂_0 = w a + (1−w) b with the smallest error,
//! where a = −H_1(phi) and b is the eps head's estimate (§10.3).
use crate::config::RunConfig;
use crate::data::Dataset;
use crate::engine::{Images, to_host};
use crate::error::{Error, Result};
use crate::generate::Pipeline;
use crate::latent::Batches;
use crate::loader::LoaderConfig;
use crate::sample::Predict;
use crate::task::TaskConfig;
use crate::train::prepare;
use crossfade_math::{Adm, Field};
use std::sync::Arc;

/// Sums over held-out forward samples, in equal bins of √t.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Σ⟨b − x_0, b − a⟩ and Σ‖a − b‖² of each bin.
    sums: Vec<(f64, f64)>,
}

impl Calibration {
    /// Empty sums in `bins` bins.
    pub fn new(bins: usize) -> Self {
        Self { sums: vec![(0.0, 0.0); bins.max(1)] }
    }

    /// Adds one sample at t: the truth and both estimates.
    pub fn add(&mut self, t: f64, x0: &[f64], a: &[f64], b: &[f64]) {
        let bins = self.sums.len();
        let bin = ((t.sqrt() * bins as f64) as usize).min(bins - 1);
        for ((x0, a), b) in x0.iter().zip(a).zip(b) {
            self.sums[bin].0 += (b - x0) * (b - a);
            self.sums[bin].1 += (a - b) * (a - b);
        }
    }

    /// w* = E⟨b − x_0, b − a⟩/E‖a − b‖² of each bin, limited to [0, 1]; ½ where there was nothing to measure. What no
    /// estimate can know of x_0 cancels in the numerator.
    pub fn table(&self) -> Vec<f64> {
        self.sums.iter().map(|(top, bottom)| if *bottom > 0.0 { (top / bottom).clamp(0.0, 1.0) } else { 0.5 }).collect()
    }
}

/// The two estimates of x_0 from both heads at one t < 1: −H_1(phi), and what the eps head adds to it.
pub fn estimates<F: Field>(process: &Adm, x_t: &F, phi: &[F], eps: &F, t: f64) -> (F, F) {
    let (a, native) = process.x0_estimates(x_t, phi, eps, &t.into());
    // native = t a + (1−t) b.
    let b = F::lincomb(&[((1.0 / (1.0 - t)).into(), &native), ((-t / (1.0 - t)).into(), &a)]);
    (a, b)
}

/// Calibrates the network of `pipeline` on `images` samples of `set` (or their latents), each noised to its own time; `progress` hears (done,
/// all).
pub fn calibrate(
    pipeline: &Pipeline,
    config: &RunConfig,
    set: Arc<dyn Dataset>,
    images: usize,
    bins: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<f64>> {
    let Some(adm) = config.process.adm() else {
        let name = config.process.name();
        let problem = format!("only the two heads of the process adm can be weighed; {name} has one estimate");
        return Err(Error::request(problem));
    };
    pipeline.size()?;
    // Another seed than training's: other noise and times, and with it held-out samples.
    let config = &RunConfig { seed: config.seed ^ 0x5EED_CA11, ..config.clone() };
    let loading = LoaderConfig { batch: 1, seed: config.seed, flip: false, threads: 1, cache: false };
    let (net, latent, device) = (pipeline.net().conditioned(None), pipeline.latent(), pipeline.device());
    let mut batches = Batches::start(set, TaskConfig::default(), loading, 0, latent, None, &mut |_, _| ())?;
    let mut calibration = Calibration::new(bins);
    let wide = |x: Images| to_host(x.0).into_iter().map(f64::from).collect::<Vec<_>>();
    for done in 0..images {
        let sample = prepare(batches.next_batch()?, config, device).noised;
        let t = sample.t[0].min(1.0 - 1e-6);
        let heads = net.predict(&sample.x_t, t)?;
        let (a, b) = estimates(adm, &sample.x_t, &heads.phi, &heads.eps, t);
        calibration.add(t, &wide(sample.x0), &wide(a), &wide(b));
        progress(done + 1, images);
    }
    Ok(calibration.table())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Mixture, Oracle, normals};

    /// Heads that err independently by (e1, e2) in raw outputs have w* = e2²/(e1² + e2²) at every t.
    #[test]
    fn the_best_weight_is_found() {
        let (process, n) = (Adm::default(), 4000);
        let mixture = Mixture::random(4, 3, 0.2, 0.8, 1);
        let oracle = Oracle::new(mixture.clone(), process);
        let (x0, eps) = (mixture.sample(n, 2), normals(4, n, 3, 0));
        for (e1, e2) in [(0.1, 0.1), (0.05, 0.15), (0.2, 0.1)] {
            let mut calibration = Calibration::new(4);
            for t in [0.04, 0.16, 0.4, 0.8] {
                let x_t = process.x_t(&x0, &process.phi(&x0, &[]), &eps, &t.into());
                let c = process.scalings(t);
                let mut heads = oracle.predict(&x_t, t).unwrap();
                heads.phi[0] = heads.phi[0].plus(&normals(4, n, 4, 0).scale(c.phi[0].out * e1));
                heads.eps = heads.eps.plus(&normals(4, n, 5, 0).scale(c.eps.out * e2));
                let (a, b) = estimates(&process, &x_t, &heads.phi, &heads.eps, t);
                calibration.add(t, &x0.data, &a.data, &b.data);
            }
            let expected = e2 * e2 / (e1 * e1 + e2 * e2);
            for w in calibration.table() {
                assert!((w - expected).abs() < 0.06, "{:?} instead of {expected}", calibration.table());
            }
        }
        assert_eq!(Calibration::new(2).table(), [0.5, 0.5]);
    }
}
