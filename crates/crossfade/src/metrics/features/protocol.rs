//! How images are prepared for the network: three published protocols. They differ in the resize to 299x299, and
//! their values cannot be compared.
use crate::data::Image;
use crossfade_kernels::channels_last::Map;
use crossfade_math::registry;
use std::fmt;

/// Rows and columns of the network's input.
pub(super) const SIDE: usize = 299;

registry! {
    /// A published way of preparing images.
    #[derive(Copy, Default, Eq, Hash)]
    pub enum Protocol("protocol") {
        /// torch-fidelity and the original TensorFlow code; the ADM paper's.
        #[default]
        TorchFidelity = "torch-fidelity",
        /// pytorch-fid.
        PytorchFid = "pytorch-fid",
        /// clean-fid, mode "clean".
        CleanFid = "clean-fid",
    }
}

impl Protocol {
    /// A description of the preparation.
    pub fn resize(self) -> &'static str {
        match self {
            Self::TorchFidelity => "TensorFlow 1 bilinear to 299 (no half-pixel centres), then (x - 128)/128",
            Self::PytorchFid => "x/255, bilinear to 299 (half-pixel centres, no antialias), then 2x - 1",
            Self::CleanFid => "Pillow bicubic to 299 in f32 (antialiased), clipped to 0..255, then (x - 128)/128",
        }
    }

    /// Writes `image` as the network's input.
    ///
    /// # Shapes
    /// `image` with 3 channels; `to` [1, 299, 299, 3].
    pub(super) fn fill(self, image: &Image, to: &mut Map) {
        match self {
            Self::TorchFidelity => {
                let at = |scale: f32, i: usize| i as f32 * scale;
                let lerp = |a: f32, b: f32, t: f32| a + (b - a) * t;
                bilinear(image, to, at, f32::from, lerp, |v| (v - 128.0) / 128.0);
            }
            Self::PytorchFid => {
                let at = |scale: f32, i: usize| (scale * (i as f32 + 0.5) - 0.5).max(0.0);
                let lerp = |a: f32, b: f32, t: f32| a * (1.0 - t) + b * t;
                bilinear(image, to, at, |v| f32::from(v) / 255.0, lerp, |v| 2.0 * v - 1.0);
            }
            Self::CleanFid => bicubic(image, to),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// For every output position the two source pixels around it, and the distance from the first.
fn neighbours(size: usize, at: impl Fn(f32, usize) -> f32) -> Vec<(usize, usize, f32)> {
    let scale = size as f32 / SIDE as f32;
    let position = |i: usize| {
        let x = at(scale, i);
        let low = (x as usize).min(size - 1);
        (low, (low + 1).min(size - 1), x - low as f32)
    };
    (0..SIDE).map(position).collect()
}

/// Bilinear resize: the horizontal pass first, then the vertical one, in f32 as in the originals.
fn bilinear(
    image: &Image,
    to: &mut Map,
    at: impl Fn(f32, usize) -> f32 + Copy,
    read: impl Fn(u8) -> f32,
    lerp: impl Fn(f32, f32, f32) -> f32,
    finish: impl Fn(f32) -> f32,
) {
    let (columns, rows) = (neighbours(image.width, at), neighbours(image.height, at));
    let wide: Vec<f32> = image
        .pixels
        .chunks_exact(3 * image.width)
        .flat_map(|line| {
            let (read, lerp) = (&read, &lerp);
            let pixel = move |&(a, b, t): &(usize, usize, f32)| {
                (0..3).map(move |c| lerp(read(line[3 * a + c]), read(line[3 * b + c]), t))
            };
            columns.iter().flat_map(pixel)
        })
        .collect();
    let line = |y: usize| &wide[3 * SIDE * y..][..3 * SIDE];
    for (y, &(a, b, t)) in rows.iter().enumerate() {
        for ((to, &a), &b) in to.line_mut(0, y).iter_mut().zip(line(a)).zip(line(b)) {
            *to = finish(lerp(a, b, t));
        }
    }
}

/// The source pixels of each output pixel of Pillow's bicubic filter: the index of the first, and the weights.
fn taps(size: usize) -> Vec<(usize, Vec<f64>)> {
    let cubic = |x: f64| match x.abs() {
        x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
        _ => 0.0,
    };
    let scale = size as f64 / SIDE as f64;
    let filter_scale = scale.max(1.0);
    let tap = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - 2.0 * filter_scale + 0.5).max(0.0) as usize;
        let end = ((centre + 2.0 * filter_scale + 0.5) as usize).min(size);
        let mut weights: Vec<f64> = (first..end).map(|j| cubic((j as f64 - centre + 0.5) / filter_scale)).collect();
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= total);
        (first, weights)
    };
    (0..SIDE).map(tap).collect()
}

/// Bicubic resize as Pillow does for images of mode F: sums in f64, each pass rounded to f32, horizontal pass first
/// (Pillow up to 12).
fn bicubic(image: &Image, to: &mut Map) {
    let mut wide = Vec::with_capacity(3 * SIDE * image.height);
    let columns = taps(image.width);
    for line in image.pixels.chunks_exact(3 * image.width) {
        for (first, weights) in &columns {
            let mut sums = [0.0f64; 3];
            for (pixel, w) in line[3 * first..].chunks_exact(3).zip(weights) {
                sums.iter_mut().zip(pixel).for_each(|(sum, &v)| *sum += f64::from(v) * w);
            }
            // Pillow skips the pass if the length does not change; its taps would be exactly 0, 1, 0, so the result
            // is the same.
            wide.extend(sums.map(|sum| sum as f32));
        }
    }
    let mut sums = vec![0.0f64; 3 * SIDE];
    for (y, (first, weights)) in taps(image.height).into_iter().enumerate() {
        sums.fill(0.0);
        for (line, w) in wide.chunks_exact(3 * SIDE).skip(first).zip(weights) {
            sums.iter_mut().zip(line).for_each(|(sum, &v)| *sum += f64::from(v) * w);
        }
        for (to, &sum) in to.line_mut(0, y).iter_mut().zip(&sums) {
            *to = ((sum as f32).clamp(0.0, 255.0) - 128.0) / 128.0;
        }
    }
}
