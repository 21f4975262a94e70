//! `crossfade eval summary` and `ttest`.
use super::print;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use crossfade::metrics::Report;
use crossfade::metrics::statistics::{Reported, Summary, Welch, protocol_warnings, read_report};
use std::path::Path;

/// Verbs that summarise reports.
#[derive(Debug, Subcommand)]
pub enum StatisticsCommand {
    /// Mean, standard deviation and confidence interval of repeated runs
    #[command(after_help = "Examples:
  crossfade eval summary 10.71 10.78 10.74
  crossfade eval summary run1.json run2.json run3.json --value fid")]
    Summary(SummaryArgs),
    /// Whether two sets of repeated runs differ: Welch's t-test
    #[command(after_help = "Examples:
  crossfade eval ttest 10.71 10.78 10.74 -- 12.63 12.55 12.70
  crossfade eval ttest --value fid a1.json a2.json -- b1.json b2.json

Reports made in different ways are compared with a warning.")]
    Ttest(TtestArgs),
}

/// Options of `summary`.
#[derive(Debug, Args)]
pub struct SummaryArgs {
    /// Numbers, or reports that `crossfade eval --json` printed
    #[arg(required = true, value_name = "NUMBER|REPORT", allow_negative_numbers = true)]
    values: Vec<String>,

    /// Which value of the reports [default: the one called like the metric]
    #[arg(long, value_name = "NAME")]
    value: Option<String>,
}

/// Options of `ttest`.
#[derive(Debug, Args)]
pub struct TtestArgs {
    /// Numbers or reports of the one set
    #[arg(required = true, value_name = "A", allow_negative_numbers = true)]
    a: Vec<String>,

    /// Numbers or reports of the other set
    #[arg(required = true, value_name = "B", last = true)]
    b: Vec<String>,

    /// Which value of the reports [default: the one called like the metric]
    #[arg(long, value_name = "NAME")]
    value: Option<String>,
}

/// The numbers, and the reports that some of them came from.
fn read(inputs: &[String], name: Option<&str>, reports: &mut Vec<Reported>) -> Result<Vec<f64>> {
    let mut values = vec![];
    for input in inputs {
        match input.parse::<f64>() {
            Ok(number) => values.push(number),
            Err(_) => {
                let report = read_report(Path::new(input), name)
                    .with_context(|| format!("{input:?} is no number, so it should be a report"))?;
                values.push(report.value);
                reports.push(report);
            }
        }
    }
    Ok(values)
}

/// Computes.
pub fn run(command: &StatisticsCommand, context: &Context) -> Result<()> {
    let mut reports = vec![];
    let report: Report = match command {
        StatisticsCommand::Summary(args) => {
            Summary::of(&read(&args.values, args.value.as_deref(), &mut reports)?)?.report()
        }
        StatisticsCommand::Ttest(args) => {
            let a = read(&args.a, args.value.as_deref(), &mut reports)?;
            let b = read(&args.b, args.value.as_deref(), &mut reports)?;
            Welch::test(&a, &b)?.report()
        }
    };
    let report = protocol_warnings(&reports).into_iter().fold(report, Report::warn);
    print(report, context)
}
