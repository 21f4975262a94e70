//! Weights on the host and in safetensors files, by exact name.
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path as FilePath, PathBuf};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::named::{Path, shapes};
use crate::engine::{from_vec, to_host};
use crate::error::{Error, Result};

/// A tensor on the host: name, shape, values in row-major order.
pub type HostTensor = (String, Vec<usize>, Vec<f32>);

/// Longest header that is read from a file; the largest network of this toolkit needs 0.2 MB.
const HEADER_LIMIT: u64 = 16 << 20;

/// All parameters of a module, in the order of registration.
pub fn collect<M: Module>(module: &M) -> Vec<HostTensor> {
    #[derive(Default)]
    struct Collect(Path, Vec<HostTensor>);
    impl ModuleVisitor for Collect {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.enter(name);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            self.1.push((self.0.name(), value.dims().to_vec(), to_host(value)));
        }
    }
    let mut visitor = Collect::default();
    module.visit(&mut visitor);
    visitor.1
}

/// The module with every parameter replaced by what `source` has under its name.
///
/// Parameters that have not been used yet are never drawn. The error lists all names that are missing or have another
/// shape.
pub fn apply<M: Module>(module: M, source: &dyn Fn(&str) -> Option<(Vec<usize>, Vec<f32>)>) -> Result<M> {
    struct Apply<'a>(Path, &'a dyn Fn(&str) -> Option<(Vec<usize>, Vec<f32>)>, Vec<String>);
    impl ModuleMapper for Apply<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.enter(name);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (name, shape) = (self.0.name(), param.lazy_shape().to_vec());
            match (self.1)(&name) {
                Some((found, values)) if found == shape => {
                    let tensor = from_vec(values, std::array::from_fn(|i| shape[i]), &param.lazy_device());
                    let mut new = Param::from_tensor(tensor);
                    new.id = param.id;
                    return new;
                }
                Some((found, _)) => self.2.push(format!("wrong shape: {name} {found:?}, expected {shape:?}")),
                None => self.2.push(format!("missing: {name} {shape:?}")),
            }
            param
        }
    }
    let mut mapper = Apply(Path::default(), source, Vec::new());
    let module = module.map(&mut mapper);
    if mapper.2.is_empty() { Ok(module) } else { Err(Error::Request(list(mapper.2))) }
}

fn list(problems: Vec<String>) -> String {
    format!("{} weights do not fit the network:\n  {}", problems.len(), problems.join("\n  "))
}

/// All differences between the parameters that a network has and those that a file has, by exact name.
pub fn differences(expected: &[(String, Vec<usize>)], found: &[(String, Vec<usize>)]) -> Vec<String> {
    let index = |list: &[(String, Vec<usize>)]| list.iter().cloned().collect::<BTreeMap<_, _>>();
    let (wanted, present) = (index(expected), index(found));
    let missing = expected.iter().filter(|(name, _)| !present.contains_key(name));
    let missing = missing.map(|(name, shape)| format!("missing: {name} {shape:?}"));
    let unexpected = found.iter().filter(|(name, _)| !wanted.contains_key(name));
    let unexpected = unexpected.map(|(name, shape)| format!("unexpected: {name} {shape:?}"));
    let misshapen = expected.iter().filter_map(|(name, shape)| {
        let got = present.get(name).filter(|got| *got != shape)?;
        Some(format!("wrong shape: {name} {got:?}, expected {shape:?}"))
    });
    missing.chain(unexpected).chain(misshapen).collect()
}

/// Writes tensors and metadata to a safetensors file: aside first, then renamed, so that `path` is never half a file.
pub fn save_tensors(path: &FilePath, tensors: &[HostTensor], metadata: &BTreeMap<String, String>) -> Result<()> {
    let aside = PathBuf::from(format!("{}.{}.partial", path.display(), std::process::id()));
    let written = write_tensors(&aside, tensors, metadata).and_then(|()| std::fs::rename(&aside, path));
    written.map_err(|error| {
        // Best effort: the error that matters is the first one.
        let _ = std::fs::remove_file(&aside);
        Error::io(path)(error)
    })
}

fn write_tensors(path: &FilePath, tensors: &[HostTensor], metadata: &BTreeMap<String, String>) -> std::io::Result<()> {
    let mut sorted: Vec<&HostTensor> = tensors.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut end = 0;
    let infos = sorted.iter().map(|(name, shape, values)| {
        let start = end;
        end += values.len() * 4;
        (name.clone(), TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets: (start, end) })
    });
    let infos = infos.collect();
    let metadata: HashMap<String, String> = metadata.clone().into_iter().collect();
    let header = Metadata::new(Some(metadata), infos).map_err(std::io::Error::other)?;
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for (_, _, values) in sorted {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        file.write_all(&bytes)?;
    }
    file.into_inner().map_err(|e| e.into_error())?.sync_all()
}

