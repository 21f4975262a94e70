//! The models that ship: one line each.
//!
//! To add one, write `models/NAME.safetensors` with `crossfade models pack` and its card `models/NAME.md`, then a line below,
//! which `pack` prints. `cargo test -p crossfade-cli --test models` checks all of them.
use crossfade::models::Model;

/// A model in the program itself.
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
    embedded!("emoji", "generate", default: true, "5bd721da496dc06e32c75183ece0735e728c88dd06efe8d3d1a234627baa2dd2", "24 classes at 64x64, 10 evaluations"),
    in_file!("faces", "generate", default: false, 7957800, "852c0cac593a6b1d568bd04986116b8f8876324d116518f6d469ff7b2b6eee60", None, "faces at 64x64: FID 46.7 at 10 evaluations (2,500 pictures)"),
    in_file!("cifar10", "generate", default: false, 7893768, "18fad58db8e6d4942bb14b50fa056d065d56c3ef6599d64e0fb284c8d7e3ccbd", None, "10 classes at 32x32: FID 59.3 at 10 evaluations, 60.3 at 5 (2,500 images)"),
    embedded!("sr-x4", "super-resolution", default: true, "436fd16232b59b1c88e80089f0c3e9d8c730514d59fb9bfcc6f35b256e61e85c", "Set5 x4: 30.80 dB at 1 evaluation; 29.92 dB, LPIPS .142 at 5"),
    embedded!("inpaint", "inpainting", default: true, "ae142e0c429e8c292ab067cc940579f0af4d40d609dfd6f04cbc71d4004af9fe", "holes in 100 faces: 19.2 dB, LPIPS .030 at 5 evaluations"),
    embedded!("saliency", "saliency", default: true, "51f0b73707236aff39bc046ffd1ad5d0ee288e986c54faf62723f17b6d51d5c9", "70 of ECSSD: max F .830, MAE .104 at 5 evaluations"),
    embedded!("edges", "edges", default: true, "ad8375808b57ccd81f33efa946968c829b515b061afd3993830efd130670c25a", "50 of BSDS500: ODS .775 at 1 evaluation, .735 at 5"),
];
