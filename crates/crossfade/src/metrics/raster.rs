//! Images as metrics read them (8-bit files or arrays of floats), and the components that full-reference metrics
//! compare.
use std::path::Path;

use super::npy;
use super::pairs::{Channel, Protocol};
use crate::data::{Image, dimensions};
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
        if is_npy(path) {
            return within(Self::from_npy(&bytes).map_err(|message| Error::file(path, message))?);
        }
        within(Self::Bytes(Image::decode(&bytes, path)?))
    }

    /// What the image of a file will take, in pixels of three bytes, as its header says: before it is decoded.
    pub(super) fn weigh(path: &Path) -> Result<u64> {
        let bytes = limits::read(path, &limits::IMAGE_FILE)?;
        if is_npy(path) {
            let (header, _) = npy_header(&bytes).map_err(|message| Error::file(path, message))?;
            // 64 bits for each number.
            return Ok(header.len as u64 * if header.kind == "|u1" { 1 } else { 3 });
        }
        let (width, height) = dimensions(&bytes, path)?;
        Ok((width * height) as u64)
    }

    /// An array of bytes is an image of 8 bits, one of floats has values from 0 to 1.
    fn from_npy(bytes: &[u8]) -> std::result::Result<Self, String> {
        let (header, [height, width, channels]) = npy_header(bytes)?;
        let numbers = &bytes[header.start as usize..];
        let floats: Vec<f64> = match header.kind.as_str() {
            "<f4" => numbers.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b)) * 255.0).collect(),
            "<f8" => numbers.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) * 255.0).collect(),
            _ => return Ok(Self::Bytes(Image::new(width, height, channels, numbers.to_vec()))),
        };
        if let Some(bad) = floats.iter().find(|v| !v.is_finite()) {
            return Err(format!("the array holds {bad}, which is no brightness"));
        }
        // A prediction may slightly exceed the range; numbers far outside are on another scale, such as 0 to 255.
        if let Some(far) = floats.iter().find(|v| !(-127.5..=382.5).contains(*v)) {
            return Err(format!("the array holds {}; floats must go from 0 (black) to 1 (white)", far / 255.0));
        }
        Ok(Self::Floats(FloatImage { width, height, channels, values: floats }))
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

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

/// The header of an array that is an image, and its height, width and channels.
fn npy_header(bytes: &[u8]) -> std::result::Result<(npy::Header, [usize; 3]), String> {
    let header = npy::parse(bytes)?;
    let sides = match header.shape[..] {
        [h, w] => [h, w, 1],
        [h, w, c @ (1 | 3)] => [h, w, c],
        _ => return Err(format!("an array of shape {:?}; expected [H, W] or [H, W, 3]", header.shape)),
    };
    if header.len == 0 {
        return Err("an array without pixels".into());
    }
    limits::METRIC_NUMBERS.check(header.len as u64)?;
    let width = match header.kind.as_str() {
        "<f4" => 4,
        "<f8" => 8,
        "|u1" => 1,
        other => return Err(format!("an array of type {other}; expected float32, float64 or uint8")),
    };
    let found = bytes.len() as u64 - header.start;
    if header.len as u64 * width != found {
        return Err(format!("the array is damaged: {found} bytes do not hold {:?} of {}", header.shape, header.kind));
    }
    Ok((header, sides))
}

