//! 8-bit images on the host: decoding with limits, and PNG files with text chunks.
use std::borrow::Cow;
use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::error::{Error, Result};
use crate::limits::{self, IMAGE_FILE, IMAGE_MEMORY, IMAGE_PIXELS, PNG_TEXT};

/// File name extensions of the image files that are read, in lower case.
pub const IMAGE_ENDINGS: &[&str] = &["png", "jpg", "jpeg", "webp"];

/// A rectangle of an image, in pixels from the top left corner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// An image with 8 bits per channel, top row first, channels interleaved (HWC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// 1 (grey) or 3 (RGB).
    pub channels: usize,
    /// `height * width * channels` bytes.
    pub pixels: Vec<u8>,
}

/// The peak signal-to-noise ratio 10·log10(255²/MSE) in dB, from the sum of `count` squared differences.
pub(crate) fn psnr_of(squares: f64, count: usize) -> f64 {
    10.0 * libm::log10(255.0 * 255.0 * count as f64 / squares)
}

impl Image {
    /// An image with the given pixels; panics unless the sizes agree and are positive and `channels` is 1 or 3.
    pub fn new(width: usize, height: usize, channels: usize, pixels: Vec<u8>) -> Self {
        assert!(channels == 1 || channels == 3, "an image has 1 or 3 channels, not {channels}");
        assert!(width > 0 && height > 0, "an image has at least one pixel");
        assert_eq!(pixels.len(), width * height * channels, "bytes of a {width}x{height}x{channels} image");
        Self { width, height, channels, pixels }
    }

    /// 10·log10(255²/mean squared difference) to an image of the same shape; infinite if they are equal.
    pub fn psnr(&self, other: &Self) -> f64 {
        let squares = self.pixels.iter().zip(&other.pixels).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
        psnr_of(squares.sum(), self.pixels.len())
    }

    /// Reads a PNG, JPEG or WebP.
    pub fn read(path: &Path) -> Result<Self> {
        Self::decode(&limits::read(path, &IMAGE_FILE)?, path)
    }

    /// Decodes a PNG, JPEG or WebP; `name` is used in error messages.
    ///
    /// 16-bit and palette images become 8-bit, the EXIF orientation is applied, and colour profiles are ignored (as
    /// in PIL). Transparent pixels are blended with white, since the colours hidden under them are arbitrary.
    pub fn decode(bytes: &[u8], name: impl AsRef<Path>) -> Result<Self> {
        limits::sharing(|| Ok(Self::from_dynamic(decode_upright(bytes, name.as_ref())?)))
    }

    pub(super) fn from_dynamic(image: DynamicImage) -> Self {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let color = image.color();
        let (channels, pixels) = match (color.has_color(), color.has_alpha()) {
            (false, false) => (1, image.into_luma8().into_raw()),
            (false, true) => (1, over_white(&image.into_luma_alpha8().into_raw(), 1)),
            (true, false) => (3, image.into_rgb8().into_raw()),
            (true, true) => (3, over_white(&image.into_rgba8().into_raw(), 3)),
        };
        Self::new(width, height, channels, pixels)
    }

    /// The image with 1 or 3 channels, converted as PIL's `convert("L")` and `convert("RGB")` do.
    pub fn with_channels(&self, channels: usize) -> Cow<'_, Self> {
        let pixels = match (self.channels, channels) {
            (from, to) if from == to => return Cow::Borrowed(self),
            (1, 3) => self.pixels.iter().flat_map(|&v| [v; 3]).collect(),
            (3, 1) => self.pixels.chunks_exact(3).map(luma).collect(),
            _ => unreachable!("an image has 1 or 3 channels, asked for {channels}"),
        };
        Cow::Owned(Self::new(self.width, self.height, channels, pixels))
    }

    /// The largest centred square.
    pub fn centre_square(&self) -> Cow<'_, Self> {
        let side = self.width.min(self.height);
        if self.width == self.height {
            return Cow::Borrowed(self);
        }
        Cow::Owned(self.cut(Rect {
            left: (self.width - side) / 2,
            top: (self.height - side) / 2,
            width: side,
            height: side,
        }))
    }

    /// A part of the image. It may extend past the image, which is then continued by reflection.
    pub fn cut(&self, part: Rect) -> Self {
        let Rect { left, top, width, height } = part;
        let channels = self.channels;
        let mut pixels = Vec::with_capacity(width * height * channels);
        for y in top..top + height {
            let row = &self.pixels[mirrored(y, self.height) * self.width * channels..][..self.width * channels];
            // Without reflection, which is the common case, a row is one copy.
            if left + width <= self.width {
                pixels.extend_from_slice(&row[left * channels..(left + width) * channels]);
            } else {
                let places = (left..left + width).map(|x| mirrored(x, self.width) * channels);
                pixels.extend(places.flat_map(|at| &row[at..at + channels]));
            }
        }
        Self::new(width, height, channels, pixels)
    }

    /// The image mirrored left to right.
    pub fn flip(&self) -> Self {
        let rows = self.pixels.chunks_exact(self.width * self.channels);
        let pixels = rows.flat_map(|row| row.chunks_exact(self.channels).rev().flatten()).copied().collect();
        Self::new(self.width, self.height, self.channels, pixels)
    }

    /// The image as PNG with text chunks, each with a key of 1 to 79 Latin-1 characters and any text.
    pub fn encode_png(&self, texts: &[(&str, &str)]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_png(&mut bytes, texts).map_err(|e| Error::request(format!("cannot write this PNG: {e}")))?;
        Ok(bytes)
    }

    fn write_png(&self, out: &mut Vec<u8>, texts: &[(&str, &str)]) -> std::result::Result<(), png::EncodingError> {
        let side = |n: usize| u32::try_from(n).unwrap_or(0); // the encoder refuses zero with an error
        let mut encoder = png::Encoder::new(out, side(self.width), side(self.height));
        encoder.set_color(if self.channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
        encoder.set_depth(png::BitDepth::Eight);
        for &(key, text) in texts {
            // tEXt chunks are Latin-1 but readable by every tool; iTXt chunks are needed for everything else.
            if text.chars().all(|c| matches!(c, '\n' | ' '..='~')) {
                encoder.add_text_chunk(key.into(), text.into())?;
            } else {
                encoder.add_itxt_chunk(key.into(), text.into())?;
            }
        }
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()
    }
}

