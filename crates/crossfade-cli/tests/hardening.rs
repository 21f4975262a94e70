//! What hostile files, names and numbers do to the program: an error that names them, never a panic, nothing left behind. `D1` to
//! `D18` are the defects that an attack found.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]
#[path = "common/trained.rs"]
mod trained;

use crossfade::data::Image;
use crossfade::metrics::features::{Gaussian, Statistics};
use crossfade::tensorfile::{TensorFile, save_tensors};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trained::{DIFFUSION, crc, crossfade, fail, grey, png, poisoned, succeed, trained};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// An indexed image of one pixel whose palette has four bytes.
fn broken_palette() -> Vec<u8> {
    png([8, 3, 0, 0, 0], &[(b"PLTE", &[9; 4])])
}

#[test]
fn d1_a_panic_of_the_decoder_is_an_error_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (set, bad) = (dir.path().join("set"), dir.path().join("set/bad.png"));
    std::fs::create_dir(&set).unwrap();
    std::fs::write(&bad, broken_palette()).unwrap();
    let (bad, set) = (bad.to_str().unwrap(), set.to_str().unwrap());
    let out = dir.path().join("out.png");
    let out = out.to_str().unwrap();
    let run = trained().join("ae");
    for arguments in [
        vec!["data", "imresize", bad, out, "--scale", "1/2"],
        vec!["eval", "psnr", bad, bad],
        vec!["eval", "pixel-frechet", set, set],
        vec!["reconstruct", run.to_str().unwrap(), bad, out],
    ] {
        let message = fail(crossfade().args(&arguments));
        assert!(message.contains("bad.png") || message.contains("too few"), "{arguments:?}: {message}");
        assert!(!message.contains("panicked"), "{message}");
    }
    let report = crossfade().args(["data", "check", "--kind", "folder", "--path", set]).output().unwrap();
    assert_eq!(report.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&report.stdout).contains("bad.png"));
    assert_eq!(names(dir.path()), ["set"]);
    // In a training it is a thread of the loader that reads it.
    let config = dir.path().join("folder.toml");
    let text = DIFFUSION.replace("kind = \"procedural\"\nlen = 16", &format!("kind = \"folder\"\npath = {set:?}"));
    std::fs::write(&config, text).unwrap();
    let message = fail(crossfade().arg("train").arg(config).arg("--out").arg(dir.path().join("run")));
    assert!(message.contains("bad.png") && !message.contains("panicked"), "{message}");
}

/// A path with a byte that is no UTF-8.
fn odd(dir: &Path, end: &str) -> PathBuf {
    dir.join(OsStr::from_bytes(&[b"odd-\xff".as_slice(), end.as_bytes()].concat()))
}

#[test]
fn d2_names_that_are_not_utf8_are_written_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let json = |command: &mut Command| -> Value { serde_json::from_str(&succeed(command.arg("--json"))).unwrap() };
    let out = odd(dir.path(), "");
    let report = json(crossfade().arg("sample").arg(trained().join("run")).args(["--count", "1", "--out"]).arg(&out));
    assert!(report["report"]["sheet"].as_str().unwrap().contains("odd-"));
    assert!(out.join("000000.png").exists());

    let pictures = dir.path().join("pictures");
    std::fs::create_dir(&pictures).unwrap();
    grey(&odd(&pictures, ".png"), 90, 16);
    json(crossfade().args(["data", "imresize", "--scale", "1/2"]).arg(&pictures).arg(odd(dir.path(), "-small")));
    assert!(odd(&odd(dir.path(), "-small"), ".png").exists());
    json(crossfade().arg("reconstruct").arg(trained().join("ae")).arg(&pictures).arg(odd(dir.path(), "-again")));
    let strength = ["--strength", "0.5", "--steps", "2"];
    let (picture, edited) = (odd(dir.path(), "-8.png"), odd(dir.path(), "-edited.png"));
    grey(&picture, 90, 8);
    json(
        crossfade().arg("edit").args([&picture, &edited]).args(strength).arg("--checkpoint").arg(trained().join("run")),
    );
    assert!(edited.exists());

    let config = odd(dir.path(), ".toml");
    std::fs::write(&config, DIFFUSION).unwrap();
    json(crossfade().args(["config", "check"]).arg(&config));
    let lines = succeed(crossfade().arg("train").arg(&config).arg("--json").arg("--out").arg(odd(dir.path(), "-run")));
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert!(last["checkpoint"].as_str().unwrap().contains("odd-"));
    let packed = odd(dir.path(), ".safetensors");
    json(crossfade().args(["models", "pack"]).arg(odd(dir.path(), "-run")).arg(&packed));
    assert!(packed.exists());
    // A configuration is UTF-8 text: what it cannot hold is refused before the work.
    let mut command = crossfade();
    command.arg("train").arg(&config).arg("--out").arg(dir.path().join("rooted")).arg("--data-root");
    assert!(fail(command.arg(odd(dir.path(), "-root"))).contains("UTF-8"));
    assert!(!dir.path().join("rooted").exists());
    let mut command = crossfade();
    command.arg("compare").arg(&packed).arg(trained().join("run")).args(["--metric", "pixel-frechet", "--count", "4"]);
    let message = fail(command.arg("--out").arg(dir.path().join("compared")));
    assert!(message.contains("UTF-8") && message.contains("odd-"), "{message}");
    assert!(!dir.path().join("compared").exists());
}

