//! The command line as users see it: help, exit codes, messages, files.
#![allow(clippy::unwrap_used)]
#[path = "../../crossfade/tests/common/shared.rs"]
mod shared;

use crossfade::metrics::{RegisteredMetric, Verb};
use serde_json::Value;
use shared::shared;
use std::path::Path;
use std::process::{Command, Output};

fn crossfade(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crossfade")).args(args).output().unwrap()
}

/// Runs the program, asserts the exit code and returns standard output and standard error.
#[track_caller]
fn run(args: &[&str], code: i32) -> (String, String) {
    let output = crossfade(args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&run(args, 0).0).unwrap()
}

fn config(name: &str) -> String {
    format!("{}/../../configs/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

/// The verbs below `verb` that its help lists, in any depth, and `verb` itself.
fn verbs_below(verb: &[String]) -> Vec<Vec<String>> {
    let args: Vec<&str> = verb.iter().map(String::as_str).chain(["--help"]).collect();
    let (out, err) = run(&args, 0);
    assert!(out.contains("Usage: crossfade") && err.is_empty(), "{verb:?}");
    assert!(out.contains("--device") && out.contains("--json"), "{verb:?}: {out}");
    let listed = out.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Further lines of a description are indented more than the two spaces before a name.
    let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let below = names.filter(|name| *name != "help").map(|name| [verb, &[name.to_string()]].concat());
    below.flat_map(|verb| verbs_below(&verb)).chain([verb.to_vec()]).collect()
}

#[test]
fn every_verb_has_help() {
    // Every registered metric has a verb, unless it says why not.
    let offered = RegisteredMetric::all().filter(|metric| match metric.verb {
        Verb::None { reason } => reason.is_empty(),
        Verb::Common { .. } | Verb::Own => true,
    });
    let metrics: Vec<RegisteredMetric> = offered.collect();
    assert!(metrics.len() > 11);
    for metric in &metrics {
        let (out, _) = run(&["eval", metric.name, "--help"], 0);
        // Long lines are wrapped.
        let text = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.starts_with(metric.about) && text.contains("Example"), "{}: {out}", metric.name);
    }
    let verbs = verbs_below(&[]);
    // The list is read from the help itself, so make sure that it was read.
    for verb in ["train", "eval fid", "bench kernels", "completions"] {
        assert!(verbs.iter().any(|found| found.join(" ") == verb), "{verb} in {verbs:?}");
    }
    assert!(run(&["--version"], 0).0.starts_with("crossfade "));
}

#[test]
fn exit_codes_tell_bad_requests_from_failures() {
    run(&["lab", "--smaplers", "ab2"], 2);
    let (_, err) = run(&["lab", "--samplers", "ab3"], 2);
    assert!(err.contains("'ab2'") && err.contains("midpoint"), "{err}");
    run(&["lab", "--processes", "adm", "--grids", "uniform-t"], 2);
    run(&["lab", "--checkpoint", "run"], 2);
    run(&["lab", "--images", "absent"], 2);
    let (_, err) = run(&["lab", "--dim", "0", "--evaluations", "9,5"], 2);
    assert!(err.contains("dim must be") && err.contains("evaluations must ascend"), "{err}");
    run(&["sample", "x", "--out", "y", "--shard", "4/4"], 2);
    let (_, err) = run(&["config", "show", "huge"], 2);
    assert!(err.contains("cifar10-two-m192"), "{err}");
    let (_, err) = run(&["config", "show", "absent.toml"], 1);
    assert_eq!(err.matches("No such file").count(), 1, "{err}");
    run(&["config", "show", "tiny", "--set", "train.batch=0"], 2);
    run(&["bench", "unet", "--width", "30"], 2);
}

#[test]
fn a_device_that_is_not_compiled_in_names_its_feature() {
    let (_, err) = run(&["config", "list", "--device", "warp"], 2);
    assert!(err.contains("unknown device") && err.contains("vulkan"), "{err}");
    let (_, err) = run(&["config", "list", "--device", "cuda:0"], 2);
    assert!(err.contains("--features cuda"), "{err}");
}

#[test]
fn a_bad_configuration_lists_all_errors_with_lines() {
    let dir = tempfile::tempdir().unwrap();
    let bad = write(dir.path(), "bad.toml", "[train]\nbacth = 8\nsteps = \"x\"\n[optim]\nlr = -1\n[sample\n");
    let worse = write(dir.path(), "worse.toml", "[network]\nwidth = 30\n");
    let (out, err) = run(&["config", "check", &bad, &worse, &config("tiny.toml")], 2);
    for part in [
        "bad.toml:2: train.bacth: unknown key; did you mean `batch`?",
        "bad.toml:3: train.steps: ",
        "bad.toml:6: ",
        "worse.toml:2: network.width: ",
    ] {
        assert!(err.contains(part), "{part} in\n{err}");
    }
    assert!(out.contains("tiny.toml: ok"), "{out}");
    let (_, err) = run(&["train", &worse, "--out", "nowhere"], 2);
    assert!(err.contains("worse.toml:2: network.width") && !Path::new("nowhere").exists(), "{err}");
}

/// §4.3.
#[test]
fn networks_have_the_papers_sizes() {
    let (out, _) = run(&["config", "list"], 0);
    let sizes = [
        "216,141,136",
        "216,146,323",
        "150,134,896",
        "90,095,048",
        "129,704,072",
        "96,121,744",
        "121,053,232",
        "57,681,544",
        "96,120,592",
    ];
    for size in sizes {
        assert!(out.contains(size), "{size} in\n{out}");
    }
    let list = json(&["config", "list", "--json"]);
    assert_eq!(list[1]["parameters"][0], 216_141_136);
    let shown = json(&["config", "show", "cifar10-two-m192", "--set", "process.attenuation=linear", "--json"]);
    assert_eq!((&shown["sizes"]["parameters"], &shown["sizes"]["phi_parts"]), (&216_146_323.into(), &2.into()));
    let shown = json(&["config", "show", &config("cifar10-const2.toml"), "--json"]);
    assert_eq!(shown["sizes"]["parameters"], 90_095_048);
}

#[test]
fn what_config_show_prints_is_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = run(&["config", "show", &config("tiny.toml"), "--set", "train.batch=7"], 0);
    assert!(first.contains("batch = 7") && first.contains("# parameters: "), "{first}");
    let file = write(dir.path(), "shown.toml", &first);
    assert_eq!(run(&["config", "show", &file], 0).0, first);
}

