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
