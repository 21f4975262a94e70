//! Whole runs through the binary: train, kill, resume, sample, reproduce, full disks.
#![allow(clippy::unwrap_used)]
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const CONFIG: &str = r#"
seed = 4
[network]
resolution = 8
width = 8
mult = [1, 2]
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
steps = 40
batch = 4
checkpoint_every = 1
log_every = 1
keep = 2
"#;

fn crossfade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
    command.args(["--threads", "1", "--quiet"]);
    command
}

fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn train(dir: &Path, out: &str) -> Command {
    let config = dir.join("run.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = crossfade();
    command.arg("train").arg(config).arg("--out").arg(dir.join(out)).arg("--resume");
    command
}

fn last(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("checkpoints/step-00000040.safetensors")).unwrap()
}

/// A run that is killed at 20 random moments and resumed ends with the same bytes as an uninterrupted run.
#[test]
fn a_killed_run_resumes_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    succeed(&mut train(dir.path(), "whole"));
    let (whole, killed) = (last(&dir.path().join("whole")), dir.path().join("killed"));
    let (mut state, mut kills, mut rounds) = (12345u64, 0, 0);
    while kills < 20 {
        let mut child = train(dir.path(), "killed").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_millis(10 + (state >> 33) % 90));
        if let Some(status) = child.try_wait().unwrap() {
            // It was faster than the killer: compare, and begin another run.
            assert!(status.success() && last(&killed) == whole, "the resumed run differs");
            std::fs::remove_dir_all(&killed).unwrap();
            rounds += 1;
            continue;
        }
        // On Unix this is SIGKILL: no handler runs.
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    succeed(&mut train(dir.path(), "killed"));
    assert!(last(&killed) == whole, "the resumed run differs after {kills} kills in {} runs", rounds + 1);
    let left: Vec<_> = std::fs::read_dir(killed.join("checkpoints")).unwrap().map(|e| e.unwrap().path()).collect();
    let good = left.iter().filter(|p| p.extension().is_some_and(|e| e == "safetensors"));
    assert_eq!(good.count(), 2, "keep = 2: {left:?}");
}

/// A distillation that is killed at random moments of its stages ends with the same bytes, and its students sample with their
/// own steps.
#[test]
fn a_killed_distillation_resumes_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    succeed(&mut train(dir.path(), "teacher"));
    let distil = |out: &str| {
        let mut command = crossfade();
        command
            .arg("distill")
            .arg(dir.path().join("teacher"))
            .args(["--to", "2,1", "--steps", "20", "--resume", "--out"]);
        command.arg(dir.path().join(out)).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(distil("whole").status().unwrap().success());
    let mut kills = 0;
    // Each attempt lives a little longer than the one before, so that it ends even on a slow machine.
    for milliseconds in (60..).step_by(20) {
        let mut child = distil("killed").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 1, "{kills} kills");
    for student in ["2", "1"] {
        let file = format!("{student}/checkpoints/step-00000020.safetensors");
        let [whole, killed] = ["whole", "killed"].map(|out| std::fs::read(dir.path().join(out).join(&file)).unwrap());
        assert!(whole == killed, "the student of {student} steps differs after {kills} kills");
        for extra in [&[][..], &["--sampler", "auto", "--grid", "auto"]] {
            let mut sample = crossfade();
            sample.args(["--json", "sample"]).arg(dir.path().join("whole").join(student)).args(["--count", "2"]);
            sample.arg("--out").arg(dir.path().join("pictures")).args(extra);
            let report: Value = serde_json::from_str(&succeed(&mut sample)).unwrap();
            assert_eq!(report["report"]["evaluations"].to_string(), student, "{report}");
            assert_eq!(report["sample"]["sampler"], "ddim");
        }
    }
    let mut json = crossfade();
    json.args(["--json", "distill"]).arg(dir.path().join("teacher")).args(["--to", "4", "--steps", "3"]);
    let lines = succeed(json.arg("--out").arg(dir.path().join("json")));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 4 && lines[0]["report"]["loss"].is_f64() && lines[0]["sampling_steps"] == 4, "{lines:?}");
    assert!(lines[3][0]["checkpoint"].is_string() && lines[3][0]["sampling_steps"] == 4, "{}", lines[3]);
    let mut wrong = crossfade();
    wrong.arg("distill").arg(dir.path().join("teacher")).args(["--to", "4,3", "--out"]).arg(dir.path().join("wrong"));
    let Output { status, stderr, .. } = wrong.output().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(String::from_utf8_lossy(&stderr).contains("half of the one before"));
    assert!(!dir.path().join("wrong").exists());
}

