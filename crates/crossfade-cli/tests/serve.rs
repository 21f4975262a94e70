//! `crossfade serve` as a process: killed and started again, stopped by a signal, refused options.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "../../crossfade-serve/tests/common/client.rs"]
mod client;
#[path = "../../crossfade-serve/tests/common/database.rs"]
mod database;
#[path = "../../crossfade-serve/tests/common/models.rs"]
mod models;

use client::Client;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A server process.
struct Process {
    child: Child,
    client: Client,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a server on a free port with the store and more options.
    fn start(store: &str, more: &[&str]) -> Self {
        let of = |name: &str| format!("{name}={}", models::runs().join(name).display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
        command
            .args(["serve", &of("classes"), &of("flow"), "--bind", "127.0.0.1:0", "--store", store, "--threads", "1"])
            .args(["--rate", "100000", "--max-queue", "1000", "--max-queue-per-client", "1000", "--chunk", "2"])
            .args(more);
        Self::spawn(&mut command)
    }

    /// Starts a server and waits until it says where it listens.
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().parse();
        let address = address.unwrap_or_else(|e| panic!("{e}: {line}"));
        Self { child, client: Client::new(address) }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn program(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crossfade")).args(args).output().unwrap()
}

/// Requests of different lengths.
fn request(k: usize) -> Value {
    let [model, sampler] = [["classes", "ab2"], ["flow", "heun"], ["classes", "alg2"], ["flow", "ancestral"]][k % 4];
    json!({"model": model, "sampler": sampler, "seed": k % 8, "n": 1 + k % 5, "steps": 2 + 9 * (k % 3)})
}

/// The files that `crossfade sample` writes for [`request`].
fn sampled(k: usize) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let request = request(k);
    let text = |name: &str| request[name].as_str().map_or_else(|| request[name].to_string(), str::to_string);
    let run = models::runs().join(text("model"));
    let out = program(&[
        "sample",
        run.to_str().unwrap(),
        "--sampler",
        &text("sampler"),
        "--seed",
        &text("seed"),
        "--count",
        &text("n"),
        "--steps",
        &text("steps"),
        "--out",
        dir.path().to_str().unwrap(),
        "--quiet",
    ]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let count = request["n"].as_u64().unwrap();
    (0..count).map(|k| std::fs::read(dir.path().join(format!("{k:06}.png"))).unwrap()).collect()
}

/// A number from 0 to 1 that differs from kill to kill.
fn share(k: usize) -> f64 {
    (k as f64 * 0.618_033_988_75).fract()
}

/// Sends jobs and kills the server at another moment in every round; at last every accepted job has its bytes.
fn killed_and_restarted(rounds: usize, start: &dyn Fn(usize) -> Process, stays: Option<&Process>) {
    let mut accepted: Vec<(usize, String)> = vec![];
    for round in 0..rounds {
        let process = start(round);
        let client = process.client.clone();
        let sender = std::thread::spawn(move || {
            let mut accepted = vec![];
            for k in 0..6 {
                let k = 6 * round + k;
                // The server may die at any byte of this.
                let body = request(k).to_string();
                match client.try_request("POST", "/v1/jobs", Some("application/json"), body.as_bytes()) {
                    Ok(answer) if answer.status == 202 => {
                        accepted.push((k, answer.json()["id"].as_str().unwrap().to_string()));
                    }
                    Ok(answer) => panic!("{}", String::from_utf8_lossy(&answer.body)),
                    Err(_) => break,
                }
            }
            accepted
        });
        std::thread::sleep(Duration::from_secs_f64(0.25 * share(round)));
        process.kill();
        accepted.extend(sender.join().unwrap());
    }
    let last = start(rounds);
    let client = stays.map_or(&last.client, |process| &process.client);
    assert!(accepted.len() >= rounds, "only {} jobs were accepted in {rounds} rounds", accepted.len());
    let mut expected = std::collections::BTreeMap::new();
    for (k, id) in accepted {
        let job = client.ended(&id);
        let request = request(k).to_string();
        let wanted = expected.entry(request.clone()).or_insert_with(|| sampled(k));
        assert!(client.pictures(&job) == *wanted, "{request}");
    }
}

fn on_sqlite(rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("jobs.sqlite");
    killed_and_restarted(rounds, &|_| Process::start(store.to_str().unwrap(), &[]), None);
}

fn on_postgres(rounds: usize) {
    let Some(database) = database::start() else { return };
    let server = || Process::start(&database.url, &["--lease", "2"]);
    let stays = server();
    killed_and_restarted(rounds, &|_| server(), Some(&stays));
}

#[test]
fn a_killed_server_is_continued_to_the_same_bytes() {
    on_sqlite(6);
}

#[test]
fn another_server_finishes_the_jobs_of_a_killed_one() {
    on_postgres(3);
}

/// `cargo test -p crossfade-cli --test serve -- --ignored`
#[test]
#[ignore = "a hundred kills on each store take some minutes"]
fn a_hundred_kills() {
    on_sqlite(100);
    on_postgres(100);
}

fn signal(process: &Process, name: &str) {
    let id = process.child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
}

#[test]
fn sigterm_finishes_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("jobs.sqlite").to_str().unwrap().to_string();
    let mut process = Process::start(&store, &["--slots", "2"]);
    let client = process.client.clone();
    let waiting = std::thread::spawn(move || {
        client.post("/v1/images/generations", &json!({"model": "flow", "seed": 3, "n": 4, "steps": 200}))
    });
    let client = process.client.clone();
    while client.get("/v1/server").expect(200).json()["running"] != 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let queued: Vec<String> = (0..3)
        .map(|k| client.post("/v1/jobs", &request(k)).expect(202).json()["id"].as_str().unwrap().to_string())
        .collect();
    signal(&process, "TERM");
    // The request that waits gets its pictures, and the program ends well.
    assert_eq!(waiting.join().unwrap().expect(200).json()["data"].as_array().unwrap().len(), 4);
    assert_eq!(process.child.wait().unwrap().code(), Some(0));
    let next = Process::start(&store, &[]);
    for (k, id) in queued.iter().enumerate() {
        assert!(next.client.pictures(&next.client.ended(id)) == sampled(k));
    }
}

#[test]
fn options_that_expose_a_server_must_be_explicit() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let model = models::runs().join("flow").to_str().unwrap().to_string();
    let store = dir.path().join("jobs.sqlite").to_str().unwrap().to_string();
    let refused = |args: &[&str], problem: &str| {
        let args = [&["serve", &model, "--store", &store], args].concat();
        let out = program(&args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && text.contains(problem), "{args:?}: {text}");
    };
    refused(&["--bind", "0.0.0.0:0"], "--token-file");
    refused(&["--token-file", &write("short", "abc\n")], "at least 16 characters");
    refused(&["--token-file", &write("none", "# nothing\n")], "has no tokens");
    refused(&["--token-file", &write("many", "a b c\n")], "NAME TOKEN");
    refused(&["other=also"], "also");
    refused(&[&format!("flow={model}")], "two models are called flow");
    assert!(!Path::new(&store).exists(), "nothing is left behind");
}

