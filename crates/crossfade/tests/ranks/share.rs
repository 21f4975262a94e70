//! Pictures, studies, latents and statistics.
use super::on_ranks;
use super::shared::shared;
use super::train::{autoencoder, diffusion, fit, fit_autoencoder};
use crossfade::config::LatentConfig;
use crossfade::data::DataConfig;
use crossfade::engine::Device;
use crossfade::generate::{self, Job, Shard};
use crossfade::metrics::features::{Extractor, Protocol, Statistics};
use crossfade::study::{self, Only, Options, Plan};
use crossfade::{Checkpoint, Error, Weights, checkpoint};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// All files below a directory, by their path in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let (path, name) = (entry.path(), PathBuf::from(entry.file_name()));
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|(below, bytes)| (name.join(below), bytes))),
            false => drop(found.insert(name, std::fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn pictures_and_their_sheet_are_those_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let config = diffusion("");
    fit(&config, dir.path(), false, 1).unwrap();
    let file = checkpoint::newest(dir.path()).unwrap();
    let make = |out: PathBuf, between, shard| {
        // Every rank opens the file itself: threads would share its position.
        let opened = Checkpoint::open(&file).unwrap();
        let job = Job { seed: 3, first: 5, count: 7, shard, batch: 2, trajectory: true, between, guide: None, out };
        generate::run(&opened, Weights::Ema, &config.sample, &job, &Device::flex(), &mut |_, _| ()).unwrap()
    };
    // The second of two shards has three images: on four ranks one has none.
    let second = Shard { index: 1, count: 2 };
    for (name, between, shard, count) in
        [("all", None, Shard::ALL, 7), ("shard", None, second, 3), ("between", Some((0, 3)), Shard::ALL, 7)]
    {
        let wanted = make(dir.path().join(name), between, shard);
        assert_eq!(wanted.images, count);
        for ranks in [2, 3, 4] {
            let out = dir.path().join(format!("{name}-{ranks}"));
            let reports = on_ranks(ranks, |_| make(out.clone(), between, shard));
            assert_eq!((reports[0].images, reports[0].evaluations), (wanted.images, wanted.evaluations));
            assert!(files(&out) == files(&dir.path().join(name)), "{name} on {ranks} ranks: other files");
        }
    }
}

/// A rank that cannot write stops the others between two batches, with its number and reason.
#[test]
fn a_rank_without_a_directory_stops_all_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let config = diffusion("");
    fit(&config, dir.path(), false, 1).unwrap();
    let file = checkpoint::newest(dir.path()).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let made = std::sync::atomic::AtomicUsize::new(0);
    let messages = on_ranks(3, |group| {
        let opened = Checkpoint::open(&file).unwrap();
        let out = dir.path().join(if group.rank() == 1 { "file/below" } else { "out" });
        let (seed, count, batch, shard) = (0, 3000, 1, Shard::ALL);
        let job = Job { seed, first: 0, count, shard, batch, trajectory: false, between: None, guide: None, out };
        let mut progress = |_, _| {
            made.fetch_add(1, Ordering::Relaxed);
        };
        let failed = generate::run(&opened, Weights::Ema, &config.sample, &job, &Device::flex(), &mut progress);
        let error = failed.unwrap_err();
        group.announce(&error);
        error.to_string()
    });
    assert!(messages[1].contains("file/below"), "{}", messages[1]);
    for message in [&messages[0], &messages[2]] {
        assert!(message.starts_with("rank 1 has failed") && message.contains("file/below"), "{message}");
    }
    let made = made.load(Ordering::Relaxed);
    assert!(made < 1000, "{made} of 2000 images were made after the failure");
}

const STUDY: &str = "title = \"Ranks\"\nbase = \"base.toml\"\n[[model]]\nname = \"Adm\"\nsamplers = [\"alg2\", \"ab2\"]\n\
                     [[model]]\nname = \"Flow\"\nset = [\"process.kind=flow\"]\nsamplers = [\"heun\"]\n[sample]\n\
                     evaluations = [1, 3]\nseeds = [0, 1]\ncount = 12\n[evaluate]\nmetric = \"pixel-frechet\"\n";

fn study(dir: &Path, model: &str) -> Plan {
    std::fs::write(dir.join("base.toml"), diffusion("").to_toml().unwrap()).unwrap();
    std::fs::write(dir.join("study.toml"), format!("{STUDY}{model}")).unwrap();
    Plan::open::<&str>(&dir.join("study.toml"), &[], None).unwrap()
}

fn run_study(plan: &Plan, out: PathBuf, only: Only) -> crossfade::Result<study::Outcome> {
    let options = Options { out, models: None, shard: Shard::ALL, only, weights: None, batch: 16 };
    study::run(plan, &options, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).map(|(outcome, _)| outcome)
}

