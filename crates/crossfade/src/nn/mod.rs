//! The networks, bottom up: operations (`functional`), layers, blocks, and the networks themselves.
//!
//! [`Network`] is any network of a diffusion process, made from a [`NetworkConfig`]: the unconditional U-Net (`unet`,
//! `config`) or the conditional one (`condition`). [`Denoiser`] adds the preconditioning. [`Autoencoder`] makes latents,
//! [`PatchGan`] and [`lpips`] belong to its training.
//!
//! Parameter names and layouts are those of the reference's state dicts (§4.7, appendix B), so that weights travel between
//! the two without renaming or transposition.
pub(crate) mod autoencoder;
pub(crate) mod backbone;
pub(crate) mod batch_norm;
pub(crate) mod block;
pub mod condition;
pub(crate) mod config;
pub(crate) mod denoiser;
pub mod dropout;
pub(crate) mod embed;
pub mod functional;
pub(crate) mod gate;
pub(crate) mod guided;
pub mod init;
pub(crate) mod join;
pub mod layers;
pub mod lpips;
pub(crate) mod mode;
mod module_macros;
pub mod named;
pub(crate) mod network;
pub(crate) mod patchgan;
mod precision;
mod presets;
pub(crate) mod unet;
pub mod weights;

pub use autoencoder::{Autoencoder, AutoencoderConfig, Posterior};
pub use backbone::{Backbone, BackboneConfig, Context, NetworkPorts};
pub use condition::{CondUNet, CondUNetConfig};
pub use config::{Decoders, UNetConfig};
pub use denoiser::{Denoiser, Heads, TargetOutput};
pub use dropout::DropoutKey;
pub use guided::{Conditioned, Evaluate, Guide, Weak, one_hot};
pub use join::Evaluation;
pub(crate) use mode::PlacedMoment;
pub use mode::{Mode, Statistics};
pub use network::{Network, NetworkConfig};
pub use patchgan::PatchGan;
pub use precision::Precision;
pub use presets::{PRESETS, preset};
pub use unet::{RawHeads, UNet};
