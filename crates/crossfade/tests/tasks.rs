//! Conditioned tasks: pairs from files, masks, windows, training and the use of what was trained.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
use crossfade::apply::{Application, Model, Options, Part};
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{AutoencoderRun, Baseline, LatentConfig, RunConfig};
use crossfade::data::picture::{Format, write_rows};
use crossfade::data::{
    DataConfig, Dataset, Filter, Image, Loader, LoaderConfig, PassOrder, Picture, Plane, Split, resize,
};
use crossfade::engine::Device;
use crossfade::generate::Maker;
use crossfade::loss::AutoencoderLoss;
use crossfade::nn::condition::EncoderConfig;
use crossfade::nn::{AutoencoderConfig, CondUNetConfig};
use crossfade::rng::{Purpose, Stream};
use crossfade::task::masks::{HoleBox, Mask, random};
use crossfade::task::{
    Cropping, Depth, Draw, Edges, Inpainting, LowAs, Planes, Saliency, Sketch, SuperResolution, Task, TaskConfig,
};
use crossfade::train::{RunDir, train, train_autoencoder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

// ---------------------------------------------------------------------------------------------------- helpers

/// A picture in which every pixel is told from its neighbours.
fn picture(width: usize, height: usize) -> Image {
    let mut pixels = vec![];
    for y in 0..height {
        pixels.extend((0..width).flat_map(|x| [(x * 5 % 256) as u8, (y * 7 % 256) as u8, ((x * y) % 251) as u8]));
    }
    Image::new(width, height, 3, pixels)
}

fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is absent", path.display());
    None
}

fn save(image: &Image, path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, image.encode_png(&[]).unwrap()).unwrap();
}

fn draw(counter: u64, flip: bool) -> Draw {
    Draw { seed: 3, counter, flip }
}

// ---------------------------------------------------------------------------------------------------- pairs

#[test]
fn super_resolution_pairs_are_pillows_bicubic_of_a_cut() {
    let image = picture(51, 36);
    let task = SuperResolution { scale: 4, size: 32, low: LowAs::Small };
    let mut places = std::collections::BTreeSet::new();
    for counter in 0..40 {
        let pair = task.pair(&image, None, &draw(counter, false)).unwrap();
        let (large, small) = (pair.target.to_image(), pair.condition.unwrap());
        assert_eq!(small, Planes::from_image(&resize(&large, 8, 8, Filter::Bicubic, PassOrder::HorizontalFirst)));
        // The first two channels of the corner say where the cut lies.
        let (x, y) = (large.pixels[0] as usize / 5, large.pixels[1] as usize / 7);
        assert_eq!(large, image.cut(x, y, 32, 32));
        places.insert((x, y));
        let flipped = task.pair(&image, None, &draw(counter, true)).unwrap();
        assert_eq!(flipped.target, pair.target.flipped(true));
        assert_eq!(flipped.condition.unwrap(), small.flipped(true));
    }
    assert!(places.len() > 25, "cuts are spread: {places:?}");
    let enlarged = SuperResolution { low: LowAs::Enlarged, ..task.clone() };
    assert_eq!(enlarged.pair(&image, None, &draw(0, false)).unwrap().condition.unwrap().shape, [3, 32, 32]);
    // An image smaller than the cut is continued by reflection.
    assert_eq!(task.pair(&picture(20, 9), None, &draw(0, false)).unwrap().target.shape, [3, 32, 32]);
    let grey = Image::new(40, 40, 1, vec![9; 1600]);
    assert_eq!(task.pair(&grey, None, &draw(0, false)).unwrap().target.shape, [3, 32, 32]);
}

#[test]
fn inpainting_hides_the_hole_and_nothing_else() {
    let image = picture(90, 64);
    let task = Inpainting { size: 64, mask_channel: true, ..Inpainting::default() };
    for counter in 0..5 {
        let pair = task.pair(&image, None, &draw(counter, counter % 2 == 1)).unwrap();
        let condition = pair.condition.unwrap();
        assert_eq!((pair.target.shape, condition.shape), ([3, 64, 64], [4, 64, 64]));
        let mask = random(&mut Stream::new(3, counter, 0, Purpose::Mask), 64, 64);
        let hole = mask.hole();
        assert!(hole > 0.0 && hole < 1.0);
        for (i, value) in condition.values.iter().enumerate() {
            let known = mask.known[i % 4096];
            let want = match (i / 4096, known) {
                (3, true) => 1.0,
                (_, true) => pair.target.values[i],
                (_, false) => -1.0,
            };
            assert_eq!(*value, want);
        }
    }
    let plain = Inpainting { size: 64, ..Inpainting::default() };
    assert_eq!(plain.pair(&image, None, &draw(0, false)).unwrap().condition.unwrap().shape, [3, 64, 64]);
    // Masks of files: white is known.
    let files = Inpainting { mask_files: true, ..plain };
    let label = Plane::new(64, 64, (0..4096).map(|i| if i % 64 < 32 { 65535 } else { 0 }).collect());
    let pair = files.pair(&picture(64, 64), Some(&label), &draw(0, false)).unwrap();
    let condition = pair.condition.unwrap();
    assert!((0..4096).all(|i| if i % 64 < 32 {
        condition.values[i] == pair.target.values[i]
    } else {
        condition.values[i] == -1.0
    }));
    assert!(files.pair(&image, None, &draw(0, false)).is_err());
}

