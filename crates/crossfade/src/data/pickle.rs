//! The pickles of CIFAR-10's Python layout, and no others.
//!
//! A pickle is a program. This reads the few instructions that a dictionary with one numpy array of bytes needs, runs
//! nothing, and refuses the rest.
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::cifar10::IMAGE;

type Fault<T> = std::result::Result<T, String>;

/// Tuples in tuples; the real files need two.
const MAX_DEPTH: usize = 4;

#[derive(Clone)]
enum Value {
    Mark,
    None,
    Bool(bool),
    Int(u64),
    /// A string, as a range of the file.
    Text(Range<usize>),
    Tuple(Rc<[Value]>, usize),
    /// A list; its items do not matter.
    List,
    Dict,
    Global(Global),
    Dtype(Range<usize>),
    /// A numpy array with its bytes, once its state is known.
    Array(Option<Array>),
}

#[derive(Clone, Copy, PartialEq)]
enum Global {
    Reconstruct,
    Ndarray,
    Dtype,
}

#[derive(Clone)]
struct Array {
    rows: u64,
    columns: u64,
    bytes: Range<usize>,
}

/// The planar images (3072 bytes each) of a pickled CIFAR-10 batch.
pub(super) fn cifar_images(bytes: &[u8]) -> Fault<Vec<u8>> {
    let mut machine = Machine { bytes, at: 0, stack: Vec::new(), memo: HashMap::new(), data: None };
    let array = machine.run().map_err(|e| format!("not a CIFAR-10 batch: {e} (at byte {})", machine.at))?;
    if array.columns != IMAGE as u64
        || array.rows == 0
        || array.rows.checked_mul(array.columns) != Some(array.bytes.len() as u64)
    {
        return Err(format!(
            "not a CIFAR-10 batch: an array of {}x{} with {} bytes, expected nx{IMAGE}",
            array.rows,
            array.columns,
            array.bytes.len()
        ));
    }
    Ok(bytes[array.bytes].to_vec())
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    memo: HashMap<u32, Value>,
    /// What the dictionary holds under `data`.
    data: Option<Array>,
}

