//! Inputs to begin with: small files by this project's own writers and drawing code, so that no picture of others is needed.
use super::containers::{deflated, input, of_entries};
use super::server::BOUNDARY;
use super::sets::{CIFAR_MARK, NPZ_NAMES, ZIP_NAMES, element, mat_header, matrix};
use super::weights::TORCH_NAMES;
use super::{pickles, scratch};
use crossfade::RunConfig;
use crossfade::data::procedural::Procedural;
use crossfade::data::{Dataset, Image};
use crossfade::metrics::features::{Gaussian, Statistics};
use crossfade::nn::{BackboneConfig, Decoders, UNetConfig};
use crossfade::tensorfile::{HostTensor, save_tensors};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The smallest network: 8x8 pixels, three classes.
fn small_config() -> RunConfig {
    let network = UNetConfig {
        resolution: 8,
        width: 4,
        mult: vec![1],
        blocks: 1,
        attention: vec![],
        decoders: Decoders::One,
        classes: 3,
        ..UNetConfig::default()
    };
    let mut config = RunConfig { network: network.into(), ..RunConfig::default() };
    config.train.label_dropout = 0.1;
    config
}

/// A checkpoint of the smallest network, as a model that ships is stored.
pub fn small_checkpoint() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let config = small_config();
        let numbers = |count: usize| (0..count).map(|k| (k % 17) as f32 / 64.0 - 0.125).collect();
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let count = shape.iter().product();
            (name, shape, numbers(count))
        };
        let tensors: Vec<HostTensor> = config.network.state_shapes(config.ports()).into_iter().map(tensor).collect();
        let mut notes = crossfade::checkpoint::metadata(&config, 7).unwrap();
        notes.insert("classes".into(), r#"["cat","dog","bird"]"#.into());
        let path = scratch::file("small/small.safetensors", b"");
        save_tensors(&path, &tensors, &notes).unwrap();
        path
    };
    PATH.get_or_init(make).clone()
}

/// The header and the numbers of a safetensors file, as inputs have them.
fn split(file: &[u8]) -> Vec<u8> {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    [&file[8..8 + length], &[0], &file[8 + length..]].concat()
}

fn tensor_file() -> Vec<u8> {
    let tensors: Vec<HostTensor> = vec![
        ("a.weight".into(), vec![2, 3], vec![0.5; 6]),
        ("b".into(), vec![3], vec![1.0, -2.0, f32::NAN]),
        ("scalar".into(), vec![], vec![3.0]),
        ("none".into(), vec![0, 2], vec![]),
    ];
    let path = scratch::file("seeds/tensors.safetensors", b"");
    save_tensors(&path, &tensors, &[("note".into(), "a \"text\"".into())].into()).unwrap();
    std::fs::read(path).unwrap()
}

