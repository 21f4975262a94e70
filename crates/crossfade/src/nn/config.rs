//! The options of the unconditional U-Net, the list of its blocks, and presets.
use burn::tensor::Device;
use crossfade_math::Problem;
use serde::{Deserialize, Serialize};

use super::backbone::{BackboneConfig, NetworkPorts, is_one, patch_problem, side_unit};
use super::init::initialized;
use super::layers::groups;
use super::named::shapes;
use super::unet::UNet;
use super::weights;
use crate::error::{Error, Result};

/// How a network makes its two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decoders {
    /// One decoder for phi and one for eps (the paper's network).
    Two,
    /// One decoder for phi; eps follows from it algebraically (§4.5).
    One,
    /// One decoder for phi, and a branch of two convolutions at its end for eps (§4.4).
    Conv,
}

/// The options of the unconditional U-Net (§4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UNetConfig {
    /// Side of the images in training; with `patch` it names the levels and places attention. Other sizes run too.
    pub resolution: usize,
    /// Side of the squares of pixels that the network reads and writes as one: 2 makes 64x64 images cost what 32x32 ones
    /// do. The first level has feature maps of `resolution / patch`.
    #[serde(skip_serializing_if = "is_one")]
    pub patch: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Channels of an image of the same size that the network reads beside x_t, concatenated to it, as the condition of a
    /// task; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub condition_channels: usize,
    /// Channels of the first level, M.
    pub width: usize,
    /// Channels of each level as multiples of `width`.
    pub mult: Vec<usize>,
    /// Blocks per level of the encoder; decoders have one more.
    pub blocks: usize,
    /// Sides of the feature maps with self-attention (where there are at least 64 channels).
    pub attention: Vec<usize>,
    /// How the two outputs are made.
    pub decoders: Decoders,
    /// Probability that a feature is dropped in training.
    pub dropout: f64,
    /// Number of augmentation labels; 0 for none.
    pub augment_dim: usize,
    /// Number of classes of the images; 0 for a network without classes.
    #[serde(skip_serializing_if = "is_zero")]
    pub classes: usize,
    /// Scale skip connections from 0.5 (deepest) to 1 (shallowest) (§4.5, `sd_3`).
    pub skip_scaling: bool,
}

impl Default for UNetConfig {
    fn default() -> Self {
        Self {
            resolution: 32,
            patch: 1,
            channels: 3,
            condition_channels: 0,
            width: 64,
            mult: vec![1, 2, 2, 2],
            blocks: 2,
            attention: vec![16, 8],
            decoders: Decoders::Two,
            dropout: 0.1,
            augment_dim: 0,
            classes: 0,
            skip_scaling: false,
        }
    }
}

/// Networks without classes or a condition are written as before there were any, so that their fingerprints stay the same.
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How a block changes the size of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resample {
    /// Not at all.
    Keep,
    /// Average pooling of 2x2 pixels.
    Down,
    /// Nearest-neighbour upsampling by 2.
    Up,
}

/// One block of an encoder or decoder, before it has weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlan {
    /// Its name, e.g. `32x32_block0`.
    pub name: String,
    /// Input channels.
    pub cin: usize,
    /// Output channels.
    pub cout: usize,
    /// How it changes the size of the image.
    pub resample: Resample,
    /// Whether there is self-attention, if the block has at least 64 channels.
    pub attention: bool,
}

impl BlockPlan {
    /// Heads of attention: one per 64 channels, none below 64 even if asked for.
    pub fn heads(&self) -> usize {
        if self.attention { self.cout / 64 } else { 0 }
    }
}

/// Largest sensible value of any size: beyond it is a slip of the pen, and counts could overflow.
const LIMIT: usize = crate::limits::NETWORK_SIZE.size();

impl UNetConfig {
    /// A network with initial weights from `seed`.
    pub fn init(&self, ports: NetworkPorts, seed: u64, device: &Device) -> UNet {
        initialized(UNet::new(self, ports, seed, device))
    }

    /// The network with its weights from a safetensors file that has exactly these parameters (and perhaps the buffers
    /// of a reference state dict).
    pub fn load(&self, ports: NetworkPorts, path: &std::path::Path, device: &Device) -> Result<UNet> {
        let problems = self.validate();
        if !problems.is_empty() {
            return Err(Error::config(&problems));
        }
        weights::load(UNet::new(self, ports, 0, device), path, &self.buffer_names())
    }

    /// A network whose weights are not drawn until they are used; for weights that come from elsewhere.
    pub fn lazy(&self, ports: NetworkPorts, device: &Device) -> UNet {
        UNet::new(self, ports, 0, device)
    }

