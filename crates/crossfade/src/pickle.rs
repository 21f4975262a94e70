//! The stack machine of Python's pickle format, without the part that executes code.
//!
//! A pickle is a program that builds values on a stack. [`run`] decodes its opcodes and maintains stack, marks and
//! memo. What a value is, and which names, calls and opcodes are allowed, is decided by a [`Reader`]. There are two:
//! the scan of a PyTorch file before its tensors are read (`torchfile::scan`), and CIFAR-10's Python batches.
use std::collections::HashMap;

/// The result of an opcode; the message describes what is wrong with the pickle.
pub(crate) type Step<T> = std::result::Result<T, String>;

/// Limit of the opcodes in one pickle; a trainer's checkpoint has about 60 per tensor, a CIFAR-10 batch 50 000.
pub(crate) const MAX_OPCODES: usize = crate::limits::PICKLE_OPCODES.size();

/// A value that contains no other values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atom<'a> {
    None,
    Bool(bool),
    /// An integer of at most four bytes. Negative ones arrive as their two's complement.
    Int(u64),
    /// A string as it is in the file.
    Text(&'a [u8]),
    /// Bytes as they are in the file.
    Bytes(&'a [u8]),
    /// A float, a long integer, an escaped string or a persistent id.
    Other,
}

/// A kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    Tuple,
    List,
    /// Keys and values, alternating.
    Dict,
    Set,
}

/// Interprets the opcodes of a pickle, and refuses those that it does not allow.
pub(crate) trait Reader<'a> {
    /// A value on the stack.
    type Value: Clone;

    /// Returns an error if this opcode is not allowed.
    fn allow(&self, _opcode: u8) -> Step<()> {
        Ok(())
    }
    /// Returns an error if this protocol version is not allowed.
    fn protocol(&self, _version: u8) -> Step<()> {
        Ok(())
    }
    /// A plain value.
    fn atom(&mut self, atom: Atom<'a>) -> Self::Value;
    /// A class or function of a Python module. Nothing is imported; unknown names must be refused here.
    fn global(&mut self, module: &str, name: &str) -> Step<Self::Value>;
    /// The text of a string, from which a pickle may take the name of a global.
    fn text<'v>(&self, value: &'v Self::Value) -> Option<&'v str>;
    /// A new container.
    fn container(&mut self, kind: Container, items: Vec<Self::Value>) -> Step<Self::Value>;
    /// `container` with more items.
    fn extend(&mut self, container: Self::Value, kind: Container, items: Vec<Self::Value>) -> Step<Self::Value>;
    /// The value that stands for the result of a call. Nothing is called.
    fn call(&mut self, function: Self::Value, arguments: Vec<Self::Value>) -> Step<Self::Value>;
    /// `object` after `__setstate__`. Nothing is called.
    fn set_state(&mut self, object: Self::Value, state: Self::Value) -> Step<Self::Value>;
    /// What the memo keeps of a value, or the reason why the value may not be used a second time. The memo keeps as many values
    /// as a file asks for, so a value that can be large is not copied into it.
    fn remember(&self, value: &Self::Value) -> std::result::Result<Self::Value, &'static str> {
        Ok(value.clone())
    }
}

/// Interprets one pickle at the start of `bytes`. Returns its length up to and including `STOP`, or the message and
/// the position of the first opcode that is wrong or not allowed.
pub(crate) fn run<'a, R: Reader<'a>>(bytes: &'a [u8], reader: &mut R) -> Result<usize, (String, usize)> {
    let mut machine = Machine { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), reader };
    let result = machine.run();
    result.map_err(|message| (message, machine.at))
}

struct Machine<'a, 'r, R: Reader<'a>> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<R::Value>,
    /// The height of the stack at each open `MARK`.
    marks: Vec<usize>,
    memo: HashMap<u32, std::result::Result<R::Value, &'static str>>,
    reader: &'r mut R,
}

impl<'a, R: Reader<'a>> Machine<'a, '_, R> {
    fn run(&mut self) -> Step<usize> {
        // Bounds the time and memory that a large hostile file can take.
        for _ in 0..MAX_OPCODES {
            let opcode = self.byte()?;
            if opcode == b'.' {
                self.pop()?;
                return Ok(self.at);
            }
            self.reader.allow(opcode)?;
            self.step(opcode)?;
        }
        Err(format!("its pickle has more than {MAX_OPCODES} opcodes"))
    }

