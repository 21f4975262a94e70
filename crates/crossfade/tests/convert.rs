//! Conversion of checkpoints: files made by hand, hostile and damaged ones.
#![allow(clippy::unwrap_used)]

use crossfade::convert::{InferredUnet, convert, infer_unet, map_names};
use crossfade::nn::{BackboneConfig, Decoders, NetworkPorts, PRESETS, UNetConfig, preset};
use crossfade::torchfile::{Source, TensorF32, Weights, read, read_pt};
use safetensors::SafeTensors;
use std::io::Write;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;

// ---- pickles and containers by hand

fn string(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn int(n: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &n.to_le_bytes()].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(", &items.concat()[..], b"t"].concat()
}

fn ints(dims: &[i64]) -> Vec<u8> {
    tuple(&dims.iter().map(|&d| int(d)).collect::<Vec<_>>())
}

/// A tensor on storage `key` of `numel` elements.
fn tensor(class: &str, key: &str, numel: i64, shape: &[i64], stride: &[i64]) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n").into_bytes();
    let id = [tuple(&[string("storage"), class, string(key), string("cpu"), int(numel)]), b"Q".to_vec()].concat();
    let hooks = b"ccollections\nOrderedDict\n)R".to_vec();
    let args = tuple(&[id, int(0), ints(shape), ints(stride), vec![0x89], hooks]);
    [b"ctorch._utils\n_rebuild_tensor_v2\n", &args[..], b"R"].concat()
}

fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<u8> = entries.iter().flat_map(|(k, v)| [string(k), v.clone()].concat()).collect();
    [b"}(", &items[..], b"u"].concat()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn write_zip(path: &Path, root: &[u8], storages: &[(&str, Vec<u8>)]) {
    let pickle = [b"\x80\x02", root, b"."].concat();
    let mut entries = vec![("archive/data.pkl".to_string(), pickle)];
    entries.extend(storages.iter().map(|(key, bytes)| (format!("archive/data/{key}"), bytes.clone())));
    write_entries(path, &entries, zip::CompressionMethod::Stored);
}

