//! Image sets against Pillow, against hostile files and against real data.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "common/shared.rs"]
mod shared;

use shared::shared;
use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::Arc;

use crossfade::data::{DataConfig, Dataset, Filter, Fit, Image, PassOrder, Split, check, png_text, resize};
use crossfade::loader::{self, Batch, Loader, LoaderConfig, Share};
use crossfade::{Error, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

// ---------------------------------------------------------------------------------------------------- helpers

/// The bytes of testdata/pillow_resize.json's note.
fn generated(width: usize, height: usize, channels: usize, seed: u32) -> Image {
    let mut s = seed;
    let pixels = (0..width * height * channels).map(|_| {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let byte = (s >> 24) as u8;
        match seed % 2 {
            0 => u8::from(byte >= 128) * 255,
            _ => byte,
        }
    });
    Image::new(width, height, channels, pixels.collect())
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn message<T>(result: Result<T>) -> String {
    result.err().expect("an error").to_string()
}

fn png(image: &Image) -> Vec<u8> {
    image.encode_png(&[]).unwrap()
}

fn encoded(image: &Image, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let rgb = image::RgbImage::from_raw(image.width as u32, image.height as u32, image.pixels.clone()).unwrap();
    rgb.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn jpeg(image: &Image) -> Vec<u8> {
    encoded(image, image::ImageFormat::Jpeg)
}

/// A PNG whose header claims another size.
fn lying_png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = png(&generated(4, 4, 3, 1));
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn zip_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn folder(path: &Path) -> DataConfig {
    DataConfig::Folder { path: path.into(), fit: Fit::Crop, filter: Filter::Bicubic }
}

fn zipped(path: &Path) -> DataConfig {
    DataConfig::Zip { path: path.into(), fit: Fit::Crop, filter: Filter::Bicubic }
}

// ---------------------------------------------------------------------------------------------------- resizing

#[derive(Deserialize)]
struct PillowCase {
    from: (usize, usize),
    to: (usize, usize),
    channels: usize,
    filter: Filter,
    seed: u32,
    crc32: std::collections::BTreeMap<String, u32>,
}

#[test]
fn resizing_is_byte_identical_to_pillow_12_and_13() {
    #[derive(Deserialize)]
    struct File {
        cases: Vec<PillowCase>,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/pillow_resize.json");
    let file: File = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert!(file.cases.len() >= 60);
    let mut differing = 0;
    for case in &file.cases {
        let image = generated(case.from.0, case.from.1, case.channels, case.seed);
        for (version, order) in [("pillow12", PassOrder::HorizontalFirst), ("pillow13", PassOrder::Cheapest)] {
            let ours = resize(&image, case.to.0, case.to.1, case.filter, order);
            let what = format!("{version}: {:?} to {:?}, {:?}, seed {}", case.from, case.to, case.filter, case.seed);
            assert_eq!(crc32(&ours.pixels), case.crc32[version], "{what}");
        }
        differing += usize::from(case.crc32["pillow12"] != case.crc32["pillow13"]);
    }
    assert!(differing >= 10, "the cases must tell the two orders apart");
}

#[test]
fn a_set_crops_or_stretches_as_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = generated(60, 40, 3, 5);
    fs::write(dir.path().join("a.png"), png(&image)).unwrap();
    let open =
        |fit, filter| DataConfig::Folder { path: dir.path().into(), fit, filter }.open(16, 3).unwrap().get(0).unwrap();
    let by_hand = resize(&image.centre_square(), 16, 16, Filter::Lanczos, PassOrder::HorizontalFirst);
    assert_eq!(open(Fit::Crop, Filter::Lanczos), by_hand);
    let stretched = resize(&image, 16, 16, Filter::Bilinear, PassOrder::HorizontalFirst);
    assert_eq!(open(Fit::Stretch, Filter::Bilinear), stretched);
    let grey = folder(dir.path()).open(40, 1).unwrap().get(0).unwrap();
    assert_eq!(grey, image.with_channels(1).centre_square().into_owned());
    assert!(message(folder(dir.path()).open(0, 3)).contains("resolution"));
    assert!(message(folder(dir.path()).open(16, 4)).contains("channels"));
}

// ---------------------------------------------------------------------------------------------------- decoding

#[test]
fn png_texts_come_back() {
    let image = generated(5, 3, 3, 7);
    let texts = [("crossfade", "{\n  \"seed\": 1\n}"), ("Title", "Überblendung ε → φ")];
    let bytes = image.encode_png(&texts).unwrap();
    assert_eq!(Image::decode(&bytes, "a.png").unwrap(), image);
    let found = png_text(&bytes, "a.png").unwrap();
    assert_eq!(found, texts.map(|(k, t)| (k.to_string(), t.to_string())));
    let grey = generated(5, 3, 1, 8);
    assert_eq!(Image::decode(&png(&grey), "g.png").unwrap(), grey);
    assert!(matches!(image.encode_png(&[("", "no key")]), Err(Error::Request(_))));
    assert!(message(png_text(b"no png", "b.png")).contains("b.png"));
}

#[test]
fn compressed_png_texts_are_read_within_limits() {
    let with_text = |text: String| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
        encoder.add_ztxt_chunk("key".into(), text).unwrap();
        encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
        bytes
    };
    assert_eq!(png_text(&with_text("hello".into()), "z.png").unwrap(), [("key".into(), "hello".into())]);
    let bomb = with_text("x".repeat(50 << 20));
    assert!(bomb.len() < 1 << 20);
    assert!(message(png_text(&bomb, "z.png")).contains("z.png"));
}

#[test]
fn sixteen_bits_palettes_and_alpha_become_eight_bits() {
    let encode = |color, depth, palette: Option<Vec<u8>>, data: &[u8]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if let Some(palette) = palette {
            encoder.set_palette(palette);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        Image::decode(&bytes, "x.png").unwrap()
    };
    let grey16 = encode(png::ColorType::Grayscale, png::BitDepth::Sixteen, None, &[0xff, 0xff, 0x80, 0x80]);
    assert_eq!(grey16, Image::new(2, 1, 1, vec![255, 128]));
    let palette = Some(vec![1, 2, 3, 40, 50, 60]);
    let indexed = encode(png::ColorType::Indexed, png::BitDepth::Eight, palette, &[1, 0]);
    assert_eq!(indexed, Image::new(2, 1, 3, vec![40, 50, 60, 1, 2, 3]));
    let alpha = encode(png::ColorType::Rgba, png::BitDepth::Eight, None, &[9, 9, 9, 255, 9, 9, 9, 0]);
    assert_eq!(alpha, Image::new(2, 1, 3, vec![9, 9, 9, 255, 255, 255]));
}

#[test]
fn jpeg_and_webp_are_read() {
    let set = DataConfig::Procedural { seed: 0, len: 1 }.open(64, 3).unwrap();
    let image = set.get(0).unwrap();
    // The encoder is lossless.
    assert_eq!(Image::decode(&encoded(&image, image::ImageFormat::WebP), "a.webp").unwrap(), image);
    let lossy = Image::decode(&jpeg(&image), "a.jpg").unwrap();
    let error: u64 = image.pixels.iter().zip(&lossy.pixels).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    assert!(error < 6 * image.pixels.len() as u64, "mean error {}", error as f64 / image.pixels.len() as f64);
}

#[test]
fn exif_orientation_is_applied() {
    let plain = jpeg(&generated(16, 8, 3, 3));
    // An Exif segment whose only entry is orientation 6 (turn right), put after the start marker.
    let mut tiff = b"Exif\0\0II*\0\x08\0\0\0\x01\0".to_vec();
    tiff.extend([0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    let mut turned = plain[..2].to_vec();
    turned.extend([0xff, 0xe1]);
    turned.extend((tiff.len() as u16 + 2).to_be_bytes());
    turned.extend(&tiff);
    turned.extend(&plain[2..]);
    let (plain, turned) = (Image::decode(&plain, "a.jpg").unwrap(), Image::decode(&turned, "b.jpg").unwrap());
    assert_eq!((turned.width, turned.height), (8, 16));
    // The first pixel of the plain image is the last of the turned one's first row.
    assert_eq!(turned.pixels[7 * 3..8 * 3], plain.pixels[..3]);
}

#[test]
fn unreadable_truncated_and_oversized_images_are_refused_by_name() {
    let image = generated(64, 64, 3, 9);
    let (whole_png, whole_jpeg) = (png(&image), jpeg(&image));
    for (name, bytes) in [
        ("empty.png", &[][..]),
        ("text.png", b"this is no image at all, whatever its name"),
        ("half.png", &whole_png[..whole_png.len() / 2]),
        ("half.jpg", &whole_jpeg[..whole_jpeg.len() / 2]),
        ("almost.jpg", &whole_jpeg[..whole_jpeg.len() - 1]),
        ("huge.png", &lying_png(60_000, 60_000)),
        ("wide.png", &lying_png(u32::MAX >> 1, 1)),
        ("flat.png", &lying_png(0, 4)),
        ("gif.png", b"GIF89a\x01\0\x01\0\0\0\0;"),
    ] {
        let error = message(Image::decode(bytes, name));
        assert!(error.starts_with(name), "{error}");
    }
    assert!(message(Image::decode(&lying_png(60_000, 60_000), "huge.png")).contains("60000x60000"));
}

// ---------------------------------------------------------------------------------------------------- folders

#[test]
fn a_folder_is_recursive_sorted_and_free_of_loops() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let image = png(&generated(4, 4, 3, 1));
    fs::create_dir_all(at("b/c")).unwrap();
    fs::create_dir(at(".hidden")).unwrap();
    for name in ["b/c/z.PNG", "b/a.png", "a.png", "B.png", "b.webp", ".dot.png", ".hidden/x.png", "notes.txt"] {
        fs::write(at(name), &image).unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(dir.path(), at("b/loop")).unwrap();
    let set = folder(dir.path()).source(8).unwrap();
    let names: Vec<_> = (0..set.len()).map(|k| set.name(k)).collect();
    assert_eq!(names, ["B.png", "a.png", "b.webp", "b/a.png", "b/c/z.PNG"]);
    assert!(set.describe().contains("5 images"), "{}", set.describe());
}

/// The contact sheet beside sampled images is not one of them: it would be counted in FID.
#[test]
fn the_contact_sheet_of_sampled_images_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let image = png(&generated(4, 4, 3, 1));
    fs::create_dir(dir.path().join("own")).unwrap();
    for name in
        ["000000.png", "000001.png", "sheet.png", "sheet-0-of-2.png", "sheets.png", "own/sheet.png", "own/a.png"]
    {
        fs::write(dir.path().join(name), &image).unwrap();
    }
    let set = folder(dir.path()).source(8).unwrap();
    let names: Vec<_> = (0..set.len()).map(|k| set.name(k)).collect();
    assert_eq!(names, ["000000.png", "000001.png", "own/a.png", "own/sheet.png", "sheets.png"]);
    assert!(set.describe().contains("2 other entries ignored"), "{}", set.describe());
}

#[test]
fn an_empty_or_absent_folder_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("readme.txt"), b"x").unwrap();
    assert!(message(folder(dir.path()).open(8, 3)).contains("no PNG, JPEG or WebP"));
    assert!(message(folder(&dir.path().join("absent")).open(8, 3)).contains("absent"));
}

#[test]
fn check_reports_what_it_cannot_read_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    for k in 0..100 {
        fs::write(dir.path().join(format!("{k:03}.png")), png(&generated(6 + k % 2, 5, 3, k as u32))).unwrap();
    }
    fs::write(dir.path().join("grey.png"), png(&generated(6, 5, 1, 1))).unwrap();
    fs::write(dir.path().join("broken.jpg"), b"\xff\xd8 no").unwrap();
    let mut steps = Vec::new();
    let report = check(&folder(dir.path()), &mut |done, of| steps.push((done, of))).unwrap();
    assert_eq!((report.images, report.readable, report.is_clean()), (102, 101, false));
    assert_eq!(report.sizes, [("6x5".to_string(), 51), ("7x5".to_string(), 50)].into());
    assert_eq!(report.channels, [(1, 1), (3, 100)].into());
    assert_eq!(report.unreadable[0].name, "broken.jpg");
    assert_eq!(steps.last(), Some(&(102, 102)));
    let text = report.to_string();
    assert!(text.contains("101 of 102") && text.contains("broken.jpg"), "{text}");
    assert!(serde_json::to_string(&report).unwrap().contains("\"readable\":101"));

    let drawn = check(&DataConfig::Procedural { seed: 0, len: 70 }, &mut |_, _| {}).unwrap();
    assert_eq!((drawn.readable, drawn.is_clean()), (70, true));
}