    /// Names of the resampling filters in the reference's state dicts, all of shape [1, 1, 2, 2]. They are constants, so
    /// that loading ignores them.
    pub fn buffer_names(&self) -> Vec<String> {
        let decoders = if self.decoders == Decoders::Two { &["dec", "dec2"][..] } else { &["dec"] };
        let decoder = self.decoder_plan();
        let sides = std::iter::once(("enc", self.encoder_plan()));
        let sides = sides.chain(decoders.iter().map(|&side| (side, decoder.clone())));
        let blocks = sides.flat_map(|(side, plan)| plan.into_iter().map(move |block| (side, block)));
        blocks
            .filter(|(_, block)| block.resample != Resample::Keep)
            .flat_map(|(side, block)| {
                ["conv0", "skip"].map(|part| format!("{side}.{}.{part}.resample_filter", block.name))
            })
            .collect()
    }

    /// Side of the feature maps of the first level.
    pub(crate) fn side(&self) -> usize {
        self.resolution / self.patch.max(1)
    }

    /// Values of one channel that are read and written as one pixel.
    pub(crate) fn patch_area(&self) -> usize {
        self.patch * self.patch
    }

    /// The blocks of the encoder after its first convolution.
    pub(crate) fn encoder_plan(&self) -> Vec<BlockPlan> {
        let mut plan = Vec::new();
        let mut cin = self.width * self.mult.first().copied().unwrap_or(1);
        for (level, &mult) in self.mult.iter().enumerate() {
            let (r, cout) = (self.side() >> level, self.width * mult);
            if level > 0 {
                plan.push(self.block(r, "down", cin, cin, Resample::Down));
            }
            for i in 0..self.blocks {
                plan.push(self.block(r, &format!("block{i}"), cin, cout, Resample::Keep));
                cin = cout;
            }
        }
        plan
    }

    /// The blocks of each decoder. A block that reads a skip connection has more input channels than its
    /// predecessor has outputs.
    pub(crate) fn decoder_plan(&self) -> Vec<BlockPlan> {
        let encoder = self.encoder_plan();
        let first = self.width * self.mult.first().copied().unwrap_or(1);
        let mut skips: Vec<usize> = std::iter::once(first).chain(encoder.iter().map(|block| block.cout)).collect();
        let mut c = skips[skips.len() - 1];
        let mut plan = Vec::new();
        for (level, &mult) in self.mult.iter().enumerate().rev() {
            let r = self.side() >> level;
            if level + 1 == self.mult.len() {
                plan.push(BlockPlan { attention: true, ..self.block(r, "in0", c, c, Resample::Keep) });
                plan.push(BlockPlan { attention: false, ..self.block(r, "in1", c, c, Resample::Keep) });
            } else {
                plan.push(self.block(r, "up", c, c, Resample::Up));
            }
            for i in 0..=self.blocks {
                let skip = skips.pop().expect("as many skips as blocks that read one");
                plan.push(self.block(r, &format!("block{i}"), c + skip, self.width * mult, Resample::Keep));
                c = self.width * mult;
            }
        }
        plan
    }

    fn block(&self, r: usize, part: &str, cin: usize, cout: usize, resample: Resample) -> BlockPlan {
        let attention = resample == Resample::Keep && self.attention.contains(&r);
        BlockPlan { name: format!("{r}x{r}_{part}"), cin, cout, resample, attention }
    }

    /// Sizes that a count of weights could not survive.
    fn size_problems(&self) -> Vec<Problem> {
        let sizes = [
            ("resolution", self.resolution),
            ("channels", self.channels),
            ("condition_channels", self.condition_channels),
            ("width", self.width),
            ("blocks", self.blocks),
            ("augment_dim", self.augment_dim),
            ("classes", self.classes),
            ("mult", self.mult.iter().copied().max().unwrap_or(0)),
        ];
        let large = sizes.into_iter().filter(|(_, size)| *size > LIMIT);
        let large = large.map(|(key, size)| Problem::new(key, format!("must be at most {LIMIT}, not {size}")));
        large.chain(patch_problem(self.patch)).collect()
    }

