//! The models that ship, as users see them: lists, cards, defaults, recorded pictures, and the demonstration.
//!
//! `testdata/models` holds a picture that each model makes. After a change that is meant, or for a new model, run this test with
//! `CROSSFADE_RECORD_MODELS=1`, which writes them.
#![allow(clippy::unwrap_used)]
use crossfade::data::Image;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn crossfade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
    command.arg("--quiet");
    command
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The message of a request that cannot succeed.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(2), "{command:?}: {message}");
    message
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The models that are in the program or in files on this machine.
fn shipped() -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_str(&succeed(crossfade().args(["models", "--json"]))).unwrap();
    all.into_iter().filter(|model| model["embedded"] == true || !model["file"].is_null()).collect()
}

fn text<'a>(model: &'a Value, key: &str) -> &'a str {
    model[key].as_str().unwrap()
}

/// A model for a task that is the default one, if such a model ships.
fn default_of(task: &str) -> Option<Value> {
    shipped().into_iter().find(|model| model["default"] == true && text(model, "task") == task)
}

/// A picture with some structure, for tasks.
fn picture(dir: &Path) -> PathBuf {
    let wave = |i: usize| (128.0 + 100.0 * (0.21 * (i % 32) as f64).sin() * (0.37 * (i / 32) as f64).cos()) as u8;
    let image = Image::new(32, 32, 3, (0..32 * 32).flat_map(|i| [wave(i), wave(i + 5), 255 - wave(i)]).collect());
    let path = dir.join("picture.png");
    std::fs::write(&path, image.encode_png(&[]).unwrap()).unwrap();
    path
}

/// The command that makes a small picture with a model, and the file it writes.
fn make(model: &Value, dir: &Path) -> (Command, PathBuf) {
    let (name, mut command) = (text(model, "name"), crossfade());
    let verb = match text(model, "task") {
        "generate" => {
            command.args(["sample", name, "--count", "1", "--steps", "3", "--seed", "5", "--out"]).arg(dir.join(name));
            return (command, dir.join(name).join("000000.png"));
        }
        "super-resolution" => "sr",
        "inpainting" => "inpaint",
        "edges" => "edge",
        other => other,
    };
    let out = dir.join(format!("{name}.png"));
    command.arg(verb).arg(picture(dir)).arg(&out).args(["--checkpoint", name, "--steps", "2"]);
    if verb == "inpaint" {
        command.args(["--box", "8,8,12,12"]);
    }
    (command, out)
}

#[test]
fn models_make_the_recorded_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let folder = root().join("testdata/models");
    for model in shipped() {
        let (mut command, out) = make(&model, dir.path());
        succeed(&mut command);
        let (made, recorded) = (Image::read(&out).unwrap(), folder.join(format!("{}.png", text(&model, "name"))));
        if std::env::var_os("CROSSFADE_RECORD_MODELS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&recorded, made.encode_png(&[]).unwrap()).unwrap();
        }
        let advice = "run this test with CROSSFADE_RECORD_MODELS=1";
        let wanted = Image::read(&recorded).unwrap_or_else(|e| panic!("{e}; {advice}"));
        assert_eq!((made.width, made.height, made.channels), (wanted.width, wanted.height, wanted.channels));
        // On a processor with other vector instructions, pixels may differ by rounding.
        let differs = made.pixels.iter().zip(&wanted.pixels).any(|(a, b)| a.abs_diff(*b) > 2);
        assert!(!differs, "{} makes another picture than recorded; {advice}", text(&model, "name"));
    }
}

#[test]
fn models_are_listed_with_cards_and_within_their_limits() {
    let mut all = 0;
    let listed = succeed(crossfade().arg("models"));
    let mut defaults = vec![];
    for model in shipped() {
        let (name, bytes) = (text(&model, "name"), model["bytes"].as_u64().unwrap());
        assert!(listed.contains(name) && listed.contains(text(&model, "sha256")));
        let limit = if model["embedded"] == true { 8_000_000 } else { 16_000_000 };
        assert!(bytes <= limit, "{name} has {bytes} bytes, more than {limit}");
        all += bytes;
        if model["default"] == true {
            assert!(!defaults.contains(&model["task"]), "two defaults for one task");
            defaults.push(model["task"].clone());
        }
        let card = succeed(crossfade().args(["models", "show", name]));
        for part in ["Data", "Training", "Quality", "Use", "```sh measure"] {
            assert!(card.contains(part), "the card of {name} has no {part}");
        }
        // The name stands for a checkpoint: its configuration is read, and it names no directory.
        let config = succeed(crossfade().args(["config", "show", name]));
        let paths = config.lines().filter(|line| line.contains("path = ") || line.contains("autoencoder = \""));
        assert!(paths.clone().all(|line| !line.contains('/')), "{name}: {:?}", paths.collect::<Vec<_>>());
    }
    assert!(all <= 60_000_000, "{all} bytes in all");
    // Files that are not registered would be carried along for nothing.
    for entry in std::fs::read_dir(root().join("models")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(listed.contains(&stem) || stem == "README", "{} is not registered", path.display());
    }
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let message = refused(crossfade().args(["sample", "nosuchmodel", "--out"]).arg(dir.path().join("x")));
    assert!(message.contains("no file, run or model is called `nosuchmodel`"), "{message}");
    assert!(!dir.path().join("x").exists());
    refused(crossfade().args(["models", "show", "nosuchmodel"]));
    refused(crossfade().args(["train", "--from", "nosuchmodel", "--out"]).arg(dir.path().join("x")));
    for model in shipped() {
        let name = text(&model, "name");
        let message = refused(crossfade().args(["models", "show", &format!("{name}x")]));
        assert!(message.contains(&format!("did you mean `{name}`?")), "{message}");
    }
}

