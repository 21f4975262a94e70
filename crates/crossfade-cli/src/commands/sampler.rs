//! The options of the sampler, which every verb that makes pictures has.
use crate::cli::{one_of, positive, sampler_names, unit_interval};
use anyhow::Result;
use clap::Args;
use crossfade::config::SampleOptions;
use crossfade::math::{Blend, GridKind};
use crossfade::nn::Precision;
use crossfade::sample::Sampler;

/// What replaces the sampler's settings of a checkpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampler")]
pub struct SamplerArgs {
    /// Number of sampler steps, of the whole time grid [default: from the configuration; 5 for a task, unless its model ships]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: Option<u64>,

    /// Sampler; names of k-diffusion such as dpmpp_2m_sde and of diffusers such as EulerAncestralDiscreteScheduler are accepted
    /// too [default: from the configuration; with `edit --invert` and `--to` midpoint for adm, heun for the other processes]
    #[arg(long, value_name = "NAME", value_parser = one_of(sampler_names()))]
    pub sampler: Option<String>,

    /// Time grid: auto, uniform-t, uniform-sqrt, ddim-quadratic, reference, power, karras, log-snr, images, with options as in
    /// log-snr:kappa_max=20,kappa_min=0.1, or explicit:1,0.5,… [default: from the configuration; with `edit --invert` and `--to`
    /// uniform-sqrt for adm]
    #[arg(long, value_name = "NAME", value_parser = GridKind::from_argument)]
    pub grid: Option<GridKind>,

    /// Exponent rho of the grids karras and power [default: 7]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub rho: Option<f64>,

    /// Noise of the sampler ddim, from 0 (deterministic) to 1 (like ancestral) [default: from the configuration]
    #[arg(long, value_name = "X", value_parser = unit_interval)]
    pub eta: Option<f64>,

    /// Noise added by the sampler heun-churn, EDM's S_churn [default: from the configuration]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub churn: Option<f64>,

    /// How the phi and eps heads are combined into one estimate of x_0 [default: from the configuration]
    #[arg(long, value_name = "NAME", value_parser = one_of(Blend::NAMES.iter().copied()))]
    pub blend: Option<String>,

    /// Clip the estimate of x_0 to [-X, X] at every step [default: from the configuration]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub clip: Option<f64>,

    /// Do not clip the estimate of x_0
    #[arg(long, conflicts_with = "clip")]
    pub no_clip: bool,

    /// Save the evaluation at t = 1, whose ideal result is known from the mean of the training images, true or false, for
    /// example --free-first-step true [default: from the configuration]
    #[arg(long, value_name = "BOOL")]
    pub free_first_step: Option<bool>,

    /// Numbers of the network's convolutions and matrix products: f32, or f16 or bf16 on devices that compute in them. On the
    /// cpu f32 is the fast one [default: from the configuration]
    #[arg(long, value_name = "NAME", value_parser = one_of(Precision::NAMES))]
    pub precision: Option<String>,
}

impl SamplerArgs {
    /// The settings that were given, without class and guidance.
    pub fn options(&self) -> Result<SampleOptions> {
        Ok(SampleOptions {
            steps: self.steps.map(|steps| steps as usize),
            sampler: self.sampler.as_deref().map(Sampler::parse).transpose()?,
            grid: self.grid.clone(),
            rho: self.rho,
            eta: self.eta,
            churn: self.churn,
            blend: self.blend.as_deref().map(Blend::parse).transpose()?,
            clip: if self.no_clip { Some(0.0) } else { self.clip },
            free_first_step: self.free_first_step,
            precision: self.precision.as_deref().map(Precision::parse).transpose()?,
            ..SampleOptions::default()
        })
    }
}
