//! The unconditional network, bottom up: layers, block, U-Net, and the preconditioned [`Denoiser`].
//!
//! Parameter names and layouts are those of the reference state dicts (§4.7, appendix B), so that weights travel
//! between the two without renaming or transposition.
pub mod autoencoder;
pub mod backbone;
pub mod batch_norm;
pub mod block;
pub mod condition;
pub mod config;
pub mod denoiser;
pub mod dropout;
pub mod embed;
pub mod functional;
pub mod gate;
pub mod init;
pub mod layers;
pub mod lpips;
pub mod mode;
mod module_macros;
pub mod named;
pub mod network;
pub mod patchgan;
pub mod unet;
pub mod weights;

pub use autoencoder::{Autoencoder, AutoencoderConfig, Posterior};
pub use backbone::{Backbone, BackboneConfig, Context, NetworkPorts};
pub use condition::{CondUNet, CondUNetConfig};
pub use config::{Decoders, PRESETS, UNetConfig, preset};
pub use denoiser::{Conditioned, Denoiser, Heads, TargetOutput};
pub use dropout::DropoutKey;
pub use mode::{Mode, Statistics};
pub use network::{Network, NetworkConfig};
pub use patchgan::PatchGan;
pub use unet::{RawHeads, UNet};
