//! Pairs from images and maps, and the layouts they lie in.
use super::{draw, drawn_set, picture, save, shared};
use crossfade::data::{DataConfig, Dataset, Filter, Image, LabelMap, PassOrder, Planes, Rect, Split, resize};
use crossfade::loader::{Loader, LoaderConfig, Share};
use crossfade::rng::{Purpose, Stream};
use crossfade::task::masks::{HoleBox, Mask, random};
use crossfade::task::{Cropping, Depth, Edges, Inpainting, LowAs, Saliency, SuperResolution, Task, TaskConfig};
use std::sync::Arc;

#[test]
fn super_resolution_pairs_are_pillows_bicubic_of_a_cut() {
    let image = picture(51, 36);
    let task = SuperResolution { scale: 4, size: 32, low: LowAs::Small, residual: 0.0 };
    let mut places = std::collections::BTreeSet::new();
    for counter in 0..40 {
        let pair = task.example(&image, None, &draw(counter, false)).unwrap();
        let (large, small) = (pair.target.to_image(), pair.condition.unwrap());
        assert_eq!(small, Planes::from_image(&resize(&large, 8, 8, Filter::Bicubic, PassOrder::HorizontalFirst)));
        // The first two channels of the corner say where the cut lies.
        let (x, y) = (large.pixels[0] as usize / 5, large.pixels[1] as usize / 7);
        assert_eq!(large, image.cut(Rect { left: x, top: y, width: 32, height: 32 }));
        places.insert((x, y));
        let flipped = task.example(&image, None, &draw(counter, true)).unwrap();
        assert_eq!(flipped.target, pair.target.flipped(true));
        assert_eq!(flipped.condition.unwrap(), small.flipped(true));
    }
    assert!(places.len() > 25, "cuts are spread: {places:?}");
    let enlarged = SuperResolution { low: LowAs::Enlarged, ..task.clone() };
    assert_eq!(enlarged.example(&image, None, &draw(0, false)).unwrap().condition.unwrap().shape, [3, 32, 32]);
    // An image smaller than the cut is continued by reflection.
    assert_eq!(task.example(&picture(20, 9), None, &draw(0, false)).unwrap().target.shape, [3, 32, 32]);
    let grey = Image::new(40, 40, 1, vec![9; 1600]);
    assert_eq!(task.example(&grey, None, &draw(0, false)).unwrap().target.shape, [3, 32, 32]);
}

