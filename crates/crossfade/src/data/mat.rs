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
    limits::sharing(|| parse_mat(&limits::read(path, &limits::MAT_FILE)?, path))
}

/// The variables in the `bytes` of a file; `name` is used in error messages.
pub fn parse_mat(bytes: &[u8], name: impl AsRef<Path>) -> Result<Vec<(String, Value)>> {
    let parsed = limits::sharing(|| parse(bytes));
    parsed.map_err(|problem| Error::file(name, format!("not a readable MATLAB file: {problem}")))
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
    let mut budget =
        Budget { bytes: MAX_BYTES, arrays: limits::MAT_ARRAYS.size(), numbers: limits::MAT_NUMBERS.size() };
    let mut rest = Bytes(&bytes[HEADER..]);
    let mut variables = Vec::new();
    while !rest.0.is_empty() {
        match rest.element()? {
            (COMPRESSED, data) => {
                let inner = budget.inflate(data)?;
                if let (MATRIX, matrix) = Bytes(&inner).element()? {
                    variables.push(budget.matrix(Bytes(matrix), 0)?);
                }
            }
            (MATRIX, data) => variables.push(budget.matrix(Bytes(data), 0)?),
            _ => (),
        }
    }
    Ok(variables)
}

/// What a file may still take. The bytes of a file do not bound the memory of what it describes: an empty array takes 8 bytes of
/// it, an element of a structure without fields none, and a number one byte.
struct Budget {
    bytes: usize,
    arrays: usize,
    numbers: usize,
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

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Budget {
    fn inflate(&mut self, data: &[u8]) -> Parsed<Vec<u8>> {
        let bytes = limits::take(ZlibDecoder::new(data), self.bytes as u64).map_err(|e| e.to_string())?;
        let left = self.bytes.checked_sub(bytes.len());
        self.bytes = left.ok_or(format!("more than {} MiB of data", MAX_BYTES >> 20))?;
        Ok(bytes)
    }

    /// Name and value of an array element.
    fn matrix(&mut self, mut data: Bytes<'_>, depth: usize) -> Parsed<(String, Value)> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        let arrays = self.arrays.checked_sub(1);
        self.arrays = arrays.ok_or(format!("more than {} arrays", limits::MAT_ARRAYS.max))?;
        if data.0.is_empty() {
            return Ok((String::new(), Value::Numbers(Numbers { dims: vec![0, 0], values: Vec::new() })));
        }
        let flags = data.element_of(UINT32, "array flags")?;
        let class = words(flags).next().ok_or("no array flags")? & 0xff;
        let dims: Vec<usize> = words(data.element_of(INT32, "dimensions")?).map(|d| d as usize).collect();
        let product = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        // Every value takes at least one byte, so a count beyond the limit cannot be true.
        let count =
            product.filter(|&n| n <= MAX_BYTES && dims.len() >= 2).ok_or(format!("impossible size {dims:?}"))?;
        let name = text(data.element_of(INT8, "name")?);
        let value = match class {
            1 => Value::Cell(self.cells(&mut data, count, depth)?),
            2 => Value::Struct(self.structure(&mut data, count, depth)?),
            6..=15 => {
                let (kind, bytes) = data.element()?;
                let left = self.numbers.checked_sub(bytes.len() / width(kind)?);
                self.numbers = left.ok_or(format!("more than {} numbers", limits::MAT_NUMBERS.max))?;
                // As 64 bits, and again where they are put into rows.
                limits::need(16 * (bytes.len() / width(kind)?) as u64);
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

    fn cells(&mut self, data: &mut Bytes<'_>, count: usize, depth: usize) -> Parsed<Vec<Value>> {
        // The vector grows with the data that is actually read, not by the count that the file claims.
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.matrix(Bytes(data.element_of(MATRIX, "a cell")?), depth + 1)?.1);
        }
        Ok(values)
    }

    fn structure(&mut self, data: &mut Bytes<'_>, count: usize, depth: usize) -> Parsed<Vec<Vec<(String, Value)>>> {
        let length = words(data.element_of(INT32, "length of field names")?).next();
        let length = length.ok_or("no length of field names")? as usize;
        let names = data.element_of(INT8, "field names")?;
        limits::MAT_NAME.check(length as u64).map_err(|why| format!("field names: {why}"))?;
        let names: Vec<String> = names.chunks_exact(length.max(1)).map(text).collect();
        // Without fields nothing is read for an element, so that their number could be anything.
        if length == 0 || names.is_empty() {
            return Ok(Vec::new());
        }
        let mut elements = Vec::new();
        for _ in 0..count {
            let mut fields = Vec::new();
            for name in &names {
                let value = self.matrix(Bytes(data.element_of(MATRIX, "a field")?), depth + 1)?.1;
                fields.push((name.clone(), value));
            }
            elements.push(fields);
        }
        Ok(elements)
    }
}

/// The bytes of a number of a stored type.
fn width(kind: u32) -> Parsed<usize> {
    match kind {
        1 | 2 => Ok(1),
        3 | 4 => Ok(2),
        5..=7 => Ok(4),
        9 | 12 | 13 => Ok(8),
        _ => Err(format!("numbers of the unknown type {kind}")),
    }
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
mod tests;
