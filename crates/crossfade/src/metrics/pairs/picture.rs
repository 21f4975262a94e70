//! Pictures as numbers: 8-bit files or arrays of floats, and the planes that metrics compare.
use std::path::Path;

use npyz::{NpyFile, Order};

use super::protocol::{Channel, Protocol};
use crate::data::Image;
use crate::data::image::{MAX_FILE, MAX_PIXELS};
use crate::error::{Error, Result};
use crate::files::read_limited;

/// A picture with values from 0 to 255, rows from the top, channels interleaved.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Pixels a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 (grey) or 3 (RGB).
    pub channels: usize,
    /// `height * width * channels` numbers.
    pub values: Vec<f64>,
}

/// One channel, or the brightness, of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Plane {
    /// Pixels a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `height * width` numbers.
    pub values: Vec<f64>,
}

impl From<&Image> for Picture {
    fn from(image: &Image) -> Self {
        let values = image.pixels.iter().map(|&v| f64::from(v)).collect();
        Self { width: image.width, height: image.height, channels: image.channels, values }
    }
}

impl Picture {
    /// Reads a PNG, JPEG or WebP, or a `.npy` array `[H, W]`, `[H, W, 1]` or `[H, W, 3]` of bytes or of floats from 0 to 1.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = read_limited(path, MAX_FILE)?;
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            return Self::from_npy(&bytes).map_err(|message| Error::file(path, message));
        }
        Ok(Self::from(&Image::decode(&bytes, path)?))
    }

    fn from_npy(bytes: &[u8]) -> std::result::Result<Self, String> {
        // Later versions of the format give the header's length in four bytes, and the reader believes them.
        if bytes.get(6).is_some_and(|&v| v > 1) {
            let length = bytes.get(8..12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
            length.filter(|n| *n <= bytes.len()).ok_or("the header is longer than the file")?;
        }
        let file = NpyFile::new(bytes).map_err(|e| format!("not a readable npy array: {e}"))?;
        let (height, width, channels) = match *file.shape() {
            [h, w] => (h, w, 1),
            [h, w, c @ (1 | 3)] => (h, w, c),
            _ => return Err(format!("an array of shape {:?}; expected [H, W] or [H, W, 3]", file.shape())),
        };
        if file.order() != Order::C {
            return Err("an array in Fortran order; save it with numpy.ascontiguousarray".into());
        }
        if height == 0 || width == 0 || height.saturating_mul(width) > MAX_PIXELS {
            return Err(format!("{width}x{height} pixels; expected 1 to {} million", MAX_PIXELS >> 20));
        }
        let (dtype, damaged) = (file.dtype().descr(), |e: std::io::Error| format!("the array is damaged: {e}"));
        let values: Vec<f64> = match dtype.trim_matches(['\'', '"']) {
            "<f4" => file.into_vec::<f32>().map_err(damaged)?.into_iter().map(|v| f64::from(v) * 255.0).collect(),
            "<f8" => file.into_vec::<f64>().map_err(damaged)?.into_iter().map(|v| v * 255.0).collect(),
            "|u1" => file.into_vec::<u8>().map_err(damaged)?.into_iter().map(f64::from).collect(),
            other => return Err(format!("an array of type {other}; expected float32, float64 or uint8")),
        };
        if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
            return Err(format!("the array holds {bad}, which is no brightness"));
        }
        // A prediction may overshoot a little; far beyond, the numbers have another scale.
        if let Some(far) = values.iter().find(|v| !(-127.5..=382.5).contains(*v)) {
            return Err(format!("the array holds {}; floats must go from 0 (black) to 1 (white)", far / 255.0));
        }
        Ok(Self { width: width as usize, height: height as usize, channels: channels as usize, values })
    }

    /// Its sizes for messages.
    pub fn sizes(&self) -> String {
        let kind = if self.channels == 1 { "grey" } else { "RGB" };
        format!("{}x{} {kind}", self.width, self.height)
    }

    /// What a metric compares under `protocol`, without the border; the reason if nothing is left.
    pub fn planes(&self, protocol: &Protocol) -> std::result::Result<Vec<Plane>, String> {
        let border = 2 * protocol.crop;
        if self.width <= border || self.height <= border {
            return Err(format!("{} pixels are not larger than the border of {}", self.sizes(), protocol.crop));
        }
        let byte = |v: f64| if protocol.quantise { v.round().clamp(0.0, 255.0) } else { v };
        let luma = protocol.channel == Channel::Y && self.channels == 3;
        let plane = |value: &dyn Fn(&[f64]) -> f64| {
            let rows = self.values.chunks_exact(self.width * self.channels);
            let rows = rows.skip(protocol.crop).take(self.height - border);
            let pixels = rows.flat_map(|row| {
                row.chunks_exact(self.channels).skip(protocol.crop).take(self.width - border).map(value)
            });
            Plane { width: self.width - border, height: self.height - border, values: pixels.collect() }
        };
        if !luma {
            return Ok((0..self.channels).map(|c| plane(&|pixel| byte(pixel[c]))).collect());
        }
        let y = |pixel: &[f64]| {
            let y = luma_601([byte(pixel[0]), byte(pixel[1]), byte(pixel[2])]);
            if protocol.round_luma { y.round() } else { y }
        };
        Ok(vec![plane(&y)])
    }
}

/// Y of BT.601 from 16 to 235, as `rgb2ycbcr` of MATLAB computes it of values from 0 to 255.
pub fn luma_601([r, g, b]: [f64; 3]) -> f64 {
    16.0 + (65.481 * r + 128.553 * g + 24.966 * b) / 255.0
}