#[test]
fn inpainting_hides_the_hole_and_nothing_else() {
    let image = picture(90, 64);
    let task = Inpainting { size: 64, mask_channel: true, ..Inpainting::default() };
    for counter in 0..5 {
        let pair = task.example(&image, None, &draw(counter, counter % 2 == 1)).unwrap();
        let condition = pair.condition.unwrap();
        assert_eq!((pair.target.shape, condition.shape), ([3, 64, 64], [4, 64, 64]));
        let mask = random(&mut Stream::new(3, counter, 0, Purpose::Mask), 64, 64, 1.0);
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
    assert_eq!(plain.example(&image, None, &draw(0, false)).unwrap().condition.unwrap().shape, [3, 64, 64]);
    // Masks of files: white is known.
    let files = Inpainting { mask_files: true, ..plain };
    let label = LabelMap::new(64, 64, (0..4096).map(|i| if i % 64 < 32 { 65535 } else { 0 }).collect());
    let pair = files.example(&picture(64, 64), Some(&label), &draw(0, false)).unwrap();
    let condition = pair.condition.unwrap();
    assert!((0..4096).all(|i| if i % 64 < 32 {
        condition.values[i] == pair.target.values[i]
    } else {
        condition.values[i] == -1.0
    }));
    assert!(files.example(&image, None, &draw(0, false)).is_err());
}

#[test]
fn boxes_and_tiny_pictures_have_masks() {
    let mask =
        Mask::boxes(10, 8, &[HoleBox::parse("2,3,4,2").unwrap(), HoleBox::parse("8,6,100,100").unwrap()]).unwrap();
    assert_eq!(mask.known.iter().filter(|k| !**k).count(), 8 + 4);
    assert!(!mask.known[3 * 10 + 2] && mask.known[3 * 10 + 6] && !mask.known[79]);
    assert!(Mask::boxes(10, 8, &[HoleBox([10, 0, 1, 1])]).is_err());
    assert!(HoleBox::parse("1,2,3").is_err() && HoleBox::parse("1,2,0,4").is_err());
    let share = |brush| {
        let masks = (0..50).map(|k| random(&mut Stream::new(0, k, 0, Purpose::Mask), 64, 64, brush).hole());
        masks.sum::<f64>() / 50.0
    };
    assert!(share(0.25) < 0.6 * share(1.0), "a narrow brush makes small holes: {} {}", share(0.25), share(1.0));
    for (w, h) in [(1, 1), (2, 1), (1, 3), (5, 5)] {
        assert!(random(&mut Stream::new(0, 0, 0, Purpose::Mask), w, h, 1.0).hole() > 0.0);
    }
}

#[test]
fn maps_follow_their_images() {
    let image = picture(51, 36);
    // The map marks one pixel in four, by the same rule that can be read off the image.
    let marked = |x: usize, y: usize| (x / 6 + y / 6).is_multiple_of(4);
    let label =
        LabelMap::new(51, 36, (0..51 * 36).map(|i| if marked(i % 51, i / 51) { 65535 } else { 13107 }).collect());
    let task = Edges { size: 24, threshold: 0.3, crop: Cropping::Plain };
    for counter in 0..20 {
        let pair = task.example(&image, Some(&label), &draw(counter, counter % 2 == 0)).unwrap();
        let seen = pair.condition.unwrap().to_image();
        for (i, value) in pair.target.values.iter().enumerate() {
            let (x, y) = (seen.pixels[3 * i] as usize / 5, seen.pixels[3 * i + 1] as usize / 7);
            // Below the threshold a share stays as it is: 0.2.
            let want = if marked(x, y) { 1.0 } else { -0.6 };
            assert!((value - want).abs() < 1e-6, "{counter} {i}: {value} {want}");
        }
    }
    let resized = Edges { size: 32, crop: Cropping::Resized, ..task };
    let pair = resized.example(&image, Some(&label), &draw(1, false)).unwrap();
    assert!(pair.target.values.iter().all(|v| *v == 1.0 || (*v + 0.6).abs() < 1e-6), "no new values");
    let square = Saliency { size: 16 }.example(&image, Some(&label), &draw(0, true)).unwrap();
    let small = resize(&label.to_image(), 16, 16, Filter::Bilinear, PassOrder::HorizontalFirst);
    assert_eq!(square.target, Planes::from_image(&small).flipped(true));
    let other = LabelMap::new(2, 2, vec![0; 4]);
    let error = Saliency::default().example(&image, Some(&other), &draw(0, false)).unwrap_err().to_string();
    assert!(error.contains("51x36") && error.contains("2x2"), "{error}");
    assert!(Saliency::default().example(&image, None, &draw(0, false)).is_err());
}

#[test]
fn depth_is_cut_inside_the_frame_and_measured_in_tens_of_metres() {
    let image = picture(640, 480);
    let depth = LabelMap::new(
        640,
        480,
        (0..640 * 480).map(|i| if i % 640 < 41 { 1 } else { 5000 + (i / 640) as u16 }).collect(),
    );
    let task = Depth { size: [320, 320], ..Depth::default() };
    for counter in 0..10 {
        let pair = task.example(&image, Some(&depth), &draw(counter, false)).unwrap();
        let top = (pair.target.values[0] + 1.0) / 2.0 * 10_000.0 - 5000.0;
        assert!((44.5..151.5).contains(&top), "the first row is {top}, and the frame is never seen");
        assert!(pair.target.values.iter().all(|v| *v > 0.0));
    }
    let whole = Depth { size: [24, 32], resize: true, ..task };
    assert_eq!(whole.example(&image, Some(&depth), &draw(0, false)).unwrap().target.shape, [1, 24, 32]);
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
    std::fs::copy(root.join("Sketch/train/3/x.png"), root.join("Sketch/train/3/x.webp")).unwrap();
    let twice = DataConfig::Pairs { images: root.join("GT"), labels: root.join("Sketch") }.source(8);
    assert!(twice.err().unwrap().to_string().contains("which map is meant"));
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
        Saliency { size: 32 }.example(&set.get(0).unwrap(), set.label(0).unwrap().as_ref(), &draw(0, false)).unwrap();
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
        let config = LoaderConfig { batch, seed: 5, flip: true, threads, cache: true, share: Share::ALL };
        let mut loader = Loader::pairs(Arc::clone(&set), task.clone(), config, first).unwrap();
        let (mut targets, mut conditions) = (vec![], vec![]);
        while targets.len() < count * 64 {
            let made = loader.next_batch().unwrap();
            assert_eq!(made.shape, [batch, 1, 8, 8]);
            targets.extend(made.x0);
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
