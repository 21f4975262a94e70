//! Full disks and files that are small on disk and large in memory, through the program. `tools/faults` has many more.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]
#[path = "common/trained.rs"]
mod trained;

use std::process::{Command, Stdio};
use trained::{DIFFUSION, crossfade, fail, grey, succeed, trained};

/// The program under a limit of the shell, which is an error and not a signal where it is one on the size of files.
fn limited(limit: &str) -> Command {
    let mut command = Command::new("bash");
    let script = format!(r#"trap '' XFSZ; ulimit -c 0 {limit}; exec "$0" --threads 1 --quiet "$@""#);
    command.args(["-c", &script, env!("CARGO_BIN_EXE_crossfade")]);
    command
}

#[test]
fn a_lock_that_cannot_be_written_does_not_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (run, config) = (dir.path().join("run"), dir.path().join("run.toml"));
    std::fs::write(&config, DIFFUSION).unwrap();
    let message = fail(limited("-f 0").arg("train").arg(&config).arg("--out").arg(&run));
    assert!(message.contains(".lock") && message.contains("too large"), "{message}");
    assert!(!run.exists(), "an empty run folder stays");
}

#[test]
fn a_full_standard_output_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    for args in [&["models", "list"][..], &["completions", "bash"], &["--limits"], &["--json", "models"]] {
        let mut command = crossfade();
        let message = fail(command.args(args).stdout(Stdio::from(full.try_clone().unwrap())));
        assert!(message.contains("standard output") && message.contains("No space left"), "{args:?}: {message}");
    }
}

/// A log of nothing but a hole of one gigabyte is read line by line: none of its lines is one of a step.
#[test]
fn a_large_log_is_not_held_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let run = at("run");
    std::fs::write(at("run.toml"), DIFFUSION).unwrap();
    succeed(crossfade().arg("train").arg(at("run.toml")).arg("--out").arg(&run));
    std::fs::remove_file(run.join("checkpoints/step-00000002.safetensors")).unwrap();
    std::fs::OpenOptions::new().write(true).open(run.join("log.jsonl")).unwrap().set_len(1 << 30).unwrap();
    succeed(limited("-v 1500000").args(["train", "--resume", "--out"]).arg(&run).arg(at("run.toml")));
    let log = std::fs::read_to_string(run.join("log.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 2, "the line of step 1, and that of the repeated step 2: {log}");
}

/// What holds whole pictures many times over refuses large ones before the work.
#[test]
fn pictures_that_are_too_large_for_a_verb_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, picture) = (dir.path().join("in"), dir.path().join("in/large.png"));
    std::fs::create_dir(&folder).unwrap();
    grey(&picture, 90, 4097);
    let message =
        fail(crossfade().arg("reconstruct").arg(trained().join("ae")).arg(&picture).arg(dir.path().join("out")));
    assert!(message.contains("large.png") && message.contains("--resolution"), "{message}");
    let message = fail(crossfade().args(["eval", "nearest"]).args([&folder, &folder]).arg(dir.path().join("out.png")));
    assert!(message.contains("16785409 is more than the limit") && message.contains("--count"), "{message}");
    assert!(!dir.path().join("out").exists());
}

/// A number of steps that no list of times can have is refused, and does not reach the allocator.
#[test]
fn absurd_steps_of_a_teacher_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut distil = crossfade();
    distil.arg("distill").arg(trained().join("run")).args(["--to", "4", "--from", "4611686018427387904", "--out"]);
    assert!(fail(distil.arg(&out)).contains("--from"));
    assert!(!out.exists());
}

/// A file of weights is not read before it is known to be of the right size.
#[test]
fn weights_of_a_metric_that_are_too_large_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, weights) = (dir.path().join("in"), dir.path().join("weights.safetensors"));
    std::fs::create_dir(&folder).unwrap();
    ["a.png", "b.png"].iter().for_each(|name| grey(&folder.join(name), 90, 8));
    std::fs::File::create(&weights).unwrap().set_len(1 << 30).unwrap();
    let message = fail(crossfade().args(["eval", "fid"]).args([&folder, &folder]).arg("--weights").arg(&weights));
    assert!(message.contains("weights.safetensors") && message.contains("weights of Inception"), "{message}");
}
