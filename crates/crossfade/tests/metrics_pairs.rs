//! Pair metrics, cost and statistics against the reference implementations (`tools/metrics_pairs.py`).
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "common/shared.rs"]
mod shared;

use crossfade::config::RunConfig;
use crossfade::cost::{Cost, Macs};
use crossfade::data::Image;
use crossfade::data::cifar10::Cifar10;
use crossfade::data::matlab_resize::{Scale, imresize};
use crossfade::data::{Dataset, Split};
use crossfade::engine::{Device, Tensor, from_vec, to_host};
use crossfade::metrics::features::registry::cache_directory;
use crossfade::metrics::pairs::{self, Channel, PairedFiles, Protocol, Window};
use crossfade::metrics::statistics::{self, Summary, Welch, bootstrap, incomplete_beta, t_quantile};
use crossfade::metrics::{Metric, MetricOptions, Raster, RegisteredMetric, Sample};
use crossfade::nn::lpips::{FeatureNet, Lpips};
use crossfade::nn::{Decoders, NetworkPorts, UNetConfig, preset};
use crossfade::sample::Sampler;
use crossfade::tensorfile::{HostTensor, save_tensors};
use serde_json::Value;
use shared::shared;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn reference() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/metrics_pairs.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[track_caller]
fn close(got: f64, want: &Value, limit: f64, what: &str) {
    let want = want.as_f64().unwrap_or_else(|| panic!("{what}: no number {want}"));
    assert!((got - want).abs() <= limit, "{what}: {got}, expected {want}");
}

