//! Scans the pickle of a PyTorch file before it is parsed: which globals does it refer to, and does it respect the
//! limits?
//!
//! The tensor reader never executes anything, but it accepts unknown calls as opaque values. A checkpoint that refers
//! to `posix.system` is hostile whatever is done with it, so such a file is refused. The scan keeps strings, since an
//! opcode may take the name of a global from the stack, and forgets all other values.
use crate::limits::{PICKLE_DEPTH, PICKLE_NAME};
use crate::pickle::{Atom, Container, Reader, Step, run};
use std::rc::Rc;

/// The globals that a file of tensors and plain numbers may refer to. None of them is called; these are the names
/// whose meaning as data is known. Callables that load or evaluate something (`torch.storage._load_from_bytes`,
/// `builtins.eval`) are not in the list.
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

/// Scans one pickle at the start of `bytes`; returns its length up to and including `STOP`.
pub fn scan(bytes: &[u8]) -> Result<usize, String> {
    run(bytes, &mut Scan).map_err(|(message, _)| message)
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

/// A value of the scan: its text if it is a short string, and the depth of the containers in it.
#[derive(Clone)]
struct Slot {
    text: Option<Rc<str>>,
    depth: u32,
}

struct Scan;

fn nested(depth: u32) -> Step<Slot> {
    PICKLE_DEPTH.check(u64::from(depth))?;
    Ok(Slot { text: None, depth })
}

/// The depth of a container with these items.
fn depth_around(items: &[Slot]) -> u32 {
    items.iter().map(|slot| slot.depth + 1).max().unwrap_or(0)
}

impl<'a> Reader<'a> for Scan {
    type Value = Slot;

    fn atom(&mut self, atom: Atom<'a>) -> Slot {
        let text = match atom {
            Atom::Text(bytes) if bytes.len() <= PICKLE_NAME.size() => std::str::from_utf8(bytes).ok().map(Rc::from),
            _ => None,
        };
        Slot { text, depth: 0 }
    }

    fn global(&mut self, module: &str, name: &str) -> Step<Slot> {
        check_global(module, name)?;
        nested(0)
    }

    fn text<'v>(&self, value: &'v Slot) -> Option<&'v str> {
        value.text.as_deref()
    }

    fn container(&mut self, _kind: Container, items: Vec<Slot>) -> Step<Slot> {
        nested(depth_around(&items))
    }

    fn extend(&mut self, container: Slot, _kind: Container, items: Vec<Slot>) -> Step<Slot> {
        nested(container.depth.max(depth_around(&items)))
    }

    fn call(&mut self, function: Slot, arguments: Vec<Slot>) -> Step<Slot> {
        nested(arguments.iter().map(|slot| slot.depth).fold(function.depth, u32::max))
    }

    fn set_state(&mut self, object: Slot, state: Slot) -> Step<Slot> {
        nested(object.depth.max(state.depth))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pickle::MAX_OPCODES;

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
        assert!(scan(&nested).unwrap_err().contains("nesting of a pickle"));
        // a list put into itself through the memo, over and over
        let looped = [&b"]q\x00"[..], &b"h\x00aq\x00".repeat(500), b"."].concat();
        assert!(scan(&looped).unwrap_err().contains("nesting of a pickle"));
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