fn write_entries(path: &Path, entries: &[(String, Vec<u8>)], method: zip::CompressionMethod) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in entries {
        zip.start_file(name.as_str(), SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

fn refused(path: &Path, root: &[u8], storages: &[(&str, Vec<u8>)]) -> String {
    write_zip(path, root, storages);
    read_pt(path, Weights::Model).unwrap_err().to_string()
}

/// A small "network", w [2,3] and b [2], with the buffer eps: its state dict and its storages.
fn small(prefix: &str, scale: f32) -> (Vec<u8>, Vec<(&'static str, Vec<u8>)>) {
    let root = dict(&[
        (&format!("{prefix}w"), tensor("FloatStorage", "0", 6, &[2, 3], &[3, 1])),
        (&format!("{prefix}b"), tensor("FloatStorage", "1", 2, &[2], &[1])),
        ("eps", tensor("FloatStorage", "2", 1, &[], &[])),
    ]);
    let w: Vec<f32> = (0..6).map(|i| scale * i as f32).collect();
    (root, vec![("0", floats(&w)), ("1", floats(&[scale, -scale])), ("2", floats(&[1e-4]))])
}

fn small_expected() -> Vec<(String, Vec<usize>)> {
    vec![("w".into(), vec![2, 3]), ("b".into(), vec![2])]
}

fn listing(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

// ---- where the state dict lies

#[test]
fn state_dicts_are_found_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let (inner, storages) = small("model.model.", 0.5);
    let under = |key: &str| dict(&[(key, inner.clone()), ("step", int(77)), ("epoch", b"N".to_vec())]);
    for (root, step) in [(inner.clone(), None), (under("model"), Some(77)), (under("state_dict"), Some(77))] {
        write_zip(&path, &root, &storages);
        let source = read_pt(&path, Weights::Model).unwrap();
        assert_eq!(source.step, step);
        assert_eq!(source.tensors["model.model.w"].data, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(source.tensors["eps"].shape, [0usize; 0]);
        let error = read_pt(&path, Weights::Ema).unwrap_err().to_string();
        assert!(error.contains("holds no EMA weights"), "{error}");
    }
}

#[test]
fn both_copies_of_an_ema_file_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let at = |key: &str| tensor("FloatStorage", key, 1, &[1], &[1]);
    let ema = dict(&[("initted", at("0")), ("online_model.w", at("1")), ("ema_model.w", at("2"))]);
    let storages = [("0", floats(&[1.0])), ("1", floats(&[2.0])), ("2", floats(&[3.0])), ("3", floats(&[4.0]))];
    let trainer = dict(&[("model", dict(&[("w", at("3"))])), ("ema", ema.clone()), ("scaler", b"N".to_vec())]);
    for (root, model) in [(ema, 2.0), (trainer, 4.0)] {
        write_zip(&path, &root, &storages);
        assert_eq!(read_pt(&path, Weights::Ema).unwrap().tensors["w"].data, [3.0]);
        let source = read_pt(&path, Weights::Model).unwrap();
        assert_eq!(source.tensors["w"].data, [model]);
        assert_eq!(source.tensors.len(), 1);
    }
}

#[test]
fn what_is_no_checkpoint_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    for bytes in [&b""[..], b"hello world", b"\x89PNG\r\n\x1a\n0000000", b"\x80\x02}."] {
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path, Weights::Model).unwrap_err().to_string();
        assert!(error.contains("not a checkpoint") || error.contains("a plain pickle"), "{error}");
    }
    let tar = [&[b'x'; 257][..], b"ustar", &[0; 300]].concat();
    std::fs::write(&path, tar).unwrap();
    assert!(read(&path, Weights::Model).unwrap_err().to_string().contains("a tar container"));

    assert!(refused(&path, b"]", &[]).contains("no dictionary"));
    assert!(refused(&path, &dict(&[("config", int(3))]), &[]).contains("its keys: config"));
    let one = || tensor("FloatStorage", "0", 1, &[1], &[1]);
    let nested = dict(&[("a", dict(&[("w", one())])), ("a.w", one())]);
    assert!(refused(&path, &nested, &[("0", floats(&[1.0]))]).contains("not a state dict"));
    assert!(read_pt(dir.path(), Weights::Model).is_err());
    assert!(read_pt(&dir.path().join("absent.pt"), Weights::Model).is_err());
}

// ---- hostile files

#[test]
fn foreign_globals_are_refused_wherever_they_hide() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let (weights, storages) = small("", 1.0);
    let marker = dir.path().join("executed");
    let call = [b"cposix\nsystem\n", &tuple(&[string(&format!("touch {}", marker.display()))])[..], b"R"].concat();
    let hidden = [call.clone(), [b"]", &call[..], b"a"].concat(), dict(&[("state", call.clone())])];
    for value in hidden {
        let error = refused(&path, &dict(&[("model", weights.clone()), ("opt", value)]), &storages);
        assert!(error.contains("posix.system"), "{error}");
    }
    let sparse = b"ctorch._utils\n_rebuild_sparse_tensor\n)R".to_vec();
    assert!(refused(&path, &dict(&[("w", sparse)]), &[]).contains("sparse"));
    let complex = tensor("ComplexFloatStorage", "0", 1, &[1], &[1]);
    assert!(refused(&path, &dict(&[("w", complex)]), &[]).contains("torch.ComplexFloatStorage"));
    assert!(!marker.exists());
}

#[test]
fn claims_beyond_the_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let claim = |numel, shape: &[i64], stride: &[i64], why: &str| {
        let w = tensor("FloatStorage", "0", numel, shape, stride);
        let error = refused(&path, &dict(&[("w", w)]), &[("0", floats(&[1.0, 2.0]))]);
        assert!(error.contains(why), "{why}: {error}");
    };
    // expanded views: one stored value, a huge tensor
    claim(2, &[1 << 28], &[0], "claim");
    claim(2, &[(1 << 31) + 1], &[0], "more than");
    claim(2, &[1 << 40], &[0], "damaged");
    claim(2, &[i64::MAX, i64::MAX], &[1, 1], "overflow");
    // declared larger than stored, negative, or read beyond the declaration
    claim(i64::MAX, &[4], &[1], "overflow");
    claim(4, &[4], &[1], "only 2");
    claim(-4, &[4], &[1], "non-negative");
    claim(2, &[2], &[9], "declares 2");
    let absent = dict(&[("w", tensor("FloatStorage", "7", 2, &[2], &[1]))]);
    assert!(refused(&path, &absent, &[]).contains("not found"));
}