/// Bytes of the generator that the script describes.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut s = seed as u32;
    let mut next = || {
        s = s.wrapping_mul(1664525).wrapping_add(1013904223);
        (s >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn picture(kind: &str, seed: u64, [w, h, c]: [usize; 3]) -> Image {
    let mut bytes = noise(seed, w * h * c);
    if kind == "walk" {
        for row in bytes.chunks_exact_mut(w * c) {
            let mut v = [128i32; 3];
            for (i, b) in row.iter_mut().enumerate() {
                v[i % c] = (v[i % c] + i32::from(*b) % 7 - 3).clamp(0, 255);
                *b = v[i % c] as u8;
            }
        }
    }
    Image::new(w, h, c, bytes)
}

fn distorted(target: &Image, seed: u64) -> Image {
    let change = noise(seed + 1, target.pixels.len());
    let add = |(&v, c): (&u8, u8)| (i32::from(v) + i32::from(c) % 33 - 16).clamp(0, 255) as u8;
    Image { pixels: target.pixels.iter().zip(change).map(add).collect(), ..target.clone() }
}

/// A registered metric of pairs by its name.
fn metric(name: &str, protocol: &Protocol) -> Box<dyn Metric> {
    let device = Device::flex();
    let options = MetricOptions { pairs: Some(protocol.clone()), ..MetricOptions::new(&device) };
    (RegisteredMetric::parse(name).unwrap().open)(&options).unwrap()
}

fn lpips(weights: &Path) -> Box<dyn Metric> {
    let device = Device::flex();
    let options = MetricOptions { weights: Some(weights), ..MetricOptions::new(&device) };
    (RegisteredMetric::parse("lpips").unwrap().open)(&options).unwrap()
}

/// The value of one pair of images.
fn value(name: &str, output: &Raster, target: &Raster, protocol: &Protocol) -> Result<f64, String> {
    let metric = metric(name, protocol);
    let mut accumulator = metric.accumulator();
    let (output, target) = (output.clone(), Some(target.clone()));
    let sample = Sample { name: "pair".into(), origin: "pair".into(), output, target, class: None };
    accumulator.add(vec![sample]).map_err(|e| e.to_string())?;
    Ok(accumulator.finish().unwrap().report.get(name).unwrap())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

#[test]
fn psnr_and_ssim_equal_the_references() {
    for case in reference()["planes"].as_array().unwrap() {
        let size = numbers(&case["size"]).into_iter().map(|v| v as usize).collect::<Vec<_>>();
        let seed = case["seed"].as_u64().unwrap();
        let target = picture(case["kind"].as_str().unwrap(), seed, size.try_into().unwrap());
        let (a, b) = (Raster::from(&distorted(&target, seed)), Raster::from(&target));
        let crop = case["crop"].as_u64().map(|n| n as usize);
        let of = |metric: &str, name: &str| value(metric, &a, &b, &Protocol::named(name, crop).unwrap()).unwrap();
        close(of("psnr", "adm"), &case["psnr"], 1e-10, "psnr");
        close(of("ssim", "adm"), &case["ssim"], 1e-10, "ssim");
        close(of("ssim", "adm"), &case["ssim_skimage_gaussian"], 1e-10, "ssim, Gaussian of scikit-image");
        close(of("ssim", "skimage"), &case["ssim_skimage"], 1e-10, "ssim of scikit-image");
        if target.channels == 3 {
            close(of("psnr", "basicsr"), &case["psnr_y"], 1e-10, "psnr of y");
            close(of("psnr", "sr-matlab"), &case["psnr_y_rounded"], 1e-10, "psnr of rounded y");
            close(of("ssim", "basicsr"), &case["ssim_y"], 1e-10, "ssim of y");
            close(of("ssim", "sr-matlab"), &case["ssim_y_rounded"], 1e-10, "ssim of rounded y");
        }
        if case.get("ms_ssim").is_some() {
            close(of("ms-ssim", "adm"), &case["ms_ssim"], 1e-10, "ms-ssim");
        }
        if let Some(theirs) = case.get("ms_ssim_pytorch") {
            // That package keeps its window and weights in single precision.
            close(of("ms-ssim", "adm"), theirs, 2e-6, "ms-ssim of pytorch-msssim");
        }
    }
}

#[test]
fn equal_pictures_are_perfect_and_small_ones_are_refused() {
    let image = Raster::from(&picture("walk", 1, [170, 165, 3]));
    let protocol = Protocol::named("adm", None).unwrap();
    assert_eq!(value("psnr", &image, &image, &protocol).unwrap(), f64::INFINITY);
    for metric in ["ssim", "ms-ssim"] {
        assert!((value(metric, &image, &image, &protocol).unwrap() - 1.0).abs() < 1e-12);
    }
    let small = Raster::from(&picture("walk", 1, [30, 10, 1]));
    assert!(value("ssim", &small, &small, &protocol).unwrap_err().contains("11"));
    assert!(value("ms-ssim", &small, &small, &protocol).unwrap_err().contains("161"));
    let cut = Protocol { crop: 5, ..protocol };
    assert!(value("psnr", &small, &small, &cut).unwrap_err().contains("border"));
    assert!(Protocol::named("basicsr", None).unwrap_err().to_string().contains("--crop"));
    assert!(Protocol::named("best", None).unwrap_err().to_string().contains("sr-matlab"));
}

#[test]
fn matlab_resizing_is_byte_identical_and_gives_the_published_psnr() {
    let (Some(set), Some(expected)) = (shared("data/sr/Set5"), shared("data/reference/expected.json")) else { return };
    let expected: Value = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    let load = |path: PathBuf| Image::decode(&std::fs::read(&path).unwrap(), &path).unwrap();
    let protocol = Protocol::named("basicsr", Some(4)).unwrap();
    let mut sum = 0.0;
    for name in ["baby", "bird", "butterfly", "head", "woman"] {
        let high = load(set.join(format!("HR/{name}.png")));
        for n in [2, 4] {
            let low = load(set.join(format!("LR_bicubic/X{n}/{name}x{n}.png")));
            assert_eq!(imresize(&high, Scale { up: 1, down: n }).unwrap(), low, "{name} x{n}");
            if n == 4 {
                let up = imresize(&low, Scale { up: 4, down: 1 }).unwrap();
                let psnr = value("psnr", &Raster::from(&up), &Raster::from(&high), &protocol).unwrap();
                close(psnr, &expected["set5_x4_bicubic_y_psnr"][name], 0.01, name);
                sum += psnr;
            }
        }
    }
    close(sum / 5.0, &expected["set5_x4_bicubic_y_psnr_mean"], 0.01, "mean");
}

/// The pair that the script calls `name`.
fn real_pair(name: &str, set5: &Path, cifar: &Cifar10) -> (Image, Image) {
    let words: Vec<&str> = name.split(' ').collect();
    if words[0] == "cifar" {
        let image = |i: &str| cifar.get(i.parse().unwrap()).unwrap();
        return (image(words[1]), image(words[2]));
    }
    let path = set5.join(format!("{}.png", words[0]));
    let target = Image::decode(&std::fs::read(&path).unwrap(), &path).unwrap();
    let output = match words[1] {
        "posterised" => Image { pixels: target.pixels.iter().map(|v| v & 0xe0).collect(), ..target.clone() },
        "mirrored" => {
            let rows = target.pixels.chunks_exact(target.width * 3);
            let pixels = rows.flat_map(|row| row.as_chunks::<3>().0.iter().rev().copied().flatten()).collect();
            Image { pixels, ..target.clone() }
        }
        _ => distorted(&target, words[2].parse().unwrap()),
    };
    (output, target)
}

/// # Shapes
/// `[1, 3, H, W]` from −1 to 1.
fn tensor(image: &Image, device: &Device) -> Tensor<4> {
    let plane = |c: usize| image.pixels.iter().skip(c).step_by(image.channels).map(|&v| f32::from(v) / 127.5 - 1.0);
    let values = (0..image.channels).flat_map(plane).collect();
    from_vec(values, [1, image.channels, image.height, image.width], device)
}

/// The weights of VGG are large; their place may be named in CROSSFADE_LPIPS_VGG, or they are in the cache.
fn weights(backbone: FeatureNet) -> Option<PathBuf> {
    if backbone == FeatureNet::Vgg {
        let cached = cache_directory().ok().map(|dir| dir.join("vgg16.safetensors")).filter(|path| path.is_file());
        if let Some(path) = std::env::var_os("CROSSFADE_LPIPS_VGG").map(PathBuf::from).or(cached) {
            return Some(path);
        }
    }
    shared(&format!("data/weights/lpips_{}_fp32.safetensors", backbone.name()))
}

#[test]
fn lpips_equals_the_package_on_real_images() {
    let (Some(set5), Some(cifar)) = (shared("data/sr/Set5/HR"), shared("data/cifar10/cifar-10-batches-bin")) else {
        return;
    };
    let cifar = Cifar10::open(&cifar, Split::Test).unwrap();
    let (expected, device) = (reference(), Device::flex());
    for backbone in FeatureNet::ALL {
        let Some(weights) = weights(backbone) else { continue };
        let net = Lpips::load(&weights, backbone, &device).unwrap();
        for (name, want) in expected["lpips"][backbone.name()].as_object().unwrap() {
            let (a, b) = real_pair(name, &set5, &cifar);
            // The larger network needs half a minute for the largest image without full optimisation.
            if backbone == FeatureNet::Vgg && a.width > 300 {
                continue;
            }
            let got = to_host(net.forward(tensor(&a, &device), tensor(&b, &device)))[0];
            close(f64::from(got), want, 1e-5, name);
        }
    }
}

#[test]
fn lpips_has_the_packages_gradient() {
    let (Some(weights), Some(cifar)) = (weights(FeatureNet::Alex), shared("data/cifar10/cifar-10-batches-bin")) else {
        return;
    };
    let cifar = Cifar10::open(&cifar, Split::Test).unwrap();
    let device = Device::flex().autodiff();
    let net = Lpips::load(&weights, FeatureNet::Alex, &device).unwrap();
    let [a, b] = [0, 1].map(|i| tensor(&cifar.get(i).unwrap(), &device));
    // The plain target acts as a constant.
    for target in [b.clone(), b.inner()] {
        let a = a.clone().require_grad();
        let gradients = net.forward(a.clone(), target).sum().backward();
        let g: Vec<f64> = to_host(a.grad(&gradients).unwrap()).into_iter().map(f64::from).collect();
        let want = &reference()["lpips"]["alex gradient of cifar 0 1"];
        let along: f64 = g.iter().enumerate().map(|(i, g)| g * (i as f64 * 0.37).sin()).sum();
        close(g.iter().map(|g| g * g).sum::<f64>().sqrt(), &want["norm"], 1e-5, "norm");
        close(along, &want["along sin(0.37 i)"], 1e-5, "direction");
    }
    // Where all features are zero, and where nothing differs, there is still a gradient.
    let black = Tensor::<4>::zeros([1, 1, 32, 32], &device).require_grad();
    let gradients = net.forward(black.clone(), black.clone().detach()).sum().backward();
    assert!(to_host(black.grad(&gradients).unwrap()).iter().all(|g| g.is_finite()));
}

#[test]
fn foreign_and_damaged_lpips_weights_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.safetensors");
    let load = |tensors: &[HostTensor]| {
        save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
        Lpips::load(&path, FeatureNet::Alex, &Device::flex()).unwrap_err().to_string()
    };
    let error = load(&[("stranger".into(), vec![1], vec![0.0])]);
    assert!(error.contains("missing: conv0.weight") && error.contains("and 11 more"), "{error}");
    let shapes = FeatureNet::Alex.parameter_shapes();
    let mut tensors: Vec<HostTensor> =
        shapes.into_iter().map(|(name, shape)| (name, shape.clone(), vec![0.0; shape.iter().product()])).collect();
    tensors[3].2[5] = f32::NAN;
    let error = load(&tensors);
    assert!(error.contains("conv1.bias") && error.contains("NaN"), "{error}");
}

/// Weights from numbers alone, so that both networks are checked without their files.
fn synthetic(backbone: FeatureNet, path: &Path) {
    fn mix(mut x: u32) -> u32 {
        for (shift, factor) in [(16, 0x85eb_ca6b), (13, 0xc2b2_ae35)] {
            x ^= x >> shift;
            x = x.wrapping_mul(factor);
        }
        x ^ (x >> 16)
    }
    let tensors = backbone.parameter_shapes().into_iter().enumerate();
    let tensors: Vec<_> = tensors
        .map(|(k, (name, shape))| {
            let fan_in = if shape.len() == 4 { shape[1..].iter().product::<usize>() } else { 600 };
            let scale = 2.0 * (6.0 / fan_in as f64).sqrt();
            let value = |i: usize| {
                let u = f64::from(mix((i as u32).wrapping_add((k as u32) << 24))) / 2f64.powi(32) - 0.5;
                let v = (u * scale) as f32;
                if name.starts_with("lin") { v.abs() } else { v }
            };
            let values = (0..shape.iter().product()).map(value).collect();
            (name.clone(), shape, values)
        })
        .collect();
    save_tensors(path, &tensors, &BTreeMap::new()).unwrap();
}

#[test]
fn lpips_equals_the_package_with_synthetic_weights() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::flex();
    let target = picture("walk", 9, [48, 40, 3]);
    let (a, b) = (tensor(&distorted(&target, 9), &device), tensor(&target, &device));
    for backbone in FeatureNet::ALL {
        let path = dir.path().join("weights.safetensors");
        synthetic(backbone, &path);
        let net = Lpips::load(&path, backbone, &device).unwrap();
        let want = &reference()["lpips"][format!("{} synthetic, walk 9 48x40", backbone.name())];
        let both = Tensor::cat(vec![a.clone(), b.clone()], 0);
        let got = to_host(net.forward(both.clone(), Tensor::cat(vec![b.clone(), b.clone()], 0)));
        close(f64::from(got[0]), want, 1e-6, backbone.name());
        assert_eq!(got[1], 0.0);
        let grey = both.narrow(1, 0, 1);
        assert_eq!(
            to_host(net.forward(grey.clone(), grey.clone().flip([0]))),
            to_host(net.forward(grey.clone().repeat_dim(1, 3), grey.repeat_dim(1, 3).flip([0]))),
            "grey images count as RGB"
        );
        let other = if backbone == FeatureNet::Alex { FeatureNet::Vgg } else { FeatureNet::Alex };
        let error = Lpips::load(&path, other, &device).unwrap_err().to_string();
        let hint = format!("those of {}", backbone.name());
        assert!(error.contains("weights.safetensors") && error.contains(&hint), "{error}");
    }
}

fn write(dir: &Path, name: &str, image: &Image) {
    std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
    std::fs::write(dir.join(name), image.encode_png(&[]).unwrap()).unwrap();
}

/// Two folders of six pairs of different sizes.
fn folders() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (i, size) in [[40, 33, 3], [40, 33, 3], [31, 57, 1], [64, 40, 3], [40, 33, 3], [32, 32, 3]].iter().enumerate() {
        let target = picture("walk", i as u64, *size);
        write(dir.path(), &format!("targets/sub/{i}.png"), &target);
        write(dir.path(), &format!("outputs/sub/{i}.png"), &distorted(&target, i as u64));
    }
    dir
}