#[test]
fn d3_statistics_that_are_none_have_no_fid() {
    let dir = tempfile::tempdir().unwrap();
    let dim = 3;
    let save = |name: &str, covariance: Vec<f64>| {
        let gaussian = Gaussian { mean: vec![0.0; dim], covariance };
        let path = dir.path().join(name);
        Statistics { gaussian, sums: None, protocol: None, weights: None }.save(&path).unwrap();
        path
    };
    let diagonal =
        |value: f64| (0..dim * dim).map(|i| if i % (dim + 1) == 0 { value } else { 0.0 }).collect::<Vec<_>>();
    let good = save("good.npz", diagonal(1.0));
    let mut tilted = diagonal(1.0);
    tilted[1] = 0.7;
    for (bad, why) in
        [(save("minus.npz", diagonal(-1.0)), "negative eigenvalues"), (save("tilted.npz", tilted), "not symmetric")]
    {
        for pair in [[&bad, &good], [&good, &bad]] {
            let message = fail(crossfade().args(["eval", "fid"]).args(pair));
            assert!(message.contains(why) && message.contains(bad.file_name().unwrap().to_str().unwrap()), "{message}");
        }
    }
    assert!(succeed(crossfade().args(["eval", "fid"]).args([&good, &good])).starts_with("fid "));
}

#[test]
fn d4_a_network_of_nan_makes_no_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("picture.png");
    grey(&picture, 90, 16);
    for (run, step) in [("ae", 1), ("run", 2)] {
        let bad = dir.path().join(format!("{run}.safetensors"));
        poisoned(&trained().join(run).join(format!("checkpoints/step-{step:08}.safetensors")), &bad);
        let out = dir.path().join("out");
        let message = match run {
            "ae" => fail(crossfade().arg("reconstruct").args([&bad, &picture, &out])),
            _ => fail(crossfade().arg("sample").arg(&bad).args(["--count", "1", "--out"]).arg(&out)),
        };
        assert!(message.contains("finite") && message.contains(run), "{message}");
        // D15: an empty folder is no result.
        assert!(!out.exists(), "{run}");
    }
}