/// A safetensors file of which only the header has been read.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    start: u64,
    header: Metadata,
}

impl TensorFile {
    /// Opens a file and checks that its header describes all of it.
    pub fn open(path: &FilePath) -> Result<Self> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        let size = file.metadata().map_err(Error::io(path))?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|_| Error::file(path, "too short for a safetensors file"))?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_LIMIT || length + 8 > size {
            return Err(Error::file(path, format!("no safetensors file: its header would take {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact(&mut bytes).map_err(Error::io(path))?;
        let header: Metadata = serde_json::from_slice(&bytes)
            .map_err(|e| Error::file(path, format!("the safetensors header is damaged: {e}")))?;
        let start = length + 8;
        let expected = start.checked_add(header.data_len() as u64);
        if expected != Some(size) {
            let message = format!("{size} bytes where the header describes {expected:?}; the file is cut or damaged");
            return Err(Error::file(path, message));
        }
        Ok(Self { path: path.to_path_buf(), file, start, header })
    }

    /// The text entries of the header.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.header.metadata().clone().unwrap_or_default().into_iter().collect()
    }

    /// Names and shapes of all tensors, in the order of the file.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let names = self.header.offset_keys().into_iter();
        names
            .filter_map(|name| self.header.info(&name).map(|info| info.shape.clone()).map(|shape| (name, shape)))
            .collect()
    }

    /// Shape and values of a tensor of f32 numbers.
    pub fn read(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let info = self.header.info(name);
        let info = info.ok_or_else(|| Error::file(&self.path, format!("has no tensor {name:?}")))?;
        if info.dtype != Dtype::F32 {
            let message = format!("tensor {name:?} is {:?}; convert the file to F32", info.dtype);
            return Err(Error::file(&self.path, message));
        }
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.start + start as u64)).map_err(Error::io(&self.path))?;
        file.read_exact(&mut bytes).map_err(Error::io(&self.path))?;
        let values = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        Ok((info.shape.clone(), values.collect()))
    }
}

/// The module with its weights from a file that has exactly its parameters; names in `ignored` may be there too.
///
/// All missing, unexpected and wrongly shaped names are reported before anything is read.
pub fn load<M: Module>(module: M, path: &FilePath, ignored: &[String]) -> Result<M> {
    let file = TensorFile::open(path)?;
    let mut found = file.shapes();
    found.retain(|(name, _)| !ignored.contains(name));
    let problems = differences(&shapes(&module), &found);
    if !problems.is_empty() {
        return Err(Error::file(path, list(problems)));
    }
    let failure = RefCell::new(None);
    let source = |name: &str| file.read(name).map_err(|e| failure.borrow_mut().get_or_insert(e).to_string()).ok();
    let loaded = apply(module, &source);
    match failure.into_inner() {
        Some(error) => Err(error),
        None => loaded,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::Device;
    use crate::nn::{UNet, preset};

    fn net(seed: u64) -> UNet {
        preset("tiny").unwrap().init(1, seed, &Device::flex())
    }

    fn save(dir: &FilePath, tensors: &[HostTensor]) -> PathBuf {
        let path = dir.join("net.safetensors");
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        save_tensors(&path, tensors, &metadata).unwrap();
        path
    }

    #[test]
    fn weights_survive_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (net(1), net(2));
        assert_ne!(collect(&a), collect(&b));
        let path = save(dir.path(), &collect(&a));
        assert_eq!(collect(&load(b, &path, &[]).unwrap()), collect(&a));
        assert_eq!(TensorFile::open(&path).unwrap().metadata()["format"], "pt");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something was left aside");
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), collect(&a).len());
    }

    #[test]
    fn all_misfits_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let mut tensors = collect(&net(1));
        tensors.retain(|(name, ..)| !name.starts_with("out_norm."));
        tensors.push(("stranger".into(), vec![1], vec![0.0]));
        let bias = tensors.iter_mut().find(|(name, ..)| name == "map_layer0.bias").unwrap();
        (bias.1, bias.2) = (vec![2, 1], vec![0.0; 2]);
        let path = save(dir.path(), &tensors);
        let error = load(net(1), &path, &[]).unwrap_err().to_string();
        for part in [
            "missing: out_norm.weight [32]",
            "missing: out_norm.bias",
            "unexpected: stranger",
            "wrong shape: map_layer0.bias",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!load(net(1), &path, &["stranger".into()]).unwrap_err().to_string().contains("stranger"));
        assert!(apply(net(1), &|_| None).unwrap_err().to_string().contains("missing: enc.16x16_conv.weight"));
    }

    #[test]
    fn damaged_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = save(dir.path(), &collect(&net(1))[..3]);
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
}
