//! The headers of NumPy's arrays, `.npy` files or entries of an npz.
//!
//! They are literals of Python: `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`. Only numbers are read here, whose
//! headers are flat, so that nothing a file says leads to recursion.
use crate::limits::NPY_HEADER;

/// The header of an array.
#[derive(Debug)]
pub(super) struct Header {
    pub shape: Vec<usize>,
    /// Byte order, type and width in bytes: `<f8`.
    pub kind: String,
    /// Number of bytes before the first element.
    pub start: u64,
    /// The number of elements.
    pub len: usize,
}

/// The header at the beginning of `head`, which need not hold the elements.
pub(super) fn parse(head: &[u8]) -> Result<Header, String> {
    let (start, length) = match *head {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, a, b, ..] => (10, u32::from(u16::from_le_bytes([a, b]))),
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d])),
        _ => return Err("no array of NumPy of version 1 to 3".into()),
    };
    NPY_HEADER.check(length.into())?;
    let text = head[start..].get(..length as usize);
    let text = text.ok_or_else(|| format!("its header would take {length} bytes; {} are there", head.len() - start))?;
    let text = str::from_utf8(text).map_err(|_| "no array of NumPy: its header is no text")?;
    let (shape, kind, fortran) = dictionary(text.trim()).ok_or("no array of numbers: its header is another one")?;
    // A vector has the same bytes in both orders.
    if fortran && shape.len() > 1 {
        return Err("is in Fortran order; save it with np.ascontiguousarray".into());
    }
    let len = shape.iter().try_fold(1usize, |n, &side| n.checked_mul(side)).ok_or("is too large")?;
    Ok(Header { shape, kind, start: start as u64 + u64::from(length), len })
}

/// Shape, kind, and whether the order is Fortran's.
fn dictionary(text: &str) -> Option<(Vec<usize>, String, bool)> {
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.trim();
    let (mut shape, mut kind, mut fortran) = (None, None, None);
    while !rest.is_empty() {
        let (key, after) = quoted(rest)?;
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        let after = match key {
            "descr" => {
                let (found, after) = quoted(value)?;
                // Those who read it skip byte order and type.
                kind = Some(found.to_string()).filter(|kind| kind.is_ascii() && kind.len() >= 2);
                after
            }
            "fortran_order" => {
                fortran = Some(value.starts_with("True"));
                value.strip_prefix("True").or(value.strip_prefix("False"))?
            }
            "shape" => {
                let (sides, after) = value.strip_prefix('(')?.split_once(')')?;
                let sides = sides.split(',').map(str::trim).filter(|side| !side.is_empty());
                shape = Some(sides.map(|side| side.parse().ok()).collect::<Option<Vec<usize>>>()?);
                after
            }
            _ => return None,
        };
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some((shape?, kind?, fortran?))
}

/// The text in quotes at the beginning, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str) -> Vec<u8> {
        let length = header.len() as u32;
        let length = if version == 1 { (length as u16).to_le_bytes().to_vec() } else { length.to_le_bytes().to_vec() };
        [b"\x93NUMPY", &[version, 0][..], &length, header.as_bytes()].concat()
    }

    const GOOD: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n";

    #[test]
    fn headers_are_read() {
        for version in [1, 2, 3] {
            let bytes = file(version, GOOD);
            let found = parse(&[&bytes[..], &[0; 24]].concat()).unwrap();
            assert_eq!((found.shape, found.kind.as_str(), found.len), (vec![2, 3], "<f4", 6));
            assert_eq!(found.start as usize, bytes.len());
        }
        let shape = |header: &str| parse(&file(1, header)).unwrap().shape;
        // In another order and without the last comma, as others write it; a number; a vector in the order of Fortran.
        assert_eq!(shape("{\"shape\":(7,),\"fortran_order\":True,\"descr\":\"|u1\"}"), [7]);
        assert_eq!(shape(&GOOD.replace("2, 3", "")), [0; 0]);
        assert_eq!(parse(&file(1, &GOOD.replace("2, 3", ""))).unwrap().len, 1);
    }

    #[test]
    fn what_is_no_header_is_refused_with_the_reason() {
        let error = |bytes: &[u8]| parse(bytes).unwrap_err();
        for other in [&b""[..], b"\x93NUMPY", b"\x93NUMPY\x01\x00", b"\x93NUMPX\x01\x00\x00\x00", &file(4, GOOD)] {
            assert!(error(other).contains("no array of NumPy"), "{other:?}");
        }
        let of = |header: &str| error(&file(1, header));
        // Brackets in brackets took the parser of another crate twice as long for each level, beyond all patience.
        for header in ["(".repeat(30), format!("{{'shape': {}", "[".repeat(60_000)), "{'descr': [('a', '<f4')]}".into()]
        {
            assert!(of(&header).contains("another one"), "{header:.20}");
        }
        for (part, other) in
            [("'descr': '<f4', ", ""), ("False", "None"), ("(2, 3)", "(2, -3)"), ("'<f4'", "'f'"), ("}", "")]
        {
            assert!(of(&GOOD.replace(part, other)).contains("another one"), "{other}");
        }
        assert!(error(&file(2, GOOD)[..40]).contains("would take"));
        assert!(error(&file(2, &" ".repeat(NPY_HEADER.size() + 1))).contains("header of an array of NumPy"));
        assert!(of(&GOOD.replace("False", "True")).contains("Fortran"));
        assert!(of(&GOOD.replace("2, 3", &format!("2, {}", u64::MAX))).contains("too large"));
        assert!(error(&[&file(1, "")[..8], &[2, 0, 0xff, 0xfe]].concat()).contains("no text"));
    }
}
