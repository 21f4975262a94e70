//! Sets of images, and arrays of other programs.
use super::containers::{byte, deflated, entries, gzipped, kind, npy_of, parts, take, zip_of};
use super::scratch::{accepted, file, folder};
use crossfade::data::cifar10::Cifar10;
use crossfade::data::idx::Idx;
use crossfade::data::mat::{Value, parse_mat};
use crossfade::data::zip::Zip;
use crossfade::data::{Dataset, Split, dimensions};
use crossfade::limits;
use crossfade::metrics::Raster;
use crossfade::metrics::edges::ground_truth::{load_detection, load_truth};
use crossfade::metrics::features::{Input, Statistics, open};

/// Images of a set that are read; hostile ones are as likely among the first as among the others.
const IMAGES: usize = 4;

fn check_set(set: &dyn Dataset) {
    assert!(!set.is_empty(), "a set without images opens");
    let visible = |text: &str| assert!(!text.contains(char::is_control), "{text:?} steers a terminal");
    visible(&set.describe());
    if let Some(classes) = accepted(set.classes()).flatten() {
        assert_eq!(classes.of.len(), set.len());
        assert!(classes.of.iter().all(|&class| (class as usize) < classes.names.len()));
        classes.names.iter().for_each(|name| visible(name));
    }
    for index in 0..set.len().min(IMAGES) {
        visible(&set.name(index));
        if let Some(image) = accepted(set.get(index)) {
            assert!((image.width * image.height) as u64 <= limits::IMAGE_PIXELS.max);
        }
    }
}

/// The names in a zip of EDM's layout.
pub const ZIP_NAMES: &[&str] =
    &["dataset.json", "00000/img00000000.png", "00000/img00000001.png", "a/1.jpg", "b/2.webp", "../x.png", "c.PNG"];

/// A zip of images with `dataset.json`.
pub fn zip(input: &[u8]) {
    let bytes = match kind(input, 2) {
        (0, raw) => raw.to_vec(),
        (_, rest) => {
            let list = entries(rest, ZIP_NAMES);
            // Decoding large pictures would take most of the time.
            let large = |bytes: &[u8]| dimensions(bytes, "x").is_ok_and(|(w, h)| w * h > 1 << 16);
            if list.iter().any(|(_, _, bytes)| large(bytes)) {
                return;
            }
            zip_of(&list)
        }
    };
    let path = file("zip/a.zip", &bytes);
    if let Some(set) = accepted(Zip::open(&path)) {
        check_set(&set);
    }
}

/// The names of arrays.
pub const NPZ_NAMES: &[&str] =
    &["mu.npy", "sigma.npy", "n.npy", "sum.npy", "outer.npy", "arr_0.npy", "protocol.npy", "weights.npy", "x.npy"];

/// Kinds of numbers with their width.
const KINDS: &[(&str, usize)] = &[("<f8", 8), ("<f4", 4), ("<i8", 8), ("|u1", 1), (">f8", 8), ("<i4", 4)];

/// An npz: as it is, of arrays as they are, and of arrays whose headers fit; and an array that is read as an image.
pub fn npz(input: &[u8]) {
    let bytes = match kind(input, 4) {
        (3, raw) => {
            let path = file("npz/a.npy", raw);
            if let Some(image) = accepted(Raster::load(&path)) {
                let (width, height, channels) = image.size();
                assert_eq!(image.values().count(), width * height * channels);
                assert!(image.values().all(|value| (-127.5..=382.5).contains(&value)), "no brightness");
            }
            return;
        }
        (0, raw) => raw.to_vec(),
        (1, rest) => zip_of(&entries(rest, NPZ_NAMES)),
        (_, rest) => {
            let made = |bytes: &[u8]| {
                let mut rest = bytes;
                let (kind, width) = KINDS[usize::from(byte(&mut rest)) % KINDS.len()];
                let count = usize::from(byte(&mut rest)) % 5;
                let shape: Vec<usize> = take(&mut rest, count).iter().map(|&side| usize::from(side)).collect();
                npy_of(kind, width, &shape, rest)
            };
            let list = entries(rest, NPZ_NAMES).into_iter();
            zip_of(&list.map(|(packed, name, bytes)| (packed, name, made(&bytes))).collect::<Vec<_>>())
        }
    };
    let path = file("npz/a.npz", &bytes);
    match accepted(open(path.to_str().unwrap())) {
        Some(Input::Images(set)) => check_set(&*set),
        Some(Input::Statistics(found)) => {
            let dim = found.gaussian.mean.len();
            assert!(dim > 0 && found.gaussian.covariance.len() == dim * dim);
            assert!(found.count().is_none_or(|count| count >= 2));
            let copy = file("npz/b.npz", b"");
            found.save(&copy).expect("statistics that were read can be written");
            let again = Statistics::load(&copy).expect("statistics that were written can be read");
            assert_eq!(again.gaussian.mean, found.gaussian.mean);
            assert_eq!(again.gaussian.covariance, found.gaussian.covariance);
            assert_eq!(again.count(), found.count());
        }
        None => (),
    }
}

