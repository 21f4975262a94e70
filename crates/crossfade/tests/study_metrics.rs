//! Every kind of metric in a study: targets, maps, sets of a task's outputs; values chosen by name; revisions.
#![allow(clippy::unwrap_used)]
use crossfade::Error;
use crossfade::config::Study;
use crossfade::data::Image;
use crossfade::engine::Device;
use crossfade::generate::Shard;
use crossfade::metrics::{Compared, METRIC_NAMES, RegisteredMetric};
use crossfade::nn::lpips::FeatureNet;
use crossfade::study::{Only, Options, Outcome, Plan, Results, run};
use crossfade::tensorfile::{HostTensor, save_tensors};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A network with a condition that is trained in moments; the task and the data are put in its place.
const BASE: &str = r#"
seed = 4
[task]
TASK
[network]
kind = "cond-unet"
channels = CHANNELS
width = 8
mult = [1, 2]
encoder = { kind = "unet", width = 8, stride = 1 }
condition_windows = [[2, 2], [1, 1]]
feature_windows = [[2, 2], [1, 1]]
[data]
DATA
[optim]
lr = 1e-3
warmup = 2
ema_after = 3
ema_every = 1
[train]
steps = 4
batch = 2
checkpoint_every = 4
loader_threads = 1
"#;

const STUDY: &str = r#"
title = "metrics"
base = "base.toml"
[[model]]
name = "adm"
[sample]
samplers = ["first-order"]
steps = [1, 2]
seeds = [0, 1]
count = 3
[evaluate]
metric = "METRIC"
held_out = [HELD_OUT]
"#;

fn write_study(dir: &Path, [task, channels]: [&str; 2], data: &str, metric: &str, held_out: &str) {
    std::fs::write(
        dir.join("base.toml"),
        BASE.replace("TASK", task).replace("CHANNELS", channels).replace("DATA", data),
    )
    .unwrap();
    std::fs::write(dir.join("study.toml"), STUDY.replace("METRIC", metric).replace("HELD_OUT", held_out)).unwrap();
}

