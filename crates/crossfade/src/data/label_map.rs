//! Maps of one channel and 16 bits: masks, edges, sketches, depth.
use std::path::Path;

use image::DynamicImage;

use super::image::{decode_upright, mirrored};
use super::{Image, Rect};
use crate::error::Result;
use crate::limits;

/// A map, top row first. 8-bit files are scaled to the full range (255 becomes 65535).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMap {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// `height * width` values.
    pub values: Vec<u16>,
}

impl LabelMap {
    /// A map with the given values; panics unless the sizes agree and are positive.
    pub fn new(width: usize, height: usize, values: Vec<u16>) -> Self {
        assert!(width > 0 && height > 0, "a map has at least one value");
        assert_eq!(values.len(), width * height, "values of a {width}x{height} map");
        Self { width, height, values }
    }

    /// Reads a PNG, JPEG or WebP.
    pub fn read(path: &Path) -> Result<Self> {
        Self::decode(&limits::read(path, &limits::IMAGE_FILE)?, path)
    }

    /// Decodes a PNG, JPEG or WebP. 16-bit grey keeps its precision; colours are converted to grey as PIL does.
    pub fn decode(bytes: &[u8], name: impl AsRef<Path>) -> Result<Self> {
        limits::sharing(|| {
            Ok(match decode_upright(bytes, name.as_ref())? {
                DynamicImage::ImageLuma16(map) => {
                    Self::new(map.width() as usize, map.height() as usize, map.into_raw())
                }
                other => Self::from_image(&Image::from_dynamic(other)),
            })
        })
    }

    /// The grey values of an image.
    pub fn from_image(image: &Image) -> Self {
        let grey = image.with_channels(1);
        // Times 257 maps 255 to 65535 exactly, and dividing by it restores the byte.
        Self::new(image.width, image.height, grey.pixels.iter().map(|&v| u16::from(v) * 257).collect())
    }

    /// The map in 8 bits, rounded.
    pub fn to_image(&self) -> Image {
        let byte = |v: u16| ((u32::from(v) + 128) / 257) as u8;
        Image::new(self.width, self.height, 1, self.values.iter().map(|&v| byte(v)).collect())
    }

    /// A part of the map; values outside the map are mirrored.
    pub fn cut(&self, part: Rect) -> Self {
        let Rect { left, top, width, height } = part;
        let place = |y: usize, x: usize| mirrored(y, self.height) * self.width + mirrored(x, self.width);
        let rows = (top..top + height).flat_map(|y| (left..left + width).map(move |x| place(y, x)));
        Self::new(width, height, rows.map(|at| self.values[at]).collect())
    }

    /// The map at another size by nearest neighbour, as PIL's `NEAREST` does. Interpolation would invent labels that
    /// no annotator drew.
    pub fn nearest(&self, width: usize, height: usize) -> Self {
        let places = |n_in: usize, n_out: usize| -> Vec<usize> {
            let scale = n_in as f64 / n_out as f64;
            (0..n_out).map(|i| (((i as f64 + 0.5) * scale) as usize).min(n_in - 1)).collect()
        };
        let (rows, columns) = (places(self.height, height), places(self.width, width));
        let values = rows.iter().flat_map(|y| columns.iter().map(move |x| self.values[y * self.width + x]));
        Self::new(width, height, values.collect())
    }

    /// The map mirrored left to right.
    pub fn flip(&self) -> Self {
        let values = self.values.chunks_exact(self.width).flat_map(|row| row.iter().rev()).copied();
        Self::new(self.width, self.height, values.collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_wider_range() {
        let image = Image::new(16, 16, 1, (0..=255).collect());
        assert_eq!(LabelMap::from_image(&image).to_image(), image);
        assert_eq!(LabelMap::decode(&image.encode_png(&[]).unwrap(), "x.png").unwrap(), LabelMap::from_image(&image));
    }

    #[test]
    fn places_outside_are_mirrored() {
        let map = LabelMap::new(3, 1, vec![1, 2, 3]);
        assert_eq!(map.cut(Rect { left: 1, top: 0, width: 6, height: 2 }).values, [[2, 3, 2, 1, 2, 3]; 2].concat());
        assert_eq!(LabelMap::new(1, 1, vec![7]).cut(Rect { left: 0, top: 0, width: 3, height: 1 }).values, [7; 3]);
        assert_eq!(map.flip().values, [3, 2, 1]);
        // Image.fromarray(np.uint8([[1, 2, 3]])).resize((7, 1), Image.NEAREST) in Pillow 12.3
        assert_eq!(map.nearest(7, 1).values, [1, 1, 2, 2, 2, 3, 3]);
        assert_eq!(map.nearest(2, 1).values, [1, 3]);
    }
}