impl Machine<'_> {
    fn run(&mut self) -> Fault<Array> {
        loop {
            let opcode = self.bytes[self.take(1)?][0];
            if opcode == b'.' {
                return self.data.take().ok_or_else(|| "no array under the key `data`".into());
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Fault<()> {
        match opcode {
            0x80 => {
                let version = self.number(1)?;
                if version > 3 {
                    return Err(format!("pickle protocol {version}, expected 2"));
                }
            }
            b'(' => self.stack.push(Value::Mark),
            b'}' => self.stack.push(Value::Dict),
            b']' => self.stack.push(Value::List),
            b'N' => self.stack.push(Value::None),
            0x88 | 0x89 => self.stack.push(Value::Bool(opcode == 0x88)),
            b'K' => self.push_number(1)?,
            b'M' => self.push_number(2)?,
            b'J' => self.push_number(4)?,
            b'U' | b'C' => self.push_text(1)?,
            b'T' | b'X' | b'B' => self.push_text(4)?,
            b'c' => self.global()?,
            b'q' => self.put(1)?,
            b'r' => self.put(4)?,
            b'h' => self.recall(1)?,
            b'j' => self.recall(4)?,
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let start = self.stack.len().checked_sub(count).ok_or("an empty stack")?;
                self.tuple(start)?;
            }
            b't' => {
                let mark = self.pop_mark()?;
                self.tuple(mark)?;
            }
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            b'a' => {
                self.pop()?;
                self.expect_list()?;
            }
            b'e' => {
                let mark = self.pop_mark()?;
                self.stack.truncate(mark);
                self.expect_list()?;
            }
            b's' => {
                let start = self.stack.len().checked_sub(2).ok_or("an empty stack")?;
                self.set_items(start)?;
            }
            b'u' => {
                let mark = self.pop_mark()?;
                self.set_items(mark)?;
            }
            other => return Err(format!("pickle instruction {other:#04x} is not allowed")),
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Fault<Range<usize>> {
        let end = self.at.checked_add(count).filter(|&end| end <= self.bytes.len()).ok_or("the file ends too early")?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn number(&mut self, size: usize) -> Fault<u32> {
        let range = self.take(size)?;
        Ok(self.bytes[range].iter().rev().fold(0, |n, &b| n << 8 | u32::from(b)))
    }

    /// Negative numbers (only dtype states have them) arrive as large ones; none of them matters.
    fn push_number(&mut self, size: usize) -> Fault<()> {
        let n = self.number(size)?;
        self.stack.push(Value::Int(u64::from(n)));
        Ok(())
    }

    fn push_text(&mut self, size: usize) -> Fault<()> {
        let length = self.number(size)? as usize;
        let range = self.take(length)?;
        self.stack.push(Value::Text(range));
        Ok(())
    }

    fn line(&mut self) -> Fault<&str> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().take(80).position(|&b| b == b'\n').ok_or("an endless name")?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|e| e.to_string())
    }

    fn global(&mut self) -> Fault<()> {
        let module = self.line()?.to_owned();
        let name = self.line()?;
        let global = match (module.as_str(), name) {
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Global::Reconstruct,
            ("numpy", "ndarray") => Global::Ndarray,
            ("numpy", "dtype") => Global::Dtype,
            _ => return Err(format!("it asks for `{module}.{name}`, which is not allowed")),
        };
        self.stack.push(Value::Global(global));
        Ok(())
    }

    fn pop(&mut self) -> Fault<Value> {
        self.stack.pop().ok_or_else(|| "an empty stack".into())
    }

    /// Removes the topmost mark; what was above it now begins at the returned place.
    fn pop_mark(&mut self) -> Fault<usize> {
        let mark = self.stack.iter().rposition(|v| matches!(v, Value::Mark)).ok_or("no mark")?;
        self.stack.remove(mark);
        Ok(mark)
    }

    fn expect_list(&self) -> Fault<()> {
        if matches!(self.stack.last(), Some(Value::List)) { Ok(()) } else { Err("no list to append to".into()) }
    }

    fn put(&mut self, size: usize) -> Fault<()> {
        let key = self.number(size)?;
        let value = self.stack.last().ok_or("an empty stack")?.clone();
        self.memo.insert(key, value);
        Ok(())
    }

    /// Lists, dictionaries and arrays change after they were stored, so only constants may be recalled.
    fn recall(&mut self, size: usize) -> Fault<()> {
        let key = self.number(size)?;
        match self.memo.get(&key) {
            Some(Value::List | Value::Dict | Value::Array(_) | Value::Mark) => Err("a shared container".into()),
            Some(value) => {
                self.stack.push(value.clone());
                Ok(())
            }
            None => Err("a value that was never stored".into()),
        }
    }

    fn tuple(&mut self, start: usize) -> Fault<()> {
        let items: Rc<[Value]> = self.stack.drain(start..).collect();
        let depth = 1 + items.iter().map(|v| if let Value::Tuple(_, d) = v { *d } else { 0 }).max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err("tuples nested too deeply".into());
        }
        self.stack.push(Value::Tuple(items, depth));
        Ok(())
    }

    /// The two calls a numpy array needs, understood rather than made.
    fn reduce(&mut self) -> Fault<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Tuple(arguments, _), Value::Global(function)) = (arguments, function) else {
            return Err("a call of something that is no function".into());
        };
        let value = match (function, &arguments[..]) {
            (Global::Reconstruct, [Value::Global(Global::Ndarray), ..]) => Value::Array(None),
            (Global::Dtype, [Value::Text(name), ..]) => Value::Dtype(name.clone()),
            _ => return Err("a call with unexpected arguments".into()),
        };
        self.stack.push(value);
        Ok(())
    }

    fn build(&mut self) -> Fault<()> {
        let state = self.pop()?;
        let (Value::Tuple(state, _), Some(target)) = (state, self.stack.last_mut()) else {
            return Err("a state that is no tuple".into());
        };
        match target {
            Value::Dtype(_) => Ok(()),
            Value::Array(array @ None) => {
                *array = Some(array_of(&state, self.bytes)?);
                Ok(())
            }
            _ => Err("a state for something that has none".into()),
        }
    }

    fn set_items(&mut self, start: usize) -> Fault<()> {
        let items: Vec<Value> = self.stack.drain(start..).collect();
        if !matches!(self.stack.last(), Some(Value::Dict)) {
            return Err("no dictionary to fill".into());
        }
        for pair in items.chunks(2) {
            if let [Value::Text(key), Value::Array(Some(array))] = pair
                && &self.bytes[key.clone()] == b"data"
            {
                self.data = Some(array.clone());
            }
        }
        Ok(())
    }
}

/// A numpy state: (version, (rows, columns), dtype, in Fortran's order, bytes).
fn array_of(state: &[Value], file: &[u8]) -> Fault<Array> {
    let [_, Value::Tuple(shape, _), Value::Dtype(dtype), Value::Bool(false), Value::Text(bytes)] = state else {
        return Err("an array of unexpected structure".into());
    };
    let [Value::Int(rows), Value::Int(columns)] = shape[..] else {
        return Err("an array that is not two-dimensional".into());
    };
    if !matches!(&file[dtype.clone()], b"u1" | b"|u1") {
        return Err("an array of something other than bytes".into());
    }
    Ok(Array { rows, columns, bytes: bytes.clone() })
}
