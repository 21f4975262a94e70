//! Commands, two small trained networks, and files with which tests attack the program.
#![allow(dead_code, reason = "each test uses a part")]
use crossfade::data::Image;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A diffusion of 8x8 pixels, trained in a second.
pub const DIFFUSION: &str = r#"
seed = 4
[network]
resolution = 8
width = 8
mult = [1]
blocks = 1
attention = []
[data]
kind = "procedural"
len = 16
[train]
steps = 2
batch = 2
checkpoint_every = 1
log_every = 1
"#;

/// An autoencoder, trained in a second.
pub const AUTOENCODER: &str = r#"
seed = 4
[autoencoder]
resolution = 16
width = 32
mult = [1, 1]
blocks = 1
latent = 2
[data]
kind = "procedural"
len = 8
[loss]
perceptual = 0.0
disc_start = 100
[train]
steps = 1
batch = 2
checkpoint_every = 1
log_every = 1
"#;

/// The program, on one thread.
pub fn crossfade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossfade"));
    command.args(["--threads", "1", "--quiet"]);
    command
}

/// What a command prints that succeeds as it should.
pub fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The message of a command that fails as it should: by an error, not by a panic (exit code 101) and not by a signal.
pub fn fail(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert!(matches!(status.code(), Some(1 | 2)), "{command:?}: {status}: {message}");
    message
}

/// A folder with a trained network and a trained autoencoder, made once.
pub fn trained() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = || {
        let dir = tempfile::tempdir().unwrap();
        for (name, config) in [("run", DIFFUSION), ("ae", AUTOENCODER)] {
            let file = dir.path().join(name).with_extension("toml");
            std::fs::write(&file, config).unwrap();
            succeed(crossfade().arg("train").arg(file).arg("--out").arg(dir.path().join(name)));
        }
        dir
    };
    DIR.get_or_init(made).path()
}

/// A square PNG of one brightness.
pub fn grey(path: &Path, value: u8, side: usize) {
    std::fs::write(path, Image::new(side, side, 3, vec![value; 3 * side * side]).encode_png(&[]).unwrap()).unwrap();
}

/// The checksum of PNG chunks and of checkpoints.
pub fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// A checkpoint with NaN in the place of every number, and the checksum of that.
pub fn poisoned(from: &Path, to: &Path) {
    let mut bytes = std::fs::read(from).unwrap();
    let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[start..].chunks_exact_mut(4).for_each(|number| number.copy_from_slice(&f32::NAN.to_le_bytes()));
    let sum = format!("{:08x}", crc(&bytes[start..]));
    let key = b"\"crc32\":\"";
    let at = bytes.windows(key.len()).position(|part| part == key).unwrap() + key.len();
    bytes[at..at + 8].copy_from_slice(sum.as_bytes());
    std::fs::write(to, bytes).unwrap();
}

/// A PNG of one pixel: its header after the sizes, further chunks, and its pixels.
pub fn png(kind: [u8; 5], chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &kind].concat();
    let pixels = [0x78, 1, 1, 2, 0, 0xfd, 0xff, 0, 0, 0, 2, 0, 1];
    let all = [&[(b"IHDR", &header[..])], chunks, &[(b"IDAT", &pixels), (b"IEND", &[])]].concat();
    for (kind, bytes) in all {
        let chunk = [&kind[..], bytes].concat();
        file.extend((bytes.len() as u32).to_be_bytes());
        file.extend(&chunk);
        file.extend(crc(&chunk).to_be_bytes());
    }
    file
}
