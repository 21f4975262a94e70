//! Studies: killed and resumed, shared and merged, in any batch they give the same files; two checkpoints compared.
#![allow(clippy::unwrap_used)]
use crossfade::Error;
use crossfade::checkpoint;
use crossfade::config::{Axes, Evaluate, Study};
use crossfade::engine::Device;
use crossfade::generate::Shard;
use crossfade::metrics::RegisteredMetric;
use crossfade::study::{Event, Measuring, Only, Options, Outcome, Plan, ProfileRequest, Request};
use crossfade::study::{compare, merge, run, sweep_profiles};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const BASE: &str = r#"
seed = 4
[network]
resolution = 8
width = 32
mult = [1, 1]
blocks = 1
attention = []
[data]
kind = "procedural"
len = 64
[optim]
lr = 1e-3
warmup = 2
ema_after = 3
ema_every = 1
[train]
steps = 6
batch = 4
checkpoint_every = 2
loader_threads = 1
"#;

const STUDY: &str = r#"
title = "A <b>study</b> & more"
base = "base.toml"
[[model]]
name = "Adm"
samplers = ["alg2", "ab2"]
[[model]]
name = "Flow, Heun"
set = ["process.kind=flow"]
samplers = ["heun"]
[sample]
evaluations = [1, 5]
seeds = [0, 1]
count = 40
[evaluate]
metric = "pixel-frechet"
against = "Adm"
estimate = true
estimate_metric = 2
"#;

/// The files that must not depend on how a study was run.
const FILES: [&str; 6] =
    ["results.json", "table.md", "results.csv", "chart.svg", "estimate.svg", "estimate-metric.svg"];

fn plan(dir: &Path) -> Plan {
    std::fs::write(dir.join("base.toml"), BASE).unwrap();
    std::fs::write(dir.join("study.toml"), STUDY).unwrap();
    Plan::open::<&str>(&dir.join("study.toml"), &[], None).unwrap()
}

fn options(out: PathBuf) -> Options {
    Options { out, models: None, shard: Shard::ALL, only: Only::Both, weights: None, batch: 16 }
}

/// Runs until it is done or until `patience` events were told; also says how many of them were steps of training.
fn go(plan: &Plan, options: &Options, patience: usize) -> (Outcome, usize) {
    let (stop, mut events, mut steps) = (AtomicBool::new(false), 0, 0);
    let (outcome, _) = run(plan, options, &Device::flex(), &stop, &mut |event| {
        events += 1;
        steps += usize::from(matches!(event, Event::Training { .. }));
        stop.store(events >= patience, Ordering::Relaxed);
    })
    .unwrap();
    (outcome, steps)
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    FILES.iter().map(|name| std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    for (name, (a, b)) in FILES.iter().zip(files(a).into_iter().zip(files(b))) {
        assert!(a == b, "{name}:\n{}\n{}", String::from_utf8_lossy(&a), String::from_utf8_lossy(&b));
    }
}

#[test]
fn a_study_is_the_same_killed_shared_or_in_other_batches() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let plan = plan(dir.path());
    let (outcome, steps) = go(&plan, &options(at("whole")), usize::MAX);
    assert_eq!((outcome.measured, outcome.done, outcome.cells, outcome.stopped, steps), (12, 12, 12, false, 12));
    let (again, steps) = go(&plan, &options(at("whole")), usize::MAX);
    assert_eq!((again.measured, steps), (0, 0), "a finished study does nothing");

    // Stopped in training, between cells and within them, and in batches that do not divide the count.
    let mut rounds = 0;
    let stopped = Options { batch: 7, ..options(at("stopped")) };
    while go(&plan, &stopped, 9).0.stopped {
        rounds += 1;
        assert!(rounds < 100, "no progress");
    }
    assert!(rounds > 4);
    assert_same(&at("whole"), &at("stopped"));

    let shard = |name: &str, index: u64, only: Only| Options {
        shard: Shard { index, count: 2 },
        only,
        models: (only == Only::Sample).then(|| at("whole/models")),
        ..options(at(name))
    };
    for (only, parts, whole) in [(Only::Both, ["a", "b"], "ab"), (Only::Sample, ["c", "d"], "cd")] {
        let measured: Vec<_> =
            (0..2).map(|i| go(&plan, &shard(parts[i as usize], i, only), usize::MAX).0.measured).collect();
        assert_eq!(measured, if only == Only::Both { [8, 4] } else { [6, 6] });
        let merged = merge(&parts.map(at), &at(whole)).unwrap();
        assert_eq!(merged.progress(), (12, 12));
        assert_same(&at("whole"), &at(whole));
    }
    // A later merge of fewer shards does not show what only the others knew.
    assert_eq!(merge(&[at("a")], &at("ab")).unwrap().progress(), (8, 12));
    let other = merge(&[at("a"), dir.path().to_path_buf()], &at("none")).unwrap_err();
    assert!(other.to_string().contains("study.json"), "{other}");
    let foreign = Plan::open(&at("study.toml"), &["sample.seeds=[7]"], None).unwrap();
    go(
        &foreign,
        &Options { only: Only::Train, models: Some(at("whole/models")), ..options(at("foreign")) },
        usize::MAX,
    );
    let error = merge(&[at("a"), at("foreign")], &at("none")).unwrap_err().to_string();
    assert!([at("a"), at("foreign")].iter().all(|dir| error.contains(&dir.display().to_string())), "{error}");
    check_report(&at("whole"));
}

