//! Convolution of images in planes (NCHW), and its gradients by input, weights and bias.
//!
//! The algorithm depends on channels, image size, kernel and stride only, and the order of every sum is fixed. So the
//! result for an image has the same bits in any batch and on any number of threads.
mod direct;
mod shift_add;
mod winograd;

use crate::product::PackedMatrix;
use crate::simd::Isa;
use crate::team::Share;
use rayon::prelude::*;
use winograd::Weights;

/// Shape of a convolution with a square kernel and zero padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Images in the batch.
    pub n: usize,
    /// Channels of the input.
    pub ci: usize,
    /// Channels of the output.
    pub co: usize,
    /// Height of the input.
    pub h: usize,
    /// Width of the input.
    pub w: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
    /// Distance of the windows of neighbouring outputs, in pixels of the input.
    pub stride: usize,
    /// Rows or columns of zeros on each side.
    pub padding: usize,
}

impl ConvShape {
    /// Height of the output.
    pub fn out_h(&self) -> usize {
        (self.h + 2 * self.padding - self.kernel) / self.stride + 1
    }

    /// Width of the output.
    pub fn out_w(&self) -> usize {
        (self.w + 2 * self.padding - self.kernel) / self.stride + 1
    }

    /// Number of floats in the input.
    pub fn x_len(&self) -> usize {
        self.n * self.ci * self.h * self.w
    }

    /// Number of floats in the output.
    pub fn y_len(&self) -> usize {
        self.n * self.co * self.out_h() * self.out_w()
    }

    /// Number of floats in the weights.
    pub fn weight_len(&self) -> usize {
        self.co * self.ci * self.taps()
    }

    /// Multiplications and additions of the direct method, counted separately.
    pub fn flops(&self) -> f64 {
        2.0 * self.y_len() as f64 * (self.ci * self.taps()) as f64
    }

    fn taps(&self) -> usize {
        self.kernel * self.kernel
    }

    /// The convolution of dy with rotated, transposed weights that gives dx; only for stride 1 and padding < kernel.
    fn transposed(&self) -> Self {
        Self {
            ci: self.co,
            co: self.ci,
            h: self.out_h(),
            w: self.out_w(),
            padding: self.kernel - 1 - self.padding,
            ..*self
        }
    }

    fn check(&self) {
        let sizes = [self.ci, self.co, self.h, self.w, self.kernel, self.stride];
        assert!(sizes.iter().all(|&size| size > 0), "a size of this convolution is zero: {self:?}");
        let fits = |size: usize| size + 2 * self.padding >= self.kernel;
        assert!(fits(self.h) && fits(self.w), "the kernel is larger than the padded image: {self:?}");
        assert!(self.padding < self.kernel, "the padding must be smaller than the kernel: {self:?}");
    }
}

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// F(4x4, 3x3): a quarter of the multiplications, for 3x3 kernels at stride 1.
    Winograd,
    /// A matrix product over the kernel's window, without forming the window's matrix.
    Direct,
}

impl Algorithm {
    /// The faster algorithm for `shape`; it does not depend on the batch size.
    pub fn choose(shape: &ConvShape) -> Self {
        // With fewer than 8 channels on either side the transforms cost more than they save; small images gain (measured).
        let winograd = Self::winograd_fits(shape) && shape.ci >= 8 && shape.co >= 8;
        if winograd { Self::Winograd } else { Self::Direct }
    }

    fn winograd_fits(shape: &ConvShape) -> bool {
        shape.kernel == 3 && shape.stride == 1
    }
}

/// An instruction set and an algorithm. The functions of this module choose both; tests and benchmarks can choose others.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    isa: Isa,
    algorithm: Algorithm,
}

impl Method {
    /// The fastest method for `shape` on this processor.
    pub fn choose(shape: &ConvShape) -> Self {
        Self { isa: Isa::detect(), algorithm: Algorithm::choose(shape) }
    }