    /// Options that make no sense alone.
    fn option_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut require = |ok, key, message: String| Problem::require(&mut problems, ok, key, message);
        let levels = self.mult.len();
        require(self.channels > 0, "channels", "must be at least 1".into());
        require(self.blocks > 0, "blocks", "must be at least 1".into());
        let width = self.width > 0 && self.width.is_multiple_of(4);
        require(width, "width", format!("must be a positive multiple of 4, not {}", self.width));
        let dropout = (0.0..1.0).contains(&self.dropout);
        require(dropout, "dropout", format!("must be in [0, 1), not {}", self.dropout));
        require(levels > 0, "mult", "must name at least one level".into());
        require(!self.mult.contains(&0), "mult", format!("must be positive, not {:?}", self.mult));
        let sides: Vec<usize> = (0..levels.min(32)).map(|level| self.side() >> level).collect();
        let divisible = levels <= 32 && self.resolution > 0 && self.resolution.is_multiple_of(self.unit());
        let exponent = levels.max(1) - 1;
        let patches = if self.patch == 1 { String::new() } else { format!("{} · ", self.patch) };
        let message =
            format!("must be a multiple of {patches}2^{exponent} for {levels} levels, not {}", self.resolution);
        require(divisible, "resolution", message);
        for r in self.attention.iter().filter(|r| divisible && !sides.contains(r)) {
            let message = format!("{r} is the side of the feature maps of no level; those are {sides:?}");
            require(false, "attention", message);
        }
        problems
    }

    /// Groups of a normalisation and heads of an attention must divide the channels.
    fn shape_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut report = |block: &BlockPlan, channels: usize, what: String| {
            let message = format!("{channels} channels of {} do not split into {what}; use another width", block.name);
            problems.push(Problem::new("width", message));
        };
        for block in self.encoder_plan().into_iter().chain(self.decoder_plan()) {
            for c in [block.cin, block.cout] {
                let groups = groups(c);
                if !c.is_multiple_of(groups) {
                    report(&block, c, format!("{groups} groups"));
                }
            }
            let (c, heads) = (block.cout, block.heads());
            if heads > 0 && !c.is_multiple_of(heads) {
                report(&block, c, format!("{heads} heads"));
            }
        }
        problems.dedup();
        problems
    }
}

impl BackboneConfig for UNetConfig {
    fn channels(&self) -> usize {
        self.channels
    }
    fn condition_channels(&self) -> Option<usize> {
        (self.condition_channels > 0).then_some(self.condition_channels)
    }
    fn decoders(&self) -> Decoders {
        self.decoders
    }
    fn unit(&self) -> usize {
        side_unit(self.patch, self.mult.len())
    }
    fn resolution(&self) -> Option<usize> {
        // With a condition the task decides the size of x_t.
        (self.condition_channels == 0).then_some(self.resolution)
    }
    fn classes(&self) -> usize {
        self.classes
    }
    fn augment_dim(&self) -> usize {
        self.augment_dim
    }
    fn log_time(&self) -> bool {
        false
    }
    fn state_shapes(&self, ports: NetworkPorts) -> Vec<(String, Vec<usize>)> {
        shapes(&UNet::new(self, ports, 0, &Device::flex()))
    }
    fn is_trained(&self, _name: &str) -> bool {
        true
    }
    fn validate(&self) -> Vec<Problem> {
        // Each check counts on the ones before it.
        let checks = [Self::size_problems, Self::option_problems, Self::shape_problems];
        checks.iter().map(|check| check(self)).find(|problems| !problems.is_empty()).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_reported_at_once() {
        let bad = UNetConfig { width: 30, resolution: 20, dropout: 1.0, blocks: 0, ..UNetConfig::default() };
        let problems = bad.validate();
        for word in ["width", "resolution", "dropout", "blocks"] {
            assert!(problems.iter().any(|p| p.key == word), "{word} in {problems:?}");
        }
        let problems = UNetConfig { attention: vec![16, 12, 64], ..UNetConfig::default() }.validate();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(!UNetConfig { mult: vec![], ..UNetConfig::default() }.validate().is_empty());
        assert!(!UNetConfig { width: usize::MAX - 3, ..UNetConfig::default() }.validate().is_empty());
        assert!(!UNetConfig { mult: vec![1; 64], ..UNetConfig::default() }.validate().is_empty());
        for (resolution, patch, word) in
            [(64, 0, "patch"), (64, 17, "patch"), (40, 2, "resolution"), (8, 2, "resolution")]
        {
            let problems = UNetConfig { resolution, patch, attention: vec![], ..UNetConfig::default() }.validate();
            assert!(problems.len() == 1 && problems[0].key == word, "{problems:?}");
        }
        // Attention is placed by the feature maps, not by the image.
        let patched = |attention| UNetConfig { resolution: 64, patch: 2, attention, ..UNetConfig::default() };
        assert_eq!(patched(vec![32, 4]).validate(), []);
        assert_eq!(patched(vec![64]).validate().len(), 1);
        // 224 channels would be 3 heads.
        let heads = UNetConfig { width: 224, mult: vec![1], attention: vec![32], ..UNetConfig::default() };
        assert!(heads.validate().iter().any(|p| p.message.contains("3 heads")));
    }
}
