//! Networks with a condition: an encoder of the condition, and a U-Net that looks at it on every level (§4.6).
//!
//! [`CondUNetConfig`] says what a network is; [`CondUNet::encode`] looks at a condition once, [`CondUNet::forward`] uses
//! the result at every time; [`Denoiser<CondUNet>`](crate::nn::Denoiser) adds preconditioning and is what a sampler sees.
//! Running statistics of batch normalisations are named and saved like parameters; a training pass notes what it saw in
//! [`Statistics`](crate::nn::Statistics), and [`Statistics::into_module`](crate::nn::Statistics::into_module) takes that into the network.
mod cond_unet;
mod config;
mod fourier;
mod levels;
mod linear_attention;
mod load;
mod relation;
mod resblock;
mod resize;
mod swin;
mod swin_block;
#[cfg(test)]
mod tests;
mod unet_encoder;

pub use cond_unet::{CondUNet, Features, Tap};
pub use config::{CONDITION_PRESETS, CondUNetConfig, EncoderConfig, Split, condition_preset};
pub use load::load_encoder;
