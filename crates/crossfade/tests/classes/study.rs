//! Studies of networks with classes: guidance as rows, guides, values of each class, bits per dimension.
use super::{fit, small};
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{Axes, Evaluate, Study, StudyModel};
use crossfade::data::{Dataset, Image};
use crossfade::engine::Device;
use crossfade::generate::{LikelihoodConfig, Pipeline, Shard, StartNoise};
use crossfade::metrics::{MetricOptions, Reference, ReferenceWork, RegisteredMetric, Sample};
use crossfade::study::{Only, Options, Outcome, Plan, Results, merge, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

fn plan(dir: &Path, set: &str, rows: &str) -> crossfade::Result<Plan> {
    std::fs::write(dir.join("base.toml"), small().to_toml().unwrap()).unwrap();
    let study = format!(
        "title = \"Guidance\"\nbase = \"base.toml\"\nset = [{set}]\n[[model]]\nname = \"a\"\n\
         [sample]\n{rows}\nevaluations = [6]\ncount = 8\n[evaluate]\nmetric = \"none\"\n"
    );
    std::fs::write(dir.join("study.toml"), study).unwrap();
    Plan::open::<&str>(&dir.join("study.toml"), &[], None)
}

/// In a column of six evaluations a guided sampler makes half as many steps.
#[test]
fn each_weight_of_guidance_is_a_row_within_its_evaluations() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(dir.path(), "", "guidance = [1.0, 1.5]").unwrap();
    let found: Vec<_> = plan
        .rows()
        .iter()
        .map(|row| {
            let sample = row.sampling(&plan.models[0].config, &plan.study, 6).unwrap().unwrap();
            let evaluations = sample.evaluations(&plan.models[0].config.process).unwrap();
            (row.label.clone(), sample.guidance, sample.steps, evaluations)
        })
        .collect();
    assert_eq!(found, [("a, guidance 1".into(), 1.0, 6, 6), ("a, guidance 1.5".into(), 1.5, 3, 6)]);
}

#[test]
fn guidance_that_would_be_refused_after_training_is_refused_before() {
    let dir = tempfile::tempdir().unwrap();
    let error = |set: &str, rows: &str| plan(dir.path(), set, rows).err().unwrap().to_string();
    let without_dropout = error("\"train.label_dropout=0\"", "guidance = [2.0]");
    assert!(without_dropout.contains("model a") && without_dropout.contains("label_dropout"), "{without_dropout}");
    let without_classes = error("\"network.classes=0\", \"train.label_dropout=0.1\"", "guidance = [2.0]");
    assert!(without_classes.contains("network.classes"), "{without_classes}");
    assert!(error("", "guidance = [1.0, 1.0]").contains("distinct"));
    assert!(error("", "guidance = [-1.0]").contains("from 0"));
}

/// A row for each interval, and one without guidance; guided steps outside the interval take one evaluation.
#[test]
fn each_interval_of_guidance_is_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "guidance = [1.0, 2.0]\nguidance_intervals = [[0.0, 1.0], [0.2, 0.6]]";
    let plan = plan(dir.path(), "", rows).unwrap();
    let config = &plan.models[0].config;
    let found = plan.rows().into_iter().map(|row| {
        let sample = row.sampling(config, &plan.study, 6).unwrap().unwrap();
        let evaluations = sample.evaluations(&config.process).unwrap();
        (row.label.clone(), sample.guidance_interval, sample.steps, evaluations)
    });
    let found: Vec<_> = found.collect();
    assert_eq!(found[0], ("a, guidance 1".into(), [0.0, 1.0], 6, 6));
    assert_eq!(found[1], ("a, guidance 2, guided in [0.0, 1.0]".into(), [0.0, 1.0], 3, 6));
    let (label, interval, steps, evaluations) = &found[2];
    assert_eq!((label.as_str(), *interval), ("a, guidance 2, guided in [0.2, 0.6]", [0.2, 0.6]));
    // Of four steps two are within the interval.
    assert!((*steps, *evaluations) == (4, 6) && found.len() == 3, "{found:?}");
    let error = |rows: &str| super::study::plan(dir.path(), "", rows).err().unwrap().to_string();
    assert!(error("guidance = [2.0]\nguidance_intervals = [[0.8, 0.2]]").contains("the smaller one first"));
}

fn study(checkpoint: &Checkpoint, metric: &str) -> Study {
    let model = StudyModel {
        name: "a".into(),
        checkpoint: Some(checkpoint.path.clone()),
        set: vec!["sample.class=all".into()],
        ..StudyModel::default()
    };
    Study {
        title: "Classes".into(),
        model: vec![model],
        sample: Axes { evaluations: vec![6], seeds: vec![0, 1], count: 24, ..Axes::default() },
        evaluate: Evaluate { metric: RegisteredMetric::parse(metric).unwrap(), ..Evaluate::default() },
        ..Study::default()
    }
}

fn options(out: PathBuf, batch: usize, shard: Shard) -> Options {
    Options { out, models: None, shard, only: Only::Sample, weights: None, batch }
}

