//! Depth estimation (§6.7) from 16-bit maps in millimetres, up to 10 metres.
use super::crop::uniform;
use super::{Example, SampleKey, Task, required_label, side_problems};
use crate::data::{Filter, Image, LabelMap, PassOrder, Planes, Rect, resize};
use crate::error::Result;
use crate::rng::Purpose;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// The part of a 640x480 Kinect image inside its white frame.
const FRAME: Rect = Rect { left: 41, top: 45, width: 560, height: 426 };

/// Depth estimation: the distance of each pixel from the camera.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Depth {
    /// Height and width of the training images in pixels.
    pub size: [usize; 2],
    /// Resize the complete image to that size instead of cropping a part.
    pub resize: bool,
    /// The value in the files that stands for the largest depth; larger ones are clamped.
    pub most: f64,
}

impl Default for Depth {
    fn default() -> Self {
        Self { size: [320, 320], resize: false, most: 10_000.0 }
    }
}

impl Task for Depth {
    fn size(&self) -> Option<[usize; 2]> {
        Some(self.size)
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
        let label = required_label(label, image, "depth map")?;
        // Images of any other size are taken to have no frame.
        let kinect = (image.width, image.height) == (640, 480);
        let frame = Rect { left: 0, top: 0, width: image.width, height: image.height };
        let frame = if kinect { FRAME } else { frame };
        let [height, width] = self.size;
        let place = if self.resize {
            frame
        } else {
            let inner = uniform(&mut key.stream(Purpose::Crop), [frame.height, frame.width], height, width);
            Rect { left: frame.left + inner.left, top: frame.top + inner.top, ..inner }
        };
        let image = image.with_channels(3).cut(place);
        let image = resize(&image, width, height, Filter::Bilinear, PassOrder::HorizontalFirst);
        // Nearest neighbour, because a mean of near and far would be a depth where nothing is.
        let label = label.cut(place).nearest(width, height);
        let mut target = Planes::from_label(&label, self.most as f32);
        // Sensors report far larger values for some pixels; the target must stay in [−1, 1].
        target.values.iter_mut().for_each(|v| *v = v.min(1.0));
        Ok(Example { target: target.flipped(key.flip), condition: Some(Planes::from_image(&image).flipped(key.flip)) })
    }
    fn validate(&self) -> Vec<Problem> {
        let mut problems = self.size.map(|side| side_problems("size", side, 1)).concat();
        if !(1.0..=65535.0).contains(&self.most) {
            problems.push(Problem::new("most", format!("must be from 1 to 65535, not {}", self.most)));
        }
        problems
    }
}
