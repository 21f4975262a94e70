//! The spectrum of an image set: mean and variance of every coefficient of the cosine transform, and its power by octave
//! (§10.5).
use crate::data::{Dataset, Image, Planes};
use crate::error::{Error, Result};
use rayon::prelude::*;
use serde::Serialize;
use std::f64::consts::PI;

/// Images that are transformed at once, in parallel. Their sums are taken in the order of the images, so that the result
/// depends neither on this number nor on the threads.
const CHUNK: usize = 256;

/// Mean and variance of the coefficients of images of one shape, collected image by image.
///
/// The transform is the orthonormal DCT-II over channels, rows and columns of values in [−1, 1]. Over three channels it is
/// (R+G+B)/√3, (R−B)/√2, (R−2G+B)/√6, which nearly decorrelates the colours of photographs.
#[derive(Clone, Debug)]
pub struct Spectrum {
    /// (channels, height, width).
    shape: [usize; 3],
    count: usize,
    /// The mean of each coefficient, in CHW order.
    mean: Vec<f64>,
    /// The sum of squared differences from the mean.
    squares: Vec<f64>,
    transform: Transform,
}

/// The coefficients of one octave of frequencies. A frequency is √((u/H)² + (v/W)²) for row u and column v of the
/// transform; 1 is one change of sign per pixel (Nyquist) along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    /// The lowest frequency; the first band has only the frequency 0, the mean of the image.
    pub from: f64,
    /// The frequency at which the next band begins; the last one ends at the corner, √2.
    pub to: f64,
    /// The root mean square of the standard deviations of its coefficients.
    pub std: f64,
}

impl Spectrum {
    /// The spectrum of no images yet, of the shape (channels, height, width).
    pub fn new(shape: [usize; 3]) -> Self {
        let size = shape.iter().product();
        Self { shape, count: 0, mean: vec![0.0; size], squares: vec![0.0; size], transform: Transform::new(shape) }
    }

    /// The spectrum of a set of at least two images of one size; `progress` is called with (images done, all images).
    pub fn of(set: &dyn Dataset, progress: &mut dyn FnMut(usize, usize)) -> Result<Self> {
        if set.len() < 2 {
            let problem = format!("{}: a spectrum needs two or more images, there is {}", set.describe(), set.len());
            return Err(Error::request(problem));
        }
        let first = set.get(0)?;
        let mut spectrum = Self::new([first.channels, first.height, first.width]);
        for start in (0..set.len()).step_by(CHUNK) {
            let end = (start + CHUNK).min(set.len());
            let coefficients: Result<Vec<_>> = (start..end)
                .into_par_iter()
                .map(|k| {
                    spectrum.coefficients(&set.get(k)?).map_err(|e| Error::request(format!("{}: {e}", set.name(k))))
                })
                .collect();
            coefficients?.iter().for_each(|c| spectrum.push(c));
            progress(end, set.len());
        }
        Ok(spectrum)
    }

    /// Adds an image, which must have the shape of the others.
    pub fn add(&mut self, image: &Image) -> Result<()> {
        let coefficients = self.coefficients(image)?;
        self.push(&coefficients);
        Ok(())
    }

    /// The coefficients of an image in CHW order.
    fn coefficients(&self, image: &Image) -> Result<Vec<f64>> {
        let [c, h, w] = self.shape;
        if [image.channels, image.height, image.width] != self.shape {
            let (height, width, channels) = (image.height, image.width, image.channels);
            return Err(Error::request(format!(
                "an image of {height}x{width}x{channels} among images of {h}x{w}x{c}; a spectrum needs images of one size"
            )));
        }
        Ok(self.transform.apply(&Planes::from_image(image).values))
    }

    /// Welford's update of mean and squared differences, which does not cancel as sums of squares do.
    fn push(&mut self, coefficients: &[f64]) {
        self.count += 1;
        let share = 1.0 / self.count as f64;
        for ((x, mean), squares) in coefficients.iter().zip(&mut self.mean).zip(&mut self.squares) {
            let before = x - *mean;
            *mean += share * before;
            *squares += before * (x - *mean);
        }
    }

    /// The number of images.
    pub fn count(&self) -> usize {
        self.count
    }

    /// (channels, height, width) of the images.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The mean of each coefficient, in CHW order.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The variance of each coefficient, in CHW order; 0 for fewer than two images.
    pub fn variance(&self) -> Vec<f64> {
        let scale = 1.0 / (self.count.max(2) - 1) as f64;
        self.squares.iter().map(|s| scale * s).collect()
    }

    /// The bands, from the mean of the image to the finest octave.
    pub fn bands(&self) -> Vec<Band> {
        let deviations = self.deviations(&self.variance());
        let count = deviations.len();
        // Octave k of the last one, which begins at half the Nyquist frequency, ends at 2^(k − last).
        let edge = |band: usize| 0.5f64.powi((count - band) as i32);
        let limits = |band: usize| match band {
            0 => (0.0, 0.0),
            _ => (edge(band), if band + 1 == count { 2f64.sqrt() } else { edge(band + 1) }),
        };
        let band = |(k, std): (usize, f64)| Band { from: limits(k).0, to: limits(k).1, std };
        deviations.into_iter().enumerate().map(band).collect()
    }