/// Every other way from a network to a picture: editing, inversion, blends, tasks, studies and comparisons.
#[test]
fn d4_no_verb_makes_pictures_with_a_network_of_nan() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let pictures = dir.path().join("pictures");
    std::fs::create_dir(&pictures).unwrap();
    for (name, value) in [("a.png", 90), ("b.png", 60)] {
        grey(&pictures.join(name), value, 16);
    }
    let task = "[network]\nkind = \"cond-unet\"\nchannels = 3\ncondition_channels = 3\nwidth = 16\nmult = [1, 2]\nheads = 1\n\
                encoder = { kind = \"unet\", width = 16, stride = 2 }\ncondition_windows = [[4, 4], [2, 2]]\n\
                feature_windows = [[4, 4], [2, 2]]\n[task]\nkind = \"super-resolution\"\nsize = 16\n\
                [data]\nkind = \"procedural\"\nlen = 8\n[train]\nsteps = 1\nbatch = 2\n";
    std::fs::write(at("task.toml"), task).unwrap();
    succeed(crossfade().args(["train", &at("task.toml"), "--out", &at("task")]));
    // Weights alone: a mean image of NaN is refused before any network.
    let diverged = |from: PathBuf, to: &str| {
        let file = TensorFile::open(&from).unwrap();
        let tensors = file.shapes().into_iter().map(|(name, shape)| {
            let mut values = file.read(&name).unwrap().1;
            if name.starts_with("model.") || name.starts_with("ema.") {
                values.fill(f32::NAN);
            }
            (name, shape, values)
        });
        save_tensors(Path::new(to), &tensors.collect::<Vec<_>>(), &file.metadata()).unwrap();
    };
    diverged(dir.path().join("task/checkpoints/step-00000001.safetensors"), &at("sr.safetensors"));
    diverged(trained().join("run/checkpoints/step-00000002.safetensors"), &at("bad.safetensors"));
    let (good, bad, sr) = (trained().join("run"), at("bad.safetensors"), at("sr.safetensors"));
    let (good, a, b, out) = (good.to_str().unwrap(), at("pictures/a.png"), at("pictures/b.png"), at("out"));
    let study = format!(
        "title = \"S\"\n[[model]]\nname = \"Bad\"\ncheckpoint = {bad:?}\n[sample]\nsteps = [2]\nseeds = [0]\ncount = 4\n\
         [evaluate]\nmetric = \"pixel-frechet\"\n"
    );
    std::fs::write(at("study.toml"), study).unwrap();
    let edit = ["edit", &a, &out, "--checkpoint", &bad, "--fit", "crop", "--steps", "2"];
    let inverse = ["--sampler", "ddim", "--grid", "uniform-t"];
    let mut small: Vec<(&str, Vec<&str>)> = vec![
        ("edit", [&edit[..], &["--strength", "0.5"]].concat()),
        ("edit in tiles", vec!["edit", &a, &out, "--checkpoint", &bad, "--steps", "2", "--strength", "0.5"]),
        ("inversion", [&edit[..], &["--invert"], &inverse].concat()),
        ("blend", [&edit[..], &["--to", &b, "--count", "3"], &inverse].concat()),
        ("interpolation", vec!["sample", &bad, "--interpolate", "1,2", "--count", "3", "--out", &out]),
        ("trajectory", vec!["sample", &bad, "--count", "1", "--trajectory", "--out", &out]),
        ("sr", vec!["sr", &a, &out, "--checkpoint", &sr, "--steps", "1"]),
        ("sweep", vec!["sweep", "STUDY", "--out", &out]),
    ];
    let study = at("study.toml");
    small.iter_mut().flat_map(|(_, words)| words).filter(|word| **word == "STUDY").for_each(|word| *word = &study);
    let axes = ["--metric", "pixel-frechet", "--count", "4", "--steps", "2", "--out", &out];
    small.push(("compare", [&["compare", good, &bad][..], &axes].concat()));
    for (name, words) in small {
        let message = fail(crossfade().args(&words));
        assert!(message.contains("the output of the network is not finite"), "{name}: {message}");
        // A study keeps its plan, and pictures of the other network in folders below.
        let left = std::fs::read_dir(&out).map(|found| found.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
        let left = left.unwrap_or_default();
        assert!(!Path::new(&out).is_file(), "{name}");
        assert!(left.iter().all(|path| path.extension().is_none_or(|e| e != "png")), "{name}: {left:?}");
        let _ = std::fs::remove_dir_all(&out);
    }
}

#[test]
fn d5_a_run_is_written_by_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let (run, config) = (dir.path().join("run"), dir.path().join("run.toml"));
    std::fs::write(&config, DIFFUSION).unwrap();
    let train = || {
        let mut command = crossfade();
        command.arg("train").arg(&config).arg("--out").arg(&run);
        command
    };
    let lock = crossfade::files::FolderLock::take(&run).unwrap();
    let message = fail(&mut train());
    assert!(message.contains(&format!("in use by process {} on", std::process::id())), "{message}");
    drop(lock);
    // What a killed process leaves is a file without a lock.
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join(".lock"), "process 1 on another\n").unwrap();
    succeed(&mut train());
    assert!(!run.join(".lock").exists());
}

