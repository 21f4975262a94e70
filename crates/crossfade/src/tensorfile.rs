//! Safetensors files: written atomically and reproducibly, read tensor by tensor and with limits.
mod element;
mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::Crc;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::error::{Error, Result, visible};
use crate::limits::{self, TENSOR_HEADER, TENSOR_MEMORY, TENSORS};

pub use element::Element;
pub use write::save_tensors;
pub(crate) use write::{TensorView, save_tensors_as, write_rows, write_tensors};

/// A tensor on the host: name, shape, values in row-major order.
pub type HostTensor = (String, Vec<usize>, Vec<f32>);

/// Shapes and values by name.
pub type TensorMap = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The text entry with the CRC-32 of all tensor bytes in the order of the file.
const CHECKSUM: &str = "crc32";

/// A safetensors file of which only the header has been read.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    source: Source,
    start: u64,
    header: Metadata,
}

/// Where the bytes of a file are.
#[derive(Debug)]
enum Source {
    Disk(File),
    Memory(Cow<'static, [u8]>),
}

impl Source {
    /// `count` bytes from `start` on.
    fn read(&self, start: u64, count: usize) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Disk(file) => {
                let (mut file, mut bytes) = (file, vec![0; count]);
                file.seek(SeekFrom::Start(start))?;
                file.read_exact(&mut bytes)?;
                Ok(bytes)
            }
            Self::Memory(all) => {
                let part = usize::try_from(start).ok().and_then(|start| all.get(start..start.checked_add(count)?));
                part.map(<[u8]>::to_vec).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}

impl TensorFile {
    /// Opens a file and checks that its header describes all of it.
    pub fn open(path: &Path) -> Result<Self> {
        let file = limits::open(path)?;
        let size = file.metadata().map_err(Error::io(path))?.len();
        Self::new(path, Source::Disk(file), size)
    }

    /// As [`TensorFile::open`], for the bytes of a file; messages call it `path`.
    pub fn of_bytes(path: &Path, bytes: Cow<'static, [u8]>) -> Result<Self> {
        let size = bytes.len() as u64;
        Self::new(path, Source::Memory(bytes), size)
    }

    fn new(path: &Path, source: Source, size: u64) -> Result<Self> {
        let length = source.read(0, 8).map_err(|_| Error::file(path, "too short for a safetensors file"))?;
        let length = u64::from_le_bytes(std::array::from_fn(|i| length[i]));
        // The length comes from the file and is not trusted: it decides how much memory is allocated below.
        if length > TENSOR_HEADER.max || length + 8 > size {
            return Err(Error::file(path, format!("no safetensors file: its header would take {length} bytes")));
        }
        let bytes = source.read(8, length as usize).map_err(Error::io(path))?;
        // Deserializing also checks that the tensors follow each other without gaps and have the sizes of their shapes.
        let header: Metadata = serde_json::from_slice(&bytes).map_err(|e| {
            Error::file(path, format!("the safetensors header is damaged: {}", visible(&e.to_string())))
        })?;
        TENSORS.check(header.tensors().len() as u64).map_err(|why| Error::file(path, why))?;
        let start = length + 8;
        let expected = start.saturating_add(header.data_len() as u64);
        if expected != size {
            let message = format!("{size} bytes where the header describes {expected}; the file is cut or damaged");
            return Err(Error::file(path, message));
        }
        Ok(Self { path: path.to_path_buf(), source, start, header })
    }

    /// Whether the file can be replaced: bytes in memory cannot.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.source, Source::Disk(_))
    }

    /// The text entries of the header.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.header.metadata().clone().unwrap_or_default().into_iter().collect()
    }

    /// The checksum that the writer stored, by which weights can be identified; `None` in files of other tools.
    pub fn checksum(&self) -> Option<String> {
        self.metadata().remove(CHECKSUM)
    }

    /// All tensors, checked against the checksum if there is one.
    pub(crate) fn read_all(&self) -> Result<Vec<HostTensor>> {
        self.read_wanted(&|_| true)
    }