#[test]
fn boxes_and_tiny_pictures_have_masks() {
    let mask =
        Mask::boxes(10, 8, &[HoleBox::parse("2,3,4,2").unwrap(), HoleBox::parse("8,6,100,100").unwrap()]).unwrap();
    assert_eq!(mask.known.iter().filter(|k| !**k).count(), 8 + 4);
    assert!(!mask.known[3 * 10 + 2] && mask.known[3 * 10 + 6] && !mask.known[79]);
    assert!(Mask::boxes(10, 8, &[HoleBox([10, 0, 1, 1])]).is_err());
    assert!(HoleBox::parse("1,2,3").is_err() && HoleBox::parse("1,2,0,4").is_err());
    for (w, h) in [(1, 1), (2, 1), (1, 3), (5, 5)] {
        assert!(random(&mut Stream::new(0, 0, 0, Purpose::Mask), w, h).hole() > 0.0);
    }
}

#[test]
fn maps_follow_their_images() {
    let image = picture(51, 36);
    // The map marks one pixel in four, by the same rule that can be read off the image.
    let marked = |x: usize, y: usize| (x / 6 + y / 6).is_multiple_of(4);
    let label = Plane::new(51, 36, (0..51 * 36).map(|i| if marked(i % 51, i / 51) { 65535 } else { 13107 }).collect());
    let task = Edges { size: 24, threshold: 0.3, crop: Cropping::Plain };
    for counter in 0..20 {
        let pair = task.pair(&image, Some(&label), &draw(counter, counter % 2 == 0)).unwrap();
        let seen = pair.condition.unwrap().to_image();
        for (i, value) in pair.target.values.iter().enumerate() {
            let (x, y) = (seen.pixels[3 * i] as usize / 5, seen.pixels[3 * i + 1] as usize / 7);
            // Below the threshold a share stays as it is: 0.2.
            let want = if marked(x, y) { 1.0 } else { -0.6 };
            assert!((value - want).abs() < 1e-6, "{counter} {i}: {value} {want}");
        }
    }
    let resized = Edges { size: 32, crop: Cropping::Resized, ..task };
    let pair = resized.pair(&image, Some(&label), &draw(1, false)).unwrap();
    assert!(pair.target.values.iter().all(|v| *v == 1.0 || (*v + 0.6).abs() < 1e-6), "no new values");
    let square = Saliency { size: 16 }.pair(&image, Some(&label), &draw(0, true)).unwrap();
    let small = resize(&label.to_image(), 16, 16, Filter::Bilinear, PassOrder::HorizontalFirst);
    assert_eq!(square.target, Planes::from_image(&small).flipped(true));
    let other = Plane::new(2, 2, vec![0; 4]);
    let error = Saliency::default().pair(&image, Some(&other), &draw(0, false)).unwrap_err().to_string();
    assert!(error.contains("51x36") && error.contains("2x2"), "{error}");
    assert!(Saliency::default().pair(&image, None, &draw(0, false)).is_err());
}

#[test]
fn depth_is_cut_inside_the_frame_and_measured_in_tens_of_metres() {
    let image = picture(640, 480);
    let depth =
        Plane::new(640, 480, (0..640 * 480).map(|i| if i % 640 < 41 { 1 } else { 5000 + (i / 640) as u16 }).collect());
    let task = Depth { size: [320, 320], ..Depth::default() };
    for counter in 0..10 {
        let pair = task.pair(&image, Some(&depth), &draw(counter, false)).unwrap();
        let top = (pair.target.values[0] + 1.0) / 2.0 * 10_000.0 - 5000.0;
        assert!((44.5..151.5).contains(&top), "the first row is {top}, and the frame is never seen");
        assert!(pair.target.values.iter().all(|v| *v > 0.0));
    }
    let whole = Depth { size: [24, 32], resize: true, ..task };
    assert_eq!(whole.pair(&image, Some(&depth), &draw(0, false)).unwrap().target.shape, [1, 24, 32]);
}