/// Runs the study with some assignments; all runs in `dir` share the trained model.
fn sweep(dir: &Path, out: &str, sets: &[&str], weights: Option<&Path>) -> (Outcome, Results) {
    let plan = Plan::open(&dir.join("study.toml"), sets, None).unwrap();
    let options = Options {
        out: dir.join(out),
        models: Some(dir.join("models")),
        shard: Shard::ALL,
        only: Only::Both,
        weights: weights.map(Path::to_path_buf),
        batch: 2,
    };
    let (outcome, results) = run(&plan, &options, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(outcome.failed.is_empty() && outcome.done == 4, "{out}: {:?}", outcome.failed);
    (outcome, results)
}

fn means(results: &Results) -> Vec<f64> {
    results.rows[0].entries.iter().map(|entry| entry.as_ref().unwrap().mean.unwrap()).collect()
}

/// LPIPS weights that are numbers and nothing more.
fn lpips_weights(path: &Path) {
    let shapes = FeatureNet::Alex.parameter_shapes().into_iter();
    let tensors: Vec<HostTensor> = shapes
        .map(|(name, shape)| {
            let count = shape.iter().product::<usize>();
            let value =
                |i: usize| ((i * 7919 % 101) as f32 / 101.0 - if name.starts_with("lin") { 0.0 } else { 0.5 }) * 0.05;
            (name.clone(), shape.clone(), (0..count).map(value).collect())
        })
        .collect();
    save_tensors(path, &tensors, &BTreeMap::new()).unwrap();
}

#[test]
fn super_resolution_is_swept_by_every_metric_of_images() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let task = "kind = \"super-resolution\"\nscale = 2\nsize = 32\nlow = \"enlarged\"";
    write_study(dir, [task, "3"], "kind = \"procedural\"\nlen = 16", "psnr", r#""data.seed=9", "data.len=4""#);
    let (_, psnr) = sweep(dir, "psnr", &[], None);
    assert!(psnr.markdown().contains("PSNR, dB (higher is better)") && psnr.value.is_none());
    let weights = dir.join("lpips.safetensors");
    lpips_weights(&weights);
    let (outcome, lpips) = sweep(dir, "lpips", &["evaluate.metric=lpips"], Some(&weights));
    assert_eq!(outcome.measured, 4);
    assert!(lpips.markdown().contains("LPIPS (lower is better)"), "{}", lpips.markdown());
    assert!(lpips.facts.iter().any(|(key, fact)| key == "weights sha256" && fact.len() == 64), "{:?}", lpips.facts);
    let (_, ssim) = sweep(dir, "ssim", &["evaluate.metric=ssim"], None);
    for (metric, results) in [("psnr", &psnr), ("lpips", &lpips), ("ssim", &ssim)] {
        assert!(means(results).iter().all(|v| v.is_finite() && *v > 0.0), "{metric}: {:?}", means(results));
    }
    assert!(means(&ssim).iter().all(|v| *v < 1.0));
    // The protocols of super-resolution compare luma, without a border as wide as the scale factor.
    let (_, luma) = sweep(dir, "luma", &["evaluate.protocol=basicsr"], None);
    assert_ne!(means(&luma), means(&psnr));
    assert!(luma.facts.contains(&("border left out".into(), "2".into())), "{:?}", luma.facts);
    // Outputs as a set, against the targets as a set, and against another one.
    let (_, set) = sweep(dir, "set", &["evaluate.metric=pixel-frechet"], None);
    assert!(set.facts.contains(&("reference images".into(), "3".into())), "{:?}", set.facts);
    let (_, train) = sweep(dir, "train", &["evaluate.metric=pixel-frechet", "evaluate.reference=train"], None);
    assert!(train.facts.contains(&("reference images".into(), "16".into())), "{:?}", train.facts);
    assert!(train.facts.iter().any(|(key, _)| key == "held-out sha256"), "{:?}", train.facts);
    assert_ne!(means(&set), means(&train));
    // The record says which code has computed the values.
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("set/study.json")).unwrap()).unwrap();
    assert_eq!(record["revisions"], serde_json::json!({ "images": 1, "metric": 1, "sampler first-order": 1 }));
}

#[test]
fn saliency_is_swept_and_another_value_needs_no_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for (set, count) in [("train", 4), ("test", 3)] {
        for below in ["images", "masks"] {
            std::fs::create_dir_all(dir.join(set).join(below)).unwrap();
        }
        for k in 0..count {
            let inside = |i: usize| (i % 20).abs_diff(8 + k) < 5 && (i / 20).abs_diff(9) < 4 + k;
            let mask: Vec<u8> = (0..400).map(|i| if inside(i) { 255 } else { 0 }).collect();
            let image = mask.iter().enumerate().flat_map(|(i, m)| [m / 2 + (i % 50) as u8, 40, 90]).collect();
            for (below, image) in [("images", Image::new(20, 20, 3, image)), ("masks", Image::new(20, 20, 1, mask))] {
                let path = dir.join(set).join(below).join(format!("{k}.png"));
                std::fs::write(path, image.encode_png(&[]).unwrap()).unwrap();
            }
        }
    }
    let pairs = |set: &str| ["images", "masks"].map(|below| dir.join(set).join(below).display().to_string());
    let ([images, masks], [test_images, test_masks]) = (pairs("train"), pairs("test"));
    let data = format!("kind = \"pairs\"\nimages = \"{images}\"\nlabels = \"{masks}\"");
    let held_out = format!("\"data.images={test_images}\", \"data.labels={test_masks}\"");
    write_study(dir, ["kind = \"saliency\"\nsize = 16", "1"], &data, "saliency", &held_out);
    let (outcome, mae) = sweep(dir, "out", &[], None);
    assert_eq!(outcome.measured, 4);
    assert!(mae.markdown().contains("MAE (lower is better)"), "{}", mae.markdown());
    let (outcome, f) = sweep(dir, "out", &["evaluate.value=max-f"], None);
    assert_eq!(outcome.measured, 0, "all values are kept");
    assert!(f.markdown().contains("max F (higher is better)") && f.value == Some("max F"));
    for (name, results) in [("MAE", &mae), ("max F", &f)] {
        let entry = results.rows[0].entries[0].as_ref().unwrap();
        assert_eq!(entry.values_of(name).iter().sum::<f64>() / 2.0, entry.mean.unwrap());
        assert!((0.0..=1.0).contains(&entry.mean.unwrap()), "{name}: {:?}", entry.mean);
    }
    assert!(mae.csv().contains(",weighted F,") && mae.csv().contains(",mean E,"), "{}", mae.csv());
    // Edge measures are for maps too.
    let (_, edges) = sweep(dir, "edges", &["evaluate.metric=edges", "evaluate.value=OIS"], None);
    assert!(means(&edges).iter().all(|v| (0.0..=1.0).contains(v)));
    // Maps as a set: the reference is the masks and not the images that the network is given.
    let (_, set) = sweep(dir, "set", &["evaluate.metric=pixel-frechet"], None);
    let hash = |which: &str| set.facts.iter().find(|(key, _)| key == which).map(|(_, hash)| hash.clone()).unwrap();
    assert_ne!(hash("reference sha256"), hash("held-out sha256"));
}