    fn take(&mut self, n: u64) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(n).ok().and_then(|n| rest.get(..n)).ok_or("its pickle is cut off or too large")?;
        self.at += taken.len();
        Ok(taken)
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian unsigned integer of `width` bytes.
    fn uint(&mut self, width: u64) -> Step<u64> {
        Ok(self.take(width)?.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    fn index(&mut self, width: u64) -> Step<u32> {
        Ok(u32::try_from(self.uint(width)?).unwrap_or(u32::MAX))
    }

    /// Bytes preceded by their length, which has `width` bytes.
    fn sized(&mut self, width: u64) -> Step<&'a [u8]> {
        let length = self.uint(width)?;
        self.take(length)
    }

    fn line(&mut self) -> Step<&'a str> {
        let length = self.bytes[self.at..].iter().position(|&b| b == b'\n').ok_or("its pickle is cut off")?;
        let line = self.take(length as u64)?;
        self.at += 1;
        let line = std::str::from_utf8(line).map_err(|_| "its pickle holds a name that is not UTF-8")?;
        Ok(line.strip_suffix('\r').unwrap_or(line))
    }

    fn line_index(&mut self) -> Step<u32> {
        let line = self.line()?;
        line.parse().map_err(|_| format!("its pickle has a bad memo index {line:?}"))
    }

    fn push_atom(&mut self, atom: Atom<'a>) -> Step<()> {
        let value = self.reader.atom(atom);
        self.stack.push(value);
        Ok(())
    }

    fn mark_on_top(&self) -> bool {
        self.marks.last() == Some(&self.stack.len())
    }

    fn pop(&mut self) -> Step<R::Value> {
        if self.mark_on_top() {
            return Err("its pickle takes a mark for a value".into());
        }
        self.stack.pop().ok_or_else(|| "its pickle takes values from an empty stack".into())
    }

    /// The topmost `n` values, in the order in which they were pushed.
    fn pop_many(&mut self, n: usize) -> Step<Vec<R::Value>> {
        let mut values = (0..n).map(|_| self.pop()).collect::<Step<Vec<_>>>()?;
        values.reverse();
        Ok(values)
    }

    fn pop_to_mark(&mut self) -> Step<Vec<R::Value>> {
        let mark = self.marks.pop().ok_or("its pickle closes a container that it never opened")?;
        Ok(self.stack.drain(mark.min(self.stack.len())..).collect())
    }

    fn create(&mut self, kind: Container, items: Vec<R::Value>) -> Step<()> {
        let value = self.reader.container(kind, items)?;
        self.stack.push(value);
        Ok(())
    }

    fn extend(&mut self, kind: Container, items: Vec<R::Value>) -> Step<()> {
        let container = self.pop()?;
        let value = self.reader.extend(container, kind, items)?;
        self.stack.push(value);
        Ok(())
    }

    fn get(&mut self, index: u32) -> Step<()> {
        let value = self.memo.get(&index).ok_or_else(|| format!("its pickle never set memo {index}"))?;
        self.stack.push(value.clone()?);
        Ok(())
    }

    fn put(&mut self, index: u32) -> Step<()> {
        let value = self.pop()?;
        self.memo.insert(index, self.reader.remember(&value));
        self.stack.push(value);
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Step<()> {
        let value = self.reader.global(module, name)?;
        self.stack.push(value);
        Ok(())
    }

    /// Opcodes that push values; others are passed on.
    fn step(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            0x80 => {
                let version = self.byte()?;
                self.reader.protocol(version)
            }
            // The length of a frame is only a hint for buffered reading.
            0x95 => self.take(8).map(drop),
            b'N' => self.push_atom(Atom::None),
            0x88 | 0x89 => self.push_atom(Atom::Bool(opcode == 0x88)),
            b')' => self.create(Container::Tuple, vec![]),
            b']' => self.create(Container::List, vec![]),
            b'}' => self.create(Container::Dict, vec![]),
            0x8f => self.create(Container::Set, vec![]),
            b'I' | b'L' | b'F' | b'P' => {
                self.line()?;
                self.push_atom(Atom::Other)
            }
            b'V' => {
                let line = self.line()?;
                // Protocol 0 escapes all other characters. No name in a state dict needs that, so such strings stay
                // opaque.
                let plain = line.is_ascii() && !line.contains('\\');
                self.push_atom(if plain { Atom::Text(line.as_bytes()) } else { Atom::Other })
            }
            b'K' | b'M' | b'J' => {
                let width = match opcode {
                    b'K' => 1,
                    b'M' => 2,
                    _ => 4,
                };
                let value = self.uint(width)?;
                self.push_atom(Atom::Int(value))
            }
            b'G' => self.take(8).map(drop).and_then(|()| self.push_atom(Atom::Other)),
            0x8c | b'U' => self.sized(1).and_then(|text| self.push_atom(Atom::Text(text))),
            b'X' | b'T' => self.sized(4).and_then(|text| self.push_atom(Atom::Text(text))),
            0x8d => self.sized(8).and_then(|text| self.push_atom(Atom::Text(text))),
            b'C' => self.sized(1).and_then(|bytes| self.push_atom(Atom::Bytes(bytes))),
            b'B' => self.sized(4).and_then(|bytes| self.push_atom(Atom::Bytes(bytes))),
            0x8e | 0x96 => self.sized(8).and_then(|bytes| self.push_atom(Atom::Bytes(bytes))),
            0x8a => self.sized(1).map(drop).and_then(|()| self.push_atom(Atom::Other)),
            0x8b => self.sized(4).map(drop).and_then(|()| self.push_atom(Atom::Other)),
            _ => self.step_structure(opcode),
        }
    }