// ---------------------------------------------------------------------------------------------------- layouts

fn drawn_set(root: &Path, images: &str, labels: &str, names: &[&str]) {
    for (k, name) in names.iter().enumerate() {
        save(&picture(20 + k, 16), &root.join(images).join(name));
        save(&Image::new(20 + k, 16, 1, vec![k as u8; (20 + k) * 16]), &root.join(labels).join(name));
    }
}

#[test]
fn every_layout_finds_its_pairs() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    drawn_set(root, "DUTS-TR/DUTS-TR-Image", "DUTS-TR/DUTS-TR-Mask", &["a.png", "b.png"]);
    drawn_set(root, "DUTS-TE/DUTS-TE-Image", "DUTS-TE/DUTS-TE-Mask", &["c.png"]);
    drawn_set(root, "GT/train/3", "Sketch/train/3", &["x.png", "y.png", "z.png"]);
    drawn_set(root, "train/kitchen_0001", "train/kitchen_0001", &["rgb_00007.png"]);
    save(&Image::new(20, 16, 1, vec![0; 320]), &root.join("train/kitchen_0001/sync_depth_00007.png"));
    let path = || root.to_path_buf();
    let sets = [
        (DataConfig::Duts { path: path(), split: Split::Train }, 2),
        (DataConfig::Duts { path: path(), split: Split::Test }, 1),
        (DataConfig::SketchyCoco { path: path(), split: Split::Train }, 3),
        (DataConfig::NyuDepth { path: path(), split: Split::Train }, 1),
        (DataConfig::Pairs { images: root.join("GT"), labels: root.join("Sketch") }, 3),
    ];
    for (config, count) in sets {
        let set = config.source(8).unwrap();
        assert_eq!((set.len(), set.has_labels()), (count, true), "{}", set.describe());
        for k in 0..count {
            let (image, label) = (set.get(k).unwrap(), set.label(k).unwrap().unwrap());
            assert_eq!((image.width, image.height), (label.width, label.height));
        }
    }
    std::fs::remove_file(root.join("DUTS-TR/DUTS-TR-Mask/b.png")).unwrap();
    let error = DataConfig::Duts { path: path(), split: Split::Train }.source(8).err().unwrap().to_string();
    assert!(error.contains("1 images have no map") && error.contains("b.png"), "{error}");
    let error = DataConfig::Bsds { path: path(), split: Split::Train }.source(8).err().unwrap().to_string();
    assert!(error.contains("images"), "{error}");
}

#[test]
fn real_sets_are_read() {
    let Some(data) = shared("data") else { return };
    let bsds = DataConfig::Bsds { path: data.join("bsds500"), split: Split::Train }.source(8).unwrap();
    assert_eq!(bsds.len(), 50);
    let (image, edges) = (bsds.get(3).unwrap(), bsds.label(3).unwrap().unwrap());
    assert_eq!((image.width, image.height), (edges.width, edges.height));
    // Of 4 to 9 annotators each marks about 1 to 4 percent of the pixels.
    let marked = edges.values.iter().filter(|v| **v > 0).count() as f64 / edges.values.len() as f64;
    assert!((0.01..0.3).contains(&marked), "{marked}");
    assert!(edges.values.iter().max() > Some(&16000));
    let sod = DataConfig::Pairs { images: data.join("bsds500/images/train"), labels: data.join("saliency/SOD_masks") };
    assert_eq!(sod.source(8).unwrap().len(), 50);
    let ecssd = data.join("saliency/ECSSD");
    let set = DataConfig::Pairs { images: ecssd.join("images"), labels: ecssd.join("masks") }.source(8).unwrap();
    assert_eq!(set.len(), 70);
    let pair =
        Saliency { size: 32 }.pair(&set.get(0).unwrap(), set.label(0).unwrap().as_ref(), &draw(0, false)).unwrap();
    assert_eq!(pair.target.shape, [1, 32, 32]);
}