#[test]
fn slips_in_the_evaluate_section_are_told_with_what_was_meant() {
    let problems = |evaluate: &str| {
        let text = STUDY.replace("metric = \"METRIC\"\nheld_out = [HELD_OUT]", evaluate);
        let Err(Error::Config(problems)) = Study::parse(&text, "s.toml") else { panic!("accepted: {evaluate}") };
        problems.join("\n")
    };
    for (evaluate, message) in [
        ("metric = \"saliancy\"", "did you mean `saliency`?"),
        ("metric = \"lpis\"", "did you mean `lpips`?"),
        ("metric = \"mae\"", "metric = \"saliency\" and value = \"mae\""),
        ("metric = \"saliency\"\nvalue = \"max G\"\nheld_out = [\"data.seed=9\"]", "did you mean `max F`?"),
        ("metric = \"fid\"\nvalue = \"kid\"", "evaluate.value: fid has no value `kid`"),
        ("metric = \"ssim\"\nprotocol = \"torch-fidelity\"\nheld_out = [\"data.seed=9\"]", "known: adm, basicsr"),
        ("metric = \"pixel-frechet\"\nprotocol = \"adm\"", "one protocol only"),
        ("metric = \"ods\"", "is a value of `edges`"),
        ("metric = \"saliency\"", "evaluate.held_out: is missing: the metric saliency"),
        ("metric = \"regions\"\nheld_out = [\"data.seed=9\"]", "crossfade eval regions"),
        ("metric = \"pr\"", "sample.count: must be at least 4"),
        ("metric = \"psnr\"\nestimate = true\nheld_out = [\"data.seed=9\"]", "unconditional models only"),
    ] {
        let all = problems(evaluate);
        assert!(all.contains(message), "{message}\nin\n{all}");
    }
    // Every metric but that of segmentations can be swept.
    for name in METRIC_NAMES {
        let metric = RegisteredMetric::parse(name).unwrap();
        let held_out = if metric.needs_targets() { "held_out = [\"data.seed=9\"]" } else { "" };
        let text =
            STUDY.replace("metric = \"METRIC\"\nheld_out = [HELD_OUT]", &format!("metric = \"{name}\"\n{held_out}"));
        // A metric of the network has no sampler and no steps.
        let text = match metric.measures_network() {
            true => text.replace("samplers = [\"first-order\"]\nsteps", "evaluations"),
            false => text,
        };
        let read = Study::parse(&text.replace("count = 3", "count = 20"), "s.toml");
        assert_eq!(read.is_ok(), metric.compared != Compared::Segmentations, "{name}: {read:?}");
    }
}
