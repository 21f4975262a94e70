//! Calibration of the blend: measures the weight w(t) of x̂_0 = w a + (1−w) b that minimises its squared error, where
//! a = −H_1(phi) is the estimate of the phi head and b that of the eps head (§10.3).
use crate::config::RunConfig;
use crate::data::Dataset;
use crate::engine::{Images, to_host};
use crate::error::{Error, Result};
use crate::generate::Pipeline;
use crate::latent::Batches;
use crate::loader::{LoaderConfig, Share};
use crate::sample::Predict;
use crate::task::TaskConfig;
use crate::train::prepare;
use crossfade_math::{Adm, Field};
use std::sync::Arc;

/// Sums over noised images, in bins of equal width in √t.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Σ⟨b − x_0, b − a⟩ and Σ‖a − b‖² of each bin.
    sums: Vec<(f64, f64)>,
}

impl Calibration {
    /// No samples yet, in `bins` bins.
    pub fn new(bins: usize) -> Self {
        Self { sums: vec![(0.0, 0.0); bins.max(1)] }
    }

    /// Adds one sample at time t: the true x_0 and both estimates.
    pub fn add(&mut self, t: f64, x0: &[f64], a: &[f64], b: &[f64]) {
        let bins = self.sums.len();
        // Equal width in √t, as `Blend::Table` reads the result.
        let bin = ((t.sqrt() * bins as f64) as usize).min(bins - 1);
        for ((x0, a), b) in x0.iter().zip(a).zip(b) {
            self.sums[bin].0 += (b - x0) * (b - a);
            self.sums[bin].1 += (a - b) * (a - b);
        }
    }

    /// w* = E⟨b − x_0, b − a⟩/E‖a − b‖² of each bin, clamped to [0, 1]; ½ for bins without samples. This is the
    /// least-squares solution. The part of x_0 that cannot be predicted from x_t is uncorrelated with b − a and cancels
    /// on average.
    pub fn table(&self) -> Vec<f64> {
        let weight = |&(numerator, denominator): &(f64, f64)| {
            if denominator > 0.0 { (numerator / denominator).clamp(0.0, 1.0) } else { 0.5 }
        };
        self.sums.iter().map(weight).collect()
    }
}

/// The estimates (a, b) of x_0 at one t < 1: a = −H_1(phi) from the phi head, and b from the eps head.
fn estimates<F: Field>(process: &Adm, x_t: &F, phi: &[F], eps: &F, t: f64) -> (F, F) {
    let (a, native) = process.x0_estimates(x_t, phi, eps, &t.into());
    // The reference's estimate x_t − H_t(phi) − σ_t eps equals t a + (1−t) b, which is solved for b.
    let b = F::lincomb(&[((1.0 / (1.0 - t)).into(), &native), ((-t / (1.0 - t)).into(), &a)]);
    (a, b)
}

/// Calibrates the network of `pipeline` on `images` samples of `set` (or their latents), each noised to its own time.
/// Returns one weight per bin of √t; `progress` is called with (samples done, all samples).
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
        let problem = format!("only the process adm has two heads to calibrate; {name} has a single estimate of x_0");
        return Err(Error::request(problem));
    };
    pipeline.size()?;
    // A seed other than that of training, so that noise and times are not those the network was trained on.
    let config = &RunConfig { seed: config.seed ^ 0x5EED_CA11, ..config.clone() };
    let loading =
        LoaderConfig { batch: 1, seed: config.seed, flip: false, threads: 1, cache: false, share: Share::ALL };
    let (net, latent, device) = (pipeline.net().conditioned(None), pipeline.latent(), pipeline.device());
    let mut batches = Batches::start(set, TaskConfig::default(), loading, 0, latent, None, &mut |_, _| ())?;
    let mut calibration = Calibration::new(bins);
    let to_f64 = |x: Images| to_host(x.0).into_iter().map(f64::from).collect::<Vec<_>>();
    for done in 0..images {
        let sample = prepare(batches.next_batch()?, config, None, device).noised;
        // At t = 1 the estimate b is a division by zero.
        let t = sample.t[0].min(1.0 - 1e-6);
        let heads = net.predict(&sample.x_t, t)?;
        let (a, b) = estimates(adm, &sample.x_t, &heads.phi, &heads.eps, t);
        calibration.add(t, &to_f64(sample.x0), &to_f64(a), &to_f64(b));
        progress(done + 1, images);
    }
    Ok(calibration.table())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Mixture, Oracle, normals};

    /// If the raw outputs have independent errors of deviation e1 and e2, then w* = e2²/(e1² + e2²) at every t.
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