#[test]
fn bombs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let nested = [&b"]"[..], &[0x85; 5000]].concat();
    assert!(refused(&path, &nested, &[]).contains("nesting of a pickle"));
    // each round doubles the tree: shallow enough for the scan, stopped by the reader's copy budget
    let doubled = [&b"\x89q\x00"[..], &b"h\x00h\x00\x86q\x00".repeat(40)].concat();
    assert!(refused(&path, &doubled, &[]).contains("bomb"));
    let many = [&b"]("[..], &b"N".repeat(3_000_000), b"e"].concat();
    assert!(refused(&path, &many, &[]).contains("opcodes"));

    let error = |entries: &[(&str, Vec<u8>)], method| {
        let entries: Vec<_> = entries.iter().map(|(name, bytes)| (name.to_string(), bytes.clone())).collect();
        write_entries(&path, &entries, method);
        read_pt(&path, Weights::Model).unwrap_err().to_string()
    };
    let pickle = || b"\x80\x02}.".to_vec();
    let stored = zip::CompressionMethod::Stored;
    assert!(error(&[("a/data.pkl", pickle()), ("data.pkl", pickle())], stored).contains("2 data.pkl"));
    assert!(error(&[("a/xdata.pkl", pickle())], stored).contains("0 data.pkl"));
    // 65 MiB of zeros in 64 KiB
    let zeros = error(&[("a/data.pkl", vec![0; 65 << 20])], zip::CompressionMethod::Deflated);
    assert!(zeros.contains("pickle of a PyTorch file"), "{zeros}");
}

// ---- conversion

#[test]
fn conversion_round_trips_and_is_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("a.pt"), dir.path().join("a.safetensors"));
    let (root, storages) = small("model.model.", 0.25);
    write_zip(&input, &dict(&[("model", root), ("step", int(9))]), &storages);
    let metadata: Vec<(String, String)> = (0..9).map(|i| (format!("key{i}"), format!("value {i}"))).collect();
    let report = convert(&input, &output, Weights::Model, &small_expected(), &metadata).unwrap();
    assert_eq!((report.tensors, report.parameters, report.step), (2, 8, Some(9)));
    assert!(report.to_string().contains("1 ignored (smallest time"), "{report}");
    assert_eq!(serde_json::to_value(&report).unwrap()["ignored"][0][0], "eps");

    let bytes = std::fs::read(&output).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.len(), 2);
    assert_eq!(file.tensor("b").unwrap().data(), floats(&[0.25, -0.25]));
    assert_eq!(file.tensor("w").unwrap().shape(), [2, 3]);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.offset_keys(), ["b", "w"]);
    // Nine notes, the format and the checksum.
    let notes = header.metadata().clone().unwrap();
    assert_eq!((notes["format"].as_str(), notes["key3"].as_str(), notes.len()), ("pt", "value 3", 11));

    // from the converted file, and once more over an existing one: the same bytes
    let again = dir.path().join("b.safetensors");
    convert(&output, &again, Weights::Model, &small_expected(), &metadata).unwrap();
    assert_eq!(std::fs::read(&again).unwrap(), bytes);
    convert(&input, &again, Weights::Model, &small_expected(), &metadata).unwrap();
    assert_eq!(std::fs::read(&again).unwrap(), bytes);
    assert_eq!(listing(dir.path()).len(), 3);
}