#[test]
fn a_study_has_the_results_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let plan = study(dir.path(), "");
    let wanted = run_study(&plan, at("alone"), Only::Both).unwrap();
    assert_eq!((wanted.measured, wanted.done, wanted.cells), (12, 12, 12));
    // Three ranks are more than there are models.
    for ranks in [2, 3] {
        let out = at(&ranks.to_string());
        let outcomes = on_ranks(ranks, |_| run_study(&plan, out.clone(), Only::Both).unwrap());
        assert_eq!((outcomes[0].measured, outcomes[0].done), (12, 12));
        for name in ["results.json", "table.md", "results.csv", "chart.svg"] {
            let [one, other] = [at("alone"), out.clone()].map(|dir| std::fs::read(dir.join(name)).unwrap());
            assert!(one == other, "{name} of {ranks} ranks is another one");
        }
        let again = on_ranks(ranks, |_| run_study(&plan, out.clone(), Only::Both).unwrap());
        assert_eq!(again[0].measured, 0, "a finished study does nothing");
    }
    // In two commands, of which the second has other ranks.
    on_ranks(3, |_| run_study(&plan, at("parts"), Only::Train).unwrap());
    on_ranks(2, |_| run_study(&plan, at("parts"), Only::Sample).unwrap());
    let [one, other] = ["alone", "parts"].map(|name| std::fs::read(at(name).join("results.json")).unwrap());
    assert!(one == other, "training and measuring apart change the results");
}

/// A model that fails keeps no rank from the other models, and the first rank reports it.
#[test]
fn a_study_reports_models_that_failed_on_any_rank() {
    let dir = tempfile::tempdir().unwrap();
    let diverging = "[[model]]\nname = \"Wild\"\nset = [\"optim.lr=1e30\", \"optim.clip=0.0\", \"train.steps=20\"]\n";
    let plan = study(dir.path(), diverging);
    let out = dir.path().join("out");
    let outcomes = on_ranks(2, |_| run_study(&plan, out.clone(), Only::Both).unwrap());
    assert_eq!((outcomes[0].done, outcomes[0].failed.len(), outcomes[1].failed.len()), (12, 1, 0));
    assert!(outcomes[0].failed[0].contains("Wild"), "{:?}", outcomes[0].failed);
}

/// A run on stored latents, which all ranks encode together, also those without a micro-batch.
#[test]
fn latents_have_the_bytes_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let stage = dir.path().join("stage");
    fit_autoencoder(&autoencoder(), &stage, false, 2).unwrap();
    let train = |name: &str| {
        let mut config = diffusion("");
        config.network.as_unet_mut().unwrap().channels = 3;
        config.sample.clip = 0.0;
        let cache = Some(dir.path().join(format!("{name}.safetensors")));
        config.latent = Some(LatentConfig { autoencoder: stage.clone(), scale: None, cache });
        fit(&config, &dir.path().join(name), false, u64::MAX)
    };
    train("alone").unwrap();
    // The configuration in a checkpoint names the cache, so only the weights are compared.
    let result = |name: &str| {
        let cache = std::fs::read(dir.path().join(format!("{name}.safetensors"))).unwrap();
        let last = checkpoint::newest(&dir.path().join(name)).unwrap();
        (cache, Checkpoint::open(&last).unwrap().read().unwrap())
    };
    for ranks in [2, 4] {
        on_ranks(ranks, |_| train(&ranks.to_string()).unwrap());
        assert!(result(&ranks.to_string()) == result("alone"), "{ranks} ranks: other latents or weights");
    }
}

/// Sums of features are added in the order of the images, whichever rank has computed them.
#[test]
fn statistics_are_those_of_one_process() {
    let Some(weights) = shared("data/weights/inception_fid_2015-12-05_fp32.safetensors") else { return };
    let extractor = Extractor::new(&weights, Protocol::TorchFidelity).unwrap();
    let set = DataConfig::Procedural { seed: 1, len: 13 }.open(16, 3).unwrap();
    let wanted = Statistics::of(&extractor, &*set, &mut |_, _| ()).unwrap();
    for ranks in [2, 3] {
        let made = on_ranks(ranks, |_| Statistics::of(&extractor, &*set, &mut |_, _| ()).unwrap());
        assert!(made.iter().all(|made| *made == wanted), "{ranks} ranks: other statistics");
    }
}

/// Only what is wrong with the request itself: ranks and shards at once.
#[test]
fn ranks_and_shards_at_once_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let plan = study(dir.path(), "");
    let errors = on_ranks(2, |_| {
        let shard = Shard { index: 0, count: 2 };
        let (out, only) = (dir.path().join("out"), Only::Both);
        let options = Options { out, models: None, shard, only, weights: None, batch: 16 };
        study::run(&plan, &options, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).map(|_| ()).unwrap_err()
    });
    assert!(errors.iter().all(|error| matches!(error, Error::Request(_))));
}