    /// The given method; `None` if `algorithm` cannot compute `shape`.
    pub fn new(isa: Isa, algorithm: Algorithm, shape: &ConvShape) -> Option<Self> {
        let fits = algorithm == Algorithm::Direct || Algorithm::winograd_fits(shape);
        fits.then_some(Self { isa, algorithm })
    }

    /// [`forward`] by this method.
    pub fn forward(self, x: &[f32], weight: &[f32], bias: Option<&[f32]>, shape: &ConvShape, out: &mut [f32]) {
        shape.check();
        check_len("weights", weight, shape.weight_len());
        check_forward(x, bias, shape, out);
        match self.algorithm {
            Algorithm::Winograd => {
                let weights = Weights::forward(weight, shape);
                winograd::convolve(self.isa, x, weights, bias, shape, out);
            }
            Algorithm::Direct if shift_add::is_faster(self.isa, shape) => {
                let packed = shift_add::filters(self.isa, weight, shape);
                shift_add::convolve(self.isa, x, &packed, bias, shape, out);
            }
            Algorithm::Direct => {
                let packed = direct::filters(self.isa, weight, shape);
                direct::convolve(self.isa, x, &packed, bias, shape, out);
            }
        }
    }

    /// [`backward_input`] by this method.
    pub fn backward_input(self, dy: &[f32], weight: &[f32], shape: &ConvShape, dx: &mut [f32]) {
        shape.check();
        check_len("weights", weight, shape.weight_len());
        check_len("output gradient", dy, shape.y_len());
        check_len("input gradient", dx, shape.x_len());
        match self.algorithm {
            Algorithm::Winograd => {
                let weights = Weights::backward(weight, shape);
                winograd::convolve(self.isa, dy, weights, None, &shape.transposed(), dx);
            }
            Algorithm::Direct if shift_add::is_faster(self.isa, &shape.transposed()) => {
                let packed = shift_add::rotated_filters(self.isa, weight, shape);
                shift_add::convolve(self.isa, dy, &packed, None, &shape.transposed(), dx);
            }
            Algorithm::Direct if shape.stride == 1 => {
                let packed = direct::rotated_filters(self.isa, weight, shape);
                direct::convolve(self.isa, dy, &packed, None, &shape.transposed(), dx);
            }
            Algorithm::Direct => direct::backward_input(self.isa, dy, weight, shape, dx),
        }
    }

    /// [`backward_weight`] by this method.
    pub fn backward_weight(self, x: &[f32], dy: &[f32], shape: &ConvShape, dw: &mut [f32], db: Option<&mut [f32]>) {
        shape.check();
        check_len("input", x, shape.x_len());
        check_len("output gradient", dy, shape.y_len());
        check_len("weight gradient", dw, shape.weight_len());
        if let Some(db) = db {
            check_len("bias gradient", db, shape.co);
            bias_gradient(dy, shape, db);
        }
        match self.algorithm {
            Algorithm::Winograd => winograd::backward_weight(self.isa, x, dy, shape, dw),
            Algorithm::Direct => direct::backward_weight(self.isa, x, dy, shape, dw),
        }
    }
}

/// out = x ∗ weight + bias.
///
/// # Shapes
/// `x` [n, ci, h, w], `weight` [co, ci, kernel, kernel], `bias` \[co\], `out` [n, co, out_h, out_w].
pub fn forward(x: &[f32], weight: &[f32], bias: Option<&[f32]>, shape: &ConvShape, out: &mut [f32]) {
    Method::choose(shape).forward(x, weight, bias, shape, out);
}

/// The gradient by the input.
///
/// # Shapes
/// `dy` [n, co, out_h, out_w], `weight` [co, ci, kernel, kernel], `dx` [n, ci, h, w].
pub fn backward_input(dy: &[f32], weight: &[f32], shape: &ConvShape, dx: &mut [f32]) {
    Method::choose(shape).backward_input(dy, weight, shape, dx);
}