// ---------------------------------------------------------------------------------------------------- zips

#[test]
fn a_zip_gives_its_images_by_name_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("in/ner");
    fs::create_dir_all(&inner).unwrap();
    let path = inner.join("a.zip");
    let images: Vec<Image> = (0..3).map(|k| generated(8, 8, 3, 20 + k)).collect();
    let bytes = zip_of(&[
        ("dataset.json", b"{}"),
        ("00000/img2.png", &png(&images[2])),
        ("00000/img1.png", &png(&images[1])),
        ("../../evil.png", &png(&images[0])),
        ("__MACOSX/x.png", b"junk"),
        ("00000/._img1.png", b"junk"),
    ]);
    fs::write(&path, bytes).unwrap();
    let set = zipped(&path).open(8, 3).unwrap();
    let names: Vec<_> = (0..set.len()).map(|k| set.name(k)).collect();
    assert_eq!(names, ["../../evil.png", "00000/img1.png", "00000/img2.png"]);
    for (k, image) in images.iter().enumerate() {
        assert_eq!(&set.get(k).unwrap(), image);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was unpacked");
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
}

#[test]
fn bombs_and_lies_in_a_zip_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.zip");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        zipped(&path).open(8, 3).and_then(|set| set.get(0))
    };
    let bomb = zip_of(&[("bomb.png", &vec![0; 70 << 20])]);
    assert!(bomb.len() < 1 << 20);
    let error = message(read(&bomb));
    assert!(error.contains("bomb.zip") && error.contains("bomb.png") && error.contains("64 MiB"), "{error}");

    // The uncompressed size is at byte 22 of a local header and 24 of a central one.
    let lie = |bytes: &[u8], size: u32| {
        let mut bytes = bytes.to_vec();
        let central = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
        bytes[22..26].copy_from_slice(&size.to_le_bytes());
        bytes[central + 24..central + 28].copy_from_slice(&size.to_le_bytes());
        bytes
    };
    let error = message(read(&lie(&bomb, 100)));
    assert!(error.contains("bomb.png"), "{error}");
    let good = zip_of(&[("good.png", &png(&generated(8, 8, 3, 1)))]);
    assert!(read(&good).is_ok());
    assert!(message(read(&lie(&good, 4000))).contains("good.png"));
    assert!(message(read(&lie(&good, 40))).contains("good.png"));

    let pixels = zip_of(&[("pixels.png", &lying_png(50_000, 50_000))]);
    assert!(message(read(&pixels)).contains("pixels.png"));
    assert!(message(read(&good[..good.len() - 30])).contains("bomb.zip"));
    assert!(message(read(b"no zip")).contains("not a readable zip"));
    assert!(message(read(&zip_of(&[("dataset.json", b"{}")]))).contains("no PNG"));
}

