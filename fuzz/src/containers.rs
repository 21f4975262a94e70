//! Containers made of an input: a mutated zip or PNG would nearly always end at its first checksum or length.
//!
//! The first byte of an input chooses between the bytes as they are, 0, and the ways of making a file of them.
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The first byte of inputs that are files as they are.
pub const RAW: u8 = 0;

/// The kind of an input, below `kinds`, and the rest of it.
pub fn kind(input: &[u8], kinds: u8) -> (u8, &[u8]) {
    input.split_first().map_or((RAW, input), |(&kind, rest)| (kind % kinds, rest))
}

/// An input of this kind, for seeds.
pub fn input(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[kind], rest].concat()
}

/// `count` bytes from the front of `rest`, or as many as there are.
pub fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}

/// The next byte, or zero.
pub fn byte(rest: &mut &[u8]) -> u8 {
    take(rest, 1).first().copied().unwrap_or(0)
}

/// The parts of an input, which a zero byte ends.
pub fn parts(input: &[u8], count: usize) -> Vec<&[u8]> {
    let mut parts: Vec<&[u8]> = input.splitn(count, |byte| *byte == 0).collect();
    parts.resize(count, &[]);
    parts
}

/// An entry of an archive: whether it is compressed, its name, its bytes.
pub type Entry = (bool, String, Vec<u8>);

/// The entries of an input: for each a name (one of `names`, or a length and bytes), a switch for compression, and bytes with
/// their length.
pub fn entries(mut rest: &[u8], names: &[&str]) -> Vec<Entry> {
    let mut found = vec![];
    while !rest.is_empty() && found.len() < 64 {
        let choice = usize::from(byte(&mut rest));
        let name = match names.get(choice) {
            Some(name) => name.to_string(),
            None => String::from_utf8_lossy(take(&mut rest, choice - names.len())).into_owned(),
        };
        let packed = byte(&mut rest) & 1 == 1;
        let length = usize::from(byte(&mut rest)) | usize::from(byte(&mut rest)) << 8;
        found.push((packed, name, take(&mut rest, length).to_vec()));
    }
    found
}

/// The inverse of [`entries`], for seeds.
pub fn of_entries(list: &[(bool, &str, &[u8])], names: &[&str]) -> Vec<u8> {
    let mut input = vec![];
    for (packed, name, bytes) in list {
        match names.iter().position(|known| known == name) {
            Some(choice) => input.push(choice as u8),
            None => {
                input.push((names.len() + name.len()) as u8);
                input.extend(name.bytes());
            }
        }
        input.push(u8::from(*packed));
        input.extend((bytes.len() as u16).to_le_bytes());
        input.extend(*bytes);
    }
    input
}

/// A zip of the entries; those of a name that was there already are left out.
pub fn zip_of(entries: &[Entry]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(vec![]));
    for (packed, name, bytes) in entries {
        let method = if *packed { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        let options = SimpleFileOptions::default().compression_method(method);
        if zip.start_file(name.as_str(), options).is_ok() {
            zip.write_all(bytes).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

/// CRC-32 of zip, PNG and safetensors.
pub fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = flate2::Crc::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.sum()
}

/// Bytes in the format of zlib.
pub fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Bytes in the format of gzip.
pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The PNG with lengths that do not pass its end and with the right checksums.
pub fn mended_png(bytes: &[u8]) -> Vec<u8> {
    const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
    let mut rest = bytes.strip_prefix(SIGNATURE).unwrap_or(bytes);
    let mut file = SIGNATURE.to_vec();
    while rest.len() >= 12 {
        let head = take(&mut rest, 8);
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let length = length.min(rest.len().saturating_sub(4));
        let data = take(&mut rest, length);
        take(&mut rest, 4);
        file.extend((data.len() as u32).to_be_bytes());
        file.extend(&head[4..]);
        file.extend(data);
        file.extend(crc(&[&head[4..], data]).to_be_bytes());
    }
    file
}

/// A safetensors file of a header and numbers. The checksum that the header states is that of the numbers.
pub fn tensors_of(header: &[u8], numbers: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b"\"crc32\":\"";
    let mut header = header.to_vec();
    if let Some(at) = header.windows(KEY.len()).position(|window| window == KEY) {
        let right = format!("{:08x}", crc(&[numbers]));
        if let Some(place) = header.get_mut(at + KEY.len()..at + KEY.len() + 8) {
            place.copy_from_slice(right.as_bytes());
        }
    }
    [&(header.len() as u64).to_le_bytes(), &header[..], numbers].concat()
}

/// An array as NumPy writes it, of this kind and shape and with as many bytes as they need.
pub fn npy_of(kind: &str, width: usize, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    let sides: String = shape.iter().map(|n| format!("{n},")).collect();
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({sides}), }}");
    text += &" ".repeat((64 - (text.len() + 11) % 64) % 64);
    text.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((text.len() as u16).to_le_bytes());
    file.extend(text.as_bytes());
    let count = width * shape.iter().product::<usize>().min(1 << 12);
    file.extend(bytes.iter().copied().chain(std::iter::repeat(0)).take(count));
    file
}
