//! Edge detection (§6.6). The target is the mean of several annotators, with pixels above a threshold set to 1.
use super::crop::{resized, uniform};
use super::{Example, SampleKey, Task, required_label, side_problems};
use crate::data::{Filter, Image, LabelMap, PassOrder, Planes, resize};
use crate::error::Result;
use crate::rng::Purpose;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// How a training sample is cropped from its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cropping {
    /// A random part of 25 to 100 % of the area, resized: the reference's choice for BSDS.
    #[default]
    Resized,
    /// A random part at its original resolution: the reference's choice for NYUD and BIPED.
    Plain,
}

/// Edge detection, trained on edges drawn by people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Edges {
    /// Side of the training images in pixels.
    pub size: usize,
    /// Pixels that at least this share of the annotators marked become 1; the others keep their share.
    pub threshold: f64,
    /// How a training sample is cropped from its image.
    pub crop: Cropping,
}

impl Default for Edges {
    fn default() -> Self {
        Self { size: 320, threshold: 0.3, crop: Cropping::Resized }
    }
}

impl Edges {
    fn thresholded(&self, label: LabelMap) -> LabelMap {
        let limit = self.threshold * f64::from(u16::MAX);
        let values = label.values.iter().map(|&v| if f64::from(v) >= limit { u16::MAX } else { v });
        LabelMap::new(label.width, label.height, values.collect())
    }
}

impl Task for Edges {
    fn size(&self) -> Option<[usize; 2]> {
        Some([self.size; 2])
    }
    fn target_channels(&self) -> Option<usize> {
        Some(1)
    }
    fn condition_channels(&self) -> usize {
        3
    }
    fn needs_labels(&self) -> bool {
        true
    }
    fn example(&self, image: &Image, label: Option<&LabelMap>, key: &SampleKey) -> Result<Example> {
        let label = required_label(label, image, "edge map")?;
        let (mut stream, full_size) = (key.stream(Purpose::Crop), [image.height, image.width]);
        let place = match self.crop {
            Cropping::Resized => resized(&mut stream, full_size),
            Cropping::Plain => uniform(&mut stream, full_size, self.size, self.size),
        };
        let image = image.with_channels(3).cut(place);
        let image = resize(&image, self.size, self.size, Filter::Bilinear, PassOrder::HorizontalFirst);
        // Nearest neighbour, because interpolation would give pixels beside an edge a share that no annotator gave.
        let label = label.cut(place).nearest(self.size, self.size);
        let target = Planes::from_label(&self.thresholded(label), f32::from(u16::MAX)).flipped(key.flip);
        Ok(Example { target, condition: Some(Planes::from_image(&image).flipped(key.flip)) })
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = side_problems("size", self.size, 1);
        if !(0.0..=1.0).contains(&self.threshold) {
            problems.push(Problem::new("threshold", format!("must be from 0 to 1, not {}", self.threshold)));
        }
        problems
    }
}