// ---------------------------------------------------------------------------------------------------- CIFAR-10

fn records(count: usize, seed: u32) -> Vec<u8> {
    let mut bytes = generated(3073, count, 1, seed * 2 + 1).pixels;
    bytes.iter_mut().step_by(3073).for_each(|label| *label %= 10);
    bytes
}

fn cifar(path: &Path, split: Split) -> Result<Box<dyn Dataset>> {
    DataConfig::Cifar10 { path: path.into(), split }.open(32, 3)
}

#[test]
fn cifar_batches_are_read_in_order_from_the_directory_or_its_parent() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("cifar-10-batches-bin");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("data_batch_2.bin"), records(3, 2)).unwrap();
    fs::write(dir.join("data_batch_1.bin"), records(2, 1)).unwrap();
    fs::write(dir.join("test_batch.bin"), records(4, 3)).unwrap();
    fs::write(dir.join("batches.meta.txt"), b"airplane").unwrap();
    for path in [parent.path(), &dir] {
        let set = cifar(path, Split::Train).unwrap();
        assert_eq!(set.len(), 5);
        assert!(set.name(2).ends_with("data_batch_2.bin #0"), "{}", set.name(2));
        let record = &records(3, 2)[3073..2 * 3073];
        let image = set.get(3).unwrap();
        assert_eq!(image.pixels[..6], [1, 1025, 2049, 2, 1026, 2050].map(|i| record[i]));
        assert_eq!(cifar(path, Split::Test).unwrap().len(), 4);
    }
}