/// The gradients by weights and bias.
///
/// # Shapes
/// `x` [n, ci, h, w], `dy` [n, co, out_h, out_w], `dw` [co, ci, kernel, kernel], `db` \[co\].
pub fn backward_weight(x: &[f32], dy: &[f32], shape: &ConvShape, dw: &mut [f32], db: Option<&mut [f32]>) {
    Method::choose(shape).backward_weight(x, dy, shape, dw, db);
}

/// Weights that are packed once for [`forward`], for networks that no longer change.
pub struct Prepared {
    shape: ConvShape,
    isa: Isa,
    filters: Filters,
}

enum Filters {
    Winograd(winograd::Packed),
    Direct(PackedMatrix),
    ShiftAdd(PackedMatrix),
}

impl Prepared {
    /// Prepares for images of `shape`, in batches of any size.
    ///
    /// # Shapes
    /// `weight` [co, ci, kernel, kernel].
    pub fn new(weight: &[f32], shape: &ConvShape) -> Self {
        shape.check();
        check_len("weights", weight, shape.weight_len());
        let Method { isa, algorithm } = Method::choose(shape);
        let filters = match algorithm {
            Algorithm::Winograd => Filters::Winograd(Weights::forward(weight, shape).pack(isa)),
            Algorithm::Direct if shift_add::is_faster(isa, shape) => {
                Filters::ShiftAdd(shift_add::filters(isa, weight, shape).detach())
            }
            Algorithm::Direct => Filters::Direct(direct::filters(isa, weight, shape).detach()),
        };
        Self { shape: *shape, isa, filters }
    }

    /// Computes the same bits as [`forward`] for `n` images.
    ///
    /// # Shapes
    /// `x` [n, ci, h, w], `bias` \[co\], `out` [n, co, out_h, out_w].
    pub fn forward(&self, x: &[f32], bias: Option<&[f32]>, n: usize, out: &mut [f32]) {
        let shape = ConvShape { n, ..self.shape };
        check_forward(x, bias, &shape, out);
        match &self.filters {
            Filters::Winograd(packed) => {
                winograd::convolve(self.isa, x, packed.weights(&shape), bias, &shape, out);
            }
            Filters::Direct(packed) => direct::convolve(self.isa, x, packed, bias, &shape, out),
            Filters::ShiftAdd(packed) => shift_add::convolve(self.isa, x, packed, bias, &shape, out),
        }
    }
}

fn check_len(what: &str, slice: &[f32], len: usize) {
    assert!(slice.len() == len, "the {what} of a convolution must have {len} floats, not {}", slice.len());
}

fn check_forward(x: &[f32], bias: Option<&[f32]>, shape: &ConvShape, out: &[f32]) {
    check_len("input", x, shape.x_len());
    check_len("output", out, shape.y_len());
    if let Some(bias) = bias {
        check_len("bias", bias, shape.co);
    }
}

/// Independent sums within a plane, so that an addition need not wait for the one before.
const SUMS: usize = 16;

/// Σ dy over images and pixels: within a plane in f32, in independent sums; over planes in order, in f64.
fn bias_gradient(dy: &[f32], shape: &ConvShape, db: &mut [f32]) {
    let plane = shape.out_h() * shape.out_w();
    db.par_iter_mut().with_min_len(8).enumerate().share(|(o, db)| {
        let planes = (0..shape.n).map(|n| &dy[(n * shape.co + o) * plane..][..plane]);
        *db = planes.map(plane_sum).sum::<f64>() as f32;
    });
}

fn plane_sum(plane: &[f32]) -> f64 {
    let mut sums = [0.0f32; SUMS];
    let (blocks, rest) = plane.as_chunks::<SUMS>();
    for block in blocks {
        sums.iter_mut().zip(block).for_each(|(sum, x)| *sum += x);
    }
    sums.iter().chain(rest).map(|&x| f64::from(x)).sum()
}