fn open(dir: &Path) -> crossfade::Result<PairedFiles> {
    PairedFiles::open(&dir.join("outputs"), &dir.join("targets"), "")
}

#[test]
fn folders_are_measured_alike_on_any_number_of_threads() {
    let dir = folders();
    let pairs = open(dir.path()).unwrap();
    let protocol = Protocol::named("adm", None).unwrap();
    let weights = dir.path().join("weights.safetensors");
    synthetic(FeatureNet::Alex, &weights);
    let net = lpips(&weights);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let planes = pairs::evaluate(&*metric("ssim", &protocol), &pairs, &|_, _| ()).unwrap();
            (planes, pairs::evaluate(&*net, &pairs, &|_, _| ()).unwrap())
        })
    };
    let (planes, lpips) = on(1);
    assert_eq!((planes.clone(), lpips.clone()), on(3));
    assert_eq!(planes.images.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()[..2], ["sub/0", "sub/1"]);
    let mean = planes.images.iter().map(|(_, v)| v).sum::<f64>() / 6.0;
    assert_eq!(planes.report.get("ssim"), Some(mean));
    // One at a time gives what batches give.
    for (pair, (_, value)) in pairs.pairs.iter().zip(&lpips.images) {
        let one = PairedFiles::open(&pair.output, &pair.target, "").unwrap();
        assert_eq!(pairs::evaluate(&*net, &one, &|_, _| ()).unwrap().report.get("lpips"), Some(*value));
    }
    let text = lpips.report.to_string();
    assert!(text.contains("sha256:") && text.contains("alex") && text.contains("images"), "{text}");
}

