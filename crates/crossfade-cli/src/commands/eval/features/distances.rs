//! FID, KID, precision and recall, and the Inception Score of image sets.
use super::super::print;
use super::sources::{Side, enough, features, images, side};
use super::{FidArgs, IsArgs, KidArgs, PrArgs};
use crate::context::Context;
use anyhow::Result;
use crossfade::Error;
use crossfade::metrics::Report;
use crossfade::metrics::features::{self as metrics, CLASSES, FEW, Features, Frechet, Input, KidConfig};

/// `eval fid`.
pub fn fid(args: &FidArgs, context: &Context) -> Result<()> {
    // Both are opened before the network runs, so that a wrong path is reported at once.
    let (a, b) = (metrics::open(&args.a)?, metrics::open(&args.b)?);
    if args.interval && matches!(a, Input::Statistics(_)) {
        return Err(Error::request("--interval needs the images; statistics do not tell how much they vary").into());
    }
    for (text, input) in [(&args.a, &a), (&args.b, &b)] {
        if let Input::Images(images) = input {
            enough(text, images.len(), 2, "the covariance of their features")?;
        }
    }
    let stored = [&a, &b].iter().all(|input| matches!(input, Input::Statistics(_)));
    let extractor = if stored { None } else { Some(args.network.extractor()?) };
    let a = side(&args.a, a, extractor.as_ref(), args.interval, context)?;
    let b = side(&args.b, b, extractor.as_ref(), false, context)?;
    a.statistics.check_alike(&b.statistics)?;
    let frechet = Frechet::to(b.statistics.gaussian.clone())?;
    let fid = frechet.distance(&a.statistics.gaussian)?;
    let mut report = describe(&a, &b).value("fid", fid);
    if let Some(grouped) = &a.grouped {
        let mut progress = context.progress("interval", 0);
        let interval = grouped.interval(&frechet, &mut |done, all| progress.set(done as u64, all as u64))?;
        report = report
            .with("interval", "95 %, jackknife over ten groups of IMAGES, REFERENCE held fixed")
            .value("fid standard error", interval.error)
            .value("fid low", interval.low)
            .value("fid high", interval.high)
            .value("fid infinity", interval.infinity);
    }
    print(report, context)
}

/// A report that describes both sides and warns of too few images and unknown protocols.
fn describe(a: &Side, b: &Side) -> Report {
    let protocol = a.statistics.protocol.or(b.statistics.protocol);
    let weights = a.statistics.weights.as_deref().or(b.statistics.weights.as_deref());
    let mut report = metrics::stated(Report::new("fid"), protocol, weights);
    for (name, side) in [("images", a), ("reference", b)] {
        report = report.with(name, &side.about);
        if let Some(count) = side.statistics.count() {
            report = report.with(&format!("{name} count"), count);
            if count < FEW {
                let warning = format!(
                    "{count} {name}: below {FEW} FID is mostly bias; compare it only with FIDs of as many images, or use KID"
                );
                report = report.warn(warning);
            }
        }
        if side.statistics.protocol.is_none() {
            let warning =
                format!("the {name} come from statistics that do not name their protocol; it is taken to be the same");
            report = report.warn(warning);
        }
    }
    report
}

/// The features of both sets, and a report that describes them.
fn both(
    metric: &str,
    [a, b]: [&str; 2],
    (least, what): (usize, &str),
    network: &super::NetworkArgs,
    context: &Context,
) -> Result<(Features, Features, Report)> {
    let opened = |text: &str| {
        let images = images(text)?;
        enough(text, images.len(), least, what).map(|()| images)
    };
    let (a, b) = (opened(a)?, opened(b)?);
    let extractor = network.extractor()?;
    let features = (features(&extractor, &*a, context)?, features(&extractor, &*b, context)?);
    let report = extractor
        .report(metric)
        .with("images", a.describe())
        .with("images count", a.len())
        .with("reference", b.describe())
        .with("reference count", b.len());
    Ok((features.0, features.1, report))
}

/// `eval kid`.
pub fn kid(args: &KidArgs, context: &Context) -> Result<()> {
    let config = KidConfig { subsets: args.subsets, size: args.subset_size, seed: args.seed };
    config.check()?;
    let subset = (config.size, "a subset of --subset-size");
    let (a, b, report) = both("kid", [&args.a, &args.b], subset, &args.network, context)?;
    let kid = metrics::kid(&a, &b, config)?;
    let report = report
        .with("kernel", "(x·y/2048 + 1)³, unbiased")
        .with(
            "subsets",
            format!("{} of {} images, seed {} (numpy RandomState)", config.subsets, config.size, config.seed),
        )
        .value("kid", kid.mean)
        .value("kid std", kid.std);
    print(report, context)
}

/// `eval pr`.
pub fn pr(args: &PrArgs, context: &Context) -> Result<()> {
    // Every image needs as many neighbours beside itself.
    let neighbours = (args.neighbours.saturating_add(1), "a ball that reaches to neighbour --neighbours");
    let (a, b, report) = both("pr", [&args.a, &args.b], neighbours, &args.network, context)?;
    let result = metrics::precision_recall(&a, &b, args.neighbours)?;
    let report = report
        .with("neighbours", args.neighbours)
        .value("precision", result.precision)
        .value("recall", result.recall)
        .value("f-score", result.f_score);
    print(report, context)
}

/// `eval is`.
pub fn is(args: &IsArgs, context: &Context) -> Result<()> {
    let images = images(&args.images)?;
    // The score of one image is 1, whatever it shows.
    enough(&args.images, images.len(), args.splits.saturating_mul(2).max(2), "two in each of --splits parts")?;
    let extractor = args.network.extractor()?;
    let network = extractor.network();
    // Weights without a classifier are refused before the network runs.
    network.logits(&[0.0; metrics::FEATURES])?;
    let mut values = Vec::with_capacity(images.len() * CLASSES);
    let mut progress = context.progress("images", images.len() as u64);
    let mut classify = |row: &[f32]| {
        values.extend(network.logits(row)?);
        Ok(())
    };
    extractor.each(&*images, &mut classify, &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    let score = metrics::inception_score(&Features { dim: CLASSES, values }, args.splits, args.seed)?;
    let mut report = extractor
        .report("is")
        .with("images", images.describe())
        .with("images count", images.len())
        .with("logits", "1008 classes, without bias")
        .with("splits", format!("{}, shuffled, seed {} (numpy RandomState)", args.splits, args.seed))
        .value("inception score", score.mean)
        .value("inception score std", score.std);
    if (images.len() as u64) < FEW {
        report = report.warn(format!("{} images: the Inception Score is low for few images", images.len()));
    }
    print(report, context)
}