#[test]
fn failed_conversions_leave_nothing_behind() {
    let (dir, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (input, output) = (dir.path().join("a.pt"), out.path().join("a.safetensors"));
    let (root, storages) = small("", 1.0);
    write_zip(&input, &root, &storages);
    let mut expected = small_expected();
    expected[0].1 = vec![3, 2];
    expected.extend([("c".to_string(), vec![1]), ("d".to_string(), vec![2])]);
    let error = convert(&input, &output, Weights::Model, &expected, &[]).unwrap_err().to_string();
    for part in ["a.pt", "3 parameters", "missing: c", "missing: d", "w is [2, 3] in the file, [3, 2] in the network"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(convert(&input, &output, Weights::Ema, &small_expected(), &[]).is_err());
    let mut broken = storages.clone();
    broken[1].1 = floats(&[f32::NAN, 0.0]);
    write_zip(&input, &root, &broken);
    let error = convert(&input, &output, Weights::Model, &small_expected(), &[]).unwrap_err().to_string();
    assert!(error.contains("not finite: b"), "{error}");
    assert!(listing(out.path()).is_empty());

    write_zip(&input, &root, &storages);
    let before = std::fs::read(&input).unwrap();
    assert!(convert(&input, &input, Weights::Model, &small_expected(), &[]).is_err());
    assert_eq!(std::fs::read(&input).unwrap(), before);
    assert!(convert(&input, &out.path().join("absent/a"), Weights::Model, &small_expected(), &[]).is_err());
    // a directory stands where the file should go: the rename fails, the partial file goes
    std::fs::create_dir(&output).unwrap();
    assert!(convert(&input, &output, Weights::Model, &small_expected(), &[]).is_err());
    assert_eq!(listing(out.path()), [output]);
}

#[test]
fn damaged_safetensors_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("a.pt"), dir.path().join("a.safetensors"));
    let (root, storages) = small("", 1.0);
    write_zip(&input, &root, &storages);
    convert(&input, &output, Weights::Model, &small_expected(), &[]).unwrap();
    let bytes = std::fs::read(&output).unwrap();
    assert!(read_pt(&output, Weights::Model).unwrap_err().to_string().contains("a safetensors file"));
    for length in 0..bytes.len() {
        std::fs::write(&output, &bytes[..length]).unwrap();
        assert!(read(&output, Weights::Model).is_err(), "{length}");
    }
    std::fs::write(&output, [&(u64::MAX / 2).to_le_bytes()[..], &bytes[8..]].concat()).unwrap();
    assert!(read(&output, Weights::Model).is_err());
}

#[test]
fn networks_that_are_no_unconditional_unet_are_not_inferred() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let (root, storages) = small("", 1.0);
    write_zip(&path, &root, &storages);
    let source = read_pt(&path, Weights::Model).unwrap();
    assert!(infer_unet(&source).unwrap_err().to_string().contains("map_layer0.weight"));
    assert_eq!(map_names(&source, &small_expected()).mapped.len(), 2);
}

#[test]
fn every_preset_is_inferred_from_its_names() {
    let source = |config: &UNetConfig, phi_parts| {
        let tensor = |(name, shape): (String, Vec<usize>)| {
            (format!("model.{name}"), TensorF32 { shape, data: vec![], dtype: "f32" })
        };
        let tensors = config.state_shapes(NetworkPorts::with_phi_parts(phi_parts)).into_iter().map(tensor).collect();
        Source { tensors, step: None, weights: Weights::Model }
    };
    let presets = PRESETS.iter().map(|name| preset(name).unwrap());
    for config in presets.chain([UNetConfig { decoders: Decoders::Conv, ..preset("tiny").unwrap() }]) {
        for phi_parts in [1, 2] {
            let found = infer_unet(&source(&config, phi_parts)).unwrap();
            let config = UNetConfig { dropout: UNetConfig::default().dropout, ..config.clone() };
            assert_eq!(found, InferredUnet { config, phi_parts });
        }
    }
    // absurd sizes are refused before anything is computed with them
    let absurd = |name: &str, shape: &[usize]| {
        let mut source = source(&preset("tiny").unwrap(), 1);
        source.tensors.get_mut(name).unwrap().shape = shape.to_vec();
        infer_unet(&source).unwrap_err().to_string()
    };
    assert!(absurd("model.map_layer0.weight", &[0, 1 << 63]).contains("expected [4M, M]"));
    assert!(absurd("model.enc.16x16_block0.conv0.weight", &[1 << 62, 0, 0, 0]).contains("mult: must be at most"));
}