    /// The tensors whose names are `wanted`, after the checksum of the complete file has been verified.
    pub(crate) fn read_wanted(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<HostTensor>> {
        let mut shapes = self.shapes();
        shapes.retain(|(name, _)| wanted(name));
        self.within_memory(shapes.iter().map(|(_, shape)| &shape[..]))?;
        // First, so that a damaged file takes no memory.
        if self.checksum().is_some() {
            self.verify()?;
        }
        let values = |name: &str| -> Result<Vec<f32>> { Ok(self.element(name)?.decode(&self.bytes(name)?.1)) };
        shapes.into_iter().map(|(name, shape)| values(&name).map(|values| (name, shape, values))).collect()
    }

    /// Compares the numbers with the checksum, block by block, for files that are read in parts later.
    pub(crate) fn verify(&self) -> Result<()> {
        let stored = self.checksum().ok_or_else(|| Error::file(&self.path, "has no checksum; make it anew"))?;
        let (mut crc, mut at, end) = (Crc::new(), 0, self.header.data_len());
        while at < end {
            let next = end.min(at + (1 << 20));
            crc.update(&self.read_bytes(at, next)?);
            at = next;
        }
        let found = format!("{:08x}", crc.sum());
        let message = || format!("damaged: its numbers have the checksum {found}, {stored:?} was written");
        if found == stored { Ok(()) } else { Err(Error::file(&self.path, message())) }
    }

    /// Names and shapes of all tensors, in the order of the file; those without numbers, whose place is the same, by name.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut tensors: Vec<_> = self.header.tensors().into_iter().collect();
        tensors.sort_by(|(a, x), (b, y)| (x.data_offsets, a).cmp(&(y.data_offsets, b)));
        tensors.into_iter().map(|(name, info)| (name, info.shape.clone())).collect()
    }

