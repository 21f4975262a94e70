//! Where a training sample is cut out of its image.
use crate::data::Rect;
use crate::rng::Stream;

/// A place for `height` x `width` pixels, uniform over all; an image that is too small is to be mirrored beyond its ends.
pub fn uniform(stream: &mut Stream, size: [usize; 2], height: usize, width: usize) -> Rect {
    let mut place = |whole: usize, part: usize| stream.below((whole.saturating_sub(part) + 1) as u64) as usize;
    let (top, left) = (place(size[0], height), place(size[1], width));
    Rect { left, top, width, height }
}

/// torchvision's `RandomResizedCrop`: 25 to 100 % of the area, sides in a ratio from 3/4 to 4/3; after ten failures the
/// largest rectangle in the middle within those ratios.
pub fn resized(stream: &mut Stream, [height, width]: [usize; 2]) -> Rect {
    const AREA: [f64; 2] = [0.25, 1.0];
    const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];
    let between = |stream: &mut Stream, [low, high]: [f64; 2]| low + (high - low) * stream.uniform();
    for _ in 0..10 {
        let area = (height * width) as f64 * between(stream, AREA);
        let ratio = libm::exp(between(stream, RATIO.map(libm::log)));
        let (w, h) = ((area * ratio).sqrt().round() as usize, (area / ratio).sqrt().round() as usize);
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            return uniform(stream, [height, width], h, w);
        }
    }
    let ratio = width as f64 / height as f64;
    let (w, h) = if ratio < RATIO[0] {
        (width, ((width as f64 / RATIO[0]).round() as usize).clamp(1, height))
    } else if ratio > RATIO[1] {
        (((height as f64 * RATIO[1]).round() as usize).clamp(1, width), height)
    } else {
        (width, height)
    };
    Rect { left: (width - w) / 2, top: (height - h) / 2, width: w, height: h }
}