#[test]
fn odd_cifar_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(message(cifar(dir.path(), Split::Train)).contains("data_batch_1.bin"));
    let path = dir.path().join("data_batch_1.bin");
    for (bytes, reason) in
        [(records(2, 1)[..6000].to_vec(), "3073"), (Vec::new(), "3073"), (vec![77; 3073], "label 77")]
    {
        fs::write(&path, bytes).unwrap();
        let error = message(cifar(dir.path(), Split::Train));
        assert!(error.contains("data_batch_1.bin") && error.contains(reason), "{error}");
    }
}

/// A batch as Python 2 pickles it: protocol 2, strings as SHORT_BINSTRING and BINSTRING.
fn pickled(rows: u16, dtype: &str, order: u8, data: &[u8]) -> Vec<u8> {
    let text = |s: &str| [&[b'U', s.len() as u8], s.as_bytes()].concat();
    let mut out = vec![0x80, 2, b'}', b'q', 1, b'('];
    out.extend([text("batch_label"), b"q\x02".to_vec(), text("training batch 1 of 5"), b"q\x03".to_vec()].concat());
    out.extend([text("labels"), b"q\x04]q\x05(K\x06K\x09K\x01e".to_vec()].concat());
    out.extend([text("data"), b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07".to_vec()].concat());
    out.extend([b"cnumpy\nndarray\nq\x08K\0\x85".to_vec(), text("b"), b"\x87Rq\x09(K\x01M".to_vec()].concat());
    out.extend(rows.to_le_bytes());
    out.extend(b"M\x00\x0c\x86cnumpy\ndtype\nq\x0a");
    out.extend([text(dtype), b"K\0K\x01\x87Rq\x0b(K\x03".to_vec(), text("|")].concat());
    out.extend(b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb");
    out.extend([order, b'T']);
    out.extend((data.len() as u32).to_le_bytes());
    out.extend(data);
    out.extend(b"tb");
    out.extend([text("filenames"), b"q\x0c]q\x0d(".to_vec(), text("a.png"), text("b.png"), b"eu.".to_vec()].concat());
    out
}

#[test]
fn the_python_layout_gives_the_images_of_the_binary_one() {
    let (binary, python) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = records(3, 5);
    fs::write(binary.path().join("data_batch_1.bin"), &bytes).unwrap();
    let data: Vec<u8> = bytes.chunks(3073).flat_map(|r| &r[1..]).copied().collect();
    fs::write(python.path().join("data_batch_1"), pickled(3, "u1", 0x89, &data)).unwrap();
    let (a, b) = (cifar(binary.path(), Split::Train).unwrap(), cifar(python.path(), Split::Train).unwrap());
    assert_eq!((a.len(), b.len()), (3, 3));
    (0..3).for_each(|k| assert_eq!(a.get(k).unwrap(), b.get(k).unwrap()));
}

#[test]
fn foreign_and_hostile_pickles_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = vec![1; 2 * 3072];
    let good = pickled(2, "u1", 0x89, &data);
    let mut deep = vec![0x80, 2, b'N'];
    deep.extend(vec![0x85; 1 << 20]);
    for (name, bytes) in [
        ("system", b"cos\nsystem\n(U\x08rm -rf /tR.".to_vec()),
        ("rows", pickled(3, "u1", 0x89, &data)),
        ("dtype", pickled(2, "f8", 0x89, &data)),
        ("fortran", pickled(2, "u1", 0x88, &data)),
        ("truncated", good[..good.len() / 2].to_vec()),
        ("deep", deep),
        ("no data", b"\x80\x02}q\x01.".to_vec()),
        ("protocol", b"\x80\x05}.".to_vec()),
        ("empty stack", b"\x80\x02e.".to_vec()),
        ("empty", Vec::new()),
    ] {
        fs::write(dir.path().join("data_batch_1"), bytes).unwrap();
        let error = message(cifar(dir.path(), Split::Train));
        assert!(error.contains("data_batch_1: not a CIFAR-10 batch"), "{name}: {error}");
    }
}

// ---------------------------------------------------------------------------------------------------- IDX

#[test]
fn idx_files_are_read_plain_or_gzipped_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train-images-idx3-ubyte");
    let images = generated(7, 5 * 3, 1, 11);
    let file = |count: u32, pixels: &[u8]| {
        let header = [0x0803, count, 5, 7].map(u32::to_be_bytes).concat();
        [header, pixels.to_vec()].concat()
    };
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        DataConfig::Idx { path: path.clone() }.source(8)
    };
    let good = file(3, &images.pixels);
    for bytes in [good.clone(), gzip(&good)] {
        let set = open(&bytes).unwrap();
        assert_eq!(set.len(), 3);
        assert_eq!(set.get(2).unwrap(), Image::new(7, 5, 1, images.pixels[70..].to_vec()));
    }
    let by_directory = DataConfig::Idx { path: dir.path().into() };
    assert_eq!(by_directory.open(28, 3).unwrap().get(0).unwrap().pixels.len(), 28 * 28 * 3);

    let zipped = gzip(&good);
    for (bytes, reason) in [
        (good[..good.len() - 1].to_vec(), "fewer bytes"),
        ([&good[..], &[0]].concat(), "more bytes"),
        (file(u32::MAX, &images.pixels), "claims"),
        (file(0, &[]), "claims"),
        (good[..9].to_vec(), "too short"),
        (zipped[..zipped.len() - 12].to_vec(), "damaged"),
        (vec![0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0], "not an IDX file"),
    ] {
        let error = message(open(&bytes));
        assert!(error.contains("train-images") && error.contains(reason), "{reason}: {error}");
    }
}