#[test]
fn bad_pairs_are_errors_that_name_the_file() {
    let protocol = Protocol::named("adm", None).unwrap();
    let failure = |spoil: &dyn Fn(&Path)| {
        let dir = folders();
        spoil(dir.path());
        let found = open(dir.path()).and_then(|p| pairs::evaluate(&*metric("psnr", &protocol), &p, &|_, _| ()));
        found.unwrap_err().to_string()
    };
    let has = |error: String, parts: &[&str]| parts.iter().for_each(|p| assert!(error.contains(p), "{p} in {error}"));
    has(failure(&|d| std::fs::remove_file(d.join("outputs/sub/3.png")).unwrap()), &["targets/sub/3.png", "no output"]);
    has(failure(&|d| write(d, "outputs/9.png", &picture("walk", 1, [9, 9, 3]))), &["outputs/9.png", "no target"]);
    let other = |size| move |d: &Path| write(d, "outputs/sub/2.png", &picture("walk", 1, size));
    has(failure(&other([9, 9, 1])), &["outputs/sub/2.png", "targets/sub/2.png", "9x9 grey", "31x57 grey"]);
    has(failure(&other([31, 57, 3])), &["31x57 RGB", "31x57 grey"]);
    has(failure(&|d| std::fs::write(d.join("outputs/sub/4.png"), b"no png").unwrap()), &["outputs/sub/4.png"]);
    has(failure(&|d| write(d, "outputs/sub/4.jpg", &picture("walk", 1, [9, 9, 3]))), &["sub/4", "same name"]);
    has(failure(&|d| std::fs::remove_dir_all(d.join("targets/sub")).unwrap()), &["targets", "no PNG"]);
    has(failure(&|d| std::fs::remove_dir_all(d.join("targets")).unwrap()), &["both be folders"]);
}

