//! Estimates of a run's parameters, memory and files before it starts.
use super::RunConfig;
use crate::nn::config::{BlockPlan, Resample};
use crate::nn::{BackboneConfig, CondUNetConfig, Decoders, NetworkConfig, UNetConfig};
use serde::Serialize;

/// The default batch size for sampling.
pub const BATCH: usize = 64;

/// Bytes of an f32.
const F32: u64 = 4;

/// Sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// The exact number of parameters of the network.
    pub parameters: u64,
    /// The number of parts of phi; the phi head has this many times the channels of an image.
    pub phi_parts: usize,
    /// Bytes of one copy of the weights in a file.
    pub weights_bytes: u64,
    /// Bytes of a checkpoint: the weights, their averages and both moments of the optimiser.
    pub checkpoint_bytes: u64,
    /// Estimated memory of training in bytes: five copies of the weights (weights, gradients, moving average and two
    /// moments), one more for each further average, and the activations that a batch keeps for the backward pass.
    pub train_bytes: u64,
    /// Estimated memory of sampling in bytes, with the default batch size.
    pub sample_bytes: u64,
}

impl Sizes {
    /// Estimated memory of sampling in bytes with this batch size, for networks without a condition.
    pub fn sampling(&self, batch: usize) -> u64 {
        let each = self.sample_bytes.saturating_sub(self.weights_bytes) / BATCH as u64;
        self.weights_bytes.saturating_add(each.saturating_mul(batch as u64))
    }
}

impl RunConfig {
    /// The sizes of this run; the configuration must be valid.
    pub fn sizes(&self) -> Sizes {
        let phi_parts = self.process.phi_parts();
        let parameters = self.network.parameter_count(self.ports());
        let (kept, live, batch) = match &self.network {
            NetworkConfig::UNet(network) => (kept_values(network), live_values(network), BATCH as u64),
            NetworkConfig::CondUNet(network) => {
                let [kept, live] = self.conditional_values(network);
                // By default a task is applied to one tile at a time.
                (kept, live, 1)
            }
        };
        let parameters = parameters as u64;
        let averages = self.optim.ema_profiles.len() as u64;
        let (weights, kept, live) = (F32 * parameters, F32 * kept, F32 * live);
        Sizes {
            parameters,
            phi_parts,
            weights_bytes: weights,
            checkpoint_bytes: (4 + averages) * weights,
            train_bytes: ((5 + averages) * weights).saturating_add(kept.saturating_mul(self.train.batch as u64)),
            sample_bytes: weights + live * batch,
        }
    }
}

/// Feature maps that one level of a conditional network keeps for the backward pass, estimated for two residual blocks, a
/// relation module and an attention.
const LEVEL_FEATURE_MAPS: u64 = 40;

impl RunConfig {
    /// Values per example that are kept for the backward pass, and that are in memory at once in a forward pass.
    fn conditional_values(&self, network: &CondUNetConfig) -> [u64; 2] {
        let [height, width] = self.task.task().size().unwrap_or_default();
        // The latents of the reference's autoencoders have a quarter of the image's side.
        let factor = network.patch * if self.latent.is_some() { 4 } else { 1 };
        let pixels = (height / factor * (width / factor)) as u64;
        // The encoder and each decoder are about equally large.
        let halves = if network.decoders == Decoders::Two { 3 } else { 2 };
        let level =
            |(i, m): (usize, &usize)| LEVEL_FEATURE_MAPS * (m * network.width) as u64 * (pixels >> (2 * i.min(31)));
        let kept = halves * network.mult.iter().enumerate().map(level).sum::<u64>();
        [kept, network.mult.iter().enumerate().map(level).max().unwrap_or(0)]
    }
}

fn blocks(network: &UNetConfig) -> impl Iterator<Item = (u64, BlockPlan)> {
    let decoders = if network.decoders == Decoders::Two { 2 } else { 1 };
    let decoder = network.decoder_plan();
    let all = network.encoder_plan().into_iter().chain((0..decoders).flat_map(move |_| decoder.clone()));
    all.map(|block| {
        let side: u64 = block.name.split('x').next().and_then(|side| side.parse().ok()).unwrap_or(0);
        (side * side, block)
    })
}

/// Values per image that are kept for the backward pass: of each block its input, the outputs of its norms and
/// convolutions, and the attention's queries, keys, values and weights.
fn kept_values(network: &UNetConfig) -> u64 {
    blocks(network)
        .map(|(pixels, block)| {
            let (cin, cout) = (block.cin as u64, block.cout as u64);
            let before = match block.resample {
                Resample::Keep => pixels,
                Resample::Down => 4 * pixels,
                Resample::Up => pixels / 4,
            };
            let attention =
                if block.heads() > 0 { 6 * cout * pixels + 2 * block.heads() as u64 * pixels * pixels } else { 0 };
            2 * cin * before + cin * pixels + 4 * cout * pixels + attention
        })
        .sum()
}

/// Values per image that are in memory at once in a forward pass: the skip connections and the largest block.
fn live_values(network: &UNetConfig) -> u64 {
    let skips: u64 = blocks(network).take(network.encoder_plan().len()).map(|(pixels, b)| pixels * b.cout as u64).sum();
    let largest = blocks(network)
        .map(|(pixels, b)| pixels * (3 * b.cin as u64 + 3 * b.cout as u64) + 2 * b.heads() as u64 * pixels * pixels);
    skips + largest.max().unwrap_or(0)
}
