//! Names of parameters: blocks with names that are no Rust identifiers, and the dotted path while walking a module.
use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};

use super::block::Block;
use super::layers::Conv;

/// The 64-bit FNV-1a hash of a name.
pub fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Whether a parameter of this name is kept with the weights but not trained: the statistics of batch normalisation.
pub fn is_buffer(name: &str) -> bool {
    name.ends_with(".running_mean") || name.ends_with(".running_var")
}

/// The stages of an encoder or decoder in order, under names such as `32x32_block0`.
///
/// The module is implemented by hand because the derive macro takes names from Rust identifiers.
#[derive(Clone, Debug)]
pub struct Stages {
    /// The first convolution; decoders have none.
    pub first: Option<(String, Conv)>,
    /// The blocks in the order in which they run.
    pub blocks: Vec<(String, Block)>,
}

// The engine's file adapters give a meaning to container types that start with "Struct:" or "Enum:"; ours has none.
const CONTAINER: &str = "Stages";

impl Stages {
    fn each(self, mut conv: impl FnMut(&str, Conv) -> Conv, mut block: impl FnMut(&str, Block) -> Block) -> Self {
        let first = self.first.map(|(name, m)| {
            let m = conv(&name, m);
            (name, m)
        });
        let blocks = self.blocks.into_iter().map(|(name, m)| {
            let m = block(&name, m);
            (name, m)
        });
        Self { first, blocks: blocks.collect() }
    }
}

fn visit_named<M: Module, V: ModuleVisitor>(name: &str, module: &M, visitor: &mut V) {
    visitor.enter_module(name, CONTAINER);
    module.visit(visitor);
    visitor.exit_module(name, CONTAINER);
}

fn map_named<M: Module, P: ModuleMapper>(name: &str, module: M, mapper: &mut P) -> M {
    mapper.enter_module(name, CONTAINER);
    let module = module.map(mapper);
    mapper.exit_module(name, CONTAINER);
    module
}

impl Module for Stages {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.first.iter().for_each(|(name, m)| visit_named(name, m, visitor));
        self.blocks.iter().for_each(|(name, m)| visit_named(name, m, visitor));
    }
    fn map<P: ModuleMapper>(self, mapper: &mut P) -> Self {
        let mapper = std::cell::RefCell::new(mapper);
        self.each(
            |name, m| map_named(name, m, *mapper.borrow_mut()),
            |name, m| map_named(name, m, *mapper.borrow_mut()),
        )
    }
    fn collect_devices(&self, devices: Devices) -> Devices {
        let devices = self.first.iter().fold(devices, |d, (_, m)| m.collect_devices(d));
        self.blocks.iter().fold(devices, |d, (_, m)| m.collect_devices(d))
    }
    fn fork(self, device: &Device) -> Self {
        self.each(|_, m| m.fork(device), |_, m| m.fork(device))
    }
    fn to_device(self, device: &Device) -> Self {
        self.each(|_, m| m.to_device(device), |_, m| m.to_device(device))
    }
    fn valid(&self) -> Self {
        self.clone().each(|_, m| m.valid(), |_, m| m.valid())
    }
    fn train(self) -> Self {
        self.each(|_, m| m.train(), |_, m| m.train())
    }
    fn materialize(self) -> Self {
        self.each(|_, m| m.materialize(), |_, m| m.materialize())
    }
}

impl ModuleDisplayDefault for Stages {
    fn content(&self, content: Content) -> Option<Content> {
        let content = self.first.iter().fold(content, |c, (name, m)| c.add(name, m));
        self.blocks.iter().fold(content, |c, (name, m)| c.add(name, m)).optional()
    }
}
impl ModuleDisplay for Stages {}

/// The dotted name of the parameter that a walk through a module has come to.
#[derive(Debug, Default)]
pub struct ParameterPath(Vec<String>);

impl ParameterPath {
    /// Call from `enter_module`.
    pub(crate) fn enter(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }
    /// Call from `exit_module`.
    pub fn exit(&mut self) {
        self.0.pop();
    }
    /// The name of the parameter being visited.
    pub fn name(&self) -> String {
        self.0.join(".")
    }
}

/// What a [`walk`] does with each parameter.
pub trait ParameterVisitor {
    /// What it collects.
    type Item;
    /// Looks at the parameter with this dotted name; none if there is nothing to collect.
    fn param<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) -> Option<Self::Item>;
}

/// All that a visitor collects from the parameters of a module, in the order of registration.
pub fn walk<M: Module, V: ParameterVisitor>(module: &M, visit: V) -> Vec<V::Item> {
    struct Walk<V: ParameterVisitor>(ParameterPath, V, Vec<V::Item>);
    impl<V: ParameterVisitor> ModuleVisitor for Walk<V> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.enter(name);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.2.extend(self.1.param(self.0.name(), param));
        }
    }
    let mut walk = Walk(ParameterPath::default(), visit, Vec::new());
    module.visit(&mut walk);
    walk.2
}

/// Names and shapes of all parameters in the order of registration, without drawing any.
pub fn shapes<M: Module>(module: &M) -> Vec<(String, Vec<usize>)> {
    struct Shapes;
    impl ParameterVisitor for Shapes {
        type Item = (String, Vec<usize>);
        fn param<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) -> Option<Self::Item> {
            Some((name, param.lazy_shape().to_vec()))
        }
    }
    walk(module, Shapes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{BackboneConfig, NetworkPorts, UNetConfig};

    #[test]
    fn ids_are_hashes_of_the_names_that_a_walk_finds() {
        struct Ids;
        impl ParameterVisitor for Ids {
            type Item = (String, u64);
            fn param<const D: usize>(&mut self, name: String, param: &Param<Tensor<D>>) -> Option<Self::Item> {
                Some((name, param.id.val()))
            }
        }
        let config = UNetConfig { augment_dim: 9, ..crate::nn::preset("tiny").expect("a preset") };
        let net = config.init(NetworkPorts::default(), 0, &Device::flex()).train();
        let ids = walk(&net.valid(), Ids);
        assert_eq!(ids.len(), config.state_shapes(NetworkPorts::default()).len());
        ids.iter().for_each(|(name, id)| assert_eq!(*id, fnv1a(name), "{name}"));
    }
}
