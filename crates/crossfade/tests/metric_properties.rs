//! Properties of every metric, whatever the images are: symmetry, bounds, invariances; and what is refused because its value
//! would mean nothing.
#![allow(clippy::unwrap_used)]
use crossfade::data::Image;
use crossfade::engine::Device;
use crossfade::metrics::features::{
    FeatureSums, Features, Frechet, Gaussian, KidConfig, inception_score, kid, precision_recall,
};
use crossfade::metrics::regions::scores::{Scores, Truth, score};
use crossfade::metrics::regions::segmentation::Segmentation;
use crossfade::metrics::statistics::{Summary, Welch, bootstrap};
use crossfade::metrics::{MetricOptions, Raster, Reference, ReferenceWork, RegisteredMetric, Report, Sample};
use proptest::prelude::*;

fn sample(output: Raster, target: Option<Raster>) -> Sample {
    Sample { name: "a".into(), origin: "a.png".into(), output, target, class: None }
}

/// The report of a metric of pairs.
fn measured(metric: &str, pairs: &[(Image, Image)]) -> crossfade::Result<Report> {
    let device = Device::flex();
    let opened = (RegisteredMetric::parse(metric)?.open)(&MetricOptions::new(&device))?;
    let mut accumulator = opened.accumulator();
    accumulator.add(pairs.iter().map(|(a, b)| sample(a.into(), Some(b.into()))).collect())?;
    Ok(accumulator.finish()?.report)
}

fn of_pair(metric: &str, a: &Image, b: &Image) -> f64 {
    measured(metric, &[(a.clone(), b.clone())]).unwrap().values[0].1
}

/// The report of a metric of sets.
fn of_sets(metric: &str, images: &[Image], reference: &[Image]) -> crossfade::Result<f64> {
    struct Set<'a>(&'a [Image]);
    impl crossfade::data::Dataset for Set<'_> {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn get(&self, index: usize) -> crossfade::Result<Image> {
            Ok(self.0[index].clone())
        }
        fn name(&self, index: usize) -> String {
            index.to_string()
        }
        fn describe(&self) -> String {
            "a set".into()
        }
    }
    let device = Device::flex();
    let mut opened = (RegisteredMetric::parse(metric)?.open)(&MetricOptions::new(&device))?;
    let mut work = ReferenceWork { store: None, stop: &|| false, progress: &mut |_, _| () };
    opened.prepare(&Reference::Images(&Set(reference)), &mut work)?;
    let mut accumulator = opened.accumulator();
    accumulator.add(images.iter().map(|image| sample(image.into(), None)).collect())?;
    Ok(accumulator.finish()?.report.values[0].1)
}

/// Turned by half a turn: every pixel moves, and all windows stay windows.
fn turned(image: &Image) -> Image {
    let pixels = image.pixels.chunks_exact(image.channels).rev().flatten().copied().collect();
    Image::new(image.width, image.height, image.channels, pixels)
}

fn near(a: f64, b: f64, most: f64) -> bool {
    (a - b).abs() <= most * a.abs().max(b.abs()).max(1.0)
}

/// An image of the given size, smooth enough to be no noise.
fn image(width: usize, height: usize, channels: usize) -> impl Strategy<Value = Image> {
    (any::<u64>(), 1..40usize).prop_map(move |(seed, step)| {
        let mut state = seed | 1;
        let mut pixel = 128i64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            pixel = (pixel + (state >> 33) as i64 % (2 * step as i64 + 1) - step as i64).clamp(0, 255);
            pixel as u8
        };
        Image::new(width, height, channels, (0..width * height * channels).map(next).collect())
    })
}

fn two(width: usize, height: usize, channels: usize) -> impl Strategy<Value = (Image, Image)> {
    (image(width, height, channels), image(width, height, channels))
}

fn features(n: usize, dim: usize) -> impl Strategy<Value = Features> {
    proptest::collection::vec(-3.0f32..3.0, n * dim).prop_map(move |values| Features { dim, values })
}

fn gaussian(features: &Features) -> Gaussian {
    let mut sums = FeatureSums::new(features.dim);
    (0..features.len()).for_each(|i| sums.push(features.row(i)));
    Gaussian::of(&sums).unwrap()
}