    /// The header's entry of a tensor.
    pub(crate) fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.header.info(name).ok_or_else(|| Error::file(&self.path, format!("has no tensor {name:?}")))
    }

    /// The header's entry of a tensor, and its bytes as they are stored.
    pub(crate) fn bytes(&self, name: &str) -> Result<(&TensorInfo, Vec<u8>)> {
        let info = self.info(name)?;
        let (start, end) = info.data_offsets;
        self.within_memory([&info.shape[..]].into_iter())?;
        Ok((info, self.read_bytes(start, end)?))
    }

    /// An error if tensors of these shapes take too much memory as 32-bit numbers. The size of a file is no limit: one with holes
    /// takes no space on a disk.
    fn within_memory<'a>(&self, shapes: impl Iterator<Item = &'a [usize]>) -> Result<()> {
        let numbers = |shape: &[usize]| shape.iter().fold(1u64, |size, &side| size.saturating_mul(side as u64));
        let numbers = shapes.fold(0u64, |sum, shape| sum.saturating_add(numbers(shape)));
        TENSOR_MEMORY.check(numbers.saturating_mul(4)).map_err(|why| Error::file(&self.path, why))
    }

    /// The values of `count` rows of an f32 tensor, starting with row `first`.
    pub(crate) fn read_rows(&self, name: &str, first: usize, count: usize) -> Result<Vec<f32>> {
        let info = self.info(name)?;
        let row = 4 * info.shape.iter().skip(1).product::<usize>();
        let (start, end) = (info.data_offsets.0 + first * row, info.data_offsets.0 + (first + count) * row);
        if info.dtype != Dtype::F32 || end > info.data_offsets.1 {
            return Err(Error::file(&self.path, format!("tensor {name:?} has no rows {first}..{}", first + count)));
        }
        Ok(Element::F32.decode(&self.read_bytes(start, end)?))
    }

    /// The bytes between two offsets of the part that holds the tensors.
    fn read_bytes(&self, start: usize, end: usize) -> Result<Vec<u8>> {
        self.source.read(self.start + start as u64, end - start).map_err(Error::io(&self.path))
    }

    /// How the numbers of a tensor are stored; an error for types that are not f32, f16 or bf16.
    pub(crate) fn element(&self, name: &str) -> Result<Element> {
        let dtype = self.info(name)?.dtype;
        let advice = || format!("tensor {name:?} is {dtype:?}; convert the file to F32");
        Element::of(dtype).ok_or_else(|| Error::file(&self.path, advice()))
    }

    /// Shape and values of a tensor.
    pub fn read(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let (element, (info, bytes)) = (self.element(name)?, self.bytes(name)?);
        Ok((info.shape.clone(), element.decode(&bytes)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn tensors() -> Vec<HostTensor> {
        let tensor = |name: &str, shape: &[usize], scale: f32| {
            let count = shape.iter().product::<usize>();
            (name.to_owned(), shape.to_vec(), (0..count).map(|i| scale * i as f32).collect())
        };
        vec![
            tensor("b", &[3], -0.5),
            tensor("a.w", &[2, 3], 0.25),
            tensor("scalar", &[], 1.0),
            tensor("none", &[0, 2], 1.0),
        ]
    }

    fn notes() -> BTreeMap<String, String> {
        (0..9).map(|i| (format!("key{i}"), format!("value {i}"))).collect()
    }

    #[test]
    fn a_file_returns_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        save_tensors(&path, &tensors(), &notes()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something was left aside");
        let file = TensorFile::open(&path).unwrap();
        let mut metadata = file.metadata();
        assert_eq!(metadata.remove(CHECKSUM), file.checksum());
        assert_eq!(metadata, notes());
        assert_eq!(file.read_all().unwrap().len(), tensors().len());
        for (name, shape, values) in tensors() {
            assert_eq!(file.read(&name).unwrap(), (shape, values), "{name}");
        }
        assert!(file.read("stranger").unwrap_err().to_string().contains("stranger"));
        // The format's own reader agrees.
        let bytes = std::fs::read(&path).unwrap();
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(theirs.len(), tensors().len());
        assert_eq!(theirs.tensor("b").unwrap().data(), [-0.0f32, -0.5, -1.0].map(f32::to_le_bytes).concat());
        assert_eq!(SafeTensors::read_metadata(&bytes).unwrap().0 % 8, 0, "numbers are not aligned");
    }

    #[test]
    fn halves_take_half_the_space_and_are_rounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let values = vec![1.0, -0.1, 3.0e-6, 65504.0, 1e-30, 1234.567];
        let tensors = ["f16", "bf16", "f32"].map(|name| (name.to_owned(), vec![2, 3], values.clone()));
        save_tensors_as(&path, &tensors, &notes(), &|name| Element::named(name).unwrap()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let memory = TensorFile::of_bytes(Path::new("memory"), Cow::Owned(bytes.clone())).unwrap();
        for file in [TensorFile::open(&path).unwrap(), memory] {
            for (name, shape, read) in file.read_all().unwrap() {
                let element = Element::named(&name).unwrap();
                assert_eq!((file.element(&name).unwrap(), shape), (element, vec![2, 3]));
                let rounded: Vec<f32> = values.iter().map(|&v| element.rounded(v)).collect();
                assert_eq!((&read, file.read(&name).unwrap().1), (&rounded, rounded.clone()));
                let bound = [(Element::F32, 0.0), (Element::F16, 0.5f32.powi(11)), (Element::Bf16, 0.5f32.powi(8))];
                let bound = bound.iter().find(|(of, _)| *of == element).unwrap().1;
                // The smallest normal number of f16 is 2^-14; below it, the spacing is 2^-24.
                let near = |(a, b): (&f32, &f32)| (a - b).abs() <= bound * b.abs() || (a - b).abs() <= 0.5f32.powi(25);
                assert!(read.iter().zip(&values).all(near), "{name}: {read:?}");
            }
        }
        // The format's own reader agrees about types and sizes.
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(theirs.tensor("f16").unwrap().dtype(), Dtype::F16);
        assert_eq!(theirs.tensor("bf16").unwrap().data().len(), 12);
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        save_tensors(&path, &tensors(), &notes()).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = TensorFile::open(&path).unwrap().read_all().unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn tensors_without_numbers_are_listed_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let all: Vec<_> = "abcdefgh".chars().map(|c| (c.to_string(), vec![if c == 'e' { 2 } else { 0 }])).collect();
        let filled: Vec<_> =
            all.iter().map(|(name, shape)| (name.clone(), shape.clone(), vec![1.0; shape[0]])).collect();
        save_tensors(&path, &filled, &notes()).unwrap();
        assert_eq!(TensorFile::open(&path).unwrap().shapes(), all);
    }

    #[test]
    fn the_same_content_gives_the_same_bytes_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = |tensors: &[HostTensor]| {
            let path = dir.path().join("a.safetensors");
            save_tensors(&path, tensors, &notes()).unwrap();
            std::fs::read(path).unwrap()
        };
        let mut reversed = tensors();
        reversed.reverse();
        let first = bytes(&tensors());
        assert_eq!(bytes(&tensors()), first);
        assert_eq!(bytes(&reversed), first);
    }

    /// Writes a file with this header and `data` zero bytes, and opens it.
    fn open(path: &Path, header: &str, data: usize) -> Result<TensorFile> {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat();
        std::fs::write(path, bytes).unwrap();
        TensorFile::open(path)
    }

    #[test]
    fn damaged_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        save_tensors(&path, &tensors(), &notes()).unwrap();
        let good = std::fs::read(&path).unwrap();
        let mut huge = good.clone();
        huge[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let mut garbled = good.clone();
        garbled[8] = b'x';
        for bad in [&good[..good.len() - 4], &good[..20], &good[..4], &huge, &garbled] {
            std::fs::write(&path, bad).unwrap();
            assert!(TensorFile::open(&path).is_err());
        }
    }

    /// The file takes no space on the disk, but reading it would take the memory.
    #[test]
    fn tensors_are_limited_in_number_and_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let entry = |name: &str, from: u64, to: u64| {
            format!(r#""{name}":{{"dtype":"F32","shape":[{}],"data_offsets":[{from},{to}]}}"#, (to - from) / 4)
        };
        let sparse = |header: &str, data: u64| {
            let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
            std::fs::write(&path, &bytes).unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(bytes.len() as u64 + data).unwrap();
            TensorFile::open(&path)
        };
        let half = TENSOR_MEMORY.max / 2 + 4;
        let file = sparse(&format!("{{{},{}}}", entry("a", 0, half), entry("b", half, 2 * half)), 2 * half).unwrap();
        let message = file.read_all().unwrap_err().to_string();
        assert!(message.contains("a.safetensors") && message.contains(TENSOR_MEMORY.name), "{message}");
        let file = sparse(&format!("{{{}}}", entry("a", 0, 2 * half)), 2 * half).unwrap();
        for message in [file.read("a").unwrap_err(), file.read_all().unwrap_err()] {
            assert!(message.to_string().contains(TENSOR_MEMORY.name), "{message}");
        }
        let many: Vec<String> = (0..=TENSORS.max).map(|k| entry(&format!("t{k}"), 0, 0)).collect();
        let message = sparse(&format!("{{{}}}", many.join(",")), 0).unwrap_err().to_string();
        assert!(message.contains(TENSORS.name), "{message}");
        assert!(sparse(&format!("{{{}}}", many[1..].join(",")), 0).is_ok());
    }

    /// What a file says must not look like a line of the program.
    #[test]
    fn texts_of_a_header_cannot_forge_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let tensor = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        let noted = format!(r#"{{"__metadata__":{{"crc32":"x\nerror: all is well"}},{tensor}}}"#);
        let unknown = tensor.replace("F32", r"x\nerror: all is well");
        for header in [noted, format!("{{{unknown}}}")] {
            let message = open(&path, &header, 4).and_then(|file| file.read_all().map(drop)).unwrap_err().to_string();
            assert!(message.contains("all is well") && message.lines().count() == 1, "{message}");
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        let entry = |name: &str, shape: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}"#)
        };
        let header = |entries: &[String]| format!("{{{}}}", entries.join(","));
        assert!(open(&path, &header(&[entry("a", "[2]", "[0,8]")]), 8).is_ok());
        for (case, entries) in [
            ("backwards", vec![entry("a", "[2]", "[8,0]")]),
            ("another size", vec![entry("a", "[3]", "[0,8]")]),
            ("overlap", vec![entry("a", "[2]", "[0,8]"), entry("b", "[1]", "[4,8]")]),
            ("gap", vec![entry("a", "[1]", "[4,8]")]),
            ("overflow", vec![entry("a", "[9223372036854775807,4]", "[0,8]")]),
            ("beyond the file", vec![entry("a", "[2305843009213693950]", "[0,9223372036854775800]")]),
        ] {
            assert!(open(&path, &header(&entries), 8).is_err(), "{case}");
        }
        let whole = header(&[entry("a", "[2]", "[0,8]").replace("F32", "I32")]);
        assert!(open(&path, &whole, 8).unwrap().read("a").unwrap_err().to_string().contains("I32"));
    }
}
