//! Conditioned tasks: pairs from files, masks, windows, training and the use of what was trained.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "../common/shared.rs"]
mod shared;

mod pairs;
mod pictures;
mod training;

use crossfade::apply::{Application, Model, Options};
use crossfade::data::{Image, Image16};
use crossfade::task::masks::Mask;
use crossfade::task::{SampleKey, TaskConfig};
use shared::shared;
use std::path::Path;

/// A picture in which every pixel is told from its neighbours.
fn picture(width: usize, height: usize) -> Image {
    let mut pixels = vec![];
    for y in 0..height {
        pixels.extend((0..width).flat_map(|x| [(x * 5 % 256) as u8, (y * 7 % 256) as u8, ((x * y) % 251) as u8]));
    }
    Image::new(width, height, 3, pixels)
}

fn save(image: &Image, path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, image.encode_png(&[]).unwrap()).unwrap();
}

fn draw(counter: u64, flip: bool) -> SampleKey {
    SampleKey { seed: 3, counter, flip }
}

fn drawn_set(root: &Path, images: &str, labels: &str, names: &[&str]) {
    for (k, name) in names.iter().enumerate() {
        save(&picture(20 + k, 16), &root.join(images).join(name));
        save(&Image::new(20 + k, 16, 1, vec![k as u8; (20 + k) * 16]), &root.join(labels).join(name));
    }
}

fn apply(
    task: &TaskConfig,
    model: &dyn Model,
    options: &Options,
    input: &Image16,
    mask: Option<&Mask>,
    out: &Path,
) -> Image16 {
    let application = Application { task, model, options, texts: &[] };
    let mut last = (0, 0);
    let made = application.run(input, mask, 7, out, &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (made.windows, made.windows));
    let result = Image16::read(out).unwrap();
    assert_eq!((result.width, result.height), (made.width, made.height));
    result
}

fn to_picture(image: &Image) -> Image16 {
    Image16::decode(&image.encode_png(&[]).unwrap(), "x.png").unwrap()
}
