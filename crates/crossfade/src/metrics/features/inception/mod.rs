//! Inception-v3 as used for FID since 2015: TensorFlow's weights of 2015-12-05. Its average pools do not count the
//! padding, and its last block has a max pool where the paper has an average pool. torchvision's model differs in
//! both and gives other FID values.
mod blocks;
mod weights;

use super::protocol::SIDE;
use crate::error::{Error, Result};
use blocks::{Arena, BlockA, BlockB, BlockC, BlockD, BlockE, Mixed, THREE};
use crossfade_kernels::channels_last::{Conv, Map, Window, max_pool, mean};
use std::path::Path;
use weights::Reader;

/// Length of a feature vector, the mean over the last 8x8 feature map.
pub const FEATURES: usize = 2048;

/// Number of classes of the classifier.
pub const CLASSES: usize = 1008;

/// Number of images that go through the later layers together, so that each weight is loaded once for all of them.
pub(super) const GROUP: usize = 4;

/// The network with its weights.
pub struct Inception {
    stem: [Conv; 5],
    mixed: Vec<Box<dyn Mixed>>,
    classifier: Option<Vec<f32>>,
    hash: String,
}

/// The feature maps of one thread, reused from call to call.
#[derive(Default)]
pub(super) struct Scratch(Arena);

impl Inception {
    /// Reads the weights: a `.pth` of pytorch-fid or torch-fidelity, or a safetensors file with the same names.
    pub fn load(path: &Path) -> Result<Self> {
        let mut reader = Reader::open(path)?;
        let valid = |stride| Window { kernel: [3, 3], stride, padding: [0, 0] };
        let same = Window { kernel: [3, 3], stride: 1, padding: [1, 1] };
        let stem = [
            reader.conv("Conv2d_1a_3x3", 3, 32, valid(2), SIDE)?,
            reader.conv("Conv2d_2a_3x3", 32, 32, valid(1), 149)?,
            reader.conv("Conv2d_2b_3x3", 32, 64, same, 147)?,
            reader.conv("Conv2d_3b_1x1", 64, 80, blocks::ONE, 73)?,
            reader.conv("Conv2d_4a_3x3", 80, 192, valid(1), 73)?,
        ];
        let mixed: Vec<Box<dyn Mixed>> = vec![
            Box::new(BlockA::load(&mut reader, "Mixed_5b", 192, 32)?),
            Box::new(BlockA::load(&mut reader, "Mixed_5c", 256, 64)?),
            Box::new(BlockA::load(&mut reader, "Mixed_5d", 288, 64)?),
            Box::new(BlockB::load(&mut reader, "Mixed_6a", 288)?),
            Box::new(BlockC::load(&mut reader, "Mixed_6b", 128)?),
            Box::new(BlockC::load(&mut reader, "Mixed_6c", 160)?),
            Box::new(BlockC::load(&mut reader, "Mixed_6d", 160)?),
            Box::new(BlockC::load(&mut reader, "Mixed_6e", 192)?),
            Box::new(BlockD::load(&mut reader, "Mixed_7a")?),
            Box::new(BlockE::load(&mut reader, "Mixed_7b", 1280, false)?),
            Box::new(BlockE::load(&mut reader, "Mixed_7c", 2048, true)?),
        ];
        let classifier = reader.optional("fc.weight", &[CLASSES, FEATURES])?;
        Ok(Self { stem, mixed, classifier, hash: reader.hash })
    }

    /// SHA-256 of the file the weights came from, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The features of up to [`GROUP`] images; `fill(i, map)` writes image i to the input map.
    ///
    /// # Shapes
    /// `out` [images, 2048].
    pub(super) fn features(
        &self,
        scratch: &mut Scratch,
        mut fill: impl FnMut(usize, &mut Map) -> Result<()>,
        out: &mut [f32],
    ) -> Result<()> {
        let (arena, n) = (&mut scratch.0, out.len() / FEATURES);
        let pool = Window { padding: [0, 0], stride: 2, ..THREE };
        let mut x = arena.take(GROUP, n, [35, 35, 192], [0, 0]);
        // The first layers run image by image: their feature maps are large and would leave the cache.
        for i in 0..n {
            let mut input = arena.take(1, 1, [SIDE, SIDE, 3], [0, 0]);
            fill(i, &mut input)?;
            let a = arena.conv(&self.stem[0], input, [0, 0]);
            let b = arena.conv(&self.stem[1], a, [1, 1]);
            let c = arena.conv(&self.stem[2], b, [0, 0]);
            let mut d = arena.take(1, 1, [73, 73, 64], [0, 0]);
            max_pool(&c, pool, d.from(0, 0));
            arena.give_back(c);
            let e = arena.conv(&self.stem[3], d, [0, 0]);
            let f = arena.conv(&self.stem[4], e, [0, 0]);
            max_pool(&f, pool, x.from(i, 0));
            arena.give_back(f);
        }
        for block in &self.mixed {
            let y = block.forward(&x, arena);
            arena.give_back(std::mem::replace(&mut x, y));
        }
        out.chunks_exact_mut(FEATURES).enumerate().for_each(|(i, out)| mean(&x, i, out));
        arena.give_back(x);
        Ok(())
    }

    /// Logits of the classes without the bias, as the Inception Score defines them.
    ///
    /// # Shapes
    /// `features` \[2048\] to \[1008\].
    pub fn logits(&self, features: &[f32]) -> Result<Vec<f32>> {
        let weight = self.classifier.as_ref().ok_or_else(|| {
            Error::request(
                "these weights have no classifier (fc.weight), which the Inception Score needs; \
                 use pt_inception-2015-12-05-6726825d.pth (`crossfade weights get inception`)",
            )
        })?;
        let score = |row: &[f32]| row.iter().zip(features).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>();
        Ok(weight.chunks_exact(FEATURES).map(|row| score(row) as f32).collect())
    }
}