/// The index below `n` from which position `i` of a line is copied when the line is continued by reflection without
/// repeating its ends.
pub fn mirrored(i: usize, n: usize) -> usize {
    if i < n {
        return i;
    }
    let period = 2 * (n.max(2) - 1);
    let at = i % period;
    if n == 1 { 0 } else { at.min(period - at) }
}

/// Decodes a PNG, JPEG or WebP within limits and applies its EXIF orientation. Must be called within [`limits::sharing`].
pub(super) fn decode_upright(bytes: &[u8], name: &Path) -> Result<DynamicImage> {
    limits::guarded(name, || {
        let bytes = without_unused_chunks(bytes);
        let bad = |e: image::ImageError| Error::file(name, format!("not a readable image: {e}"));
        let mut decoder = opened(&bytes, name)?;
        // The file with its copy, and the image twice, because it may be turned and is converted.
        limits::need(2 * bytes.len() as u64 + 2 * decoder.total_bytes());
        let orientation = decoder.orientation().map_err(bad)?;
        let mut image = DynamicImage::from_decoder(decoder).map_err(bad)?;
        image.apply_orientation(orientation);
        Ok(image)
    })
}

/// Width and height as the header of a PNG, JPEG or WebP says, before anything is decoded; `name` is used in error messages.
pub fn dimensions(bytes: &[u8], name: impl AsRef<Path>) -> Result<(usize, usize)> {
    let name = name.as_ref();
    let (width, height) = limits::guarded(name, || Ok(opened(&without_unused_chunks(bytes), name)?.dimensions()))?;
    Ok((width as usize, height as usize))
}

/// The PNG without colour profiles and texts, which nothing here uses: the decoder would unpack them, whatever their size. Other
/// bytes are returned as they are.
fn without_unused_chunks(bytes: &[u8]) -> Cow<'_, [u8]> {
    const SIGNATURE: usize = 8;
    if !bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Cow::Borrowed(bytes);
    }
    let (mut kept, mut at, mut dropped) = (vec![&bytes[..SIGNATURE]], SIGNATURE, false);
    // A chunk has a length, a kind, the bytes and a checksum.
    while let Some(&[a, b, c, d, ref kind @ ..]) = bytes.get(at..at + 8) {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(end) = at.checked_add(length + 12).filter(|end| *end <= bytes.len()) else { break };
        if [&b"iCCP"[..], b"zTXt", b"iTXt", b"tEXt"].contains(&kind) {
            dropped = true;
        } else {
            kept.push(&bytes[at..end]);
        }
        at = end;
    }
    // What follows a damaged chunk is left to the decoder, which tells what is wrong.
    kept.push(&bytes[at..]);
    if dropped { kept.concat().into() } else { bytes.into() }
}

/// The decoder of an image whose header is within the limits.
fn opened<'a>(bytes: &'a [u8], name: &Path) -> Result<impl ImageDecoder + 'a> {
    let bad = |reason: String| Error::file(name, format!("not a readable image: {reason}"));
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| bad(e.to_string()))?;
    if !matches!(reader.format(), Some(ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP)) {
        return Err(bad("neither PNG nor JPEG nor WebP".into()));
    }
    // Checked here because the decoder accepts truncated files.
    if reader.format() == Some(ImageFormat::Jpeg) && !jpeg_is_complete(bytes) {
        return Err(bad("the JPEG is truncated".into()));
    }
    let mut limits = Limits::no_limits();
    // This only bounds the decoder's own memory; the number of pixels is checked below, with a better message.
    limits.max_alloc = Some(IMAGE_MEMORY.max);
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|e| bad(e.to_string()))?;
    let (width, height) = decoder.dimensions();
    let pixels = IMAGE_PIXELS.check(u64::from(width) * u64::from(height));
    pixels.map_err(|why| bad(format!("{width}x{height} pixels: {why}")))?;
    if width == 0 || height == 0 {
        return Err(bad("no pixels".into()));
    }
    // The limit above is that of the decoder's own buffers; the picture itself is not counted in it.
    IMAGE_MEMORY.check(decoder.total_bytes()).map_err(bad)?;
    Ok(decoder)
}

