//! `crossfade eval edges`.
use super::about;
use super::print;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use crossfade::error::Shown;
use crossfade::metrics::edges::{EdgesConfig, Protocol, evaluate, plot::plot};
use std::path::PathBuf;

/// The verb.
#[derive(Debug, Subcommand)]
pub enum EdgesCommand {
    #[command(about = about("edges"), after_help = "Examples:
  crossfade eval edges maps groundTruth/test                 network output, thick and soft
  crossfade eval edges maps groundTruth/test --protocol c    no suppression, no thinning
  crossfade eval edges nms_maps groundTruth/test --protocol as-is --out eval --plot pr.png
  crossfade eval edges ucm2 groundTruth --protocol as-is --thresholds 5

Files belong together by their names without endings: 100007.png and 100007.mat. Maps are grey
images, or .mat files with `ucm2` or `segs`. Ground truth is .mat files of the BSDS, or images
with one annotation each. NYUD uses --max-dist 0.011.")]
    Edges(EdgesArgs),
}

/// Options of `eval edges`.
#[derive(Debug, Args)]
pub struct EdgesArgs {
    /// Folder of edge maps, or one map
    maps: PathBuf,

    /// Folder of ground truth, or one file
    ground_truth: PathBuf,

    /// Thresholds between 0 and 1, 1 to 999
    #[arg(long, value_name = "N", default_value_t = EdgesConfig::default().thresholds)]
    thresholds: usize,

    /// How far a pixel may be off, as a part of the image's diagonal
    #[arg(long, value_name = "D", default_value_t = EdgesConfig::default().max_dist)]
    max_dist: f64,

    /// How a map is processed before it is compared
    #[arg(long, default_value = "s")]
    protocol: ProtocolArg,

    /// Write the best threshold, recall, precision and F of each image into this file, as CSV
    #[arg(long, value_name = "FILE")]
    per_image: Option<PathBuf>,

    /// Draw precision against recall into this .png or .svg, with curves of equal F and the score of people
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Write the benchmark's own files there: eval_bdry.txt, eval_bdry_thr.txt, eval_bdry_img.txt, NAME_ev1.txt
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtocolArg {
    /// Non-maximum suppression, then thinning: the "S" evaluation
    S,
    /// Neither, which asks for crisp maps: the "C" evaluation
    C,
    /// Thinning only, for maps that are suppressed already: the benchmark as it stands
    AsIs,
}

impl EdgesArgs {
    fn config(&self) -> EdgesConfig {
        let protocol = match self.protocol {
            ProtocolArg::S => Protocol::S,
            ProtocolArg::C => Protocol::C,
            ProtocolArg::AsIs => Protocol::AsIs,
        };
        EdgesConfig { thresholds: self.thresholds, max_dist: self.max_dist, protocol }
    }
}

/// Measures.
pub fn run(EdgesCommand::Edges(args): &EdgesCommand, context: &Context) -> Result<()> {
    let mut progress = context.progress("images", 0);
    let edges = evaluate(&args.maps, &args.ground_truth, &args.config(), &mut |done, all| {
        progress.set(done as u64, all as u64)
    })?;
    drop(progress);
    print(edges.report.clone(), context)?;
    if let Some(path) = &args.per_image {
        edges.save_table(path)?;
        context.note(format_args!("the scores of each image are in {}", path.shown()));
    }
    if let Some(path) = &args.plot {
        plot(&edges.summary, &format!("Edges, {} images", edges.names.len()), path)?;
        context.note(format_args!("the curve is in {}", path.shown()));
    }
    if let Some(folder) = &args.out {
        edges.save(folder)?;
        context.note(format_args!("the benchmark's files are in {}", folder.shown()));
    }
    Ok(())
}
