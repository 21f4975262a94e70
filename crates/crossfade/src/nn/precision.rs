//! The numbers that convolutions and matrix products compute with when images are generated.
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, FloatDType, Tensor};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The numbers of convolutions and matrix products. Normalisations, activations, attention and everything outside the
/// network stay in f32, and training does so entirely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits with 11 of them for the digits: finer than bf16, up to 65504.
    F16,
    /// 16 bits with 8 of them for the digits and the range of f32.
    Bf16,
}

impl Precision {
    /// All names.
    pub const NAMES: [&'static str; 3] = ["f32", "f16", "bf16"];

    /// By name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            "bf16" => Ok(Self::Bf16),
            _ => Err(Error::request(format!("unknown precision {name:?}; known are {}", Self::NAMES.join(", ")))),
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether this is f32.
    pub(crate) fn is_f32(&self) -> bool {
        *self == Self::F32
    }

    fn dtype(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::F16 => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }

    /// The module with the weights of its convolutions and dense layers in this precision; the operations that read them
    /// then compute in it. An error if the device cannot.
    pub(crate) fn of<M: Module>(self, module: M, device: &Device) -> Result<M> {
        if self.is_f32() {
            return Ok(module);
        }
        if !device.supports_dtype(self.dtype()) {
            let name = self.name();
            return Err(Error::request(format!("the device {device:?} cannot compute in {name}; use --precision f32")));
        }
        Ok(module.map(&mut Rounded { dtype: self.dtype(), inside: vec![] }))
    }
}

struct Rounded {
    dtype: FloatDType,
    /// The names of the modules that are being read.
    inside: Vec<String>,
}

impl ModuleMapper for Rounded {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.inside.push(name.into());
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.inside.pop();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // Vectors are biases and the scales of normalisations; tables of attention are not called weight.
        let is_weight = self.inside.last().is_some_and(|name| name == "weight") && matches!(D, 2 | 4);
        if is_weight { param.map(|weight| weight.cast(self.dtype)) } else { param }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{from_vec, to_host, vector};
    use crate::nn::{Context, Decoders, NetworkPorts, UNetConfig, preset};

    /// The outputs change by rounding, more for bf16 than for f16, and stay tensors of f32.
    #[test]
    fn half_precision_rounds_the_outputs() {
        let device = Device::flex();
        let config = UNetConfig { decoders: Decoders::Two, ..preset("tiny").unwrap() };
        let net = config.init(NetworkPorts::default(), 3, &device);
        let x = from_vec((0..2 * 768).map(|i| (i as f32 * 0.37).sin()).collect(), [2, 3, 16, 16], &device);
        let run = |net: &crate::nn::UNet| {
            to_host(net.forward(x.clone(), vector(&[-0.3, -2.0], &device), &Context::default(), None).phi)
        };
        let exact = run(&net);
        let error = |precision: Precision| {
            let found = run(&precision.of(net.clone(), &device).unwrap());
            let square = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
            let difference = square(&mut found.iter().zip(&exact).map(|(a, b)| a - b));
            (difference / square(&mut exact.iter().copied())).sqrt()
        };
        assert_eq!(error(Precision::F32), 0.0);
        let (f16, bf16) = (error(Precision::F16), error(Precision::Bf16));
        assert!(f16 > 0.0 && f16 < 3e-3 && bf16 > 2.0 * f16 && bf16 < 3e-2, "{f16:e} {bf16:e}");
    }

    #[test]
    fn names_are_read_back() {
        for name in Precision::NAMES {
            assert_eq!(Precision::parse(name).unwrap().name(), name);
        }
        assert!(Precision::parse("f8").unwrap_err().to_string().contains("f32, f16, bf16"));
    }
}
