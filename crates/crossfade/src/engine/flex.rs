//! The only file that knows how the CPU backend stores a tensor.
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, Device, Shape, Tensor};

/// Whether the fast operations apply: f32 on the CPU, with or without gradients.
pub fn is_fast<const D: usize>(x: &Tensor<D>) -> bool {
    // Devices that differ only in whether they record gradients are equal.
    x.device() == Device::flex() && x.dtype() == DType::F32
}

/// A tensor whose values lie in row-major order; others are copied once.
pub struct Dense(FlexTensor);

impl Dense {
    pub fn new(tensor: FlexTensor) -> Self {
        assert_eq!(tensor.dtype(), DType::F32, "the fast operations compute in f32");
        Self(if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() })
    }

    pub fn values(&self) -> &[f32] {
        self.0.as_slice().expect("contiguous f32")
    }

    pub fn dims<const D: usize>(&self) -> [usize; D] {
        self.0.layout().shape().dims()
    }

    pub fn shape(&self) -> Shape {
        self.0.layout().shape().clone()
    }
}

/// A tensor over `values`, without a copy.
pub fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    let shape = shape.into();
    assert_eq!(values.len(), shape.num_elements());
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

/// Room for the result of an operation.
pub fn room(len: usize) -> Vec<f32> {
    vec![0.0; len]
}