    /// Opcodes for containers, stack and memo; others are passed on.
    fn step_structure(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b't' => self.pop_to_mark().and_then(|items| self.create(Container::Tuple, items)),
            b'l' => self.pop_to_mark().and_then(|items| self.create(Container::List, items)),
            b'd' => self.pop_to_mark().and_then(|items| self.create(Container::Dict, items)),
            0x91 => self.pop_to_mark().and_then(|items| self.create(Container::Set, items)),
            0x85..=0x87 => {
                self.pop_many(usize::from(opcode - 0x84)).and_then(|items| self.create(Container::Tuple, items))
            }
            b'a' => self.pop_many(1).and_then(|items| self.extend(Container::List, items)),
            b's' => self.pop_many(2).and_then(|items| self.extend(Container::Dict, items)),
            b'e' => self.pop_to_mark().and_then(|items| self.extend(Container::List, items)),
            b'u' => self.pop_to_mark().and_then(|items| self.extend(Container::Dict, items)),
            0x90 => self.pop_to_mark().and_then(|items| self.extend(Container::Set, items)),
            b'0' if self.mark_on_top() => {
                self.marks.pop();
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.pop_to_mark().map(drop),
            b'2' => {
                let value = self.pop()?;
                self.stack.extend([value.clone(), value]);
                Ok(())
            }
            b'g' => self.line_index().and_then(|index| self.get(index)),
            b'h' => self.index(1).and_then(|index| self.get(index)),
            b'j' => self.index(4).and_then(|index| self.get(index)),
            b'p' => self.line_index().and_then(|index| self.put(index)),
            b'q' => self.index(1).and_then(|index| self.put(index)),
            b'r' => self.index(4).and_then(|index| self.put(index)),
            // MEMOIZE has no index; Python uses the size of the memo.
            0x94 => self.put(self.memo.len() as u32),
            _ => self.step_object(opcode),
        }
    }

    /// Opcodes with which Python would import and call code.
    fn step_object(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            b'c' | b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
                if opcode == b'i' {
                    return Err("its pickle creates objects by INST, which no file of plain data needs".into());
                }
                Ok(())
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Some(module), Some(name)) = (self.reader.text(&module), self.reader.text(&name)) else {
                    return Err(
                        "refused: its pickle builds the name of a global from something else than a string".into()
                    );
                };
                let (module, name) = (module.to_owned(), name.to_owned());
                self.global(&module, &name)
            }
            // A persistent id refers to a tensor's storage, which is in another part of the file.
            b'Q' => {
                self.pop()?;
                self.push_atom(Atom::Other)
            }
            b'R' | 0x81 | 0x92 => {
                let arguments = self.pop_many(if opcode == 0x92 { 2 } else { 1 })?;
                let function = self.pop()?;
                let value = self.reader.call(function, arguments)?;
                self.stack.push(value);
                Ok(())
            }
            b'b' => {
                let (state, object) = (self.pop()?, self.pop()?);
                let value = self.reader.set_state(object, state)?;
                self.stack.push(value);
                Ok(())
            }
            0x82..=0x84 => Err("refused: its pickle calls an entry of Python's extension registry".into()),
            _ => Err(format!("its pickle has the unknown opcode 0x{opcode:02x}: damaged, or not a pickle")),
        }
    }
}
