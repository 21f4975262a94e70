//! Times of sampling: fitted to a checkpoint and kept in it, given as lists in studies.
#![allow(clippy::unwrap_used)]
use crossfade::calibrate::{TimesConfig, fit_times};
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{RunConfig, SampleConfig, Study};
use crossfade::engine::Device;
use crossfade::generate::{Job, Pipeline, Recipe, Shard, reproduce, run};
use crossfade::math::{Grid, GridKind};
use crossfade::sample::{FittedTimes, Sampler};
use crossfade::study::Plan;
use crossfade::train::{RunDir, train};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const BASE: &str = r#"
seed = 4
[network]
resolution = 8
width = 16
mult = [1, 1]
blocks = 1
attention = []
[data]
kind = "procedural"
len = 64
[optim]
warmup = 2
[train]
steps = 2
batch = 4
checkpoint_every = 2
loader_threads = 1
"#;

/// A network after two steps of training.
fn trained(dir: &Path) -> PathBuf {
    let config = RunConfig::parse(BASE, "base.toml").unwrap();
    let run = RunDir(dir.to_path_buf());
    train(&config, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
    checkpoint::newest(dir).unwrap()
}

fn times(sampler: Sampler, steps: usize, kappa_min: f64) -> FittedTimes {
    FittedTimes { sampler, steps, kappa_max: 12.0, kappa_min, curvature: 0.1, distance: 0.7 }
}

fn with(sampler: Sampler, steps: usize, config: &RunConfig) -> SampleConfig {
    SampleConfig { sampler, steps, ..config.sample.clone() }
}

#[test]
fn times_are_kept_in_the_checkpoint_and_used_by_auto() {
    let dir = tempfile::tempdir().unwrap();
    let path = trained(&dir.path().join("run"));
    let (before, device) = (Checkpoint::open(&path).unwrap(), Device::flex());
    let mut checkpoint = Checkpoint::open(&path).unwrap();
    checkpoint.keep_times(&[times(Sampler::Ab2, 4, 0.2), times(Sampler::Alg2, 4, 0.3)]).unwrap();
    // The same sampler and number of steps again: the new times replace the old ones.
    checkpoint.keep_times(&[times(Sampler::Ab2, 4, 0.1)]).unwrap();
    let after = Checkpoint::open(&path).unwrap();
    assert_eq!(after.config.sample.fitted, [times(Sampler::Ab2, 4, 0.1), times(Sampler::Alg2, 4, 0.3)]);
    assert_eq!((after.checksum.clone(), after.step), (before.checksum.clone(), before.step));
    assert_eq!(after.read().unwrap(), before.read().unwrap());
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary files are left");

    let (config, process) = (&after.config, &after.config.process);
    let resolved = with(Sampler::Auto, 4, config).resolved(process).unwrap();
    assert_eq!((resolved.grid.kind.clone(), resolved.fitted.len()), (times(Sampler::Ab2, 4, 0.1).grid(), 0));
    // Other steps and samplers, and grids that are asked for, are not affected.
    for (sampler, steps) in [(Sampler::Ab2, 5), (Sampler::FirstOrder, 4)] {
        assert_eq!(with(sampler, steps, config).resolved(process).unwrap().grid.kind, GridKind::UniformT);
    }
    let wanted = SampleConfig { grid: Grid { kind: GridKind::Images, final_t: None }, ..with(Sampler::Ab2, 4, config) };
    assert_eq!(wanted.resolved(process).unwrap().grid.kind, GridKind::Images);
    // Training that goes on does not keep times of earlier weights.
    assert!(!checkpoint::metadata(config, 3).unwrap()["config"].contains("fitted"));

    // The recipe in an image names the grid itself, so that it is reproduced when other times were fitted since.
    let out = dir.path().join("pictures");
    let job = Job {
        seed: 1,
        first: 0,
        count: 1,
        shard: Shard::ALL,
        batch: 1,
        trajectory: false,
        between: None,
        guide: None,
        out: out.clone(),
    };
    run(&after, Weights::Ema, &with(Sampler::Auto, 4, config), &job, &device, &mut |_, _| ()).unwrap();
    let picture = out.join("000000.png");
    assert_eq!(Recipe::read(&picture).unwrap().0.sample.grid.kind, times(Sampler::Ab2, 4, 0.1).grid());
    checkpoint.keep_times(&[times(Sampler::Ab2, 4, 0.5)]).unwrap();
    assert!(reproduce(&picture, Some(&path), None, &device).unwrap().identical);
}

#[test]
fn damaged_times_are_refused_with_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = trained(dir.path());
    let mut checkpoint = Checkpoint::open(&path).unwrap();
    // Bounds that mean nothing never reach the file.
    let error = checkpoint.keep_times(&[times(Sampler::Ab2, 4, 20.0)]).unwrap_err().to_string();
    assert!(error.contains("sample.fitted") && error.contains("kappa_min"), "{error}");
    assert!(Checkpoint::open(&path).unwrap().config.sample.fitted.is_empty());
    checkpoint.keep_times(&[times(Sampler::Ab2, 4, 0.25)]).unwrap();
    let good = std::fs::read(&path).unwrap();
    for (from, to, part) in [
        ("kappa_min = 0.25", "kappa_min = -0.2", "kappa_min"),
        ("kappa_min = 0.25", "kappa_mix = 0.25", "kappa_mix"),
        ("distance = 0.7", "distance = []", "distance"),
    ] {
        // The same length, so that the rest of the file stays as it is.
        let to = format!("{to:<width$}", width = from.len());
        let mut text = good.clone();
        let at = text.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        text[at..at + from.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, text).unwrap();
        let error = Checkpoint::open(&path).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains(&path.display().to_string()), "{error}");
    }
}