// ---------------------------------------------------------------------------------------------------- configuration

#[test]
fn configurations_are_read_and_typos_refused() {
    let read = |text: &str| toml::from_str::<DataConfig>(text);
    assert_eq!(read("kind = \"procedural\"").unwrap(), DataConfig::Procedural { seed: 0, len: 50_000 });
    let folder = read("kind = \"folder\"\npath = \"x\"\nfit = \"stretch\"\nfilter = \"bilinear\"").unwrap();
    assert_eq!(folder, DataConfig::Folder { path: "x".into(), fit: Fit::Stretch, filter: Filter::Bilinear });
    let cifar = read("kind = \"cifar10\"\npath = \"x\"\nsplit = \"test\"").unwrap();
    assert_eq!(read(&toml::to_string(&cifar).unwrap()).unwrap(), cifar);
    assert!(read("kind = \"cifar10\"\npath = \"x\"\nsplti = \"test\"").unwrap_err().to_string().contains("splti"));
    assert!(read("kind = \"cifar\"\npath = \"x\"").unwrap_err().to_string().contains("cifar10"));
    assert!(message(DataConfig::Procedural { seed: 0, len: 0 }.open(8, 3)).contains("len"));
}

// ---------------------------------------------------------------------------------------------------- real data

/// SHA-256 of record 0 of data_batch_1.bin as interleaved RGB.
const FIRST_CIFAR_IMAGE: &str = "7cbda40c52a00fdb4343e76a94b670a6280112167d0e5a0acd9dfeb76d34cff4";

