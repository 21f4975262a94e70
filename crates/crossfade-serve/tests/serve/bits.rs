//! Pictures have the bytes of the command line under any load.
use super::{as_the_program, models, start};
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::config::{SampleConfig, SampleOptions};
use crossfade::engine::Device;
use crossfade::generate::{self, Edit, EditRecipe, Job, Pipeline, Shard, Source};
use crossfade::math::GridKind;
use crossfade::sample::Sampler;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// What a request asks for, as the command line would be told.
fn options(request: &Value) -> SampleOptions {
    let text = |name: &str| request[name].as_str();
    SampleOptions {
        steps: request["steps"].as_u64().map(|steps| steps as usize),
        sampler: text("sampler").map(|name| Sampler::parse(name).unwrap()),
        grid: text("grid").map(|name| GridKind::from_argument(name).unwrap()),
        class: text("class").map(Into::into),
        guidance: request["guidance"].as_f64(),
        eta: request["eta"].as_f64(),
        ..SampleOptions::default()
    }
}

/// The files that `crossfade sample` writes for a request.
pub fn sampled(request: &Value) -> Vec<Vec<u8>> {
    as_the_program();
    let checkpoint = Checkpoint::open(&models::checkpoint(request["model"].as_str().unwrap())).unwrap();
    let run = &checkpoint.config;
    let config: SampleConfig = options(request).applied(run, |name| format!("--{name}")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (count, first) = (request["n"].as_u64().unwrap_or(1), request["first"].as_u64().unwrap_or(0));
    let job = Job {
        seed: request["seed"].as_u64().unwrap(),
        first,
        count,
        shard: Shard::ALL,
        batch: 64,
        trajectory: false,
        between: None,
        guide: None,
        out: dir.path().to_path_buf(),
    };
    generate::run(&checkpoint, Weights::Ema, &config, &job, &Device::flex(), &mut |_, _| ()).unwrap();
    (first..first + count).map(|k| std::fs::read(dir.path().join(format!("{k:06}.png"))).unwrap()).collect()
}

/// Requests that differ in everything that a forward pass mixes.
pub fn mixed() -> Vec<Value> {
    vec![
        json!({"model": "classes", "seed": 1, "n": 5, "class": "all", "steps": 4}),
        json!({"model": "classes", "seed": 2, "n": 2, "class": "2", "guidance": 2.0, "steps": 7}),
        json!({"model": "classes", "seed": 3, "n": 3, "class": "none", "sampler": "alg2", "steps": 5}),
        json!({"model": "classes", "seed": 4, "n": 11, "sampler": "midpoint", "grid": "uniform-sqrt", "steps": 3}),
        json!({"model": "classes", "seed": 5, "first": 1000, "sampler": "pc", "steps": 20}),
        json!({"model": "classes", "seed": 6, "n": 2, "grid": "explicit:1,0.6,0.2", "sampler": "data-2m"}),
        json!({"model": "flow", "seed": 1, "n": 4, "sampler": "heun", "steps": 4}),
        json!({"model": "flow", "seed": 8, "n": 9, "sampler": "ancestral", "steps": 6}),
        json!({"model": "flow", "seed": 9, "n": 1, "sampler": "ddim", "eta": 0.5, "steps": 9}),
        json!({"model": "flow", "seed": 10, "n": 3, "sampler": "dpmpp-2m-sde", "steps": 5}),
    ]
}

#[test]
fn pictures_have_the_bytes_of_the_command_line_under_mixed_load() {
    let expected: Vec<_> = mixed().iter().map(sampled).collect();
    // A small batch, small chunks and few threads mix the most.
    for (max_batch, chunk, slots) in [(8, 2, 6), (64, 8, 3)] {
        let running = start(|config| {
            (config.max_batch, config.chunk, config.slots) = (max_batch, chunk, slots);
        });
        let threads: Vec<_> = (0..3)
            .flat_map(|round| mixed().into_iter().enumerate().map(move |(k, request)| (round, k, request)))
            .map(|(round, k, mut request)| {
                let client = running.client.clone();
                request["user"] = json!(format!("user {}", round % 2));
                request["async"] = json!(round == 0);
                std::thread::spawn(move || {
                    let answer = client.post("/v1/images/generations", &request);
                    let job = match round {
                        0 => client.ended(answer.expect(202).json()["id"].as_str().unwrap()),
                        _ => client.ended(answer.expect(200).json()["job"].as_str().unwrap()),
                    };
                    (k, client.pictures(&job))
                })
            })
            .collect();
        for thread in threads {
            let (k, pictures) = thread.join().unwrap();
            assert!(pictures == expected[k], "request {k} with batches of {max_batch}: {}", mixed()[k]);
        }
        let metrics = String::from_utf8(running.client.get("/metrics").expect(200).body).unwrap();
        let count = |name: &str| -> f64 {
            metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
        };
        // Runs did share passes, or this test would show nothing.
        assert!(count("crossfade_batch_runs_sum") > 1.2 * count("crossfade_batch_runs_count"), "{metrics}");
    }
}

#[test]
fn settings_of_an_answer_make_the_same_picture_again() {
    let running = start(|_| ());
    let client = &running.client;
    for request in [
        json!({"n": 3}),
        json!({"model": "flow", "steps": 4}),
        json!({"guidance": 1.7, "class": "1"}),
        json!({"blend": "phi"}),
        json!({"model": "flow", "sampler": "ddim", "eta": 0.5}),
        json!({"model": "flow", "sampler": "heun-churn", "churn": 3.5, "steps": 4}),
    ] {
        let first = client.post("/v1/images/generations", &request).expect(200).json();
        let again = client.post("/v1/images/generations", &first["settings"]).expect(200).json();
        assert_eq!(first["data"], again["data"], "{}", first["settings"]);
        assert_eq!(first["settings"], again["settings"]);
        for (name, value) in request.as_object().unwrap() {
            assert_eq!(&first["settings"][name], value, "{name} of {}", first["settings"]);
        }
    }
}

/// The settings of every kind of job, sent to the same route with the same picture.
#[test]
fn settings_can_be_sent_again_to_their_route() {
    use base64::Engine;
    let running = start(|_| ());
    let client = &running.client;
    let base64 = |png: Vec<u8>| base64::engine::general_purpose::STANDARD.encode(png);
    let image = base64(drawn(20, 20).encode_png(&[]).unwrap());
    let hole = (0..400).map(|k| if k % 20 < 10 { 0 } else { 255 }).collect();
    let mask = base64(crossfade::data::Image::new(20, 20, 1, hole).encode_png(&[]).unwrap());
    for (route, request, sent) in [
        ("images/generations", json!({"class": "none", "n": 2, "first": 3}), json!({})),
        ("images/generations", json!({"grid": "explicit:1,0.6,0.2", "sampler": "data-2m"}), json!({})),
        ("images/variations", json!({"strength": 0.5, "class": "2", "guidance": 1.5}), json!({"image": image})),
        ("images/variations", json!({"model": "flow", "fit": "crop", "name": "a.png"}), json!({"image": image})),
        ("images/edits", json!({"tile": 16, "overlap": 4}), json!({"image": image, "mask": mask})),
        ("tasks/sr", json!({"flip_test": true, "steps": 3}), json!({"image": image})),
        ("tasks/inpaint", json!({"sampler": "ddim", "eta": 0.5}), json!({"image": image, "mask": mask})),
        ("jobs", json!({"kind": "variation", "steps": 4, "seed": 1}), json!({"image": image})),
        ("jobs", json!({"kind": "task", "task": "sr", "seed": 1}), json!({"image": image})),
    ] {
        let send = |settings: &Value| {
            let mut body = settings.clone();
            body.as_object_mut().unwrap().extend(sent.as_object().unwrap().clone());
            let answer = client.post(&format!("/v1/{route}"), &body);
            assert!(answer.status < 300, "{route} {settings}: {}", String::from_utf8_lossy(&answer.body));
            let id = answer.json()[if route == "jobs" { "id" } else { "job" }].as_str().unwrap().to_string();
            client.ended(&id)
        };
        let first = send(&request);
        let again = send(&first["settings"]);
        assert_eq!(first["settings"], again["settings"], "{route}");
        for (name, value) in request.as_object().unwrap() {
            assert_eq!(&first["settings"][name], value, "{name} of {}", first["settings"]);
        }
        let digests = |job: &Value| -> Vec<Value> {
            job["images"].as_array().unwrap().iter().map(|image| image["sha256"].clone()).collect()
        };
        assert!(!digests(&first).is_empty() && digests(&first) == digests(&again), "{route} {request}");
        // The command names the model and no file of the server.
        let command = first["command"].as_str().unwrap();
        assert!(!command.contains(models::runs().to_str().unwrap()), "{command}");
        assert!(command.contains(first["model"].as_str().unwrap()), "{command}");
    }
}

/// A picture of waves.
pub fn drawn(width: usize, height: usize) -> crossfade::data::Image {
    let value = |i: usize| (128.0 + 100.0 * (i as f64 * 0.31).sin()) as u8;
    crossfade::data::Image::new(width, height, 3, (0..3 * width * height).map(value).collect())
}

#[test]
fn variations_have_the_bytes_of_crossfade_edit() {
    let running = start(|_| ());
    let checkpoint = Checkpoint::open(&models::checkpoint("classes")).unwrap();
    let sample = SampleConfig { steps: 6, class: "3".into(), ..checkpoint.config.sample.clone() };
    let sample = sample.resolved(&checkpoint.config.process).unwrap();
    let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &sample, &Device::flex()).unwrap();
    for (width, height) in [(8, 8), (19, 13)] {
        let png = drawn(width, height).encode_png(&[]).unwrap();
        let texts =
            [("model", "classes"), ("seed", "11"), ("n", "2"), ("steps", "6"), ("class", "3"), ("strength", "0.5")];
        let answer = running.client.form("/v1/images/variations", &texts, &[("image", &png)]).expect(200).json();
        let job = running.client.ended(answer["job"].as_str().unwrap());
        for (k, found) in running.client.pictures(&job).into_iter().enumerate() {
            let source = Source::decode(png.clone(), Path::new("picture.png")).unwrap();
            let (edit, of) = (Edit::Strength(0.5), (11, k as u64));
            let recipe = EditRecipe::new(&checkpoint, Weights::Ema, &pipeline, (&source, None), edit, of).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("out.png");
            pipeline.change(&source, &recipe, &file).unwrap();
            assert!(found == std::fs::read(&file).unwrap(), "variation {k} of {width}x{height}");
        }
    }
}