#[test]
fn a_dry_run_checks_the_images() {
    let (out, _) = run(&["train", &config("tiny.toml"), "--dry-run", "--seed", "5"], 0);
    assert!(out.contains("seed = 5") && out.contains("# images: "), "{out}");
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let (_, err) = run(&["train", &config("folder.toml"), "--dry-run", "--data-root", root], 1);
    assert!(err.contains("pictures") && err.contains(root), "{err}");
}

#[test]
fn unreadable_images_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "broken.png", "no picture");
    let root = dir.path().to_str().unwrap();
    let (out, err) = run(&["data", "check", "--kind", "folder", "--path", root], 1);
    assert!(out.contains("broken.png") && err.contains("1 of 1 images cannot be read"), "{out}{err}");
    let report = json(&["data", "check", "--kind", "procedural", "--json"]);
    assert_eq!(report["readable"], report["images"]);
    run(&["data", "check"], 2);
    run(&["data", "check", "--kind", "zip"], 2);
}

#[test]
fn the_laboratory_writes_json_and_charts() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/lab");
    let few = [
        "lab",
        "--dim",
        "2",
        "--components",
        "2",
        "--samples",
        "50",
        "--samplers",
        "ab2,first-order,alg2",
        "--grids",
        "uniform-sqrt,uniform-t",
        "--evaluations",
        "4,8",
        "--threads",
        "1",
        "--out",
    ];
    let args: Vec<&str> = few.into_iter().chain([out.to_str().unwrap()]).collect();
    let (table, err) = run(&args, 0);
    assert!(table.contains("first-order") && table.contains("uniform-t") && err.contains("lab.png"), "{table}{err}");
    assert!(table.lines().all(|line| line.chars().count() <= 160), "{table}");
    let saved: Value = serde_json::from_slice(&std::fs::read(out.join("lab.json")).unwrap()).unwrap();
    assert_eq!(saved["curves"].as_array().unwrap().len(), 6);
    let printed: Value = json(&args.iter().copied().chain(["--json", "--quiet"]).collect::<Vec<_>>());
    assert_eq!(printed, saved);
    assert!(std::fs::read_to_string(out.join("lab.svg")).unwrap().trim_end().ends_with("</svg>"));
    assert_eq!(std::fs::read(out.join("lab.png")).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
}

