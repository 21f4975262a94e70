//! Dense layers y = x Wᵀ + b, for small batches.
use crate::product::{Matrix, matmul};
use crate::simd::{Isa, Kernel, MAX_LANES, Simd};
use crate::team::Share;
use rayon::prelude::*;

/// Shape of a dense layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Samples.
    pub n: usize,
    /// Inputs of each sample.
    pub cin: usize,
    /// Outputs of each sample.
    pub cout: usize,
}

/// The number of inputs of a layer is a multiple of this: two of the widest vectors.
pub const WIDTH: usize = 2 * MAX_LANES;

impl LinearShape {
    /// Whether these kernels can compute it: the inputs must be a multiple of [`WIDTH`].
    pub fn fits(&self) -> bool {
        self.n > 0 && self.cin > 0 && self.cout > 0 && self.cin.is_multiple_of(WIDTH)
    }
}

/// Samples that a thread takes at a time.
const SAMPLES: usize = 8;

/// y = x Wᵀ + b.
///
/// # Shapes
/// `x` `[n, cin]`, `weight` `[cout, cin]`, `bias` `[cout]`, `out` `[n, cout]`; cin a multiple of 32.
pub fn forward(x: &[f32], weight: &[f32], bias: Option<&[f32]>, shape: LinearShape, out: &mut [f32]) {
    forward_at(Isa::detect(), x, weight, bias, shape, out);
}

fn forward_at(isa: Isa, x: &[f32], weight: &[f32], bias: Option<&[f32]>, shape: LinearShape, out: &mut [f32]) {
    let LinearShape { n, cin, cout } = shape;
    assert!(shape.fits() && x.len() == n * cin && weight.len() == cout * cin && out.len() == n * cout);
    assert!(bias.is_none_or(|bias| bias.len() == cout));
    out.par_chunks_mut(SAMPLES * cout).zip(x.par_chunks(SAMPLES * cin)).share(|(out, x)| {
        isa.run(Forward { x, weight, bias, shape, out });
    });
}

/// The forward pass of at most `SAMPLES` samples.
struct Forward<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    shape: LinearShape,
    out: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LinearShape { cin, cout, .. } = self.shape;
        for (o, weight) in self.weight.chunks_exact(cin).enumerate() {
            let bias = self.bias.map_or(0.0, |bias| bias[o]);
            for (x, out) in self.x.chunks_exact(cin).zip(self.out.chunks_exact_mut(cout)) {
                // Two chains of sums hide half the latency; the row of weights stays in the first-level cache for all
                // samples.
                let mut sums = [s.splat(0.0); 2];
                for (w, x) in weight.chunks_exact(2 * S::LANES).zip(x.chunks_exact(2 * S::LANES)) {
                    sums[0] = s.fma(s.load(w), s.load(x), sums[0]);
                    sums[1] = s.fma(s.load(&w[S::LANES..]), s.load(&x[S::LANES..]), sums[1]);
                }
                out[o] = s.sum(s.add(sums[0], sums[1])) + bias;
            }
        }
    }
}

/// dx = dy W, dW = dyᵀ x, db = Σ dy.
///
/// # Shapes
/// Those of [`forward`]; gradients have the shape of what they belong to.
pub fn backward(
    x: &[f32],
    weight: &[f32],
    dy: &[f32],
    shape: LinearShape,
    dx: &mut [f32],
    dweight: &mut [f32],
    dbias: &mut [f32],
) {
    backward_at(Isa::detect(), x, weight, dy, shape, [dx, dweight, dbias]);
}

fn backward_at(isa: Isa, x: &[f32], weight: &[f32], dy: &[f32], shape: LinearShape, grads: [&mut [f32]; 3]) {
    let LinearShape { n, cin, cout } = shape;
    let [dx, dweight, dbias] = grads;
    assert!(shape.fits() && x.len() == n * cin && weight.len() == cout * cin && dy.len() == n * cout);
    assert!(dx.len() == x.len() && dweight.len() == weight.len() && dbias.len() == cout);
    dx.par_chunks_mut(SAMPLES * cin).zip(dy.par_chunks(SAMPLES * cout)).share(|(dx, dy)| {
        let a = Matrix::new(dy, cout);
        isa.run(Product { size: [dx.len() / cin, cout], a, b: weight, c: dx, columns: cin });
    });
    const ROWS: usize = 64;
    dweight.par_chunks_mut(ROWS * cin).enumerate().share(|(i, dweight)| {
        let a = Matrix::transposed(&dy[i * ROWS..], cout);
        isa.run(Product { size: [dweight.len() / cin, n], a, b: x, c: dweight, columns: cin });
    });
    dbias.fill(0.0);
    for dy in dy.chunks_exact(cout) {
        dbias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
    }
}

/// c = a·b with dense b and c.
struct Product<'a> {
    size: [usize; 2],
    a: Matrix<'a>,
    b: &'a [f32],
    c: &'a mut [f32],
    columns: usize,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ([m, k], n) = (self.size, self.columns);
        matmul(s, [m, k, n], self.a, Matrix::new(self.b, n), self.c, n, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers};

    #[test]
    fn every_instruction_set_agrees_with_f64() {
        for (n, cin, cout) in [(1, 32, 1), (3, 64, 70), (17, 256, 130)] {
            let shape = LinearShape { n, cin, cout };
            let (x, weight, bias, dy) =
                (numbers(1, n * cin), numbers(2, cout * cin), numbers(3, cout), numbers(4, n * cout));
            let f = |v: &f32| f64::from(*v);
            let (mut y, mut dx) = (vec![0.0; n * cout], vec![0.0; n * cin]);
            let (mut dweight, mut dbias) = (vec![0.0; cout * cin], vec![0.0; cout]);
            for b in 0..n {
                for o in 0..cout {
                    let d = f(&dy[b * cout + o]);
                    dbias[o] += d;
                    y[b * cout + o] = f(&bias[o]);
                    for i in 0..cin {
                        y[b * cout + o] += f(&x[b * cin + i]) * f(&weight[o * cin + i]);
                        dx[b * cin + i] += d * f(&weight[o * cin + i]);
                        dweight[o * cin + i] += d * f(&x[b * cin + i]);
                    }
                }
            }
            for isa in Isa::available() {
                let mut out = vec![9.0; n * cout];
                forward_at(isa, &x, &weight, Some(&bias), shape, &mut out);
                assert_close(&out, &y, 2e-6, &format!("{isa:?} {shape:?}"));
                let mut got = [vec![9.0; n * cin], vec![9.0; cout * cin], vec![9.0; cout]];
                let [a, b, c] = &mut got;
                backward_at(isa, &x, &weight, &dy, shape, [a, b, c]);
                for (got, exact) in got.iter().zip([&dx, &dweight, &dbias]) {
                    assert_close(got, exact, 2e-6, &format!("gradient, {isa:?} {shape:?}"));
                }
            }
        }
    }
}
