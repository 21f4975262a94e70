//! `crossfade eval stats` and `merge`: statistics in files.
use super::sources::{enough, images};
use super::{MergeArgs, StatsArgs};
use crate::context::Context;
use anyhow::{Context as _, Result};
use crossfade::Error;
use crossfade::error::Shown;
use crossfade::metrics::Report;
use crossfade::metrics::features::{Statistics, stated};
use crossfade::ranks;
use std::path::Path;

fn report(metric: &str, statistics: &Statistics, out: &Path) -> Report {
    stated(Report::new(metric), statistics.protocol, statistics.weights.as_deref())
        .with("written", out.shown())
        .value("images", statistics.count().unwrap_or(0) as f64)
}

/// `eval stats`.
pub fn stats(args: &StatsArgs, context: &Context) -> Result<()> {
    check_output(&args.out)?;
    let images = images(&args.images)?;
    enough(&args.images, images.len(), 2, "the covariance of their features")?;
    let extractor = args.network.extractor()?;
    let mut progress = context.progress("images", images.len() as u64);
    let statistics = Statistics::of(&extractor, &*images, &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    if ranks::current().is_first() {
        statistics.save(&args.out)?;
    }
    let report = report("stats", &statistics, &args.out).with("source", images.describe());
    context.print(&report, serde_json::to_value(&report)?)
}

/// `eval merge`.
pub fn merge(args: &MergeArgs, context: &Context) -> Result<()> {
    let Some((out, shards)) = args.files.split_last() else {
        return Err(Error::request("merge SHARD.npz … OUT.npz").into());
    };
    check_output(out)?;
    if out.exists() {
        let message = format!("{} exists; the last file is the one to write, so name a new one", out.shown());
        return Err(Error::request(message).into());
    }
    let shards = shards
        .iter()
        .map(|path| Statistics::load(path).with_context(|| format!("reading {}", path.shown())))
        .collect::<Result<Vec<_>>>()?;
    let count = shards.len();
    let statistics = Statistics::merge(shards)?;
    statistics.save(out)?;
    let report = report("merge", &statistics, out).with("shards", count);
    context.print(&report, serde_json::to_value(&report)?)
}

/// Checks before the network runs whether the result can be written.
fn check_output(out: &Path) -> Result<()> {
    let directory = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if directory.is_dir() && out.extension().is_some_and(|e| e == "npz") {
        return Ok(());
    }
    Err(Error::request(format!("{} must be an .npz in a directory that exists", out.shown())).into())
}
