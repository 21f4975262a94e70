//! Image generation: image k is a pure function of (weights, settings, seed, k), whatever the batch size and the shard.
mod classes;
mod denoise;
mod edit;
mod edit_recipe;
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
pub use edit_recipe::{Edit, EditRecipe, PictureRecipe, ReproducedEdit, RoundTrip, Source, reproduce_edit};
pub use guide::GuideRecipe;
pub(crate) use guide::check_guide;
pub use job::{Job, JobReport, Shard, run};
pub(crate) use likelihood::likelihood_process;
pub use likelihood::{FlowConfig, FlowLikelihood, Likelihood, LikelihoodConfig, Trace};
pub use pipeline::{Pipeline, TaskModel, Watch};
pub use recipe::{Likeness, Recipe, Reproduced, likeness, reproduce, task_recipe};
pub(crate) use solve::estimates_at;
pub use start::StartNoise;

pub use crate::config::BATCH;
