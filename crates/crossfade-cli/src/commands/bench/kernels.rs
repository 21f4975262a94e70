//! `crossfade bench kernels`.
use crate::context::Context;
use anyhow::Result;
use clap::Args;
use crossfade::bench::{self, KernelReport, Kind, Options, Pass, Row};
use crossfade::nn::{PRESETS, preset};
use serde_json::json;
use std::fmt::Write;

/// Options of `bench kernels`.
#[derive(Debug, Args)]
pub struct KernelsArgs {
    /// Networks whose shapes are timed: `default` is the network of `bench unet`, the others are those of `config list`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "default,cifar10-one-m160,cifar10-two-m192", value_parser = crate::cli::one_of(names()))]
    pub networks: Vec<String>,

    /// Batch size
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub batch: u64,

    /// Time only kernels whose name contains TEXT; repeatable
    #[arg(long, value_name = "TEXT")]
    pub filter: Vec<String>,

    /// Minimum number of timed runs of each kernel; short kernels run more often. The median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,
}

fn names() -> impl Iterator<Item = &'static str> {
    ["default"].into_iter().chain(PRESETS)
}

/// Times the kernels and prints a table.
pub fn run(args: &KernelsArgs, context: &Context) -> Result<()> {
    let network = |name: &String| (name.clone(), preset(name).unwrap_or_default());
    let options = Options {
        networks: args.networks.iter().map(network).collect(),
        batch: args.batch as usize,
        repeat: args.repeat as usize,
        filters: args.filter.clone(),
    };
    let mut progress = context.progress("kernels", 0);
    let report = bench::kernels(&options, &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    context.print(table(&report), json!(report))
}

/// The parts of the table: title, kinds of kernels, passes.
const PARTS: [(&str, &[Kind], &[&str]); 3] = [
    ("convolutions", &[Kind::Conv3x3, Kind::Conv1x1, Kind::ConvOther], &["forward", "by input", "by weights"]),
    ("other arithmetic", &[Kind::Attention, Kind::Linear], &["forward", "backward"]),
    ("memory-bound", &[Kind::Norm, Kind::Elementwise, Kind::Update], &["forward", "backward", "step"]),
];

fn table(report: &KernelReport) -> String {
    let limits = &report.limits;
    let mut text = format!(
        "{}, {} threads, batch {}; measured limits: {:.0} GF/s (fused multiply-add), {:.1} GB/s (triad)\n\
         Each pass: milliseconds, GF/s or GB/s, % of the limit. W: Winograd, counted in operations of the direct method.\n",
        limits.instructions, limits.threads, report.batch, limits.peak_gflops, limits.triad_gbs
    );
    for (title, kinds, passes) in PARTS {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| kinds.contains(&row.kind)).collect();
        if rows.is_empty() {
            continue;
        }
        let unit = if title == "memory-bound" { "GB/s" } else { "GF/s" };
        let heads: String = passes.iter().map(|pass| format!("{pass:>20}")).collect();
        let units: String = passes.iter().map(|_| format!("{:>9}{unit:>6}{:>5}", "ms", "%")).collect();
        let _ = write!(text, "\n{title:<36}{heads}\n{:<36}{units}\n", "");
        for row in rows {
            let cells: String = passes.iter().map(|name| cell(row.passes.iter().find(|p| p.pass == *name))).collect();
            let _ = writeln!(text, "{:<36}{}", row.name, cells.trim_end());
        }
    }
    if !report.profile.is_empty() {
        text += &profile(report);
    }
    text
}

fn cell(pass: Option<&Pass>) -> String {
    let Some(pass) = pass else { return format!("{:>20}", "") };
    let rate = pass.gflops.or(pass.gbs).unwrap_or(0.0);
    let places = if pass.gbs.is_some() { 1 } else { 0 };
    format!("{:>9.3}{rate:>6.places$}{:>5.0}", pass.median_ms, 100.0 * pass.share)
}

/// The time that the kernels of each network take together, by kind.
fn profile(report: &KernelReport) -> String {
    let mut text = String::from("\nkernel time x calls, ms (share)          one evaluation       one training step\n");
    let mut names: Vec<&str> = report.profile.iter().map(|share| share.network.as_str()).collect();
    names.dedup();
    for name in names {
        let shares: Vec<_> = report.profile.iter().filter(|share| share.network == name).collect();
        let forward: f64 = shares.iter().map(|share| share.forward_ms).sum();
        let train: f64 = shares.iter().map(|share| share.train_ms).sum();
        let mut line = |label: &str, a: f64, b: f64| {
            let (x, y) = (100.0 * a / forward, 100.0 * b / train);
            let _ = writeln!(text, "{label:<34}{a:>13.1} ({x:>3.0} %){b:>17.1} ({y:>3.0} %)");
        };
        line(name, forward, train);
        for share in &shares {
            line(&format!("  {}", share.kind.name()), share.forward_ms, share.train_ms);
        }
    }
    text
}
