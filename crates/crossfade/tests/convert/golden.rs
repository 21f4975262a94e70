//! The reference's files: exact values by the formula of the golden set, hostile and damaged files.
use crossfade::convert::{InferredUnet, Source, TensorF32, Weights, convert, infer_unet, read, read_pt};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

fn golden(case: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/golden/public");
    let root = std::env::var("CROSSFADE_GOLDEN").unwrap_or_else(|_| default.to_string());
    let dir = Path::new(&root).join(case);
    if !dir.is_dir() {
        eprintln!("skipped: no golden case {case}; set CROSSFADE_GOLDEN to its directory");
        return None;
    }
    Some(dir)
}

fn case_json(dir: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("case.json")).unwrap()).unwrap()
}

/// u of the golden set's README, section 1.
fn u(name: &str, i: u64) -> f64 {
    let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(1_099_511_628_211);
    let h = name.bytes().fold(14_695_981_039_346_656_037, fnv);
    let mut s = h.wrapping_add(i).wrapping_add(0x9E37_79B9_7F4A_7C15);
    s = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    s = (s ^ (s >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    s ^= s >> 31;
    (s >> 11) as f64 * 2f64.powi(-53) * 2.0 - 1.0
}

/// The parameter rule of the same section, for the names of unconditional nets.
fn parameter(hashed: &str, shape: &[usize]) -> Vec<f32> {
    let value = |i: usize| match shape {
        [_] if hashed.ends_with("weight") => 1.0 + 0.1 * u(hashed, i as u64),
        [_] => 0.1 * u(hashed, i as u64),
        _ => u(hashed, i as u64) * (3.0 / shape[1..].iter().product::<usize>() as f64).sqrt(),
    };
    (0..shape.iter().product()).map(|i| value(i) as f32).collect()
}

/// Every tensor follows the formula, except the buffers that the constructor fills; returns how many follow it.
fn check_formula(source: &Source, hashed_prefix: &str) -> usize {
    let mut checked = 0;
    for (name, tensor) in &source.tensors {
        if name == "eps" {
            assert_eq!((tensor.shape.len(), tensor.data.as_slice()), (0, &[1e-4f32][..]));
        } else if name.ends_with("resample_filter") {
            assert_eq!(tensor.data, [0.25; 4], "{name}");
        } else {
            assert_eq!(tensor.data, parameter(&format!("{hashed_prefix}{name}"), &tensor.shape), "{name}");
            checked += 1;
        }
    }
    checked
}

fn parameter_names(case: &Value) -> Vec<String> {
    let names = case["optimizer_param_order"].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap().to_string()).collect()
}

/// The parameters of the case's network; shapes as the file has them, whose values the formula has confirmed.
fn expected(case: &Value, source: &Source) -> Vec<(String, Vec<usize>)> {
    let inner = |name: &String| name.strip_prefix("model.model.").unwrap().to_string();
    parameter_names(case).iter().map(|name| (inner(name), source.tensors[name].shape.clone())).collect()
}

#[test]
fn golden_formula_is_the_readme_s() {
    assert_eq!(u("x", 0), -0.5975834313129111);
    assert_eq!(u("x", 2), 0.8816097008060189);
}

#[test]
fn golden_trainer_checkpoint_has_the_formula_s_values() {
    let Some(dir) = golden("checkpoint") else { return };
    let case = case_json(&dir);
    let salt = case["salt"].as_str().unwrap();
    let parameters = parameter_names(&case).len();
    let path = dir.join("model-1.pt");
    let model = read_pt(&path, Weights::Model).unwrap();
    assert_eq!(model.step, Some(3));
    assert_eq!(model.tensors.len() as u64, case["keys"]["model_count"].as_u64().unwrap());
    assert_eq!(check_formula(&model, salt), parameters);
    let ema = read_pt(&path, Weights::Ema).unwrap();
    assert_eq!(ema.tensors.keys().collect::<Vec<_>>(), model.tensors.keys().collect::<Vec<_>>());
    assert_eq!(check_formula(&ema, &format!("{salt}ema.")), parameters);

    let legacy = read_pt(&dir.join("legacy.pt"), Weights::Model).unwrap();
    let kept: BTreeMap<_, _> = model.tensors.into_iter().filter(|(name, _)| !name.contains("dec")).collect();
    assert_eq!(legacy.tensors, kept);
    assert!(read_pt(&dir.join("legacy.pt"), Weights::Ema).unwrap_err().to_string().contains("no EMA"));
}

#[test]
fn golden_special_tensors_are_exact() {
    let Some(dir) = golden("checkpoint") else { return };
    let name = format!("{}base", case_json(&dir)["salt"].as_str().unwrap());
    let base: Vec<f32> = (0..48).map(|i| (3f64.sqrt() * u(&name, i)) as f32).collect();
    // bfloat16 by rounding to nearest, ties to even
    let bf16 = |v: &f32| {
        let bits = v.to_bits();
        f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    };
    for file in ["special_zip.pt", "special_legacy.pt"] {
        let tensors = read_pt(&dir.join(file), Weights::Model).unwrap().tensors;
        let check = |name: &str, dtype: &str, shape: &[usize], data: &[f32]| {
            let tensor = &tensors[name];
            assert_eq!((tensor.dtype, tensor.shape.as_slice()), (dtype, shape), "{file} {name}");
            assert_eq!(tensor.data, data, "{file} {name}");
        };
        check("base", "f32", &[6, 8], &base);
        check("view_rows", "f32", &[2, 8], &base[16..32]);
        let transposed: Vec<f32> = (0..48).map(|i| base[i % 6 * 8 + i / 6]).collect();
        check("transposed", "f32", &[8, 6], &transposed);
        check("f64", "f64", &[6, 8], &base);
        check("bf16", "bf16", &[6, 8], &base.iter().map(bf16).collect::<Vec<_>>());
        check("i64", "i64", &[5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
        let positive: Vec<f32> = base[..8].iter().map(|&v| f32::from(u8::from(v > 0.0))).collect();
        check("bool", "bool", &[8], &positive);
        check("scalar", "f32", &[], &[0.165]);
        check("empty", "f32", &[0, 3], &[]);
        check("param", "f32", &[8], &base[..8]);
        // half: within half a unit in the last place, on the grid of 11 significant bits
        let half = &tensors["half"];
        assert_eq!((half.dtype, half.shape.as_slice()), ("f16", &[6, 8][..]));
        for (h, b) in half.data.iter().zip(&base) {
            let unit = 2f32.powi(b.abs().log2().floor().max(-14.0) as i32 - 10);
            assert!((h - b).abs() <= unit / 2.0 && (h / unit).fract() == 0.0, "{h} {b}");
        }
    }
}

#[test]
fn golden_hostile_files_are_refused_by_name() {
    let Some(dir) = golden("checkpoint") else { return };
    let out = tempfile::tempdir().unwrap();
    for (file, global) in [
        ("hostile_raw.pkl", "system"),
        ("hostile_zip.pt", "system"),
        ("hostile_legacy.pt", "system"),
        ("hostile_eval_zip.pt", "eval"),
    ] {
        for which in [Weights::Model, Weights::Ema] {
            let error = convert(&dir.join(file), &out.path().join("o"), which, &[], &[]).unwrap_err().to_string();
            assert!(error.contains("refused") && error.contains(&format!(".{global}\"")), "{error}");
        }
    }
    assert!(!Path::new("/tmp/pwned").exists());
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn golden_damaged_files_are_errors() {
    let Some(dir) = golden("checkpoint") else { return };
    for file in ["truncated_zip.pt", "truncated_legacy.pt", "short_storage_zip.pt"] {
        let error = read_pt(&dir.join(file), Weights::Model).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{file}: {error}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let (cut, output) = (scratch.path().join("cut.pt"), scratch.path().join("out.safetensors"));
    for file in ["model-1.pt", "legacy.pt"] {
        let bytes = std::fs::read(dir.join(file)).unwrap();
        for sixteenth in 0..16 {
            std::fs::write(&cut, &bytes[..bytes.len() * sixteenth / 16]).unwrap();
            assert!(convert(&cut, &output, Weights::Model, &[], &[]).is_err(), "{file} {sixteenth}/16");
            assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        }
    }
}

#[test]
fn golden_files_with_any_one_byte_changed_never_panic() {
    let Some(dir) = golden("checkpoint") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("changed.pt");
    for file in ["special_zip.pt", "special_legacy.pt"] {
        let bytes = std::fs::read(dir.join(file)).unwrap();
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
        assert!(errors > bytes.len() / 8, "{file}: only {errors} changes noticed");
    }
}

#[test]
fn golden_conversion_writes_the_chosen_copy() {
    let Some(dir) = golden("checkpoint") else { return };
    let case = case_json(&dir);
    let scratch = tempfile::tempdir().unwrap();
    let (input, output) = (dir.join("model-1.pt"), scratch.path().join("out.safetensors"));
    let expected = expected(&case, &read_pt(&input, Weights::Model).unwrap());
    for (which, prefix) in [(Weights::Model, ""), (Weights::Ema, "ema.")] {
        let report = convert(&input, &output, which, &expected, &[]).unwrap();
        assert_eq!(report.mapping.prefix, "model.model.");
        assert_eq!(report.tensors, expected.len());
        assert!(report.mapping.ignored.iter().all(|(name, _)| name == "eps" || name.ends_with("resample_filter")));
        let bytes = std::fs::read(&output).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.len(), expected.len());
        for (name, shape) in &expected {
            let hashed = format!("{}{prefix}model.model.{name}", case["salt"].as_str().unwrap());
            let values: Vec<u8> = parameter(&hashed, shape).iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(file.tensor(name).unwrap().data(), values, "{name}");
        }
    }
    // the legacy file lacks the decoders: every missing name is listed, the old output stays
    let before = std::fs::read(&output).unwrap();
    let error = convert(&dir.join("legacy.pt"), &output, Weights::Model, &expected, &[]).unwrap_err().to_string();
    let missing = expected.iter().filter(|(name, _)| name.contains("dec")).count();
    assert_eq!(error.matches("missing: ").count(), missing);
    assert_eq!(std::fs::read(&output).unwrap(), before);
}

#[test]
fn golden_checkpoint_tells_its_network() {
    let Some(dir) = golden("checkpoint") else { return };
    let settings = &case_json(&dir)["unet_settings"];
    let number = |key: &str| settings[key].as_u64().unwrap() as usize;
    let numbers = |key: &str| -> Vec<usize> {
        settings[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
    };
    let (mult, width, resolution) = (numbers("channel_mult"), number("model_channels"), number("img_resolution"));
    let asked = numbers("attn_resolutions");
    // below 64 channels there is no attention, whatever was asked for
    let level = |l: &usize| asked.contains(&(resolution >> l)) && mult[*l] * width >= 64;
    for which in [Weights::Model, Weights::Ema] {
        let inferred = infer_unet(&read_pt(&dir.join("model-1.pt"), which).unwrap()).unwrap();
        let expected = InferredUnet {
            resolution,
            channels: number("img_channels"),
            width,
            mult: mult.clone(),
            blocks: number("num_blocks"),
            attention: (0..mult.len()).filter(level).map(|l| resolution >> l).collect(),
            two_decoders: true,
            augment_dim: number("augment_dim"),
            phi_parts: 1,
        };
        assert_eq!(inferred, expected);
    }
}

/// Names and shapes of a full-size net, without values.
fn shapes_only(path: &Path) -> Source {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let tensor = |line: &str| {
        let (name, shape) = line.split_once(' ').unwrap();
        let shape: Vec<usize> = serde_json::from_str(shape).unwrap();
        (name.to_string(), TensorF32 { shape, data: Vec::new(), dtype: "f32" })
    };
    Source { tensors: text.lines().map(tensor).collect(), step: None, weights: Weights::Model }
}

#[test]
fn golden_full_size_networks_are_inferred() {
    let Some(dir) = golden("constructors") else { return };
    let cifar = InferredUnet {
        resolution: 32,
        channels: 3,
        width: 192,
        mult: vec![1, 2, 2, 2],
        blocks: 3,
        attention: vec![16, 8],
        two_decoders: true,
        augment_dim: 9,
        phi_parts: 1,
    };
    let celeba = InferredUnet {
        resolution: 64,
        width: 96,
        mult: vec![1, 2, 3, 4],
        attention: vec![32, 16],
        augment_dim: 0,
        ..cifar.clone()
    };
    let single = InferredUnet { width: 160, two_decoders: false, ..cifar.clone() };
    for (file, expected) in [("two_m192_cifar", cifar), ("two_m96_celeba", celeba), ("sd2_m160_cifar", single)] {
        let path = dir.join(format!("{file}.txt.gz"));
        if !path.exists() {
            eprintln!("skipped: no {file} in this golden set");
            continue;
        }
        let inferred = infer_unet(&shapes_only(&path)).unwrap();
        assert_eq!(inferred, expected, "{file}");
    }
    for file in ["cond_two_d128_sr", "ae_f4_rgb_z3"] {
        let path = dir.join(format!("{file}.txt.gz"));
        assert!(!path.exists() || infer_unet(&shapes_only(&path)).is_err(), "{file}");
    }
}
