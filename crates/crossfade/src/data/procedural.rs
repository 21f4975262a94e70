//! A dataset that needs no files: discs, rings and rounded squares over a gradient, in a few palettes.
use super::{Classes, Dataset, Image};
use crate::error::{Error, Result};
use crate::rng::{Purpose, Stream};

/// The default length of the set: that of CIFAR-10.
pub(super) fn default_len() -> usize {
    50_000
}

type Colour = [f64; 3];

/// A colour scheme.
struct Palette {
    /// The name of the class of its images.
    name: &'static str,
    /// The two ends of the background's gradient.
    background: [u32; 2],
    /// The colours of the shapes.
    shapes: [u32; 3],
}

const PALETTES: [Palette; 6] = [
    Palette { name: "sunset", background: [0x2b2d5b, 0xf2a07b], shapes: [0xffd9a0, 0xe4572e, 0x7b5ea7] },
    Palette { name: "sea", background: [0xcfeaf0, 0x4f9fb8], shapes: [0x0b3954, 0xff6663, 0xfefcf3] },
    Palette { name: "forest", background: [0xdfe9c9, 0x6c9a6d], shapes: [0x274c3a, 0xf2c14e, 0xd9663b] },
    Palette { name: "clay", background: [0xf8ecd6, 0xe3b587], shapes: [0x8c4a32, 0x2f6f73, 0xfff8ea] },
    Palette { name: "night", background: [0x0f1737, 0x3c4f9a], shapes: [0xf4e285, 0xf28ab2, 0x8fd3f4] },
    Palette { name: "rose", background: [0xfbe3ec, 0xd388b1], shapes: [0x6a1b4d, 0xf9a03f, 0xffffff] },
];

fn rgb(hex: u32) -> Colour {
    [16, 8, 0].map(|shift| f64::from(hex >> shift & 255))
}

fn mix(a: Colour, b: Colour, share: f64) -> Colour {
    [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * share)
}

#[derive(Clone, Copy)]
enum Outline {
    Disc,
    Ring,
    Square,
}

/// A shape. The image is the unit square with y downwards, so that a scene does not depend on the resolution.
struct Shape {
    outline: Outline,
    centre: [f64; 2],
    radius: f64,
    /// Sine and cosine of the rotation angle.
    rotation: (f64, f64),
    colour: Colour,
}

impl Shape {
    fn draw(stream: &mut Stream, colour: Colour) -> Self {
        let outline = [Outline::Disc, Outline::Ring, Outline::Square][stream.below(3) as usize];
        let mut between = |low: f64, high: f64| low + (high - low) * stream.uniform();
        Self {
            outline,
            centre: [between(0.22, 0.78), between(0.22, 0.78)],
            radius: between(0.16, 0.29),
            rotation: libm::sincos(between(0.0, std::f64::consts::FRAC_PI_2)),
            colour,
        }
    }

    /// Signed distance of a point to the outline, negative inside.
    fn distance(&self, [x, y]: [f64; 2]) -> f64 {
        let (x, y, r) = (x - self.centre[0], y - self.centre[1], self.radius);
        let length = |x: f64, y: f64| (x * x + y * y).sqrt();
        match self.outline {
            Outline::Disc => length(x, y) - r,
            Outline::Ring => (length(x, y) - 0.76 * r).abs() - 0.24 * r,
            Outline::Square => {
                let (sin, cos) = self.rotation;
                let (half, corner) = (0.85 * r, 0.3 * r);
                let (u, v) = ((cos * x + sin * y).abs() - half + corner, (cos * y - sin * x).abs() - half + corner);
                length(u.max(0.0), v.max(0.0)) + u.max(v).min(0.0) - corner
            }
        }
    }

    /// The colour at a point that had the colour `below` before this shape; `pixel` is the width of a pixel.
    fn over(&self, below: Colour, [x, y]: [f64; 2], pixel: f64) -> Colour {
        let (shadow, lift) = (0.07, 0.035);
        // The shadow is the shape itself, shifted and blurred; smoothstep gives it a soft edge.
        let depth = (0.5 - self.distance([x - 0.5 * lift, y - lift]) / shadow).clamp(0.0, 1.0);
        let shaded = mix(below, [20.0, 20.0, 40.0], 0.28 * depth * depth * (3.0 - 2.0 * depth));
        // Lighter towards the top, as if lit from there.
        let light = 0.22 * (0.5 - 0.5 * (y - self.centre[1]) / self.radius).clamp(0.0, 1.0);
        // The distance in pixels, limited to one pixel, is the share of the pixel that the shape covers:
        // anti-aliasing.
        let covered = (0.5 - self.distance([x, y]) / pixel).clamp(0.0, 1.0);
        mix(shaded, mix(self.colour, [255.0; 3], light), covered)
    }
}