#[test]
fn a_pair_depends_on_its_counter_alone() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png", "c.png", "d.png", "e.png"]);
    let labels = dir.path().join("labels");
    let set: Arc<dyn Dataset> =
        Arc::from(DataConfig::Pairs { images: dir.path().join("images"), labels }.source(8).unwrap());
    let task = TaskConfig::Edges(Edges { size: 8, ..Edges::default() });
    let read = |batch: usize, threads, first: u64, count: usize| {
        let config = LoaderConfig { batch, seed: 5, flip: true, threads, cache: true };
        let mut loader = Loader::pairs(Arc::clone(&set), task.clone(), config, first).unwrap();
        let (mut targets, mut conditions) = (vec![], vec![]);
        while targets.len() < count * 64 {
            let made = loader.next_batch().unwrap();
            assert_eq!(made.shape, [batch, 1, 8, 8]);
            targets.extend(made.pixels);
            let condition = made.condition.unwrap();
            assert_eq!(condition.shape, [batch, 3, 8, 8]);
            conditions.extend(condition.values);
        }
        targets.truncate(count * 64);
        conditions.truncate(count * 192);
        (targets, conditions)
    };
    let one = read(1, 1, 0, 24);
    assert!(read(5, 3, 0, 24) == one && read(24, 1, 0, 24) == one);
    let rest = read(4, 2, 9, 15);
    assert!(rest.0 == one.0[9 * 64..] && rest.1 == one.1[9 * 192..]);
}

// ---------------------------------------------------------------------------------------------------- pictures

