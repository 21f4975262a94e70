//! A look through a pickle before anybody parses it: which globals does it name, and does it keep to the limits?
//!
//! The tensor reader never executes anything, but it lets unknown calls pass as opaque values. A checkpoint that names
//! `posix.system` is hostile whatever is done with it, so such a file is refused by name. The scan is a stack machine
//! that keeps strings (a `STACK_GLOBAL` takes its names from the stack) and forgets every other value.
use std::collections::HashMap;
use std::rc::Rc;

/// Most opcodes in one pickle; a trainer's checkpoint has about 60 a tensor.
const MAX_OPCODES: usize = 2_000_000;
/// Deepest nesting of containers; a trainer's checkpoint has six levels.
const MAX_DEPTH: u32 = 64;
/// Longest string that can name a module or a class.
const MAX_GLOBAL: usize = 256;

/// What a file of tensors and plain numbers may name. None of it is called: these are the names whose meaning as data
/// is known. Callables that load or evaluate something (`torch.storage._load_from_bytes`, `builtins.eval`) stay out.
const ALLOWED: &[(&str, &[&str])] = &[
    ("collections", &["OrderedDict", "Counter"]),
    ("builtins", &["set", "frozenset"]),
    ("__builtin__", &["set", "frozenset"]),
    (
        "torch._utils",
        &[
            "_rebuild_tensor",
            "_rebuild_tensor_v2",
            "_rebuild_tensor_v3",
            "_rebuild_parameter",
            "_rebuild_parameter_with_state",
        ],
    ),
    ("torch._tensor", &["_rebuild_from_type_v2"]),
    ("torch.nn.parameter", &["Parameter"]),
    ("torch.storage", &["TypedStorage", "UntypedStorage"]),
    (
        "torch",
        &[
            "FloatStorage",
            "DoubleStorage",
            "HalfStorage",
            "BFloat16Storage",
            "LongStorage",
            "IntStorage",
            "ShortStorage",
            "CharStorage",
            "ByteStorage",
            "BoolStorage",
            "Tensor",
            "Size",
            "device",
            "float64",
            "float32",
            "float16",
            "bfloat16",
            "int64",
            "int32",
            "int16",
            "int8",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "bool",
        ],
    ),
    ("numpy", &["dtype"]),
    ("numpy.core.multiarray", &["scalar"]),
    ("numpy._core.multiarray", &["scalar"]),
    ("_codecs", &["encode"]),
];

