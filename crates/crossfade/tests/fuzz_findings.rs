//! What fuzzing and reading for it have found, with the inputs: each of them ended the program, took gigabytes or did not end.
#![allow(clippy::unwrap_used)]
use crossfade::config::RunConfig;
use crossfade::data::cifar10::Cifar10;
use crossfade::data::mat::parse_mat;
use crossfade::data::{Dataset, Split};
use crossfade::engine::Device;
use crossfade::metrics::Raster;
use crossfade::metrics::edges::ground_truth::load_detection;
use crossfade::metrics::features::Statistics;
use crossfade::nn::BackboneConfig;
use crossfade::tensorfile::save_tensors;
use crossfade::{Checkpoint, Weights, limits};
use std::io::Write;
use std::path::Path;

fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// An array of a MATLAB file.
fn matrix(class: u32, dims: &[u32], name: &str, rest: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
    let flags = [class.to_le_bytes(), [0; 4]].concat();
    element(14, &[element(6, &flags), element(5, &dims), element(1, name.as_bytes()), rest.to_vec()].concat())
}

/// A MATLAB file with a compressed variable.
fn mat(variable: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b' '; 128];
    bytes[124..].copy_from_slice(&[0, 1, b'I', b'M']);
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(variable).unwrap();
    let packed = encoder.finish().unwrap();
    bytes.extend([15u32.to_le_bytes(), (packed.len() as u32).to_le_bytes()].concat());
    bytes.extend(packed);
    bytes
}

fn refused(bytes: &[u8]) -> String {
    parse_mat(bytes, "a.mat").unwrap_err().to_string()
}

/// Elements without fields take no bytes, so that their number was not bounded by the file: 272 bytes became 1.6 GB.
#[test]
fn a_structure_of_nothing_takes_no_memory() {
    let names = [element(5, &40u32.to_le_bytes()), element(1, b"ab")].concat();
    let found = parse_mat(&mat(&matrix(2, &[8192, 8191], "s", &names)), "a.mat").unwrap();
    assert_eq!(format!("{:?}", found[0].1), "Struct([])");
}

/// Every element of a structure has copies of the names of its fields: 1.3 kB became 4 GB.
#[test]
fn names_of_fields_are_short() {
    let values = element(14, b"").repeat(4000);
    let names = [element(5, &(1u32 << 20).to_le_bytes()), element(1, &vec![b'x'; 1 << 20]), values].concat();
    assert!(refused(&mat(&matrix(2, &[4000, 1], "s", &names))).contains("field names"));
}

/// An empty array takes 8 bytes of the file and more than ten times as much in memory: 90 kB became 0.9 GB.
#[test]
fn arrays_and_numbers_of_a_file_are_counted() {
    let cells = |count: u32| matrix(1, &[count, 1], "c", &element(14, b"").repeat(count as usize));
    parse_mat(&mat(&cells(1000)), "a.mat").unwrap();
    assert!(refused(&mat(&cells(limits::MAT_ARRAYS.max as u32))).contains("arrays"));
    let side = limits::MAT_NUMBERS.max as u32 + 1;
    let bytes = vec![0; side as usize];
    assert!(refused(&mat(&matrix(6, &[side, 1], "n", &element(2, &bytes)))).contains("numbers"));
}

/// A map above the limit was copied row by row before it was refused.
#[test]
fn a_large_map_is_refused_before_it_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mat");
    let side = limits::MAP_PIXELS.max as u32 + 1;
    let map = matrix(6, &[side, 1], "ucm2", &element(2, &vec![0; side as usize]));
    std::fs::write(&path, mat(&map)).unwrap();
    assert!(load_detection(&path).unwrap_err().to_string().contains(&format!("[{side}, 1]")));
}

/// The memo of a pickle kept a copy of a list for each time that it was stored: 5 bytes became as much as the list.
#[test]
fn lists_in_the_memo_of_a_batch_are_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let mut pickle = b"\x80\x02}q\x01(U\x06labels](".to_vec();
    pickle.extend(b"K\x01".repeat(1_000_000));
    pickle.push(b'e');
    (0..900_000u32).for_each(|k| pickle.extend([&b"r"[..], &k.to_le_bytes()].concat()));
    pickle.extend(b"u.");
    std::fs::write(dir.path().join("data_batch_1"), pickle).unwrap();
    let error = Cifar10::open(dir.path(), Split::Train).map(|set| set.len()).unwrap_err().to_string();
    assert!(error.contains("no array under the key"), "{error}");
}

fn npz(path: &Path, header: &[u8]) -> String {
    let mut writer = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for name in ["mu", "sigma"] {
        writer.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(header).unwrap();
    }
    writer.finish().unwrap();
    Statistics::load(path).map(|_| ()).unwrap_err().to_string()
}

