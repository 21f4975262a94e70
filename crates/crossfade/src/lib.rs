//! Few-step image diffusion: networks, samplers, training and the oracle laboratory.
//!
//! The front door: read a [`RunConfig`], [`train`](train::train) it into a [`RunDir`], open the [`Checkpoint`], let a
//! [`Pipeline`] make pictures, and evaluate them by a [`RegisteredMetric`]. `examples/train_and_sample.rs` does that in
//! about 60 lines.
//!
//! Formulas are in `crossfade-math` (re-exported as [`math`]). Only `engine`, `nn`, `loss`, `train` and `bench` name the
//! tensor engine; everything else works on numbers, images or the [`crossfade_math::Field`] trait.
#![forbid(unsafe_code)]

pub use crossfade_math as math;

pub mod apply;
pub mod augment;
pub mod average;
pub mod bench;
pub mod calibrate;
pub mod checkpoint;
pub mod config;
pub mod convert;
pub mod cost;
pub mod data;
pub mod diagnose;
pub mod digest;
pub mod engine;
pub mod error;
pub mod files;
pub mod generate;
pub mod lab;
pub mod latent;
pub mod limits;
pub mod loader;
pub mod loss;
pub mod metrics;
pub mod models;
pub mod nn;
pub(crate) mod pickle;
pub mod plot;
pub mod ranks;
pub mod rng;
pub mod sample;
pub mod study;
pub mod task;
pub mod tensorfile;
pub mod tile;
pub mod torchfile;
pub mod train;

pub use checkpoint::{Checkpoint, RunDir, Weights};
pub use config::{RunConfig, SampleConfig};
pub use error::{Error, Result};
pub use generate::{Pipeline, StartNoise};
pub use metrics::{RegisteredMetric, Report};

/// Compiles the Rust code of the README as a documentation test.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
