//! A reader of `.npy` files: little-endian f4 and f8 in C order.
use std::path::Path;

pub fn read(path: &Path) -> Vec<f64> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..6], b"\x93NUMPY", "{}", path.display());
    let (start, length) = match bytes[6] {
        1 => (10, usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
        _ => (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize),
    };
    let header = std::str::from_utf8(&bytes[start..start + length]).unwrap();
    assert!(header.contains("'fortran_order': False"), "{header}");
    let data = &bytes[start + length..];
    if header.contains("'<f4'") {
        data.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
    } else {
        assert!(header.contains("'<f8'"), "{header}");
        data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
    }
}
