//! Sets of images, and arrays, that are small as files and large as they describe themselves: they are refused before memory is
//! taken for them.
#![allow(clippy::unwrap_used)]
use crossfade::data::{Dataset, Image, Image16, LabelMap, idx::Idx, zip::Zip};
use crossfade::metrics::features::{Input, Statistics, open};
use std::io::Write;
use std::path::{Path, PathBuf};

fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

/// A zip of one entry that is not compressed, of which the directory says that it has `declared` bytes.
fn stored(path: &Path, name: &str, bytes: &[u8], declared: u32) {
    let length = (name.len() as u32).to_le_bytes();
    // Version, flags, method, time, date; checksum, both sizes; length of the name, of the rest.
    let common =
        [&[20u8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &crc(bytes)[..], &[declared.to_le_bytes(); 2].concat(), &length].concat();
    let local = [b"PK\x03\x04", &common[..], name.as_bytes(), bytes].concat();
    let central = [b"PK\x01\x02\x14\0", &common[..], &[0; 14], name.as_bytes()].concat();
    let end = [
        &b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..],
        &(central.len() as u32).to_le_bytes(),
        &(local.len() as u32).to_le_bytes(),
        &[0; 2],
    ];
    std::fs::write(path, [local, central, end.concat()].concat()).unwrap();
}

fn npy(kind: &str, shape: &str) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat()
}

fn refused(path: &Path) -> String {
    open(path.to_str().unwrap()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn images_of_an_npz_are_read_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    let pixels: Vec<u8> = (0..4 * 2 * 3 * 3).collect();
    let bytes = [npy("|u1", "4, 2, 3, 3"), pixels.clone()].concat();
    stored(&path, "arr_0.npy", &bytes, bytes.len() as u32);
    let Input::Images(set) = open(path.to_str().unwrap()).unwrap() else { panic!("images expected") };
    assert_eq!(set.len(), 4);
    for (k, of_image) in pixels.chunks(2 * 3 * 3).enumerate() {
        assert_eq!(set.get(k).unwrap(), Image::new(3, 2, 3, of_image.to_vec()));
    }
}

#[test]
fn images_of_an_npz_that_are_not_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    // As many bytes are there as are read to find the header.
    let write = |shape: &str, numbers: u32| {
        let header = npy("|u1", shape);
        let bytes = [&header[..], &vec![0; numbers.min(100_000) as usize]].concat();
        stored(&path, "arr_0.npy", &bytes, header.len() as u32 + numbers);
    };
    write("100000, 64, 64, 3", 100_000 * 64 * 64 * 3);
    let message = refused(&path);
    assert!(message.contains("a.npz") && message.contains("arr_0 ends at byte"), "{message}");
    write("1, 16384, 16384, 3", 16384 * 16384 * 3);
    assert!(refused(&path).contains("images of 16384x16384 pixels: 268435456 is more than the limit"));
    for (shape, numbers) in [("2, 0, 4, 3", 0), ("1, 2, 4, 2", 16), ("4, 4", 16)] {
        write(shape, numbers);
        assert!(refused(&path).contains("expected images as |u1"), "{shape}");
    }
    write("1, 2, 4, 3", 25);
    assert!(refused(&path).contains("do not hold"));
    // What is there is read.
    let bytes = [npy("|u1", "2, 1, 2, 3"), (0..12).collect()].concat();
    stored(&path, "arr_0.npy", &bytes, bytes.len() as u32);
    let Input::Images(set) = open(path.to_str().unwrap()).unwrap() else { panic!("no images") };
    assert_eq!(set.get(1).unwrap(), Image::new(2, 1, 3, vec![6, 7, 8, 9, 10, 11]));
    assert_eq!((set.len(), set.describe().contains("2 images of 1x2x3")), (2, true));
}

/// Statistics of another program may have a number of images and no sums: it must be one all the same.
#[test]
fn an_impossible_number_of_images_is_refused_also_without_sums() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    let floats = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let load = |kind: &str, n: &[u8]| {
        let mut writer = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        for (name, bytes) in [
            ("mu", [npy("<f8", "1,"), floats(&[1.0])].concat()),
            ("sigma", [npy("<f8", "1, 1"), floats(&[2.0])].concat()),
            ("n", [&npy(kind, ""), n].concat()),
        ] {
            writer.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(&bytes).unwrap();
        }
        writer.finish().unwrap();
        Statistics::load(&path).map_err(|e| e.to_string())
    };
    for n in [0, 1, -5, 1 << 62, i64::MIN] {
        let message = load("<i8", &n.to_le_bytes()).unwrap_err();
        assert!(message.contains("a.npz: n is") && message.contains("two images or more"), "{message}");
    }
    for n in [f64::NAN, f64::INFINITY, 2.5, -0.0] {
        assert!(load("<f8", &n.to_le_bytes()).unwrap_err().contains("n is"), "{n}");
    }
    assert_eq!(load("<i8", &2i64.to_le_bytes()).unwrap().gaussian.mean, [1.0]);
}

