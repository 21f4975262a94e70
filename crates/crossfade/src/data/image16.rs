//! Images that a user applies a network to: 8 or 16 bits, grey or colour, with or without alpha. The result keeps
//! these properties.
use std::io::Write;
use std::path::{Path, PathBuf};

use image::DynamicImage;

use super::image::{decode_upright, mirrored};
use super::{Filter, Image, PassOrder, Planes, resize};
use crate::error::{Error, Result};
use crate::files::write_whole;
use crate::limits;

/// An image with 16 bits per channel, top row first, channels interleaved (HWC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image16 {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// 1 (grey) or 3 (RGB).
    pub channels: usize,
    /// Whether the file had 16 bits per channel; a result is written with the same depth.
    pub deep: bool,
    /// `height * width * channels` values; 8-bit files are scaled to the full range.
    pub values: Vec<u16>,
    /// `height * width` values; `None` if there is no alpha channel.
    pub alpha: Option<Vec<u16>>,
}

impl Image16 {
    /// Reads a PNG, JPEG or WebP.
    pub fn read(path: &Path) -> Result<Self> {
        Self::decode(&limits::read(path, &limits::IMAGE_FILE)?, path)
    }

    /// Decodes a PNG, JPEG or WebP and applies its EXIF orientation; `name` is used in error messages.
    pub fn decode(bytes: &[u8], name: impl AsRef<Path>) -> Result<Self> {
        limits::sharing(|| Self::of(decode_upright(bytes, name.as_ref())?, name.as_ref()))
    }

    fn of(image: DynamicImage, name: &Path) -> Result<Self> {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let color = image.color();
        let deep = color.bytes_per_pixel() > color.channel_count();
        // With alpha the values are held twice for a moment.
        let values = width as u64 * height as u64 * u64::from(color.channel_count());
        limits::IMAGE_MEMORY.check(2 * values).map_err(|why| Error::file(name, why))?;
        let (channels, all) = match (color.has_color(), color.has_alpha()) {
            (false, false) => (1, image.into_luma16().into_raw()),
            (false, true) => (1, image.into_luma_alpha16().into_raw()),
            (true, false) => (3, DynamicImage::into_rgb16(image).into_raw()),
            (true, true) => (3, image.into_rgba16().into_raw()),
        };
        if !color.has_alpha() {
            return Ok(Self { width, height, channels, deep, values: all, alpha: None });
        }
        let pixels = all.chunks_exact(channels + 1);
        let values = pixels.clone().flat_map(|p| &p[..channels]).copied().collect();
        let alpha = Some(pixels.map(|p| p[channels]).collect());
        Ok(Self { width, height, channels, deep, values, alpha })
    }

    /// An 8-bit image without alpha.
    pub fn from_image(image: &Image) -> Self {
        let values = image.pixels.iter().map(|&v| u16::from(v) * 257).collect();
        let (width, height, channels) = (image.width, image.height, image.channels);
        Self { width, height, channels, deep: false, values, alpha: None }
    }

    /// The part of `height` x `width` pixels at (`y`, `x`) as RGB in [−1, 1]. Beyond its border the image is
    /// continued by reflection.
    pub fn cut(&self, y: usize, x: usize, height: usize, width: usize) -> Planes {
        let mut values = vec![0.0; 3 * height * width];
        for (i, row) in (y..y + height).map(|y| mirrored(y, self.height)).enumerate() {
            for (j, column) in (x..x + width).map(|x| mirrored(x, self.width)).enumerate() {
                for channel in 0..3 {
                    values[(channel * height + i) * width + j] = self.at(row, column, channel);
                }
            }
        }
        Planes::new([3, height, width], values)
    }

    /// One value of the image as RGB, in [−1, 1]; a grey image has the same value in all channels.
    pub fn at(&self, y: usize, x: usize, channel: usize) -> f32 {
        let place = (y * self.width + x) * self.channels + channel.min(self.channels - 1);
        f32::from(self.values[place]) / 32767.5 - 1.0
    }

    /// The image with 8 bits per channel; transparent pixels are blended with white.
    pub fn to_image(&self) -> Image {
        // 65535 / 255 = 257, so this rounds to the nearest byte.
        let byte = |v: u32| ((v + 128) / 257) as u8;
        let blended = |place: usize| {
            let (value, white) = (u32::from(self.values[place]), 65535u64);
            match &self.alpha {
                None => byte(value),
                Some(alpha) => {
                    let opacity = u64::from(alpha[place / self.channels]);
                    byte(((u64::from(value) * opacity + white * (white - opacity)) / white) as u32)
                }
            }
        };
        Image::new(self.width, self.height, self.channels, (0..self.values.len()).map(blended).collect())
    }

