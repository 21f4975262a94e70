//! The augmentation pipeline (§2.6) on host images: flips, then one geometric warp per image.
//!
//! Nine labels tell the network how an image was augmented, so that sampled images do not look augmented. All random
//! numbers of an image are drawn first, into [`Draws`], which depends on the sample counter alone.
mod warp;

use crate::rng::{Purpose, Stream};
use rayon::prelude::*;
use std::f64::consts::PI;
use warp::{Affine, Padding, Scratch};

/// Length of an image's label vector: x-flip, y-flip, scale exponent, cos θ − 1, sin θ, w·cos r, w·sin r, t_x, t_y.
pub(crate) const LABELS: usize = 9;

/// Multiplier of p for the horizontal flip: every p > 0 makes its gate pass, so that half of the images are flipped.
const XFLIP: f64 = 1e8;
/// Standard deviation of the exponents of both scalings.
const SCALE_STD: f64 = 0.2;
/// Probability that the anisotropic scaling is along a random direction rather than along the x axis.
const ANISO_ROTATE: f64 = 0.5;
/// Standard deviation of a translation, as a fraction of the image's size.
const TRANSLATE_STD: f64 = 0.125;

/// All random draws of one image, in the reference's order. A transform is applied if its gate is below its
/// probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Coin of the horizontal flip.
    pub xflip: bool,
    /// Gate of the horizontal flip; like all gates it is uniform in [0, 1).
    pub xflip_gate: f64,
    /// Coin of the vertical flip.
    pub yflip: bool,
    /// Gate of the vertical flip.
    pub yflip_gate: f64,
    /// Exponent of the isotropic scaling, standard normal.
    pub scale: f64,
    /// Gate of the isotropic scaling.
    pub scale_gate: f64,
    /// Rotation angle, uniform in [0, 1) for −π to π.
    pub rotate: f64,
    /// Gate of the rotation.
    pub rotate_gate: f64,
    /// Exponent of the anisotropic scaling, standard normal.
    pub aniso: f64,
    /// Direction of the anisotropic scaling, uniform in [0, 1) for −π to π.
    pub aniso_angle: f64,
    /// Gate of the anisotropic scaling.
    pub aniso_gate: f64,
    /// Gate of the direction, which does not depend on p.
    pub aniso_angle_gate: f64,
    /// Translation along x and y, standard normals.
    pub translate: [f64; 2],
    /// Gate of the translation, one for both axes.
    pub translate_gate: f64,
}

impl Draws {
    /// The draws of training sample `counter`.
    pub fn new(seed: u64, counter: u64) -> Self {
        let mut stream = Stream::new(seed, counter, 0, Purpose::Augment);
        // Fields of a struct expression are evaluated in the order written here.
        Self {
            xflip: stream.below(2) == 1,
            xflip_gate: stream.uniform(),
            yflip: stream.below(2) == 1,
            yflip_gate: stream.uniform(),
            scale: stream.normal(),
            scale_gate: stream.uniform(),
            rotate: stream.uniform(),
            rotate_gate: stream.uniform(),
            aniso: stream.normal(),
            aniso_angle: stream.uniform(),
            aniso_gate: stream.uniform(),
            aniso_angle_gate: stream.uniform(),
            translate: [stream.normal(), stream.normal()],
            translate_gate: stream.uniform(),
        }
    }

    /// The transforms that are applied with probability `p`.
    fn gated(&self, p: f64) -> Applied {
        let pass = |value: f64, gate: f64, probability: f64| if gate < probability { value } else { 0.0 };
        Applied {
            xflip: self.xflip && self.xflip_gate < XFLIP * p,
            yflip: self.yflip && self.yflip_gate < p,
            scale: pass(self.scale, self.scale_gate, p),
            theta: pass((2.0 * self.rotate - 1.0) * PI, self.rotate_gate, p),
            aniso: pass(self.aniso, self.aniso_gate, p),
            r: pass((2.0 * self.aniso_angle - 1.0) * PI, self.aniso_angle_gate, ANISO_ROTATE),
            translate: self.translate.map(|t| pass(t, self.translate_gate, p)),
        }
    }
}

/// The transforms applied to one image; zero means no change.
struct Applied {
    xflip: bool,
    yflip: bool,
    scale: f64,
    theta: f64,
    aniso: f64,
    r: f64,
    translate: [f64; 2],
}

