//! FID and its kin against torch-fidelity, pytorch-fid, clean-fid and closed forms.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "common/shared.rs"]
mod shared;

use crossfade::data::{Dataset, Image};
use crossfade::metrics::features::*;
use crossfade::rng::{Purpose, Stream};
use crossfade::tensorfile::save_tensors;
use serde_json::Value;
use shared::shared;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(testdata("metrics_features.json")).unwrap()).unwrap()
}

/// The network under one protocol, loaded once.
fn extractor(protocol: Protocol) -> Option<&'static Extractor> {
    static LOADED: [OnceLock<Option<Extractor>>; 3] = [const { OnceLock::new() }; 3];
    let at = Protocol::ALL.iter().position(|p| *p == protocol).unwrap();
    let load =
        || Some(Extractor::new(&shared("data/weights/inception_fid_2015-12-05_fp32.safetensors")?, protocol).unwrap());
    LOADED[at].get_or_init(load).as_ref()
}

fn images(text: &str) -> Box<dyn Dataset> {
    match open(text).unwrap() {
        Input::Images(images) => images,
        Input::Statistics(_) => panic!("{text} holds statistics"),
    }
}

fn cifar10(part: &str) -> Option<Box<dyn Dataset>> {
    Some(images(&format!("{}:{part}", shared("data/cifar10")?.display())))
}

fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..]).unwrap().into_vec().unwrap()
}

/// Largest relative distance of corresponding rows.
fn row_error(got: &[f32], exact: &[f32], dim: usize) -> f64 {
    assert_eq!(got.len(), exact.len());
    let norm = |row: &mut dyn Iterator<Item = f64>| row.map(|v| v * v).sum::<f64>().sqrt();
    let rows = got.chunks_exact(dim).zip(exact.chunks_exact(dim));
    let error = |(a, b): (&[f32], &[f32])| {
        let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
        difference / norm(&mut b.iter().map(|&b| f64::from(b)))
    };
    rows.map(error).fold(0.0, f64::max)
}

fn features(rows: &Value) -> Features {
    let rows = rows.as_array().unwrap();
    let number = |v: &Value| v.as_f64().unwrap() as f32;
    let values = rows.iter().flat_map(|row| row.as_array().unwrap().iter().map(number)).collect();
    Features { dim: rows[0].as_array().unwrap().len(), values }
}

fn random(n: usize, dim: usize, seed: u64) -> Features {
    let mut values = vec![0.0; n * dim];
    Stream::new(seed, 0, 0, Purpose::Lab).fill_normal(&mut values);
    Features { dim, values: values.iter().enumerate().map(|(i, v)| (v + (i % dim) as f32 * 0.1).abs()).collect() }
}

fn sums(features: &Features, rows: std::ops::Range<usize>) -> FeatureSums {
    let mut sums = FeatureSums::new(features.dim);
    rows.for_each(|i| sums.push(features.row(i)));
    sums
}

#[track_caller]
fn close(got: f64, exact: f64, limit: f64) {
    assert!((got - exact).abs() <= limit * exact.abs(), "{got} is not {exact}");
}

#[track_caller]
fn error_of<T>(result: crossfade::Result<T>, parts: &[&str]) {
    let text = result.err().expect("an error").to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
}

#[test]
fn features_equal_the_reference_implementations() {
    for (protocol, name) in [(Protocol::PytorchFid, "inception"), (Protocol::TorchFidelity, "torchfidelity")] {
        for split in ["test", "train"] {
            let Some(extractor) = extractor(protocol) else { return };
            let Some(images) = cifar10(&format!("{split}[0:16]")) else { return };
            let Some(path) = shared(&format!("data/reference/{name}_fp32_feats_{split}_0_16.npy")) else { return };
            let got = extractor.features(&*images, &mut |_, _| ()).unwrap();
            let error = row_error(&got.values, &npy(&path), FEATURES);
            eprintln!("{protocol} {split}: relative error {error:.1e}");
            assert!(error < 1e-5, "{protocol} {split}: {error:e}");
        }
    }
}

/// The pattern that tools/metrics_features.py makes.
fn pattern() -> Image {
    let (w, h) = (412, 331);
    let pixel = |x: usize, y: usize| [((x * 3 + y * 5) % 256) as u8, (x * y % 251) as u8, ((x ^ y) % 256) as u8];
    Image::new(w, h, 3, (0..h).flat_map(|y| (0..w).flat_map(move |x| pixel(x, y))).collect())
}

