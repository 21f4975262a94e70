//! The mean of the images or latents that a network is trained on, from which its ideal outputs at t = 1 follow (§3.5).
use crate::checkpoint::MEAN_X0;
use crate::config::RunConfig;
use crate::nn::BackboneConfig;
use crate::tensorfile::{HostTensor, TensorMap};

/// The running mean of x_0 over all batches so far. It is kept in f32 as in a checkpoint, so that a resumed run has exactly
/// the mean of an uninterrupted one.
#[derive(Clone, Debug)]
pub(crate) struct MeanImage {
    /// `[C, H, W]`.
    shape: [usize; 3],
    values: Vec<f32>,
}

impl MeanImage {
    /// The mean before the first batch; none for runs whose first sampling step is not known from it.
    pub fn new(config: &RunConfig) -> Option<Self> {
        // With classes the ideal result is the mean of the class, which is not measured.
        let has_classes = config.network.classes() > 0;
        // What a distilled network returns at t = 1 is not the mean of the images but where its teacher's first steps lead.
        let ideal = config.task.is_unconditional() && !has_classes && config.distill.is_none();
        let known = config.process.first_step_is_known() && ideal;
        let side = config.network.resolution().filter(|_| known)?;
        let shape = [config.network.channels(), side, side];
        Some(Self { shape, values: vec![0.0; shape.iter().product()] })
    }

    /// Takes the mean out of a checkpoint. One that was written without it leaves none: the mean of the rest of the run
    /// alone would not be that of the data.
    pub fn restore(self, tensors: &mut TensorMap) -> Option<Self> {
        let (shape, values) = tensors.remove(MEAN_X0)?;
        (shape == self.shape).then_some(Self { values, ..self })
    }

    /// The mean of a batch.
    ///
    /// # Shapes
    /// `x0` \[B, C, H, W\], the mean \[C, H, W\].
    pub fn of_batch(&self, x0: &[f32]) -> Vec<f64> {
        let size = self.values.len();
        let images = (x0.len() / size) as f64;
        (0..size).map(|i| x0.iter().skip(i).step_by(size).map(|&v| f64::from(v)).sum::<f64>() / images).collect()
    }

    /// Adds the mean of batch number `count`, counted from 1.
    pub fn add(&mut self, batch: &[f64], count: u64) {
        for (mean, batch) in self.values.iter_mut().zip(batch) {
            *mean = (f64::from(*mean) + (batch - f64::from(*mean)) / count as f64) as f32;
        }
    }

    /// The tensor of a checkpoint.
    pub fn tensor(&self) -> HostTensor {
        (MEAN_X0.to_string(), self.shape.to_vec(), self.values.clone())
    }

    /// Shape and values.
    pub fn parts(&self) -> (Vec<usize>, Vec<f32>) {
        (self.shape.to_vec(), self.values.clone())
    }
}
