//! Inpainting masks: from the reference's random generator, from files, and from boxes. `known` is true where the
//! image is given and false in the hole.
use crate::data::LabelMap;
use crate::data::image::mirrored;
use crate::error::{Error, Result};
use crate::rng::Stream;
use std::f64::consts::TAU;

/// Which pixels of an image are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// One value per pixel, row by row.
    pub known: Vec<bool>,
}

/// A rectangle to be filled in: left, top, width, height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoleBox(pub [usize; 4]);

impl HoleBox {
    /// Parses `x,y,width,height`.
    pub fn parse(text: &str) -> Result<Self> {
        let numbers: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[x, y, w, h]) if w > 0 && h > 0 => Ok(Self([x, y, w, h])),
            _ => {
                Err(Error::request(format!("box '{text}': write x,y,width,height in pixels, for example 40,30,64,64")))
            }
        }
    }
}

impl Mask {
    /// A mask without a hole.
    pub fn whole(width: usize, height: usize) -> Self {
        Self { width, height, known: vec![true; width * height] }
    }

    /// A mask whose pixels are known where the map is at least half white.
    pub fn from_label(plane: &LabelMap) -> Self {
        let known = plane.values.iter().map(|&v| v >= 1 << 15).collect();
        Self { width: plane.width, height: plane.height, known }
    }

    /// A mask with a hole for each rectangle; an error if one starts outside.
    pub fn boxes(width: usize, height: usize, boxes: &[HoleBox]) -> Result<Self> {
        let mut mask = Self::whole(width, height);
        for HoleBox([x, y, w, h]) in boxes {
            if *x >= width || *y >= height {
                return Err(Error::request(format!("box {x},{y},{w},{h} lies outside of {width}x{height} pixels")));
            }
            mask.fill(*x as i64, *y as i64, *w as i64, *h as i64);
        }
        Ok(mask)
    }

    /// The part of `height` x `width` pixels at (`y`, `x`). Beyond its border the mask is continued by reflection.
    pub fn cut(&self, y: usize, x: usize, height: usize, width: usize) -> Self {
        let row = |y: usize| mirrored(y, self.height) * self.width;
        let places = (y..y + height).flat_map(|y| (x..x + width).map(move |x| row(y) + mirrored(x, self.width)));
        Self { width, height, known: places.map(|at| self.known[at]).collect() }
    }

    /// The share of unknown pixels.
    pub fn hole(&self) -> f64 {
        self.known.iter().filter(|known| !**known).count() as f64 / self.known.len() as f64
    }

    /// Makes a hole of a rectangle, as far as it is inside the mask.
    fn fill(&mut self, x: i64, y: i64, w: i64, h: i64) {
        let within =
            |from: i64, len: i64, side: usize| from.max(0) as usize..(from + len).clamp(0, side as i64) as usize;
        for row in within(y, h, self.height) {
            let columns = within(x, w, self.width);
            if !columns.is_empty() {
                self.known[row * self.width..][columns].fill(false);
            }
        }
    }
}

/// A random mask of the reference's generator (§6.3): rectangles and brush strokes. Masks without a hole or without
/// known pixels are drawn again. The reference's brush, 12 to 48 pixels wide, is multiplied by `brush`.
pub fn random(stream: &mut Stream, width: usize, height: usize, brush: f64) -> Mask {
    for _ in 0..1000 {
        let mut mask = Mask::whole(width, height);
        for (tries, w, h) in [(4, width / 2, height / 2), (2, width, height)] {
            for _ in 0..stream.below(tries) {
                rectangle(stream, &mut mask, w, h);
            }
        }
        let strokes = strokes(stream, width, height, brush);
        mask.known.iter_mut().zip(strokes).for_each(|(known, stroke)| *known &= !stroke);
        let hole = mask.hole();
        if hole > 0.0 && hole < 1.0 {
            return mask;
        }
    }
    // An image of a few pixels is smaller than the brush and may always be covered: then its first pixel is the hole.
    let mut mask = Mask::whole(width, height);
    mask.known[0] = false;
    mask
}