/// An element of a MATLAB file.
pub fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// An array of a MATLAB file.
pub fn matrix(class: u32, dims: &[u32], name: &str, rest: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
    let flags = [class.to_le_bytes(), [0; 4]].concat();
    element(14, &[element(6, &flags), element(5, &dims), element(1, name.as_bytes()), rest.to_vec()].concat())
}

/// The header of a MATLAB file.
pub fn mat_header() -> Vec<u8> {
    let mut header = vec![b' '; 128];
    header[124..].copy_from_slice(&[0, 1, b'I', b'M']);
    header
}

const MAT_NAMES: [&str; 6] = ["groundTruth", "Boundaries", "ucm2", "segs", "Segmentation", ""];

/// An array described by an input: its class, sizes and name, then its numbers or what is in it.
fn tree(rest: &mut &[u8], depth: usize) -> Vec<u8> {
    let (class, count) = (u32::from(byte(rest)) % 16, usize::from(byte(rest)) % 4);
    let dims: Vec<u32> = take(rest, count).iter().map(|&side| u32::from(side) % 9).collect();
    let name = MAT_NAMES[usize::from(byte(rest)) % MAT_NAMES.len()];
    let product = dims.iter().product::<u32>() as usize;
    let inside = match class {
        1 if depth < 6 => (0..product.min(8)).flat_map(|_| tree(rest, depth + 1)).collect(),
        2 if depth < 6 => {
            let fields: Vec<&str> =
                (0..byte(rest) % 3).map(|_| MAT_NAMES[usize::from(byte(rest)) % MAT_NAMES.len()]).collect();
            let names: Vec<u8> = fields.iter().flat_map(|name| format!("{name:\0<16}").into_bytes()).collect();
            let values = (0..product.min(4) * fields.len()).flat_map(|_| tree(rest, depth + 1));
            [element(5, &16u32.to_le_bytes()), element(1, &names), values.collect()].concat()
        }
        _ => {
            let kind = u32::from(byte(rest)) % 16;
            let width = [1, 1, 1, 2, 2, 4, 4, 4, 1, 8, 1, 1, 8, 8, 1, 1][kind as usize];
            let data = take(rest, width * product);
            element(kind, data)
        }
    };
    matrix(class, &dims, name, &inside)
}

/// A MATLAB file: as it is, after its header, compressed, and of arrays that an input describes.
pub fn mat(input: &[u8]) {
    let bytes = match kind(input, 4) {
        (0, raw) => raw.to_vec(),
        (1, rest) => [mat_header(), rest.to_vec()].concat(),
        (2, rest) => {
            let packed = deflated(rest);
            let head = [15u32.to_le_bytes(), (packed.len() as u32).to_le_bytes()].concat();
            [mat_header(), head, packed].concat()
        }
        (_, mut rest) => [mat_header(), tree(&mut rest, 0)].concat(),
    };
    let Some(variables) = accepted(parse_mat(&bytes, "fuzz.mat")) else { return };
    variables.iter().for_each(|(_, value)| check_value(value, 0));
    let path = file("mat/a.mat", &bytes);
    if let Some(masks) = accepted(load_truth(&path)) {
        assert!(masks.iter().all(|mask| mask.bits.len() == mask.width * mask.height));
    }
    if let Some(found) = accepted(load_detection(&path)) {
        let (width, height) = found.size();
        assert!(width * height > 0 && (width * height) as u64 <= limits::MAP_PIXELS.max);
    }
}