#[test]
fn clean_features_equal_pillow_and_pytorch() {
    let Some(extractor) = extractor(Protocol::CleanFid) else { return };
    let Some(cifar) = cifar10("test[0:2]") else { return };
    let dir = tempfile::tempdir().unwrap();
    let set: Vec<Image> = vec![cifar.get(0).unwrap(), cifar.get(1).unwrap(), pattern()];
    for (i, image) in set.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{i}.png")), image.encode_png(&[]).unwrap()).unwrap();
    }
    // Sizes are mixed: each picture is resized by itself.
    let got = extractor.features(&*images(dir.path().to_str().unwrap()), &mut |_, _| ()).unwrap();
    for (i, exact) in expected()["clean_fid"].as_array().unwrap().iter().enumerate() {
        let norm = got.row(i).iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        close(norm, exact["norm"].as_f64().unwrap(), 1e-5);
        for (got, exact) in got.row(i).iter().step_by(32).zip(exact["every_32nd"].as_array().unwrap()) {
            assert!((f64::from(*got) - exact.as_f64().unwrap()).abs() < 2e-5, "picture {i}: {got} is not {exact}");
        }
    }
}

#[test]
fn features_do_not_depend_on_threads_or_batch() {
    let (Some(extractor), Some(set)) = (extractor(Protocol::TorchFidelity), cifar10("test[0:7]")) else { return };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| extractor.features(&*set, &mut |_, _| ()).unwrap())
    };
    let one = run(1);
    assert!(one == run(3), "threads change bits");
    let alone = extractor.features(&*cifar10("test[5:6]").unwrap(), &mut |_, _| ()).unwrap();
    assert!(alone.row(0) == one.row(5), "the batch changes bits");
}

#[test]
#[ignore = "a thousand images, a minute or more"]
fn fid_of_cifar10_equals_the_reference_implementations() {
    let reference = [(Protocol::PytorchFid, 115.426_953_752), (Protocol::TorchFidelity, 115.120_555_133)];
    for (protocol, exact) in reference {
        let Some(extractor) = extractor(protocol) else { return };
        let [a, b] = ["test[0:256]", "train[0:256]"]
            .map(|part| Statistics::of(extractor, &*cifar10(part).unwrap(), &mut |_, _| ()).unwrap());
        let fid = Frechet::to(b.gaussian).unwrap().distance(&a.gaussian).unwrap();
        eprintln!("{protocol}: {fid:.6}, reference {exact:.6}");
        assert!((fid - exact).abs() < 1e-3, "{protocol}: {fid}");
    }
}

#[test]
fn distances_equal_torch_fidelity_and_scipy() {
    let expected = expected();
    let (a, b) = (features(&expected["a"]), features(&expected["b"]));
    let number = |of: &str, key: &str| expected[of][key].as_f64().unwrap();
    let got = kid(&a, &b, KidConfig { subsets: 20, size: 25, seed: 2020 }).unwrap();
    close(got.mean, number("kid", "mean"), 1e-5);
    close(got.std, number("kid", "std"), 1e-5);
    let got = precision_recall(&a, &b, 3).unwrap();
    close(got.precision, number("pr", "precision"), 1e-6);
    close(got.recall, number("pr", "recall"), 1e-6);
    close(got.f_score, number("pr", "f_score"), 1e-6);
    let got = inception_score(&features(&expected["logits"]), 10, 2020).unwrap();
    close(got.mean, number("is", "mean"), 1e-6);
    close(got.std, number("is", "std"), 1e-5);
    let [a, b] = [a, b].map(|f| Gaussian::of(&sums(&f, 0..f.len())).unwrap());
    close(Frechet::to(b).unwrap().distance(&a).unwrap(), expected["frechet"].as_f64().unwrap(), 1e-6);
}

/// For diagonal covariances the distance is |Δμ|² + Σ (√a − √b)²; it does not matter which side is the reference.
#[test]
fn the_frechet_distance_has_its_closed_form() {
    let diagonal = |mean: [f64; 3], variances: [f64; 3]| {
        let mut covariance = vec![0.0; 9];
        (0..3).for_each(|i| covariance[4 * i] = variances[i]);
        Gaussian { mean: mean.to_vec(), covariance }
    };
    // The last direction has no variance: the covariance is singular, as with few images.
    let (a, b) = (diagonal([1.0, 2.0, 3.0], [1.0, 4.0, 0.0]), diagonal([0.0, 2.0, 5.0], [9.0, 1.0, 0.25]));
    let exact = 1.0 + 4.0 + 4.0 + 1.0 + 0.25;
    close(Frechet::to(a.clone()).unwrap().distance(&b).unwrap(), exact, 1e-12);
    close(Frechet::to(b.clone()).unwrap().distance(&a).unwrap(), exact, 1e-12);
    assert!(Frechet::to(a.clone()).unwrap().distance(&a).unwrap().abs() < 1e-12);
}