/// Scan one pickle at the start of `bytes`; returns its length up to and including `STOP`.
pub(super) fn scan(bytes: &[u8]) -> Result<usize, String> {
    let mut scan = Scan { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    for _ in 0..MAX_OPCODES {
        let op = scan.byte()?;
        if op == b'.' {
            scan.pop()?;
            return Ok(scan.at);
        }
        scan.step(op)?;
    }
    Err(format!("its pickle has more than {MAX_OPCODES} opcodes"))
}

fn check_global(module: &str, name: &str) -> Result<(), String> {
    if ALLOWED.iter().any(|(m, names)| *m == module && names.contains(&name)) {
        return Ok(());
    }
    let global = format!("{module}.{name}");
    Err(match name {
        "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor" => {
            format!("it holds a sparse tensor ({global:?}); save it again after .to_dense()")
        }
        "_rebuild_qtensor" => format!("it holds a quantised tensor ({global:?}); save it again after .dequantize()"),
        _ => format!(
            "refused: its pickle names {global:?}, which no file of plain weights needs (nothing was executed); \
             if you trust its origin, save the state dict alone with torch.save(model.state_dict(), ...)"
        ),
    })
}

/// A value: its text if it is a short string, and how deeply it nests containers.
#[derive(Clone)]
struct Slot {
    text: Option<Rc<str>>,
    depth: u32,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Slot>,
    /// Heights of the stack at each open `MARK`.
    marks: Vec<usize>,
    memo: HashMap<u32, Slot>,
}

impl<'a> Scan<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(n).ok().and_then(|n| rest.get(..n)).ok_or("its pickle is cut off or too large")?;
        self.at += taken.len();
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian unsigned integer of `width` bytes.
    fn uint(&mut self, width: u64) -> Result<u64, String> {
        Ok(self.take(width)?.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    fn index(&mut self, width: u64) -> Result<u32, String> {
        Ok(u32::try_from(self.uint(width)?).unwrap_or(u32::MAX))
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let length = self.bytes[self.at..].iter().position(|&b| b == b'\n').ok_or("its pickle is cut off")?;
        let line = self.take(length as u64)?;
        self.at += 1;
        let line = std::str::from_utf8(line).map_err(|_| "its pickle holds a name that is not UTF-8")?;
        Ok(line.strip_suffix('\r').unwrap_or(line))
    }

    fn line_index(&mut self) -> Result<u32, String> {
        let line = self.line()?;
        line.parse().map_err(|_| format!("its pickle has a bad memo index {line:?}"))
    }

    fn push(&mut self, depth: u32) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("its pickle nests deeper than {MAX_DEPTH} levels"));
        }
        self.stack.push(Slot { text: None, depth });
        Ok(())
    }

    fn push_string(&mut self, width: u64) -> Result<(), String> {
        let length = self.uint(width)?;
        let bytes = self.take(length)?;
        let text = (bytes.len() <= MAX_GLOBAL).then(|| std::str::from_utf8(bytes).ok()).flatten().map(Rc::from);
        self.stack.push(Slot { text, depth: 0 });
        Ok(())
    }

    fn push_sized(&mut self, width: u64) -> Result<(), String> {
        let length = self.uint(width)?;
        self.take(length)?;
        self.push(0)
    }

    fn push_fixed(&mut self, width: u64) -> Result<(), String> {
        self.take(width)?;
        self.push(0)
    }

    fn mark_on_top(&self) -> bool {
        self.marks.last() == Some(&self.stack.len())
    }

    fn pop(&mut self) -> Result<Slot, String> {
        if self.mark_on_top() {
            return Err("its pickle takes a mark for a value".into());
        }
        self.stack.pop().ok_or_else(|| "its pickle takes values from an empty stack".into())
    }

    /// Pop `n` values; returns the deepest nesting among them.
    fn pop_many(&mut self, n: usize) -> Result<u32, String> {
        (0..n).try_fold(0, |depth, _| Ok(self.pop()?.depth.max(depth)))
    }

    fn pop_to_mark(&mut self) -> Result<u32, String> {
        let mark = self.marks.pop().ok_or("its pickle closes a container that it never opened")?;
        let depth = self.stack.get(mark..).and_then(|slots| slots.iter().map(|s| s.depth).max()).unwrap_or(0);
        self.stack.truncate(mark);
        Ok(depth)
    }

    /// Put values nested `depth` deep into the container on top of the stack.
    fn fill(&mut self, depth: u32) -> Result<(), String> {
        let container = self.pop()?;
        self.push(container.depth.max(depth + 1))
    }

    fn get(&mut self, index: u32) -> Result<(), String> {
        let slot = self.memo.get(&index).cloned().ok_or_else(|| format!("its pickle never set memo {index}"))?;
        self.stack.push(slot);
        Ok(())
    }

    fn put(&mut self, index: u32) -> Result<(), String> {
        let slot = self.pop()?;
        self.memo.insert(index, slot.clone());
        self.stack.push(slot);
        Ok(())
    }

    fn global(&mut self, module: Option<&str>, name: Option<&str>) -> Result<(), String> {
        let (Some(module), Some(name)) = (module, name) else {
            return Err("refused: its pickle builds the name of a global from something else than a string".into());
        };
        check_global(module, name)?;
        self.push(0)
    }

    fn step(&mut self, op: u8) -> Result<(), String> {
        match op {
            0x80 => self.take(1).map(drop),
            0x95 => self.take(8).map(drop),
            // scalars
            b'N' | 0x88 | 0x89 | b')' | b']' | b'}' | 0x8f => self.push(0),
            b'I' | b'L' | b'F' | b'P' => {
                self.line()?;
                self.push(0)
            }
            b'V' => {
                let text = Some(self.line()?).filter(|text| text.is_ascii() && !text.contains('\\')).map(Rc::from);
                self.stack.push(Slot { text, depth: 0 });
                Ok(())
            }
            b'K' => self.push_fixed(1),
            b'M' => self.push_fixed(2),
            b'J' => self.push_fixed(4),
            b'G' => self.push_fixed(8),
            0x8c | b'U' => self.push_string(1),
            b'X' | b'T' => self.push_string(4),
            0x8d => self.push_string(8),
            0x8a | b'C' => self.push_sized(1),
            0x8b | b'B' => self.push_sized(4),
            0x8e | 0x96 => self.push_sized(8),
            _ => self.step_structure(op),
        }
    }

    fn step_structure(&mut self, op: u8) -> Result<(), String> {
        match op {
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b't' | b'l' | b'd' | 0x91 => self.pop_to_mark().and_then(|depth| self.push(depth + 1)),
            0x85..=0x87 => self.pop_many(usize::from(op - 0x84)).and_then(|depth| self.push(depth + 1)),
            b'a' => self.pop_many(1).and_then(|depth| self.fill(depth)),
            b's' => self.pop_many(2).and_then(|depth| self.fill(depth)),
            b'e' | b'u' | 0x90 => self.pop_to_mark().and_then(|depth| self.fill(depth)),
            b'0' if self.mark_on_top() => {
                self.marks.pop();
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.pop_to_mark().map(drop),
            b'2' => {
                let slot = self.pop()?;
                self.stack.extend([slot.clone(), slot]);
                Ok(())
            }
            b'g' => self.line_index().and_then(|index| self.get(index)),
            b'h' => self.index(1).and_then(|index| self.get(index)),
            b'j' => self.index(4).and_then(|index| self.get(index)),
            b'p' => self.line_index().and_then(|index| self.put(index)),
            b'q' => self.index(1).and_then(|index| self.put(index)),
            b'r' => self.index(4).and_then(|index| self.put(index)),
            0x94 => self.put(self.memo.len() as u32),
            _ => self.step_object(op),
        }
    }

    fn step_object(&mut self, op: u8) -> Result<(), String> {
        match op {
            b'c' | b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(Some(module), Some(name))?;
                if op == b'i' {
                    return Err("its pickle creates objects by INST, which no file of plain weights needs".into());
                }
                Ok(())
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                self.global(module.text.as_deref(), name.text.as_deref())
            }
            b'Q' => {
                self.pop()?;
                self.push(0)
            }
            b'R' | 0x81 | b'b' => self.pop_many(2).and_then(|depth| self.push(depth)),
            0x92 => self.pop_many(3).and_then(|depth| self.push(depth)),
            0x82..=0x84 => Err("refused: its pickle calls an entry of Python's extension registry".into()),
            _ => Err(format!("its pickle has the unknown opcode 0x{op:02x}: damaged, or not a checkpoint")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_pass_and_the_length_is_that_of_the_pickle() {
        let pickle = b"\x80\x02}q\x00X\x04\x00\x00\x00stepq\x01K\x03s.";
        assert_eq!(scan(pickle).unwrap(), pickle.len());
        let mut longer = pickle.to_vec();
        longer.extend_from_slice(b"cposix\nsystem\n");
        assert_eq!(scan(&longer).unwrap(), pickle.len());
    }

    #[test]
    fn unknown_globals_are_named_however_they_are_spelled() {
        let spelled: &[&[u8]] = &[
            b"cposix\nsystem\n(S'x'\ntR.",
            b"\x80\x02(iposix\nsystem\n.",
            b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93.",
            b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x940h\x00h\x01\x93.",
            b"\x80\x02Vposix\nVsystem\n\x93.",
            b"\x80\x02U\x05posixT\x06\x00\x00\x00system\x93.",
            // discarded, never called: still not a file of weights
            b"\x80\x02cposix\nsystem\n0N.",
        ];
        for pickle in spelled {
            let error = scan(pickle).unwrap_err();
            assert!(error.contains("\"posix.system\""), "{error}");
        }
    }

    #[test]
    fn names_built_in_other_ways_are_refused() {
        for pickle in
            [&b"\x80\x04C\x05posixC\x06system\x93."[..], b"\x80\x02Vpos\\u0069x\nVsystem\n\x93.", b"\x80\x02\x82\x01."]
        {
            let error = scan(pickle).unwrap_err();
            assert!(error.starts_with("refused"), "{error}");
        }
    }

    #[test]
    fn loaders_inside_allowed_modules_are_refused() {
        for (module, name) in [
            ("torch.storage", "_load_from_bytes"),
            ("torch", "load"),
            ("builtins", "eval"),
            ("builtins", "getattr"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("torch._utils", "_rebuild_wrapper_subclass"),
            ("collections.OrderedDict", "x"),
        ] {
            let pickle = format!("c{module}\n{name}\n.");
            assert!(scan(pickle.as_bytes()).unwrap_err().contains(&format!("{module}.{name}")));
        }
    }

    #[test]
    fn sparse_and_quantised_tensors_are_explained() {
        assert!(scan(b"ctorch._utils\n_rebuild_sparse_tensor\n.").unwrap_err().contains("to_dense"));
        assert!(scan(b"ctorch._utils\n_rebuild_qtensor\n.").unwrap_err().contains("dequantize"));
    }

    #[test]
    fn limits_hold() {
        let nested = [&[b']'][..], &[0x85; 1000], b"."].concat();
        assert!(scan(&nested).unwrap_err().contains("nests deeper"));
        // a list put into itself through the memo, over and over
        let looped = [&b"]q\x00"[..], &b"h\x00aq\x00".repeat(500), b"."].concat();
        assert!(scan(&looped).unwrap_err().contains("nests deeper"));
        let long = [&b"N0".repeat(MAX_OPCODES)[..], b"N."].concat();
        assert!(scan(&long).unwrap_err().contains("opcodes"));
        // eight exabytes declared, none there
        assert!(scan(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.").is_err());
        assert!(scan(b"X\xff\xff\xff\xffabc.").is_err());
    }

    #[test]
    fn malformed_pickles_are_errors() {
        for pickle in
            [&b""[..], b".", b"(.", b"t.", b"R.", b"h\x05.", b"(\x85.", b"(q\x00.", b"cposix", b"\xff.", b"px\n.", b"N"]
        {
            assert!(scan(pickle).is_err(), "{pickle:?}");
        }
    }
}