/// Studies that share a directory of models train each of them once, also when they run at the same time.
#[test]
fn studies_at_the_same_time_train_a_model_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let plan = plan(dir.path());
    let shared = |name: &str| Options { models: Some(at("models")), ..options(at(name)) };
    let [a, b] = std::thread::scope(|scope| {
        let runs = ["a", "b"].map(|name| scope.spawn(|| go(&plan, &shared(name), usize::MAX)));
        runs.map(|run| run.join().unwrap())
    });
    assert_eq!((a.0.measured, b.0.measured, a.1 + b.1), (12, 12, 12));
    assert_same(&at("a"), &at("b"));
}

/// Training alone needs nothing of the metric; another model under a known name is not taken for it.
#[test]
fn training_needs_no_metric_and_a_changed_model_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    plan(dir.path());
    let open = |sets: &[&str]| Plan::open(&dir.path().join("study.toml"), sets, None).unwrap();
    let out = dir.path().join("out");
    // Without weights of Inception FID could not be measured.
    let train = Options { only: Only::Train, ..options(out.clone()) };
    let (outcome, steps) = go(&open(&["evaluate.metric=fid", "evaluate.estimate=false"]), &train, usize::MAX);
    assert_eq!((outcome.measured, steps), (0, 12));
    let (outcome, steps) = go(&open(&[]), &options(out.clone()), usize::MAX);
    assert_eq!((outcome.measured, outcome.done, steps), (12, 12, 0), "what was trained is used");

    std::fs::write(dir.path().join("base.toml"), BASE.replace("lr = 1e-3", "lr = 2e-3")).unwrap();
    std::fs::remove_dir_all(out.join("models")).unwrap();
    let (outcome, steps) = go(&open(&[]), &options(out), usize::MAX);
    assert_eq!(
        (outcome.measured, outcome.done, steps),
        (12, 12, 12),
        "results of the old weights are not shown for the new"
    );
}