/// A `.npy` file.
fn npy(dir: &Path, name: &str, dtype: &str, shape: &str, data: &[u8]) -> PathBuf {
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    while !(header.len() + 11).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn arrays_of_floats_are_read_and_rounded_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let a = npy(dir.path(), "a.npy", "<f4", "(1, 2, 3)", &floats(&[0.0, 0.1, 0.2, 0.5, 1.0, 1.02]));
    let b = npy(dir.path(), "b.npy", "|u1", "(1, 2, 3)", &[0, 26, 51, 128, 255, 255]);
    let psnr = |quantise: bool| {
        let protocol = Protocol { quantise, ..Protocol::named("adm", None).unwrap() };
        value("psnr", &Raster::load(&a).unwrap(), &Raster::load(&b).unwrap(), &protocol).unwrap()
    };
    assert_eq!(psnr(true), f64::INFINITY);
    let squares = [0.5, 0.5, 0.02 * 255.0].map(|d: f64| d * d).iter().sum::<f64>();
    assert!((psnr(false) - 10.0 * (255.0 * 255.0 * 6.0 / squares).log10()).abs() < 1e-4);
    for (name, dtype, shape, data, part) in [
        ("nan.npy", "<f4", "(1, 1)", floats(&[f32::NAN]), "NaN"),
        ("scale.npy", "<f4", "(1, 2)", floats(&[-1.0, 1.0]), "from 0"),
        ("short.npy", "<f4", "(4, 4)", floats(&[0.0]), "damaged"),
        ("huge.npy", "<f4", "(4000000000, 4000000000)", floats(&[0.0]), "more than the limit"),
        ("type.npy", "<i8", "(1, 1)", vec![0; 8], "<i8"),
        ("shape.npy", "|u1", "(1, 1, 2)", vec![0; 2], "[1, 1, 2]"),
    ] {
        let error = Raster::load(&npy(dir.path(), name, dtype, shape, &data)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(part), "{error}");
    }
    assert_eq!(Protocol::named("adm", None).unwrap().channel, Channel::Rgb);
    assert_eq!(Protocol::named("skimage", None).unwrap().window, Window::Uniform);
}