    /// The alpha channel enlarged by `scale`, with 8 bits, for a result of that size.
    pub fn alpha_times(&self, scale: usize) -> Option<Image> {
        let alpha = self.alpha.as_ref()?;
        let byte = |v: u16| ((u32::from(v) + 128) / 257) as u8;
        let small = Image::new(self.width, self.height, 1, alpha.iter().map(|&v| byte(v)).collect());
        Some(resize(&small, self.width * scale, self.height * scale, Filter::Bicubic, PassOrder::HorizontalFirst))
    }
}

/// The format of a PNG that is written row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// 1 (grey) or 3 (RGB).
    pub channels: usize,
    /// Whether there is an alpha channel in addition.
    pub alpha: bool,
    /// Whether it has 16 bits per channel instead of 8.
    pub deep: bool,
}

/// Receives the rows of a PNG from top to bottom.
pub struct RowWriter<'a> {
    format: Format,
    stream: &'a mut dyn Write,
    bytes: Vec<u8>,
}

impl RowWriter<'_> {
    /// Writes the next row: colours in [−1, 1], channels interleaved, and the alpha values in [0, 1] if the format
    /// has alpha.
    pub fn row(&mut self, colours: &[f32], alpha: Option<&[f32]>) -> std::io::Result<()> {
        self.bytes.clear();
        for (x, pixel) in colours.chunks_exact(self.format.channels).enumerate() {
            let opacity = alpha.map(|alpha| alpha[x]);
            for value in pixel.iter().map(|v| (v + 1.0) / 2.0).chain(opacity) {
                if self.format.deep {
                    let v = (value * 65535.0).round().clamp(0.0, 65535.0) as u16;
                    // PNG stores 16-bit values in big-endian order.
                    self.bytes.extend(v.to_be_bytes());
                } else {
                    self.bytes.push((value * 255.0).round().clamp(0.0, 255.0) as u8);
                }
            }
        }
        self.stream.write_all(&self.bytes)
    }
}

/// Where a PNG is written to.
pub enum Target<'a> {
    /// A file, row by row and atomically, so that a large result never has to fit into memory.
    File(&'a Path),
    /// The end of this memory.
    Memory(&'a mut Vec<u8>),
}

impl Target<'_> {
    /// Its name in messages.
    pub fn name(&self) -> PathBuf {
        match self {
            Self::File(path) => path.to_path_buf(),
            Self::Memory(_) => "the picture".into(),
        }
    }
}

/// Writes a PNG to a file, see [`Target::File`]; `texts` are (key, text) chunks.
pub fn write_rows(
    path: &Path,
    format: Format,
    texts: &[(&str, &str)],
    fill: impl FnOnce(&mut RowWriter<'_>) -> Result<()>,
) -> Result<()> {
    write_rows_to(Target::File(path), format, texts, fill)
}

/// Writes a PNG row by row; `texts` are (key, text) chunks.
pub fn write_rows_to(
    target: Target<'_>,
    format: Format,
    texts: &[(&str, &str)],
    fill: impl FnOnce(&mut RowWriter<'_>) -> Result<()>,
) -> Result<()> {
    // The closure can only return I/O errors, so the caller's own error leaves it through this variable.
    let mut failure = None;
    let fill = |rows: &mut RowWriter<'_>| {
        fill(rows).map_err(|e| {
            failure = Some(e);
            std::io::Error::other("the picture was not finished")
        })
    };
    let name = target.name();
    let written = match target {
        Target::File(path) => write_whole(path, |file| encode(file, format, texts, fill)),
        Target::Memory(bytes) => encode(bytes, format, texts, fill).map_err(Error::io(name)),
    };
    failure.map_or(written, Err)
}

fn encode(
    file: impl Write,
    format: Format,
    texts: &[(&str, &str)],
    fill: impl FnOnce(&mut RowWriter<'_>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let side = |n: usize| u32::try_from(n).unwrap_or(0); // the encoder refuses zero with an error
    let mut encoder = png::Encoder::new(file, side(format.width), side(format.height));
    encoder.set_color(match (format.channels, format.alpha) {
        (1, false) => png::ColorType::Grayscale,
        (1, true) => png::ColorType::GrayscaleAlpha,
        (_, false) => png::ColorType::Rgb,
        (_, true) => png::ColorType::Rgba,
    });
    encoder.set_depth(if format.deep { png::BitDepth::Sixteen } else { png::BitDepth::Eight });
    for &(key, text) in texts {
        encoder.add_itxt_chunk(key.into(), text.into())?;
    }
    let mut writer = encoder.write_header()?;
    let mut stream = writer.stream_writer()?;
    fill(&mut RowWriter { format, stream: &mut stream, bytes: Vec::new() })?;
    stream.finish()?;
    Ok(writer.finish()?)
}
