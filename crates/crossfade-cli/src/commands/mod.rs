//! One file a verb: its options and what it does.
pub mod bench;
pub mod calibrate;
pub mod compare;
pub mod completions;
pub mod config;
pub mod convert;
pub mod cost;
pub mod data;
pub mod demo;
pub mod eval;
pub mod lab;
pub mod reconstruct;
pub mod reproduce;
pub mod sample;
pub mod sweep;
pub mod task;
pub mod train;
pub mod weights;

use crate::cli::{Cli, Command};
use crate::context::Context;
use anyhow::Result;
use std::time::Instant;

/// Runs the verb that was asked for, in a program that began at `began`.
pub fn run(cli: Cli, began: Instant) -> Result<()> {
    let context = Context::new(&cli.global, began)?;
    match cli.command {
        Command::Train(args) => train::run(&args, &context),
        Command::Sample(args) => sample::run(&args, &context),
        Command::Sr(args) => task::sr(&args, &context),
        Command::Inpaint(args) => task::inpaint(&args, &context),
        Command::Saliency(args) => task::map(&args, "saliency", &context),
        Command::Edge(args) => task::map(&args, "edges", &context),
        Command::Depth(args) => task::plain(&args, "depth", &context),
        Command::Sketch(args) => task::plain(&args, "sketch", &context),
        Command::Sweep(args) => sweep::run(&args, &context),
        Command::Compare(args) => compare::run(&args, &context),
        Command::Calibrate(args) => calibrate::run(&args, &context),
        Command::Reconstruct(args) => reconstruct::run(&args, &context),
        Command::Reproduce(args) => reproduce::run(&args, &context),
        Command::Lab(args) => lab::run(&args, &context),
        Command::Demo(args) => demo::run(&args, &context),
        Command::Config(command) => config::run(&command, &context),
        Command::Data(command) => data::run(&command, &context),
        Command::Eval(command) => eval::run(&command, &context),
        Command::Weights(command) => weights::run(&command, &context),
        Command::Convert(args) => convert::run(&args, &context),
        Command::Cost(args) => cost::run(&args, &context),
        Command::Bench(command) => bench::run(&command, &context),
        Command::Completions { shell } => completions::run(shell),
    }
}