#[test]
fn macs_equal_pytorchs_count() {
    for case in reference()["macs"].as_array().unwrap() {
        let mut network = UNetConfig::default();
        if case["decoders"] == 1 {
            network.decoders = Decoders::One;
        }
        let options = case["options"].as_object().unwrap();
        if options.contains_key("resolution") {
            network = preset("tiny").unwrap();
        } else if options.contains_key("width") {
            (network.width, network.blocks) = (192, 3);
        }
        let (macs, by) = (Macs::of(&network, NetworkPorts::default()), &case["by"]);
        assert_eq!(2 * macs.convolution, by["aten.convolution"].as_u64().unwrap());
        assert_eq!(2 * macs.linear, by["aten.addmm"].as_u64().unwrap());
        assert_eq!(2 * macs.attention, by["aten.bmm"].as_u64().unwrap());
        assert_eq!(2 * macs.total(), case["flops"].as_u64().unwrap());
    }
}

#[test]
fn macs_of_a_network_counted_by_hand() {
    let network = UNetConfig {
        resolution: 4,
        channels: 1,
        width: 8,
        mult: vec![1],
        blocks: 1,
        attention: vec![],
        decoders: Decoders::One,
        ..UNetConfig::default()
    };
    let macs = Macs::of(&network, NetworkPorts::with_phi_parts(2));
    // 16 pixels: first, one encoder block, split, in0, in1, two blocks with skips (8 + 8 channels in), output of 2 parts.
    let plain = 2 * 9 * 8 * 8;
    let with_skip = 9 * 16 * 8 + 9 * 8 * 8 + 16 * 8;
    assert_eq!(macs.convolution, 16 * (9 * 8 + plain + (9 * 8 * 8 + 8 + 2) + 2 * plain + 2 * with_skip + 9 * 8 * 2));
    assert_eq!(macs.linear, 8 * 32 + 32 * 32 + 5 * 32 * 16);
    // Eight channels are too few for a head: only the split's map attends to itself.
    assert_eq!(macs.attention, 2 * 16 * 16);
    let single = Macs::of(&network, NetworkPorts::default()).convolution;
    let branch = Macs::of(&UNetConfig { decoders: Decoders::Conv, ..network }, NetworkPorts::default()).convolution;
    assert_eq!(branch - single, 16 * (9 * 8 * 8 + 9 * 8));
}