#[test]
fn without_arguments_the_models_that_ship_are_served() {
    let listed: Value = serde_json::from_slice(&program(&["models", "--json"]).stdout).unwrap();
    let shipped: Vec<&str> = listed.as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
    command.args(["serve", "--bind", "127.0.0.1:0"]).current_dir(dir.path());
    let server = Process::spawn(&mut command);
    assert!(dir.path().join("crossfade-serve.sqlite").exists(), "the store is where the server was started");
    let models = server.client.get("/v1/models").expect(200).json();
    let served: Vec<&str> = models["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(served, shipped);
    let Some(first) = models["data"].as_array().unwrap().iter().find(|m| m["task"] == "generate") else { return };
    let request = json!({"model": first["id"], "seed": 3, "steps": 1, "response_format": "png"});
    let png = server.client.post("/v1/images/generations", &request).expect(200).body;
    let name = first["id"].as_str().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let sampled = program(&["sample", name, "--seed", "3", "--steps", "1", "--count", "1", "--out", out, "--quiet"]);
    assert!(sampled.status.success(), "{}", String::from_utf8_lossy(&sampled.stderr));
    assert!(png == std::fs::read(dir.path().join("out/000000.png")).unwrap());
}

/// Runs a shell command in a directory, with the program in its path.
fn shell(dir: &Path, command: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_crossfade"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let out = Command::new("sh").args(["-c", command]).current_dir(dir).env("PATH", path).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A command names the model and not its path on the server: who runs it has a run of this name.
fn link_run(folder: &Path, model: &str) {
    std::os::unix::fs::symlink(models::runs().join(model), folder.join(model)).unwrap();
}

#[test]
fn the_command_of_a_job_makes_its_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::start(dir.path().join("jobs.sqlite").to_str().unwrap(), &[]);
    let client = &server.client;
    for (k, request) in [
        json!({"model": "classes", "n": 2, "blend": "phi", "clip": 0}),
        json!({"model": "classes", "class": "3", "guidance": 1.5, "grid": "explicit:1,0.6,0.2"}),
        json!({"model": "flow", "sampler": "ddim", "eta": 0.5, "steps": 3}),
        json!({"model": "flow", "sampler": "heun-churn", "churn": 3.5, "steps": 4, "first": 7}),
    ]
    .into_iter()
    .enumerate()
    {
        let id = client.post("/v1/jobs", &request).expect(202).json()["id"].as_str().unwrap().to_string();
        let job = client.ended(&id);
        let command = job["command"].as_str().unwrap();
        let work = dir.path().join(k.to_string());
        std::fs::create_dir(&work).unwrap();
        link_run(&work, request["model"].as_str().unwrap());
        shell(&work, command);
        let first = request["first"].as_u64().unwrap_or(0);
        for (at, picture) in client.pictures(&job).into_iter().enumerate() {
            let file = work.join(format!("pictures/{:06}.png", first + at as u64));
            assert!(picture == std::fs::read(file).unwrap(), "{command}");
        }
    }
    let png = std::fs::read(dir.path().join("0/pictures/000001.png")).unwrap();
    let texts = [("model", "flow"), ("strength", "0.5"), ("sampler", "ddim"), ("eta", "0.3"), ("name", "picture.png")];
    let answer = client.form("/v1/images/variations", &texts, &[("image", &png)]).expect(200).json();
    let job = client.ended(answer["job"].as_str().unwrap());
    std::fs::write(dir.path().join("picture.png"), &png).unwrap();
    link_run(dir.path(), "flow");
    shell(dir.path(), job["command"].as_str().unwrap());
    assert!(client.pictures(&job)[0] == std::fs::read(dir.path().join("out.png")).unwrap(), "{}", job["command"]);
}