/// A study that is killed at random moments of training and measuring ends with the same files as an uninterrupted one.
#[test]
fn a_killed_study_ends_with_the_same_table() {
    const STUDY: &str = r#"
title = "killed"
base = "run.toml"
set = ["train.steps=12"]
[[model]]
name = "adm"
[[model]]
name = "flow"
set = ["process.kind=flow"]
[sample]
steps = [1, 2]
seeds = [0, 1]
count = 40
[evaluate]
metric = "pixel-frechet"
"#;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("run.toml"), CONFIG).unwrap();
    std::fs::write(dir.path().join("study.toml"), STUDY).unwrap();
    let sweep = |out: &str| {
        let mut command = crossfade();
        command.arg("sweep").arg(dir.path().join("study.toml")).arg("--out").arg(dir.path().join(out));
        command.args(["--batch", "8"]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(sweep("whole").status().unwrap().success());
    let mut kills = 0;
    // Each attempt lives a little longer than the one before, so that the study ends even on a slow machine.
    for milliseconds in (40..).step_by(15) {
        let mut child = sweep("killed").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 1, "{kills} kills");
    for file in ["table.md", "results.csv", "results.json"] {
        let [whole, killed] = ["whole", "killed"].map(|out| std::fs::read(dir.path().join(out).join(file)).unwrap());
        assert!(whole == killed, "{file} after {kills} kills:\n{}", String::from_utf8_lossy(&killed));
    }
}

#[test]
fn train_sample_reproduce() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let lines = succeed(train(dir.path(), "run").arg("--json"));
    let steps: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(steps.len(), 41, "forty steps and a summary");
    assert!(steps[39]["loss"].is_f64() && steps[40]["checkpoint"].is_string());

    let pictures = dir.path().join("pictures");
    let sample = |extra: &[&str]| {
        let mut command = crossfade();
        command.arg("sample").arg(&run).args(["--count", "5", "--steps", "3", "--out"]).arg(&pictures).args(extra);
        succeed(&mut command)
    };
    sample(&["--sampler", "alg2", "--grid", "uniform-t", "--trajectory"]);
    let first = std::fs::read(pictures.join("000003.png")).unwrap();
    // The same image in another shard and batch.
    sample(&["--sampler", "alg2", "--grid", "uniform-t", "--shard", "1/2", "--batch", "1"]);
    assert!(first == std::fs::read(pictures.join("000003.png")).unwrap());
    assert!(pictures.join("sheet.png").is_file() && pictures.join("sheet-1-of-2.png").is_file());

    let table = succeed(crossfade().arg("calibrate").arg(&run).args(["--count", "8", "--bins", "4"]));
    assert!(table.contains("blend = { table = [") && table.contains("measured on 8 training images"), "{table}");

    let mut command = crossfade();
    command.arg("reproduce").arg(pictures.join("000003.png")).arg("--checkpoint");
    command.arg(run.join("checkpoints/step-00000040.safetensors")).arg("--out").arg(dir.path().join("again.png"));
    assert!(succeed(&mut command).contains("identical"));
    assert!(first == std::fs::read(dir.path().join("again.png")).unwrap());
    // A checkpoint with other weights is an error: the image would differ.
    let mut command = crossfade();
    command.arg("reproduce").arg(pictures.join("000003.png")).arg("--checkpoint");
    command.arg(run.join("checkpoints/step-00000039.safetensors"));
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("other weights"));
}