#[test]
fn shards_merge_to_what_one_pass_gives() {
    let all = random(1000, 48, 3);
    let mut one = sums(&all, 0..1000);
    let shards = [0..1, 1..130, 130..131, 131..700, 700..1000].map(|rows| sums(&all, rows));
    let mut merged = FeatureSums::new(48);
    shards.into_iter().rev().try_for_each(|shard| merged.merge(shard)).unwrap();
    assert_eq!(merged.count(), 1000);
    let (exact, got) = (one.covariance().unwrap(), merged.covariance().unwrap());
    let largest = exact.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    assert!(exact.iter().zip(&got).all(|(a, b)| (a - b).abs() <= 1e-12 * largest));
    one.mean().iter().zip(merged.mean()).for_each(|(a, b)| close(b, *a, 1e-12));
}

#[test]
fn statistics_survive_their_file_and_mixing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let all = random(300, 20, 4);
    let hash = Some("ab".repeat(32));
    let make = |rows, protocol| Statistics::new(sums(&all, rows), Some(protocol), hash.clone()).unwrap();
    let (a, b) = (make(0..100, Protocol::PytorchFid), make(100..300, Protocol::PytorchFid));
    a.save(&path("a.npz")).unwrap();
    let read = Statistics::load(&path("a.npz")).unwrap();
    assert!(read == a && read.count() == Some(100));
    let merged = Statistics::merge(vec![read, b]).unwrap();
    let whole = make(0..300, Protocol::PytorchFid);
    let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(difference(&merged.gaussian.covariance, &whole.gaussian.covariance) < 1e-12);
    error_of(
        Statistics::merge(vec![whole.clone(), make(0..9, Protocol::CleanFid)]),
        &["pytorch-fid", "clean-fid", "two protocols"],
    );
    let other = Statistics { weights: Some("cd".repeat(32)), ..whole.clone() };
    error_of(whole.check_alike(&other), &["two sets of weights"]);
    let foreign = Statistics { sums: None, ..whole };
    error_of(Statistics::merge(vec![a, foreign]), &["without sums", "eval stats"]);
}

#[test]
fn files_of_numpy_are_read() {
    let set = images(testdata("metrics_features_images.npz").to_str().unwrap());
    let second = set.get(1).unwrap();
    assert_eq!((set.len(), second.height, second.width, second.channels), (2, 4, 5, 3));
    assert_eq!(second.pixels, (60..120).collect::<Vec<u8>>());
    let statistics = Statistics::load(&testdata("metrics_features_statistics.npz")).unwrap();
    assert_eq!(statistics.gaussian.mean, [0.0, 1.0, 2.0]);
    assert_eq!(statistics.gaussian.covariance, [1.0, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 9.0]);
    assert!(statistics.protocol.is_none() && statistics.count().is_none());
    let part = images(&format!("{}[1:]", testdata("metrics_features_images.npz").display()));
    assert_eq!((part.len(), part.get(0).unwrap()), (1, second));
}

/// The jackknife's error is about the spread over independent sets, and its correction removes most of the bias.
#[test]
fn the_interval_tells_spread_and_bias() {
    let reference = Gaussian::of(&sums(&random(40_000, 8, 1000), 0..40_000)).unwrap();
    let frechet = Frechet::to(reference).unwrap();
    let sets: Vec<(f64, Interval)> = (0..40)
        .map(|seed| {
            let (set, mut grouped) = (random(400, 8, seed), GroupedSums::new(8));
            (0..400).for_each(|i| grouped.push(set.row(i)));
            let whole = Gaussian::of(&grouped.total().unwrap()).unwrap();
            (frechet.distance(&whole).unwrap(), grouped.interval(&frechet, &mut |_, _| ()).unwrap())
        })
        .collect();
    let mean = |f: &dyn Fn(&(f64, Interval)) -> f64| sets.iter().map(f).sum::<f64>() / sets.len() as f64;
    let (plain, corrected, error) = (mean(&|s| s.0), mean(&|s| s.1.infinity), mean(&|s| s.1.error));
    let spread = mean(&|s| (s.0 - plain).powi(2)).sqrt();
    assert!(corrected.abs() < 0.3 * plain, "bias {plain} became {corrected}");
    assert!((0.4..2.5).contains(&(error / spread)), "error {error}, spread {spread}");
    assert!(sets.iter().all(|(fid, i)| i.low < *fid && *fid < i.high));
}