fn measured(study: &Study, options: &Options) -> (Outcome, Results) {
    let plan = Plan::new(study.clone(), Path::new(""), None).unwrap();
    let (outcome, results) = run(&plan, options, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    (outcome, results)
}

struct Images(Vec<Image>);

impl Dataset for Images {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, index: usize) -> crossfade::Result<Image> {
        Ok(self.0[index].clone())
    }
    fn name(&self, index: usize) -> String {
        index.to_string()
    }
    fn describe(&self) -> String {
        "images".into()
    }
}

/// Whether numbers are equal up to the last digit, which a file of a cell does not keep.
fn alike(found: &[f64], wanted: &[f64]) -> bool {
    found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 1e-14 * b.abs())
}

/// The plain distance of two sets.
fn distance(metric: &str, produced: Vec<Image>, reference: Vec<Image>) -> f64 {
    let device = Device::flex();
    let mut metric = (RegisteredMetric::parse(metric).unwrap().open)(&MetricOptions::new(&device)).unwrap();
    let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut |_, _| () };
    metric.prepare(&Reference::Images(&Images(reference)), &mut work).unwrap();
    let mut accumulator = metric.accumulator();
    let sample = |output: Image| Sample {
        name: "k".into(),
        origin: "k".into(),
        output: output.into(),
        target: None,
        class: None,
    };
    accumulator.add(produced.into_iter().map(sample).collect()).unwrap();
    accumulator.finish().unwrap().report.values[0].1
}

/// The value of a class is the distance of its images to those of the class in the data, whatever batch and shard.
#[test]
fn each_class_is_measured_against_its_own_images() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let checkpoint = fit(&small(), &at("run"), false);
    for metric in ["pixel-frechet", "random-frechet"] {
        let mut by_class = study(&checkpoint, metric);
        by_class.evaluate.per_class = true;
        let (_, found) = measured(&by_class, &options(at(metric), 24, Shard::ALL));
        let (_, plain) = measured(&study(&checkpoint, metric), &options(at(&format!("{metric}-all")), 24, Shard::ALL));
        let entry = |results: &Results| results.rows[0].entries[0].clone().unwrap();
        let (all, alone) = (entry(&found).mean.unwrap(), entry(&plain).mean.unwrap());
        assert!((all / alone - 1.0).abs() < 1e-9, "{metric}: {all} and {alone}");

        let data = checkpoint.config.data.open(8, 3).unwrap();
        let classes = data.classes().unwrap().unwrap();
        let sample = entry(&found).sample;
        let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &sample, &Device::flex()).unwrap();
        for (class, name) in classes.names.iter().enumerate() {
            let of_seed = |seed: u64| -> Vec<Image> {
                let is_own = |k: &u64| pipeline.class_of(seed, StartNoise::Index(*k)).unwrap() == Some(class as u32);
                (0..24).filter(is_own).map(|k| pipeline.images(seed, k..k + 1).unwrap().remove(0)).collect()
            };
            let own = (0..data.len()).filter(|&i| classes.of[i] as usize == class);
            let reference: Vec<Image> = own.map(|i| data.get(i).unwrap()).collect();
            let wanted: Vec<f64> = [0, 1].map(|seed| distance(metric, of_seed(seed), reference.clone())).to_vec();
            assert_eq!(of_seed(0).len(), 4);
            assert!(alike(&entry(&found).values_of(&format!("{metric} of {name}")), &wanted), "{name}: {wanted:?}");
        }
        let text = found.markdown();
        assert!(text.contains("By class, means") && text.contains("class k mod 6: 4 images each"), "{text}");
        assert!(text.contains("class warning: fewer than 10000 images"), "{text}");
        let page = std::fs::read_to_string(at(metric).join("report.html")).unwrap();
        assert!(page.contains("By class") && found.csv().contains(&format!("{metric} of night")));

        for index in 0..2 {
            measured(&by_class, &options(at(&format!("part-{index}")), 5, Shard { index, count: 2 }));
        }
        let parts = [at("part-0"), at("part-1")];
        let whole = merge(&parts, &at("whole")).unwrap();
        assert_eq!(whole.csv(), found.csv(), "{metric}: batches and shards change nothing");
        for name in ["part-0", "part-1", "whole"] {
            std::fs::remove_dir_all(at(name)).unwrap();
        }
    }
    let mut none = study(&checkpoint, "kid");
    none.evaluate.per_class = true;
    assert!(none.validate().unwrap_err().to_string().contains("kid has no values of classes"));
    let mut nowhere = study(&checkpoint, "pixel-frechet");
    (nowhere.evaluate.per_class, nowhere.evaluate.reference) = (true, at("flat").display().to_string());
    std::fs::create_dir(at("flat")).unwrap();
    let image = pipeline_image(&checkpoint);
    (0..3).for_each(|k| std::fs::write(at(&format!("flat/{k}.png")), image.encode_png(&[]).unwrap()).unwrap());
    let plan = Plan::new(nowhere, Path::new(""), None).unwrap();
    let stop = AtomicBool::new(false);
    let error = run(&plan, &options(at("x"), 8, Shard::ALL), &Device::flex(), &stop, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("needs classes"), "{error}");
}