#[test]
fn the_real_cifar_batch_is_what_it_should_be() {
    let Some(path) = shared("data/cifar10") else { return };
    let set = cifar(&path, Split::Train).unwrap();
    assert_eq!(set.len() % 10_000, 0);
    let first = set.get(0).unwrap();
    assert_eq!(format!("{:x}", Sha256::digest(&first.pixels)), FIRST_CIFAR_IMAGE);
    let report = check(&DataConfig::Cifar10 { path, split: Split::Test }, &mut |_, _| {}).unwrap();
    assert_eq!(report.sizes, [("32x32".to_string(), report.images)].into());
    assert!(report.is_clean());
}

#[test]
fn real_photographs_are_read_at_the_resolution_asked_for() {
    let Some(path) = shared("data/faces/celeba_hq_256") else { return };
    let set = folder(&path).open(64, 3).unwrap();
    for k in 0..set.len().min(8) {
        let image = set.get(k).unwrap();
        assert_eq!((image.width, image.height, image.channels), (64, 64, 3), "{}", set.name(k));
    }
    assert!(check(&folder(&path), &mut |_, _| {}).unwrap().is_clean());
}

// ---------------------------------------------------------------------------------------------------- loader

fn drawn(len: usize) -> Arc<dyn Dataset> {
    Arc::from(DataConfig::Procedural { seed: 1, len }.open(8, 3).unwrap())
}