/// Patches of 2x2 pixels: a quarter of the work, but for the dense layers, the first convolution and the last ones.
#[test]
fn macs_of_patches_are_those_of_a_quarter_of_the_pixels() {
    let plain = UNetConfig { resolution: 32, ..UNetConfig::default() };
    let patched = UNetConfig { resolution: 64, patch: 2, ..UNetConfig::default() };
    let [small, large] = [&plain, &patched].map(|network| Macs::of(network, NetworkPorts::default()));
    let ends = 9 * 64 * 3 * 32 * 32 * 3;
    assert_eq!((large.linear, large.attention), (small.linear, small.attention));
    assert_eq!(large.convolution, small.convolution + (4 - 1) * ends);
    // Without attention, whose cost grows with the square of the number of pixels.
    let total = |patch| {
        let network = UNetConfig { resolution: 64, patch, attention: vec![], ..UNetConfig::default() };
        Macs::of(&network, NetworkPorts::default()).total() as f64
    };
    let ratio = total(2) / total(1);
    assert!((0.24..0.27).contains(&ratio), "{ratio}");
}

#[test]
fn evaluations_are_those_of_the_sampler() {
    let mut config = RunConfig::default();
    for (sampler, steps, evaluations) in
        [(Sampler::Ab2, 10, 10), (Sampler::FirstOrder, 1, 1), (Sampler::Midpoint, 5, 10)]
    {
        (config.sample.sampler, config.sample.steps) = (sampler, steps);
        let cost = Cost::count(&config).unwrap();
        assert!(cost.evaluations <= evaluations && cost.evaluations + 1 >= evaluations, "{sampler:?}");
        assert_eq!(cost.macs_per_image, cost.macs_per_evaluation.map(|macs| cost.evaluations as u64 * macs));
        assert_eq!(cost.parameters, config.sizes().parameters);
    }
}