/// The search itself is tested with exact denoisers; this is the way from a checkpoint to its result.
#[test]
fn times_are_fitted_to_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(&trained(dir.path())).unwrap();
    let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &checkpoint.config.sample, &Device::flex()).unwrap();
    let set = checkpoint.config.data.open(8, 3).unwrap();
    let fit = |batch| {
        let config = TimesConfig { sampler: Sampler::Ab2, evaluations: 4, count: 24, candidates: 6, seed: 0, batch };
        let mut last = (0, 0);
        let fit = fit_times(&pipeline, &*set, &config, &mut |done, all| last = (done, all)).unwrap();
        assert_eq!(last, (10 * 24, 10 * 24), "six candidates, uniform-t, and three scores");
        fit
    };
    let found = fit(24);
    assert_eq!(found, fit(7), "the result depends on the size of batches");
    assert_eq!((found.fitted.sampler, found.fitted.steps, found.scores.len()), (Sampler::Ab2, 4, 3));
    assert_eq!(found.scores[0].distance, 1.0);
    assert_eq!(found.scores[2].grid, found.fitted.grid().argument());
    assert!((found.scores[2].distance - found.fitted.distance).abs() < 1e-4);
}

#[test]
fn studies_take_lists_of_times_and_options_of_grids() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("base.toml"), BASE).unwrap();
    let study = |grids: &str| {
        let text = format!(
            "title = \"times\"\nbase = \"base.toml\"\n[[model]]\nname = \"Adm\"\nsamplers = [\"ab2\"]\n[sample]\n\
             grids = [{grids}]\nevaluations = [3, 5]\ncount = 8\nseeds = [0]\n[evaluate]\nmetric = \"pixel-frechet\"\n"
        );
        Plan::new(Study::parse(&text, "study.toml").unwrap(), dir.path(), None)
    };
    let plan = study("\"uniform-t\", \"log-snr:kappa_max=20,kappa_min=0.1\", \"explicit:0.9,0.5,0.1\"").unwrap();
    let rows = plan.rows();
    let labels: Vec<_> = rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, ["Adm, uniform-t", "Adm, log-snr:kappa_max=20,kappa_min=0.1", "Adm, explicit:0.9,0.5,0.1"]);
    let sampling = |row: usize, column| rows[row].sampling(&plan.models[0].config, &plan.study, column).unwrap();
    assert_eq!(sampling(1, 5).unwrap().grid.kind.argument(), "log-snr:kappa_max=20,kappa_min=0.1");
    let explicit = sampling(2, 3).unwrap();
    assert_eq!(explicit.times(&plan.models[0].config.process).unwrap(), [0.9, 0.5, 0.1, 0.0]);
    assert_eq!((explicit.steps, sampling(2, 5)), (3, None));
    let error = |grids| study(grids).unwrap_err().to_string();
    assert!(error("\"explicit:1,0.5\"").contains("fit no column of evaluations"));
    assert!(error("\"log-snr:kappa=3\"").contains("no option 'kappa'"));
    assert!(error("\"explicit:0.5,1\"").contains("descend"));
    assert!(error("\"uniform\"").contains("unknown grid"));

    // The table has an empty cell where a list does not fit, and the study is done without it.
    use crossfade::study::{Only, Options, run};
    let options = Options {
        out: dir.path().join("out"),
        models: None,
        shard: Shard::ALL,
        only: Only::Both,
        weights: None,
        batch: 8,
    };
    let (outcome, results) = run(&plan, &options, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!((outcome.measured, outcome.done, outcome.cells), (5, 5, 5));
    let line = results.markdown().lines().find(|line| line.contains("explicit")).unwrap().to_string();
    assert!(line.contains("| –"), "{line}");
    assert!(results.csv().contains("\"explicit:0.9,0.5,0.1\""));
}
