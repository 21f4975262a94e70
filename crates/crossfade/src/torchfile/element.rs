//! Conversion of elements of every stored type to f32.
use half::{bf16, f16};
use pytorch_reader::DType;
use safetensors::Dtype;

/// The name of the type and the values, for a tensor of a `torch.save` file.
pub(super) fn from_torch(dtype: DType, bytes: &[u8]) -> (&'static str, Vec<f32>) {
    match dtype {
        DType::F64 => ("f64", convert_chunks(bytes, |b| f64::from_ne_bytes(b) as f32)),
        DType::F32 => ("f32", convert_chunks(bytes, f32::from_ne_bytes)),
        DType::F16 => ("f16", convert_chunks(bytes, |b| f16::from_ne_bytes(b).to_f32())),
        DType::BF16 => ("bf16", convert_chunks(bytes, |b| bf16::from_ne_bytes(b).to_f32())),
        DType::I64 => ("i64", convert_chunks(bytes, |b| i64::from_ne_bytes(b) as f32)),
        DType::I32 => ("i32", convert_chunks(bytes, |b| i32::from_ne_bytes(b) as f32)),
        DType::I16 => ("i16", convert_chunks(bytes, |b| f32::from(i16::from_ne_bytes(b)))),
        DType::I8 => ("i8", convert_chunks(bytes, |b| f32::from(i8::from_ne_bytes(b)))),
        DType::U64 => ("u64", convert_chunks(bytes, |b| u64::from_ne_bytes(b) as f32)),
        DType::U32 => ("u32", convert_chunks(bytes, |b| u32::from_ne_bytes(b) as f32)),
        DType::U16 => ("u16", convert_chunks(bytes, |b| f32::from(u16::from_ne_bytes(b)))),
        DType::U8 => ("u8", convert_chunks(bytes, |[b]| f32::from(b))),
        DType::Bool => ("bool", convert_chunks(bytes, |[b]| f32::from(u8::from(b != 0)))),
    }
}

/// As [`from_torch`] for a safetensors file; `None` for types without a plain value (complex, 8-bit and smaller
/// floats).
pub(super) fn from_safetensors(dtype: Dtype, bytes: &[u8]) -> Option<(&'static str, Vec<f32>)> {
    let dtype = match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::I16 => DType::I16,
        Dtype::I8 => DType::I8,
        Dtype::U64 => DType::U64,
        Dtype::U32 => DType::U32,
        Dtype::U16 => DType::U16,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    };
    Some(from_torch(dtype, bytes))
}

fn convert_chunks<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|&chunk| value(chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_types_keep_their_values() {
        assert_eq!(from_torch(DType::BF16, &0x3fc0u16.to_ne_bytes()), ("bf16", vec![1.5]));
        assert_eq!(from_torch(DType::F16, &0x3e00u16.to_ne_bytes()), ("f16", vec![1.5]));
        assert_eq!(from_torch(DType::F64, &0.1f64.to_ne_bytes()), ("f64", vec![0.1f32]));
        assert_eq!(from_torch(DType::I8, &[0xff, 3]), ("i8", vec![-1.0, 3.0]));
        assert_eq!(from_torch(DType::Bool, &[0, 1, 7]), ("bool", vec![0.0, 1.0, 1.0]));
        assert_eq!(from_torch(DType::I64, &(-5i64).to_ne_bytes()), ("i64", vec![-5.0]));
        assert!(from_safetensors(Dtype::C64, &[0; 8]).is_none());
    }
}