fn frechet(a: &Features, b: &Features) -> f64 {
    Frechet::to(gaussian(b)).unwrap().distance(&gaussian(a)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn psnr_and_ssim_are_symmetric_bounded_and_do_not_see_where_up_is((a, b) in two(24, 17, 3)) {
        for metric in ["psnr", "ssim"] {
            let value = of_pair(metric, &a, &b);
            prop_assert!(near(value, of_pair(metric, &b, &a), 1e-12), "{metric} is symmetric");
            prop_assert!(near(value, of_pair(metric, &turned(&a), &turned(&b)), 1e-9), "{metric} of turned images");
        }
        prop_assert!(of_pair("psnr", &a, &b) >= 0.0, "all values are between 0 and 255");
        prop_assert!(of_pair("psnr", &a, &a).is_infinite());
        let ssim = of_pair("ssim", &a, &b);
        prop_assert!((-1.0..=1.0).contains(&ssim));
        prop_assert!(near(of_pair("ssim", &a, &a), 1.0, 1e-12));
    }

    #[test]
    fn psnr_falls_by_the_square_of_the_error(a in image(9, 7, 1), level in 1..100u8) {
        let grey = |value: u8| Image::new(9, 7, 1, vec![value; 63]);
        let expected = 20.0 * (255.0 / f64::from(level)).log10();
        prop_assert!(near(of_pair("psnr", &grey(20), &grey(20 + level)), expected, 1e-12));
        // Cropped to nothing, it is no number and no value.
        let other = Image::new(7, 9, 1, a.pixels.clone());
        prop_assert!(measured("psnr", &[(a, other)]).is_err(), "another size");
    }

    #[test]
    fn ms_ssim_is_symmetric_and_bounded((a, b) in two(170, 163, 1)) {
        let value = of_pair("ms-ssim", &a, &b);
        prop_assert!((0.0..=1.0).contains(&value));
        prop_assert!(near(value, of_pair("ms-ssim", &b, &a), 1e-12));
        prop_assert!(near(of_pair("ms-ssim", &a, &a), 1.0, 1e-12));
    }

    #[test]
    fn saliency_is_bounded_and_best_for_the_mask_itself((map, mask) in two(16, 13, 1)) {
        let report = measured("saliency", &[(map.clone(), mask.clone())]);
        prop_assume!(mask.pixels.iter().any(|v| *v >= 128));
        for (name, value) in report.unwrap().values {
            // The toolbox divides the sum of E over n pixels by n − 1.
            let most = if name.ends_with('E') { 208.0 / 207.0 } else { 1.0 };
            prop_assert!((-1e-9..=most + 1e-9).contains(&value), "{name} is {value}");
        }
        let binary = Image::new(16, 13, 1, mask.pixels.iter().map(|v| if *v >= 128 { 255 } else { 0 }).collect());
        let best = measured("saliency", &[(binary.clone(), binary.clone())]).unwrap();
        prop_assert!(best.get("MAE").unwrap() == 0.0 && best.get("max F").unwrap() > 0.999, "{best}");
        let other = measured("saliency", &[(turned(&map), turned(&mask))]).unwrap();
        let own = measured("saliency", &[(map, mask)]).unwrap();
        for name in ["MAE", "max F", "mean F", "max E", "mean E"] {
            prop_assert!(near(own.get(name).unwrap(), other.get(name).unwrap(), 1e-9), "{name} of turned maps");
        }
    }

    #[test]
    fn regions_agree_with_themselves_and_are_symmetric(labels in proptest::collection::vec((0..4u64, 0..4u64), 60)) {
        let segmentation = |pick: fn(&(u64, u64)) -> u64| Segmentation::new(10, 6, labels.iter().map(pick));
        let (a, b) = (segmentation(|l| l.0), segmentation(|l| l.1));
        let of = |a: &Segmentation, b: &Segmentation| -> Scores { score([a.clone()], &[Truth::new(b.clone())]).scales[0] };
        let (ab, ba, aa) = (of(&a, &b), of(&b, &a), of(&a, &a));
        prop_assert!(near(ab.rand_index, ba.rand_index, 1e-12) && (0.0..=1.0).contains(&ab.rand_index));
        prop_assert!(near(ab.variation, ba.variation, 1e-9) && ab.variation >= -1e-12);
        prop_assert!(near(ab.covering(), ba.covered(), 1e-12) && (0.0..=1.0).contains(&ab.covering()));
        prop_assert!(near(aa.rand_index, 1.0, 1e-12) && aa.variation.abs() < 1e-9 && near(aa.covering(), 1.0, 1e-12));
    }

    #[test]
    fn the_frechet_distance_is_one((a, b, shift) in (features(40, 5), features(30, 5), -2.0f32..2.0)) {
        let d = frechet(&a, &b);
        prop_assert!(d >= -1e-9);
        prop_assert!(near(d, frechet(&b, &a), 1e-6), "symmetric: {d} and {}", frechet(&b, &a));
        prop_assert!(frechet(&a, &a).abs() < 1e-6);
        // Moving one set moves its mean alone.
        let moved = Features { dim: 5, values: a.values.iter().map(|v| v + shift).collect() };
        prop_assert!(near(frechet(&a, &moved), 5.0 * f64::from(shift).powi(2), 1e-4));
        // The order of images and of features does not matter.
        let swapped = |f: &Features| Features { dim: 5, values: f.values.chunks_exact(5).rev().flat_map(|r| r.iter().rev().copied()).collect() };
        prop_assert!(near(d, frechet(&swapped(&a), &swapped(&b)), 1e-6));
    }

    #[test]
    fn kid_does_not_see_the_order_and_precision_and_recall_swap((a, b) in (features(20, 4), features(20, 4))) {
        let all = KidConfig { subsets: 1, size: 20, seed: 3 };
        let reversed = |f: &Features| Features { dim: 4, values: f.values.chunks_exact(4).rev().flatten().copied().collect() };
        let d = kid(&a, &b, all).unwrap().mean;
        prop_assert!(near(d, kid(&b, &a, all).unwrap().mean, 1e-9));
        prop_assert!(near(d, kid(&reversed(&a), &b, all).unwrap().mean, 1e-9));
        prop_assert!(kid(&a, &a, all).unwrap().mean <= 1e-9, "of a set with itself: an unbiased estimate, not above 0");
        let (ab, ba) = (precision_recall(&a, &b, 3).unwrap(), precision_recall(&b, &a, 3).unwrap());
        prop_assert_eq!((ab.precision, ab.recall), (ba.recall, ba.precision));
        for share in [ab.precision, ab.recall, ab.f_score] {
            prop_assert!((0.0..=1.0).contains(&share));
        }
        let own = precision_recall(&a, &a, 3).unwrap();
        prop_assert_eq!((own.precision, own.recall), (1.0, 1.0));
    }

    #[test]
    fn the_inception_score_is_between_one_and_the_classes(logits in features(40, 7), shift in -5.0f32..5.0) {
        let score = inception_score(&logits, 4, 2020).unwrap().mean;
        prop_assert!((1.0 - 1e-9..=7.0 + 1e-9).contains(&score));
        // Adding a number to all logits of an image changes no probability; equal images have the score 1.
        let moved = Features { dim: 7, values: logits.values.iter().map(|v| v + shift).collect() };
        prop_assert!(near(score, inception_score(&moved, 4, 2020).unwrap().mean, 1e-4));
        let equal = Features { dim: 7, values: logits.row(0).repeat(40) };
        prop_assert!(near(inception_score(&equal, 4, 2020).unwrap().mean, 1.0, 1e-9));
    }

    #[test]
    fn summaries_and_tests_move_with_their_values(
        a in proptest::collection::vec(-5.0f64..5.0, 3..9),
        b in proptest::collection::vec(-5.0f64..5.0, 3..9),
        shift in -100.0f64..100.0,
    ) {
        let (Ok(ab), Ok(ba)) = (Welch::test(&a, &b), Welch::test(&b, &a)) else { return Ok(()) };
        prop_assert!(near(ab.p, ba.p, 1e-9) && (0.0..=1.0).contains(&ab.p));
        prop_assert!(near(ab.t, -ba.t, 1e-9));
        let moved: Vec<f64> = a.iter().map(|v| v + shift).collect();
        let (own, other) = (Summary::of(&a).unwrap(), Summary::of(&moved).unwrap());
        prop_assert!(near(own.mean + shift, other.mean, 1e-9) && near(own.std, other.std, 1e-6));
        prop_assert!(own.interval[0] <= own.mean && own.mean <= own.interval[1]);
        let mean = |indices: &[usize]| indices.iter().map(|&i| a[i]).sum::<f64>() / indices.len() as f64;
        let [low, high] = bootstrap(a.len(), 50, 0.9, 1, mean).unwrap();
        let (least, most) = a.iter().fold((f64::MAX, f64::MIN), |(l, m), v| (l.min(*v), m.max(*v)));
        prop_assert!(least <= low + 1e-9 && low <= high && high <= most + 1e-9);
    }

    #[test]
    fn distances_of_sets_are_none_for_the_same_set(images in proptest::collection::vec(image(16, 16, 3), 4..8)) {
        let reversed: Vec<Image> = images.iter().rev().cloned().collect();
        for metric in ["pixel-frechet", "random-frechet"] {
            let same = of_sets(metric, &images, &images).unwrap();
            prop_assert!(same.abs() < 1e-3, "{metric}: {same}");
            prop_assert!(of_sets(metric, &reversed, &images).unwrap().abs() < 1e-3, "{metric} sees the order");
        }
    }
}

/// The truth itself is found best, up to the suppression at the border of the image.
#[test]
fn edges_are_bounded_and_best_for_the_truth() {
    let line = |row: usize| {
        Image::new(32, 32, 1, (0..1024).map(|i| if i / 32 == row && i % 32 > 5 { 255 } else { 0 }).collect())
    };
    let best = measured("edges", &[(line(16), line(16))]).unwrap();
    assert!(best.get("ODS").unwrap() > 0.9, "{best}");
    for other in [line(3), Image::new(32, 32, 1, vec![0; 1024]), Image::new(32, 32, 1, vec![90; 1024])] {
        let report = measured("edges", &[(other, line(16))]).unwrap();
        for (name, value) in &report.values {
            assert!((0.0..=1.0).contains(value), "{name} is {value}");
        }
        assert!(report.get("ODS").unwrap() < best.get("ODS").unwrap());
    }
}

/// Stretching a map first is the same as measuring the stretched one, and binary maps stay what they are.
#[test]
fn maps_are_normalised_and_cut_as_the_settings_say() {
    use crossfade::metrics::saliency::{Normalise, SaliencyConfig, Size, evaluate};
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, width: usize, pixels: &[u8]| {
        let path = dir.path().join(name);
        let image = Image::new(width, pixels.len() / width, 1, pixels.to_vec());
        std::fs::write(&path, image.encode_png(&[]).unwrap()).unwrap();
        path
    };
    let soft = file("soft.png", 4, &[51, 102, 153, 204, 51, 51, 204, 102]);
    let mask = file("mask.png", 4, &[0, 0, 255, 255, 0, 0, 255, 0]);
    let of = |map: &std::path::Path, config: SaliencyConfig| {
        evaluate(map, &mask, &config, &mut |_, _| ()).map(|found| found.images[0].clone())
    };
    let plain = SaliencyConfig::default();
    let score = |map, normalise, binarise| {
        let mut scores = of(map, SaliencyConfig { normalise, binarise, ..plain }).unwrap();
        scores.name.clear();
        scores
    };
    // 0.2 … 0.8 becomes 0 … 1, with 85 and 170 between.
    let stretched = file("stretched.png", 4, &[0, 85, 170, 255, 0, 0, 255, 85]);
    let (ours, theirs) = (score(&soft, Normalise::MinMax, None), score(&stretched, Normalise::None, None));
    for (a, b) in [(ours.mae, theirs.mae), (ours.weighted_f, theirs.weighted_f), (ours.s, theirs.s)] {
        assert!(near(a, b, 1e-12), "{a} {b}");
    }
    // Divided by the maximum, 0.25 … 1; the MAE is that of the stretched map.
    let divided = file("divided.png", 4, &[64, 128, 191, 255, 64, 64, 255, 128]);
    let (ours, theirs) = (score(&soft, Normalise::Toolbox, None), score(&divided, Normalise::None, None));
    assert!(near(ours.s, theirs.s, 0.01) && near(ours.mae, score(&stretched, Normalise::None, None).mae, 1e-12));
    assert!(!near(ours.mae, theirs.mae, 0.01));
    // Cut at 0.5 after stretching; at 0.7 one pixel of the object is lost.
    let cut = score(&soft, Normalise::MinMax, Some(0.5));
    assert_eq!((cut.mae, cut.max_f), (0.0, 1.0));
    assert!(near(score(&soft, Normalise::MinMax, Some(0.7)).mae, 1.0 / 8.0, 1e-12));
    assert!(near(score(&soft, Normalise::Toolbox, Some(0.8)).mae, 1.0 / 8.0, 1e-12), "0.75 of the maximum is below");
    // A flat map is never stretched, and the report says so.
    let flat = file("flat.png", 4, &[102; 8]);
    for normalise in [Normalise::None, Normalise::MinMax] {
        assert!(near(score(&flat, normalise, None).mae, (5.0 * 0.4 + 3.0 * 0.6) / 8.0, 1e-12), "{normalise:?}");
    }
    let report = evaluate(&flat, &mask, &SaliencyConfig { normalise: Normalise::MinMax, ..plain }, &mut |_, _| ());
    assert!(report.unwrap().report.warnings.iter().any(|w| w.contains("1 maps have one value everywhere")));
    for bad in [0.0, 1.0, -0.5, f64::NAN] {
        let message = error(of(&soft, SaliencyConfig { binarise: Some(bad), ..plain }));
        assert!(message.contains("between 0 and 1"), "{bad}: {message}");
    }
    // A map of another size is refused, or fitted.
    let small = file("small.png", 2, &[0, 255]);
    assert!(error(of(&small, plain)).contains("2x1 pixels, but its mask has 4x2"));
    assert!(of(&small, SaliencyConfig { size: Size::Mask, ..plain }).unwrap().mae < 0.4);
}

fn error(result: crossfade::Result<impl Sized>) -> String {
    result.map(|_| ()).unwrap_err().to_string()
}

/// Numbers cannot lie: where the value of a metric would mean nothing, there is none.
#[test]
fn values_that_would_mean_nothing_are_refused() {
    let grey = |value: u8, side: usize| Image::new(side, side, 1, vec![value; side * side]);
    for metric in ["psnr", "ssim", "ms-ssim"] {
        assert!(error(measured(metric, &[])).contains("no images"), "{metric}");
        assert!(error(measured(metric, &[(grey(1, 200), grey(1, 199))])).contains("target"), "{metric}");
    }
    assert!(error(measured("ssim", &[(grey(1, 6), grey(2, 6))])).contains("needs sides of"));
    assert!(error(measured("ms-ssim", &[(grey(1, 160), grey(2, 160))])).contains("needs sides of 161"));
    assert!(error(measured("saliency", &[(grey(9, 8), grey(0, 8))])).contains("mean nothing"));
    assert!(error(measured("saliency", &[])).contains("mean nothing"));
    assert!(error(measured("saliency", &[(grey(9, 8), grey(255, 9))])).contains("mask"));
    assert!(error(measured("edges", &[(grey(255, 16), grey(0, 16))])).contains("mean nothing"));
    assert!(error(measured("edges", &[])).contains("mean nothing"));

    let of = |n: usize, value: f32| Features { dim: 2, values: (0..2 * n).map(|i| value + i as f32).collect() };
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(error(kid(&of(4, 0.0), &of(4, bad), KidConfig { subsets: 1, size: 2, seed: 0 })).contains("no number"));
        assert!(error(precision_recall(&of(4, bad), &of(4, 0.0), 1)).contains("no number"));
        assert!(error(inception_score(&of(4, bad), 2, 0)).contains("no number"));
    }
    let none = Features { dim: 2, values: vec![] };
    assert!(error(kid(&none, &of(4, 0.0), KidConfig { subsets: 1, size: 2, seed: 0 })).contains("no vectors"));
    assert!(error(precision_recall(&none, &none, 1)).contains("no vectors"));
    assert!(error(inception_score(&none, 1, 0)).contains("no vectors"));
    assert!(error(inception_score(&of(4, 0.0), 4, 0)).contains("two or more"), "one image has the score 1");
    assert!(error(kid(&of(4, 0.0), &of(3, 0.0), KidConfig { subsets: 1, size: 4, seed: 0 })).contains("only 3"));
    let absurd = KidConfig { subsets: usize::MAX, size: 2, seed: 0 };
    assert!(error(kid(&of(4, 0.0), &of(4, 1.0), absurd)).contains("images that KID draws"));
    assert!(error(inception_score(&of(4, 0.0), usize::MAX, 0)).contains("cannot be split"));
    for metric in ["pixel-frechet", "random-frechet"] {
        assert!(error(of_sets(metric, &[grey(1, 8)], &[grey(1, 8), grey(2, 8)])).contains("two or more"), "{metric}");
        assert!(error(of_sets(metric, &[grey(1, 8), grey(2, 8)], &[grey(1, 8)])).contains("two or more"), "{metric}");
        assert!(error(of_sets(metric, &[], &[grey(1, 8), grey(2, 8)])).contains("two or more"), "{metric}");
    }
    assert!(error(Summary::of(&[1.0])).contains("at least two"));
    assert!(error(Summary::of(&[1.0, f64::NAN])).contains("finite"));
    assert!(error(Welch::test(&[1.0, 1.0], &[2.0, 2.0])).contains("spread"));
    assert!(error(bootstrap(0, 10, 0.9, 0, |_| 0.0)).contains("0 values"));
    // The last guard, whatever a metric does.
    assert!(error(Report::new("fid").value("fid", f64::NAN).checked()).contains("means nothing"));
    assert!(error(Report::new("fid").value("fid", f64::INFINITY).checked()).contains("means nothing"));
    assert!(Report::new("psnr").value("psnr", f64::INFINITY).checked().is_ok());
}