/// The luma of BT.601 from 16 to 235, as computed by MATLAB's `rgb2ycbcr` from values from 0 to 255.
fn luma_601([r, g, b]: [f64; 3]) -> f64 {
    16.0 + (65.481 * r + 128.553 * g + 24.966 * b) / 255.0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn protocol() -> Protocol {
        Protocol::named("adm", None).unwrap()
    }

    #[test]
    fn luma_goes_from_16_to_235() {
        for (rgb, y) in
            [([0.0; 3], 16.0), ([255.0; 3], 235.0), ([255.0, 0.0, 0.0], 81.481), ([0.0, 0.0, 255.0], 40.966)]
        {
            assert!((luma_601(rgb) - y).abs() < 1e-9, "{rgb:?}");
        }
        assert!((luma_601([0.0, 255.0, 0.0]) - 144.553).abs() < 1e-9);
    }

    #[test]
    fn components_are_cut_rounded_and_converted_as_the_protocol_says() {
        let bytes = Raster::from(Image::new(4, 3, 3, (0..36).map(|v| v * 7).collect()));
        let values = |raster: &Raster, protocol: &Protocol, c| raster.component(protocol, c).values;
        assert_eq!(values(&bytes, &protocol(), 1)[..3], [7.0, 28.0, 49.0]);
        let cut = Protocol { crop: 1, ..protocol() };
        assert_eq!(values(&bytes, &cut, 0), [105.0, 126.0], "the middle row without its ends");
        assert_eq!((bytes.inner_size(&cut), bytes.component(&cut, 0).width), (Ok((2, 1)), 2));
        assert!(bytes.inner_size(&Protocol { crop: 2, ..protocol() }).unwrap_err().contains("border of 2"));
        let luma = Protocol { channel: Channel::Y, ..protocol() };
        assert_eq!((bytes.component_count(&protocol()), bytes.component_count(&luma)), (3, 1));
        assert_eq!(values(&bytes, &luma, 0)[1], luma_601([21.0, 28.0, 35.0]));
        let rounded = Protocol { round_luma: true, ..luma.clone() };
        assert_eq!(values(&bytes, &rounded, 0)[1], luma_601([21.0, 28.0, 35.0]).round());
        let grey = Raster::from(Image::new(1, 1, 1, vec![9]));
        assert_eq!(values(&grey, &luma, 0), [9.0], "grey is its own luma");
        let floats = |values| Raster::Floats(FloatImage { width: 3, height: 1, channels: 1, values });
        let image = floats(vec![-3.0, 9.6, 300.0]);
        assert_eq!(values(&image, &protocol(), 0), [-3.0, 9.6, 300.0]);
        let quantised = Protocol { quantise: true, ..protocol() };
        assert_eq!(values(&image, &quantised, 0), [0.0, 10.0, 255.0]);
        assert_eq!(image.clone().into_image().pixels, [0, 10, 255]);
        assert!(image.is_finite() && !floats(vec![0.0, f64::NAN, 1.0]).is_finite() && bytes.is_finite());
        assert_eq!((bytes.size(), image.pixels(), bytes.describe_size()), ((4, 3, 3), 3, "4x3 RGB".into()));
        assert_eq!((image.values().collect::<Vec<_>>()[1], bytes.values().nth(2)), (9.6, Some(14.0)));
    }

    /// As many bytes as an array of NumPy with this header and elements.
    fn array(kind: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
    }

    #[test]
    fn arrays_are_images_of_their_kind_and_weighed_before_they_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let bytes = at("bytes.NPY", &array("|u1", "1, 2, 3", &[1, 2, 3, 4, 5, 6]));
        assert_eq!(Raster::load(&bytes).unwrap(), Raster::from(Image::new(2, 1, 3, vec![1, 2, 3, 4, 5, 6])));
        let doubles = at("a.npy", &array("<f8", "2, 1", &[0.5f64, 1.5].map(f64::to_le_bytes).concat()));
        let Raster::Floats(found) = Raster::load(&doubles).unwrap() else { panic!("no floats") };
        assert_eq!((found.width, found.height, found.channels, found.values), (1, 2, 1, vec![127.5, 382.5]));
        let singles = at("b.npy", &array("<f4", "1, 1, 1", &(-0.5f32).to_le_bytes()));
        assert_eq!(Raster::load(&singles).unwrap().values().collect::<Vec<_>>(), [-127.5]);
        let image = at("c.png", &Image::new(5, 2, 3, vec![1; 30]).encode_png(&[]).unwrap());
        for (path, pixels) in [(&bytes, 6), (&doubles, 6), (&singles, 3), (&image, 10)] {
            assert_eq!(Raster::weigh(path).unwrap(), pixels, "{path:?}");
        }
        let side = limits::METRIC_NUMBERS.max + 1;
        for (kind, shape, elements, problem) in [
            ("<f8", "1, 1", &1.6f64.to_le_bytes()[..], "holds 1.6"),
            ("<f8", "1, 1", &f64::NAN.to_le_bytes(), "holds NaN"),
            ("<f4", "1, 2", &[0; 7], "7 bytes do not hold [1, 2]"),
            ("|u1", "1, 2", &[0; 3], "3 bytes do not hold"),
            ("|u1", "0, 2", &[], "without pixels"),
            ("|u1", "2", &[0; 2], "shape [2]"),
            ("<i2", "1, 1", &[0; 2], "type <i2"),
            ("|u1", &format!("{side}, 1"), &[0], "numbers of an array"),
        ] {
            let bad = at("bad.npy", &array(kind, shape, elements));
            let error = Raster::load(&bad).unwrap_err().to_string();
            assert!(error.contains("bad.npy") && error.contains(problem), "{error}");
        }
    }
}
