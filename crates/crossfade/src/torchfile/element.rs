//! Conversion of elements of every stored type to f32.
use pytorch_reader::DType;
use safetensors::Dtype;

/// The name of the type and the values, for a tensor of a `torch.save` file.
pub(super) fn from_torch(dtype: DType, bytes: &[u8]) -> (&'static str, Vec<f32>) {
    match dtype {
        DType::F64 => ("f64", convert_chunks(bytes, |b| f64::from_ne_bytes(b) as f32)),
        DType::F32 => ("f32", convert_chunks(bytes, f32::from_ne_bytes)),
        DType::F16 => ("f16", convert_chunks(bytes, |b| f16(u16::from_ne_bytes(b)))),
        DType::BF16 => ("bf16", convert_chunks(bytes, |b| bf16(u16::from_ne_bytes(b)))),
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

fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn f16(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let magnitude = match exponent {
        // A subnormal is fraction · 2^-24, which is exact in f32.
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        // The exponents' biases differ by 127 − 15 = 112, the fractions' lengths by 23 − 10 = 13 bits.
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_follow_their_definition() {
        for bits in 0..=u16::MAX {
            let (e, m) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let magnitude = match e {
                0 => m * 2f64.powi(-24),
                31 if m == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + m / 1024.0) * 2f64.powi(e - 15),
            };
            let expected = if bits >> 15 == 1 { -magnitude } else { magnitude };
            let got = f64::from(f16(bits));
            assert!(
                got == expected && got.is_sign_negative() == (bits >> 15 == 1) || got.is_nan() && expected.is_nan()
            );
        }
    }

    #[test]
    fn other_types_keep_their_values() {
        assert_eq!(from_torch(DType::BF16, &0x3fc0u16.to_ne_bytes()), ("bf16", vec![1.5]));
        assert_eq!(from_torch(DType::F64, &0.1f64.to_ne_bytes()), ("f64", vec![0.1f32]));
        assert_eq!(from_torch(DType::I8, &[0xff, 3]), ("i8", vec![-1.0, 3.0]));
        assert_eq!(from_torch(DType::Bool, &[0, 1, 7]), ("bool", vec![0.0, 1.0, 1.0]));
        assert_eq!(from_torch(DType::I64, &(-5i64).to_ne_bytes()), ("i64", vec![-5.0]));
        assert!(from_safetensors(Dtype::C64, &[0; 8]).is_none());
    }
}
