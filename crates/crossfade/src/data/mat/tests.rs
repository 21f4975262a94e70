//! Files made by hand, damaged ones, and those above the limits.
#![allow(clippy::unwrap_used)]
use super::*;
use std::io::Write;

fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn matrix(class: u32, dims: &[u32], name: &str, rest: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
    let flags = [class.to_le_bytes(), [0; 4]].concat();
    let body = [element(UINT32, &flags), element(INT32, &dims), element(INT8, name.as_bytes()), rest.to_vec()];
    element(MATRIX, &body.concat())
}

fn file(variable: &[u8], compressed: bool) -> Vec<u8> {
    let mut bytes = vec![b' '; HEADER];
    bytes[HEADER - 4..].copy_from_slice(&[0, 1, b'I', b'M']);
    if !compressed {
        bytes.extend(variable);
        return bytes;
    }
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(variable).unwrap();
    let data = encoder.finish().unwrap();
    bytes.extend([COMPRESSED.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat());
    bytes.extend(data);
    bytes
}

/// A cell of one structure with a 2x3 matrix of small numbers.
fn sample() -> Vec<u8> {
    let inner = matrix(6, &[2, 3], "", &element(2, &[1, 2, 3, 4, 5, 6]));
    let fields = [element(INT32, &8u32.to_le_bytes()), element(INT8, b"Bounds\0\0"), inner].concat();
    matrix(1, &[1, 1], "groundTruth", &matrix(2, &[1, 1], "", &fields))
}

#[test]
fn cells_structures_and_numbers_are_read() {
    for compressed in [false, true] {
        let variables = parse_mat(&file(&sample(), compressed), "a.mat").unwrap();
        assert_eq!(variables[0].0, "groundTruth");
        let Value::Cell(cells) = &variables[0].1 else { panic!("{variables:?}") };
        let (rows, columns, values) = cells[0].field("Bounds").unwrap().numbers().unwrap().rows().unwrap();
        assert_eq!((rows, columns, values), (2, 3, vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0]));
    }
}

#[test]
fn damage_is_an_error_that_names_the_file() {
    let whole = file(&sample(), false);
    for end in HEADER + 1..whole.len() {
        let error = parse_mat(&whole[..end], "a.mat").unwrap_err().to_string();
        assert!(error.starts_with("a.mat: "), "{error}");
    }
    for at in HEADER..whole.len() {
        for value in [0, 1, 14, 15, 127, 255] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            let _ = parse_mat(&damaged, "a.mat"); // neither a panic nor a huge allocation
        }
    }
    let packed = file(&sample(), true);
    assert!(parse_mat(&packed[..packed.len() - 9], "a.mat").is_err());
    assert!(parse_mat(b"MATLAB 7.3 MAT-file", "a.mat").unwrap_err().to_string().contains("-v7"));
}

#[test]
fn bombs_stop_at_the_limits() {
    let zeros = file(&element(INT8, &vec![0; MAX_BYTES + 1]), true);
    assert!(parse_mat(&zeros, "a.mat").unwrap_err().to_string().contains("MiB"));
    let huge = matrix(6, &[u32::MAX, u32::MAX], "x", &[]);
    assert!(parse_mat(&file(&huge, false), "a.mat").unwrap_err().to_string().contains("impossible size"));
    let mut nested = matrix(6, &[0, 0], "", &element(9, &[]));
    for _ in 0..40 {
        nested = matrix(1, &[1, 1], "", &nested);
    }
    assert!(parse_mat(&file(&nested, false), "a.mat").unwrap_err().to_string().contains("nested"));
}
