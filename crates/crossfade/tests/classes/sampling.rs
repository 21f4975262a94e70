//! Sampling by class, with guidance.
use super::{fit, small, small_of};
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::config::SampleConfig;
use crossfade::engine::Device;
use crossfade::generate::{Job, JobReport, Pipeline, Recipe, Shard, StartNoise, reproduce, run};
use std::path::Path;

fn job(out: &Path, batch: usize, shard: Shard) -> Job {
    let out = out.to_path_buf();
    Job { seed: 5, first: 2, count: 7, shard, batch, trajectory: false, between: None, guide: None, out }
}

fn settings(class: &str, guidance: f64) -> SampleConfig {
    SampleConfig { class: class.into(), guidance, steps: 3, ..SampleConfig::default() }
}

fn sampled(checkpoint: &Checkpoint, config: &SampleConfig, job: &Job) -> crossfade::Result<JobReport> {
    run(checkpoint, Weights::Model, config, job, &Device::flex(), &mut |_, _| ())
}

fn files(out: &Path) -> Vec<Vec<u8>> {
    (2..9).map(|k| std::fs::read(out.join(format!("{k:06}.png"))).unwrap()).collect()
}

/// For attenuation, a process with one target, and CLD, whose state is an image and its velocity.
#[test]
fn a_guided_picture_is_the_same_for_every_batch_shard_and_thread_count_and_reproduces_itself() {
    for process in ["adm", "edm", "cld"] {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = fit(&small_of(process), dir.path(), false);
        let config = SampleConfig { guidance_interval: [0.1, 0.9], ..settings("random", 2.0) };
        let make = |name: &str, batch, shards: u64, threads| {
            let out = dir.path().join(name);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for index in 0..shards {
                let job = job(&out, batch, Shard { index, count: shards });
                pool.install(|| sampled(&checkpoint, &config, &job)).unwrap();
            }
            files(&out)
        };
        let one = make("one", 1, 1, 1);
        for (name, batch, shards, threads) in [("three", 3, 1, 2), ("all", 64, 1, 1), ("sharded", 2, 3, 2)] {
            assert!(make(name, batch, shards, threads) == one, "{process}: {name}");
        }
        let picture = dir.path().join("one/000004.png");
        let again = reproduce(&picture, Some(&checkpoint.path), None, &Device::flex()).unwrap();
        assert!(again.identical && again.recipe.sample.guidance == 2.0, "{process}");
        // The recipe names the class that was drawn.
        assert!(checkpoint.class_names.contains(&again.recipe.sample.class), "{}", again.recipe.sample.class);
    }
}

#[test]
fn classes_are_drawn_named_or_in_turn_and_change_the_picture() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = fit(&small(), dir.path(), false);
    let pixels = |class: &str, guidance: f64, k: u64| {
        let pipeline =
            Pipeline::open(&checkpoint, Weights::Model, &settings(class, guidance), &Device::flex()).unwrap();
        pipeline.images(5, k..k + 1).unwrap().remove(0).pixels
    };
    assert_ne!(pixels("night", 1.0, 0), pixels("rose", 1.0, 0));
    assert_ne!(pixels("night", 1.0, 0), pixels("none", 1.0, 0));
    assert_ne!(pixels("night", 1.0, 0), pixels("night", 2.0, 0));
    assert_eq!(pixels("night", 0.0, 0), pixels("none", 1.0, 0), "a weight of 0 is the prediction without a class");
    assert_eq!(pixels("all", 1.0, 8), pixels("forest", 1.0, 8), "image 8 has class 8 mod 6");
    assert_eq!(pixels("4,sea", 1.0, 1), pixels("SEA", 1.0, 1));
    let pipeline = Pipeline::open(&checkpoint, Weights::Model, &settings("random", 1.0), &Device::flex()).unwrap();
    let drawn: std::collections::BTreeSet<_> =
        (0..60).map(|k| pipeline.class_of(5, StartNoise::Index(k)).unwrap()).collect();
    assert_eq!(drawn.len(), 6);
}

