use super::*;
use crate::testing::{assert_close, numbers, pools};

const SHAPES: [NormShape; 6] = [
    NormShape { n: 1, c: 1, hw: 1, groups: 1 },
    NormShape { n: 3, c: 8, hw: 49, groups: 2 },
    NormShape { n: 2, c: 6, hw: 3, groups: 3 },
    NormShape { n: 2, c: 64, hw: 256, groups: 16 },
    NormShape { n: 1, c: 5, hw: 4099, groups: 1 },
    NormShape { n: 5, c: 1024, hw: 16, groups: 32 },
];
const EPSILON: f32 = 1e-5;

struct Case {
    shape: NormShape,
    x: Vec<f32>,
    dy: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
    modulation: Option<Vec<f32>>,
    silu: bool,
}

impl Case {
    fn new(shape: NormShape, modulated: bool, silu: bool) -> Self {
        let x = numbers(1, shape.len()).iter().map(|x| 2.0 * x + 1.0).collect();
        let modulation = modulated.then(|| numbers(2, 2 * shape.n * shape.c));
        let (gamma, beta) = (numbers(3, shape.c), numbers(4, shape.c));
        Self { shape, x, dy: numbers(5, shape.len()), gamma, beta, modulation, silu }
    }

    fn tail(&self) -> NormTail<'_> {
        NormTail { gamma: &self.gamma, beta: &self.beta, scale_shift: self.modulation.as_deref(), silu: self.silu }
    }

    /// out, stats, dx, dgamma, dbeta, dmodulation.
    fn run(&self, isa: Isa) -> [Vec<f32>; 6] {
        let NormShape { n, c, groups, .. } = self.shape;
        let (mut out, mut stats) = (vec![9.0; self.x.len()], vec![[9.0; 2]; n * groups]);
        forward_at(isa, &self.x, self.tail(), EPSILON, self.shape, &mut out, &mut stats);
        let (mut dx, mut gamma, mut beta) = (vec![9.0; self.x.len()], vec![9.0; c], vec![9.0; c]);
        let mut modulation = self.modulation.clone();
        let grads =
            NormGrads { x: &mut dx, gamma: &mut gamma, beta: &mut beta, scale_shift: modulation.as_deref_mut() };
        backward_at(isa, &self.x, &self.dy, self.tail(), &stats, self.shape, grads);
        [out, stats.as_flattened().to_vec(), dx, gamma, beta, modulation.unwrap_or_default()]
    }

    /// The same results in f64.
    fn exact(&self) -> [Vec<f64>; 6] {
        let NormShape { n, c, hw, groups } = self.shape;
        let f = |v: f32| f64::from(v);
        let (per, count) = (c / groups, (c / groups * hw) as f64);
        let mut result = [
            vec![0.0; self.x.len()],
            vec![0.0; 2 * n * groups],
            vec![0.0; self.x.len()],
            vec![0.0; c],
            vec![0.0; c],
            vec![0.0; self.modulation.as_ref().map_or(0, Vec::len)],
        ];
        for group in 0..n * groups {
            let (sample, at) = (group / groups, group * per * hw);
            let x = &self.x[at..at + per * hw];
            let mean = x.iter().map(|&x| f(x)).sum::<f64>() / count;
            let variance = x.iter().map(|&x| (f(x) - mean).powi(2)).sum::<f64>() / count;
            let rstd = 1.0 / (variance + f(EPSILON)).sqrt();
            (result[1][2 * group], result[1][2 * group + 1]) = (mean, rstd);
            let (mut total, mut along, mut dz) = (0.0, 0.0, vec![]);
            for (i, &x) in x.iter().enumerate() {
                let channel = group % groups * per + i / hw;
                let (scale, shift) = self
                    .modulation
                    .as_ref()
                    .map_or((1.0, 0.0), |m| (1.0 + f(m[sample * 2 * c + channel]), f(m[sample * 2 * c + c + channel])));
                let hat = (f(x) - mean) * rstd;
                let normed = f(self.gamma[channel]) * hat + f(self.beta[channel]);
                let z = normed * scale + shift;
                let g = 1.0 / (1.0 + (-z).exp());
                result[0][at + i] = if self.silu { z * g } else { z };
                let d = f(self.dy[at + i]) * if self.silu { g * (1.0 + z * (1.0 - g)) } else { 1.0 };
                if self.modulation.is_some() {
                    result[5][sample * 2 * c + channel] += d * normed;
                    result[5][sample * 2 * c + c + channel] += d;
                }
                result[3][channel] += d * scale * hat;
                result[4][channel] += d * scale;
                let d = d * scale * f(self.gamma[channel]);
                total += d;
                along += d * hat;
                dz.push((d, hat));
            }
            for (i, (d, hat)) in dz.iter().enumerate() {
                result[2][at + i] = rstd * (d - (total + hat * along) / count);
            }
        }
        result
    }
}

#[test]
fn every_instruction_set_agrees_with_f64() {
    for shape in SHAPES {
        for (modulated, silu) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = Case::new(shape, modulated, silu);
            let exact = case.exact();
            for isa in Isa::available() {
                for (i, (got, exact)) in case.run(isa).iter().zip(&exact).enumerate() {
                    // The gradient of a single element is a difference of equal numbers.
                    let limit = if shape.len() == 1 { 1e-3 } else { 4e-6 };
                    assert_close(got, exact, limit, &format!("{isa:?} {shape:?} {modulated} {silu}, result {i}"));
                }
            }
        }
    }
}

#[test]
fn samples_do_not_depend_on_the_rest_of_the_batch() {
    let shape = NormShape { n: 7, c: 12, hw: 81, groups: 3 };
    let (case, per) = (Case::new(shape, true, true), 12 * 81);
    let [out, _, dx, ..] = case.run(Isa::detect());
    let mut alone = Case::new(NormShape { n: 1, ..shape }, true, true);
    alone.x = case.x[4 * per..5 * per].to_vec();
    alone.dy = case.dy[4 * per..5 * per].to_vec();
    alone.modulation = case.modulation.as_ref().map(|m| m[4 * 24..5 * 24].to_vec());
    let [one, _, one_dx, ..] = alone.run(Isa::detect());
    assert!(one == out[4 * per..5 * per] && one_dx == dx[4 * per..5 * per]);
}

#[test]
fn bits_do_not_depend_on_threads() {
    let case = Case::new(NormShape { n: 9, c: 64, hw: 100, groups: 16 }, true, true);
    let [one, two, three] = pools(|| case.run(Isa::detect()));
    assert!(one == two && one == three);
}
