//! The optimiser's step and the moving average of the weights, each in one pass over memory.
use crate::CHUNK;
use crate::team::Share;
use rayon::prelude::*;

/// The hyperparameters of one AdamW step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator after the root, to keep it from zero.
    pub adam_eps: f64,
    /// Decoupled weight decay, in units of the learning rate.
    pub weight_decay: f64,
    /// Number of this step, counted from 1.
    pub step: u64,
    /// The gradient is multiplied with this first: for clipping, or for the mean over accumulated batches.
    pub grad_scale: f64,
}

/// The hyperparameters in the precision and form that the loop needs.
struct Coefficients {
    grad_scale: f32,
    decay: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    root_correction2: f32,
    adam_eps: f32,
    step_size: f32,
}

impl Coefficients {
    fn new(h: &AdamW) -> Self {
        // Both bias corrections are 1 long before 2^31 steps.
        let k = i32::try_from(h.step).unwrap_or(i32::MAX);
        Self {
            grad_scale: h.grad_scale as f32,
            decay: (1.0 - h.lr * h.weight_decay) as f32,
            one_minus_beta1: (1.0 - h.beta1) as f32,
            beta2: h.beta2 as f32,
            one_minus_beta2: (1.0 - h.beta2) as f32,
            root_correction2: (1.0 - h.beta2.powi(k)).sqrt() as f32,
            adam_eps: h.adam_eps as f32,
            step_size: (h.lr / (1.0 - h.beta1.powi(k))) as f32,
        }
    }

    /// p ← (1 − γλ)·p,  m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,
    /// p ← p − γ/(1 − β₁ᵏ) · m / (√v/√(1 − β₂ᵏ) + ε), in PyTorch's order of operations, so that rounding is
    /// the same (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2).
    fn update(&self, param: &mut [f32], m: &mut [f32], v: &mut [f32], grad: &[f32]) {
        for (((p, m), v), g) in param.iter_mut().zip(m).zip(v).zip(grad) {
            let g = g * self.grad_scale;
            *m += self.one_minus_beta1 * (g - *m);
            *v = *v * self.beta2 + self.one_minus_beta2 * g * g;
            let denominator = v.sqrt() / self.root_correction2 + self.adam_eps;
            *p = *p * self.decay - self.step_size * (*m / denominator);
        }
    }
}

/// One AdamW step over the parameters `param` with first and second moments `m` and `v`.
///
/// # Shapes
/// `param`, `m`, `v`, `grad` \[n\].
pub fn adamw_step(param: &mut [f32], m: &mut [f32], v: &mut [f32], grad: &[f32], h: &AdamW) {
    let n = param.len();
    assert!(m.len() == n && v.len() == n && grad.len() == n, "the optimiser's arrays differ in length");
    assert!(h.step > 0, "optimiser steps count from 1");
    let coefficients = Coefficients::new(h);
    // Most tensors of a network are small: waking other threads would take longer than the work.
    if n <= CHUNK {
        return coefficients.update(param, m, v, grad);
    }
    param
        .par_chunks_mut(CHUNK)
        .zip(m.par_chunks_mut(CHUNK))
        .zip(v.par_chunks_mut(CHUNK))
        .zip(grad.par_chunks(CHUNK))
        .share(|(((param, m), v), grad)| coefficients.update(param, m, v, grad));
}

/// ema ← decay·ema + (1 − decay)·param; an exact copy when `decay` is 0.
///
/// # Shapes
/// `ema`, `param` \[n\].
pub fn ema_update(ema: &mut [f32], param: &[f32], decay: f64) {
    assert!(ema.len() == param.len(), "a moving average of {} weights for {} parameters", ema.len(), param.len());
    if decay == 0.0 {
        return ema.copy_from_slice(param);
    }
    let weight = (1.0 - decay) as f32;
    let update = |(ema, param): (&mut [f32], &[f32])| {
        ema.iter_mut().zip(param).for_each(|(e, p)| *e += weight * (p - *e));
    };
    if ema.len() <= CHUNK {
        return update((ema, param));
    }
    ema.par_chunks_mut(CHUNK).zip(param.par_chunks(CHUNK)).share(update);
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: AdamW =
        AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.999, adam_eps: 1e-8, weight_decay: 1e-2, step: 1, grad_scale: 1.0 };

    fn wave(n: usize, speed: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * speed).sin()).collect()
    }

    #[test]
    fn the_first_step_follows_the_sign_of_the_gradient() {
        let (mut p, mut m, mut v) = ([1.0, 1.0, 1.0], [0.0; 3], [0.0; 3]);
        adamw_step(&mut p, &mut m, &mut v, &[3.0, -0.5, 0.0], &H);
        for (p, expected) in p.iter().zip([0.9999 - 0.01, 0.9999 + 0.01, 0.9999]) {
            assert!((p - expected).abs() < 1e-6, "{p} is not {expected}");
        }
    }

    #[test]
    fn grad_scale_equals_a_scaled_gradient() {
        let grad = wave(100, 0.3);
        let halved: Vec<f32> = grad.iter().map(|g| g * 0.5).collect();
        let run = |grad: &[f32], h: &AdamW| {
            let (mut p, mut m, mut v) = (wave(100, 0.7), vec![0.0; 100], vec![0.0; 100]);
            adamw_step(&mut p, &mut m, &mut v, grad, h);
            (p, m, v)
        };
        assert_eq!(run(&grad, &AdamW { grad_scale: 0.5, ..H }), run(&halved, &H));
    }

    #[test]
    fn the_steps_agree_with_f64() {
        let n = 64;
        let (mut p, mut m, mut v) = (wave(n, 0.7), vec![0.0; n], vec![0.0; n]);
        let mut exact: Vec<[f64; 3]> = p.iter().map(|&p| [f64::from(p), 0.0, 0.0]).collect();
        for step in 1..=50 {
            let grad = wave(n, 0.1 * step as f32);
            adamw_step(&mut p, &mut m, &mut v, &grad, &AdamW { step, ..H });
            let k = step as i32;
            for ([p, m, v], g) in exact.iter_mut().zip(&grad) {
                let g = f64::from(*g);
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.999 * *v + 0.001 * g * g;
                let (m_hat, v_hat) = (*m / (1.0 - 0.9f64.powi(k)), *v / (1.0 - 0.999f64.powi(k)));
                *p = *p * (1.0 - 1e-4) - 1e-2 * m_hat / (v_hat.sqrt() + 1e-8);
            }
        }
        for (p, [exact, ..]) in p.iter().zip(&exact) {
            assert!((f64::from(*p) - exact).abs() < 1e-5, "{p} is not {exact}");
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let n = 5 * CHUNK + 123;
        let grad = wave(n, 0.3);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let (mut p, mut m, mut v) = (wave(n, 0.7), vec![0.0; n], vec![0.0; n]);
                let mut ema = p.clone();
                for step in 1..=3 {
                    adamw_step(&mut p, &mut m, &mut v, &grad, &AdamW { step, ..H });
                    ema_update(&mut ema, &p, 0.9);
                }
                (p, m, v, ema)
            })
        };
        assert!(run(1) == run(2), "1 and 2 threads differ");
    }

    #[test]
    fn an_average_without_decay_is_a_copy() {
        let param = [0.1, f32::MIN_POSITIVE, -3.0];
        let mut ema = [1e8, 1.0, 7.0];
        ema_update(&mut ema, &param, 0.0);
        assert_eq!(ema, param);
        ema_update(&mut ema, &[0.0; 3], 0.75);
        assert_eq!(ema[2], -2.25);
    }
}