#[test]
fn bad_inputs_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    error_of(open(root), &["no PNG", root]);
    error_of(open(&format!("{root}/absent")), &["absent", "no such file"]);
    error_of(open(&format!("{root}:train")), &["no CIFAR-10"]);
    error_of(open(&format!("{root}[3")), &["no such file"]);
    error_of(open(&format!("{root}[a:b]")), &["[START:END]"]);
    std::fs::write(dir.path().join("a.png"), pattern().encode_png(&[]).unwrap()).unwrap();
    error_of(open(&format!("{root}[1:]")), &["no images in this part", "there are 1"]);
    std::fs::write(dir.path().join("b.npz"), b"no zip").unwrap();
    error_of(open(&format!("{root}/b.npz")), &["b.npz", "not a readable npz"]);
    let whole = std::fs::read(testdata("metrics_features_statistics.npz")).unwrap();
    std::fs::write(dir.path().join("c.npz"), &whole[..whole.len() / 2]).unwrap();
    error_of(open(&format!("{root}/c.npz")), &["c.npz"]);
    if let Some(cifar) = shared("data/cifar10") {
        error_of(open(cifar.to_str().unwrap()), &[":train or", ":test"]);
    }
    let few = random(9, 4, 0);
    error_of(kid(&few, &few, KidConfig::default()), &["1000", "only 9", "--subset-size"]);
    error_of(precision_recall(&few, &few, 9), &["9 images", "--neighbours"]);
    error_of(inception_score(&few, 10, 0), &["9 images", "--splits"]);
    error_of(sums(&few, 0..1).covariance(), &["two or more"]);
}

#[test]
fn an_unreadable_image_ends_the_measurement() {
    let Some(extractor) = extractor(Protocol::TorchFidelity) else { return };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.png"), pattern().encode_png(&[]).unwrap()).unwrap();
    std::fs::write(dir.path().join("broken.png"), b"\x89PNG no more").unwrap();
    let set = images(dir.path().to_str().unwrap());
    error_of(Statistics::of(extractor, &*set, &mut |_, _| ()), &["broken.png"]);
    error_of(extractor.network().logits(&[0.0; FEATURES]), &["no classifier", "fc.weight"]);
}

#[test]
fn wrong_weights_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.safetensors");
    let save = |shape: &[usize], fill: f32| {
        let values = vec![fill; shape.iter().product()];
        let tensors = [("Conv2d_1a_3x3.conv.weight".to_owned(), shape.to_vec(), values)];
        save_tensors(&path, &tensors, &BTreeMap::new()).unwrap();
        Inception::load(&path)
    };
    error_of(save(&[32, 3, 3, 3], 0.0), &["w.safetensors", "Conv2d_1a_3x3.bn"]);
    error_of(save(&[32, 3, 5, 5], 0.0), &["[32, 3, 5, 5]", "not FID's Inception"]);
    error_of(save(&[32, 3, 3, 3], f32::NAN), &["Conv2d_1a_3x3.conv.weight", "no numbers"]);
}

/// Statistics that were stopped go on to the same bits, and not from a file of another protocol.
#[test]
fn stopped_statistics_go_on() {
    let Some(extractor) = extractor(Protocol::TorchFidelity) else { return };
    let Some(set) = cifar10("test[0:70]") else { return };
    let dir = tempfile::tempdir().unwrap();
    let part = dir.path().join("part.npz");
    let go = |stop: &dyn Fn() -> bool, seen: &mut Vec<usize>| {
        Statistics::resumed(extractor, &*set, (&part, 1), stop, &mut |done, _| seen.push(done)).unwrap()
    };
    let whole = Statistics::of(extractor, &*set, &mut |_, _| ()).unwrap();
    let asked = std::cell::Cell::new(0);
    let second = || asked.replace(asked.get() + 1) == 1;
    assert_eq!(go(&second, &mut vec![]), None);
    let mut seen = vec![];
    assert_eq!(go(&|| false, &mut seen), Some(whole.clone()));
    assert_eq!(seen, [64, 70], "what was done is not done again");
    let mut other = Statistics::load(&part).unwrap();
    other.protocol = Some(Protocol::CleanFid);
    other.save(&part).unwrap();
    let mut seen = vec![];
    assert_eq!(go(&|| false, &mut seen), Some(whole));
    assert_eq!(seen.first(), Some(&0));
}