#[test]
fn a_reference_checkpoint_is_converted() {
    let Some(shared) = shared("golden/public/checkpoint") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (shared.join("model-1.pt"), dir.path().join("model.safetensors"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    for weights in ["ema", "model"] {
        let report = json(&["convert", from, to, "--weights", weights, "--json"]);
        assert_eq!((&report["weights"], report["missed"].as_array().unwrap().len()), (&weights.into(), 0));
        assert!(report["parameters"].as_u64().unwrap() > 10_000);
    }
    let (out, _) = run(&["convert", from, to], 0);
    assert!(out.contains("EMA weights") && out.contains("0 missed"), "{out}");
    // The converted file contains the configuration of its network.
    let bytes = std::fs::read(to).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let metadata = &header["__metadata__"];
    assert!(metadata["crc32"].is_string() && metadata["step"].is_string());
    let stored = write(dir.path(), "stored.toml", header["__metadata__"]["config"].as_str().unwrap());
    run(&["config", "check", &stored], 0);
    // With another network, every parameter that does not match is named, and nothing is written.
    let other = dir.path().join("other.safetensors");
    let (_, err) = run(&["convert", from, other.to_str().unwrap(), "--network", "tiny"], 2);
    assert!(err.contains("missing: ") && !other.exists(), "{err}");
    let hostile = shared.join("hostile_zip.pt");
    run(&["convert", hostile.to_str().unwrap(), other.to_str().unwrap()], 1);
    assert!(!other.exists());
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let (out, _) = run(&["completions", shell], 0);
        assert!(out.contains("uniform-sqrt") && out.contains("convert"), "{shell}");
    }
}

/// Reports contain their protocol; what cannot be measured is an error that names it, and no number is printed.
#[test]
fn evaluation_prints_protocols_or_errors() {
    let report = json(&["--json", "eval", "ttest", "10.71", "10.78", "10.74", "--", "12.63", "12.55", "12.70"]);
    assert!(report.to_string().contains("version"), "{report}");
    let dir = tempfile::tempdir().unwrap();
    let (empty, absent) = (dir.path().join("empty"), dir.path().join("absent"));
    std::fs::create_dir(&empty).unwrap();
    let (empty, absent) = (empty.to_str().unwrap(), absent.to_str().unwrap());
    for verb in ["psnr", "ssim", "pixel-frechet", "saliency", "edges", "regions"] {
        let failed = |a: &str, b: &str| {
            let done = crossfade(&["eval", verb, a, b]);
            let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(!done.status.success() && done.stdout.is_empty(), "{verb}: {stderr}");
            assert!(stderr.contains("empty") || stderr.contains("absent"), "{verb} names the folder: {stderr}");
        };
        failed(empty, empty);
        failed(absent, empty);
    }
}

/// `config check` and `train --dry-run` refuse what training would refuse.
#[test]
fn a_weighting_that_cannot_be_trained_is_refused_before_training() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[process]\nprecond = { kind = \"none\" }\n[network]\ndecoders = \"one\"\n";
    let file = write(dir.path(), "untrainable.toml", text);
    for args in [&["config", "check", &file][..], &["train", &file, "--dry-run"]] {
        let (_, err) = run(args, 2);
        assert!(err.contains("process.precond.kind") && err.contains("adaptive"), "{args:?}: {err}");
    }
}
