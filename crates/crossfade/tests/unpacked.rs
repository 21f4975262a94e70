//! Archives that are small on disk and large in memory are refused before they are unpacked.
#![allow(clippy::unwrap_used)]
use crossfade::limits::{NPZ_ARRAY, NPZ_IMAGES};
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