/// `crossfade edit`: variations, tiles, inversion, interpolation, and what it refuses.
#[test]
fn pictures_are_edited() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    succeed(train(dir.path(), "run").args(["--set", "train.steps=4"]));
    succeed(crossfade().arg("sample").arg(at("run")).args(["--count", "2", "--seed", "3", "--out"]).arg(at("made")));
    let (a, b) = (at("made/000000.png"), at("made/000001.png"));
    let edit = |from: &Path, to: &str, options: &[&str]| {
        let mut command = crossfade();
        command.arg("--json").arg("edit").arg(from).arg(at(to)).arg("--checkpoint").arg(at("run")).args(options);
        command
    };
    let facts = |command: &mut Command| serde_json::from_str::<Value>(&succeed(command)).unwrap();
    let read = |name: &str| crossfade::data::Image::read(&at(name)).unwrap();

    // From pure noise it is the image of that seed, whatever the picture.
    succeed(&mut edit(&b, "all.png", &["--strength", "1", "--seed", "3"]));
    assert_eq!(read("all.png"), read("made/000000.png"));
    let found = facts(&mut edit(&a, "many", &["--strength", "0.6", "--count", "3", "--steps", "5"]));
    assert_eq!((found["steps"].as_u64(), found["tiles"].as_u64()), (Some(3), Some(1)));
    assert!(read("many/000000.png") != read("many/000002.png") && at("many/sheet.png").is_file());
    // The sheet is larger than the network: tiles, or a square of its size.
    let found = facts(&mut edit(&at("many/sheet.png"), "tiles.png", &["--strength", "0.5"]));
    assert!(found["tiles"].as_u64().unwrap() > 100, "{found}");
    assert_eq!(read("tiles.png").width, read("many/sheet.png").width);
    succeed(&mut edit(&at("many/sheet.png"), "small.png", &["--strength", "0.5", "--fit", "crop"]));
    assert_eq!((read("small.png").width, read("small.png").height), (8, 8));

    let noise = at("noise.safetensors");
    let options = ["--invert", "--steps", "20", "--noise", noise.to_str().unwrap()];
    let found = facts(&mut edit(&a, "back.png", &options));
    assert!(found["psnr"].is_null() || found["psnr"].as_f64().unwrap() > 20.0, "{found}");
    assert!(found["max_abs"].is_u64() && at("back.png").is_file());
    let stored = crossfade::tensorfile::TensorFile::open(&noise).unwrap();
    assert_eq!(stored.read("noise").unwrap().0, [1, 3, 8, 8]);
    succeed(&mut edit(&a, "line", &["--to", b.to_str().unwrap(), "--count", "3", "--steps", "20"]));
    assert_eq!(read("line/000000.png"), read("back.png"), "the line starts with the inverted picture");
    assert!(at("line/000002.png").is_file() && at("line/sheet.png").is_file() && !at("line/000003.png").exists());

    // What was edited is made again, and folders are edited picture by picture.
    let again = |picture: &str, inputs: &[&Path]| {
        let mut command = crossfade();
        let checkpoint = crossfade::checkpoint::newest(&at("run")).unwrap();
        command.arg("reproduce").arg(at(picture)).arg("--checkpoint").arg(checkpoint).arg("--input").args(inputs);
        command
    };
    for (picture, inputs) in [("many/000001.png", &[&*a][..]), ("back.png", &[&*a]), ("line/000001.png", &[&*a, &*b])] {
        assert!(succeed(&mut again(picture, inputs)).contains("identical, byte for byte"), "{picture}");
    }
    let refused = again("back.png", &[&*b]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not the picture that was edited"));
    let found = facts(&mut edit(&at("made"), "folder", &["--strength", "0.6", "--steps", "5"]));
    assert_eq!(found["pictures"].as_array().unwrap().len(), 2);
    succeed(&mut again("folder/000001.png", &[&*b]));
    succeed(&mut edit(&at("made"), "folders", &["--strength", "0.6", "--steps", "5", "--count", "2"]));
    assert_eq!(read("folders/000001/000000.png"), read("folder/000001.png"));
    assert!(read("folders/000001/000001.png") != read("folder/000001.png"));
    succeed(&mut edit(&at("made"), "backs", &["--invert", "--steps", "20"]));
    assert_eq!(read("backs/000000.png"), read("back.png"));

    let before = std::fs::read(&a).unwrap();
    for (from, to, options, problem) in [
        (&a, "made/000000.png", &["--strength", "0.5"][..], "would be overwritten"),
        (&a, "x.png", &["--strength", "0.5", "--class", "cat"], "without classes"),
        (&a, "x.png", &["--strength", "0.01"], "less than one"),
        (&a, "x.png", &[], "--strength"),
        (&a, "x.png", &["--invert", "--sampler", "ab2"], "midpoint"),
        (&at("many/sheet.png"), "x.png", &["--invert"], "--fit crop"),
        (&a, "many", &["--strength", "0.5"], "is a folder"),
        (&at("made"), "x", &["--to", b.to_str().unwrap()], "is a folder"),
    ] {
        let refused = edit(from, to, options).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains(problem), "{options:?}: {error}");
    }
    assert!(before == std::fs::read(&a).unwrap() && !at("x.png").exists());
    let mut command = crossfade();
    command.arg("edit").arg(&a).arg(at("x.png")).args(["--strength", "0.5", "--checkpoint"]).arg(at("nothing"));
    let refused = command.output().unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("nothing"));
}