#[test]
fn models_come_and_go_within_their_memory() {
    // Room for one network at a time.
    let running = start(|config| config.memory = 1);
    let requests: Vec<Arc<Value>> =
        [&mixed()[0], &mixed()[6], &mixed()[1], &mixed()[7]].into_iter().map(|r| Arc::new(r.clone())).collect();
    for request in requests {
        let answer = running.client.post("/v1/images/generations", &request).expect(200).json();
        let job = running.client.ended(answer["job"].as_str().unwrap());
        assert!(running.client.pictures(&job) == sampled(&request), "{request}");
        let models = running.client.get("/v1/models").expect(200).json();
        let loaded = models["data"].as_array().unwrap().iter().filter(|model| model["loaded"] == true).count();
        assert_eq!(loaded, 1, "{models}");
    }
}

/// Networks that were in use when there was no room for them are unloaded when they are not any more.
#[test]
fn models_do_not_stay_beyond_their_memory() {
    let running = start(|config| config.memory = 1);
    let client = &running.client;
    let loaded = || -> Vec<String> {
        let models = client.get("/v1/models").expect(200).json();
        let loaded = models["data"].as_array().unwrap().iter().filter(|model| model["loaded"] == true);
        loaded.map(|model| model["id"].as_str().unwrap().to_string()).collect()
    };
    // What is refused by its fields loads nothing.
    client.post("/v1/images/generations", &json!({"model": "classes", "eta": 0.5})).expect(422);
    client.post("/v1/tasks/sr", &json!({"image": "AAAA"})).expect(422);
    assert_eq!(loaded(), [""; 0]);
    let long = json!({"model": "classes", "seed": 1, "steps": 1000, "n": 64});
    let id = client.post("/v1/jobs", &long).expect(202).json()["id"].as_str().unwrap().to_string();
    while client.get(&format!("/v1/jobs/{id}")).expect(200).json()["progress"]["steps_done"] == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    client.post("/v1/images/generations", &json!({"model": "flow", "seed": 5})).expect(200);
    client.request("DELETE", &format!("/v1/jobs/{id}"), None, &[]).expect(204);
    let end = std::time::Instant::now() + super::client::PATIENCE;
    while loaded().len() > 1 {
        assert!(std::time::Instant::now() < end, "{:?} stay loaded", loaded());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