fn rectangle(stream: &mut Stream, mask: &mut Mask, max_w: usize, max_h: usize) {
    let (w, h) = (stream.below(max_w.max(1) as u64) as i64, stream.below(max_h.max(1) as u64) as i64);
    // The corner is uniform in the half-open range −side/2 .. full − side + side/2, so that rectangles may cross the
    // border.
    let mut place =
        |side: i64, full: i64| -(side / 2) + stream.below((full - side + 2 * (side / 2)).max(1) as u64) as i64;
    let (x, y) = (place(w, mask.width as i64), place(h, mask.height as i64));
    mask.fill(x, y, w, h);
}

/// Brush strokes: zigzag polylines 12 to 48 pixels wide, times `scale`. The width does not depend on the size of the image,
/// as in the reference.
fn strokes(stream: &mut Stream, width: usize, height: usize, scale: f64) -> Vec<bool> {
    let mut painted = vec![false; width * height];
    for _ in 0..stream.below(8) {
        let vertices = polyline(stream, width as f64, height as f64);
        let brush = (12.0 + 36.0 * stream.uniform()).floor() * scale;
        for pair in vertices.windows(2) {
            paint(&mut painted, [width, height], pair[0], pair[1], brush / 2.0);
        }
    }
    // As in the reference, both flips come after all strokes, each with probability ½.
    if stream.uniform() > 0.5 {
        let rows: Vec<Vec<bool>> = painted.chunks_exact(width).rev().map(<[bool]>::to_vec).collect();
        painted = rows.concat();
    }
    if stream.uniform() > 0.5 {
        painted.chunks_exact_mut(width).for_each(<[bool]>::reverse);
    }
    painted
}

fn polyline(stream: &mut Stream, width: f64, height: f64) -> Vec<[f64; 2]> {
    let mean_radius = width.hypot(height) / 8.0;
    let count = 4 + stream.below(14);
    let low = TAU / 5.0 - TAU / 15.0 * stream.uniform();
    let high = TAU / 5.0 + TAU / 15.0 * stream.uniform();
    let angles: Vec<f64> = (0..count)
        .map(|i| {
            let angle = low + (high - low) * stream.uniform();
            if i % 2 == 0 { TAU - angle } else { angle }
        })
        .collect();
    let mut at = [stream.below(width as u64) as f64, stream.below(height as u64) as f64];
    let mut vertices = vec![at];
    for angle in angles {
        let radius = (mean_radius + (mean_radius / 2.0).floor() * stream.normal()).clamp(0.0, 2.0 * mean_radius);
        let (sin, cos) = libm::sincos(angle);
        at = [(at[0] + radius * cos).clamp(0.0, width).floor(), (at[1] + radius * sin).clamp(0.0, height).floor()];
        vertices.push(at);
    }
    vertices
}

/// Paints all pixels within `radius` of the line from `a` to `b`.
fn paint(painted: &mut [bool], [width, height]: [usize; 2], a: [f64; 2], b: [f64; 2], radius: f64) {
    let range = |p: f64, q: f64, side: usize| {
        let low = (p.min(q) - radius).floor().max(0.0) as usize;
        low..((p.max(q) + radius).ceil() as usize + 1).min(side)
    };
    let along = [b[0] - a[0], b[1] - a[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    for y in range(a[1], b[1], height) {
        for x in range(a[0], b[0], width) {
            let from = [x as f64 - a[0], y as f64 - a[1]];
            let share = if length == 0.0 { 0.0 } else { (from[0] * along[0] + from[1] * along[1]) / length };
            let share = share.clamp(0.0, 1.0);
            let perpendicular = [from[0] - share * along[0], from[1] - share * along[1]];
            painted[y * width + x] |=
                perpendicular[0] * perpendicular[0] + perpendicular[1] * perpendicular[1] <= radius * radius;
        }
    }
}
