//! What files and numbers that nobody vouches for can cause, as classes: every reader has limits, every path is printed in one
//! way, decoders cannot end the program. `D1` to `D18` are the defects that an attack found.
#![allow(clippy::unwrap_used)]
use crossfade::config::{RunConfig, is_autoencoder};
use crossfade::data::{Image, Image16, LabelMap, dimensions, png_text};
use crossfade::limits;
use crossfade::metrics::features::{Frechet, Gaussian, Statistics};
use crossfade::tensorfile::{TensorFile, save_tensors};
use std::io::Write;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The code of every source file, without comments and unit tests, with its name below `crates`.
fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") && path.file_stem().is_some_and(|s| s != "tests") {
                found.push(path);
            }
        }
    }
    let mut files = vec![];
    for krate in ["crossfade", "crossfade-cli", "crossfade-serve", "crossfade-math"] {
        walk(&crates().join(krate).join("src"), &mut files);
    }
    assert!(files.len() > 200, "the sources were not found");
    let code = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
    };
    let name = |path: &PathBuf| path.strip_prefix(crates()).unwrap().to_string_lossy().replace('\\', "/");
    files.iter().map(|path| (name(path), code(path))).collect()
}

/// The lines of the sources that contain one of `words`, but not those of `allowed`: (end of the file's name, part of the line).
fn lines_with(words: &[&str], allowed: &[(&str, &str)]) -> Vec<String> {
    let mut found = vec![];
    for (name, code) in sources() {
        for line in code.lines().filter(|line| words.iter().any(|word| line.contains(word))) {
            if !allowed.iter().any(|(file, part)| name.ends_with(file) && line.contains(part)) {
                found.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    found
}

/// Whoever opens a file, reads to its end or unpacks something does it through `limits`, which bounds it.
#[test]
fn every_reader_goes_through_the_limits() {
    let words = [
        "File::open(",
        "fs::read(",
        "fs::read_to_string(",
        "read_to_end(",
        "read_to_string(",
        "ImageReader::",
        "png::Decoder",
        "load_from_memory",
        "image::open(",
        "ZipArchive::new(",
        "PytorchReader::",
    ];
    let allowed = [
        ("crossfade/src/limits.rs", ""),
        ("crossfade/src/limits/archive.rs", ""),
        // Opened for fsync, not read.
        ("crossfade/src/files.rs", "File::open(directory)"),
        // Files of the kernel.
        ("crossfade/src/files/lock.rs", "/proc/"),
        ("crossfade/src/bench/mod.rs", "/proc/"),
        ("crossfade-serve/src/metrics.rs", "/proc/"),
        // The one place that decodes images: within `limits::guarded`.
        ("crossfade/src/data/image.rs", "ImageReader::new(Cursor::new(bytes))"),
        ("crossfade/src/data/image.rs", "png::Decoder::new_with_limits"),
        // Only files that were opened through `limits::open` and scanned.
        ("torchfile/source.rs", "PytorchReader::"),
        // Opens through `limits::open`.
        ("", "TensorFile::open("),
        ("latent/reconstruct.rs", "SingleFile::open("),
    ];
    let found = lines_with(&words, &allowed);
    assert!(found.is_empty(), "readers without limits, use crossfade::limits:\n{}", found.join("\n"));
    assert!(!lines_with(&words, &[]).is_empty(), "the search finds nothing at all");
}

/// Whoever writes a file or creates a directory does it through `files`, which is atomic and durable.
#[test]
fn every_writer_goes_through_files() {
    let words = ["fs::write(", "File::create", "OpenOptions::new()", "fs::rename(", "fs::copy(", "fs::create_dir"];
    let allowed = [
        ("crossfade/src/files.rs", ""),
        ("crossfade/src/files/lock.rs", ""),
        // Grow by a line or a record at a time; docs/TRUST.md says so.
        ("crossfade/src/train/log.rs", ".append(true)"),
        ("crossfade/src/train/events.rs", ".create_new(true)"),
        // Locks: their content does not matter.
        ("crossfade/src/study/ready.rs", "File::create(&path)"),
        ("crossfade-serve/src/store/sqlite.rs", ".truncate(false)"),
    ];
    let found = lines_with(&words, &allowed);
    assert!(found.is_empty(), "writers that are not atomic, use crossfade::files:\n{}", found.join("\n"));
    assert!(!lines_with(&words, &[]).is_empty(), "the search finds nothing at all");
}

/// The table of the documentation is that of the program.
#[test]
fn the_table_of_limits_is_documented() {
    let text = std::fs::read_to_string(crates().join("../docs/TRUST.md")).unwrap();
    let rows: Vec<&str> = text.lines().skip_while(|line| *line != "| limit | most |").skip(2).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with('|')).collect();
    let expected: Vec<String> = limits::ALL.iter().map(|l| format!("| {} | {} |", l.name, l.amount())).collect();
    assert_eq!(rows, expected, "docs/TRUST.md; write\n{}\n", expected.join("\n"));
}

/// D2, D12: a name may hold control characters, and bytes that are no UTF-8.
#[test]
fn paths_are_printed_and_serialised_in_one_way() {
    let found = lines_with(&[".display()"], &[]);
    assert!(found.is_empty(), "use Shown::shown: {found:#?}");
    // A type that is only written, and not read from TOML, which is UTF-8, must not fail on a path.
    let mut unsafe_fields = vec![];
    for (name, code) in sources() {
        for item in code.split("#[derive(").skip(1) {
            let (derived, body) = item.split_once(")]").unwrap_or_default();
            let written = derived.contains("Serialize") && !derived.contains("Deserialize");
            let body = body.split("\n}").next().unwrap_or_default();
            let lines: Vec<&str> = body.lines().collect();
            for pair in lines.windows(2).filter(|pair| written && pair[1].contains("PathBuf")) {
                if !pair[0].contains("serialize_path") && !pair[0].contains("serialize_optional_path") {
                    unsafe_fields.push(format!("{name}: {}", pair[1].trim()));
                }
            }
        }
    }
    assert!(unsafe_fields.is_empty(), "use error::serialize_path: {unsafe_fields:#?}");
}

/// Control characters and marks that turn the direction of writing are escaped, everything else is left as it is.
#[test]
fn what_is_printed_cannot_steer_the_terminal() {
    use crossfade::error::{Shown, visible, visible_lines};
    assert_eq!(visible("\u{1b}[31mred\n\u{202e}evil\u{7f}"), "\\u{1b}[31mred\\n\\u{202e}evil\\u{7f}");
    assert_eq!(visible_lines("two\nlines\t\u{1b}"), "two\nlines\t\\u{1b}");
    assert_eq!(visible("Ünïcödé, 漢字"), "Ünïcödé, 漢字");
    assert_eq!(Path::new("a\nerror: b").shown(), "a\\nerror: b");
    let error = crossfade::Error::file("a\u{1b}", "b\u{1b}").to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

/// A PNG of chunks (kind, bytes).
fn png(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, bytes) in chunks {
        let mut crc = flate2::Crc::new();
        crc.update(*kind);
        crc.update(bytes);
        file.extend((bytes.len() as u32).to_be_bytes());
        file.extend(*kind);
        file.extend(bytes);
        file.extend(crc.sum().to_be_bytes());
    }
    file
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// 2x1 pixels of one byte each.
fn header(colour: u8) -> Vec<u8> {
    [&2u32.to_be_bytes()[..], &1u32.to_be_bytes(), &[8, colour, 0, 0, 0]].concat()
}

fn small(between: Vec<(&'static [u8; 4], Vec<u8>)>) -> Vec<u8> {
    let pixels = (b"IDAT", packed(&[0, 10, 200]));
    png(&[vec![(b"IHDR", header(0))], between, vec![pixels, (b"IEND", vec![])]].concat())
}

/// D1: the decoder panics; every reader of images returns an error that names the file.
#[test]
fn a_palette_of_a_broken_length_is_an_error_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    for length in [1, 2, 4, 5, 7, 767] {
        let pixels = packed(&[0, 0, 0]);
        let parts = [(b"IHDR", header(3)), (b"PLTE", vec![9; length]), (b"IDAT", pixels), (b"IEND", vec![])];
        let bytes = png(&parts);
        let path = dir.path().join(format!("palette-{length}.png"));
        std::fs::write(&path, &bytes).unwrap();
        let errors = [
            Image::read(&path).map(|_| ()).unwrap_err(),
            Image16::read(&path).map(|_| ()).unwrap_err(),
            LabelMap::read(&path).map(|_| ()).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains(&format!("palette-{length}.png")), "{error}");
        }
        // These may succeed, but not panic.
        let _ = (dimensions(&bytes, &path), png_text(&bytes, &path));
        let zip = dir.path().join("set.zip");
        let mut writer = zip::ZipWriter::new(std::fs::File::create(&zip).unwrap());
        writer.start_file("bad.png", zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(&bytes).unwrap();
        writer.finish().unwrap();
        let set = crossfade::data::zip::Zip::open(&zip).unwrap();
        let error = crossfade::data::Dataset::get(&set, 0).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("set.zip") && error.contains("bad.png"), "{error}");
    }
}

/// Every decoder panic is an error, and panics elsewhere are still panics.
#[test]
fn a_panic_of_a_decoder_is_an_error() {
    let result: crossfade::Result<()> = limits::guarded(Path::new("a.png"), || panic!("of the decoder"));
    assert!(result.unwrap_err().to_string().contains("a.png"));
    assert_eq!(limits::guarded(Path::new("a.png"), || Ok(7)).unwrap(), 7);
}

/// D7: texts of a PNG are unpacked up to a limit for all of them together.
#[test]
fn texts_of_a_png_are_limited_in_all() {
    let text =
        |keyword: &str, size: usize| (b"zTXt", [keyword.as_bytes(), &[0, 0], &packed(&vec![b'x'; size])].concat());
    let found = png_text(&small(vec![text("a", 1000), text("b", 2000)]), "ok.png").unwrap();
    assert_eq!(found.iter().map(|(_, text)| text.len()).collect::<Vec<_>>(), [1000, 2000]);
    let half = limits::PNG_TEXT.size() / 2;
    for bomb in [vec![text("a", 64 << 20)], (0..3).map(|_| text("a", half)).collect()] {
        let bytes = small(bomb);
        assert!(bytes.len() < 1 << 20, "it is small as a file");
        let error = png_text(&bytes, "bomb.png").unwrap_err().to_string();
        assert!(error.contains("bomb.png"), "{error}");
        // The pixels need no texts.
        assert_eq!(Image::decode(&bytes, "bomb.png").unwrap().pixels, [10, 200]);
    }
}

/// D13: nothing uses colour profiles, so none is unpacked.
#[test]
fn a_profile_of_any_size_is_not_unpacked() {
    let profile = [b"icc\0\0".as_slice(), &packed(&vec![0; 600 << 20])].concat();
    let bytes = small(vec![(b"iCCP", profile)]);
    assert!(bytes.len() < 1 << 20);
    assert_eq!(Image::decode(&bytes, "profile.png").unwrap().pixels, [10, 200]);
    assert_eq!(dimensions(&bytes, "profile.png").unwrap(), (2, 1));
}

/// D6: what took minutes is refused, also where it does not come from a file.
#[test]
fn configurations_are_limited_in_size_keys_and_depth() {
    let error = |text: &str| RunConfig::parse(text, "here.toml").unwrap_err().to_string();
    // Each line is an error of its own; without a limit of problems every one of them was a parse of the whole.
    assert!(error(&"=\n".repeat(limits::CONFIG.size() / 2)).contains("here.toml"));
    assert!(error(&"=".repeat(limits::CONFIG.size())).contains("here.toml"));
    assert!(error(&"[".repeat(limits::CONFIG.size())).contains("here.toml"));
    assert!(error(&" ".repeat(limits::CONFIG.size() + 1)).contains("256 KiB"));
    let keys: String = (0..=limits::CONFIG_KEYS.max).map(|k| format!("a{k}=1\n")).collect();
    assert!(error(&keys).contains("keys of a configuration"));
    assert!(!is_autoencoder(&format!("[autoencoder]{}", "\n=".repeat(limits::CONFIG.size()))), "it is not parsed");
    let depth = vec!["a"; limits::CONFIG_DEPTH.size() + 1].join(".");
    assert!(error(&format!("{depth} = 1")).contains("nesting of a configuration"));
}

/// D8: every whole number of a configuration, set to something absurd, is refused or has no size that is asked for; nothing
/// overflows.
#[test]
fn absurd_numbers_are_refused_or_harmless() {
    fn integers(table: &toml::Table, path: &str, found: &mut Vec<String>) {
        for (key, value) in table {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match value {
                toml::Value::Table(inner) => integers(inner, &path, found),
                toml::Value::Integer(_) => found.push(path),
                _ => (),
            }
        }
    }
    let mut sized = 0;
    for config in [
        RunConfig::default(),
        RunConfig::parse("[task]\nkind = \"saliency\"\n[network]\nkind = \"cond-unet\"", "").unwrap_or_default(),
    ] {
        let table: toml::Table = config.to_toml().unwrap().parse().unwrap();
        let mut keys = vec![];
        integers(&table, "", &mut keys);
        assert!(keys.len() > 15, "{keys:?}");
        for key in &keys {
            for value in [i64::MAX, 1 << 62, 1 << 33, 1 << 31, 1 << 24, 4096, 0] {
                let Ok(set) = config.clone().with_overrides(&[format!("{key}={value}")]) else { continue };
                // What is accepted can be estimated; the estimate decides whether a training starts.
                let _ = set.validate_training();
                let sizes = set.sizes();
                sized += u64::from(sizes.train_bytes > 0);
                let values = set.train.batch as u64 * set.train.accumulate as u64;
                assert!(values <= limits::STEP_IMAGES.max && set.train.batch as u64 <= limits::BATCH.max, "{key}");
            }
        }
    }
    assert!(sized > 0);
    for (key, limit) in [
        ("train.batch=4611686018427387904", &limits::BATCH),
        ("train.accumulate=4611686018427387904", &limits::STEP_IMAGES),
        ("train.steps=4611686018427387904", &limits::STEPS),
        ("train.loader_threads=4611686018427387904", &limits::LOADER_THREADS),
    ] {
        let error = RunConfig::default().with_overrides(&[key]).unwrap_err().to_string();
        assert!(error.contains(limit.name), "{error}");
    }
}

/// D18: sizes in messages are numbers.
#[test]
fn messages_are_written_for_people() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.safetensors");
    save_tensors(&path, &[("a".into(), vec![4], vec![1.0; 4])], &[].into()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let error = TensorFile::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(&format!("describes {}", bytes.len())) && !error.contains("Some"), "{error}");
}

fn identity(dim: usize, value: f64) -> Vec<f64> {
    (0..dim * dim).map(|i| if i % (dim + 1) == 0 { value } else { 0.0 }).collect()
}

/// D3: statistics that are none are refused where they are read and where they are compared.
#[test]
fn statistics_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dim = 4;
    let of = |covariance: Vec<f64>, mean: f64| Gaussian { mean: vec![mean; dim], covariance };
    let good = of(identity(dim, 1.0), 0.0);
    let mut asymmetric = identity(dim, 1.0);
    asymmetric[1] = 0.5;
    let mut not_positive = identity(dim, 1.0);
    (not_positive[1], not_positive[dim]) = (2.0, 2.0);
    let bad = [
        (of(identity(dim, -1.0), 0.0), "negative eigenvalues"),
        (of(not_positive, 0.0), "negative eigenvalues"),
        (of(asymmetric, 0.0), "not symmetric"),
        (of(identity(dim, f64::NAN), 0.0), "finite"),
        (of(identity(dim, 1.0), f64::INFINITY), "finite"),
    ];
    for (gaussian, why) in bad {
        let error = Frechet::to(gaussian.clone()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        let error = Frechet::to(good.clone()).unwrap().distance(&gaussian).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        let path = dir.path().join("bad.npz");
        Statistics { gaussian, sums: None, protocol: None, weights: None }.save(&path).unwrap();
        let error = Statistics::load(&path).unwrap_err().to_string();
        assert!(error.contains("bad.npz"), "{error}");
    }
    // Errors of 32-bit numbers and a singular covariance are no reason.
    let mut rounded = identity(dim, 1.0);
    (rounded[0], rounded[1]) = (0.0, 1e-7);
    let distance = Frechet::to(good).unwrap().distance(&of(rounded, 0.0)).unwrap();
    assert!((distance - 1.0).abs() < 1e-6, "{distance}");
}

/// One array as NumPy writes it.
fn npy(kind: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), bytes].concat()
}

