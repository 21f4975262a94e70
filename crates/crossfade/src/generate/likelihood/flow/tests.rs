//! The likelihood of the flow under exact denoisers, whose densities are known.
#![allow(clippy::unwrap_used)]
use super::super::*;
use super::*;
use crate::data::{Dataset, Image};
use crate::engine::{Device, from_vec};
use crossfade_math::level;

const SIDE: usize = 4;
const DIM: usize = SIDE * SIDE;
const MEAN: f64 = 0.1;
const DEVIATION: f64 = 0.4;

/// Correlated normal values, rounded to bytes: each value is that of the pixel before it by half, and new by the rest.
struct Correlated(usize);

const MEMORY: f64 = 0.6;

impl Dataset for Correlated {
    fn len(&self) -> usize {
        self.0
    }
    fn get(&self, index: usize) -> Result<Image> {
        let mut stream = Stream::new(5, index as u64, 0, Purpose::Lab);
        let mut state = stream.normal();
        let mut pixel = || {
            let value = MEAN + DEVIATION * state;
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * stream.normal();
            ((value + 1.0) * 127.5).round().clamp(0.0, 255.0) as u8
        };
        Ok(Image::new(SIDE, SIDE, 1, (0..DIM).map(|_| pixel()).collect()))
    }
    fn name(&self, index: usize) -> String {
        index.to_string()
    }
    fn describe(&self) -> String {
        "normal pixels".into()
    }
}

/// The covariance of the data plus κ² on the diagonal.
fn covariance(kappa: f64) -> Vec<Vec<f64>> {
    let entry = |i: usize, j: usize| {
        let diagonal = if i == j { kappa * kappa } else { 0.0 };
        DEVIATION * DEVIATION * MEMORY.powi(i.abs_diff(j) as i32) + diagonal
    };
    (0..DIM).map(|i| (0..DIM).map(|j| entry(i, j)).collect()).collect()
}

