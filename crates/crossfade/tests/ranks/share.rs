//! Studies and statistics.
use super::on_ranks;
use super::shared::shared;
use super::train::diffusion;
use crossfade::Error;
use crossfade::data::DataConfig;
use crossfade::engine::Device;
use crossfade::generate::Shard;
use crossfade::metrics::features::{Extractor, Protocol, Statistics};
use crossfade::study::{self, Only, Options, Plan};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

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
