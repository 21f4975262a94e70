//! Random crops of training images.
use crate::data::Rect;
use crate::rng::Stream;

/// A uniformly random place for `height` x `width` pixels. If the image is too small, the crop starts at 0 and the
/// caller continues the image by reflection.
pub fn uniform(stream: &mut Stream, size: [usize; 2], height: usize, width: usize) -> Rect {
    let mut place = |full: usize, part: usize| stream.below((full.saturating_sub(part) + 1) as u64) as usize;
    let (top, left) = (place(size[0], height), place(size[1], width));
    Rect { left, top, width, height }
}

/// torchvision's `RandomResizedCrop` with 25 to 100 % of the area and an aspect ratio from 3/4 to 4/3. After ten
/// failed attempts it is the largest centred rectangle within these ratios.
pub fn resized(stream: &mut Stream, [height, width]: [usize; 2]) -> Rect {
    const AREA: [f64; 2] = [0.25, 1.0];
    const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];
    let between = |stream: &mut Stream, [low, high]: [f64; 2]| low + (high - low) * stream.uniform();
    for _ in 0..10 {
        let area = (height * width) as f64 * between(stream, AREA);
        // Uniform in the logarithm, so that a ratio and its inverse are equally likely.
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
