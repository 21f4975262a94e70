//! MATLAB files of version 5 (`.mat` up to "-v7"), the format of BSDS's ground truth: numeric arrays, cells and
//! structures. Nothing in a file is trusted: bytes, nesting and counts have limits, and damage is an error.
use std::path::Path;

use flate2::read::ZlibDecoder;

use crate::error::{Error, Result};
use crate::limits;

/// Limit of a file in bytes, and of its contents after decompression.
const MAX_BYTES: usize = limits::MAT_FILE.size();
/// Limit of the nesting of cells and structures; the parser is recursive.
const MAX_DEPTH: usize = limits::MAT_DEPTH.size();
const HEADER: usize = 128;

/// One variable, cell or field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Numbers of any class (logical, integers, single, double); imaginary parts are dropped.
    Numbers(Numbers),
    /// A cell array in column-major order.
    Cell(Vec<Value>),
    /// A structure array: the fields of each element, in column-major order.
    Struct(Vec<Vec<(String, Value)>>),
    /// Something that is not read: text, a sparse matrix, an object, a function.
    Other,
}

/// A numeric array.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// Sizes of all dimensions: rows, columns and so on.
    pub dims: Vec<usize>,
    /// The values in MATLAB's column-major order.
    pub values: Vec<f64>,
}

impl Numbers {
    /// `(rows, columns, values)` of a matrix in row-major order; `None` if it has more than two dimensions.
    pub fn rows(&self) -> Option<(usize, usize, Vec<f64>)> {
        let &[rows, columns] = self.dims.as_slice() else { return None };
        let values = (0..rows * columns).map(|i| self.values[i % columns * rows + i / columns]).collect();
        Some((rows, columns, values))
    }
}

impl Value {
    /// The numbers, if it is numeric.
    pub fn numbers(&self) -> Option<&Numbers> {
        if let Self::Numbers(numbers) = self { Some(numbers) } else { None }
    }

    /// Field `name` of the first element, if it is a structure.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let Self::Struct(elements) = self else { return None };
        elements.first()?.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }
}

/// The variables of a file, by name.
pub(crate) fn read_mat(path: &Path) -> Result<Vec<(String, Value)>> {
    parse_mat(&limits::read(path, &limits::MAT_FILE)?, path)
}

/// The variables in the `bytes` of a file; `name` is used in error messages.
pub(crate) fn parse_mat(bytes: &[u8], name: impl AsRef<Path>) -> Result<Vec<(String, Value)>> {
    parse(bytes).map_err(|problem| Error::file(name, format!("not a readable MATLAB file: {problem}")))
}

type Parsed<T> = std::result::Result<T, String>;

fn parse(bytes: &[u8]) -> Parsed<Vec<(String, Value)>> {
    match bytes.get(HEADER - 4..HEADER) {
        _ if bytes.starts_with(b"MATLAB 7.3") => {
            return Err("version 7.3 (HDF5); save it in MATLAB with the option -v7".into());
        }
        Some([0, 1, b'I', b'M']) => (),
        Some([1, 0, b'M', b'I']) => return Err("big-endian; save it again on a little-endian machine".into()),
        _ => return Err("no header of version 5".into()),
    }
    let mut budget = MAX_BYTES;
    let mut rest = Bytes(&bytes[HEADER..]);
    let mut variables = Vec::new();
    while !rest.0.is_empty() {
        match rest.element()? {
            (COMPRESSED, data) => {
                let inner = inflate(data, &mut budget)?;
                if let (MATRIX, matrix) = Bytes(&inner).element()? {
                    variables.push(matrix_of(Bytes(matrix), 0)?);
                }
            }
            (MATRIX, data) => variables.push(matrix_of(Bytes(data), 0)?),
            _ => (),
        }
    }
    Ok(variables)
}

fn inflate(data: &[u8], budget: &mut usize) -> Parsed<Vec<u8>> {
    let bytes = limits::take(ZlibDecoder::new(data), *budget as u64).map_err(|e| e.to_string())?;
    *budget = budget.checked_sub(bytes.len()).ok_or(format!("more than {} MiB of data", MAX_BYTES >> 20))?;
    Ok(bytes)
}

// Types of data elements.
const INT8: u32 = 1;
const INT32: u32 = 5;
const UINT32: u32 = 6;
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;

