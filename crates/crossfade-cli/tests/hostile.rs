//! Hostile pictures, names and texts, through every family of verbs: an error that names the file and says why, in lines that
//! nothing from outside has made.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]
#[path = "common/trained.rs"]
mod trained;

use crossfade::data::{Image, png_text};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use trained::{DIFFUSION, crossfade, fail, grey, png, succeed, trained};

/// D1: the decoder panics at a palette whose length is no multiple of 3. Each verb names the file and the reason.
#[test]
fn every_verb_names_a_picture_that_its_decoder_does_not_handle() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    for folder in ["set", "good"] {
        std::fs::create_dir(at(folder)).unwrap();
        (0..3).for_each(|k| grey(&dir.path().join(format!("{folder}/{k}.png")), 20 + 60 * k, 16));
    }
    std::fs::write(at("set/bad.png"), png([8, 3, 0, 0, 0], &[(b"PLTE", &[9; 4])])).unwrap();
    grey(&dir.path().join("good/bad.png"), 3, 16);
    let (set, good, bad, out, file) = (at("set"), at("good"), at("set/bad.png"), at("out"), at("out.png"));
    let (ae, run) = (trained().join("ae"), trained().join("run"));
    let (ae, run) = (ae.to_str().unwrap(), run.to_str().unwrap());
    let mut commands = vec![
        vec!["data", "imresize", &bad, &file, "--scale", "1/2"],
        vec!["data", "imresize", &set, &out, "--scale", "1/2"],
        vec!["reconstruct", ae, &bad, &out],
        vec!["reconstruct", ae, &set, &out],
        vec!["edit", &bad, &file, "--strength", "0.5", "--checkpoint", run],
        vec!["reproduce", &bad],
        vec!["lab", "--images", &set, "--out", &out],
        vec!["eval", "nll", run, &set],
        vec!["eval", "nearest", &set, &good, &file],
        vec!["eval", "nearest", &good, &set, &file],
    ];
    for metric in ["psnr", "ssim", "ms-ssim", "saliency", "edges"] {
        commands.push(vec!["eval", metric, &bad, &bad]);
    }
    for metric in ["pixel-frechet", "random-frechet"] {
        commands.extend([vec!["eval", metric, &set, &good], vec!["eval", metric, &good, &set]]);
    }
    for words in commands {
        let message = fail(crossfade().args(&words));
        assert!(message.contains("bad.png"), "{words:?}: {message}");
        assert!(message.contains("its decoder does not handle") || words[0] == "reproduce", "{words:?}: {message}");
        assert!(!message.contains("panicked"), "{words:?}: {message}");
        // Of a folder the others may have results.
        assert!(!Path::new(&out).join("bad.png").exists() && !Path::new(&file).exists(), "{words:?}");
        let _ = std::fs::remove_dir_all(&out);
    }
    let report = crossfade().args(["data", "check", "--kind", "folder", "--path", &set]).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert_eq!(report.status.code(), Some(1));
    assert!(text.contains("readable: 3 of 4") && text.contains("does not handle"), "{text}");
    let config = at("folder.toml");
    let text = DIFFUSION.replace("kind = \"procedural\"\nlen = 16", &format!("kind = \"folder\"\npath = {set:?}"));
    std::fs::write(&config, text).unwrap();
    let message = fail(crossfade().args(["train", &config, "--out", &out]));
    assert!(message.contains("bad.png") && message.contains("does not handle"), "{message}");
}

/// A path with a byte that is no UTF-8.
fn odd(dir: &Path, end: &str) -> PathBuf {
    dir.join(OsStr::from_bytes(&[b"odd-\xff".as_slice(), end.as_bytes()].concat()))
}

