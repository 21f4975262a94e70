//! Networks with a condition: an encoder of the condition, and a U-Net that reads its feature maps on every level (§4.6).
//!
//! [`CondUNetConfig`] holds the options; [`CondUNet::encode`] computes feature maps of a condition once, and
//! [`CondUNet::forward`] reads them at every time. Running statistics of batch normalisations are named and saved like
//! parameters; a training pass notes the moments of its batch in [`Statistics`](crate::nn::Statistics).
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
mod vgg;
mod vgg_forward;
#[cfg(test)]
mod vgg_tests;

pub use cond_unet::{CondUNet, Features, Tap};
pub use config::{CONDITION_PRESETS, CondUNetConfig, EncoderConfig, Split, condition_preset};
pub use load::load_encoder;
pub use vgg::VggLevel;