pub fn tensors() -> Vec<Vec<u8>> {
    let other = [
        (
            r#"{"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"i":{"dtype":"I64","shape":[1],"data_offsets":[4,12]}}"#,
            12,
        ),
        (r#"{"ema_model.w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#, 4),
        (r#"{"online_model.w":{"dtype":"F64","shape":[1,1],"data_offsets":[0,8]}}"#, 8),
    ];
    let other = other.map(|(header, count)| input(1, &[header.as_bytes(), &[0], &vec![0x3c; count]].concat()));
    [vec![input(0, &tensor_file()), input(1, &split(&tensor_file()))], other.to_vec()].concat()
}

pub fn checkpoint() -> Vec<Vec<u8>> {
    let file = std::fs::read(small_checkpoint()).unwrap();
    let text = small_config().to_toml().unwrap();
    let composed = [
        text.as_bytes(),
        b"\x00100\x00[\"a\",\"b\",\"c\"]\x00,\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}\x00\0\0\x80?",
    ];
    vec![input(1, &split(&file)), input(2, &composed.concat())]
}

pub fn pickle() -> Vec<Vec<u8>> {
    let (root, storages) = pickles::small("");
    let state = [b"\x80\x02", &root[..], b"."].concat();
    let keys = [b"\x80\x02", &pickles::list(&["0", "1"])[..], b"."].concat();
    let numbers = storages.iter().flat_map(|(_, bytes)| [&(bytes.len() as u64 / 4).to_le_bytes(), &bytes[..]].concat());
    let legacy = [state.clone(), keys, numbers.collect()].concat();
    vec![input(0, &state), input(1, &legacy), input(0, b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94\x8c\x04step\x94K\x07s.")]
}

pub fn torch() -> Vec<Vec<u8>> {
    let of = |root: Vec<u8>, packed: bool| {
        let (_, storages) = pickles::small("");
        let pickle = [b"\x80\x02", &root[..], b"."].concat();
        let mut list = vec![(packed, "archive/data.pkl", &pickle[..]), (false, "archive/byteorder", b"little")];
        let names = ["archive/data/0", "archive/data/1"];
        list.extend(storages.iter().zip(names).map(|((_, bytes), name)| (packed, name, &bytes[..])));
        input(1, &of_entries(&list, TORCH_NAMES))
    };
    let inner = pickles::small("").0;
    let trainer = pickles::dict(&[("model", inner.clone()), ("step", pickles::int(77))]);
    vec![of(inner, false), of(trainer, true), of(pickles::small("ema_model.").0, false)]
}

fn drawn(index: usize, side: usize) -> Image {
    Procedural::new(3, 8, side).unwrap().get(index).unwrap()
}

fn encoded(image: &Image, encoder: impl image::ImageEncoder) {
    let kind = if image.channels == 1 { image::ExtendedColorType::L8 } else { image::ExtendedColorType::Rgb8 };
    encoder.write_image(&image.pixels, image.width as u32, image.height as u32, kind).unwrap();
}

/// A PNG of chunks, without palettes and depths that this project's writer has not.
fn png_of(head: [u8; 5], between: &[(&[u8; 4], &[u8])], rows: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [&3u32.to_be_bytes()[..], &2u32.to_be_bytes(), &head].concat();
    let pixels = deflated(rows);
    let ends: [(&[u8; 4], &[u8]); 2] = [(b"IDAT", &pixels), (b"IEND", b"")];
    for (name, data) in [&[(b"IHDR", &header[..])], between, &ends].concat() {
        file.extend((data.len() as u32).to_be_bytes());
        file.extend([&name[..], data].concat());
        file.extend(super::containers::crc(&[name, data]).to_be_bytes());
    }
    file
}

pub fn png() -> Vec<Vec<u8>> {
    let text = deflated(b"a text that is packed");
    let mut files = vec![
        drawn(0, 8).encode_png(&[("key", "text"), ("other", "tëxt")]).unwrap(),
        drawn(1, 5).with_channels(1).encode_png(&[]).unwrap(),
        png_of([8, 3, 0, 0, 0], &[(b"PLTE", &[9; 12]), (b"tRNS", &[0, 100])], &[0, 0, 1, 2, 0, 3, 2, 1]),
        png_of([2, 3, 0, 0, 0], &[(b"PLTE", &[9; 12])], &[0, 0x1b, 0, 0xe4]),
        png_of([16, 0, 0, 0, 0], &[(b"zTXt", &[b"k\0\0", &text[..]].concat())], &[1; 14]),
        png_of([16, 6, 0, 0, 0], &[(b"gAMA", &[0, 0, 0x80, 0])], &[2; 50]),
        png_of([8, 4, 0, 0, 1], &[(b"iTXt", &[b"k\0\x01\0en\0k\0", &text[..]].concat())], &[0; 40]),
        png_of(
            [1, 0, 0, 0, 0],
            &[(b"eXIf", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0")],
            &[0, 0xaa, 0, 0x55],
        ),
    ];
    let raw = files[0].clone();
    files.iter_mut().for_each(|file| *file = input(1, file));
    files.push(input(0, &raw));
    files
}

pub fn photo() -> Vec<Vec<u8>> {
    let (mut jpeg, mut grey, mut webp) = (vec![], vec![], vec![]);
    encoded(&drawn(0, 16), image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 60));
    encoded(&drawn(1, 9).with_channels(1), image::codecs::jpeg::JpegEncoder::new_with_quality(&mut grey, 90));
    encoded(&drawn(2, 12), image::codecs::webp::WebPEncoder::new_lossless(&mut webp));
    vec![input(1, &jpeg), input(1, &grey), input(1, &webp)]
}

pub fn recipe() -> Vec<Vec<u8>> {
    let config = small_config();
    let sample = serde_json::to_value(&config.sample).unwrap();
    let common = serde_json::json!({
        "version": "0.1.0", "checkpoint": "small.safetensors", "checksum": "0123abcd", "weights": "ema",
        "sample": sample, "seed": 3,
    });
    let with = |more: serde_json::Value| {
        let mut all = common.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all.to_string().into_bytes()
    };
    let picture = serde_json::json!({"name": "a.png", "sha256": "00ff"});
    let index = serde_json::to_value(crossfade::StartNoise::Index(5)).unwrap();
    let between = serde_json::json!({"between": {"to": picture, "share": 0.5}});
    vec![
        input(1, &with(serde_json::json!({"start": index}))),
        input(2, &with(serde_json::json!({"picture": picture, "edit": {"strength": 0.5}, "index": 0}))),
        input(2, &with(serde_json::json!({"picture": picture, "edit": between, "index": 1, "fit": "crop"}))),
        input(2, &with(serde_json::json!({"picture": picture, "edit": "invert", "index": 1}))),
    ]
}

pub fn zip() -> Vec<Vec<u8>> {
    let (a, b) = (drawn(0, 6).encode_png(&[]).unwrap(), drawn(1, 6).encode_png(&[]).unwrap());
    let labels =
        br#"{"labels": [["00000/img00000000.png", 0], ["00000/img00000001.png", 1]], "classes": ["cat", "dog"]}"#;
    let edm = [(true, ZIP_NAMES[0], &labels[..]), (false, ZIP_NAMES[1], &a), (true, ZIP_NAMES[2], &b)];
    let folders = [(false, "cat/1.png", &a[..]), (false, "dog/2.png", &b)];
    let made = [of_entries(&edm, ZIP_NAMES), of_entries(&folders, ZIP_NAMES)];
    let raw = super::containers::zip_of(&super::containers::entries(&made[0], ZIP_NAMES));
    vec![input(1, &made[0]), input(1, &made[1]), input(0, &raw)]
}

pub fn npz() -> Vec<Vec<u8>> {
    let gaussian = Gaussian { mean: vec![0.5, 1.0], covariance: vec![2.0, 0.1, 0.1, 1.0] };
    let path = scratch::file("seeds/statistics.npz", b"");
    Statistics { gaussian, sums: None, protocol: None, weights: None }.save(&path).unwrap();
    let array = super::containers::npy_of("|u1", 1, &[2, 3, 3, 1], &[7; 18]);
    let floats = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let mu = [&[0, 1, 2][..], &floats(&[1.0, 0.0])].concat();
    let sigma = [&[0, 2, 2, 2][..], &floats(&[2.0, 0.5, 0.5, 2.0])].concat();
    let images = [&[3, 4, 2, 2, 2, 3][..], &[9; 24]].concat();
    vec![
        input(0, &std::fs::read(path).unwrap()),
        input(1, &of_entries(&[(true, "arr_0.npy", &array)], NPZ_NAMES)),
        input(2, &of_entries(&[(false, "mu.npy", &mu), (true, "sigma.npy", &sigma)], NPZ_NAMES)),
        input(2, &of_entries(&[(false, "arr_0.npy", &images)], NPZ_NAMES)),
    ]
}

pub fn mat() -> Vec<Vec<u8>> {
    let numbers = |name: &str| matrix(6, &[3, 3], name, &element(2, &[0, 1, 0, 1, 1, 0, 0, 0, 1]));
    let fields = [element(5, &16u32.to_le_bytes()), element(1, b"Boundaries\0\0\0\0\0\0"), numbers("")].concat();
    let truth = matrix(1, &[1, 1], "groundTruth", &matrix(2, &[1, 1], "", &fields));
    let segments = matrix(1, &[1, 2], "segs", &[numbers(""), numbers("")].concat());
    let raw = [mat_header(), truth.clone()].concat();
    // A cell of one structure with one field, and a matrix, as trees.
    let tree = [1, 2, 1, 1, 0, 2, 2, 1, 1, 5, 1, 1, 6, 2, 2, 2, 5, 2, 0, 1, 1, 0];
    vec![input(0, &raw), input(1, &numbers("ucm2")), input(2, &truth), input(2, &segments), input(3, &tree)]
}

pub fn cifar() -> Vec<Vec<u8>> {
    let pickle = [pickles::CIFAR_HEAD, CIFAR_MARK, pickles::CIFAR_TAIL].concat();
    vec![input(2, &[3, 9, 0]), input(3, &pickle), input(0, &[1; 3073])]
}

pub fn idx() -> Vec<Vec<u8>> {
    let sizes = [2u32, 3, 3].map(u32::to_be_bytes).concat();
    let file = [&[0, 0, 8, 3][..], &sizes, &[200; 18]].concat();
    vec![input(0, &file), input(1, &file), input(2, &[&[2, 3, 3][..], &[5; 18], &[0, 1, 4]].concat())]
}

pub fn config() -> Vec<Vec<u8>> {
    let of = |kind: u8, text: &str, sets: &str| input(kind, &[text.as_bytes(), &[0], sets.as_bytes()].concat());
    vec![
        of(0, include_str!("../../configs/tiny.toml"), "train.batch=8\0process.kind=flow"),
        of(0, include_str!("../../configs/cifar10-classes.toml"), "network.width=32"),
        of(0, include_str!("../../configs/sr-small.toml"), "sample.steps=7"),
        of(0, &small_config().to_toml().unwrap(), "sample.grid.kind=karras"),
        of(1, include_str!("../../configs/ae-cifar10.toml"), "autoencoder.width=64"),
        of(2, include_str!("../../studies/tiny.toml"), "title=x"),
    ]
}

pub fn texts() -> Vec<Vec<u8>> {
    let report =
        r#"{"metric":"fid","values":[["fid",3.5],["n",10]],"protocol":[["resize","bicubic"],["weights","a1"]]}"#;
    let log =
        "{\"step\":10,\"loss\":0.5,\"images_per_second\":100.0}\n{\"step\":20,\"loss\":0.4,\"images_per_second\":90}\n";
    let arguments = ["karras", "0.9,0.5,0.1", "uniform-t", "ddim", "heads", "x4", "2/3", "heun-churn", "a.npz[0:256]"];
    let mut all = vec![
        input(0, b"# tokens\nname 0123456789abcdef\nfedcba9876543210\n"),
        input(1, report.as_bytes()),
        input(2, log.as_bytes()),
    ];
    all.extend(arguments.map(|text| input(3, text.as_bytes())));
    all
}

pub fn request() -> Vec<Vec<u8>> {
    let json = |kind: u8, text: &str| [&[kind, 0][..], text.as_bytes()].concat();
    let picture = drawn(0, 8).encode_png(&[]).unwrap();
    let base64: String = {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(&picture)
    };
    let form = |name: &str, value: &[u8]| {
        let fields = crossfade_serve::request::FIELDS;
        let place = fields.iter().position(|(known, _)| *known == name).unwrap();
        [&[value.len() as u8, place as u8], value].concat()
    };
    let parts = [form("n", b"2"), form("seed", b"3"), form("strength", b"0.5"), form("image", &picture)];
    vec![
        json(0, r#"{"prompt":"a cat","n":2,"steps":5,"seed":7,"sampler":"ab2","grid":"karras","async":true}"#),
        json(0, r#"{"class":"all","guidance":1.5,"guidance_interval":[0.2,0.8],"first":3,"size":"8x8","user":"u"}"#),
        json(1, &format!(r#"{{"image":"{base64}","strength":0.5,"fit":"crop","name":"a.png"}}"#)),
        [&[1, 2], &parts.concat()[..]].concat(),
        [&[0, 1][..], b"--b\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n--b--\r\n"].concat(),
    ]
}

pub fn http() -> Vec<Vec<u8>> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\nHost: 127.0.0.1:7860\n\0").into_bytes();
    let post = |path: &str, media: &str, body: &str| {
        format!("POST {path} HTTP/1.1\nHost: localhost\nContent-Type: {media}\n\0{body}").into_bytes()
    };
    let json = "application/json";
    let form = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n--{BOUNDARY}--\r\n");
    vec![
        get("/v1/models"),
        get("/v1/jobs?state=done&limit=3"),
        get("/v1/jobs/job_1/images/0"),
        get("/healthz"),
        get("/metrics"),
        get("/"),
        post("/v1/images/generations", json, r#"{"prompt":"cat","n":1}"#),
        post("/v1/jobs", json, r#"{"kind":"generation","steps":2}"#),
        post("/v1/images/edits", &format!("multipart/form-data; boundary={BOUNDARY}"), &form),
        post("/v1/tasks/sr", json, "{}"),
        b"DELETE /v1/jobs/job_1 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n".to_vec(),
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
    ]
}
