//! Weights: safetensors files, checkpoints, pickles and PyTorch files.
use super::containers::{entries, kind, parts, tensors_of, zip_of};
use super::scratch::{accepted, file};
use crossfade::config::RunConfig;
use crossfade::engine::Device;
use crossfade::nn::BackboneConfig;
use crossfade::tensorfile::{TensorFile, save_tensors};
use crossfade::torchfile::{self, Weights, scan_pickle};
use crossfade::{Checkpoint, limits};
use std::borrow::Cow;
use std::path::Path;

/// The header and the numbers of an input: as a file has them, or the header up to a zero byte.
fn tensor_bytes(input: &[u8]) -> Vec<u8> {
    match kind(input, 2) {
        (0, raw) => raw.to_vec(),
        (_, rest) => {
            let parts = parts(rest, 2);
            tensors_of(parts[0], parts[1])
        }
    }
}

/// A safetensors file: in memory, from the disk, and as other programs' weights.
pub fn tensors(input: &[u8]) {
    let bytes = tensor_bytes(input);
    let name = Path::new("fuzz.safetensors");
    let opened = accepted(TensorFile::of_bytes(name, Cow::Owned(bytes.clone())));
    let Some(found) = opened else { return };
    let path = file("tensors/a.safetensors", &bytes);
    let on_disk = TensorFile::open(&path).expect("the same bytes in a file");
    assert_eq!((found.shapes(), found.metadata()), (on_disk.shapes(), on_disk.metadata()));
    let mut read = vec![];
    for (name, shape) in found.shapes() {
        let same = accepted(on_disk.read(&name));
        let Some((of, values)) = accepted(found.read(&name)) else { continue };
        assert_eq!(values.len(), shape.iter().product::<usize>(), "numbers of {shape:?}");
        assert!(values.len() <= bytes.len(), "more numbers than bytes");
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert!(same.is_some_and(|(other, same)| other == of && bits(&same) == bits(&values)));
        read.push((name, shape, values));
    }
    // What was read is written, and read again to the same.
    let copy = file("tensors/b.safetensors", b"");
    save_tensors(&copy, &read, &found.metadata()).expect("what was read can be written");
    let again = TensorFile::open(&copy).expect("what was written can be read");
    for (name, shape, values) in &read {
        let (of, same) = again.read(name).unwrap();
        assert!(of == *shape && same.iter().zip(values).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    for which in [Weights::Model, Weights::Ema] {
        if let Some(source) = accepted(torchfile::read(&path, which)) {
            check_source(&source, bytes.len());
        }
    }
}

fn check_source(source: &torchfile::Source, file: usize) {
    let mut memory = 0;
    for (name, tensor) in &source.tensors {
        assert_eq!(tensor.data.len(), tensor.shape.iter().product::<usize>(), "{name}");
        memory += 4 * tensor.data.len() as u64;
    }
    assert!(source.tensors.len() as u64 <= limits::TORCH_TENSORS.max && memory <= limits::TORCH_MEMORY.max);
    // The types of a file have at least one byte a value, and tensors may share it eightfold.
    assert!(memory <= 4 * 8 * file as u64, "{memory} bytes of a file of {file}");
}

/// A checkpoint: configuration, step, names of classes, and tensors.
pub fn checkpoint(input: &[u8]) {
    let bytes = match kind(input, 3) {
        (2, rest) => {
            let parts = parts(rest, 5);
            let text = |k: usize| String::from_utf8_lossy(parts[k]).into_owned();
            let notes = serde_json::json!({
                "crossfade": "0.1.0", "config": text(0), "step": text(1), "classes": text(2), "crc32": "00000000",
            });
            tensors_of(format!("{{\"__metadata__\":{notes}{}}}", text(3)).as_bytes(), parts[4])
        }
        _ => tensor_bytes(input),
    };
    let path = file("checkpoint/a.safetensors", &bytes);
    let Some(found) = accepted(Checkpoint::open(&path)) else { return };
    check_config(&found.config);
    assert_eq!(found.class_names.len(), found.config.network.classes());
    let tensors = accepted(found.read());
    if let Some((config, ..)) = accepted(found.first_stage()).flatten() {
        assert!(config.validate().is_empty());
    }
    // Building a network takes time in proportion to its blocks.
    if found.config.sizes().parameters < 20_000
        && let Some(net) = accepted(found.denoiser(Weights::Ema, &Device::flex()))
    {
        assert!(tensors.is_some(), "weights of a file that is damaged");
        drop(net);
    }
}

/// A configuration that was accepted: within the limits, and the same after it was written and read.
pub fn check_config(config: &RunConfig) {
    config.validate().expect("what was accepted is valid");
    let text = config.to_toml().expect("what was accepted can be written");
    let again = RunConfig::parse(&text, "again.toml").unwrap_or_else(|e| panic!("what was written is refused: {e}"));
    assert_eq!(*config, again, "a configuration changes when it is written");
    let images = config.train.batch as u64 * config.train.accumulate as u64;
    assert!(config.train.batch as u64 <= limits::BATCH.max && images <= limits::STEP_IMAGES.max);
    assert!(config.train.steps <= limits::STEPS.max);
    let _ = config.sizes();
    let _ = config.validate_training();
    if let Some(times) = accepted(config.sample.times(&config.process)) {
        assert!(times.windows(2).all(|pair| pair[0] > pair[1]), "times that do not fall: {times:?}");
    }
}

/// A pickle: the scan alone, in a legacy file of PyTorch, and in a batch of CIFAR-10.
pub fn pickle(input: &[u8]) {
    let (kind, rest) = kind(input, 3);
    if let Some(length) = accepted(scan_pickle(rest)) {
        assert!(length <= rest.len() && rest[length - 1] == b'.');
        assert_eq!(scan_pickle(&rest[..length]), Ok(length), "the end depends on what follows");
    }
    if kind == 1 {
        let magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00.";
        let path = file("pickle/legacy.pt", &[&magic[..], rest].concat());
        for which in [Weights::Model, Weights::Ema] {
            if let Some(source) = accepted(torchfile::read(&path, which)) {
                check_source(&source, rest.len() + magic.len());
            }
        }
    }
}

/// The names in a PyTorch file.
pub const TORCH_NAMES: &[&str] = &[
    "archive/data.pkl",
    "archive/data/0",
    "archive/data/1",
    "archive/data/2",
    "archive/byteorder",
    "archive/version",
    "archive/.data/serialization_id",
    "data.pkl",
];

/// A PyTorch file.
pub fn torch(input: &[u8]) {
    let bytes = match kind(input, 2) {
        (0, raw) => raw.to_vec(),
        (_, rest) => zip_of(&entries(rest, TORCH_NAMES)),
    };
    let path = file("torch/a.pt", &bytes);
    for which in [Weights::Model, Weights::Ema] {
        let Some(source) = accepted(torchfile::read(&path, which)) else { continue };
        check_source(&source, unpacked(&bytes));
        let list: Vec<_> = source.tensors.iter().map(|(n, t)| (n.clone(), t.shape.clone(), t.data.clone())).collect();
        let copy = file("torch/b.safetensors", b"");
        if save_tensors(&copy, &list, &[].into()).is_ok() {
            let again = torchfile::read(&copy, Weights::Model).map(|found| found.tensors.len());
            // A name that selects a copy of the weights means something else in the new file.
            assert!(again.is_err() || again.is_ok_and(|count| count <= list.len()));
        }
        accepted(crossfade::convert::infer_unet(&source));
    }
}

/// An upper bound of what the entries of a zip unpack to.
fn unpacked(bytes: &[u8]) -> usize {
    bytes.len() * 1100
}
