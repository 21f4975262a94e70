//! Super-resolution (§6.4): the target is a random crop of a large image, the condition is the crop made small by
//! Pillow's bicubic filter.
use super::{Example, SampleKey, Task, crop, side_problems};
use crate::data::{Filter, Image, LabelMap, PassOrder, Planes, resize};
use crate::error::Result;
use crate::rng::Purpose;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// The form in which the network reads the small image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LowAs {
    /// At its own size: the reference's choice, for latents of the size of the small image.
    #[default]
    Small,
    /// Enlarged to the size of the target by the bicubic filter: for networks on pixels.
    Enlarged,
}

/// Enlarges a small image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SuperResolution {
    /// How many times larger each side becomes.
    pub scale: usize,
    /// Side of the large training images in pixels.
    pub size: usize,
    /// The form in which the network reads the small image.
    pub low: LowAs,
    /// If not 0, x_0 is the difference to the bicubically enlarged image times this factor, so that the network only
    /// learns what the bicubic filter misses. Not in the paper, and only for `low = "enlarged"`.
    pub residual: f64,
}

impl Default for SuperResolution {
    fn default() -> Self {
        Self { scale: 4, size: 512, low: LowAs::Small, residual: 0.0 }
    }
}

impl SuperResolution {
    /// The condition for a small image.
    fn resized_condition(&self, small: &Image) -> Image {
        match self.low {
            LowAs::Small => small.clone(),
            LowAs::Enlarged => {
                let (width, height) = (small.width * self.scale, small.height * self.scale);
                resize(small, width, height, Filter::Bicubic, PassOrder::HorizontalFirst)
            }
        }
    }
}

impl Task for SuperResolution {
    fn size(&self) -> Option<[usize; 2]> {
        Some([self.size; 2])
    }
    fn target_channels(&self) -> Option<usize> {
        Some(3)
    }
    fn condition_channels(&self) -> usize {
        3
    }
    fn scale(&self) -> usize {
        self.scale
    }
    fn example(&self, image: &Image, _label: Option<&LabelMap>, key: &SampleKey) -> Result<Example> {
        let mut stream = key.stream(Purpose::Crop);
        let place = crop::uniform(&mut stream, [image.height, image.width], self.size, self.size);
        let large = image.with_channels(3).cut(place);
        let side = self.size / self.scale;
        let small = resize(&large, side, side, Filter::Bicubic, PassOrder::HorizontalFirst);
        let condition = Planes::from_image(&self.resized_condition(&small)).flipped(key.flip);
        let mut target = Planes::from_image(&large).flipped(key.flip);
        if self.residual > 0.0 {
            let pixels = target.values.iter_mut().zip(&condition.values);
            // Differences are small; the factor gives x_0 about the variance that the noise schedule expects.
            pixels.for_each(|(x, low)| *x = (*x - low) * self.residual as f32);
        }
        Ok(Example { target, condition: Some(condition) })
    }
    fn condition(&self, x: Planes) -> Result<Planes> {
        match self.low {
            LowAs::Small => Ok(x),
            LowAs::Enlarged => Ok(Planes::from_image(&self.resized_condition(&x.to_image()))),
        }
    }
    fn output(&self, mut made: Planes, condition: &Planes) -> Planes {
        if self.residual > 0.0 {
            let pixels = made.values.iter_mut().zip(&condition.values);
            pixels.for_each(|(x, low)| *x = (low + *x / self.residual as f32).clamp(-1.0, 1.0));
        }
        made
    }
    fn condition_has_target_size(&self) -> bool {
        self.low == LowAs::Enlarged
    }
    fn makes_images(&self) -> bool {
        self.residual == 0.0
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = side_problems("size", self.size, self.scale);
        if !(0.0..=100.0).contains(&self.residual) {
            problems.push(Problem::new("residual", format!("must be from 0 to 100, not {}", self.residual)));
        }
        if self.residual > 0.0 && self.low != LowAs::Enlarged {
            problems.push(Problem::new("residual", "needs low = \"enlarged\""));
        }
        if !(2..=16).contains(&self.scale) {
            problems.push(Problem::new("scale", format!("must be from 2 to 16, not {}", self.scale)));
        }
        problems
    }
}
