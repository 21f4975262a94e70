//! Tasks, edits and masks.
use super::bits::drawn;
use super::{as_the_program, models, start};
use crossfade::apply::{Application, Options};
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::data::{Image, Image16};
use crossfade::engine::Device;
use crossfade::generate::{Pipeline, task_recipe};
use crossfade::nn::named::fnv1a;
use crossfade::task::masks::{HoleBox, Mask};
use serde_json::json;

/// The file that the verb of a task writes for `picture.png`.
fn applied(model: &str, seed: u64, steps: usize, picture: &Image16, mask: Option<&Mask>) -> Vec<u8> {
    as_the_program();
    let checkpoint = Checkpoint::open(&models::checkpoint(model)).unwrap();
    let sample = crossfade::SampleConfig { steps, ..checkpoint.config.sample.clone() };
    let sample = sample.resolved(&checkpoint.config.process).unwrap();
    let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &sample, &Device::flex()).unwrap();
    let task = &checkpoint.config.task;
    let network = pipeline.task_model(task.name(), seed).unwrap();
    let (keyword, text) = task_recipe(&checkpoint, task.name(), seed, &sample, pipeline.evaluations().unwrap());
    let texts = [(keyword, text.as_str())];
    let application = Application { task, model: &network, options: &Options::default(), texts: &texts };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.png");
    application.run(picture, mask, fnv1a("picture.png"), &file, &mut |_, _| ()).unwrap();
    std::fs::read(file).unwrap()
}

#[test]
fn super_resolution_has_the_bytes_of_the_verb() {
    let running = start(|_| ());
    let png = drawn(21, 13).encode_png(&[]).unwrap();
    let picture = Image16::decode(&png, "picture").unwrap();
    let texts = [("seed", "4"), ("n", "2")];
    let answer = running.client.form("/v1/tasks/sr", &texts, &[("image", &png)]).expect(200).json();
    assert_eq!((&answer["data"][0]["width"], &answer["data"][0]["height"]), (&json!(42), &json!(26)));
    let job = running.client.ended(answer["job"].as_str().unwrap());
    let found = running.client.pictures(&job);
    assert!(found[0] == applied("sr", 4, 5, &picture, None));
    assert!(found[1] == applied("sr", 5, 5, &picture, None), "the second picture has the next seed");
    let id = job["id"].as_str().unwrap();
    let sent = running.client.get(&format!("/v1/jobs/{id}/inputs/image")).expect(200);
    assert_eq!((sent.header("content-type"), &sent.body), (Some("image/png"), &png));
    assert_eq!(running.client.get(&format!("/v1/jobs/{id}/inputs/mask")).status, 404);
    assert_eq!(job["settings"]["task"], "sr");
    // The same by JSON, as a job with events of its tiles.
    use base64::Engine;
    let image = format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(&png));
    let request = json!({"kind": "task", "task": "sr", "image": image, "seed": 4});
    let id = running.client.post("/v1/jobs", &request).expect(202).json()["id"].as_str().unwrap().to_string();
    let again = running.client.ended(&id);
    assert!(running.client.pictures(&again)[0] == found[0]);
    let events = running.client.events(&id);
    let step = &events.iter().find(|(name, _)| name == "step").unwrap().1;
    assert!(step["tiles"].is_u64() && step["preview"].is_string(), "{step}");
    // The number of tiles is known from the first step on.
    assert!(step["tiles"].as_u64() > Some(1), "{step}");
    assert!(events.iter().filter(|(name, _)| name == "step").all(|(_, other)| other["tiles"] == step["tiles"]));
}