#[test]
fn d8_a_billion_pictures_are_not_listed_and_absurd_batches_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let sample = || {
        let mut command = crossfade();
        command
            .arg("sample")
            .arg(trained().join("run"))
            .args(["--steps", "1", "--count", "1000000000", "--out"])
            .arg(&out);
        command
    };
    let message = fail(sample().args(["--batch", "1000000"]));
    assert!(message.contains("images of a batch"), "{message}");
    assert!(!out.exists());
    // The first pictures come at once; the list of all would take 16 GB.
    let mut child = sample().args(["--batch", "2"]).stdout(Stdio::null()).spawn().unwrap();
    let written = (0..6000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        out.join("000001.png").exists()
    });
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(written, "no picture after a minute");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    assert!(peak.is_none_or(|kb| kb < 1 << 20), "{peak:?} kB");
}

#[test]
fn d10_an_image_that_is_too_large_for_a_metric_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let large = dir.path().join("large.png");
    let side = 6000;
    std::fs::write(&large, Image::new(side, side, 1, vec![7; side * side]).encode_png(&[]).unwrap()).unwrap();
    for metric in ["psnr", "ssim", "ms-ssim"] {
        let message = fail(crossfade().args(["eval", metric]).args([&large, &large]));
        assert!(message.contains("large.png") && message.contains("36000000 is more than the limit"), "{message}");
    }
}

#[test]
fn d11_d16_results_replace_what_a_killed_run_left_and_have_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let (picture, out) = (dir.path().join("a.png"), dir.path().join("out"));
    grey(&picture, 90, 16);
    std::fs::create_dir(&out).unwrap();
    let resize = |to: &Path| succeed(crossfade().args(["data", "imresize", "--scale", "1/2"]).arg(&picture).arg(to));
    let long = out.join(format!("{}.png", "n".repeat(251)));
    resize(&long);
    assert!(long.exists());
    std::fs::remove_file(long).unwrap();
    // With a limit of 0 for the size of files a write is an error, or kills the program if it does not ignore the signal.
    let result = out.join("b.png");
    let limited = |ignore: &str| {
        let script = format!(r#"ulimit -c 0 -f 0; {ignore} exec "$0" --quiet data imresize --scale 1/2 "$1" "$2""#);
        let mut command = Command::new("bash");
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_crossfade")])
            .args([&picture, &result])
            .output()
            .unwrap()
            .status
    };
    assert_eq!(limited("trap '' XFSZ;").code(), Some(1));
    assert_eq!(names(&out), [""; 0], "nothing partial stays after an error");
    assert_eq!(limited("").code(), None, "killed by a signal");
    let left = names(&out);
    assert!(left.len() == 1 && left[0].starts_with(".crossfade-"), "{left:?}");
    limited("");
    assert_eq!(names(&out), left, "killed again, it leaves no more");
    resize(&result);
    assert_eq!(names(&out), ["b.png"]);
}

