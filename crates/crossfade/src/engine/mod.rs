//! Tensors and devices. Only this module, the networks and the training loop use the tensor engine directly
//! (`tests/boundaries.rs`), so that the engine can be exchanged.
mod autodiff;
pub(crate) mod condition;
mod device;
mod flex;
mod images;
pub(crate) mod ops;
mod prepared;

use burn::tensor::TensorData;

pub use burn::tensor::{Device, Tensor};
pub use device::{DEVICES, device, recording};
pub(crate) use flex::has_kernels;
pub use images::Images;

/// A tensor from host values in row-major order.
///
/// # Shapes
/// `values.len()` is the product of `shape`.
pub fn from_host<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    from_vec(values.to_vec(), shape, device)
}

/// As [`from_host`], without a copy where the device works in host memory.
pub fn from_vec<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    assert_eq!(values.len(), shape.iter().product::<usize>(), "values for a tensor of shape {shape:?}");
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The values of a tensor in row-major order.
pub fn to_host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.try_into_vec().expect("data just converted to f32")
}

/// One coefficient for each sample, in a shape that can be multiplied with images.
///
/// # Shapes
/// `[B]` numbers to `[B, 1, 1, 1]`.
pub fn column(values: &[f64], device: &Device) -> Tensor<4> {
    vector(values, device).reshape([values.len(), 1, 1, 1])
}

/// A vector of f64 numbers. They are rounded to f32 only here, after all arithmetic on coefficients.
///
/// # Shapes
/// `[B]` numbers to `[B]`.
pub fn vector(values: &[f64], device: &Device) -> Tensor<1> {
    from_vec(values.iter().map(|&v| v as f32).collect(), [values.len()], device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_values_survive_the_device() {
        let device = Device::flex();
        let values: Vec<f32> = (0..24).map(|i| i as f32 * 0.1 - 1.0).collect();
        assert_eq!(to_host(from_host(&values, [2, 3, 2, 2], &device)), values);
        let scaled = from_host(&values, [2, 3, 2, 2], &device) * column(&[1.0, 10.0], &device);
        let want: Vec<f32> = values.iter().enumerate().map(|(i, v)| if i < 12 { *v } else { v * 10.0 }).collect();
        assert_eq!(to_host(scaled), want);
    }
}