fn pipeline_image(checkpoint: &Checkpoint) -> Image {
    let sample = checkpoint.config.sample.clone();
    Pipeline::open(checkpoint, Weights::Ema, &sample, &Device::flex()).unwrap().images(0, 0..1).unwrap().remove(0)
}

/// A guide makes other images at the same cost; another guide is measured again, unguided rows are not.
#[test]
fn a_weaker_network_guides_the_rows_with_guidance() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let checkpoint = fit(&small(), &at("run"), false);
    let earlier = checkpoint::list(&at("run/checkpoints")).unwrap();
    let mut plain = study(&checkpoint, "pixel-frechet");
    plain.sample.guidance = vec![1.0, 2.0];
    let mut guided = plain.clone();
    guided.model[0].guide = Some(earlier[0].1.clone());
    let (_, without) = measured(&plain, &options(at("plain"), 24, Shard::ALL));
    let (outcome, with) = measured(&guided, &options(at("guided"), 24, Shard::ALL));
    assert_eq!(outcome.measured, 4);
    let entry = |results: &Results, row: usize| results.rows[row].entries[0].clone().unwrap();
    assert_eq!(entry(&with, 0).mean, entry(&without, 0).mean, "guidance 1 has no guide");
    assert_ne!(entry(&with, 1).mean, entry(&without, 1).mean);
    for (row, steps) in [(0, 6), (1, 3)] {
        assert_eq!((entry(&with, row).nfe, entry(&with, row).sample.steps), (6, steps));
    }
    let (_, batched) = measured(&guided, &options(at("batched"), 7, Shard::ALL));
    assert_eq!(batched.csv(), with.csv());
    guided.model[0].guide = Some(earlier[1].1.clone());
    let (outcome, other) = measured(&guided, &options(at("guided"), 24, Shard::ALL));
    assert_eq!(outcome.measured, 2, "only the guided row depends on the guide");
    assert_ne!(entry(&other, 1).mean, entry(&with, 1).mean);
    // A guide of another process is refused before anything is measured.
    let foreign = fit(&super::small_of("edm"), &at("edm"), false);
    guided.model[0].guide = Some(foreign.path);
    let error = Plan::new(guided, Path::new(""), None).err().unwrap().to_string();
    assert!(error.contains("model a") && error.contains("another process, edm"), "{error}");
}

/// Bits per dimension of a study are those of the library, at as many noise levels as the column says.
#[test]
fn bits_per_dimension_are_a_metric_of_studies() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let checkpoint = fit(&small(), &at("run"), false);
    let mut bits = study(&checkpoint, "nll");
    (bits.sample.evaluations, bits.sample.count) = (vec![2, 5], 10);
    bits.evaluate.held_out = vec!["data.seed=9".into(), "data.len=12".into()];
    let (outcome, found) = measured(&bits, &options(at("bits"), 64, Shard::ALL));
    assert_eq!((outcome.measured, outcome.done), (4, 4));
    let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &checkpoint.config.sample, &Device::flex()).unwrap();
    let data = checkpoint.config.clone().with_overrides(&bits.evaluate.held_out).unwrap().data.open(8, 3).unwrap();
    for (column, times) in [2, 5].into_iter().enumerate() {
        let entry = found.rows[0].entries[column].clone().unwrap();
        assert_eq!(entry.nfe, times);
        for (k, seed) in [0, 1].into_iter().enumerate() {
            let config = LikelihoodConfig { count: 10, times, seed, batch: 3, ..LikelihoodConfig::default() };
            let wanted = pipeline.likelihood(&*data, &config, &mut |_, _| true).unwrap().unwrap();
            let values = |list: &[(String, f64)]| list.iter().map(|(_, value)| *value).collect::<Vec<_>>();
            let (found, direct) = (values(&entry.values[k]), values(&wanted.values()));
            assert!(alike(&found, &direct) && wanted.with_classes, "any batch: {times} levels, seed {seed}");
        }
    }
    let text = found.markdown();
    assert!(text.contains("bits per dimension (lower is better)") && text.contains("noise levels"), "{text}");
    let (again, _) = measured(&bits, &options(at("bits"), 1, Shard::ALL));
    assert_eq!(again.measured, 0);
    // What would have no effect is refused, and so is a network whose likelihood is not known.
    let problem = |change: &dyn Fn(&mut Study)| {
        let mut changed = bits.clone();
        change(&mut changed);
        Plan::new(changed, Path::new(""), None).err().unwrap().to_string()
    };
    assert!(problem(&|s| s.sample.samplers = vec!["ab2".into()]).contains("samples nothing"));
    assert!(problem(&|s| s.sample.guidance = vec![2.0]).contains("without guidance"));
    assert!(problem(&|s| s.evaluate.estimate = true).contains("sampled images"));
    let cld = fit(&super::small_of("cld"), &at("cld"), false);
    assert!(problem(&|s| s.model[0].checkpoint = Some(cld.path.clone())).contains("CLD"));
}
