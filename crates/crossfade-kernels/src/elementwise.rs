//! Element-wise functions: SiLU, its gradient, and sums.
use crate::CHUNK;
use crate::simd::{Isa, Kernel, Simd, map, map2, update};
use crate::team::Share;
use rayon::prelude::*;

/// out = SiLU(x) = x·σ(x).
///
/// # Shapes
/// `x`, `out` `[n]`.
pub fn silu(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let isa = Isa::detect();
    out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).share(|(out, x)| isa.run(Silu { x, out }));
}

/// The gradient of [`silu`]: dx = dy·σ(x)(1 + x(1 − σ(x))).
///
/// # Shapes
/// `x`, `dy`, `dx` `[n]`.
pub fn silu_backward(x: &[f32], dy: &[f32], dx: &mut [f32]) {
    assert!(x.len() == dx.len() && dy.len() == dx.len());
    let isa = Isa::detect();
    let parts = dx.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).zip(dy.par_chunks(CHUNK));
    parts.share(|((dx, x), dy)| isa.run(SiluBackward { x, dy, dx }));
}

/// sum += x.
///
/// # Shapes
/// `sum`, `x` `[n]`.
pub fn add_to(sum: &mut [f32], x: &[f32]) {
    assert_eq!(x.len(), sum.len());
    let isa = Isa::detect();
    sum.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).share(|(sum, x)| isa.run(AddTo { sum, x }));
}

struct Silu<'a> {
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Silu<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map(
            s,
            self.x,
            self.out,
            #[inline(always)]
            |x| s.mul(x, s.sigmoid(x)),
        );
    }
}

struct SiluBackward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for SiluBackward<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map2(
            s,
            self.x,
            self.dy,
            self.dx,
            #[inline(always)]
            |x, dy| s.mul(dy, s.silu_derivative(x)),
        );
    }
}

struct AddTo<'a> {
    sum: &'a mut [f32],
    x: &'a [f32],
}

impl Kernel for AddTo<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        update(
            s,
            self.sum,
            self.x,
            #[inline(always)]
            |a, b| s.add(a, b),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers};

    #[test]
    fn silu_and_its_derivative() {
        for count in [0, 1, 15, 16, 1000, CHUNK + 7] {
            let x: Vec<f32> = numbers(1, count).iter().map(|x| 20.0 * x).collect();
            let dy = numbers(2, count);
            let exact = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                x.iter().zip(&dy).map(|(&x, &dy)| f(f64::from(x), f64::from(dy))).collect()
            };
            for isa in Isa::available() {
                let (mut y, mut dx) = (vec![9.0; count], vec![9.0; count]);
                isa.run(Silu { x: &x, out: &mut y });
                isa.run(SiluBackward { x: &x, dy: &dy, dx: &mut dx });
                assert_close(&y, &exact(|x, _| x / (1.0 + (-x).exp())), 2e-7, "silu");
                let derivative = exact(|x, dy| {
                    let g = 1.0 / (1.0 + (-x).exp());
                    dy * g * (1.0 + x * (1.0 - g))
                });
                assert_close(&dx, &derivative, 5e-7, "its gradient");
            }
        }
    }

    #[test]
    fn extreme_arguments_stay_finite() {
        let x = [1e30, -1e30, 200.0, -200.0, 0.0];
        let mut y = [9.0; 5];
        silu(&x, &mut y);
        assert_eq!((y[0], y[2], y[4]), (1e30, 200.0, 0.0));
        assert!(y[1].abs() < 1e-7 && y[3].abs() < 1e-30, "{y:?}");
        let mut dx = [9.0; 5];
        silu_backward(&x, &[1.0; 5], &mut dx);
        assert!(dx[0] == 1.0 && dx[1].abs() < 1e-7 && dx[4] == 0.5, "{dx:?}");
    }

    #[test]
    fn sums() {
        let (a, b) = (numbers(1, CHUNK + 5), numbers(2, CHUNK + 5));
        let mut sum = a.clone();
        add_to(&mut sum, &b);
        assert!(sum.iter().zip(&a).zip(&b).all(|((sum, a), b)| *sum == a + b));
    }
}
