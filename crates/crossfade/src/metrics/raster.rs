//! Images as metrics read them (8-bit files or arrays of floats), and the components that full-reference metrics
//! compare.
use std::path::Path;

use npyz::{NpyFile, Order};

use super::pairs::{Channel, Protocol};
use crate::data::Image;
use crate::error::{Error, Result};
use crate::limits;

/// An image with values from 0 to 255, top row first, channels interleaved; 1 channel (grey) or 3 (RGB).
#[derive(Clone, Debug, PartialEq)]
pub enum Raster {
    /// An 8-bit image.
    Bytes(Image),
    /// An array of floats, which may slightly exceed the range.
    Floats(FloatImage),
}

/// An image of floats.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatImage {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// 1 (grey) or 3 (RGB).
    pub channels: usize,
    /// `height * width * channels` numbers from 0 to 255.
    pub values: Vec<f64>,
}

/// One channel, or the luma, of an image.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Component {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// `height * width` numbers.
    pub values: Vec<f64>,
}

impl From<Image> for Raster {
    fn from(image: Image) -> Self {
        Self::Bytes(image)
    }
}

impl From<&Image> for Raster {
    fn from(image: &Image) -> Self {
        Self::Bytes(image.clone())
    }
}

impl Raster {
    /// Reads a PNG, JPEG or WebP, or a `.npy` array `[H, W]`, `[H, W, 1]` or `[H, W, 3]` of bytes or of floats from 0 to 1.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = limits::read(path, &limits::IMAGE_FILE)?;
        let within = |raster: Self| match limits::METRIC_PIXELS.check(raster.pixels()) {
            Ok(()) => Ok(raster),
            Err(why) => Err(Error::file(path, why)),
        };
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
            let floats = FloatImage::from_npy(&bytes).map_err(|message| Error::file(path, message))?;
            return within(Self::Floats(floats));
        }
        within(Self::Bytes(Image::decode(&bytes, path)?))
    }

    /// The number of pixels.
    pub(super) fn pixels(&self) -> u64 {
        let (width, height, _) = self.size();
        (width * height) as u64
    }

    /// Width, height and channels.
    pub fn size(&self) -> (usize, usize, usize) {
        match self {
            Self::Bytes(image) => (image.width, image.height, image.channels),
            Self::Floats(image) => (image.width, image.height, image.channels),
        }
    }

    /// A description of the size for messages.
    pub(crate) fn describe_size(&self) -> String {
        let (width, height, channels) = self.size();
        let kind = if channels == 1 { "grey" } else { "RGB" };
        format!("{width}x{height} {kind}")
    }

    /// All values, channels interleaved.
    pub fn values(&self) -> Box<dyn Iterator<Item = f64> + '_> {
        match self {
            Self::Bytes(image) => Box::new(image.pixels.iter().map(|&v| f64::from(v))),
            Self::Floats(image) => Box::new(image.values.iter().copied()),
        }
    }

    /// Whether all values are numbers.
    pub(super) fn is_finite(&self) -> bool {
        match self {
            Self::Bytes(_) => true,
            Self::Floats(image) => image.values.iter().all(|v| v.is_finite()),
        }
    }

    /// The image itself; floats are rounded to 8 bits.
    pub(crate) fn into_image(self) -> Image {
        match self {
            Self::Bytes(image) => image,
            Self::Floats(FloatImage { width, height, channels, values }) => {
                let byte = |v: f64| v.round().clamp(0.0, 255.0) as u8;
                Image::new(width, height, channels, values.into_iter().map(byte).collect())
            }
        }
    }

    /// Width and height of what is compared under `protocol`, without the border, or the reason why nothing is left.
    pub(super) fn inner_size(&self, protocol: &Protocol) -> std::result::Result<(usize, usize), String> {
        let ((width, height, _), border) = (self.size(), protocol.crop.saturating_mul(2));
        if width <= border || height <= border {
            let size = self.describe_size();
            return Err(format!("{size} pixels are not larger than the border of {}", protocol.crop));
        }
        Ok((width - border, height - border))
    }

    /// The number of components that are compared under `protocol`.
    pub(super) fn component_count(&self, protocol: &Protocol) -> usize {
        if protocol.channel == Channel::Y { 1 } else { self.size().2 }
    }

    /// Component `c`, without the border, which must leave something. One is made at a time: as 64-bit numbers, all of them
    /// would take many times the memory of the image.
    pub(super) fn component(&self, protocol: &Protocol, c: usize) -> Component {
        let (width, height, channels) = self.size();
        match self {
            Self::Bytes(image) => component(&image.pixels, f64::from, [width, height, channels], protocol, c),
            Self::Floats(image) => component(&image.values, |v| v, [width, height, channels], protocol, c),
        }
    }
}

/// Component `c` of interleaved values; `number` converts each to a number from 0 to 255.
fn component<T: Copy>(
    values: &[T],
    number: impl Fn(T) -> f64,
    [width, height, channels]: [usize; 3],
    protocol: &Protocol,
    c: usize,
) -> Component {
    let (crop, border) = (protocol.crop, 2 * protocol.crop);
    // Quantised before the luma is computed, as if the image had been saved as 8 bits.
    let level = |v: T| if protocol.quantise { number(v).round().clamp(0.0, 255.0) } else { number(v) };
    let luma = |pixel: &[T]| {
        let y = luma_601([level(pixel[0]), level(pixel[1]), level(pixel[2])]);
        if protocol.round_luma { y.round() } else { y }
    };
    let is_luma = protocol.channel == Channel::Y && channels == 3;
    let value = |pixel: &[T]| if is_luma { luma(pixel) } else { level(pixel[c]) };
    let rows = values.chunks_exact(width * channels).skip(crop).take(height - border);
    let pixels = rows.flat_map(|row| row.chunks_exact(channels).skip(crop).take(width - border).map(value));
    let mut found = Vec::with_capacity((width - border) * (height - border));
    found.extend(pixels);
    Component { width: width - border, height: height - border, values: found }
}

impl FloatImage {
    fn from_npy(bytes: &[u8]) -> std::result::Result<Self, String> {
        // From version 2 on the header's length has four bytes, and the reader would allocate as much as they claim.
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
        if height == 0 || width == 0 || height.saturating_mul(width) > limits::IMAGE_PIXELS.max {
            return Err(format!("{width}x{height} pixels; expected 1 to {} million", limits::IMAGE_PIXELS.max >> 20));
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
        // A prediction may slightly exceed the range; numbers far outside are on another scale, such as 0 to 255.
        if let Some(far) = values.iter().find(|v| !(-127.5..=382.5).contains(*v)) {
            return Err(format!("the array holds {}; floats must go from 0 (black) to 1 (white)", far / 255.0));
        }
        Ok(Self { width: width as usize, height: height as usize, channels: channels as usize, values })
    }
}

/// The luma of BT.601 from 16 to 235, as computed by MATLAB's `rgb2ycbcr` from values from 0 to 255.
fn luma_601([r, g, b]: [f64; 3]) -> f64 {
    16.0 + (65.481 * r + 128.553 * g + 24.966 * b) / 255.0
}