#[test]
fn pictures_keep_bits_alpha_and_grey() {
    let dir = tempfile::tempdir().unwrap();
    for (channels, alpha, deep) in [(1, false, false), (3, false, true), (1, true, true), (3, true, false)] {
        let path = dir.path().join("p.png");
        let format = Format { width: 5, height: 3, channels, alpha, deep };
        let value = |i: usize| (i as f32 / 22.5) - 1.0;
        write_rows(&path, format, &[("key", "text")], |rows| {
            for y in 0..3 {
                let row: Vec<f32> = (0..5 * channels).map(|x| value(y * 5 * channels + x)).collect();
                let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
                rows.row(&row, alpha.then_some(&shares)).unwrap();
            }
            Ok(())
        })
        .unwrap();
        let read = Picture::read(&path).unwrap();
        assert_eq!((read.width, read.height, read.channels, read.deep), (5, 3, channels, deep));
        assert_eq!(read.alpha.is_some(), alpha);
        let step = if deep { 1.0 / 32767.0 } else { 1.0 / 127.0 };
        for i in 0..15 * channels {
            let (pixel, channel) = (i / channels, i % channels);
            assert!((read.at(pixel / 5, pixel % 5, channel) - value(i)).abs() < step);
        }
        if let Some(shares) = &read.alpha {
            assert!(shares[0] == 0 && shares[4] == 65535 && shares[2].abs_diff(32767) < 300);
            assert_eq!(read.to_image().pixels[0], 255, "what is transparent is white");
            assert_eq!(read.alpha_times(2).unwrap().width, 10);
        }
        // Beyond the ends the picture is mirrored.
        let cut = read.cut(2, 3, 2, 4);
        assert_eq!(cut.values[..4], [read.at(2, 3, 0), read.at(2, 4, 0), read.at(2, 3, 0), read.at(2, 2, 0)]);
        assert_eq!(cut.values[4], read.at(1, 3, 0));
    }
    // A picture that was not finished leaves nothing behind.
    let path = dir.path().join("q.png");
    let format = Format { width: 5, height: 3, channels: 1, alpha: false, deep: false };
    let error = write_rows(&path, format, &[], |_| Err(crossfade::Error::request("stop"))).unwrap_err().to_string();
    assert_eq!(error, "stop");
    assert!(
        write_rows(&path, format, &[], |rows| rows.row(&[0.0; 5], None).map_err(crossfade::Error::io("q"))).is_err()
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

// ---------------------------------------------------------------------------------------------------- any size

/// A model that looks two pixels far: the 5x5 mean of the first channel of the condition, with zeros beyond its ends.
struct Mean;

impl Model for Mean {
    fn channels(&self) -> usize {
        1
    }
    fn unit(&self) -> usize {
        8
    }
    fn make(&self, _picture: u64, parts: &[Part]) -> crossfade::Result<Vec<Planes>> {
        Ok(parts
            .iter()
            .map(|part| {
                let [_, h, w] = part.condition.shape;
                assert!(h % 8 == 0 && w % 8 == 0, "{h}x{w}");
                let at = |y: usize, x: usize| {
                    let rows = y.saturating_sub(2)..(y + 3).min(h);
                    rows.flat_map(|j| &part.condition.values[j * w + x.saturating_sub(2)..j * w + (x + 3).min(w)])
                        .sum::<f32>()
                        / 25.0
                };
                Planes::new([1, h, w], (0..h * w).map(|i| at(i / w, i % w)).collect())
            })
            .collect())
    }
}

/// A model that repeats its condition `scale` times a side.
struct Repeat(usize);

impl Model for Repeat {
    fn channels(&self) -> usize {
        3
    }
    fn unit(&self) -> usize {
        16
    }
    fn make(&self, _picture: u64, parts: &[Part]) -> crossfade::Result<Vec<Planes>> {
        let enlarge = |part: &Part| {
            let [c, h, w] = part.condition.shape;
            let (rows, columns) = (h * self.0, w * self.0);
            let at = |k: usize, y: usize, x: usize| part.condition.values[(k * h + y / self.0) * w + x / self.0];
            let places = (0..c).flat_map(|k| (0..rows).flat_map(move |y| (0..columns).map(move |x| (k, y, x))));
            Planes::new([c, rows, columns], places.map(|(k, y, x)| at(k, y, x)).collect())
        };
        Ok(parts.iter().map(enlarge).collect())
    }
}

fn apply(
    task: &TaskConfig,
    model: &dyn Model,
    options: &Options,
    input: &Picture,
    mask: Option<&Mask>,
    out: &Path,
) -> Picture {
    let application = Application { task, model, options, texts: &[] };
    let mut last = (0, 0);
    let made = application.run(input, mask, 7, out, &mut |done, all| last = (done, all)).unwrap();
    assert_eq!(last, (made.windows, made.windows));
    let result = Picture::read(out).unwrap();
    assert_eq!((result.width, result.height), (made.width, made.height));
    result
}

fn to_picture(image: &Image) -> Picture {
    Picture::decode(&image.encode_png(&[]).unwrap(), "x.png").unwrap()
}

#[test]
fn windows_and_the_whole_picture_agree() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o.png");
    let task = TaskConfig::Edges(Edges::default());
    for (width, height) in [(1, 1), (3, 7), (40, 40), (131, 67), (64, 200)] {
        let input = to_picture(&picture(width, height));
        let whole = Options { window: Some(256), ..Options::default() };
        let whole = apply(&task, &Mean, &whole, &input, None, &out);
        assert_eq!((whole.width, whole.height, whole.channels), (width, height, 1));
        for (window, batch, flip_test) in [(32, 1, false), (32, 3, true), (48, 2, false)] {
            let options = Options { window: Some(window), batch, flip_test, ..Options::default() };
            let parts = apply(&task, &Mean, &options, &input, None, &out);
            // At the right and lower ends the smaller windows see zeros where the whole picture was continued.
            let inside = (0..width * height).filter(|i| i % width + 2 < width && i / width + 2 < height);
            let worst = inside.map(|i| parts.values[i].abs_diff(whole.values[i])).max().unwrap_or(0);
            assert!(worst <= 257, "{width}x{height} in {window}: {worst}");
        }
    }
}

#[test]
fn results_keep_what_the_picture_has() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("i.png"), dir.path().join("o.png"));
    let task = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 64, low: LowAs::Small });
    for (channels, alpha, deep) in [(1, true, true), (3, true, false), (3, false, true), (1, false, false)] {
        let format = Format { width: 37, height: 21, channels, alpha, deep };
        write_rows(&source, format, &[], |rows| {
            for y in 0..21 {
                let row: Vec<f32> =
                    (0..37 * channels).map(|i| ((i * 31 + y * 77) % 256) as f32 / 127.5 - 1.0).collect();
                let shares = [1.0; 37];
                rows.row(&row, alpha.then_some(&shares)).unwrap();
            }
            Ok(())
        })
        .unwrap();
        let input = Picture::read(&source).unwrap();
        let large = apply(&task, &Repeat(2), &Options::default(), &input, None, &out);
        assert_eq!((large.width, large.height, large.channels, large.deep), (74, 42, channels, deep));
        assert_eq!(large.alpha.map(|a| a.iter().all(|&v| v == 65535)), alpha.then_some(true));
        let step = if deep { 2 } else { 0 };
        for i in 0..74 * 42 * channels {
            let (pixel, k) = (i / channels, i % channels);
            let from = (pixel / 74 / 2 * 37 + pixel % 74 / 2) * channels + k;
            assert!(
                large.values[i].abs_diff(input.values[from]) <= step,
                "{i}: {} {}",
                large.values[i],
                input.values[from]
            );
        }
    }
}