/// The bytes that are still to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Parsed<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The next data element: its type and its bytes.
    fn element(&mut self) -> Parsed<(u32, &'a [u8])> {
        let kind = self.word()?;
        // A small element has its length in the type's upper half and its bytes in place of the length.
        if kind >> 16 != 0 {
            let data = self.take(4)?;
            return data
                .get(..(kind >> 16) as usize)
                .map(|data| (kind & 0xffff, data))
                .ok_or("a bad small element".into());
        }
        let length = self.word()? as usize;
        let data = self.take(length)?;
        // Elements are padded to 8 bytes, except for compressed ones; the last one of a file may lack its padding.
        if kind != COMPRESSED {
            let padding = length.next_multiple_of(8) - length;
            self.take(padding.min(self.0.len()))?;
        }
        Ok((kind, data))
    }

    fn element_of(&mut self, kind: u32, what: &str) -> Parsed<&'a [u8]> {
        match self.element()? {
            (found, data) if found == kind => Ok(data),
            (found, _) => Err(format!("{what} of type {found} instead of {kind}")),
        }
    }
}

fn words(data: &[u8]) -> impl Iterator<Item = u32> + '_ {
    data.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Name and value of an array element.
fn matrix_of(mut data: Bytes<'_>, depth: usize) -> Parsed<(String, Value)> {
    if depth > MAX_DEPTH {
        return Err(format!("nested deeper than {MAX_DEPTH}"));
    }
    if data.0.is_empty() {
        return Ok((String::new(), Value::Numbers(Numbers { dims: vec![0, 0], values: Vec::new() })));
    }
    let flags = data.element_of(UINT32, "array flags")?;
    let class = words(flags).next().ok_or("no array flags")? & 0xff;
    let dims: Vec<usize> = words(data.element_of(INT32, "dimensions")?).map(|d| d as usize).collect();
    // Every value takes at least one byte, so a count beyond the limit cannot be true.
    let product = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let count = product.filter(|&n| n <= MAX_BYTES && dims.len() >= 2).ok_or(format!("impossible size {dims:?}"))?;
    let name = text(data.element_of(INT8, "name")?);
    let value = match class {
        1 => Value::Cell(cells(&mut data, count, depth)?),
        2 => Value::Struct(structure(&mut data, count, depth)?),
        6..=15 => {
            let (kind, bytes) = data.element()?;
            let values = numbers(kind, bytes)?;
            if values.len() != count {
                return Err(format!("`{name}` has {} values for the size {dims:?}", values.len()));
            }
            Value::Numbers(Numbers { dims, values })
        }
        _ => Value::Other,
    };
    Ok((name, value))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn cells(data: &mut Bytes<'_>, count: usize, depth: usize) -> Parsed<Vec<Value>> {
    // The vector grows with the data that is actually read, not by the count that the file claims.
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(matrix_of(Bytes(data.element_of(MATRIX, "a cell")?), depth + 1)?.1);
    }
    Ok(values)
}

fn structure(data: &mut Bytes<'_>, count: usize, depth: usize) -> Parsed<Vec<Vec<(String, Value)>>> {
    let length = words(data.element_of(INT32, "length of field names")?).next().ok_or("no length of field names")?;
    let names = data.element_of(INT8, "field names")?;
    if length == 0 || names.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = names.chunks_exact(length as usize).map(text).collect();
    let mut elements = Vec::new();
    for _ in 0..count {
        let mut fields = Vec::new();
        for name in &names {
            let value = matrix_of(Bytes(data.element_of(MATRIX, "a field")?), depth + 1)?.1;
            fields.push((name.clone(), value));
        }
        elements.push(fields);
    }
    Ok(elements)
}

/// Numbers in their stored type. MATLAB stores arrays of doubles in a smaller type if the values fit.
fn numbers(kind: u32, bytes: &[u8]) -> Parsed<Vec<f64>> {
    macro_rules! read {
        ($type:ty) => {
            bytes
                .chunks_exact(size_of::<$type>())
                .map(|b| b.try_into().map(<$type>::from_le_bytes).map_or(f64::NAN, |v| v as f64))
                .collect()
        };
    }
    Ok(match kind {
        1 => read!(i8),
        2 => read!(u8),
        3 => read!(i16),
        4 => read!(u16),
        5 => read!(i32),
        6 => read!(u32),
        7 => read!(f32),
        9 => read!(f64),
        12 => read!(i64),
        13 => read!(u64),
        _ => return Err(format!("numbers of the unknown type {kind}")),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
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
}