/// The procedural dataset: image k depends on (seed, k) alone and shows the same scene at every resolution.
pub struct Procedural {
    seed: u64,
    len: usize,
    resolution: usize,
}

impl Procedural {
    /// The set of a seed, drawn at a resolution.
    pub fn new(seed: u64, len: usize, resolution: usize) -> Result<Self> {
        // The permutation of an epoch is kept in memory, hence the upper bound.
        if !(1..=100_000_000).contains(&len) {
            return Err(Error::request(format!("a procedural set has a len of 1 to 100 million, not {len}")));
        }
        Ok(Self { seed, len, resolution })
    }

    /// The index of an image's palette, and the stream that all else is drawn from.
    fn palette(&self, index: usize) -> (Stream, usize) {
        let mut stream = Stream::new(self.seed, index as u64, 0, Purpose::Procedural);
        let palette = stream.below(PALETTES.len() as u64) as usize;
        (stream, palette)
    }
}

impl Dataset for Procedural {
    fn len(&self) -> usize {
        self.len
    }

    fn get(&self, index: usize) -> Result<Image> {
        // Everything random is drawn before the first pixel, so that the scene does not depend on the resolution.
        let (mut stream, palette) = self.palette(index);
        let palette = &PALETTES[palette];
        let [top, bottom] = palette.background.map(rgb);
        let (slant, fall) = libm::sincos(stream.uniform() - 0.5);
        let count = [1, 1, 1, 2, 2, 3][stream.below(6) as usize];
        let colours = stream.permutation(palette.shapes.len());
        let shapes: Vec<Shape> =
            colours[..count].iter().map(|&c| Shape::draw(&mut stream, rgb(palette.shapes[c]))).collect();

        let pixel = 1.0 / self.resolution as f64;
        let mut pixels = Vec::with_capacity(3 * self.resolution * self.resolution);
        for row in 0..self.resolution {
            for column in 0..self.resolution {
                let point = [(column as f64 + 0.5) * pixel, (row as f64 + 0.5) * pixel];
                let share = (0.5 + slant * (point[0] - 0.5) + fall * (point[1] - 0.5)).clamp(0.0, 1.0);
                let background = mix(top, bottom, share);
                let colour = shapes.iter().fold(background, |below, shape| shape.over(below, point, pixel));
                pixels.extend(colour.map(|c| (c + 0.5) as u8));
            }
        }
        Ok(Image::new(self.resolution, self.resolution, 3, pixels))
    }

    fn name(&self, index: usize) -> String {
        format!("procedural image {index} of seed {}", self.seed)
    }

    /// The palettes.
    fn classes(&self) -> Result<Option<Classes>> {
        let names = PALETTES.iter().map(|palette| palette.name.to_string()).collect();
        let of = (0..self.len).map(|index| self.palette(index).1 as u32).collect();
        Classes::new(of, Some(names), &self.describe()).map(Some)
    }

    fn describe(&self) -> String {
        format!("procedural set of seed {}: {} images", self.seed, self.len)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn mean(image: &Image) -> f64 {
        image.pixels.iter().map(|&v| f64::from(v)).sum::<f64>() / image.pixels.len() as f64
    }

    #[test]
    fn an_image_depends_on_seed_and_index_alone_and_keeps_its_scene_at_any_resolution() {
        let small = Procedural::new(3, 100, 16).unwrap();
        let large = Procedural::new(3, 7, 64).unwrap();
        let other = Procedural::new(4, 100, 16).unwrap();
        for k in 0..7 {
            assert_eq!(small.get(k).unwrap(), small.get(k).unwrap());
            assert_ne!(small.get(k).unwrap(), small.get(k + 1).unwrap());
            assert_ne!(small.get(k).unwrap(), other.get(k).unwrap());
            let difference = mean(&small.get(k).unwrap()) - mean(&large.get(k).unwrap());
            assert!(difference.abs() < 1.5, "image {k}: {difference}");
        }
    }
}
