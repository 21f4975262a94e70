//! Studies: models x samplers x steps x seeds from one file, measured cell by cell.
//!
//! A [`Plan`] is a study with the configurations of its models. [`run`] trains what is missing and measures every cell;
//! the result of a cell is one file, named by a hash of everything that determines it, so that an interrupted study
//! resumes where it was and shards can be [`merge`]d. [`Results`] are a function of those files alone: table, charts,
//! tests, report.
mod cell;
mod chart;
mod checkpoints;
mod classes;
mod compare;
mod denoise;
mod evaluator;
mod held_out;
mod measure;
mod merge;
mod network;
mod page;
mod pass;
mod plan;
mod profiles;
mod ready;
mod report;
mod results;
mod run;
mod shard;
mod subject;
mod table;

pub use checkpoints::Measuring;
pub use compare::{Comparison, Likeness, Request, Side, compare};
pub use denoise::Denoising;
pub use merge::merge;
pub use plan::{GuideFile, Model, Plan, Row};
pub use profiles::{ProfileRequest, ProfileSweep, sweep_profiles};
pub use results::{Entry, ModelFacts, Results, RowResult, Versus};
pub use run::{Event, Only, Options, Outcome, run};
pub use shard::from_environment;