/// D3: a count of images that is none, and sums that are not those of the mean.
#[test]
fn statistics_with_an_impossible_count_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let floats = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let load = |n: i64, sum: f64, outer: f64| {
        let path = dir.path().join("n.npz");
        let mut writer = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        for (name, bytes) in [
            ("mu", npy("<f8", "(1,)", &floats(&[1.0]))),
            ("sigma", npy("<f8", "(1, 1)", &floats(&[2.0]))),
            ("n", npy("<i8", "()", &n.to_le_bytes())),
            ("sum", npy("<f8", "(1,)", &floats(&[sum]))),
            ("outer", npy("<f8", "(1, 1)", &floats(&[outer]))),
        ] {
            writer.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(&bytes).unwrap();
        }
        writer.finish().unwrap();
        Statistics::load(&path).map(|found| found.count()).map_err(|e| e.to_string())
    };
    // Two images with features 0 and 2: mean 1, variance 2.
    assert_eq!(load(2, 2.0, 4.0), Ok(Some(2)));
    for n in [0, 1, -5, 1 << 62, i64::MIN] {
        assert!(load(n, 2.0, 4.0).unwrap_err().contains("n is"), "{n}");
    }
    assert!(load(2, 4.0, 4.0).unwrap_err().contains("not those of mu and sigma"));
    assert!(load(3, 2.0, 4.0).unwrap_err().contains("not those of mu and sigma"));
}