#[test]
fn an_idx_file_is_refused_by_what_it_claims() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a-idx3-ubyte");
    let claims = |sizes: [u32; 3]| {
        std::fs::write(&path, [&[0, 0, 8, 3][..], &sizes.map(u32::to_be_bytes).concat(), &[7; 8]].concat()).unwrap();
        Idx::open(&path).map(|set| set.len()).map_err(|e| e.to_string())
    };
    assert_eq!(claims([2, 2, 2]), Ok(2));
    for (sizes, why) in [
        ([2, 0, 2], "nothing is in it"),
        ([0, 2, 2], "nothing is in it"),
        ([1, 4096, 4097], "pixels of an image in an IDX file"),
        ([u32::MAX, 28, 28], "IDX file, unpacked"),
        ([u32::MAX; 3], "pixels of an image in an IDX file"),
        ([2, 2, 3], "fewer bytes"),
        ([1, 2, 2], "more bytes"),
    ] {
        let message = claims(sizes).unwrap_err();
        assert!(message.contains("a-idx3-ubyte") && message.contains(why), "{sizes:?}: {message}");
    }
}

/// A PNG whose header alone tells what it would take.
fn png(side: u32, depth: u8, colour: u8) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[depth, colour, 0, 0, 0]].concat();
    for (kind, bytes) in [(b"IHDR", &header[..]), (b"IDAT", &[0x78, 1, 3, 0, 0, 0, 0, 1][..]), (b"IEND", &[])] {
        let chunk = [&kind[..], bytes].concat();
        file.extend((bytes.len() as u32).to_be_bytes());
        file.extend(&chunk);
        file.extend(crc(&chunk).iter().rev());
    }
    file
}

/// D10: 64 million pixels of 16 bits take 384 MB in colour, and as much again where they are turned.
#[test]
fn a_picture_that_would_take_too_much_memory_is_refused() {
    const GREY: u8 = 0;
    const RGB: u8 = 2;
    const RGBA: u8 = 6;
    for (side, depth, colour, why) in [
        (8192, 16, RGB, "decoded image"),
        (8192, 16, RGBA, "decoded image"),
        (8193, 8, GREY, "pixels of an image"),
        (6000, 16, RGBA, "decoded image"),
    ] {
        let bytes = png(side, depth, colour);
        for error in [
            Image::decode(&bytes, "a.png").map(|_| ()).unwrap_err(),
            Image16::decode(&bytes, "a.png").map(|_| ()).unwrap_err(),
            LabelMap::decode(&bytes, "a.png").map(|_| ()).unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(message.contains("a.png") && message.contains(why), "{side} {depth} {colour}: {message}");
        }
    }
    // Within the limits it is decoded, and only then found to be truncated.
    let message = Image::decode(&png(1024, 16, RGB), "a.png").unwrap_err().to_string();
    assert!(!message.contains("limit"), "{message}");
    // Of 8 bits it may be larger than with 16, which are used where it is edited.
    let large = Image::new(5000, 7000, 1, vec![9; 35_000_000]);
    assert_eq!(Image16::decode(&large.encode_png(&[]).unwrap(), "a.png").unwrap().values[7], 9 * 257);
}

fn zip_of(path: &Path, entries: &[(&str, &[u8])]) {
    let mut writer = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in entries {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
}

/// D12: no name in an archive adds a line of its own to a message, or steers the terminal.
#[test]
fn names_in_a_zip_are_printed_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("a.zip");
    let evil = "a\nerror: forged \u{1b}[2J\u{202e}.png";
    let good = Image::new(1, 1, 1, vec![3]).encode_png(&[]).unwrap();
    let plain = |text: &str| assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
    zip_of(&path, &[(evil, b"no picture"), ("dataset.json", b"{\"labels\": [[\"b.png\", 0]]}")]);
    let set = Zip::open(&path).unwrap();
    for text in
        [set.name(0), set.describe(), set.get(0).unwrap_err().to_string(), set.classes().unwrap_err().to_string()]
    {
        plain(&text);
    }
    assert!(set.classes().unwrap_err().to_string().contains("has no label of a\\nerror: forged \\u{1b}"));
    for json in [
        &b"{\"labels\": [[\"b.png\", \"x\\nerror: forged\\u001b\"]]}"[..],
        b"{\"labels\": [[\"b.png\", 0]], \"classes\": [\"x\\nerror: forged\\u001b\"]}",
        b"{\"labels\": {\"\\nerror: forged\": 0}}",
    ] {
        zip_of(&path, &[("b.png", &good), ("dataset.json", json)]);
        plain(&Zip::open(&path).unwrap().classes().unwrap_err().to_string());
    }
    // The names of directories are classes.
    zip_of(&path, &[("x\nerror: forged\u{1b}/b.png", &good), ("y/b.png", &good)]);
    plain(&Zip::open(&path).unwrap().classes().unwrap_err().to_string());
}

/// What any message holds of foreign text stays in its line, or in an indented one below.
#[test]
fn no_message_adds_a_line_that_looks_like_one_of_the_program() {
    use crossfade::Error;
    let evil = "x\nerror: forged\u{1b}\r\u{202e}";
    for error in [
        Error::file("a.png", evil),
        Error::request(evil),
        Error::Run(evil.into()),
        Error::Config(vec!["first".into(), evil.into()]),
        Error::io("a.png")(std::io::Error::other(evil)),
        Error::file(evil, "is none"),
    ] {
        let text = error.to_string();
        assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error")), "{text:?}");
    }
    assert_eq!(Error::Config(vec!["a".into(), "b\nc".into()]).to_string(), "a\nb\\nc");
    assert_eq!(Error::request("two problems:\n  a\nb").to_string(), "two problems:\n  a\n  b");
}