#[test]
fn d12_names_cannot_forge_output() {
    let dir = tempfile::tempdir().unwrap();
    let evil = dir.path().join("a\u{1b}[2Jb\nerror: forged.png");
    std::fs::write(&evil, "no picture").unwrap();
    let outputs = [
        crossfade().args(["eval", "psnr"]).args([&evil, &evil]).output().unwrap(),
        crossfade().args(["data", "check", "--kind", "folder", "--path"]).arg(dir.path()).output().unwrap(),
        crossfade().args(["config", "check"]).arg(&evil).output().unwrap(),
        crossfade().arg("sample").arg(&evil).args(["--out", "x"]).output().unwrap(),
        crossfade().arg("reproduce").arg(&evil).output().unwrap(),
    ];
    for output in outputs {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("\\u{1b}") && !text.contains('\u{1b}'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: forged")), "{text:?}");
    }
}

#[test]
fn d14_a_damaged_line_of_the_log_does_not_block_resuming() {
    let dir = tempfile::tempdir().unwrap();
    let (run, config) = (dir.path().join("run"), dir.path().join("run.toml"));
    std::fs::write(&config, DIFFUSION).unwrap();
    succeed(crossfade().arg("train").arg(&config).arg("--out").arg(&run));
    let mut log = std::fs::read(run.join("log.jsonl")).unwrap();
    log.extend(b"\xff\xfe{\n");
    std::fs::write(run.join("log.jsonl"), log).unwrap();
    std::fs::remove_file(run.join("checkpoints/step-00000002.safetensors")).unwrap();
    succeed(crossfade().args(["train", "--resume", "--out"]).arg(&run).arg(&config));
    let log = String::from_utf8(std::fs::read(run.join("log.jsonl")).unwrap()).unwrap();
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn d15_errors_leave_no_empty_folders() {
    let dir = tempfile::tempdir().unwrap();
    let (bad, missing) = (dir.path().join("bad.png"), dir.path().join("missing"));
    std::fs::write(&bad, "no picture").unwrap();
    let out = |name: &str| dir.path().join("results").join(name);
    fail(crossfade().args(["data", "imresize", "--scale", "1/2"]).arg(&bad).arg(out("a/b.png")));
    fail(crossfade().arg("reconstruct").arg(trained().join("ae")).arg(&bad).arg(out("reconstructed")));
    fail(crossfade().arg("sample").arg(trained().join("run")).args(["--class", "x", "--out"]).arg(out("pictures")));
    let mut edit = crossfade();
    edit.arg("edit").arg(&bad).arg(out("edited.png")).args(["--strength", "0.5", "--checkpoint"]);
    fail(edit.arg(trained().join("run")));
    let config = dir.path().join("run.toml");
    let text = DIFFUSION.replace("kind = \"procedural\"\nlen = 16", &format!("kind = \"folder\"\npath = {missing:?}"));
    std::fs::write(&config, text).unwrap();
    fail(crossfade().arg("train").arg(&config).arg("--out").arg(out("run")));
    fail(crossfade().args(["lab", "--images"]).arg(&missing).arg("--out").arg(out("lab")));
    assert!(!dir.path().join("results").exists(), "{:?}", names(&dir.path().join("results")));
}

#[test]
fn d17_a_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.safetensors");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let picture = dir.path().join("pipe.png");
    assert!(Command::new("mkfifo").arg(&picture).status().unwrap().success());
    for command in [
        crossfade().arg("sample").arg(&pipe).args(["--out", "x"]),
        crossfade().arg("convert").arg(&pipe).arg(dir.path().join("out.safetensors")),
        crossfade().args(["eval", "psnr"]).args([&picture, &picture]),
        crossfade().args(["config", "check"]).arg(&pipe),
    ] {
        assert!(fail(command).contains("is a pipe"), "{command:?}");
    }
}

/// The PNG with another text of the same length.
fn with_text(png: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let (mut file, mut at) = (png[..8].to_vec(), 8);
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let mut chunk = png[at + 4..at + 8 + length].to_vec();
        if let Some(found) = chunk.windows(from.len()).position(|part| part == from.as_bytes()) {
            chunk[found..found + to.len()].copy_from_slice(to.as_bytes());
        }
        file.extend(&png[at..at + 4]);
        file.extend(&chunk);
        file.extend(crc(&chunk).to_be_bytes());
        at += length + 12;
    }
    file
}

#[test]
fn d18_a_changed_recipe_is_not_blamed_on_the_processor() {
    let dir = tempfile::tempdir().unwrap();
    let (run, out) = (trained().join("run"), dir.path().join("out"));
    succeed(crossfade().arg("sample").arg(&run).args(["--count", "1", "--seed", "12", "--out"]).arg(&out));
    let checkpoint = run.join("checkpoints/step-00000002.safetensors");
    let picture = out.join("000000.png");
    let reproduce = || {
        let mut command = crossfade();
        command.arg("reproduce").arg(&picture).arg("--checkpoint").arg(&checkpoint);
        command
    };
    succeed(&mut reproduce());
    let png = std::fs::read(&picture).unwrap();
    std::fs::write(&picture, with_text(&png, "\"seed\":12", "\"seed\":99")).unwrap();
    let message = fail(&mut reproduce());
    assert!(message.contains("its recipe was changed") && !message.contains("processor"), "{message}");
    // A version with an escape sequence is not printed as it is.
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let other = format!("\"version\":\"{}\"", "9".repeat(env!("CARGO_PKG_VERSION").len()));
    std::fs::write(&picture, with_text(&with_text(&png, "\"seed\":12", "\"seed\":99"), &version, &other)).unwrap();
    assert!(fail(&mut reproduce()).contains("made by version 9"));
}

#[test]
fn the_limits_are_printed() {
    let text = succeed(crossfade().arg("--limits"));
    assert_eq!(text.lines().count(), crossfade::limits::ALL.len());
    assert!(text.lines().any(|line| line.starts_with("image file ") && line.ends_with(" 128 MiB")), "{text}");
    let json: Value = serde_json::from_str(&succeed(crossfade().args(["--limits", "--json"]))).unwrap();
    assert_eq!(json[0]["max"], 128 << 20);
    assert!(fail(&mut crossfade()).contains("verb"));
}