/// The hole as transparency of the mask, as black of a grey mask, and as transparency of the picture itself.
#[test]
fn edits_fill_holes_and_keep_the_rest() {
    let running = start(|_| ());
    let client = &running.client;
    let (w, h) = (23, 18);
    let image = drawn(w, h);
    let png = image.encode_png(&[]).unwrap();
    let mask = Mask::boxes(w, h, &[HoleBox([5, 4, 7, 6])]).unwrap();
    let picture = Image16::decode(&png, "picture").unwrap();
    let expected = applied("inpaint", 9, 5, &picture, Some(&mask));
    let grey = Image::new(w, h, 1, mask.known.iter().map(|known| 255 * u8::from(*known)).collect());
    let grey = grey.encode_png(&[]).unwrap();
    let rgba = |colour: &dyn Fn(usize) -> [u8; 3]| {
        let pixels = mask.known.iter().enumerate();
        let values: Vec<u8> = pixels
            .flat_map(|(k, known)| {
                let [r, g, b] = colour(k);
                [r, g, b, 255 * u8::from(*known)]
            })
            .collect();
        let mut bytes = std::io::Cursor::new(vec![]);
        let picture = image::RgbaImage::from_raw(w as u32, h as u32, values).unwrap();
        picture.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    };
    let transparent = rgba(&|_| [0; 3]);
    let holed = rgba(&|k| [0, 1, 2].map(|c| image.pixels[3 * k + c]));
    let texts = [("prompt", ""), ("seed", "9"), ("response_format", "png")];
    let by = |files: &[(&str, &[u8])]| client.form("/v1/images/edits", &texts, files).expect(200).body;
    assert!(by(&[("image", &png), ("mask", &grey)]) == expected);
    assert!(by(&[("image", &png), ("mask", &transparent)]) == expected);
    assert!(by(&[("image", &holed)]) == expected);
    let task = client.form("/v1/tasks/inpaint", &texts[1..], &[("image", &png), ("mask", &grey)]).expect(200).body;
    assert!(task == expected);
    let filled = Image::decode(&expected, "filled").unwrap();
    for (k, known) in mask.known.iter().enumerate().filter(|(_, known)| **known) {
        assert!(*known && filled.pixels[3 * k..3 * k + 3] == image.pixels[3 * k..3 * k + 3], "pixel {k}");
    }
}

#[test]
fn pictures_that_cannot_be_used_are_refused() {
    let running = start(|_| ());
    let client = &running.client;
    let png = drawn(20, 20).encode_png(&[]).unwrap();
    let small = drawn(5, 5).encode_png(&[]).unwrap();
    let refused = |path: &str, texts: &[(&str, &str)], files: &[(&str, &[u8])], param: &str| {
        let answer = client.form(path, texts, files);
        assert_eq!(answer.status, 422, "{path} {texts:?}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.json()["error"]["param"], param, "{path} {texts:?}: {}", answer.problem());
    };
    refused("/v1/tasks/sr", &[], &[], "image");
    refused("/v1/tasks/sr", &[], &[("image", b"no picture")], "image");
    refused("/v1/tasks/sr", &[], &[("image", &png[..png.len() / 2])], "image");
    refused("/v1/tasks/sr", &[], &[("image", &png), ("mask", &png)], "mask");
    refused("/v1/tasks/sr", &[("threshold", "0.5")], &[("image", &png)], "threshold");
    refused("/v1/tasks/sr", &[("tile", "8"), ("overlap", "8")], &[("image", &png)], "overlap");
    refused("/v1/tasks/sr", &[("name", "")], &[("image", &png)], "name");
    refused("/v1/tasks/depth", &[], &[("image", &png)], "model");
    refused("/v1/images/edits", &[], &[("image", &png)], "mask");
    refused("/v1/images/edits", &[], &[("image", &png), ("mask", &small)], "mask");
    refused("/v1/images/edits", &[("prompt", "a hat")], &[("image", &png), ("mask", &png)], "prompt");
    refused("/v1/images/variations", &[], &[("image", &small)], "image");
    refused("/v1/images/variations", &[("strength", "0.01")], &[("image", &png)], "strength");
    refused("/v1/images/variations", &[("fit", "squeeze")], &[("image", &png)], "fit");
    client.form("/v1/images/variations", &[("fit", "crop")], &[("image", &small)]).expect(200);
    assert_eq!(client.get("/v1/jobs").expect(200).json()["data"].as_array().unwrap().len(), 1);
}
