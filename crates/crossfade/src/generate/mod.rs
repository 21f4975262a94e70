//! Pictures from a network: image k is a pure function of (weights, settings, seed, k).
mod job;
mod maker;
mod recipe;
mod solve;

pub use job::{Job, JobReport, Shard, run};
pub use maker::Maker;
pub use recipe::{Recipe, Reproduced, reproduce};
pub(crate) use solve::estimate_at;
pub use solve::solve;

use crate::config::SampleConfig;
use crate::data::Image;
use crate::data::Planes;
use crate::engine::{Device, Images, Tensor, from_vec, to_host};
use crate::error::Result;
use crate::latent::Latent;
use crate::nn::Denoiser;
use crate::rng::{Purpose, Stream};
use crate::sample::{Hooks, Sampled, State};

pub use crate::config::BATCH;

/// What is said of a network that makes no pictures.
pub(crate) const DIVERGED: &str = "the network makes values that are not numbers; has its training diverged?";

/// Where the starting noise of a picture comes from.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The noise of image `index`.
    Index(u64),
    /// Between two images' noises, on the sphere: `share` = 0 is the first, 1 the second.
    Between(u64, u64, f64),
}

impl Start {
    /// The image whose step noise is used.
    fn index(self) -> u64 {
        match self {
            Self::Index(k) | Self::Between(k, ..) => k,
        }
    }

    /// Part 0 is for x, part 1 for the velocity of CLD.
    fn noise(self, seed: u64, part: u64, len: usize) -> Vec<f32> {
        match self {
            Self::Index(k) => normals(seed, k, part, Purpose::Start, len),
            Self::Between(a, b, share) => {
                // Spherical interpolation: independent normals stay normal on the way.
                let angle = share * std::f64::consts::FRAC_PI_2;
                let [a, b] = [a, b].map(|k| normals(seed, k, part, Purpose::Start, len));
                let (sin, cos) = (libm::sin(angle) as f32, libm::cos(angle) as f32);
                a.iter().zip(&b).map(|(a, b)| cos * a + sin * b).collect()
            }
        }
    }
}

fn normals(seed: u64, index: u64, step: u64, purpose: Purpose, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    Stream::new(seed, index, step, purpose).fill_normal(&mut out);
    out
}

/// Samples one batch; `observe` sees every intermediate state.
///
/// # Shapes
/// `size` is (C, H, W); the result is `[starts.len(), C, H, W]` in \[−1, 1\].
pub fn sample_batch(
    net: &Denoiser,
    config: &SampleConfig,
    size: [usize; 3],
    seed: u64,
    starts: &[Start],
    device: &Device,
    observe: &mut dyn FnMut(State<'_, Images>),
) -> Result<Sampled<Images>> {
    let [c, h, w] = size;
    let len = c * h * w;
    let shape = [starts.len(), c, h, w];
    let tensor = |noise: &dyn Fn(&Start) -> Vec<f32>| -> Tensor<4> {
        from_vec(starts.iter().flat_map(noise).collect(), shape, device)
    };
    let mut noise =
        |step: usize| Images(tensor(&|start| normals(seed, start.index(), step as u64, Purpose::Step, len)));
    let start = |part: u64| Images(tensor(&|start| start.noise(seed, part, len)));
    solve(net, config, &start, &mut Hooks { noise: &mut noise, observe })
}

/// 8-bit pictures: (x + 1)/2 · 255, rounded and limited.
///
/// # Shapes
/// `[B, C, H, W]` to B images.
pub fn to_images(x: Tensor<4>) -> Vec<Image> {
    let [_, c, h, w] = x.dims();
    let values = to_host(x);
    values.chunks_exact(c * h * w).map(|planes| Planes::new([c, h, w], planes.to_vec()).to_image()).collect()
}

/// 8-bit pictures of what a network made: of pixels, or of latents through their decoder.
///
/// # Shapes
/// `[B, C, H, W]` to B images.
pub fn decoded(latent: Option<&Latent>, x: Tensor<4>) -> Vec<Image> {
    match latent {
        Some(latent) => to_images(latent.decode(x)),
        None => to_images(x),
    }
}