/// ITU-R 601-2 luma with PIL's fixed-point weights and rounding.
fn luma(rgb: &[u8]) -> u8 {
    let [r, g, b] = [u32::from(rgb[0]), u32::from(rgb[1]), u32::from(rgb[2])];
    ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8
}

/// Blends pixels, each of `colours` bytes and an alpha byte, with white.
fn over_white(pixels: &[u8], colours: usize) -> Vec<u8> {
    let blend = |c: u8, alpha: u8| {
        let (c, alpha) = (u32::from(c), u32::from(alpha));
        ((c * alpha + 255 * (255 - alpha) + 127) / 255) as u8
    };
    pixels.chunks_exact(colours + 1).flat_map(|p| p[..colours].iter().map(|&c| blend(c, p[colours]))).collect()
}

/// Whether a JPEG reaches its end marker. The decoder would fill the missing part with grey, and training on such
/// images would go unnoticed.
fn jpeg_is_complete(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let (Some(&lead), Some(&marker)) = (bytes.get(at), bytes.get(at + 1)) {
        match (lead, marker) {
            (0xff, 0xd9) => return true,
            // Fill bytes, stuffed zeros, restart markers and entropy-coded data have no length; the next marker is
            // searched for.
            (0xff, 0xff) => at += 1,
            (0xff, 0x00..=0x01 | 0xd0..=0xd8) => at += 2,
            (0xff, _) => match bytes.get(at + 2..at + 4) {
                Some(length) => at += 2 + usize::from(u16::from_be_bytes([length[0], length[1]])),
                None => return false,
            },
            _ => at += 1,
        }
    }
    false
}

/// The text chunks of a PNG (tEXt, then zTXt, then iTXt); `name` is used in error messages.
///
/// All of them together are unpacked to at most `PNG_TEXT` bytes: many small chunks can hold as much as one large one.
pub fn png_text(bytes: &[u8], name: impl AsRef<Path>) -> Result<Vec<(String, String)>> {
    let name = name.as_ref();
    limits::guarded(name, || read_png_text(bytes).map_err(|e| Error::file(name, format!("no readable PNG: {e}"))))
}

fn read_png_text(bytes: &[u8]) -> std::result::Result<Vec<(String, String)>, png::DecodingError> {
    let mut left = PNG_TEXT.size();
    let mut spent = |text: &str| {
        left = left.saturating_sub(text.len());
        left
    };
    let limits = png::Limits { bytes: 64 << 20 };
    let mut reader = png::Decoder::new_with_limits(Cursor::new(bytes), limits).read_info()?;
    reader.finish()?;
    let info = reader.info();
    let mut texts: Vec<_> = info.uncompressed_latin1_text.iter().map(|c| (c.keyword.clone(), c.text.clone())).collect();
    for chunk in &info.compressed_latin1_text {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(spent(""))?;
        let text = chunk.get_text()?;
        spent(&text);
        texts.push((chunk.keyword.clone(), text));
    }
    for chunk in &info.utf8_text {
        let mut chunk = chunk.clone();
        chunk.decompress_text_with_limit(spent(""))?;
        let text = chunk.get_text()?;
        spent(&text);
        texts.push((chunk.keyword.clone(), text));
    }
    Ok(texts)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn channels_convert_as_pil_does() {
        // Image.new("RGB", (1, 1), c).convert("L").getpixel((0, 0)) in Pillow 12.3
        for (rgb, grey) in [([255, 0, 0], 76), ([0, 255, 0], 150), ([0, 0, 255], 29), ([12, 200, 77], 130)] {
            assert_eq!(Image::new(1, 1, 3, rgb.to_vec()).with_channels(1).pixels, [grey]);
        }
        assert_eq!(Image::new(2, 1, 1, vec![3, 9]).with_channels(3).pixels, [3, 3, 3, 9, 9, 9]);
    }

    #[test]
    fn transparency_is_laid_over_white() {
        assert_eq!(over_white(&[10, 20, 30, 255, 10, 20, 30, 0], 3), [10, 20, 30, 255, 255, 255]);
        assert_eq!(over_white(&[0, 128], 1), [127]);
    }

    #[test]
    fn the_middle_square_is_cut_out() {
        let wide = Image::new(4, 2, 1, vec![0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(wide.centre_square().pixels, [1, 2, 5, 6]);
        let high = Image::new(1, 4, 3, (0..12).collect());
        assert_eq!(high.centre_square().pixels, [3, 4, 5]);
    }
}