/// D2: what is written under a name that is no UTF-8 is there afterwards, and the report says so.
#[test]
fn convert_and_tasks_write_names_that_are_not_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let task = "[network]\nkind = \"cond-unet\"\nchannels = 3\ncondition_channels = 3\nwidth = 16\nmult = [1, 2]\nheads = 1\n\
                encoder = { kind = \"unet\", width = 16, stride = 2 }\ncondition_windows = [[4, 4], [2, 2]]\n\
                feature_windows = [[4, 4], [2, 2]]\n[task]\nkind = \"super-resolution\"\nsize = 16\n\
                [data]\nkind = \"procedural\"\nlen = 8\n[train]\nsteps = 1\nbatch = 2\n";
    std::fs::write(at("task.toml"), task).unwrap();
    succeed(crossfade().arg("train").arg(at("task.toml")).arg("--out").arg(at("task")));
    grey(&odd(dir.path(), ".png"), 90, 16);
    let large = odd(dir.path(), "-large.png");
    let mut sr = crossfade();
    sr.arg("sr").arg(odd(dir.path(), ".png")).arg(&large).arg("--checkpoint").arg(at("task")).args(["--steps", "1"]);
    let report = succeed(sr.arg("--json"));
    assert!(large.exists() && serde_json::from_str::<serde_json::Value>(&report).is_ok(), "{report}");

    let converted = odd(dir.path(), "-converted.safetensors");
    let weights = trained().join("run/checkpoints/step-00000002.safetensors");
    let mut convert = crossfade();
    convert
        .arg("convert")
        .arg(weights)
        .arg(&converted)
        .arg("--network")
        .arg(trained().join("run.toml"))
        .args(["--weights", "model"]);
    let report = succeed(convert.arg("--json"));
    assert!(converted.exists() && serde_json::from_str::<serde_json::Value>(&report).is_ok(), "{report}");
}

/// D2: the demonstration writes a page and pictures there, or says at once why not.
#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without full optimisation")]
fn the_demonstration_is_written_under_a_name_that_is_not_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let out = odd(dir.path(), "-demo");
    succeed(crossfade().arg("demo").arg("--json").arg("--out").arg(&out));
    assert!(out.join("index.html").exists() && out.join("demo.png").exists());
}

/// D12: the recipe of a picture says which version made it, and that is printed.
#[test]
fn a_recipe_cannot_forge_output() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    succeed(crossfade().arg("sample").arg(trained().join("run")).args(["--count", "1", "--out"]).arg(&out));
    let picture = out.join("000000.png");
    let bytes = std::fs::read(&picture).unwrap();
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let texts = png_text(&bytes, &picture).unwrap();
    assert!(texts.iter().any(|(_, text)| text.contains(&version)), "{texts:?}");
    let forged = "\"version\":\"9\\nerror: forged\\u001b[2J\\u202e\"";
    let texts: Vec<_> = texts.iter().map(|(key, text)| (key.as_str(), text.replace(&version, forged))).collect();
    let texts: Vec<_> = texts.iter().map(|(key, text)| (*key, text.as_str())).collect();
    // Other pixels, so that the version is printed.
    let mut image = Image::read(&picture).unwrap();
    image.pixels.iter_mut().for_each(|v| *v = 255 - *v);
    std::fs::write(&picture, image.encode_png(&texts).unwrap()).unwrap();
    let weights = trained().join("run/checkpoints/step-00000002.safetensors");
    let output = crossfade().arg("reproduce").arg(&picture).arg("--checkpoint").arg(weights).output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(text.contains("version 9\\nerror: forged\\u{1b}[2J\\u{202e}"), "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("error: forged")), "{text:?}");
}

/// D12: keys and values of a configuration.
#[test]
fn a_configuration_cannot_forge_output() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("a.toml");
    let evil = "x\\nerror: forged\\u001b";
    for text in [
        format!("\"{evil}\" = 1\n"),
        format!("[data]\nkind = \"{evil}\"\n"),
        format!("[network]\nkind = \"unet\"\nwidth = \"{evil}\"\n"),
        format!("[data]\nkind = \"folder\"\npath = \"{evil}\"\n"),
        format!("[train]\n\"{evil}\" = 1\n"),
    ] {
        std::fs::write(&config, &text).unwrap();
        for words in [&["config", "check"][..], &["train", "--out", "/nonexistent/run"], &["data", "check"]] {
            let output = crossfade().args(words).arg(&config).output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(!said.contains('\u{1b}'), "{words:?} {text}: {said:?}");
            assert!(!said.lines().any(|line| line.starts_with("error: forged")), "{words:?} {text}: {said:?}");
        }
    }
}