/// Without a checkpoint the default model is used, or the message says what to do.
#[test]
fn verbs_have_default_models() {
    let dir = tempfile::tempdir().unwrap();
    let input = picture(dir.path());
    for (task, verb) in
        [("super-resolution", "sr"), ("inpainting", "inpaint"), ("saliency", "saliency"), ("edges", "edge")]
    {
        let out = dir.path().join(format!("{verb}.png"));
        let mut command = crossfade();
        command.arg(verb).arg(&input).arg(&out);
        if verb == "inpaint" {
            command.args(["--box", "8,8,12,12"]);
        }
        if default_of(task).is_some() {
            succeed(&mut command);
            assert!(out.is_file());
        } else {
            let message = refused(&mut command);
            assert!(message.contains("--checkpoint") && message.contains("crossfade train"), "{message}");
        }
    }
    let mut sample = crossfade();
    sample.arg("sample").current_dir(dir.path());
    let Some(model) = default_of("generate") else {
        assert!(refused(&mut sample).contains("crossfade train"));
        return;
    };
    let said = succeed(sample.args(["--steps", "1"]));
    assert!(said.contains("samples/sheet.png") && dir.path().join("samples/000000.png").is_file(), "{said}");
    // Pictures of a model are reproduced without a checkpoint.
    let again = succeed(crossfade().arg("reproduce").arg(dir.path().join("samples/000003.png")));
    assert!(again.contains("identical"), "{again}");
    // Names stand for checkpoints in other verbs and in studies, too.
    let name = text(&model, "name");
    let study = format!(
        "title = \"t\"\n[[model]]\nname = \"a\"\ncheckpoint = {name:?}\n[sample]\nsteps = [1]\ncount = 2\n[evaluate]\nmetric = \"none\"\n"
    );
    std::fs::write(dir.path().join("study.toml"), study).unwrap();
    succeed(crossfade().args(["sweep", "study.toml", "--out", "study"]).current_dir(dir.path()));
    assert!(std::fs::read_to_string(dir.path().join("study/report.html")).unwrap().contains(text(&model, "sha256")));
    succeed(crossfade().args(["cost", name, "--count-only"]));
    // Fine-tuning by name, with one image of no class.
    let photos = dir.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    std::fs::copy(&input, photos.join("a.png")).unwrap();
    let mut tune = crossfade();
    tune.args(["train", "--from", text(&model, "name"), "--set", "data.path=photos", "--set", "train.steps=1"]);
    succeed(tune.args(["--set", "train.batch=1", "--out", "mine"]).current_dir(dir.path()));
    let resumed = succeed(crossfade().args(["train", "--resume", "--out", "mine"]).current_dir(dir.path()));
    assert!(resumed.contains("finished after 1 steps"), "{resumed}");
}

#[test]
fn the_demonstration_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = crossfade();
    demo.args(["demo", "--out", "demo", "--minutes", "0.01", "--json"]).current_dir(dir.path());
    let facts: Value = serde_json::from_str(&succeed(&mut demo)).unwrap();
    if shipped().is_empty() {
        // Without models a small network is trained in their place.
        assert!(facts["steps"].as_u64().unwrap() > 0 && dir.path().join("demo/training.html").is_file(), "{facts}");
    } else {
        assert!(!facts["sections"].as_array().unwrap().is_empty(), "{facts}");
        let page = std::fs::read_to_string(dir.path().join("demo/index.html")).unwrap();
        assert!(page.contains("data:image/png;base64,") && !page.contains("src=\"http"), "pictures are in the page");
        assert!(Image::read(&dir.path().join("demo/demo.png")).unwrap().width > 300);
    }
    let mut training = crossfade();
    training.args(["demo", "--train", "--minutes", "0.01", "--out", "train"]).current_dir(dir.path());
    succeed(&mut training);
    // A second one does not stumble over the first.
    succeed(&mut training);
    assert!(dir.path().join("train/run-2/config.toml").is_file());
    let page = std::fs::read_to_string(dir.path().join("train/training.html")).unwrap();
    assert!(page.contains("Finished.") && page.contains("data:image/png") && !page.contains("http-equiv"));
}

/// A trained run is packed by the command line, and opened by its path.
#[test]
fn runs_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let config = root().join("configs/tiny.toml");
    let sets = ["train.steps=1", "train.batch=1", "network.width=8", "network.resolution=8", "network.attention=[]"];
    let mut train = crossfade();
    train.arg("train").arg(config).arg("--out").arg(at("run"));
    succeed(train.args(sets.iter().flat_map(|set| ["--set", set])));
    let mut pack = crossfade();
    pack.args(["models", "pack"]).arg(at("run")).arg(at("mine.safetensors")).args(["--set", "sample.steps=2"]);
    let said = succeed(&mut pack);
    for part in ["rounding: largest", "sha256", "embedded!(\"mine\", \"generate\""] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let facts: Value = serde_json::from_str(&succeed(pack.arg("--json"))).unwrap();
    assert_eq!(facts["bytes"].as_u64().unwrap(), std::fs::metadata(at("mine.safetensors")).unwrap().len());
    let mut sample = crossfade();
    succeed(sample.arg("sample").arg(at("mine.safetensors")).args(["--count", "1", "--out"]).arg(at("made")));
    // Fine-tuning from the file with a configuration, whose network must fit.
    let mut wrong = crossfade();
    wrong.arg("train").arg(root().join("configs/tiny.toml")).arg("--from").arg(at("mine.safetensors"));
    let message = refused(wrong.arg("--out").arg(at("wrong")));
    assert!(message.contains("map_layer0.weight has the shape"), "{message}");
    assert!(!at("wrong").exists());
}
