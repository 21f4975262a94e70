//! Non-maximum suppression along the edge's normal, as Dollár and Zitnick's structured edge toolbox does it.
//!
//! This is what "after NMS" means in papers on edges: smoothing of radius 1, orientation from second derivatives of
//! the map smoothed with radius 4, comparison at radius 1, attenuation over 5 pixels at the border, a tolerance of 1
//! %.
use super::super::maps::Map;

/// Number of pixels at the border over which values fall to 0, because the orientation is unreliable there.
const BORDER: usize = 5;
/// A pixel is removed if a neighbour across the edge is larger than it times this factor.
const TOLERANCE: f32 = 1.01;

/// Values in row-major order. They are single precision because the toolbox computes so, and comparisons near the
/// tolerance depend on it.
struct Plane {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

impl Plane {
    fn like(&self, value: impl Fn(usize, usize) -> f32) -> Self {
        let values = (0..self.width * self.height).map(|i| value(i % self.width, i / self.width)).collect();
        Self { width: self.width, height: self.height, values }
    }

    fn at(&self, x: usize, y: usize) -> f32 {
        self.values[y * self.width + x]
    }

    /// Convolution with `kernel` (of odd length, symmetric) along both axes; the image is mirrored at its borders.
    fn smooth(&self, kernel: &[f32]) -> Self {
        let r = (kernel.len() / 2) as isize;
        let sum = |at: usize, n: usize, value: &dyn Fn(usize) -> f32| {
            let taps = kernel.iter().zip(-r..).map(|(k, d)| k * value(mirror(at as isize + d, n)));
            taps.sum::<f32>()
        };
        let rows = self.like(|x, y| sum(x, self.width, &|x| self.at(x, y)));
        rows.like(|x, y| sum(y, self.height, &|y| rows.at(x, y)))
    }

    /// Derivatives along x and y: central differences, one-sided at the borders.
    fn gradient(&self) -> (Self, Self) {
        let difference = |at: usize, n: usize, value: &dyn Fn(usize) -> f32| {
            let (a, b) = (at.saturating_sub(1), (at + 1).min(n - 1));
            if b > a { (value(b) - value(a)) / (b - a) as f32 } else { 0.0 }
        };
        let along_x = self.like(|x, y| difference(x, self.width, &|x| self.at(x, y)));
        let along_y = self.like(|x, y| difference(y, self.height, &|y| self.at(x, y)));
        (along_x, along_y)
    }

    /// The bilinearly interpolated value at a position; outside, that of the border.
    fn interpolated(&self, x: f32, y: f32) -> f32 {
        let (x0, x1, u) = split(x, self.width);
        let (y0, y1, v) = split(y, self.height);
        let row = |y: usize| self.at(x0, y) * (1.0 - u) + self.at(x1, y) * u;
        row(y0) * (1.0 - v) + row(y1) * v
    }
}

/// The pixels on both sides of a position, and its distance from the first one. The position is kept slightly below
/// the last pixel, as in the toolbox.
fn split(at: f32, n: usize) -> (usize, usize, f32) {
    let at = at.clamp(0.0, (n as f32 - 1.001).max(0.0));
    let low = at as usize;
    (low, (low + 1).min(n - 1), at - low as f32)
}

/// The index for `i` in a line of `n` pixels that is mirrored at its ends, with the last pixel repeated.
fn mirror(i: isize, n: usize) -> usize {
    let period = 2 * n as isize;
    let i = i.rem_euclid(period);
    (if i < n as isize { i } else { period - 1 - i }) as usize
}

/// The orientation of the edge at each pixel, in [0, π).
fn orientation(edge: &Plane) -> Plane {
    let kernel: Vec<f32> = [1, 2, 3, 4, 5, 4, 3, 2, 1].iter().map(|&k| k as f32 / 25.0).collect();
    let (gx, gy) = edge.smooth(&kernel).gradient();
    let (gxx, _) = gx.gradient();
    let (gxy, gyy) = gy.gradient();
    edge.like(|x, y| {
        let sign = match -gxy.at(x, y) {
            v if v > 0.0 => 1.0,
            v if v < 0.0 => -1.0,
            _ => 0.0,
        };
        // The toolbox adds 1e-5 too; it decides the orientation where the map is flat.
        libm::atanf(gyy.at(x, y) * sign / (gxx.at(x, y) + 1e-5)).rem_euclid(std::f32::consts::PI)
    })
}

/// The smoothed map without the values that are not maximal across the edge, rounded to multiples of 1/255.
pub fn suppress(map: &Map) -> Map {
    let values = map.values.iter().map(|&v| v as f32).collect();
    let edge = Plane { width: map.width, height: map.height, values }.smooth(&[0.25, 0.5, 0.25]);
    let angle = orientation(&edge);
    let fade = |at: usize, n: usize| {
        let border = BORDER.min(n / 2);
        let inside = at.min(n - 1 - at);
        if inside < border { inside as f32 / border as f32 } else { 1.0 }
    };
    let kept = edge.like(|x, y| {
        let here = edge.at(x, y);
        let (sin, cos) = libm::sincosf(angle.at(x, y));
        let suppressed =
            [-1.0, 1.0].iter().any(|d| here * TOLERANCE < edge.interpolated(x as f32 + d * cos, y as f32 + d * sin));
        if suppressed { 0.0 } else { here * fade(x, map.width) * fade(y, map.height) }
    });
    // The benchmark reads the result from 8-bit images.
    let values = kept.values.iter().map(|&v| f64::from((v * 255.0).round().clamp(0.0, 255.0)) / 255.0).collect();
    Map { width: map.width, height: map.height, values }
}
