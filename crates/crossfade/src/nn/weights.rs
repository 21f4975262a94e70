//! Weights of a module on the host, and from files by exact name.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Gradients, Tensor};

use super::named::{ParameterPath, ParameterVisitor, is_buffer, shapes, walk};
use crate::engine::{from_vec, to_host};
use crate::error::{Error, Result, visible};
use crate::tensorfile::{HostTensor, TensorFile};

/// The shape and values of a parameter by its dotted name; none if there is no such.
pub type WeightSource<'a> = dyn Fn(&str) -> Option<(Vec<usize>, Vec<f32>)> + 'a;

/// All parameters of a module, in the order of registration.
pub fn collect<M: Module>(module: &M) -> Vec<HostTensor> {
    struct Values;
    impl ParameterVisitor for Values {
        type Item = HostTensor;
        fn param<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) -> Option<HostTensor> {
            let value = param.val();
            Some((name, value.dims().to_vec(), to_host(value)))
        }
    }
    walk(module, Values)
}

/// The gradients of all parameters that have one, in the order of registration.
pub fn gradients<M: Module>(module: &M, gradients: Gradients) -> Vec<HostTensor> {
    struct Grads(GradientsParams);
    impl ParameterVisitor for Grads {
        type Item = HostTensor;
        fn param<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) -> Option<HostTensor> {
            let gradient = self.0.remove::<D>(param.id)?;
            Some((name, gradient.dims().to_vec(), to_host(gradient)))
        }
    }
    walk(module, Grads(GradientsParams::from_grads(gradients, module)))
}

/// The module with every parameter replaced by what `source` has under its name.
///
/// Initial values that have not been used yet are never drawn. The error lists all names that are missing or have another
/// shape.
pub fn apply<M: Module>(module: M, source: &WeightSource) -> Result<M> {
    struct Apply<'a>(ParameterPath, &'a WeightSource<'a>, Vec<String>);
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
                    let mut new = Param::from_tensor(tensor).set_require_grad(!is_buffer(&name));
                    new.id = param.id;
                    return new;
                }
                Some((found, _)) => self.2.push(format!("wrong shape: {name} {found:?}, expected {shape:?}")),
                None => self.2.push(format!("missing: {name} {shape:?}")),
            }
            param
        }
    }
    let mut mapper = Apply(ParameterPath::default(), source, Vec::new());
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
    let unexpected = unexpected.map(|(name, shape)| format!("unexpected: {} {shape:?}", visible(name)));
    let misshapen = expected.iter().filter_map(|(name, shape)| {
        let got = present.get(name).filter(|got| *got != shape)?;
        Some(format!("wrong shape: {name} {got:?}, expected {shape:?}"))
    });
    missing.chain(unexpected).chain(misshapen).collect()
}

/// The module with its weights from a file that has exactly its parameters; names in `ignored` may be there too.
///
/// All missing, unexpected and wrongly shaped names are reported before anything is read.
pub fn load<M: Module>(module: M, path: &Path, ignored: &[String]) -> Result<M> {
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
    use crate::nn::{Context, NetworkPorts, UNet, preset};
    use crate::tensorfile::save_tensors;
    use std::path::PathBuf;

    fn net(seed: u64) -> UNet {
        preset("tiny").unwrap().init(NetworkPorts::default(), seed, &Device::flex())
    }

    fn save(dir: &Path, tensors: &[HostTensor]) -> PathBuf {
        let path = dir.join("net.safetensors");
        save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
        path
    }

    #[test]
    fn weights_survive_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (net(1), net(2));
        assert_ne!(collect(&a), collect(&b));
        let path = save(dir.path(), &collect(&a));
        assert_eq!(collect(&load(b, &path, &[]).unwrap()), collect(&a));
        let loaded = preset("tiny").unwrap().load(NetworkPorts::default(), &path, &Device::flex()).unwrap();
        assert_eq!(collect(&loaded), collect(&a));
    }

    #[test]
    fn loaded_weights_can_be_trained() {
        let dir = tempfile::tempdir().unwrap();
        let path = save(dir.path(), &collect(&net(1)));
        let trained = preset("tiny").unwrap().load(NetworkPorts::default(), &path, &Device::flex()).unwrap().train();
        let device = Device::flex().autodiff();
        let x = Tensor::ones([1, 3, 16, 16], &device);
        let raw = trained.forward(x, Tensor::zeros([1], &device), &Context::default(), None);
        let loss = raw.phi.sum() + raw.eps.unwrap().sum();
        assert_eq!(gradients(&trained, loss.backward()).len(), collect(&trained).len());
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
}
