//! The models that ship: one line each.
//!
//! To add one, write `models/NAME.safetensors` with `crossfade models pack` and its card `models/NAME.md`, then a line below,
//! which `pack` prints. `cargo test -p crossfade-cli --test models` checks all of them.
use crossfade::models::Model;

/// A model in the program itself.
#[allow(unused_macros, reason = "used as soon as a model ships")]
macro_rules! embedded {
    ($name:literal, $task:literal, default: $default:literal, $sha256:literal, $quality:literal) => {
        Model {
            name: $name,
            task: $task,
            default: $default,
            quality: $quality,
            bytes: include_bytes!(concat!("../../../models/", $name, ".safetensors")).len() as u64,
            sha256: $sha256,
            card: include_str!(concat!("../../../models/", $name, ".md")),
            content: crossfade::models::Content::Embedded(include_bytes!(concat!(
                "../../../models/",
                $name,
                ".safetensors"
            ))),
        }
    };
}

/// A model in a file beside the program, which can be fetched if a URL is known.
#[allow(unused_macros, reason = "used as soon as a model ships")]
macro_rules! in_file {
    ($name:literal, $task:literal, default: $default:literal, $bytes:literal, $sha256:literal, $url:expr, $quality:literal) => {
        Model {
            name: $name,
            task: $task,
            default: $default,
            quality: $quality,
            bytes: $bytes,
            sha256: $sha256,
            card: include_str!(concat!("../../../models/", $name, ".md")),
            content: crossfade::models::Content::File { url: $url },
        }
    };
}

/// Every model: name, task, whether it is the default of its task, SHA-256 of the file, measured quality in one line. A model
/// in a file also has its size and its URL.
#[rustfmt::skip]
pub static MODELS: &[Model] = &[
];
