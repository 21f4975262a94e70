//! How large a run is, before it starts.
use super::RunConfig;
use crate::nn::config::{BlockPlan, Resample};
use crate::nn::{BackboneConfig, CondUNetConfig, Decoders, NetworkConfig, UNetConfig};
use serde::Serialize;

/// Images that are sampled at a time by default.
pub const BATCH: usize = 64;

/// Bytes of a number.
const F32: u64 = 4;

/// Sizes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// Weights of the network, exactly.
    pub parameters: u64,
    /// How many times the channels of an image the phi head has.
    pub phi_parts: usize,
    /// Bytes of one copy of the weights in a file.
    pub weights_bytes: u64,
    /// Bytes of a checkpoint: weights, averaged weights and both moments of the optimiser.
    pub checkpoint_bytes: u64,
    /// Bytes that training needs, estimated: five copies of the weights, and what the backward pass keeps of a batch.
    pub train_bytes: u64,
    /// Bytes that sampling needs at the usual number of images at a time, estimated.
    pub sample_bytes: u64,
}

impl RunConfig {
    /// The sizes of this run; the configuration must be valid.
    pub fn sizes(&self) -> Sizes {
        let phi_parts = self.process.phi_parts();
        let parameters = self.network.parameter_count(self.ports());
        let (kept, passing, at_once) = match &self.network {
            NetworkConfig::UNet(network) => (kept_values(network), passing_values(network), BATCH as u64),
            NetworkConfig::CondUNet(network) => {
                let [kept, passing] = self.conditional_values(network);
                // A task works on one tile at a time.
                (kept, passing, 1)
            }
        };
        let parameters = parameters as u64;
        let (weights, kept, passing) = (F32 * parameters, F32 * kept, F32 * passing);
        Sizes {
            parameters,
            phi_parts,
            weights_bytes: weights,
            checkpoint_bytes: 4 * weights,
            train_bytes: 5 * weights + kept * self.train.batch as u64,
            sample_bytes: weights + passing * at_once,
        }
    }
}

/// Images of a level's width that a level of a network with a condition keeps for the backward pass, roughly: of two
/// residual blocks, a relation and an attention.
const LEVEL_IMAGES: u64 = 40;

impl RunConfig {
    /// Values an example that the backward pass keeps, and that live at once in a forward pass.
    fn conditional_values(&self, network: &CondUNetConfig) -> [u64; 2] {
        let [height, width] = self.task.task().size().unwrap_or_default();
        // Latents of the reference are a quarter a side.
        let shrunk = if self.latent.is_some() { 4 } else { 1 };
        let pixels = (height / shrunk * (width / shrunk)) as u64;
        let sides = if network.decoders == Decoders::Two { 3 } else { 2 };
        let level = |(i, m): (usize, &usize)| LEVEL_IMAGES * (m * network.width) as u64 * (pixels >> (2 * i.min(31)));
        let kept = sides * network.mult.iter().enumerate().map(level).sum::<u64>();
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

/// Values an image that the backward pass keeps: of each block its input, the outputs of its norms and convolutions, and
/// the attention's queries, keys, values and weights.
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

/// Values an image that live at once in a forward pass: the encoder's outputs and the largest block.
fn passing_values(network: &UNetConfig) -> u64 {
    let skips: u64 = blocks(network).take(network.encoder_plan().len()).map(|(pixels, b)| pixels * b.cout as u64).sum();
    let largest = blocks(network)
        .map(|(pixels, b)| pixels * (3 * b.cin as u64 + 3 * b.cout as u64) + 2 * b.heads() as u64 * pixels * pixels);
    skips + largest.max().unwrap_or(0)
}