fn check_value(value: &Value, depth: u64) {
    assert!(depth <= limits::MAT_DEPTH.max + 1, "nested deeper than the limit");
    match value {
        Value::Numbers(numbers) => {
            assert_eq!(numbers.values.len(), numbers.dims.iter().product::<usize>());
            if let Some((rows, columns, values)) = numbers.rows() {
                assert_eq!(rows * columns, values.len());
            }
        }
        Value::Cell(cells) => cells.iter().for_each(|cell| check_value(cell, depth + 1)),
        Value::Struct(elements) => {
            elements.iter().flatten().for_each(|(_, value)| check_value(value, depth + 1));
        }
        Value::Other => (),
    }
}

/// Bytes of an image of CIFAR-10.
const IMAGE: usize = 3072;

/// CIFAR-10: a batch of either layout as it is, records of an input's labels, and a pickle with an image in the place of a mark.
pub fn cifar(input: &[u8]) {
    let (kind, rest) = kind(input, 4);
    let (name, bytes) = match kind {
        0 => ("data_batch_1.bin", rest.to_vec()),
        1 => ("data_batch_1", rest.to_vec()),
        2 => {
            let record = |&label: &u8| std::iter::once(label).chain(std::iter::repeat_n(label ^ 0x55, IMAGE));
            ("data_batch_1.bin", rest.iter().take(16).flat_map(record).collect())
        }
        _ => {
            let parts = parts_at(rest, CIFAR_MARK);
            ("data_batch_1", [parts.0, &[7; IMAGE], parts.1].concat())
        }
    };
    let path = file(&format!("cifar/{kind}/{name}"), &bytes);
    if let Some(set) = accepted(Cifar10::open(path.parent().unwrap(), Split::Train)) {
        check_set(&set);
        assert!(set.len() * IMAGE <= bytes.len(), "more images than bytes");
        assert_eq!((set.get(0).unwrap().width, set.get(0).unwrap().channels), (32, 3));
    }
}

/// Where the bytes of an image belong in a pickle of an input.
pub const CIFAR_MARK: &[u8] = b"\xff\xfeimage";

fn parts_at<'a>(bytes: &'a [u8], mark: &[u8]) -> (&'a [u8], &'a [u8]) {
    match bytes.windows(mark.len()).position(|window| window == mark) {
        Some(at) => (&bytes[..at], &bytes[at + mark.len()..]),
        None => (bytes, &[]),
    }
}

/// IDX files: images as they are, gzipped, or of sizes that an input names; what follows a zero byte in the last case are labels.
pub fn idx(input: &[u8]) {
    let header = |sizes: &[u8], magic: u8| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|&size| u32::from(size).to_be_bytes()).collect();
        [&[0, 0, 8, magic][..], &sizes].concat()
    };
    let (images, labels) = match kind(input, 3) {
        (0, raw) => (raw.to_vec(), vec![]),
        (1, rest) => (gzipped(rest), vec![]),
        (_, mut rest) => {
            let sizes: Vec<u8> = take(&mut rest, 3).to_vec();
            let parts = parts(rest, 2);
            let count = sizes.iter().map(|&size| usize::from(size)).product::<usize>().min(1 << 12);
            let pixels = parts[0].iter().copied().chain(std::iter::repeat(9)).take(count);
            let images = header(&sizes, 3).into_iter().chain(pixels).collect();
            (images, [header(&sizes[..sizes.len().min(1)], 1), parts[1].to_vec()].concat())
        }
    };
    file("idx/train-images-idx3-ubyte", &images);
    file("idx/train-labels-idx1-ubyte", &labels);
    if let Some(set) = accepted(Idx::open(&folder().join("idx"))) {
        check_set(&set);
    }
}
