//! Resizing that gives exactly the bytes of Pillow.
//!
//! Pillow resamples in two passes. Weights are computed in f64, normalised and rounded to 22-bit fixed point, and
//! each pass rounds to 8 bits. Metrics such as FID depend on these bytes. The order of the two passes, which Pillow
//! 13 changed, is therefore an option.
use serde::{Deserialize, Serialize};

use super::Image;

/// Fractional bits of a weight: 32 bits less 8 for the pixel and 2 for sums that exceed its range.
const PRECISION: u32 = 22;

/// A resampling filter of Pillow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filter {
    /// Mean over the pixel's area.
    Box,
    /// Triangle of radius 1.
    Bilinear,
    /// Cubic convolution with a = -1/2, radius 2.
    #[default]
    Bicubic,
    /// Windowed sinc of radius 3.
    Lanczos,
}

/// Which pass runs first when both sides change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassOrder {
    /// Pillow up to 12: horizontal first, except for images that are over a hundred times higher than wide and shrink
    /// in height.
    #[default]
    HorizontalFirst,
    /// Pillow 13: vertical first where the image loses more than twice as many rows as columns.
    Cheapest,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Self::Box => 0.5,
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Self::Box => f64::from(x > -0.5 && x <= 0.5),
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => match x.abs() {
                x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
                x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
                _ => 0.0,
            },
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

/// sin(πx) / πx
fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    libm::sin(x) / x
}

impl PassOrder {
    fn horizontal_first(self, image: &Image, width: usize, height: usize) -> bool {
        match self {
            Self::HorizontalFirst => !(image.height > 100 * image.width && height < image.height),
            Self::Cheapest => {
                let (fewer_columns, fewer_rows) =
                    (image.width as i64 - width as i64, image.height as i64 - height as i64);
                !(fewer_rows > 0 && fewer_rows > 2 * fewer_columns)
            }
        }
    }
}

/// The source pixels of one output pixel: the index of the first, and the weights of it and its successors.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

fn taps(n_in: usize, n_out: usize, filter: Filter) -> Vec<Taps> {
    let scale = n_in as f64 / n_out as f64;
    // When shrinking, the filter is widened to cover all source pixels of an output pixel, against aliasing.
    let filter_scale = scale.max(1.0);
    let support = filter.support() * filter_scale;
    let inverse = 1.0 / filter_scale;
    // Rounds half away from zero, as Pillow's C code does.
    let fixed = |w: f64| (w * f64::from(1 << PRECISION) + if w < 0.0 { -0.5 } else { 0.5 }) as i32;
    (0..n_out)
        .map(|i| {
            let centre = (i as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(n_in);
            let weights: Vec<f64> = (first..end).map(|j| filter.weight((j as f64 - centre + 0.5) * inverse)).collect();
            let total: f64 = weights.iter().sum();
            let norm = if total == 0.0 { 1.0 } else { total };
            Taps { first, weights: weights.iter().map(|w| fixed(w / norm)).collect() }
        })
        .collect()
}

fn round_to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

fn horizontal(image: &Image, width: usize, filter: Filter) -> Image {
    let taps = taps(image.width, width, filter);
    let channels = image.channels;
    let mut pixels = Vec::with_capacity(width * image.height * channels);
    for row in image.pixels.chunks_exact(image.width * channels) {
        for Taps { first, weights } in &taps {
            // Starting at one half makes the final shift round instead of truncate.
            let mut sums = [1 << (PRECISION - 1); 3];
            for (pixel, w) in row[first * channels..].chunks_exact(channels).zip(weights) {
                for (sum, &v) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(v) * w;
                }
            }
            pixels.extend(sums[..channels].iter().map(|&sum| round_to_byte(sum)));
        }
    }
    Image::new(width, image.height, channels, pixels)
}

fn vertical(image: &Image, height: usize, filter: Filter) -> Image {
    let row = image.width * image.channels;
    let mut pixels = Vec::with_capacity(row * height);
    let mut sums = vec![0i32; row];
    for Taps { first, weights } in taps(image.height, height, filter) {
        sums.fill(1 << (PRECISION - 1));
        for (source, w) in image.pixels[first * row..].chunks_exact(row).zip(weights) {
            for (sum, &v) in sums.iter_mut().zip(source) {
                *sum += i32::from(v) * w;
            }
        }
        pixels.extend(sums.iter().map(|&sum| round_to_byte(sum)));
    }
    Image::new(image.width, height, image.channels, pixels)
}

/// The image at `width` x `height` pixels, byte for byte as by Pillow's `Image.resize`.
pub fn resize(image: &Image, width: usize, height: usize, filter: Filter, order: PassOrder) -> Image {
    assert!(width > 0 && height > 0, "an image has at least one pixel");
    match (width != image.width, height != image.height) {
        (false, false) => image.clone(),
        (true, false) => horizontal(image, width, filter),
        (false, true) => vertical(image, height, filter),
        (true, true) if order.horizontal_first(image, width, height) => {
            vertical(&horizontal(image, width, filter), height, filter)
        }
        (true, true) => horizontal(&vertical(image, height, filter), width, filter),
    }
}