/// A parser of headers tried every bracket twice, so that 18 of them took two seconds and 40 for ever. And it allocated what
/// the file says. The same header begins a file that is compared as an image.
#[test]
fn headers_of_arrays_are_flat_and_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    for depth in [5, 40, 60_000] {
        for text in ["(", "[", "{", "{'descr': "] {
            let text = text.repeat(depth).into_bytes();
            let header = [b"\x93NUMPY\x02\x00", &(text.len() as u32).to_le_bytes()[..], &text].concat();
            let image = dir.path().join("a.npy");
            std::fs::write(&image, &header).unwrap();
            for error in [npz(&path, &header), Raster::load(&image).unwrap_err().to_string()] {
                assert!(error.contains("its header is another one") || error.contains("limit"), "{error}");
            }
        }
    }
    assert!(npz(&path, b"\x93NUMPY\x02\x00\xff\xff\xff\xff{").contains("4294967295 is more than the limit of 64 KiB"));
    assert!(npz(&path, b"\x93NUM").contains("no array of NumPy"));
}

/// The parser of TOML limits the parts of a key, but an assignment is split here: 120 kB of them overflowed the stack.
#[test]
fn long_keys_of_assignments_are_refused() {
    let long = "a.".repeat(100_000);
    let error = RunConfig::default().with_overrides(&[format!("{long}a=1")]).unwrap_err().to_string();
    assert!(error.contains("nesting of a configuration"), "{error:.200}");
    for text in [format!("{long}a = 1"), format!("[{long}a]"), format!("x = {{{long}a = 1}}"), format!("[[{long}a]]")] {
        let error = RunConfig::parse(&text, "here.toml").unwrap_err().to_string();
        assert!(error.contains("here.toml"), "{error:.200}");
    }
    // Dots of a value are none of its key.
    let up = format!("data.path={}x", "../".repeat(20));
    let error = RunConfig::default().with_overrides(&[up]).map(|_| ()).unwrap_err().to_string();
    assert!(!error.contains("nesting"), "{error}");
}

/// The configuration of an autoencoder inside a checkpoint was parsed without a limit.
#[test]
fn the_autoencoder_of_a_checkpoint_is_limited_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let mut notes = crossfade::checkpoint::metadata(&RunConfig::default(), 1).unwrap();
    notes.insert("first_stage".into(), " ".repeat(limits::CONFIG.size() + 1));
    save_tensors(&path, &[("scale_factor".into(), vec![1], vec![1.0])], &notes).unwrap();
    let error = Checkpoint::open(&path).unwrap().first_stage().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("a.safetensors") && error.contains("256 KiB"), "{error}");
}

/// Options that a kind without options ignores were tried one by one, each with a copy of all of them: 110 kB took more than a
/// minute.
#[test]
fn ignored_keys_are_not_all_tried() {
    let keys: String = (0..limits::CONFIG_KEYS.max - 10).map(|k| format!("k{k} = 1\n")).collect();
    let error = RunConfig::parse(&format!("[sample.grid]\nkind = \"uniform-t\"\n{keys}"), "here.toml");
    let lines = error.unwrap_err().to_string().lines().count();
    assert!((2..=60).contains(&lines), "{lines} lines");
}

/// Every key was kept with the names of its sections, so that 256 kB of them became 2 GB before they were counted.
#[test]
fn long_names_of_sections_are_refused_before_their_keys_are_kept() {
    let keys: String = (0..20_000).map(|k| format!("a{k}=1\n")).collect();
    let name = "s".repeat(limits::CONFIG.size() - keys.len() - 10);
    let error = RunConfig::parse(&format!("[{name}]\n{keys}"), "here.toml").unwrap_err().to_string();
    assert!(error.contains(limits::CONFIG_KEY.name), "{error:.200}");
}

/// The number of images that a run has seen is computed from its step.
#[test]
fn an_absurd_step_of_a_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let write = |step: u64| {
        let notes = crossfade::checkpoint::metadata(&RunConfig::default(), step).unwrap();
        save_tensors(&path, &[("mean_x0".into(), vec![1], vec![1.0])], &notes).unwrap();
        Checkpoint::open(&path).map(|found| found.step)
    };
    assert_eq!(write(limits::STEPS.max).unwrap(), limits::STEPS.max);
    for step in [limits::STEPS.max + 1, u64::MAX] {
        let error = write(step).unwrap_err().to_string();
        assert!(error.contains("a.safetensors") && error.contains(limits::STEPS.name), "{error}");
    }
}

/// A file with holes takes no space on a disk; its tensors were read before their shapes were compared with the network's.
#[test]
fn weights_of_another_size_are_refused_before_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let mut notes = crossfade::checkpoint::metadata(&RunConfig::default(), 1).unwrap();
    notes.insert("crc32".into(), "00000000".into());
    let network = &RunConfig::default().network;
    let (name, shape) = network.state_shapes(RunConfig::default().ports()).swap_remove(0);
    let size: usize = 1 << 32;
    let entry = serde_json::json!({ "dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size] });
    let header = serde_json::json!({ "__metadata__": notes, name.clone(): entry }).to_string();
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 + header.len() as u64 + 4 * size as u64).unwrap();
    let opened = Checkpoint::open(&path).unwrap();
    let error = opened.denoiser(Weights::Ema, &Device::flex()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("a.safetensors") && error.contains(&name), "{error}");
    assert!(error.contains(&format!("[{size}], not {shape:?}")), "{error}");
}