/// What is broken is made again, what is finished stays so without its models, and a command that cannot work changes nothing.
#[test]
fn a_study_survives_damage_and_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let plan = plan(dir.path());
    let whole = options(at("whole"));
    go(&plan, &whole, usize::MAX);
    let good = files(&at("whole"));
    let first = |below: &str| {
        let mut all: Vec<_> = std::fs::read_dir(at("whole").join(below)).unwrap().map(|e| e.unwrap().path()).collect();
        all.sort();
        all.remove(0)
    };
    // The other shard has the cell that is damaged in the first, whichever comes first.
    let cell = first("cells");
    for name in ["broken", "intact"] {
        merge(&[at("whole")], &at(name)).unwrap();
    }
    std::fs::write(at("broken/cells").join(cell.file_name().unwrap()), "{").unwrap();
    assert_eq!(merge(&[at("broken")], &at("less")).unwrap().progress(), (11, 12));
    assert_eq!(merge(&[at("broken"), at("intact")], &at("less")).unwrap().progress(), (12, 12));
    assert_same(&at("whole"), &at("less"));

    std::fs::write(&cell, "").unwrap();
    std::fs::write(first("sheets"), "no picture").unwrap();
    assert_eq!(go(&plan, &whole, usize::MAX).0.measured, 1, "the damaged cell alone");
    assert!(good == files(&at("whole")));
    let mistaken = Plan::open(&at("study.toml"), &[r#"set=["train.batch=8"]"#], None).unwrap();
    let before = std::fs::read(at("whole/study.json")).unwrap();
    let stop = AtomicBool::new(false);
    let error = run(&mistaken, &whole, &Device::flex(), &stop, &mut |_| ()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("model Adm") && error.contains("train.batch: the run has 4"), "{error}");
    assert!(before == std::fs::read(at("whole/study.json")).unwrap());
    std::fs::remove_dir_all(at("whole/models")).unwrap();
    let (outcome, steps) = go(&plan, &whole, usize::MAX);
    assert_eq!((outcome.measured, outcome.done, steps), (0, 12, 0), "what is finished needs no models");
    assert!(good == files(&at("whole")));

    // Two studies in one directory: the first does not show the other's table as its own.
    let other = Plan::open(&at("study.toml"), &["title=Other", "sample.seeds=[3]"], None).unwrap();
    let mut events = 0;
    let tell = &mut |_: Event| {
        events += 1;
        if events == 20 {
            go(&other, &options(at("shared")), usize::MAX);
        }
    };
    let error = run(&plan, &options(at("shared")), &Device::flex(), &stop, tell).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("another study"), "{error}");
}

