//! Files of the reference's trainer: exact values, the network they hold, hostile and damaged files.
use crossfade::convert::{convert, infer_unet};
use crossfade::engine::{Device, from_host, to_host};
use crossfade::nn::{BackboneConfig, Context, NetworkPorts, UNetConfig};
use crossfade::tensorfile::TensorFile;
use crossfade::torchfile::{Source, Weights, read, read_pt};
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::case::Case;
use crate::compare;
use crate::formula::{Rule, parameter};
use crate::nets;

/// Both copies of the weights, what the case calls them, and what precedes their names before hashing.
const COPIES: [(Weights, &str, &str); 2] = [(Weights::Model, "model", ""), (Weights::Ema, "ema", "ema.")];

pub fn check(case: &Case) -> Vec<String> {
    let parts = [values, special_tensors, networks, incomplete, hostile, damaged, changed_bytes];
    parts.iter().flat_map(|part| part(case)).collect()
}

pub fn skips(_: &Case) -> Vec<String> {
    vec!["optimiser state (conversion reads weights only)".into()]
}

fn require(ok: bool, what: impl FnOnce() -> String) -> Option<String> {
    (!ok).then(what)
}

/// The name of every parameter in a state dict, in the order of registration.
fn parameter_names(case: &Case) -> Vec<String> {
    let names = case.json["optimizer_param_order"].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Tensors whose values are not the formula's, or for buffers the constructor's.
fn unlike_the_formula(source: &Source, before: &str) -> Vec<String> {
    let expected = |name: &str, shape: &[usize]| match name {
        "eps" => vec![1e-4],
        _ if name.ends_with("resample_filter") => vec![0.25; 4],
        _ => parameter(&format!("{before}{name}"), shape),
    };
    let off = source.tensors.iter().filter(|(name, tensor)| tensor.data != expected(name, &tensor.shape));
    off.map(|(name, _)| format!("values of {before}{name}")).collect()
}

fn values(case: &Case) -> Vec<String> {
    let path = case.dir.join("model-1.pt");
    let count = case.json["keys"]["model_count"].as_u64().unwrap() as usize;
    let mut failures = vec![];
    for (which, copy, before) in COPIES {
        let source = read_pt(&path, which).unwrap();
        let names = parameter_names(case);
        let missing = names.iter().filter(|name| !source.tensors.contains_key(*name));
        failures.extend(missing.map(|name| format!("{copy}: no {name}")));
        failures.extend(require(source.tensors["eps"].shape.is_empty(), || format!("{copy}: eps has dimensions")));
        let found = source.tensors.len();
        failures.extend(require(found == count, || format!("{copy}: {found} tensors, expected {count}")));
        failures.extend(require(source.step == Some(3), || format!("{copy}: step {:?}", source.step)));
        failures.extend(unlike_the_formula(&source, &format!("{}{before}", case.salt)));
    }
    let legacy = case.dir.join("legacy.pt");
    let model = read_pt(&path, Weights::Model).unwrap().tensors;
    let kept: BTreeMap<_, _> = model.into_iter().filter(|(name, _)| !name.contains("dec")).collect();
    let found = read_pt(&legacy, Weights::Model).unwrap().tensors;
    failures.extend(require(found == kept, || "legacy.pt has other tensors".into()));
    let error = read_pt(&legacy, Weights::Ema).map_or_else(|e| e.to_string(), |_| "no error".into());
    failures.extend(require(error.contains("no EMA"), || format!("EMA weights of legacy.pt: {error}")));
    failures
}

fn special_tensors(case: &Case) -> Vec<String> {
    let base = Rule::Unit.values(&format!("{}base", case.salt), 48);
    // bfloat16 by rounding to nearest, ties to even
    let bf16 = |v: &f32| {
        let bits = v.to_bits();
        f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    };
    let positive = base[..8].iter().map(|&v| f32::from(u8::from(v > 0.0))).collect();
    let expected: [(&str, &str, &[usize], Vec<f32>); 10] = [
        ("base", "f32", &[6, 8], base.clone()),
        ("view_rows", "f32", &[2, 8], base[16..32].to_vec()),
        ("transposed", "f32", &[8, 6], (0..48).map(|i| base[i % 6 * 8 + i / 6]).collect()),
        ("f64", "f64", &[6, 8], base.clone()),
        ("bf16", "bf16", &[6, 8], base.iter().map(bf16).collect()),
        ("i64", "i64", &[5], vec![0.0, 1.0, 2.0, 3.0, 4.0]),
        ("bool", "bool", &[8], positive),
        ("scalar", "f32", &[], vec![0.165]),
        ("empty", "f32", &[0, 3], vec![]),
        ("param", "f32", &[8], base[..8].to_vec()),
    ];
    let mut failures = vec![];
    for file in ["special_zip.pt", "special_legacy.pt"] {
        let tensors = read_pt(&case.dir.join(file), Weights::Model).unwrap().tensors;
        let off = expected.iter().filter(|(name, dtype, shape, data)| {
            let tensor = &tensors[*name];
            (tensor.dtype, tensor.shape.as_slice(), &tensor.data) != (*dtype, *shape, data)
        });
        failures.extend(off.map(|(name, ..)| format!("{file}: {name} is {:?}", tensors[*name])));
        // half: within half a unit in the last place, on the grid of 11 significant bits
        let half = &tensors["half"];
        let exact = half.data.iter().zip(&base).all(|(h, b)| {
            let unit = 2f32.powi(b.abs().log2().floor().max(-14.0) as i32 - 10);
            (h - b).abs() <= unit / 2.0 && (h / unit).fract() == 0.0
        });
        let whole = (half.dtype, half.shape.as_slice()) == ("f16", &[6, 8]);
        failures.extend(require(exact && whole && half.data.len() == 48, || format!("{file}: half is {half:?}")));
    }
    failures
}

/// The network that a file must be found to hold.
fn config(case: &Case) -> UNetConfig {
    let mut config = nets::config(case);
    // Below 64 channels there is no attention, whatever was asked for.
    let level = |r: &usize| (config.resolution / r).ilog2() as usize;
    config.attention.retain(|r| config.mult[level(r)] * config.width >= 64);
    config
}

/// Each copy, from the file to the outputs of the network that it was found to hold.
fn networks(case: &Case) -> Vec<String> {
    let (device, scratch) = (Device::flex(), tempfile::tempdir().unwrap());
    let (input, output) = (case.dir.join("model-1.pt"), scratch.path().join("out.safetensors"));
    let shape: [usize; 4] = case.shape("x").try_into().unwrap();
    let x = from_host(&case.input("x", &shape), shape, &device);
    let mut failures = vec![];
    for (which, copy, before) in COPIES {
        let inferred = infer_unet(&read_pt(&input, which).unwrap()).unwrap();
        failures.extend(require(inferred.config == config(case), || format!("{copy}: found {:?}", inferred.config)));
        let ports = NetworkPorts::with_phi_parts(inferred.phi_parts);
        let expected = inferred.config.state_shapes(ports);
        let names: Vec<String> = expected.iter().map(|(name, _)| format!("model.model.{name}")).collect();
        failures.extend(require(names == parameter_names(case), || format!("{copy}: names or order differ")));

        let report = convert(&input, &output, which, &expected, &[]).unwrap();
        let fits = report.mapping.prefix == "model.model." && report.tensors == expected.len();
        failures.extend(require(fits, || format!("{copy}: {report}")));
        let buffer = |name: &str| name == "eps" || name.ends_with("resample_filter");
        let ignored = report.mapping.ignored.iter().filter(|(name, _)| !buffer(name));
        failures.extend(ignored.map(|(name, why)| format!("{copy}: {name} ignored, {why}")));
        let file = TensorFile::open(&output).unwrap();
        failures.extend(require(file.shapes().len() == expected.len(), || format!("{copy}: other tensors written")));
        for (name, shape) in expected {
            let values = parameter(&format!("{}{before}model.model.{name}", case.salt), &shape);
            let written = file.read(&name).unwrap();
            failures.extend(require(written == (shape, values), || format!("{copy}: {name} as written")));
        }

        let unet = inferred.config.load(ports, &output, &device).unwrap();
        let heads = nets::preconditioned(case, unet).heads(x.clone(), &case.times(), &Context::default());
        failures.extend(compare::output(case, &format!("phi_{copy}"), &to_host(heads.phi), false));
        failures.extend(compare::output(case, &format!("eps_{copy}"), &to_host(heads.eps), false));
    }
    failures
}

/// The legacy file lacks the decoders: every missing name is listed, an older output stays.
fn incomplete(case: &Case) -> Vec<String> {
    let scratch = tempfile::tempdir().unwrap();
    let output = scratch.path().join("out.safetensors");
    std::fs::write(&output, "older").unwrap();
    let expected = config(case).state_shapes(NetworkPorts::default());
    let result = convert(&case.dir.join("legacy.pt"), &output, Weights::Model, &expected, &[]);
    let error = result.map_or_else(|e| e.to_string(), |report| report.to_string());
    let missing = expected.iter().filter(|(name, _)| name.contains("dec")).count();
    let mut failures: Vec<String> =
        require(error.matches("missing: ").count() == missing, || format!("legacy.pt: {error}")).into_iter().collect();
    let kept = std::fs::read(&output).unwrap() == b"older";
    failures.extend(require(kept, || "a failed conversion replaced its output".into()));
    failures
}

fn hostile(case: &Case) -> Vec<String> {
    let out = tempfile::tempdir().unwrap();
    let mut failures = vec![];
    for (file, global) in [
        ("hostile_raw.pkl", "system"),
        ("hostile_zip.pt", "system"),
        ("hostile_legacy.pt", "system"),
        ("hostile_eval_zip.pt", "eval"),
    ] {
        for (which, ..) in COPIES {
            let result = convert(&case.dir.join(file), &out.path().join("o"), which, &[], &[]);
            let error = result.map_or_else(|e| e.to_string(), |report| report.to_string());
            let named = error.contains("refused") && error.contains(&format!(".{global}\""));
            failures.extend(require(named, || format!("{file}: {error}")));
        }
    }
    failures.extend(require(!Path::new("/tmp/pwned").exists(), || "a hostile file was executed".into()));
    let left = std::fs::read_dir(out.path()).unwrap().count();
    failures.extend(require(left == 0, || "a hostile file left something behind".into()));
    failures
}

fn damaged(case: &Case) -> Vec<String> {
    let mut failures = vec![];
    for file in ["truncated_zip.pt", "truncated_legacy.pt", "short_storage_zip.pt"] {
        let result = read_pt(&case.dir.join(file), Weights::Model);
        let error = result.map_or_else(|e| e.to_string(), |_| "no error".into());
        failures.extend(require(error.contains("damaged"), || format!("{file}: {error}")));
    }
    let scratch = tempfile::tempdir().unwrap();
    let (cut, output) = (scratch.path().join("cut.pt"), scratch.path().join("out.safetensors"));
    for file in ["model-1.pt", "legacy.pt"] {
        let bytes = std::fs::read(case.dir.join(file)).unwrap();
        for sixteenth in 0..16 {
            std::fs::write(&cut, &bytes[..bytes.len() * sixteenth / 16]).unwrap();
            let refused = convert(&cut, &output, Weights::Model, &[], &[]).is_err();
            let clean = std::fs::read_dir(scratch.path()).unwrap().count() == 1;
            failures.extend(require(refused && clean, || format!("{sixteenth}/16 of {file} converted")));
        }
    }
    failures
}

/// With any one byte changed a file may or may not be refused, but nothing panics.
fn changed_bytes(case: &Case) -> Vec<String> {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("changed.pt");
    let mut failures = vec![];
    for file in ["special_zip.pt", "special_legacy.pt"] {
        let bytes = std::fs::read(case.dir.join(file)).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        // patched in place: truncating a file anew for each byte makes the file system flush it
        let mut copy = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut put = |at: usize, byte: u8| {
            copy.seek(SeekFrom::Start(at as u64)).unwrap();
            copy.write_all(&[byte]).unwrap();
        };
        let mut errors = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            put(at, byte ^ [0xff, 0x01, 0x80][at % 3]);
            errors += usize::from(read(&path, Weights::Model).is_err());
            put(at, byte);
        }
        failures.extend(require(errors > bytes.len() / 8, || format!("{file}: only {errors} changes noticed")));
    }
    failures
}
