//! Reads the pickles of CIFAR-10's Python layout, and no others: a dictionary with a numpy array of bytes and a list of
//! labels.
use std::rc::Rc;

use super::cifar10::{BatchContent, IMAGE};
use crate::pickle::{Atom, Container, Reader, Step, run};

/// Limit of the nesting of tuples; the real files need two levels.
const MAX_DEPTH: usize = 4;

/// The opcodes that occur in such files; all others are refused.
const OPCODES: &[u8] = b"\x80(}]N\x88\x89KMJUCTXBcqrhj\x85\x86\x87tRbaesu";

#[derive(Clone)]
enum Value<'a> {
    Nothing,
    Bool(bool),
    Int(u64),
    Text(&'a [u8]),
    /// A tuple and how deeply it nests others.
    Tuple(Rc<[Value<'a>]>, usize),
    /// A list, of which only whole numbers below 256 are kept: the labels. The other lists of a batch hold text.
    List(Vec<u8>),
    Dict,
    Global(Global),
    Dtype(&'a [u8]),
    /// A numpy array; its contents are known after `__setstate__`.
    Array(Option<Array<'a>>),
}

#[derive(Clone, Copy, PartialEq)]
enum Global {
    Reconstruct,
    Ndarray,
    Dtype,
}

#[derive(Clone)]
struct Array<'a> {
    rows: u64,
    columns: u64,
    bytes: &'a [u8],
}

/// The planar images (3072 bytes each) and the labels of a pickled CIFAR-10 batch.
pub(super) fn cifar_batch(bytes: &[u8]) -> Step<BatchContent> {
    let mut batch = BatchReader { data: None, labels: None };
    run(bytes, &mut batch).map_err(|(e, at)| format!("not a CIFAR-10 batch: {e} (at byte {at})"))?;
    let array = batch.data.ok_or("not a CIFAR-10 batch: no array under the key `data`")?;
    let (rows, columns, length) = (array.rows, array.columns, array.bytes.len());
    if columns != IMAGE as u64 || rows == 0 || rows.checked_mul(columns) != Some(length as u64) {
        return Err(format!(
            "not a CIFAR-10 batch: an array of {rows}x{columns} with {length} bytes, expected nx{IMAGE}"
        ));
    }
    let labels = batch.labels;
    if let Some(labels) = labels.as_ref().filter(|labels| labels.len() as u64 != rows) {
        return Err(format!("not a CIFAR-10 batch: {} labels of {rows} images", labels.len()));
    }
    Ok(BatchContent { planes: array.bytes.to_vec(), labels })
}

/// Interprets the few calls that a numpy array needs, and refuses everything else.
struct BatchReader<'a> {
    /// What the dictionary holds under `data`.
    data: Option<Array<'a>>,
    /// What it holds under `labels`.
    labels: Option<Vec<u8>>,
}

impl<'a> Reader<'a> for BatchReader<'a> {
    type Value = Value<'a>;

    fn allow(&self, opcode: u8) -> Step<()> {
        if OPCODES.contains(&opcode) { Ok(()) } else { Err(format!("pickle instruction {opcode:#04x} is not allowed")) }
    }

    fn protocol(&self, version: u8) -> Step<()> {
        // The original files have protocol 2; protocol 3 only adds bytes objects, which saved copies may have.
        if version > 3 { Err(format!("pickle protocol {version}, expected 2")) } else { Ok(()) }
    }

    fn atom(&mut self, atom: Atom<'a>) -> Value<'a> {
        match atom {
            Atom::None | Atom::Other => Value::Nothing,
            Atom::Bool(value) => Value::Bool(value),
            Atom::Int(value) => Value::Int(value),
            Atom::Text(text) | Atom::Bytes(text) => Value::Text(text),
        }
    }

    fn global(&mut self, module: &str, name: &str) -> Step<Value<'a>> {
        Ok(Value::Global(match (module, name) {
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Global::Reconstruct,
            ("numpy", "ndarray") => Global::Ndarray,
            ("numpy", "dtype") => Global::Dtype,
            _ => return Err(format!("it asks for `{module}.{name}`, which is not allowed")),
        }))
    }

    /// Never needed: the opcode that takes the name of a global from strings is not allowed.
    fn text<'v>(&self, _value: &'v Value<'a>) -> Option<&'v str> {
        None
    }

    fn container(&mut self, kind: Container, items: Vec<Value<'a>>) -> Step<Value<'a>> {
        match kind {
            Container::List => Ok(Value::List(small_numbers(&items))),
            Container::Dict => Ok(Value::Dict),
            Container::Set => Err("a set".into()),
            Container::Tuple => {
                // Dropping a deeply nested value is recursive, so the depth is limited.
                let inner = items.iter().map(|v| if let Value::Tuple(_, depth) = v { *depth } else { 0 }).max();
                let depth = 1 + inner.unwrap_or(0);
                if depth > MAX_DEPTH {
                    return Err("tuples nested too deeply".into());
                }
                Ok(Value::Tuple(items.into(), depth))
            }
        }
    }

    fn extend(&mut self, container: Value<'a>, kind: Container, items: Vec<Value<'a>>) -> Step<Value<'a>> {
        match (container, kind) {
            (Value::List(mut numbers), Container::List) => {
                numbers.extend(small_numbers(&items));
                Ok(Value::List(numbers))
            }
            (Value::Dict, Container::Dict) => {
                for entry in items.chunks(2) {
                    match entry {
                        [Value::Text(b"data"), Value::Array(Some(array))] => self.data = Some(array.clone()),
                        [Value::Text(b"labels"), Value::List(labels)] => self.labels = Some(labels.clone()),
                        _ => (),
                    }
                }
                Ok(Value::Dict)
            }
            _ => Err("items for something that is no container".into()),
        }
    }

    fn call(&mut self, function: Value<'a>, arguments: Vec<Value<'a>>) -> Step<Value<'a>> {
        let (Value::Global(function), [Value::Tuple(arguments, _)]) = (function, &arguments[..]) else {
            return Err("a call of something that is no function".into());
        };
        match (function, &arguments[..]) {
            (Global::Reconstruct, [Value::Global(Global::Ndarray), ..]) => Ok(Value::Array(None)),
            (Global::Dtype, [Value::Text(name), ..]) => Ok(Value::Dtype(name)),
            _ => Err("a call with unexpected arguments".into()),
        }
    }

    fn set_state(&mut self, object: Value<'a>, state: Value<'a>) -> Step<Value<'a>> {
        let Value::Tuple(state, _) = state else { return Err("a state that is no tuple".into()) };
        match object {
            Value::Dtype(_) => Ok(object),
            Value::Array(None) => Ok(Value::Array(Some(array_of(&state)?))),
            _ => Err("a state for something that has none".into()),
        }
    }

    /// Values are copied into the memo here, while Python stores references. Lists, dictionaries and arrays may
    /// change after they were stored, so only constants may be recalled.
    fn remember(&self, value: &Value<'a>) -> Result<Value<'a>, &'static str> {
        match value {
            Value::List(_) | Value::Dict | Value::Array(_) => Err("a shared container"),
            _ => Ok(value.clone()),
        }
    }
}

/// The whole numbers below 256 among `items`.
fn small_numbers(items: &[Value]) -> Vec<u8> {
    let number = |item: &Value| if let Value::Int(value) = item { u8::try_from(*value).ok() } else { None };
    items.iter().filter_map(number).collect()
}

/// The array of a numpy state (version, (rows, columns), dtype, Fortran order, bytes).
fn array_of<'a>(state: &[Value<'a>]) -> Step<Array<'a>> {
    let [_, Value::Tuple(shape, _), Value::Dtype(dtype), Value::Bool(false), Value::Text(bytes)] = state else {
        return Err("an array of unexpected structure".into());
    };
    let [Value::Int(rows), Value::Int(columns)] = shape[..] else {
        return Err("an array that is not two-dimensional".into());
    };
    if !matches!(*dtype, b"u1" | b"|u1") {
        return Err("an array of something other than bytes".into());
    }
    Ok(Array { rows, columns, bytes })
}