const TASK: &str = r#"
[task]
kind = "super-resolution"
scale = 2
size = 16
low = "enlarged"
[data]
kind = "procedural"
len = 8
[network]
kind = "cond-unet"
width = 8
mult = [1, 2]
encoder = { kind = "unet", width = 8, stride = 1 }
condition_windows = [[2, 2], [1, 1]]
feature_windows = [[2, 2], [1, 1]]
[train]
steps = 2
batch = 2
sample_every = 2
[optim]
ema_after = 0
warmup = 0
"#;

/// Trains a task, applies it to a file and to a folder, and checks that verbs of other tasks refuse its checkpoint.
#[test]
fn a_task_trains_and_works_on_files_and_folders() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("sr.toml"), TASK).unwrap();
    let stdout = succeed(crossfade().arg("train").arg(at("sr.toml")).arg("--out").arg(at("run")));
    assert!(stdout.contains("crossfade sr IN OUT"), "{stdout}");
    assert!(at("run/samples/step-00000002.png").is_file());
    std::fs::create_dir_all(at("in/below")).unwrap();
    let picture = crossfade::data::Image::new(30, 21, 3, (0..30 * 21 * 3).map(|i| (i * 7 % 256) as u8).collect());
    std::fs::write(at("in/b.png"), picture.encode_png(&[]).unwrap()).unwrap();
    std::fs::copy(at("in/b.png"), at("in/below/a.png")).unwrap();
    let apply = |verb: &str, from: &str, to: &str, extra: &[&str]| {
        let mut command = crossfade();
        command.arg(verb).arg(at(from)).arg(at(to)).arg("--checkpoint").arg(at("run")).args(extra);
        command
    };
    let stdout = succeed(apply("sr", "in/b.png", "large.png", &["--steps", "1"]).arg("--json"));
    let facts: Value = serde_json::from_str(&stdout).unwrap();
    let size = &facts["pictures"][0]["applied"];
    assert!(size["width"] == 60 && size["height"] == 42 && size["windows"].as_u64() > Some(1), "{stdout}");
    succeed(&mut apply("sr", "in", "out", &["--steps", "1"]));
    assert!(at("out/below/a.png").is_file());
    assert!(
        std::fs::read(at("out/b.png")).unwrap() == std::fs::read(at("large.png")).unwrap(),
        "the same name, the same picture"
    );
    // No output overwrites an input or another output, and tiles must cover the whole image.
    let refused = |command: &mut Command, code: i32, why: &str| {
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(why), "{message}");
    };
    refused(&mut apply("sr", "in", "in", &[]), 1, "would be overwritten");
    refused(&mut apply("sr", "in/b.png", "in/../in/b.png", &[]), 1, "would be overwritten");
    std::fs::create_dir_all(at("two")).unwrap();
    for name in ["two/a.png", "two/a.webp"] {
        std::fs::copy(at("in/b.png"), at(name)).unwrap();
    }
    refused(&mut apply("sr", "two", "out", &[]), 1, "would be written twice");
    refused(&mut apply("sr", "in", "out", &["--tile", "8", "--stride", "20"]), 2, "leave gaps");
    let stdout = succeed(crossfade().arg("cost").arg(at("run")).args(["--batch", "2", "--repeat", "1", "--json"]));
    let cost: Value = serde_json::from_str(&stdout).unwrap();
    assert!(cost["parameters"].as_u64() > Some(1000) && cost["macs"].is_null(), "{stdout}");
    assert!(cost["speed"]["images_per_second"].as_f64() > Some(0.0), "{stdout}");
    let wrong = apply("edge", "in", "maps", &[]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let message = String::from_utf8_lossy(&wrong.stderr);
    assert!(message.contains("super-resolution") && message.contains("crossfade sr"), "{message}");
    let none = apply("inpaint", "in", "out", &[]).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("--mask"));
    let sample = crossfade().arg("sample").arg(at("run")).arg("--out").arg(at("x")).output().unwrap();
    assert_eq!(sample.status.code(), Some(2));
}

