//! Archives that are small on disk and large in memory are refused before they are unpacked.
#![allow(clippy::unwrap_used)]
use crossfade::data::{Image, dimensions};
use crossfade::limits::{IMAGE_MEMORY, NPZ_ARRAY, NPZ_IMAGES};
use crossfade::metrics::features::{Input, open};
use std::io::Write;
use std::path::Path;

/// A zip of one deflated member: some bytes, then zeros.
fn packed(path: &Path, name: &str, head: &[u8], zeros: u64) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zip.start_file(name, options.large_file(true)).unwrap();
    zip.write_all(head).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), zeros), &mut zip).unwrap();
    zip.finish().unwrap();
}

/// The header of an array.
fn npy(kind: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    text += &" ".repeat(128 - 10 - 1 - text.len());
    [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), b"\n"].concat()
}

#[test]
fn arrays_of_an_npz_are_read_within_their_limits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    let refused = || open(path.to_str().unwrap()).err().unwrap().to_string();

    let count = NPZ_IMAGES.max / (64 * 64 * 3) + 1;
    packed(&path, "arr_0.npy", &npy("|u1", &format!("{count}, 64, 64, 3,")), count * 64 * 64 * 3);
    let message = refused();
    assert!(
        message.contains("a.npz") && message.contains(NPZ_IMAGES.name) && message.contains("np.savez"),
        "{message}"
    );

    // As 64-bit numbers they are twice as large as in the file.
    let count = NPZ_ARRAY.max / 8 + 1;
    packed(&path, "mu.npy", &npy("<f4", &format!("{count},")), 4 * count);
    let message = refused();
    assert!(message.contains("a.npz") && message.contains(NPZ_ARRAY.name), "{message}");

    packed(&path, "arr_0.npy", &npy("|u1", "5, 8, 8, 3,"), 5 * 192);
    match open(path.to_str().unwrap()).unwrap() {
        Input::Images(images) => assert!(images.len() == 5 && images.get(4).unwrap().pixels == [0; 192]),
        Input::Statistics(_) => panic!("images were read as statistics"),
    }
}

/// A PNG of this size and kind that ends after its header.
fn declared(side: u32, depth: u8, colour: u8) -> Vec<u8> {
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[depth, colour, 0, 0, 0]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, bytes) in [(b"IHDR", &header[..]), (b"IDAT", &[0x78, 1])] {
        let chunk = [&kind[..], bytes].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&chunk);
        file.extend((bytes.len() as u32).to_be_bytes());
        file.extend(&chunk);
        file.extend(crc.sum().to_be_bytes());
    }
    file
}

/// The decoder's own limit is that of its buffers; the picture is another matter.
#[test]
fn the_memory_of_a_picture_is_checked_before_it_is_decoded() {
    // 16-bit RGBA takes 8 bytes for each pixel, 16-bit RGB 6.
    for (side, colour, refused) in [(8192, 6, true), (8192, 2, true), (6144, 6, true), (6144, 2, false)] {
        let message = Image::decode(&declared(side, 16, colour), "a.png").err().unwrap().to_string();
        assert!(message.contains("a.png") && message.contains(IMAGE_MEMORY.name) == refused, "{message}");
        assert_eq!(dimensions(&declared(side, 16, colour), "a.png").is_err(), refused);
    }
}
