//! Initial weights, each a pure function of the seed and of the parameter's dotted name.
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Tensor};

use super::named::fnv1a;
use crate::engine::from_vec;
use crate::rng::{Purpose, Stream};

/// Initial values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Uniform in (-bound, bound).
    Uniform(f64),
    /// Normally distributed.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
}

impl Init {
    /// Uniform in ±1/√fan_in, PyTorch's default of convolutions and dense layers.
    pub fn fan_in(fan_in: usize) -> Self {
        Self::Uniform(1.0 / (fan_in as f64).sqrt())
    }
}

/// Initial logits of LSGM's mixing weights: sigmoid(−3) is about a twentieth.
pub(crate) const MIXING: Init = Init::Normal { mean: -3.0, std: 0.0 };

/// The dotted name of a sub-module under construction, from which its parameters get their names.
///
/// A parameter's id and initial values are functions of its name (and the seed) alone, so that they depend neither on the
/// order of construction nor on which other parts a network has.
#[derive(Clone, Debug)]
pub struct Scope {
    path: String,
    seed: u64,
    device: Device,
}

impl Scope {
    /// The root of a network.
    pub fn root(seed: u64, device: &Device) -> Self {
        Self { path: String::new(), seed, device: device.clone() }
    }

    /// The scope of the sub-module `name`, which may have dots.
    pub fn at(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, ..self.clone() }
    }

    /// A hash of the name: identifies a layer's dropout masks.
    pub fn hash(&self) -> u64 {
        fnv1a(&self.path)
    }

    /// The parameter `name` of this scope. No memory is taken and nothing is drawn before its first use, so that the names
    /// and shapes of a large network cost nothing.
    ///
    /// Its id is the hash of its dotted name, which pairs model, optimiser state and averaged weights across processes.
    pub fn param<const D: usize>(&self, name: &str, shape: [usize; D], start: Init) -> Param<Tensor<D>> {
        self.tensor(name, shape, start, true)
    }

    /// As [`Scope::param`] for what is kept with the weights but not trained, such as running statistics.
    pub fn buffer<const D: usize>(&self, name: &str, shape: [usize; D], start: Init) -> Param<Tensor<D>> {
        self.tensor(name, shape, start, false)
    }

    fn tensor<const D: usize>(&self, name: &str, shape: [usize; D], start: Init, trained: bool) -> Param<Tensor<D>> {
        let (seed, hash) = (self.seed, self.at(name).hash());
        let init = move |device: &Device, require_grad: bool| {
            let values = values(seed, hash, shape.iter().product(), start);
            let tensor = from_vec(values, shape, device);
            if require_grad { tensor.require_grad() } else { tensor }
        };
        Param::uninitialized(ParamId::from(hash), init, self.device.clone(), trained, shape.into())
    }
}

/// The module with all weights drawn, instead of at their first use.
pub(crate) fn initialized<M: Module>(module: M) -> M {
    struct Draw;
    impl ModuleVisitor for Draw {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val();
        }
    }
    module.visit(&mut Draw);
    module
}

fn values(seed: u64, hash: u64, count: usize, start: Init) -> Vec<f32> {
    match start {
        Init::Zeros => vec![0.0; count],
        Init::Ones => vec![1.0; count],
        Init::Uniform(bound) => {
            let mut stream = Stream::new(seed, hash, 0, Purpose::Weights);
            (0..count).map(|_| ((2.0 * stream.uniform() - 1.0) * bound) as f32).collect()
        }
        Init::Normal { mean, std } => {
            let mut stream = Stream::new(seed, hash, 0, Purpose::Weights);
            (0..count).map(|_| (mean + std * stream.normal()) as f32).collect()
        }
    }
}
