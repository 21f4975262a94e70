//! Images out of nothing: the set's own images, no condition.
use super::{Draw, Pair, Task};
use crate::data::{Image, Plane, Planes};
use crate::error::Result;
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
    fn pair(&self, image: &Image, _label: Option<&Plane>, draw: &Draw) -> Result<Pair> {
        Ok(Pair { target: Planes::from_image(image).flipped(draw.flip), condition: None })
    }
    fn validate(&self) -> Vec<Problem> {
        vec![]
    }
}