#[test]
fn known_pixels_come_back_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o.png");
    let task = TaskConfig::Inpainting(Inpainting { size: 32, ..Inpainting::default() });
    let input = to_picture(&picture(50, 45));
    let mask = Mask::boxes(50, 45, &[HoleBox([5, 6, 20, 11])]).unwrap();
    let filled = apply(&task, &Repeat(1), &Options::default(), &input, Some(&mask), &out);
    for i in 0..50 * 45 * 3 {
        // The model repeats its condition, which is black in the hole.
        assert_eq!(filled.values[i], if mask.known[i / 3] { input.values[i] } else { 0 });
    }
    let application = Application { task: &task, model: &Repeat(1), options: &Options::default(), texts: &[] };
    let error = |mask: Option<&Mask>| application.run(&input, mask, 0, &out, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error(Some(&Mask::whole(3, 4))).contains("3x4"));
    assert!(error(None).contains("mask"));
}

#[test]
fn maps_are_resized_whole_and_made_black_and_white() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o.png");
    let task = TaskConfig::Saliency(Saliency { size: 16 });
    let input = to_picture(&picture(50, 45));
    let options = Options { threshold: Some(0.5), ..Options::default() };
    let map = apply(&task, &Mean, &options, &input, None, &out);
    assert_eq!((map.width, map.height, map.channels), (50, 45, 1));
    assert!(map.values.iter().all(|&v| v == 0 || v == 65535) && map.values.contains(&65535));
    let soft = apply(&task, &Mean, &Options::default(), &input, None, &out);
    assert!(soft.values.iter().any(|&v| v != 0 && v != 65535));
}

/// Twelve million pixels, in windows.
#[test]
fn large_pictures_work() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o.png");
    let values = (0..4000 * 3000).map(|i| ((i % 4000 / 7 + i / 4000 / 5) % 256 * 257) as u16).collect();
    let input = Picture { width: 4000, height: 3000, channels: 1, deep: false, values, alpha: None };
    let task = TaskConfig::Inpainting(Inpainting { size: 512, ..Inpainting::default() });
    let mask = Mask::boxes(4000, 3000, &[HoleBox([1000, 1000, 700, 900])]).unwrap();
    let made = apply(&task, &Repeat(1), &Options::default(), &input, Some(&mask), &out);
    assert_eq!(
        (made.channels, made.values[0], made.values[12_000_000 - 1]),
        (1, input.values[0], input.values[12_000_000 - 1])
    );
    assert_eq!(made.values[1300 * 4000 + 1200], 0);
}

// ---------------------------------------------------------------------------------------------------- training

/// A network that trains in moments.
fn tiny(task: TaskConfig, data: DataConfig) -> RunConfig {
    let mut config = RunConfig { seed: 3, data, ..RunConfig::default() };
    config.condition = Some(CondUNetConfig {
        channels: task.task().target_channels().unwrap(),
        condition_channels: task.task().condition_channels(),
        width: 8,
        mult: vec![1, 2],
        encoder: EncoderConfig::Unet { width: 8, stride: 1 },
        condition_windows: vec![[2, 2], [1, 1]],
        feature_windows: vec![[2, 2], [1, 1]],
        ..CondUNetConfig::default()
    });
    config.task = task;
    config.train.steps = 3;
    config.train.batch = 2;
    config.train.checkpoint_every = 1;
    config.train.sample_every = 3;
    config.train.log_every = 1;
    config.optim.warmup = 1;
    config.optim.ema_after = 1;
    config.optim.ema_every = 1;
    config.sample.steps = 2;
    config.validate().unwrap();
    config
}

fn fit(config: &RunConfig, dir: &Path, resume: bool, stop_after: u64) -> Vec<f64> {
    let stop = AtomicBool::new(false);
    let mut losses = vec![];
    train(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, &mut |r| {
        losses.push(r.loss);
        stop.store(r.step == stop_after, Ordering::Relaxed);
    })
    .unwrap();
    losses
}

fn newest(dir: &Path) -> Checkpoint {
    let (_, path) = checkpoint::list(&dir.join("checkpoints")).unwrap().pop().unwrap();
    Checkpoint::open(&path).unwrap()
}

fn maker(checkpoint: &Checkpoint, kind: &str, batchless_seed: u64) -> crossfade::Result<Maker> {
    let sample = checkpoint.config.sample.clone();
    Maker::open(checkpoint, kind, Weights::Ema, sample, batchless_seed, &Device::flex())
}