#[test]
fn a_sheet_of_classes_has_a_row_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = fit(&small(), dir.path(), false);
    let out = dir.path().join("rows");
    let report = sampled(&checkpoint, &settings("sea,rose,night", 1.5), &job(&out, 7, Shard::ALL)).unwrap();
    assert_eq!(report.evaluations, 6);
    let sheet = crossfade::data::Image::read(&report.sheet).unwrap();
    // Seven images of three classes: three rows of three cells, each enlarged to 64 pixels with gaps of 2.
    assert_eq!((sheet.width, sheet.height), (3 * 66 + 2, 3 * 66 + 2));
    for (k, class) in [(2, "night"), (3, "sea"), (4, "rose")] {
        let (recipe, _) = Recipe::read(&out.join(format!("{k:06}.png"))).unwrap();
        assert_eq!(recipe.sample.class, class);
    }
    // The sheet of training has one for all six.
    let pictures: Vec<_> = std::fs::read_dir(dir.path().join("samples")).into_iter().flatten().collect();
    assert!(pictures.is_empty(), "no sheets were asked for");
}

#[test]
fn training_draws_a_row_for_each_class() {
    let (mut config, dir) = (small(), tempfile::tempdir().unwrap());
    (config.train.sample_every, config.train.steps, config.sample.steps) = (2, 2, 2);
    // A class that only the data knows does not matter to the sheets.
    (config.sample.class, config.sample.guidance) = ("night".into(), 1.5);
    fit(&config, dir.path(), false);
    let sheet = std::fs::read_dir(dir.path().join("samples")).unwrap().next().unwrap().unwrap().path();
    let sheet = crossfade::data::Image::read(&sheet).unwrap();
    assert_eq!((sheet.width, sheet.height), (4 * (128 + 2) + 2, 6 * (128 + 2) + 2));
}

#[test]
fn an_earlier_checkpoint_guides() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = fit(&small(), dir.path(), false);
    let early = crossfade::checkpoint::list(&dir.path().join("checkpoints")).unwrap()[0].1.clone();
    let out = dir.path().join("guided");
    let with = Job { guide: Some(early.clone()), ..job(&out, 7, Shard::ALL) };
    let report = sampled(&checkpoint, &settings("random", 2.0), &with).unwrap();
    assert_eq!(report.evaluations, 6);
    let guided = files(&out);
    sampled(&checkpoint, &settings("random", 2.0), &Job { batch: 2, ..with.clone() }).unwrap();
    assert!(guided == files(&out), "a batch changes nothing");
    sampled(&checkpoint, &settings("random", 2.0), &job(&out, 7, Shard::ALL)).unwrap();
    assert!(guided != files(&out), "the guide matters");
    sampled(&checkpoint, &settings("random", 2.0), &with).unwrap();
    let again = reproduce(&out.join("000003.png"), Some(&checkpoint.path), Some(&early), &Device::flex()).unwrap();
    assert!(again.identical && again.recipe.guide.is_some());
    let wrong = reproduce(&out.join("000003.png"), Some(&checkpoint.path), Some(&checkpoint.path), &Device::flex());
    assert!(wrong.err().unwrap().to_string().contains("other weights"));

    let other = fit(&small_of("edm"), &dir.path().join("edm"), false);
    let refused = Job { guide: Some(other.path.clone()), ..job(&out, 7, Shard::ALL) };
    let error = sampled(&checkpoint, &settings("random", 2.0), &refused).err().unwrap().to_string();
    assert!(error.contains("another process, edm"), "{error}");
    let error = sampled(&checkpoint, &settings("random", 1.0), &with).err().unwrap().to_string();
    assert!(error.contains("no effect"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let with = fit(&small(), &dir.path().join("with"), false);
    let mut config = small();
    config.train.label_dropout = 0.0;
    let always = fit(&config, &dir.path().join("always"), false);
    config.network.as_unet_mut().unwrap().classes = 0;
    config.train.label_dropout = 0.1;
    let plain = fit(&config, &dir.path().join("plain"), false);
    let out = dir.path().join("out");
    for (checkpoint, class, guidance, words) in [
        (&plain, "cat", 1.0, ["plain", "network.classes"]),
        (&plain, "random", 1.5, ["without classes", "guide"]),
        (&with, "nihgt", 1.0, ["did you mean `night`", "sunset"]),
        (&with, "none", 1.5, ["without a class", "give a class"]),
        (&always, "night", 1.5, ["label_dropout = 0", "always"]),
        (&always, "none", 1.0, ["label_dropout = 0", "always"]),
    ] {
        let error = sampled(checkpoint, &settings(class, guidance), &job(&out, 4, Shard::ALL)).err().unwrap();
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{class} {guidance}: {error}");
    }
    assert!(!out.exists(), "nothing is left behind");
}