/// A full disk, simulated by a limit on the size of files, is an error with a path; earlier checkpoints stay intact.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    succeed(train(dir.path(), "run").args(["--set", "train.steps=40"]));
    let before = last(&dir.path().join("run"));
    let run = dir.path().join("full");
    let config = dir.path().join("run.toml");
    let script = format!(
        "trap '' XFSZ; ulimit -f 20; exec '{}' --quiet --threads 1 train '{}' --out '{}'",
        env!("CARGO_BIN_EXE_crossfade"),
        config.display(),
        run.display()
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("step-00000001.safetensors") && message.contains("too large"), "{message}");
    assert!(!run.join("checkpoints").exists(), "something was left behind");
    let hidden = |name: &str| name.starts_with('.');
    let left = std::fs::read_dir(&run).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    assert_eq!(left.filter(|name| hidden(name)).count(), 0, "neither a lock nor a temporary file");
    assert!(before == last(&dir.path().join("run")));
}

/// After Ctrl-C or SIGTERM the run writes a checkpoint, exits with success and can be resumed.
#[cfg(unix)]
#[test]
fn an_interrupted_run_saves_and_exits_cleanly() {
    ["-INT", "-TERM"].into_iter().for_each(interrupted);
}

#[cfg(unix)]
fn interrupted(signal: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = train(dir.path(), "run");
    command.args(["--set", "train.steps=1000000", "--set", "train.checkpoint_every=1000000"]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let log = dir.path().join("run/log.jsonl");
    // A slow machine may need up to a minute for the first steps.
    for _ in 0..600 {
        if std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() > 2) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    succeed(Command::new("kill").args([signal, &child.id().to_string()]));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("stopped after"));
    assert_eq!(std::fs::read_dir(dir.path().join("run/checkpoints")).unwrap().count(), 1);
}

#[test]
fn bench_prints_one_line_like_its_peer() {
    let mut command = crossfade();
    command.args(["bench", "unet", "--what", "train", "--resolution", "8", "--width", "8", "--mult", "1,2"]);
    command.args(["--attention", "8", "--blocks", "1", "--batch", "2", "--repeat", "1", "--json"]);
    let text = succeed(&mut command);
    assert_eq!(text.lines().count(), 1);
    let line: Value = serde_json::from_str(&text).unwrap();
    for key in ["median_ms", "best_ms", "peak_rss_mb", "parameters"] {
        assert!(line[key].is_number(), "{key} in {text}");
    }
}

/// An option without effect is an error that says what the option needs.
#[test]
fn options_without_effect_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    succeed(train(dir.path(), "run").args(["--set", "train.steps=1"]));
    let refused = |arguments: &[&str], what: &str| {
        let mut command = crossfade();
        command.arg("sample").arg(dir.path().join("run")).args(["--count", "1", "--out"]).arg(dir.path().join("out"));
        let output = command.args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(what), "{arguments:?}: {message}");
    };
    refused(&["--eta", "0.5"], "--eta needs the sampler ddim");
    refused(&["--churn", "30"], "--churn needs the sampler heun-churn");
    refused(&["--steps", "3", "--grid", "explicit:1,0.5"], "explicit times");
    refused(&["--rho", "7"], "--rho needs the grid karras or power");
    assert!(!dir.path().join("out").exists());
}