/// Every task trains for a few steps by the common loop, resumes to the same bytes, and works on a picture of odd size.
#[test]
fn every_task_trains_resumes_and_works() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png", "c.png"]);
    let pairs = || DataConfig::Pairs { images: dir.path().join("images"), labels: dir.path().join("labels") };
    let drawn = || DataConfig::Procedural { seed: 1, len: 8 };
    let sr = |low| TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low });
    let tasks = [
        (sr(LowAs::Enlarged), drawn()),
        (sr(LowAs::Small), drawn()),
        (TaskConfig::Inpainting(Inpainting { size: 16, mask_channel: true, mask_files: false }), drawn()),
        (TaskConfig::Saliency(Saliency { size: 16 }), pairs()),
        (TaskConfig::Edges(Edges { size: 16, ..Edges::default() }), pairs()),
        (TaskConfig::Depth(Depth { size: [16, 24], ..Depth::default() }), pairs()),
        (TaskConfig::Sketch(Sketch { size: 16 }), pairs()),
    ];
    for (k, (task, data)) in tasks.into_iter().enumerate() {
        let name = task.task().name();
        let (whole, parts) = (dir.path().join(format!("whole{k}")), dir.path().join(format!("parts{k}")));
        let config = tiny(task, data);
        let losses = fit(&config, &whole, false, 0);
        assert!(losses.len() == 3 && losses.iter().all(|l| l.is_finite()), "{name}: {losses:?}");
        assert!(whole.join("samples/step-00000003.png").is_file());
        fit(&config, &parts, false, 2);
        assert_eq!(fit(&config, &parts, true, 0).len(), 1);
        let (a, b) = (newest(&whole), newest(&parts));
        assert!(std::fs::read(&a.path).unwrap() == std::fs::read(&b.path).unwrap(), "{name}: the resumed run differs");
        let statistics =
            a.read().unwrap().into_iter().filter(|(n, _)| n.starts_with("model.") && n.ends_with("running_var"));
        assert!(
            statistics.into_iter().all(|(_, (_, v))| v.iter().any(|v| *v != 1.0)),
            "{name}: statistics stood still"
        );
        let maker = maker(&a, name, 1).unwrap();
        let input = to_picture(&picture(37, 21));
        let mask = (name == "inpainting").then(|| Mask::boxes(37, 21, &[HoleBox([3, 3, 9, 9])]).unwrap());
        let make = |batch| {
            let options = Options { batch, ..Options::default() };
            apply(&a.config.task, &maker, &options, &input, mask.as_ref(), &dir.path().join("o.png"))
        };
        let made = make(1);
        let scale = a.config.task.task().scale();
        assert_eq!((made.width, made.height), (37 * scale, 21 * scale));
        let worst = made.values.iter().zip(make(4).values).map(|(a, b)| a.abs_diff(b)).max();
        assert!(worst <= Some(257), "{name}: windows at a time change the result by {worst:?}");
    }
}