/// Several trainings of each model: killed, shared and merged they give the same files, which tell apart what varies over
/// trainings and over sampling seeds.
#[test]
fn a_study_of_several_trainings_tells_what_varies() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let text = STUDY.replace("[[model]]\nname = \"Adm\"\n", "train_seeds = [4, 7]\n[[model]]\nname = \"Adm\"\n");
    let text = text.replace("samplers = [\"heun\"]", "samplers = [\"heun\"]\ntrain_seeds = [4]");
    std::fs::write(at("base.toml"), BASE).unwrap();
    std::fs::write(at("study.toml"), text).unwrap();
    let plan = Plan::open::<&str>(&at("study.toml"), &[], None).unwrap();
    assert_eq!((plan.models.len(), plan.measurements()), (3, 20));
    let (outcome, steps) = go(&plan, &options(at("whole")), usize::MAX);
    assert_eq!((outcome.measured, outcome.done, outcome.cells, steps), (20, 20, 20, 18));
    let stopped = Options { batch: 7, ..options(at("stopped")) };
    let mut rounds = 0;
    while go(&plan, &stopped, 25).0.stopped {
        rounds += 1;
        assert!(rounds < 100, "no progress");
    }
    assert_same(&at("whole"), &at("stopped"));
    for only in [Only::Both, Only::Sample] {
        let parts = [0, 1].map(|i| at(&format!("part {i} {only:?}")));
        for (i, part) in (0..).zip(&parts) {
            let models = (only == Only::Sample).then(|| at("whole/models"));
            let shard = Shard { index: i, count: 2 };
            let measured = go(&plan, &Options { shard, only, models, ..options(part.clone()) }, usize::MAX).0.measured;
            assert_eq!(measured, if only == Only::Sample { 10 } else { [12, 8][i as usize] });
        }
        let merged = merge(&parts, &at(&format!("{only:?}"))).unwrap();
        assert_eq!(merged.progress(), (20, 20));
        assert_same(&at("whole"), &at(&format!("{only:?}")));
    }

    // The first training is the model of the plain study: a study with one seed measures nothing that is not measured here.
    let single = Plan::open(&at("study.toml"), &["train_seeds=[]"], None).unwrap();
    let shared = Options { models: Some(at("whole/models")), ..options(at("single")) };
    assert_eq!(go(&single, &shared, usize::MAX).1, 0, "all models are trained");
    let (_, one) = run(&single, &shared, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    let whole = options(at("whole"));
    let (_, two) = run(&plan, &whole, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert_eq!(two.rows.iter().map(|row| row.trainings).collect::<Vec<_>>(), [2, 2, 1]);
    for (one, two) in one.rows.iter().zip(&two.rows).take(2) {
        for (one, two) in one.entries.iter().flatten().zip(two.entries.iter().flatten()) {
            assert_eq!((&two.train_seeds[..], &two.seeds[..]), (&[4, 4, 7, 7][..], &[0, 1, 0, 1][..]));
            let values = two.values_of("pixel-frechet");
            assert_eq!(
                one.values_of("pixel-frechet"),
                values[..2],
                "the plain study's values are the first training's"
            );
            let means = [(values[0] + values[1]) / 2.0, (values[2] + values[3]) / 2.0];
            let over = (means[0] - means[1]).abs() / 2f64.sqrt();
            let within = (((values[0] - values[1]).powi(2) + (values[2] - values[3]).powi(2)) / 4.0).sqrt();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-3);
            assert!(near(two.mean.unwrap(), (means[0] + means[1]) / 2.0) && near(two.spread.unwrap().std, over));
            assert!(near(two.within.unwrap(), within) && one.within.is_none());
        }
    }
    // Alg. 2 and AB2 are tested by trainings; the flow has one, so that there is nothing to compare it with.
    assert!(two.rows[0].entries.iter().chain(&two.rows[1].entries).flatten().any(|entry| entry.versus.is_some()));
    assert!(two.rows[2].entries.iter().flatten().all(|entry| entry.versus.is_none() && entry.within.is_none()));
    let table = std::fs::read_to_string(at("whole/table.md")).unwrap();
    assert!(
        table.contains("over 2 trainings where a model has several") && table.contains("sampling seeds"),
        "{table}"
    );
    let csv = std::fs::read_to_string(at("whole/results.csv")).unwrap();
    assert!(csv.starts_with("row,model,sampler,grid,blend,steps,evaluations,training_seed,seed,"), "{csv}");
    assert_eq!(csv.lines().filter(|line| line.contains(",7,1,40,")).count(), 4, "{csv}");
    let html = std::fs::read_to_string(at("whole/report.html")).unwrap();
    assert!(html.contains("Adm (training seed 7)") && html.contains("mean over trainings"));

    for (sets, message) in [
        (vec!["train_seeds=[1, 1]"], "train_seeds=[1, 1]: must be distinct"),
        (vec!["model=[{name=\"a\", checkpoint=\"x\", train_seeds=[1]}]", "evaluate.against=a"], "is not trained"),
        (vec!["model=[{name=\"a\"}, {name=\"a seed 7\"}]", "evaluate.against=a"], "another model has the name"),
    ] {
        let error = Plan::open(&at("study.toml"), &sets, None).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// A model that diverges is told by name, and the others have their results.
#[test]
fn a_model_that_fails_leaves_the_others_alone() {
    let dir = tempfile::tempdir().unwrap();
    let broken = STUDY.replace(
        "[[model]]\nname = \"Flow",
        "[[model]]\nname = \"Wild\"\nset = [\"optim.lr=1e30\"]\n[[model]]\nname = \"Flow",
    );
    std::fs::write(dir.path().join("base.toml"), BASE).unwrap();
    std::fs::write(dir.path().join("study.toml"), broken).unwrap();
    let plan = Plan::open::<&str>(&dir.path().join("study.toml"), &[], None).unwrap();
    let out = dir.path().join("out");
    let (outcome, _) = go(&plan, &options(out.clone()), usize::MAX);
    assert_eq!((outcome.measured, outcome.done, outcome.failed.len()), (12, 12, 1));
    assert!(outcome.failed[0].contains("model Wild") && outcome.failed[0].contains("loss"), "{:?}", outcome.failed);
    let table = std::fs::read_to_string(out.join("table.md")).unwrap();
    assert!(table.contains("| Wild") && table.contains("at most"), "{table}");

    // One step too far, and the loss was still a number: its pictures are none.
    let sets = ["set=[\"train.steps=1\", \"optim.warmup=0\", \"optim.clip=1e30\", \"optim.lr=1e18\"]"];
    let plan = Plan::open(&dir.path().join("study.toml"), &sets, None).unwrap();
    let (outcome, _) = go(&plan, &options(dir.path().join("wild")), usize::MAX);
    assert!(
        !outcome.failed.is_empty() && outcome.failed.iter().any(|f| f.contains("not finite")),
        "{:?}",
        outcome.failed
    );
}

/// A model that cannot be trained as it is set is refused before anything is.
#[test]
fn a_model_that_contradicts_itself_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = STUDY
        .replace("set = [\"process.kind=flow\"]", "set = [\"process.precond.kind=none\", \"network.decoders=one\"]");
    std::fs::write(dir.path().join("base.toml"), BASE).unwrap();
    std::fs::write(dir.path().join("study.toml"), text.replace("\"heun\"", "\"ab2\"")).unwrap();
    let plan = Plan::open::<&str>(&dir.path().join("study.toml"), &[], None).unwrap();
    let out = dir.path().join("out");
    let stop = AtomicBool::new(false);
    let error = run(&plan, &options(out.clone()), &Device::flex(), &stop, &mut |_| ()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("model Flow, Heun") && error.to_string().contains("adaptive"), "{error}");
    assert!(!out.exists(), "nothing was begun");
}

/// One page with all in it, nothing from elsewhere, no text as markup.
fn check_report(dir: &Path) {
    let html = std::fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(html.contains("A &lt;b&gt;study&lt;/b&gt; &amp; more") && !html.contains("<b>study"));
    assert!(!html.contains("<script") && !html.contains("src=\"http") && !html.contains("href="));
    assert_eq!(html.matches("data:image/png;base64,").count(), 6, "a sheet a row and column");
    assert_eq!(html.matches("<svg").count(), 3);
    let process = "[process]\nkind = &quot;flow&quot;";
    for fact in ["reference sha256", "pixel-frechet", process, "Flow, Heun", "95 % confidence"] {
        assert!(html.contains(fact), "{fact}");
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("results.json")).unwrap()).unwrap();
    let entry = &json["rows"][2]["entries"][1];
    assert_eq!(
        entry["sample"]["steps"], 3,
        "Heun: two evaluations a step, but one in the first of a flow and the last"
    );
    assert_eq!(entry["nfe"], 4);
    let estimate = entry["estimate"].as_array().unwrap();
    let pictures = entry["estimate_metric"].as_array().unwrap();
    // The metric of the estimates at the first and the last time, of which the last is nearer to the final pictures.
    let point = |of: &[serde_json::Value], i: usize| [0, 1].map(|k| of[i][k].as_f64().unwrap());
    assert_eq!(pictures.len(), 2);
    assert_eq!([point(pictures, 0)[0], point(pictures, 1)[0]], [1.0, point(estimate, estimate.len() - 1)[0]]);
    let last = entry["mean"].as_f64().unwrap();
    assert!((point(pictures, 1)[1] - last).abs() < (point(pictures, 0)[1] - last).abs(), "{pictures:?}, {last}");
    let csv = std::fs::read_to_string(dir.join("results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 13);
    assert!(csv.contains("\"Flow, Heun, heun\""), "{csv}");
}

#[test]
fn a_study_is_read_strictly_and_all_problems_are_told() {
    let text = r#"
title = "x"
bas = "base.toml"
[[model]]
name = "a"
set = "x"
[[model]]
name = "A"
sampler = ["ab2"]
[sample]
steps = [1, 1]
evaluations = [2]
[evaluate]
metric = "fod"
"#;
    let Err(Error::Config(problems)) = Study::parse(text, "s.toml") else { panic!("accepted") };
    let all = problems.join("\n");
    for part in [
        "s.toml:3: bas: unknown key; did you mean `base`?",
        "s.toml:6: model.0.set: ",
        "s.toml:9: model.1.sampler: unknown key; did you mean `samplers`?",
        "s.toml:8: model.1.name: another model",
        "s.toml:11: sample.steps: ",
        "s.toml:14: evaluate.metric: unknown value `fod`",
    ] {
        assert!(all.contains(part), "{part}\nin\n{all}");
    }
    // What a model's configuration or a sampler has against it is told before anything is trained.
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("base.toml"), BASE).unwrap();
    let bad = STUDY.replace("process.kind=flow", "process.kind=flaw").replace("\"ab2\"", "\"ab3\"");
    std::fs::write(dir.path().join("study.toml"), bad).unwrap();
    let error = Plan::open::<&str>(&dir.path().join("study.toml"), &[], None).unwrap_err().to_string();
    assert!(error.contains("model Flow, Heun") && error.contains("flaw"), "{error}");
    // A second row of the same images, and an estimate that does not exist.
    for (bad, message) in [
        (STUDY.replace("[sample]", "[sample]\nblends = [\"average\"]"), "model Flow, Heun: --set sample.blend=average"),
        (STUDY.replace("kind=flow", "kind=cld").replace("heun", "sscs"), "model Flow, Heun: cld has no estimate"),
    ] {
        std::fs::write(dir.path().join("study.toml"), bad).unwrap();
        let error = Plan::open::<&str>(&dir.path().join("study.toml"), &[], None).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// A task is measured on held-out images, and more training images change nothing about them.
#[test]
fn a_task_is_measured_on_held_out_images() {
    let dir = tempfile::tempdir().unwrap();
    let base = BASE.split("[network]").next().unwrap().to_string()
        + r#"
[task]
kind = "super-resolution"
scale = 2
size = 16
low = "enlarged"
[network]
kind = "cond-unet"
width = 8
mult = [1, 2]
encoder = { kind = "unet", width = 8, stride = 1 }
condition_windows = [[2, 2], [1, 1]]
feature_windows = [[2, 2], [1, 1]]
[data]"# + BASE.split("[data]").nth(1).unwrap();
    std::fs::write(dir.path().join("base.toml"), base).unwrap();
    let study = r#"
title = "task"
base = "base.toml"
[[model]]
name = "adm"
[sample]
samplers = ["first-order"]
steps = [1, 2]
seeds = [0, 1]
count = 3
[evaluate]
metric = "psnr"
held_out = ["data.seed=9", "data.len=4"]
"#;
    let path = dir.path().join("study.toml");
    std::fs::write(&path, study).unwrap();
    let plan = Plan::open::<&str>(&path, &[], None).unwrap();
    let (outcome, _) = go(&plan, &options(dir.path().join("out")), usize::MAX);
    assert_eq!((outcome.measured, outcome.cells), (4, 4));
    let table = std::fs::read_to_string(dir.path().join("out/table.md")).unwrap();
    assert!(table.contains("PSNR, dB (higher is better)"), "{table}");
    // Pictures are compared, whatever the network makes: a hundredth of its output changes a bicubic picture but little.
    let residual = Plan::open(&path, &["set=[\"task.residual=100\"]"], None).unwrap();
    let (_, results) =
        run(&residual, &options(dir.path().join("residual")), &Device::flex(), &AtomicBool::new(false), &mut |_| ())
            .unwrap();
    let decibels = results.rows[0].entries[0].as_ref().unwrap().mean.unwrap();
    assert!(decibels > 18.0, "{decibels} dB");
    // Both models side by side: the same numbers as in the studies, no training images needed.
    let request = Request {
        checkpoints: ["out", "residual"].map(|name| dir.path().join(name).join("models/adm")),
        measuring: Measuring {
            sample: plan.study.sample.clone(),
            evaluate: plan.study.evaluate.clone(),
            out: dir.path().join("compared"),
            data_root: None,
            weights: None,
            batch: 16,
        },
    };
    let compared = compare(&request, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap().unwrap();
    assert_eq!(compared.results.rows[1].entries[0].as_ref().unwrap().mean, Some(decibels));
    assert!(compared.likeness[0].images == 3 && compared.likeness[0].psnr < 100.0 && compared.denoising.is_empty());
    assert_eq!(compared.not_denoised.as_deref(), Some("a network with a condition"));
    let larger = Plan::open(&path, &["set=[\"task.scale=4\"]"], None).unwrap();
    go(&larger, &Options { only: Only::Train, ..options(dir.path().join("larger")) }, usize::MAX);
    let checkpoints = ["out", "larger"].map(|name| dir.path().join(name).join("models/adm"));
    let measuring = Measuring { out: dir.path().join("different"), ..request.measuring };
    let different = Request { checkpoints, measuring };
    let error = compare(&different, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("task.scale is 2 and 4") && !different.measuring.out.exists(), "{error}");
    // A network that makes no numbers is told, not measured as black pictures.
    let wild = ["set=[\"train.steps=1\", \"optim.warmup=0\", \"optim.clip=1e30\", \"optim.lr=1e18\"]"];
    let (outcome, _) = go(&Plan::open(&path, &wild, None).unwrap(), &options(dir.path().join("wild")), usize::MAX);
    assert!(outcome.done == 0 && outcome.failed.iter().all(|f| f.contains("not finite")), "{:?}", outcome.failed);
    let unheld = Plan::open(&path, &["evaluate.held_out=[]"], None).unwrap_err();
    assert!(unheld.to_string().contains("trained on"), "{unheld}");
    let few = Plan::open(&path, &["sample.count=5"], None).unwrap();
    let stop = AtomicBool::new(false);
    let error = run(&few, &options(dir.path().join("few")), &Device::flex(), &stop, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("4 held-out images"), "{error}");
    let wrong = Plan::open(&path, &["evaluate.metric=pixel-frechet", "evaluate.held_out=[]"], None).unwrap_err();
    assert!(wrong.to_string().contains("model adm: the metric pixel-frechet would measure"), "{wrong}");
    let wrong = Plan::open(&path, &["evaluate.metric=saliency"], None).unwrap_err().to_string();
    assert!(wrong.contains("saliency is for maps") && wrong.contains("super-resolution makes images"), "{wrong}");
}

/// Every study that comes with the program makes sense.
#[test]
fn the_studies_open() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if path.ends_with("README.md") {
            // The example to start from knows every option by its name.
            let example = text.split("```toml").nth(1).unwrap().split("```").next().unwrap();
            Study::parse(example, "README.md").unwrap();
        } else if text.contains("[[model]]") {
            Plan::open(&path, &["sample.count=100"], None).unwrap_or_else(|e| panic!("{}:\n{e}", path.display()));
            count += 1;
        }
    }
    assert!(count >= 8, "{count} studies");
}

fn measuring(steps: Vec<usize>, out: PathBuf) -> Measuring {
    Measuring {
        sample: Axes { steps, seeds: vec![0, 1], count: 24, ..Axes::default() },
        evaluate: Evaluate { metric: RegisteredMetric::parse("pixel-frechet").unwrap(), ..Evaluate::default() },
        out,
        data_root: None,
        weights: None,
        batch: 16,
    }
}

/// The same with bits per dimension, for which nothing is sampled.
fn measuring_bits(out: PathBuf) -> Measuring {
    let mut bits = measuring(vec![], out);
    (bits.sample.evaluations, bits.evaluate.metric) = (vec![2, 3], RegisteredMetric::parse("nll").unwrap());
    bits
}

#[test]
fn two_checkpoints_are_compared_from_the_same_noise() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    go(&plan(dir.path()), &Options { only: Only::Train, ..options(at("study")) }, usize::MAX);
    let request = |b: &str| Request {
        checkpoints: [at("study/models/adm"), at(b)],
        measuring: measuring(vec![2, 4], at(&format!("against {}", b.replace('/', " ")))),
    };
    let compared =
        |request: &Request| compare(request, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap().unwrap();
    let mut twice = request("study/models/adm");
    twice.measuring.sample.seeds = vec![3, 3];
    let error = compare(&twice, &Device::flex(), &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("sample.seeds: must be distinct") && !twice.measuring.out.exists(), "{error}");
    let same = compared(&request("study/models/adm"));
    assert!(same.likeness.iter().all(|l| l.psnr == 100.0) && same.differences.is_empty());
    assert!(same.denoising.len() == 9 && same.denoising.iter().all(|at| at.rms[0] == at.rms[1]));
    // With little noise the image is seen, with much it is guessed.
    let [least, most] = [same.denoising[0].rms[0], same.denoising[8].rms[0]];
    assert!(least < 0.1 && most > 0.2, "{least} {most}");
    // What the directory knew of the earlier B is forgotten.
    let measuring = request("study/models/adm").measuring;
    let other = Request { measuring, ..request("study/models/flow-heun") };
    let found = compared(&other);
    assert!(found.likeness.iter().all(|l| l.psnr < 60.0) && found.likeness.len() == 2);
    let [a, b] = &found.sides;
    assert!(a.checksum != b.checksum && a.step == 6 && a.parameters > 1000 && a.macs_per_evaluation > Some(1000));
    let kind = found.differences.iter().find(|d| d.key == "process.kind").unwrap();
    assert_eq!(kind.values, ["adm", "flow"].map(|name| Some(format!("\"{name}\""))));
    assert!(found.to_string().contains("process.kind: \"adm\" | \"flow\""));
    assert!(std::fs::read_to_string(other.measuring.out.join("comparison.html")).unwrap().contains("A above, B below"));
    assert!(checkpoint::newest(&at("study/models/adm")).is_ok());
    // By bits per dimension no images are made.
    let bits = compared(&Request { measuring: measuring_bits(at("bits")), ..request("study/models/flow-heun") });
    assert!(bits.likeness.is_empty() && bits.results.progress() == (8, 8), "{bits}");
    assert!(bits.to_string().contains("bits per dimension (lower is better)"), "{bits}");
}

/// Averages of several widths are made from one run and measured like models; the stored ones are taken as they are.
#[test]
fn averages_of_one_run_are_measured_over_their_width() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    plan(dir.path());
    let sets = [r#"set=["optim.ema_profiles=[0.05, 0.1]", "train.average_every=1"]"#];
    let plan = Plan::open(&at("study.toml"), &sets, None).unwrap();
    go(&plan, &Options { only: Only::Train, ..options(at("study")) }, usize::MAX);
    let request = ProfileRequest {
        run: at("study/models/adm"),
        sigmas: vec![0.05, 0.08, 0.2],
        step: None,
        measuring: measuring(vec![1, 2], at("widths")),
    };
    let swept =
        |request: &ProfileRequest| sweep_profiles(request, &Device::flex(), &AtomicBool::new(false), &mut |_| ());
    let found = swept(&request).unwrap().unwrap();
    assert_eq!(found.results.progress(), (12, 12));
    assert!(found.averages[0].error == 0.0 && found.averages[1].error > 0.0);
    let labels: Vec<_> = found.results.rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, ["sigma 0.05", "sigma 0.08", "sigma 0.2"]);
    assert!(std::fs::read_to_string(&found.chart).unwrap().contains("relative width of the average"));
    // Again, and nothing is measured anew: the averages are the same bytes.
    let again = swept(&request).unwrap().unwrap();
    assert_eq!(again.results.csv(), found.results.csv());
    let bits = ProfileRequest { measuring: measuring_bits(at("bits")), ..request.clone() };
    let bits = swept(&bits).unwrap().unwrap();
    assert!(std::fs::read_to_string(&bits.chart).unwrap().contains("bits per dimension"));
    let error = swept(&ProfileRequest { run: at("study"), ..request }).unwrap_err().to_string();
    assert!(error.contains("checkpoints"), "{error}");
}
