//! Bicubic resizing that gives exactly the bytes of MATLAB's `imresize`.
//!
//! The low-resolution images of super-resolution benchmarks are made with it, and networks trained on them work badly
//! on images made in another way. It differs from Pillow's bicubic filter: borders are mirrored instead of cut off,
//! and the vertical pass comes first.
use std::path::Path;

use super::Image;

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::limits::{IMAGE_PIXELS, need, sharing};

/// The scale of a resize as a ratio of integers, so that 1/3 is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The numerator: sides are multiplied by it.
    pub up: u32,
    /// The denominator: sides are divided by it.
    pub down: u32,
}

impl Scale {
    /// Reads `4`, `1/4` or `3/2`.
    pub fn parse(text: &str) -> Result<Self> {
        let (up, down) = text.split_once('/').unwrap_or((text, "1"));
        let side = |part: &str| part.trim().parse::<u32>().ok().filter(|n| (1..=64).contains(n));
        match (side(up), side(down)) {
            (Some(up), Some(down)) => Ok(Self { up, down }),
            _ => Err(Error::request(format!("a scale is a whole number or a ratio of 1 to 64, as 1/4; not {text:?}"))),
        }
    }

    fn factor(self) -> f64 {
        f64::from(self.up) / f64::from(self.down)
    }

    /// ⌈n · scale⌉
    fn side(self, n: usize) -> usize {
        (n * self.up as usize).div_ceil(self.down as usize)
    }
}

impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.down == 1 { write!(f, "{}", self.up) } else { write!(f, "{}/{}", self.up, self.down) }
    }
}

/// The source pixels of one output pixel, with their weights.
type Taps = Vec<(usize, f64)>;

/// Keys' cubic convolution with a = −1/2.
fn cubic(x: f64) -> f64 {
    match x.abs() {
        x if x <= 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        x if x <= 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        _ => 0.0,
    }
}

/// The function `contributions` of `imresize.m`, with pixels counted from 0. Shrinking widens the kernel against
/// aliasing.
fn taps(n_in: usize, n_out: usize, scale: f64) -> Vec<Taps> {
    let shrink = scale.min(1.0);
    let width = 4.0 / shrink;
    // `imresize.m` takes two more taps than the width needs; those with weight 0 are dropped below.
    let reach = width.ceil() as i64 + 2;
    let period = 2 * n_in as i64;
    // Beyond the border the image is mirrored, with the border pixel repeated.
    let mirrored = |i: i64| {
        let i = i.rem_euclid(period);
        (if i < n_in as i64 { i } else { period - 1 - i }) as usize
    };
    (0..n_out)
        .map(|i| {
            let centre = (i as f64 + 1.0) / scale + 0.5 * (1.0 - 1.0 / scale) - 1.0;
            let first = (centre - width / 2.0).floor() as i64;
            let weights: Vec<f64> =
                (first..first + reach).map(|j| shrink * cubic(shrink * (centre - j as f64))).collect();
            let total: f64 = weights.iter().sum();
            let pixels = (first..).map(mirrored);
            pixels.zip(weights).filter(|(_, w)| *w != 0.0).map(|(j, w)| (j, w / total)).collect()
        })
        .collect()
}

/// Rounds to the nearest byte, halves up.
fn byte(x: f64) -> u8 {
    (x + 0.5).floor().clamp(0.0, 255.0) as u8
}

fn vertical(image: &Image, scale: Scale) -> Image {
    let (row, height) = (image.width * image.channels, scale.side(image.height));
    let mut pixels = Vec::with_capacity(row * height);
    let mut sums = vec![0.0; row];
    for taps in taps(image.height, height, scale.factor()) {
        sums.fill(0.0);
        for (y, w) in taps {
            let source = &image.pixels[y * row..][..row];
            sums.iter_mut().zip(source).for_each(|(sum, &v)| *sum += w * f64::from(v));
        }
        pixels.extend(sums.iter().map(|&sum| byte(sum)));
    }
    Image::new(image.width, height, image.channels, pixels)
}

