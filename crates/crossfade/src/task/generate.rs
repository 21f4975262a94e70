//! Unconditional generation: x_0 is an image of the set, and there is no condition.
use super::{Example, SampleKey, Task};
use crate::data::{Image, LabelMap, Planes};
use crate::error::Result;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

/// Unconditional generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {}

impl Task for Generate {
    fn size(&self) -> Option<[usize; 2]> {
        None
    }
    fn target_channels(&self) -> Option<usize> {
        None
    }
    fn condition_channels(&self) -> usize {
        0
    }
    fn example(&self, image: &Image, _label: Option<&LabelMap>, key: &SampleKey) -> Result<Example> {
        Ok(Example { target: Planes::from_image(image).flipped(key.flip), condition: None })
    }
    fn validate(&self) -> Vec<Problem> {
        vec![]
    }
}
