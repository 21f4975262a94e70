//! Images as a network reads them: planar (CHW) f32 values in [−1, 1].
use super::{Image, LabelMap};

/// A planar image with values in [−1, 1].
#[derive(Clone, Debug, PartialEq)]
pub struct Planes {
    /// (channels, height, width).
    pub shape: [usize; 3],
    /// The values in CHW order.
    pub values: Vec<f32>,
}

impl Planes {
    /// Planes with the given values; panics unless their number fits the shape.
    pub fn new(shape: [usize; 3], values: Vec<f32>) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "values of planes of {shape:?}");
        Self { shape, values }
    }

    /// Maps every byte v to v/127.5 − 1.
    pub fn from_image(image: &Image) -> Self {
        let mut values = Vec::with_capacity(image.pixels.len());
        append_planes(image, false, &mut values);
        Self::new([image.channels, image.height, image.width], values)
    }

    /// Maps every value v to 2·v/most − 1.
    pub fn from_label(plane: &LabelMap, most: f32) -> Self {
        let values = plane.values.iter().map(|&v| 2.0 * f32::from(v) / most - 1.0).collect();
        Self::new([1, plane.height, plane.width], values)
    }

    /// The planes mirrored left to right, if asked.
    pub fn flipped(mut self, flip: bool) -> Self {
        if flip {
            self.values.chunks_exact_mut(self.shape[2]).for_each(<[f32]>::reverse);
        }
        self
    }

    /// The image rounded to 8 bits.
    pub fn to_image(&self) -> Image {
        let [c, h, w] = self.shape;
        let byte = |v: f32| ((v + 1.0) * 127.5).round().clamp(0.0, 255.0) as u8;
        let pixels = (0..h * w).flat_map(|i| (0..c).map(move |k| byte(self.values[k * h * w + i]))).collect();
        Image::new(w, h, c, pixels)
    }
}

/// Appends an image as CHW in [-1, 1], mirrored if asked.
pub(crate) fn append_planes(image: &Image, flip: bool, out: &mut Vec<f32>) {
    // 0 and 255 become exactly −1 and 1.
    let value = |v: u8| f32::from(v) / 127.5 - 1.0;
    for channel in 0..image.channels {
        for row in image.pixels.chunks_exact(image.width * image.channels) {
            let line = row[channel..].iter().step_by(image.channels).map(|&v| value(v));
            let start = out.len();
            out.extend(line);
            if flip {
                out[start..].reverse();
            }
        }
    }
}