fn config(batch: usize, threads: usize) -> LoaderConfig {
    LoaderConfig { batch, seed: 5, flip: true, threads, cache: true, share: Share::ALL }
}

/// The first `count` samples from `first` on, one by one.
fn samples(batch: usize, threads: usize, first: u64, count: usize) -> Vec<(u64, usize, Vec<f32>)> {
    let mut loader = Loader::start(drawn(50), config(batch, threads), first).unwrap();
    let mut out = Vec::new();
    while out.len() < count {
        let Batch { counters, indices, shape, x0: pixels, .. } = loader.next_batch().unwrap();
        assert_eq!(shape, [batch, 3, 8, 8]);
        let images = pixels.chunks(3 * 8 * 8).map(<[f32]>::to_vec);
        out.extend(counters.into_iter().zip(indices).zip(images).map(|((c, i), p)| (c, i, p)));
    }
    out.truncate(count);
    out
}

#[test]
fn a_sample_depends_on_its_counter_alone() {
    let one = samples(1, 1, 0, 130);
    assert_eq!(one.iter().map(|s| s.0).collect::<Vec<_>>(), (0..130).collect::<Vec<_>>());
    for (batch, threads) in [(7, 1), (7, 3), (64, 1), (64, 3), (1, 2)] {
        assert!(samples(batch, threads, 0, 130) == one, "batch {batch}, {threads} threads");
    }
    // Resumed in the middle, also of an epoch and with another batch size.
    assert!(samples(9, 2, 77, 53) == one[77..]);

    let set = drawn(50);
    for (counter, index, pixels) in &one {
        assert_eq!(*index, loader::index(5, *counter, 50));
        let image = set.get(*index).unwrap();
        let flip = loader::flipped(5, *counter);
        for (channel, y, x) in [(0, 0, 0), (1, 3, 2), (2, 7, 5)] {
            let source = if flip { 7 - x } else { x };
            let expected = f32::from(image.pixels[(y * 8 + source) * 3 + channel]) / 127.5 - 1.0;
            assert_eq!(pixels[(channel * 8 + y) * 8 + x], expected);
        }
    }
}

#[test]
fn every_epoch_shows_every_image_once_and_half_of_the_samples_are_flipped() {
    let order: Vec<usize> = (0..150).map(|c| loader::index(5, c, 50)).collect();
    for epoch in order.chunks(50) {
        let mut sorted = epoch.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
    assert_ne!(order[..50], order[50..100]);
    let flips = (0..2000).filter(|&c| loader::flipped(5, c)).count();
    assert!((880..1120).contains(&flips), "{flips}");
}

#[test]
fn an_unreadable_file_stops_the_loader_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for k in 0..6 {
        fs::write(dir.path().join(format!("{k}.png")), png(&generated(8, 8, 3, k))).unwrap();
    }
    fs::write(dir.path().join("broken.png"), b"x").unwrap();
    let set: Arc<dyn Dataset> = Arc::from(folder(dir.path()).open(8, 3).unwrap());
    let place = (0..7).position(|c| loader::index(5, c, 7) == 6).unwrap();
    let mut loader = Loader::start(set.clone(), config(1, 2), 0).unwrap();
    for _ in 0..place {
        loader.next_batch().unwrap();
    }
    assert!(message(loader.next_batch()).contains("broken.png"));
    assert!(message(loader.next_batch()).contains("stopped"));
    assert!(Loader::start(set.clone(), config(0, 1), 0).is_err());
    assert!(Loader::start(set, config(1, 0), 0).is_err());
}

#[test]
fn dropping_a_loader_ends_its_threads() {
    let set = drawn(50);
    let loader = Loader::start(Arc::clone(&set), config(4, 3), 0).unwrap();
    drop(loader);
    assert_eq!(Arc::strong_count(&set), 1);
}