#[test]
fn statistics_equal_scipys() {
    let expected = &reference()["statistics"];
    let relative = |got: f64, want: f64, what: &str| {
        assert!((got - want).abs() <= 1e-10 * want.abs() + 1e-300, "{what}: {got}, expected {want}");
    };
    for case in expected["welch"].as_array().unwrap() {
        let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
        let test = Welch::test(&a, &b).unwrap();
        for (got, key) in [(test.t, "t"), (test.df, "df"), (test.p, "p"), (test.a.std, "std_a")] {
            relative(got, case[key].as_f64().unwrap(), key);
        }
        for (got, want) in test.interval.iter().zip(numbers(&case["interval"])) {
            relative(*got, want, "interval");
        }
        for (got, want) in Summary::of(&a).unwrap().interval.iter().zip(numbers(&case["interval_a"])) {
            relative(*got, want, "interval of a");
        }
    }
    for row in expected["betainc"].as_array().unwrap().iter().map(numbers) {
        let got = incomplete_beta(row[0], row[1], row[2]);
        // Far tails are powers of thousands: the exponent's rounding shows.
        assert!((got - row[3]).abs() <= 1e-9 * row[3] + 1e-250, "{row:?} {got}");
    }
    for row in expected["t_quantile"].as_array().unwrap().iter().map(numbers) {
        relative(t_quantile(row[0], row[1]), row[2], "quantile");
    }
}

#[test]
fn significance_is_marked_as_in_the_paper() {
    let marks = |a: &[f64], b: &[f64]| Welch::test(a, b).unwrap().marks();
    assert_eq!(marks(&[10.71, 10.78, 10.74], &[12.63, 12.55, 12.70]), "**");
    assert_eq!(marks(&[1.0, 1.1, 1.2], &[1.25, 1.3, 1.4]), "*");
    assert_eq!(marks(&[1.0, 2.0], &[1.5, 2.5, 3.0]), "");
    for (a, b) in [(&[1.0, f64::NAN][..], &[1.0, 2.0][..]), (&[1.0], &[1.0, 2.0]), (&[1.0, 1.0], &[2.0, 2.0])] {
        assert!(Welch::test(a, b).is_err());
    }
}

#[test]
fn bootstrap_intervals_cover_and_do_not_depend_on_threads() {
    let values: Vec<f64> = (0..200).map(|i| (f64::from(i) * 0.731).sin()).collect();
    let mean = |indices: &[usize]| indices.iter().map(|&i| values[i]).sum::<f64>() / indices.len() as f64;
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bootstrap(values.len(), 4000, 0.95, 7, mean).unwrap())
    };
    let [low, high] = on(1);
    assert_eq!([low, high], on(3));
    // The mean of many values is nearly normal: the interval is nearly Student's.
    let student = Summary::of(&values).unwrap();
    assert!((low - student.interval[0]).abs() < 0.15 * student.std / 200f64.sqrt());
    assert!((high - student.interval[1]).abs() < 0.15 * student.std / 200f64.sqrt());
    assert!(bootstrap(0, 10, 0.95, 0, |_| 0.0).is_err());
    assert!(bootstrap(3, 10, 0.95, 0, |_| f64::NAN).is_err());
}

#[test]
fn reports_are_read_back_and_compared() {
    let dir = folders();
    let pairs = open(dir.path()).unwrap();
    let report = |name: &str, protocol: &str| {
        let protocol = Protocol::named(protocol, None).unwrap();
        let found = pairs::evaluate(&*metric("ssim", &protocol), &pairs, &|_, _| ()).unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, serde_json::to_vec(&found.report).unwrap()).unwrap();
        (found.report.get("ssim").unwrap(), path)
    };
    let (value, path) = report("a.json", "adm");
    let a = statistics::read_report(&path, None).unwrap();
    assert_eq!(a.value, value);
    let error = statistics::read_report(&path, Some("fid")).unwrap_err().to_string();
    assert!(error.contains("a.json") && error.contains("fid") && error.contains("ssim"), "{error}");
    assert!(statistics::protocol_warnings(&[a.clone(), a.clone()]).is_empty());
    let other = statistics::read_report(&report("b.json", "skimage").1, Some("ssim")).unwrap();
    let warnings = statistics::protocol_warnings(&[a, other]);
    assert!(warnings.iter().any(|w| w.contains("window") && w.contains("7x7")), "{warnings:?}");
    std::fs::write(&path, "x").unwrap();
    assert!(statistics::read_report(&path, None).unwrap_err().to_string().contains("a.json"));
}