impl Applied {
    fn labels(&self) -> [f32; LABELS] {
        // `libm` gives the same bits on every platform, unlike the functions of std.
        let (sin, cos) = libm::sincos(self.theta);
        let (sin_r, cos_r) = libm::sincos(self.r);
        let [tx, ty] = self.translate;
        let flips = [self.xflip, self.yflip].map(|f| f64::from(u8::from(f)));
        [flips[0], flips[1], self.scale, cos - 1.0, sin, self.aniso * cos_r, self.aniso * sin_r, tx, ty]
            .map(|label| label as f32)
    }

    /// Scale(1/s) · Rot(θ) · Rot(−r) · Scale(1/s_a, s_a) · Rot(r) · Translate(−t_x, −t_y), from the pixels of the
    /// output to those of the input, both counted from the image centre.
    fn output_to_input(&self, h: usize, w: usize) -> Affine {
        let mut g = Affine::IDENTITY;
        if self.scale != 0.0 {
            let inverse = libm::exp2(-SCALE_STD * self.scale);
            g = g.then_scale(inverse, inverse);
        }
        if self.theta != 0.0 {
            g = g.then_rotate(self.theta);
        }
        // Without this test Rot(−r)·Rot(r) would differ from the identity by a rounding error, and unwarped images
        // would be filtered.
        if self.aniso != 0.0 {
            let s = libm::exp2(SCALE_STD * self.aniso);
            g = g.then_rotate(-self.r).then_scale(1.0 / s, s).then_rotate(self.r);
        }
        let [tx, ty] = self.translate;
        g.then_translate(-tx * w as f64 * TRANSLATE_STD, -ty * h as f64 * TRANSLATE_STD)
    }
}

/// How far an image is extended by reflection before it is warped; beyond that it is zero.
///
/// Both choices give the same image up to rounding, except within three pixels of its border, and there only if the
/// warp shrinks or rotates. The filter's last taps then read beyond the margin: zeros, or more reflection if another
/// image of the batch needs a larger margin. On pixels in [−1, 1] the difference is below 2e-4, or 1e-2 for a scaling
/// at four standard deviations. (A margin is at most the size − 1. Where this limits the margin of an image, it
/// limits that of the batch as well, so that both read the same zeros. Images under seven pixels are limited even
/// without a warp; there `Batch` changes their border and `Image` does not.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Margin {
    /// As far as this image needs, which is what the reference does for a batch of one. An image never depends on its
    /// batch, and one that needs no warp keeps its exact pixels.
    #[default]
    Image,
    /// As far as any image of the batch needs, and every image is filtered: exactly the reference.
    Batch,
}

/// Augments every image in place, with probability `p` for each transform, and returns the labels of each image. p =
/// 0 changes nothing; any other p flips half of the images horizontally.
///
/// # Shapes
/// `images` [N, C, H, W] flat, `shape` its four sizes, `draws` \[N\] -> labels \[N\] of 9.
pub fn augment(images: &mut [f32], shape: [usize; 4], draws: &[Draws], p: f64, margin: Margin) -> Vec<[f32; LABELS]> {
    let [n, c, h, w] = shape;
    assert!(n * c * h * w == images.len() && !images.is_empty(), "{} values are not {shape:?}", images.len());
    assert!(n == draws.len(), "{} draws for {n} images", draws.len());

    let applied: Vec<Applied> = draws.iter().map(|d| d.gated(p)).collect();
    let warps: Vec<Affine> = applied.iter().map(|a| a.output_to_input(h, w)).collect();
    let common = match margin {
        Margin::Image => None,
        // The reference pads the batch as one tensor, so all images share the largest margin.
        Margin::Batch => warps.iter().map(|g| Padding::for_warp(g, h, w)).reduce(Padding::max),
    };
    images.par_chunks_mut(c * h * w).zip(applied.par_iter().zip(&warps)).for_each_init(
        Scratch::default,
        |scratch, (image, (applied, g))| {
            flip(image, h, w, applied.xflip, applied.yflip);
            if common.is_none() && *g == Affine::IDENTITY {
                return;
            }
            let padding = common.unwrap_or_else(|| Padding::for_warp(g, h, w));
            image.chunks_exact_mut(h * w).for_each(|plane| scratch.warp(plane, h, w, g, padding));
        },
    );
    applied.iter().map(Applied::labels).collect()
}

/// Flips every plane of `image` along x, y or both.
fn flip(image: &mut [f32], h: usize, w: usize, x: bool, y: bool) {
    if x {
        image.chunks_exact_mut(w).for_each(<[f32]>::reverse);
    }
    if y {
        for plane in image.chunks_exact_mut(h * w) {
            for row in 0..h / 2 {
                let (top, bottom) = plane.split_at_mut((h - 1 - row) * w);
                top[row * w..][..w].swap_with_slice(&mut bottom[..w]);
            }
        }
    }
}
