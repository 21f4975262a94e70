//! Image generation: image k is a pure function of (weights, settings, seed, k), whatever the batch size and the shard.
mod classes;
mod denoise;
mod edit;
mod guide;
mod guided;
mod job;
mod likelihood;
mod pipeline;
mod recipe;
mod solve;
mod start;

pub use crate::latent::to_images;
pub use denoise::RATIOS;
pub(crate) use denoise::denoising_errors;
pub use edit::{EditModel, Noise};
pub use guide::GuideRecipe;
pub use job::{Job, JobReport, Shard, run};
pub use likelihood::{Likelihood, LikelihoodConfig};
pub use pipeline::{Pipeline, TaskModel, Watch};
pub use recipe::{EditRecipe, Recipe, Reproduced, reproduce, task_recipe};
pub use start::StartNoise;

pub use crate::config::BATCH;