#[test]
fn learning_a_task_lowers_its_loss_also_with_baselines_and_a_frozen_encoder() {
    let baselines = Baseline::all().into_iter().filter(|b| ["ddpm-x0", "edm", "cld"].contains(&b.name()));
    let baselines = baselines.map(|b| (Some(b), false));
    for (baseline, frozen) in [(None, false), (None, true)].into_iter().chain(baselines) {
        let task = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low: LowAs::Enlarged });
        let mut config = tiny(task, DataConfig::Procedural { seed: 1, len: 4 });
        config.train.steps = 40;
        config.train.batch = 4;
        config.train.checkpoint_every = 40;
        config.train.sample_every = 0;
        config.optim.lr = 5e-3;
        config.optim.weight_decay = 0.1;
        config.baseline = baseline;
        config.condition.as_mut().unwrap().freeze_encoder = frozen;
        let dir = tempfile::tempdir().unwrap();
        let losses = fit(&config, dir.path(), false, 0);
        let mean = |l: &[f64]| l.iter().sum::<f64>() / l.len() as f64;
        let (early, late) = (mean(&losses[..8]), mean(&losses[32..]));
        assert!(late < 0.85 * early, "{baseline:?}, frozen {frozen}: {early} to {late}");
        let checkpoint = newest(dir.path());
        assert_eq!(RunConfig::parse(&checkpoint.config.to_toml().unwrap(), "x").unwrap(), config);
        let maker = maker(&checkpoint, "super-resolution", 0).unwrap();
        let heun = matches!(baseline, Some(Baseline::Edm(_)));
        assert_eq!(maker.evaluations().unwrap(), if heun { 3 } else { 2 });
        let out = dir.path().join("o.png");
        apply(&checkpoint.config.task, &maker, &Options::default(), &to_picture(&picture(20, 9)), None, &out);
        let encoder = |checkpoint: &Checkpoint| {
            let all = checkpoint.read().unwrap().into_iter();
            all.filter(|(name, _)| name.starts_with("model.init_conv_mask.")).collect::<Vec<_>>()
        };
        let mut start = config.clone();
        start.train.steps = 1;
        let first = tempfile::tempdir().unwrap();
        fit(&start, first.path(), false, 0);
        assert_eq!(encoder(&newest(first.path())) == encoder(&checkpoint), frozen, "a frozen encoder stays as it is");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let task = || TaskConfig::Saliency(Saliency { size: 16 });
    let drawn = DataConfig::Procedural { seed: 1, len: 4 };
    let config = tiny(task(), drawn.clone());
    let stop = AtomicBool::new(false);
    let run = RunDir(dir.path().join("run"));
    let error = train(&config, &run, &Device::flex(), false, &stop, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("saliency") && error.contains("data.kind"), "{error}");
    let problems = |change: &dyn Fn(&mut RunConfig)| {
        let mut config = config.clone();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    };
    assert!(problems(&|c| c.condition = None).contains("[condition]"));
    assert!(problems(&|c| c.task = TaskConfig::default()).contains("[task]"));
    assert!(problems(&|c| c.task = TaskConfig::Saliency(Saliency { size: 17 })).contains("task.size"));
    assert!(problems(&|c| c.condition.as_mut().unwrap().channels = 3).contains("condition.channels"));
    assert!(problems(&|c| c.condition.as_mut().unwrap().width = 9).contains("condition.width"));
    assert!(problems(&|c| c.train.augment = 0.1).contains("train.augment"));
    let text = "[task]\nkind = \"edges\"\nthreshold = 2.0\nsise = 3\n";
    let error = RunConfig::parse(text, "x.toml").unwrap_err().to_string();
    assert!(error.contains("x.toml:4") && error.contains("size"), "{error}");
    // A checkpoint of another task.
    let sr = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low: LowAs::Small });
    fit(&tiny(sr, drawn), &dir.path().join("sr"), false, 0);
    let checkpoint = newest(&dir.path().join("sr"));
    let error = maker(&checkpoint, "edges", 0).err().unwrap().to_string();
    assert!(error.contains("super-resolution") && error.contains("crossfade sr"), "{error}");
    assert!(checkpoint.denoiser(Weights::Ema, &Device::flex()).err().unwrap().to_string().contains("task"));
}

/// A task on latents: one checkpoint holds both stages, resumes to the same bytes and makes maps of any size.
#[test]
fn a_task_works_on_latents() {
    let dir = tempfile::tempdir().unwrap();
    drawn_set(dir.path(), "images", "labels", &["a.png", "b.png", "c.png"]);
    let stage = dir.path().join("autoencoder");
    let mut first = AutoencoderRun { seed: 5, ..AutoencoderRun::default() };
    first.autoencoder = AutoencoderConfig {
        resolution: 16,
        channels: 1,
        width: 32,
        mult: vec![1, 1],
        blocks: 1,
        ..AutoencoderConfig::default()
    };
    first.loss = AutoencoderLoss { perceptual: 0.0, disc_start: 9, disc_width: 8, disc_depth: 2, ..first.loss };
    first.data =
        DataConfig::Folder { path: dir.path().join("labels"), fit: Default::default(), filter: Filter::Bicubic };
    first.train.steps = 1;
    first.train.batch = 2;
    let run = RunDir(stage.clone());
    train_autoencoder(&first, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();

    let pairs = DataConfig::Pairs { images: dir.path().join("images"), labels: dir.path().join("labels") };
    let mut config = tiny(TaskConfig::Edges(Edges { size: 16, ..Edges::default() }), pairs);
    config.latent = Some(LatentConfig { autoencoder: stage.clone(), scale: None, cache: None });
    config.sample.clip = 0.0;
    config.condition.as_mut().unwrap().channels = first.autoencoder.latent;
    config.validate().unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    fit(&config, &whole, false, 0);
    fit(&config, &parts, false, 2);
    // The checkpoint alone is enough: the first stage is not needed any more.
    std::fs::remove_dir_all(&stage).unwrap();
    fit(&config, &parts, true, 0);
    let (a, b) = (newest(&whole), newest(&parts));
    assert!(std::fs::read(&a.path).unwrap() == std::fs::read(&b.path).unwrap(), "the resumed run differs");
    let maker = maker(&a, "edges", 1).unwrap();
    assert_eq!((maker.channels(), maker.unit()), (1, 4));
    let input = to_picture(&picture(37, 21));
    let map = apply(&a.config.task, &maker, &Options::default(), &input, None, &dir.path().join("o.png"));
    assert_eq!((map.width, map.height, map.channels), (37, 21, 1));
}