/// A⁻¹ b and ln |A| by elimination of a positive definite matrix.
#[allow(clippy::needless_range_loop, reason = "the indices are those of the formula")]
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> (Vec<f64>, f64) {
    let n = b.len();
    let mut log_det = 0.0;
    for i in 0..n {
        log_det += a[i][i].ln();
        for row in i + 1..n {
            let factor = a[row][i] / a[i][i];
            for column in i..n {
                a[row][column] -= factor * a[i][column];
            }
            b[row] -= factor * b[i];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| a[i][j] * b[j]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    (b, log_det)
}

/// E[x_0 | y] = μ + Σ (Σ + κ²)⁻¹ (y − μ).
fn posterior_mean(y: &[f64], kappa: f64) -> Vec<f64> {
    let (weights, _) = solve(covariance(kappa), y.iter().map(|y| y - MEAN).collect());
    let data = covariance(0.0);
    data.iter().map(|row| MEAN + row.iter().zip(&weights).map(|(a, b)| a * b).sum::<f64>()).collect()
}

fn measured(process: Gaussian, config: &LikelihoodConfig) -> Likelihood {
    let range = NoiseRange::new(process, config.kappa_min, f64::INFINITY).unwrap();
    let device = Device::flex();
    let estimate = |x_t: &Images, times: &[f64], _: &[usize]| {
        let (alpha, kappa) = (process.alpha(times[0]), process.ratio(times[0]));
        let all = to_host(x_t.0.clone());
        let each = all.chunks_exact(DIM).zip(times).flat_map(|(x, &t)| {
            let (alpha, kappa) = if t == times[0] { (alpha, kappa) } else { (process.alpha(t), process.ratio(t)) };
            posterior_mean(&x.iter().map(|&x| f64::from(x) / alpha).collect::<Vec<_>>(), kappa)
        });
        let values = each.map(|v| v as f32).collect();
        Ok(Images(from_vec(values, [times.len(), 1, SIDE, SIDE], &device)))
    };
    let (set, range) = (&Correlated(40), &range);
    let measurement = Measurement { set, process, range, config, estimate: &estimate, device: &device };
    measurement.run(&mut |_, _| true).unwrap().unwrap()
}

fn config(trace: Trace) -> LikelihoodConfig {
    let flow = Some(FlowConfig { steps: 60, trace });
    LikelihoodConfig { count: 12, times: 2, kappa_min: 0.02, seed: 1, batch: 5, flow }
}

/// −ln p(y) of the decoder's images under the normal distribution of the data at the smallest noise level, as the flow's
/// value counts it.
fn closed_form(config: &LikelihoodConfig, reconstruction: f64) -> f64 {
    let (set, kappa) = (Correlated(40), config.kappa_min);
    let nats = |place: usize| {
        let index = place * set.len() / config.count;
        let noise = normals(config.seed, index, 0, DIM);
        let image = set.get(index).unwrap();
        let y = image.pixels.iter().zip(&noise).map(|(&byte, &eps)| level(byte) + kappa * f64::from(eps) - MEAN);
        let y: Vec<f64> = y.collect();
        let (weights, log_det) = solve(covariance(kappa), y.clone());
        let squares: f64 = y.iter().zip(&weights).map(|(a, b)| a * b).sum();
        let density = -0.5 * (squares + log_det + DIM as f64 * TAU.ln());
        let drawn: f64 = noise.iter().map(|&e| -0.5 * f64::from(e).powi(2) - 0.5 * (TAU * kappa * kappa).ln()).sum();
        drawn - density
    };
    let mean = (0..config.count).map(nats).sum::<f64>() / config.count as f64;
    reconstruction + bits_per_dim(mean, DIM)
}

/// For normal data with the exact denoiser, whose Jacobian is not diagonal, the flow's value is the closed form.
#[test]
fn the_flow_of_normal_data_has_its_density() {
    for process in Gaussian::all().into_iter().filter(|process| process.tick().is_none()) {
        let flow = Some(FlowConfig { steps: 160, trace: Trace::Exact });
        let config = LikelihoodConfig { count: 6, flow, ..config(Trace::Exact) };
        let found = measured(process, &config);
        let flow = found.flow.as_ref().unwrap();
        let wanted = closed_form(&config, found.reconstruction);
        // The largest levels of vp (152), ve (50) and edm (80) leave a little of the images.
        let error = (flow.bits_per_dim - wanted).abs();
        assert!(error < 2e-3, "{}: {} for {wanted}", process.name(), flow.bits_per_dim);
        assert_eq!((flow.steps, flow.probes), (160, None));
        assert_eq!(flow.evaluations, 1 + 2 * 160 + 161 * 2 * DIM);
    }
}

/// Twice the steps divide the error of the integration by four.
#[test]
fn the_flow_is_integrated_at_second_order() {
    let process = Process::default().gaussian().unwrap();
    let bits = |steps: usize| {
        let flow = Some(FlowConfig { steps, trace: Trace::Exact });
        let config = LikelihoodConfig { flow, count: 4, ..config(Trace::Exact) };
        let found = measured(process, &config);
        found.flow.unwrap().bits_per_dim
    };
    let [few, more, many] = [12, 24, 96].map(bits);
    let order = ((few - many) / (more - many)).log2();
    assert!(order > 1.6 && order < 3.0, "{few} {more} {many}: order {order}");
}

/// Random signs give the trace in the mean, and nothing depends on the batch.
#[test]
fn probes_estimate_the_trace_and_batches_change_nothing() {
    let process = Gaussian::all().into_iter().find(|process| process.name() == "flow").unwrap();
    let exact = measured(process, &config(Trace::Exact)).flow.unwrap();
    let probes = config(Trace::Probes(8));
    let found = measured(process, &probes);
    let flow = found.flow.clone().unwrap();
    assert!((flow.bits_per_dim - exact.bits_per_dim).abs() < 0.1, "{} {}", flow.bits_per_dim, exact.bits_per_dim);
    assert!(flow.evaluations < exact.evaluations);
    for batch in [1, 7, 64] {
        assert_eq!(measured(process, &LikelihoodConfig { batch, ..probes }), found, "batch {batch}");
    }
}

/// With an exact denoiser the bound is tight, so that both values agree up to the errors of the drawn noise levels.
#[test]
fn the_bound_of_an_exact_denoiser_is_the_likelihood_of_the_flow() {
    let process = Process::default().gaussian().unwrap();
    let config = LikelihoodConfig { times: 64, count: 40, ..config(Trace::Exact) };
    let flow = measured(process, &config).flow.unwrap();
    assert!(flow.gap.abs() < 3.5 * flow.gap_error + 2e-3, "{} ± {}", flow.gap, flow.gap_error);
}

#[test]
fn discrete_times_have_no_flow() {
    let process = Gaussian::all().into_iter().find(|process| process.tick().is_some()).unwrap();
    let range = NoiseRange::new(process, 0.02, f64::INFINITY).unwrap();
    let (set, config, device) = (&Correlated(4), &config(Trace::Exact), Device::flex());
    let estimate = |x_t: &Images, _: &[f64], _: &[usize]| Ok(x_t.clone());
    let measurement = Measurement { set, process, range: &range, config, estimate: &estimate, device: &device };
    let error = measurement.run(&mut |_, _| true).err().unwrap().to_string();
    assert!(error.contains("discrete times"), "{error}");
}
