//! Contact sheets: many images on one.
use super::Image;

/// The name of the contact sheet of a job, or of shard `index` of `count`.
pub fn sheet_name(index: u64, count: u64) -> String {
    if count == 1 { "sheet.png".into() } else { format!("sheet-{index}-of-{count}.png") }
}

/// Whether a file has the name of a contact sheet.
pub(super) fn is_sheet_name(name: &str) -> bool {
    let shard = name.strip_prefix("sheet-").and_then(|rest| rest.strip_suffix(".png"));
    name == "sheet.png" || shard.is_some_and(|shard| shard.contains("-of-"))
}

/// The grey value of gaps and empty cells.
pub const BACKGROUND: u8 = 245;

/// Arranges images in rows of `columns`, each pixel enlarged to a square of `scale` x `scale`, with `gap` light
/// pixels around every image.
///
/// All cells have the size of the largest image; smaller images are at the top left of their cell. Grey and RGB may
/// be mixed.
pub fn contact_sheet(images: &[Image], columns: usize, gap: usize, scale: usize) -> Image {
    let columns = columns.clamp(1, images.len().max(1));
    let scale = scale.max(1);
    let largest = |side: fn(&Image) -> usize| images.iter().map(side).max().unwrap_or(1) * scale;
    let (cell_width, cell_height) = (largest(|i| i.width), largest(|i| i.height));
    let rows = images.len().div_ceil(columns).max(1);
    let channels = images.iter().map(|i| i.channels).max().unwrap_or(1);
    let (width, height) = (columns * (cell_width + gap) + gap, rows * (cell_height + gap) + gap);
    let mut pixels = vec![BACKGROUND; width * height * channels];
    for (k, image) in images.iter().enumerate() {
        let (left, top) = (gap + k % columns * (cell_width + gap), gap + k / columns * (cell_height + gap));
        let image = image.with_channels(channels);
        for y in 0..image.height * scale {
            let source = &image.pixels[y / scale * image.width * channels..][..image.width * channels];
            let start = ((top + y) * width + left) * channels;
            let target = &mut pixels[start..start + source.len() * scale];
            for (enlarged, pixel) in target.chunks_exact_mut(channels * scale).zip(source.chunks_exact(channels)) {
                enlarged.chunks_exact_mut(channels).for_each(|p| p.copy_from_slice(pixel));
            }
        }
    }
    Image::new(width, height, channels, pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_land_in_their_places() {
        let grey = Image::new(1, 1, 1, vec![7]);
        let red = Image::new(2, 1, 3, vec![255, 0, 0, 0, 0, 9]);
        let sheet = contact_sheet(&[grey, red.clone(), red], 2, 1, 2);
        assert_eq!((sheet.width, sheet.height, sheet.channels), (2 * 5 + 1, 2 * 3 + 1, 3));
        let at = |x: usize, y: usize| &sheet.pixels[(y * sheet.width + x) * 3..][..3];
        assert_eq!(at(0, 0), [BACKGROUND; 3]);
        assert_eq!((at(1, 1), at(2, 2), at(3, 1)), (&[7; 3][..], &[7; 3][..], &[BACKGROUND; 3][..]));
        assert_eq!((at(6, 1), at(9, 2)), (&[255, 0, 0][..], &[0, 0, 9][..]));
        assert_eq!((at(1, 4), at(6, 4)), (&[255, 0, 0][..], &[BACKGROUND; 3][..]));
        assert_eq!(contact_sheet(&[], 4, 2, 1).width, 5);
    }
}