    /// The root mean square over the coefficients of each band, from their `variances` in CHW order.
    pub(super) fn deviations(&self, variances: &[f64]) -> Vec<f64> {
        let [_, h, w] = self.shape;
        let octaves = octaves(h.max(w));
        let mut sums = vec![(0.0, 0usize); octaves + 1];
        for plane in variances.chunks_exact(h * w) {
            for (k, variance) in plane.iter().enumerate() {
                let frequency = ((k / w) as f64 / h as f64).hypot((k % w) as f64 / w as f64);
                let sum = &mut sums[band_of(frequency, octaves)];
                *sum = (sum.0 + variance, sum.1 + 1);
            }
        }
        sums.into_iter().map(|(sum, count)| (sum / count.max(1) as f64).sqrt()).collect()
    }

    /// The share of the standard deviation of `data` that these images have, band by band; 1 is right.
    pub fn shares(&self, data: &Self) -> Result<Vec<f64>> {
        if self.shape != data.shape {
            let problem = format!("spectra of (channels, height, width) {:?} and {:?}", self.shape, data.shape);
            return Err(Error::request(problem + " cannot be compared; the images must have one size"));
        }
        data.shares_of(&self.variance())
    }

    /// The share of this standard deviation that coefficients with these `variances` have, band by band.
    pub(super) fn shares_of(&self, variances: &[f64]) -> Result<Vec<f64>> {
        let own = self.deviations(&self.variance());
        if let Some(empty) = own.iter().position(|&std| std == 0.0) {
            let problem = format!("nothing varies in band {empty} of the reference images; are they all the same?");
            return Err(Error::request(problem));
        }
        Ok(self.deviations(variances).iter().zip(&own).map(|(a, b)| a / b).collect())
    }

    /// The distance from `data`: the root mean square over bands of share − 1, where the share is the standard deviation
    /// of a band over that of the data.
    ///
    /// Every octave has the same weight, because the power of images is spread over octaves; a mean over coefficients would
    /// see the finest octave alone. The difference share − 1 is used and not ln share: a band that was lost completely
    /// counts 1 and not infinitely much, and few evaluations do lose the finest one. The distance does not see the means.
    pub fn distance(&self, data: &Self) -> Result<f64> {
        Ok(rms_error(&self.shares(data)?))
    }
}

/// The root mean square of share − 1.
pub(super) fn rms_error(shares: &[f64]) -> f64 {
    (shares.iter().map(|s| (s - 1.0).powi(2)).sum::<f64>() / shares.len() as f64).sqrt()
}

/// The number of octaves from 1/side to the corner; the last one is everything from half the Nyquist frequency up.
fn octaves(side: usize) -> usize {
    match side {
        1 => 0,
        _ => (side - 1).ilog2() as usize + 1,
    }
}

/// The band of a frequency: 0 for frequency 0, then octaves.
fn band_of(frequency: f64, octaves: usize) -> usize {
    if frequency == 0.0 {
        return 0;
    }
    let (mut band, mut from) = (octaves, 0.5);
    while band > 1 && frequency < from {
        (band, from) = (band - 1, 0.5 * from);
    }
    band
}

/// The orthonormal DCT-II over channels, rows and columns.
#[derive(Clone, Debug)]
struct Transform {
    shape: [usize; 3],
    /// The matrices of channels and rows.
    channels: Vec<f64>,
    rows: Vec<f64>,
    /// The transposed matrix of columns.
    columns: Vec<f64>,
}

impl Transform {
    fn new(shape: [usize; 3]) -> Self {
        let [c, h, w] = shape;
        let matrix = |n: usize| -> Vec<f64> { (0..n * n).map(|i| entry(n, i / n, i % n)).collect() };
        let columns = (0..w * w).map(|i| entry(w, i % w, i / w)).collect();
        Self { shape, channels: matrix(c), rows: matrix(h), columns }
    }

    /// The coefficients of values in CHW order.
    fn apply(&self, values: &[f32]) -> Vec<f64> {
        let [c, h, w] = self.shape;
        let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
        let by_columns = product(&values, &self.columns, w);
        let by_rows: Vec<f64> =
            by_columns.chunks_exact(h * w).flat_map(|plane| product(&self.rows, plane, h)).collect();
        product(&self.channels, &by_rows, c)
    }
}

/// Entry (k, m) of the orthonormal DCT-II of n values.
fn entry(n: usize, k: usize, m: usize) -> f64 {
    let scale = if k == 0 { 1.0 } else { 2.0 };
    (scale / n as f64).sqrt() * (PI * (m as f64 + 0.5) * k as f64 / n as f64).cos()
}

