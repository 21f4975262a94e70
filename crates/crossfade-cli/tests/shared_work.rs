//! Two ranks make the files of one process: two devices of one process, and with the feature `mpi` two processes of mpirun.
//! `tools/ranks.py` tries more ranks, every kind of training, kills and several hosts.
#![allow(clippy::unwrap_used)]
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

const CONFIG: &str = r#"
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
warmup = 2
ema_after = 2
ema_every = 1
[train]
steps = 6
batch = 2
accumulate = 3
checkpoint_every = 3
sample_every = 6
loader_threads = 1
[sample]
steps = 2
"#;

/// How the program is started.
#[derive(Clone, Copy, PartialEq)]
enum Start {
    Alone,
    /// Two ranks that are threads.
    TwoDevices,
    /// Two ranks that are processes.
    #[cfg(feature = "mpi")]
    Mpirun,
}

fn crossfade(start: Start, words: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_crossfade");
    let mut command = match start {
        Start::Alone => Command::new(binary),
        Start::TwoDevices => {
            let mut command = Command::new(binary);
            command.args(["--device", "cpu,cpu"]);
            command
        }
        #[cfg(feature = "mpi")]
        Start::Mpirun => {
            let mut command = Command::new("mpirun");
            command.args(["-n", "2", binary]);
            command
        }
    };
    // Open MPI does not start as root, nor more ranks than cores, unless it is told to.
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none")]);
    command.args(["--threads", "1", "--quiet"]).args(words).output().unwrap()
}

fn succeed(start: Start, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = crossfade(start, words);
    assert!(status.success(), "{words:?} {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The files with these endings in a directory.
fn files(dir: &Path, ending: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let wanted = entries.filter(|entry| entry.path().extension().is_some_and(|found| found == ending));
    wanted.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

#[test]
fn two_devices_make_the_files_of_one_process() {
    make_the_files_of_one_process(Start::TwoDevices);
}

#[cfg(feature = "mpi")]
#[test]
fn two_processes_make_the_files_of_one() {
    make_the_files_of_one_process(Start::Mpirun);
}

fn make_the_files_of_one_process(two: Start) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    std::fs::write(at("run.toml"), CONFIG).unwrap();
    let study = "title = \"Two\"\nbase = \"run.toml\"\n[[model]]\nname = \"Adm\"\nsamplers = [\"alg2\"]\n[sample]\n\
                 evaluations = [1, 2]\nseeds = [0]\ncount = 6\n[evaluate]\nmetric = \"pixel-frechet\"\n";
    std::fs::write(at("study.toml"), study).unwrap();
    for (name, start) in [("alone", Start::Alone), ("two", two)] {
        let at = |what: &str| at(&format!("{name}-{what}"));
        succeed(start, &["train", &dir.path().join("run.toml").to_string_lossy(), "--out", &at("run")]);
        // From the run of one process, because a picture names its checkpoint.
        let run = dir.path().join("alone-run");
        let run = run.to_str().unwrap();
        let to = ["--to", "1", "--steps", "3", "--set", "train.accumulate=2"];
        succeed(start, &[&["distill", run, "--out", &at("students")][..], &to].concat());
        let said = succeed(start, &["sample", run, "--count", "7", "--batch", "2", "--out", &at("pictures")]);
        assert_eq!(said.matches("7 images").count(), 1, "one rank prints: {said}");
        succeed(start, &["edge", &at("pictures"), &at("edges"), "--steps", "1"]);
        succeed(start, &["sweep", &dir.path().join("study.toml").to_string_lossy(), "--out", &at("study")]);
    }
    for (folder, ending, count) in [
        ("run/checkpoints", "safetensors", 2),
        ("run/samples", "png", 1),
        ("students/1/checkpoints", "safetensors", 1),
        ("pictures", "png", 8),
        ("edges", "png", 7),
        ("study", "csv", 1),
    ] {
        let [alone, two] = ["alone", "two"].map(|name| files(&dir.path().join(format!("{name}-{folder}")), ending));
        assert_eq!(alone.len(), count, "{folder}");
        assert!(alone == two, "{folder} of two ranks holds other bytes");
    }
}

/// A rank that fails stops the other with its number and reason, although that one has enough to do.
#[cfg(feature = "mpi")]
#[test]
fn a_process_that_fails_stops_the_other() {
    fails(Start::Mpirun, &["rank 1: error", "000001.png", "rank 0: error: rank 1 has failed"]);
}

#[test]
fn a_device_that_fails_stops_the_other() {
    fails(Start::TwoDevices, &["000001.png", "error: rank 1 has failed"]);
}

fn fails(start: Start, wanted: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (photos, out) = (dir.path().join("photos"), dir.path().join("out"));
    succeed(Start::Alone, &["sample", "--count", "5", "--steps", "1", "--out", photos.to_str().unwrap()]);
    std::fs::write(photos.join("000001.png"), "no picture").unwrap();
    let failed = crossfade(start, &["edge", photos.to_str().unwrap(), out.to_str().unwrap(), "--steps", "1"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success());
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted} is missing: {said}");
    }
}

#[test]
fn devices_that_cannot_be_used_are_refused() {
    let refused = |start, words: &[&str]| {
        let output = crossfade(start, words);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(Start::TwoDevices, &["models"]).contains("one device"));
    let said = refused(Start::Alone, &["--device", "cpu,cpu:7", "sample", "--count", "2", "--out", "nowhere"]);
    assert!(said.contains("there is one cpu"), "{said}");
}

/// The variable is what mpirun sets: each process would otherwise do all the work and write the same files.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_mpi_says_so_under_mpirun() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("run.toml"), CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
    command.args(["train", "run.toml", "--out", "run"]).current_dir(dir.path()).env("OMPI_COMM_WORLD_SIZE", "2");
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("one of 2 processes of MPI") && said.contains("--features mpi"), "{said}");
    assert!(!dir.path().join("run").exists());
}

/// Ranks that find other images under the same path stop before the first step, and say what differs.
#[cfg(feature = "mpi")]
#[test]
fn processes_with_other_images_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    for (name, seed) in [("one", "1"), ("two", "2")] {
        succeed(
            Start::Alone,
            &["sample", "--count", "3", "--steps", "1", "--seed", seed, "--out", &at(&format!("{name}/photos"))],
        );
    }
    std::fs::write(
        at("run.toml"),
        CONFIG.replace("kind = \"procedural\"\nlen = 64", "kind = \"folder\"\npath = \"photos\""),
    )
    .unwrap();
    let train = [env!("CARGO_BIN_EXE_crossfade"), "--threads", "1", "train", &at("run.toml"), "--out", &at("run")];
    let mut command = Command::new("mpirun");
    command.args(["-n", "1", "-wdir", &at("one")]).args(train).args([":", "-n", "1", "-wdir", &at("two")]).args(train);
    command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    command.envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none")]);
    let failed = command.output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success());
    for wanted in ["rank 0: error", "rank 1: error", "the data of rank", "with the digest"] {
        assert!(said.contains(wanted), "{wanted} is missing: {said}");
    }
    assert!(!Path::new(&at("run/checkpoints")).exists());
}