fn horizontal(image: &Image, scale: Scale) -> Image {
    let (c, width) = (image.channels, scale.side(image.width));
    let taps = taps(image.width, width, scale.factor());
    let mut pixels = Vec::with_capacity(width * image.height * c);
    for row in image.pixels.chunks_exact(image.width * c) {
        for taps in &taps {
            let sum = |k: usize| taps.iter().map(|&(x, w)| w * f64::from(row[x * c + k])).sum::<f64>();
            pixels.extend((0..c).map(|k| byte(sum(k))));
        }
    }
    Image::new(width, image.height, c, pixels)
}

/// The image resized by `scale`, byte for byte as by MATLAB's `imresize(image, scale)` for 8-bit images: the vertical
/// pass comes first, and each pass rounds. An error if the result would be too large.
pub fn imresize(image: &Image, scale: Scale) -> Result<Image> {
    let (width, height) = (scale.side(image.width), scale.side(image.height));
    if width as u64 * height as u64 > IMAGE_PIXELS.max {
        let limit = IMAGE_PIXELS.amount();
        return Err(Error::request(format!("would have {width}x{height} pixels, the limit is {limit}")));
    }
    Ok(if scale.up == scale.down { image.clone() } else { horizontal(&vertical(image, scale), scale) })
}

/// Resizes the image file `from` into the PNG `to`, cut to multiples of `multiple` first; errors name the file.
pub fn imresize_file(from: &Path, to: &Path, scale: Scale, multiple: usize) -> Result<()> {
    sharing(|| {
        let image = Image::read(from)?;
        // Both passes hold a picture.
        need(2 * (scale.side(image.width) * scale.side(image.height) * image.channels) as u64);
        let resized = crop_to_multiple(image, multiple).and_then(|image| imresize(&image, scale));
        let resized = resized.map_err(|e| Error::file(from, e.to_string()))?;
        write_atomic(to, &resized.encode_png(&[])?)
    })
}

/// The upper left part whose sides are multiples of `n`; an error if there is none.
pub(crate) fn crop_to_multiple(image: Image, n: usize) -> Result<Image> {
    let n = n.max(1);
    let (width, height) = (image.width / n * n, image.height / n * n);
    if width == 0 || height == 0 {
        return Err(Error::request(format!("has {}x{} pixels, less than {n}", image.width, image.height)));
    }
    if (width, height) == (image.width, image.height) {
        return Ok(image);
    }
    let rows = image.pixels.chunks_exact(image.width * image.channels).take(height);
    let pixels = rows.flat_map(|row| &row[..width * image.channels]).copied().collect();
    Ok(Image::new(width, height, image.channels, pixels))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_ratios() {
        assert_eq!(Scale::parse("1/4").unwrap(), Scale { up: 1, down: 4 });
        assert_eq!(Scale::parse("3").unwrap().to_string(), "3");
        for bad in ["0", "1/0", "0.5", "-2", "x", "1/4/2", "100"] {
            assert!(Scale::parse(bad).unwrap_err().to_string().contains(bad), "{bad}");
        }
    }

    #[test]
    fn weights_sum_to_one_and_constants_stay() {
        for (n, scale) in [(1, "1/4"), (3, "1/64"), (7, "64"), (10, "3/2"), (16, "2/3")] {
            let scale = Scale::parse(scale).unwrap();
            for taps in taps(n, scale.side(n), scale.factor()) {
                assert!((taps.iter().map(|t| t.1).sum::<f64>() - 1.0).abs() < 1e-14);
                assert!(taps.iter().all(|t| t.0 < n));
            }
            let grey = Image::new(n, 2 * n, 3, vec![97; 6 * n * n]);
            assert!(imresize(&grey, scale).unwrap().pixels.iter().all(|&v| v == 97));
        }
    }

    #[test]
    fn images_are_cut_to_multiples() {
        let image = Image::new(5, 3, 1, (0..15).collect());
        let cut = crop_to_multiple(image.clone(), 2).unwrap();
        assert_eq!((cut.width, cut.height, cut.pixels), (4, 2, vec![0, 1, 2, 3, 5, 6, 7, 8]));
        assert!(crop_to_multiple(image.clone(), 4).is_err());
        assert_eq!(crop_to_multiple(image.clone(), 1).unwrap(), image);
        let wide = Image::new(20_000, 1, 1, vec![0; 20_000]);
        assert!(imresize(&wide, Scale { up: 64, down: 1 }).unwrap_err().to_string().contains("1280000x64"));
    }
}
