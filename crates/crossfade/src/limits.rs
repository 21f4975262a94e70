//! What is read of files that nobody vouches for: every limit, and the only place that opens files for reading.
//!
//! A length, a count or a depth that a file states is not trusted before it was compared with its limit here, because it
//! decides how much memory is allocated and how long a parser runs.
mod archive;
mod memory;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Once;

use crate::error::{Error, Result};

pub use archive::{Archive, Counted, open_zip};
pub use memory::{need, sharing};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Pixels.
    Pixels,
    /// Things of any kind.
    Count,
    /// Levels of nesting.
    Depth,
}

/// A limit: nothing larger is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Limit {
    /// What is limited.
    pub name: &'static str,
    /// The largest value that is accepted.
    pub max: u64,
    /// What is counted.
    pub unit: Unit,
}

macro_rules! limits {
    ($($(#[$doc:meta])* $constant:ident = $name:literal, $max:expr, $unit:ident;)*) => {
        $($(#[$doc])* pub const $constant: Limit = Limit { name: $name, max: $max, unit: Unit::$unit };)*
        /// Every limit, in the order of the table in `docs/TRUST.md`.
        pub const ALL: &[Limit] = &[$($constant),*];
    };
}

limits! {
    /// The largest photographs have about 100 MB.
    IMAGE_FILE = "image file", 128 << 20, Bytes;
    /// 8192x8192.
    IMAGE_PIXELS = "pixels of an image", 64 << 20, Pixels;
    /// `IMAGE_PIXELS` of 8-bit RGBA, and a third of it with 16 bits. Turning it or converting it takes as much again.
    IMAGE_MEMORY = "decoded image, in its own format or with 16 bits", 256 << 20, Bytes;
    /// One image at the limits, with its file and a copy. Other threads wait until it is done.
    SHARED_MEMORY = "images and maps that all threads work on at once", 640 << 20, Bytes;
    /// A metric of pairs holds one channel of both images as 64-bit numbers: 512 MiB.
    METRIC_PIXELS = "pixels of an image that PSNR, SSIM and MS-SSIM compare", 32 << 20, Pixels;
    /// 3840x2160 in colour. They are held as 64-bit numbers.
    METRIC_NUMBERS = "numbers of an array of NumPy that is compared as an image", 24 << 20, Count;
    /// The features of AlexNet take about 100 bytes for each pixel.
    LPIPS_PIXELS = "pixels of an image that LPIPS compares with AlexNet", 4 << 20, Pixels;
    /// The features of VGG-16 take about 1,200 bytes for each pixel.
    LPIPS_VGG_PIXELS = "pixels of an image that LPIPS compares with VGG-16", 1 << 19, Pixels;
    /// The filtered planes of random-frechet take about 120 bytes for each pixel.
    FILTER_PIXELS = "pixels of an image that random-frechet compares", 4 << 20, Pixels;
    /// 4,096 of 64x64 pixels. Each is held with the nearest one and with what is drawn of both.
    NEAREST_PIXELS = "pixels of all samples whose nearest images are searched", 16 << 20, Pixels;
    /// 1024x512. A network of 32 channels holds about 900 bytes of each pixel.
    AUTOENCODER_PIXELS = "pixels of an image that an autoencoder reconstructs", 1 << 19, Pixels;
    /// 3840x2160. Distances and weights of each pixel take ten 64-bit numbers.
    MAP_PIXELS = "pixels of a map that a metric compares", 8 << 20, Pixels;
    /// Of two maps of 3840x2160 with thin edges there are some millions. Each takes 8 bytes, twice.
    EDGE_LINKS = "pairs of edge pixels within the tolerance", 16 << 20, Count;
    /// Their numbers are drawn before the first subset is measured.
    KID_IMAGES = "images that KID draws, over all subsets", 32 << 20, Count;
    /// Three matrices of each class. Ten classes of Inception's 2,048 features take 960 MiB.
    CLASS_MATRICES = "matrices of all classes whose distances are measured", 1 << 30, Bytes;
    /// A recipe takes a few kB.
    PNG_TEXT = "texts of a PNG that are read, decompressed, in all", 1 << 20, Bytes;
    /// ImageNet has 1.3 million images. Each entry takes some hundred bytes.
    ZIP_ENTRIES = "entries of a zip", 2_000_000, Count;
    /// As much as a photograph takes.
    ZIP_IMAGE = "image in a zip, unpacked", 64 << 20, Bytes;
    /// The training images of MNIST take 47 MB, those of EMNIST 547 MB.
    IDX_FILE = "IDX file, unpacked", 640 << 20, Bytes;
    /// 4096x4096. Images of MNIST have 28x28.
    IDX_PIXELS = "pixels of an image in an IDX file", 16 << 20, Pixels;
    /// ImageNet has 1,000. More would be a slip, such as one folder for every image.
    CLASSES = "classes of a data set", 4096, Count;
    /// A batch of CIFAR-10 takes 31 MB. Five of them are in memory.
    CIFAR_FILE = "file of CIFAR-10", 128 << 20, Bytes;
    /// The annotations of BSDS500 take less than 1 MB.
    MAT_FILE = "MATLAB file, packed and unpacked", 64 << 20, Bytes;
    /// MATLAB's own names have 63. Every element of a structure has its own copies of the names of its fields.
    MAT_NAME = "name of a field in a MATLAB file", 256, Bytes;
    /// Annotations are nested four deep.
    MAT_DEPTH = "nesting of a MATLAB file", 16, Depth;
    /// A file of BSDS500 has about 40.
    MAT_ARRAYS = "arrays of a MATLAB file", 1 << 18, Count;
    /// Each is kept as 64 bits, and those of a map twice.
    MAT_NUMBERS = "numbers of a MATLAB file", 16 << 20, Count;
    /// Statistics have seven arrays.
    NPZ_ENTRIES = "arrays of an npz", 4096, Count;
    /// The products of 2,896 features as 64-bit numbers; Inception has 2,048. Statistics have two of them, a distance more.
    NPZ_ARRAY = "array of numbers in an npz", 64 << 20, Bytes;
    /// NumPy pads headers to 64 bytes.
    NPY_HEADER = "header of an array of NumPy", 1 << 16, Bytes;
    /// The names of a protocol and of weights.
    NPZ_TEXT = "text in an npz", 1 << 10, Bytes;
    /// Compressed images are unpacked into memory: 50,000 of 64x64 pixels. Others are read in place, without a limit.
    NPZ_IMAGES = "compressed images in an npz, unpacked", 640 << 20, Bytes;
    /// The largest network of this toolkit needs 0.2 MB.
    TENSOR_HEADER = "header of a safetensors file", 16 << 20, Bytes;
    /// A checkpoint of the largest network of this toolkit has about four thousand.
    TENSORS = "tensors of a safetensors file", 100_000, Count;
    /// A training's checkpoint of a network of a billion parameters: weights, their average and two moments of the optimiser.
    TENSOR_MEMORY = "tensors of a safetensors file that are read together", 16 << 30, Bytes;
    /// That of a checkpoint with 800 tensors has half a megabyte.
    PICKLE = "pickle of a PyTorch file", 64 << 20, Bytes;
    /// Each takes one step of the scanner.
    PICKLE_OPCODES = "opcodes of a pickle", 2_000_000, Count;
    /// PyTorch's own pickles are nested about ten deep.
    PICKLE_DEPTH = "nesting of a pickle", 64, Depth;
    /// Longer strings are not kept while a pickle is scanned. No name that is allowed has more than 40 bytes.
    PICKLE_NAME = "name of a module or a class in a pickle", 256, Bytes;
    /// Tensors are entries of their own.
    TORCH_ENTRIES = "entries of a PyTorch file", 400_000, Count;
    /// The largest network of this toolkit has about a thousand.
    TORCH_TENSORS = "tensors of a PyTorch file", 100_000, Count;
    /// Tensors may share their bytes. Without a limit, a small file could fill the memory with views of one storage.
    TORCH_SHARING = "tensors of a PyTorch file, in sizes of the file", 8, Count;
    /// They take 96 MB.
    INCEPTION_FILE = "weights of Inception", 256 << 20, Bytes;
    /// Weights, their average and two moments of the optimiser of a large network.
    TORCH_MEMORY = "tensors of a PyTorch file, in all", 8 << 30, Bytes;
    /// Presets take 2 kB.
    CONFIG = "configuration, in a file or in a checkpoint", 256 << 10, Bytes;
    /// Presets have about 60. The key that causes an error may be found by reading the table once for each key.
    CONFIG_KEYS = "keys of a configuration", 2_000, Count;
    /// The longest key of a preset has 34 bytes. Each key is kept with the names of its sections.
    CONFIG_KEY = "key of a configuration, with its sections", 1 << 10, Bytes;
    /// Readings of a configuration, by which the causes of its errors are found, times its size. One of 2 kB is read 8,000 times.
    CONFIG_SEARCH = "search for errors of a configuration, in all", 16 << 20, Bytes;
    /// Presets are nested three deep.
    CONFIG_DEPTH = "nesting of a configuration", 16, Depth;
    /// More never fit into memory.
    BATCH = "images of a batch", 1 << 16, Count;
    /// 4 GiB of 32-bit numbers, of which a network holds many more.
    BATCH_VALUES = "numbers of a batch of images", 1 << 30, Count;
    /// Batches times `train.accumulate`.
    STEP_IMAGES = "images of a training step", 1 << 24, Count;
    /// With `STEP_IMAGES`, every image of a run has a number below 2^56.
    STEPS = "steps of a training", 1 << 32, Count;
    /// Threads that read and prepare images.
    LOADER_THREADS = "threads of a loader", 1024, Count;
    /// Their order in an epoch takes 8 bytes for each.
    SET_IMAGES = "images of a data set", 64 << 20, Count;
    /// Products of several of them must fit into 64 bits.
    NETWORK_SIZE = "each size of a network: sides, channels, widths, blocks", 4096, Count;
    /// By the estimate of `crossfade config check`; whether this machine has as much is not asked.
    TRAIN_MEMORY = "estimated memory of a training", 1 << 40, Bytes;
    /// A line takes about 200 bytes.
    LOG = "log of a training", 1 << 30, Bytes;
    /// Longer lines are no reports of a step.
    LINE = "line of a log", 64 << 10, Bytes;
    /// One value for each image. In memory JSON can take a hundred times as much.
    REPORT = "report of an evaluation", 8 << 20, Bytes;
    /// A cell of a table takes a few kB.
    CELL = "result of a study", 16 << 20, Bytes;
    /// One line.
    TOKEN = "file of a token", 1 << 20, Bytes;
}

impl Limit {
    /// The number with its unit, as it is printed.
    pub fn amount(&self) -> String {
        let binary = [(1u64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        let round = binary.iter().find(|(size, _)| self.max.is_multiple_of(*size)).filter(|_| self.max > 0);
        match (self.unit, round) {
            (Unit::Bytes, Some((size, prefix))) => format!("{} {prefix}B", self.max / size),
            (Unit::Bytes, None) => format!("{} bytes", self.max),
            (Unit::Pixels, _) if self.max.is_multiple_of(1 << 20) => format!("{} million", self.max >> 20),
            (Unit::Pixels | Unit::Count | Unit::Depth, _) => self.max.to_string(),
        }
    }

    /// The reason why `found` is refused, or nothing.
    pub fn check(&self, found: u64) -> std::result::Result<(), String> {
        if found <= self.max { Ok(()) } else { Err(self.reason(found)) }
    }

    fn reason(&self, found: impl std::fmt::Display) -> String {
        format!(
            "{found} is more than the limit of {} ({}); `crossfade --limits` lists all limits",
            self.amount(),
            self.name
        )
    }

    /// As a size in memory.
    pub const fn size(&self) -> usize {
        self.max as usize
    }
}

/// Opens a regular file. Others are refused before they are opened: opening a pipe would wait for its writer.
pub fn open(path: &Path) -> Result<File> {
    let kind = std::fs::metadata(path).map_err(Error::io(path))?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "a pipe, a device or a socket" };
        return Err(Error::file(path, format!("is {what}; expected a file")));
    }
    File::open(path).map_err(Error::io(path))
}

/// Reads a complete file within a limit.
pub fn read(path: &Path, limit: &Limit) -> Result<Vec<u8>> {
    read_at_most(path, limit.max).and_then(|bytes| bytes.ok_or_else(|| Error::file(path, limit.reason("its size"))))
}

/// Reads a complete file of at most `max` bytes, where that is known exactly; nothing if it is longer.
pub fn read_at_most(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let file = open(path)?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    if length > max {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // The file may have grown since its length was read, so the limit is enforced while reading too.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::io(path))?;
    Ok((bytes.len() as u64 <= max).then_some(bytes))
}

/// The lines of a text file within a limit, one after the other. Single lines may be damaged: bytes that are no UTF-8 are
/// replaced, and of a line above [`LINE`] nothing is left.
pub fn lines(path: &Path, limit: &Limit) -> Result<impl Iterator<Item = std::io::Result<String>>> {
    let file = open(path)?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    limit.check(length).map_err(|why| Error::file(path, why))?;
    let mut reader = BufReader::new(file.take(limit.max));
    Ok(std::iter::from_fn(move || line(&mut reader).transpose()))
}

/// The next line without its end.
fn line(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut bytes = vec![];
    if reader.by_ref().take(LINE.max + 1).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.last() != Some(&b'\n') && bytes.len() as u64 > LINE.max {
        reader.skip_until(b'\n')?;
        bytes.clear();
    }
    Ok(Some(String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned()))
}

/// All that is left in `reader`, which often decompresses, or the first `max` + 1 bytes of it: one byte too many shows the
/// caller that there is more.
pub fn take(reader: impl Read, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// As [`take`], for content that should have `size` bytes, which are within a limit: memory grows once and not by doubling.
pub fn take_sized(reader: impl Read, size: u64) -> std::io::Result<Vec<u8>> {
    // Pages are only taken from the system when they are written to, whatever the file claims.
    let mut bytes = Vec::with_capacity(size as usize);
    reader.take(size.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An error if work that is estimated to take `bytes` of memory cannot fit into this machine: before the work and with the
/// numbers, in place of an end by the system somewhere in it. Estimates are rough, so that only far too much is refused.
pub fn must_fit(bytes: u64, what: &str) -> Result<()> {
    const ROUGH: u64 = 4;
    match memory() {
        Some(all) if bytes / ROUGH > all => Err(Error::request(format!(
            "{what} would take about {} GB of memory, and this machine has {} GB; use a smaller batch or network",
            bytes / 1_000_000_000,
            all / 1_000_000_000
        ))),
        _ => Ok(()),
    }
}

/// The memory of this machine in bytes, where the system tells it.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb << 10)
}

thread_local! {
    static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs the decoder of another crate on untrusted bytes. If it panics, that is an error of the file, which is then named.
///
/// The crate `png` 0.18.1 panics where the palette of an indexed image has a length that is no multiple of 3; that is a
/// defect to be reported there, but the next one in some decoder must not end a training either.
pub fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    // Without this the panic would be printed although it is handled. Panics of everything else are printed as before.
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    // A decoder owns all that it changes, so nothing that is half changed can be seen afterwards.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    QUIET.set(outer);
    result.unwrap_or_else(|_| Err(Error::file(path, "is damaged in a way that its decoder does not handle")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_fit_is_refused() {
        must_fit(1 << 20, "a batch").unwrap();
        if memory().is_some() {
            let message = must_fit(u64::MAX, "a batch").unwrap_err().to_string();
            assert!(message.contains("a batch would take about 18446744073 GB"), "{message}");
        }
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.bin");
        std::fs::write(&path, [7; 100]).unwrap();
        let limit = |max| Limit { name: "a test", max, unit: Unit::Bytes };
        assert_eq!(read(&path, &limit(100)).unwrap().len(), 100);
        let message = read(&path, &limit(99)).unwrap_err().to_string();
        assert!(message.contains("a.bin") && message.contains("99 bytes"), "{message}");
        assert_eq!(take(&[7u8; 100][..], 10).unwrap().len(), 11);
    }

    #[test]
    fn lines_are_read_one_by_one_and_long_ones_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let long = "x".repeat(LINE.size() + 1);
        std::fs::write(&path, format!("one\r\n\n{long}\n{}\nlast", &long[1..])).unwrap();
        let found: Vec<String> = lines(&path, &LOG).unwrap().map(std::io::Result::unwrap).collect();
        assert_eq!(found, ["one", "", "", &long[1..], "last"]);
        let limit = Limit { name: "a test", max: 9, unit: Unit::Bytes };
        assert!(lines(&path, &limit).is_err());
    }
}
