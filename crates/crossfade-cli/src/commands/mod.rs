//! The verbs: one file each, with the options, the help text and a function `run`.
//!
//! To add one, write `NAME.rs` with a `clap::Args` type, whose doc comment is the help text, and
//! `run(&options, &context)`; then declare the module and list the verb in `verbs!` below. Help, completions and the tests
//! that walk all verbs follow from that.
mod average;
mod bench;
mod calibrate;
mod compare;
mod completions;
mod config;
mod convert;
mod cost;
mod data;
mod demo;
mod depth;
mod distill;
mod edge;
mod edit;
mod eval;
mod inpaint;
mod lab;
mod measure;
mod models;
mod reconstruct;
mod reproduce;
mod saliency;
mod sample;
mod sampler;
mod serve;
mod sketch;
mod sr;
mod sweep;
mod task;
mod train;
mod weights;

use crate::context::Context;
use anyhow::Result;
use clap::Subcommand;

/// Defines [`Command`] from the list of verbs: variant, module, type of its options. Verbs appear in the help in this
/// order. The modules are declared above and not by the macro because rustfmt does not look for files inside macros.
macro_rules! verbs {
    ($($(#[$attribute:meta])* $Verb:ident($module:ident::$Options:ident),)*) => {
        /// The requested verb with its options.
        #[derive(Debug, Subcommand)]
        pub enum Command {
            $($(#[$attribute])* $Verb($module::$Options),)*
        }

        impl Command {
            /// Runs the verb.
            pub fn run(&self, context: &Context) -> Result<()> {
                match self {
                    $(Self::$Verb(options) => $module::run(options, context),)*
                }
            }
        }
    };
}

verbs! {
    Train(train::TrainArgs),
    Sample(sample::SampleArgs),
    Edit(edit::EditArgs),
    Sr(sr::SrArgs),
    Inpaint(inpaint::InpaintArgs),
    Saliency(saliency::SaliencyArgs),
    Edge(edge::EdgeArgs),
    Depth(depth::DepthArgs),
    Sketch(sketch::SketchArgs),
    Serve(serve::ServeArgs),
    Sweep(sweep::SweepArgs),
    Compare(compare::CompareArgs),
    Distill(distill::DistillArgs),
    Average(average::AverageArgs),
    Calibrate(calibrate::CalibrateArgs),
    Reconstruct(reconstruct::ReconstructArgs),
    Reproduce(reproduce::ReproduceArgs),
    Lab(lab::LabArgs),
    Demo(demo::DemoArgs),
    Models(models::ModelsArgs),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(subcommand)]
    Data(data::DataCommand),
    #[command(subcommand)]
    Eval(eval::EvalCommand),
    #[command(subcommand)]
    Weights(weights::WeightsCommand),
    Convert(convert::ConvertArgs),
    Cost(cost::CostArgs),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Whether the verb computes in many threads of its own, none of which is the main thread.
    pub fn has_own_threads(&self) -> bool {
        matches!(self, Self::Serve(_))
    }

    /// Whether processes that MPI has started run it together. Where a shard is given, they are independent of each other.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Train(_) | Self::Distill(_) => true,
            Self::Sr(_) | Self::Inpaint(_) | Self::Saliency(_) | Self::Edge(_) | Self::Depth(_) | Self::Sketch(_) => {
                true
            }
            Self::Sample(args) => args.shard.is_none(),
            Self::Sweep(args) => args.shard.is_none(),
            Self::Eval(command) => command.is_shared(),
            _ => false,
        }
    }
}