/// The matrix product of `a`, with `inner` columns, and `b`, with `inner` rows, both by rows.
fn product(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let (rows, columns) = (a.len() / inner, b.len() / inner);
    let mut out = vec![0.0; rows * columns];
    for (out, a) in out.chunks_exact_mut(columns).zip(a.chunks_exact(inner)) {
        for (a, b) in a.iter().zip(b.chunks_exact(columns)) {
            out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::procedural::Procedural;

    fn image(width: usize, height: usize, channels: usize, value: impl Fn(usize, usize, usize) -> f64) -> Image {
        let byte = |v: f64| ((v + 1.0) * 127.5).round().clamp(0.0, 255.0) as u8;
        let pixels = (0..width * height * channels)
            .map(|i| byte(value(i % channels, i / channels / width, i / channels % width)))
            .collect();
        Image::new(width, height, channels, pixels)
    }

    /// The transform keeps the norm, and one cosine becomes one coefficient.
    #[test]
    fn the_transform_is_orthonormal_and_finds_a_cosine() {
        let spectrum = Spectrum::new([3, 8, 12]);
        let noise = image(12, 8, 3, |c, y, x| ((7 * c + 13 * y + 29 * x + x * y) % 17) as f64 / 8.5 - 1.0);
        let squares = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>();
        let pixels: Vec<f64> = Planes::from_image(&noise).values.into_iter().map(f64::from).collect();
        let coefficients = spectrum.coefficients(&noise).unwrap();
        assert!((squares(&coefficients) / squares(&pixels) - 1.0).abs() < 1e-9);
        let wave = |n: usize, k: usize, m: usize| (PI * (m as f64 + 0.5) * k as f64 / n as f64).cos();
        let found = spectrum.coefficients(&image(12, 8, 3, |_, y, x| wave(8, 3, y) * wave(12, 5, x))).unwrap();
        let largest = (0..found.len()).max_by(|&a, &b| found[a].abs().total_cmp(&found[b].abs())).unwrap();
        // Channel coefficient 0 is the sum of the colours, then row 3, column 5. What is left is the rounding to bytes.
        assert_eq!(largest, 3 * 12 + 5);
        assert!((found[largest].powi(2) / squares(&found) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn bands_are_octaves_up_to_the_corner() {
        for (shape, count) in [([3, 32, 32], 6), ([1, 28, 28], 6), ([3, 33, 16], 7), ([1, 1, 1], 1), ([1, 1, 2], 2)] {
            let mut spectrum = Spectrum::new(shape);
            spectrum.squares.fill(4.0);
            spectrum.count = 2;
            let bands = spectrum.bands();
            assert_eq!(bands.len(), count, "{shape:?}");
            // No band is empty: every one has the deviation of its coefficients.
            assert!(bands.iter().all(|b| (b.std - 2.0).abs() < 1e-12), "{bands:?}");
            assert!(bands[1..].windows(2).all(|w| w[0].to == w[1].from), "{bands:?}");
        }
        let bands = Spectrum::new([3, 32, 32]).bands();
        assert_eq!((bands[1].from, bands[5].from, bands[5].to), (1.0 / 32.0, 0.5, 2f64.sqrt()));
        assert_eq!([0.0, 1.0 / 32.0, 0.49, 0.5, 1.4].map(|f| band_of(f, 5)), [0, 1, 4, 5, 5]);
    }

    /// A set is at distance 0 from itself; at half the contrast every share is ½, and so is the distance.
    #[test]
    fn half_the_contrast_is_half_the_deviation() {
        let set = Procedural::new(1, 300, 16).unwrap();
        let data = Spectrum::of(&set, &mut |_, _| ()).unwrap();
        let mut half = Spectrum::new(data.shape());
        for k in 0..set.len() {
            let mut image = set.get(k).unwrap();
            image.pixels.iter_mut().for_each(|v| *v = 64 + *v / 2);
            half.add(&image).unwrap();
        }
        assert_eq!(half.count(), 300);
        assert_eq!(data.distance(&data).unwrap(), 0.0);
        let shares = half.shares(&data).unwrap();
        // Rounding to bytes adds a little to the finest band.
        assert!(shares.iter().all(|s| (s - 0.5).abs() < 0.01), "{shares:?}");
        assert!((half.distance(&data).unwrap() - 0.5).abs() < 0.01);
    }

    #[test]
    fn other_sizes_and_equal_images_are_refused() {
        let mut spectrum = Spectrum::new([3, 8, 8]);
        let problem = spectrum.add(&image(9, 8, 3, |_, _, _| 0.0)).unwrap_err().to_string();
        assert!(problem.contains("8x9x3") && problem.contains("8x8x3"), "{problem}");
        spectrum.add(&image(8, 8, 3, |_, _, _| 0.0)).unwrap();
        spectrum.add(&image(8, 8, 3, |_, _, _| 0.0)).unwrap();
        assert!(spectrum.clone().distance(&spectrum).is_err());
        assert!(spectrum.distance(&Spectrum::new([3, 4, 4])).is_err());
    }
}
