//! Pictures of any kind and size through a task.
use super::{apply, picture, to_picture};
use crossfade::apply::{Application, Model, Options, Part};
use crossfade::config::RunConfig;
use crossfade::data::Planes;
use crossfade::data::image16::{Format, write_rows};
use crossfade::data::{Filter, Image16, PassOrder, resize};
use crossfade::engine::Device;
use crossfade::generate::Pipeline;
use crossfade::nn::condition::EncoderConfig;
use crossfade::nn::{CondUNetConfig, NetworkPorts};
use crossfade::task::masks::{HoleBox, Mask};
use crossfade::task::{Edges, Inpainting, LowAs, Saliency, SuperResolution, Task, TaskConfig};
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;

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
        let read = Image16::read(&path).unwrap();
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
    let task = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 64, low: LowAs::Small, residual: 0.0 });
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
        let input = Image16::read(&source).unwrap();
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
    let input = Image16 { width: 4000, height: 3000, channels: 1, deep: false, values, alpha: None };
    let task = TaskConfig::Inpainting(Inpainting { size: 512, ..Inpainting::default() });
    let mask = Mask::boxes(4000, 3000, &[HoleBox([1000, 1000, 700, 900])]).unwrap();
    let made = apply(&task, &Repeat(1), &Options::default(), &input, Some(&mask), &out);
    assert_eq!(
        (made.channels, made.values[0], made.values[12_000_000 - 1]),
        (1, input.values[0], input.values[12_000_000 - 1])
    );
    assert_eq!(made.values[1300 * 4000 + 1200], 0);
}

/// A JPEG that its camera marked as lying on its side is worked on upright.
#[test]
fn pictures_are_turned_upright() {
    let dir = tempfile::tempdir().unwrap();
    let mut plain = vec![];
    let (width, height) = (24u16, 10u16);
    let pixels = picture(width.into(), height.into()).pixels;
    JpegEncoder::new_with_quality(&mut plain, 95)
        .encode(&pixels, width.into(), height.into(), ExtendedColorType::Rgb8)
        .unwrap();
    // An Exif segment whose only entry is orientation 6 (turn right), put after the start marker.
    let mut tiff = b"Exif\0\0II*\0\x08\0\0\0\x01\0".to_vec();
    tiff.extend([0x12, 0x01, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    let length = (tiff.len() as u16 + 2).to_be_bytes();
    let turned = [&plain[..2], &[0xff, 0xe1], &length, &tiff, &plain[2..]].concat();
    let file = dir.path().join("turned.jpg");
    std::fs::write(&file, turned).unwrap();
    let task = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 64, low: LowAs::Small, residual: 0.0 });
    let (input, lying) = (Image16::read(&file).unwrap(), Image16::decode(&plain, "plain.jpg").unwrap());
    let large = apply(&task, &Repeat(2), &Options::default(), &input, None, &dir.path().join("o.png"));
    assert_eq!((large.width, large.height), (20, 48));
    for (y, x, k) in [(0, 0, 0), (47, 19, 1), (13, 7, 2)] {
        assert_eq!(large.at(y, x, k), lying.at(9 - x / 2, y / 2, k), "{y} {x}");
    }
}

/// What the enlarged picture lacks is added to it: a network that says nothing leaves the bicubic filter's picture.
#[test]
fn a_residual_is_added_to_the_enlarged_picture() {
    struct Silent;
    impl Model for Silent {
        fn channels(&self) -> usize {
            3
        }
        fn unit(&self) -> usize {
            4
        }
        fn make(&self, _: u64, parts: &[Part]) -> crossfade::Result<Vec<Planes>> {
            Ok(parts
                .iter()
                .map(|p| Planes::new([3, p.size[0], p.size[1]], vec![0.0; 3 * p.size[0] * p.size[1]]))
                .collect())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let sr = SuperResolution { scale: 2, size: 64, low: LowAs::Enlarged, residual: 4.0 };
    let small = picture(20, 12);
    let task = TaskConfig::SuperResolution(sr.clone());
    let options = Options { flip_test: true, ..Options::default() };
    let made = apply(&task, &Silent, &options, &to_picture(&small), None, &dir.path().join("o.png"));
    let want = to_picture(&resize(&small, 40, 24, Filter::Bicubic, PassOrder::HorizontalFirst));
    assert!(made.values.iter().zip(&want.values).all(|(a, b)| a.abs_diff(*b) <= 257));
    // What the network learns and what its output means are inverse.
    let image = picture(70, 70);
    let draw =
        |residual| SuperResolution { residual, ..sr.clone() }.example(&image, None, &super::draw(5, true)).unwrap();
    let (pair, whole) = (draw(4.0), draw(0.0));
    let back = sr.output(pair.target, pair.condition.as_ref().unwrap());
    assert!(back.values.iter().zip(&whole.target.values).all(|(a, b)| (a - b).abs() < 1e-5));
}

/// The smallest pictures and a window far larger than that of training, through a network with three levels.
#[test]
fn a_network_takes_any_size_and_window() {
    let dir = tempfile::tempdir().unwrap();
    let network = CondUNetConfig {
        width: 8,
        mult: vec![1, 1, 1],
        heads: 1,
        encoder: EncoderConfig::Unet { width: 8, stride: 2 },
        condition_windows: vec![[8, 8], [4, 4], [2, 2]],
        feature_windows: vec![[8, 8], [4, 4], [2, 2]],
        ..CondUNetConfig::default()
    };
    let sr = SuperResolution { scale: 4, size: 32, low: LowAs::Enlarged, residual: 0.0 };
    let mut config =
        RunConfig { task: TaskConfig::SuperResolution(sr), network: network.into(), ..RunConfig::default() };
    config.sample.steps = 1;
    let net = config.denoiser(config.network.init(NetworkPorts::default(), 3, &Device::flex()));
    let pipeline = Pipeline::new(net, None, None, &config, &config.sample, &Device::flex()).unwrap();
    let model = pipeline.task_model("super-resolution", 1).unwrap();
    for (width, height, window) in [(1, 1, None), (1, 9, None), (13, 2, None), (64, 61, Some(64))] {
        let options = Options { window, batch: 4, ..Options::default() };
        let input = to_picture(&picture(width, height));
        let made = apply(&config.task, &model, &options, &input, None, &dir.path().join("o.png"));
        assert_eq!((made.width, made.height), (4 * width, 4 * height));
    }
}