/// The laboratory on a folder of images: the linear denoiser, then a trained network beside it.
#[test]
fn the_laboratory_measures_images_and_networks() {
    let dir = tempfile::tempdir().unwrap();
    let (run, pictures) = (dir.path().join("run"), dir.path().join("pictures"));
    succeed(train(dir.path(), "run").args(["--set", "train.steps=2"]));
    succeed(crossfade().arg("sample").arg(&run).args(["--count", "12", "--steps", "3", "--out"]).arg(&pictures));
    let lab = || {
        let mut command = crossfade();
        command.args(["lab", "--json", "--images"]).arg(&pictures);
        command
    };
    // An image of another size is refused by its name.
    std::fs::rename(pictures.join("sheet.png"), pictures.join("large.png")).unwrap();
    let refused = lab().output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(2) && message.contains("large.png") && message.contains("8x8x3"),
        "{message}"
    );
    std::fs::remove_file(pictures.join("large.png")).unwrap();

    let out = dir.path().join("lab");
    let few =
        ["--processes", "adm,edm", "--samplers", "ab2,ddim,alg2", "--grids", "uniform-t,images", "--evaluations", "4"];
    let report: Value = serde_json::from_str(&succeed(lab().args(few).arg("--out").arg(&out))).unwrap();
    // adm runs all three samplers, edm only ddim, on two grids.
    assert_eq!(report["rows"].as_array().unwrap().len(), 8, "{report}");
    assert_eq!(report["bands"].as_array().unwrap().len(), 4, "{report}");
    assert_eq!(report, serde_json::from_slice::<Value>(&std::fs::read(out.join("lab.json")).unwrap()).unwrap());
    assert!(std::fs::read_to_string(out.join("lab.md")).unwrap().contains("| adm | ab2 | images | 4 |"));
    assert!(out.join("lab.svg").is_file() && out.join("lab.png").is_file());

    let measure = || {
        let mut command = lab();
        command.args(["--samplers", "ab2,alg2", "--evaluations", "3", "--count", "5", "--checkpoint"]).arg(&run);
        serde_json::from_str::<Value>(&succeed(&mut command)).unwrap()
    };
    let report = measure();
    let estimators: Vec<&str> =
        report["rows"].as_array().unwrap().iter().map(|row| row["estimator"].as_str().unwrap()).collect();
    assert_eq!(estimators, ["network", "linear", "network", "linear"]);
    assert!(report["errors"].as_array().unwrap().iter().all(|at| at["network"].as_f64().unwrap() > 0.0), "{report}");
    assert_eq!(report, measure());
}

/// The bound is a finite number with its error, the same at any batch size and number of threads; networks without one are
/// refused with the reason.
#[test]
fn bits_per_dimension_of_a_network() {
    let dir = tempfile::tempdir().unwrap();
    let pictures = dir.path().join("pictures");
    succeed(&mut train(dir.path(), "run"));
    let mut sample = crossfade();
    succeed(sample.arg("sample").arg(dir.path().join("run")).args(["--count", "6", "--out"]).arg(&pictures));
    let nll = |run: &str, extra: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
        command.args(["--quiet", "--json", "eval", "nll"]).arg(dir.path().join(run)).arg(&pictures);
        command.args(["--times-per-image", "5"]).args(extra);
        command
    };
    let first = succeed(nll("run", &["--threads", "1"]).arg("--batch").arg("64"));
    for extra in [["--threads", "1", "--batch", "1"], ["--threads", "2", "--batch", "7"]] {
        assert_eq!(succeed(&mut nll("run", &extra)), first);
    }
    let report: Value = serde_json::from_str(&first).unwrap();
    let value = |name: &str| {
        let values = report["values"].as_array().unwrap();
        values.iter().find(|value| value[0] == name).unwrap()[1].as_f64().unwrap()
    };
    // The network of forty steps knows little. The decoder costs 2.4 bits, and less for values at the ends of the range,
    // which have neighbours on one side only.
    assert!((2.0..20.0).contains(&value("bits per dimension")) && value("standard error") > 0.0, "{first}");
    assert!((1.5..2.5).contains(&value("reconstruction")), "{first}");
    assert_ne!(succeed(&mut nll("run", &["--seed", "1"])), first);
    // The likelihood of the flow is below the bound, whatever batch and threads.
    let flow = ["--ode", "--ode-steps", "24", "--ode-probes", "4"];
    let both = succeed(nll("run", &flow).args(["--threads", "1", "--batch", "4"]));
    assert_eq!(succeed(nll("run", &flow).args(["--threads", "2", "--batch", "3"])), both);
    let report: Value = serde_json::from_str(&both).unwrap();
    let value = |name: &str| {
        let values = report["values"].as_array().unwrap();
        values.iter().find(|value| value[0] == name).unwrap()[1].as_f64().unwrap()
    };
    let (gap, error) = (value("bound minus flow"), value("bound minus flow: standard error"));
    assert!(gap > -3.0 * error && value("flow: bits per dimension") > 0.0, "{both}");

    succeed(train(dir.path(), "cld").args(["--set", "process.kind=cld", "--set", "train.steps=1"]));
    let refused = nll("cld", &[]).output().unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("CLD"));
}
