//! Every verb of `crossfade eval` refuses inputs for which its value means nothing, with the reason and without a number. The
//! verbs are read from the help: one that is added needs its cases here.
#![allow(clippy::unwrap_used)]
#[path = "common/trained.rs"]
mod trained;

use crossfade::data::Image;
use crossfade::metrics::features::{FeatureSums, Gaussian, Statistics};
use crossfade::nn::lpips::FeatureNet;
use crossfade::tensorfile::save_tensors;
use std::path::Path;
use std::process::Output;
use trained::{crossfade, grey, poisoned, succeed, trained};

/// Why a value would mean nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    /// Numbers that are none.
    Nan,
    /// Nothing to measure.
    Empty,
    /// Something, but fewer than the formula needs.
    Few,
    /// Sizes that do not belong together.
    Sizes,
}
use Flaw::{Empty, Few, Nan, Sizes};

const FLAWS: [Flaw; 4] = [Nan, Empty, Few, Sizes];

/// Verbs, the options that lead to the flaw, and a part of the message. Options are separated by spaces; names of files are
/// those that [`make_inputs`] makes.
const REFUSED: &[(&str, Flaw, &str, &str)] = &[
    ("fid", Nan, "nan-stats.npz stats.npz", "no numbers"),
    ("fid", Nan, "stats.npz nan-stats.npz", "no numbers"),
    ("fid", Nan, "floats.npz stats.npz", "expected images as |u1"),
    ("fid", Empty, "empty stats.npz", "empty"),
    ("fid", Few, "one two", "covariance of their features needs 2"),
    ("fid", Few, "two one", "covariance of their features needs 2"),
    ("fid", Few, "stats.npz stats.npz --interval", "statistics do not tell how much they vary"),
    ("fid", Sizes, "stats.npz four.npz", "statistics of 3 and of 4 features cannot be compared"),
    ("kid", Nan, "floats.npz two --subset-size 2", "expected images as |u1"),
    ("kid", Empty, "two empty --subset-size 2", "empty"),
    ("kid", Empty, "two two --subsets 0", "at least one subset"),
    ("kid", Few, "two two --subset-size 1", "two images in each"),
    ("kid", Few, "two two", "a subset of --subset-size needs 1000"),
    ("pr", Nan, "two floats.npz --neighbours 1", "expected images as |u1"),
    ("pr", Empty, "empty two", "empty"),
    ("pr", Few, "two two", "needs 4 or more"),
    ("is", Nan, "floats.npz", "expected images as |u1"),
    ("is", Empty, "empty", "empty"),
    ("is", Few, "two", "needs 20 or more"),
    ("is", Few, "one --splits 1", "needs 2 or more"),
    ("stats", Nan, "floats.npz out.npz", "expected images as |u1"),
    ("stats", Empty, "empty out.npz", "empty"),
    ("stats", Few, "one out.npz", "covariance of their features needs 2"),
    ("merge", Nan, "sums.npz nan-sums.npz out.npz", "nan-sums.npz"),
    ("merge", Empty, "stats.npz stats.npz out.npz", "sums"),
    ("merge", Few, "sums.npz one-sum.npz out.npz", "n is 1"),
    ("merge", Sizes, "sums.npz four-sums.npz out.npz", "cannot be merged"),
    ("nll", Nan, "nan.safetensors two", "finite"),
    ("nll", Empty, "net.safetensors empty", "empty"),
    ("nll", Few, "net.safetensors one", "a standard error needs two images"),
    ("nearest", Nan, "floats.npz two out.png", "expected images as |u1"),
    ("nearest", Empty, "empty two out.png", "empty"),
    ("nearest", Empty, "two empty out.png", "empty"),
    ("nearest", Sizes, "wide two out.png", "must be square"),
    ("nearest", Sizes, "mixed two out.png", "shape"),
    ("pixel-frechet", Nan, "floats.npz two", "expected images as |u1"),
    ("pixel-frechet", Empty, "empty two", "empty"),
    ("pixel-frechet", Few, "one two", "too few images"),
    ("pixel-frechet", Few, "two one", "needs two or more"),
    ("random-frechet", Nan, "two floats.npz", "expected images as |u1"),
    ("random-frechet", Empty, "two empty", "empty"),
    ("random-frechet", Few, "one two", "too few images"),
    ("random-frechet", Few, "two one", "needs two or more"),
    ("psnr", Nan, "nan.npy good.npy", "which is no brightness"),
    ("psnr", Nan, "good.npy infinite.npy", "which is no brightness"),
    ("psnr", Empty, "empty empty", "no PNG"),
    ("psnr", Empty, "one one --crop 16", "not larger than the border"),
    ("psnr", Sizes, "large.png small.png", "but its target"),
    ("psnr", Sizes, "large.png colour.png", "but its target"),
    ("psnr", Sizes, "one two", "have no partner"),
    ("ssim", Nan, "nan.npy good.npy", "which is no brightness"),
    ("ssim", Empty, "empty empty", "no PNG"),
    ("ssim", Sizes, "large.png small.png", "but its target"),
    ("ssim", Sizes, "small.png small.png", "needs sides of 11"),
    ("ms-ssim", Nan, "good.npy nan.npy", "which is no brightness"),
    ("ms-ssim", Empty, "empty empty", "no PNG"),
    ("ms-ssim", Sizes, "large.png small.png", "but its target"),
    ("ms-ssim", Sizes, "large.png large.png", "needs sides of 161"),
    ("lpips", Nan, "nan.npy good.npy --weights lpips.safetensors", "which is no brightness"),
    ("lpips", Nan, "large.png large.png --weights lpips-nan.safetensors", "damaged"),
    ("lpips", Empty, "empty empty --weights lpips.safetensors", "no PNG"),
    ("lpips", Sizes, "large.png colour.png --weights lpips.safetensors", "but its target"),
    ("lpips", Sizes, "small.png small.png --weights lpips.safetensors", "needs sides of"),
    ("saliency", Nan, "large.png mask.png --binarise NaN", "between 0 and 1"),
    ("saliency", Empty, "empty empty", "no files"),
    ("saliency", Empty, "large.png black.png", "marks anything"),
    ("saliency", Sizes, "small.png mask.png", "but its mask has"),
    ("edges", Nan, "nan.mat mask.png", "NaN in row"),
    ("edges", Nan, "large.png mask.png --max-dist NaN", "a tolerance of NaN"),
    ("edges", Empty, "empty empty", "no files"),
    ("edges", Empty, "large.png black.png", "mean nothing"),
    ("edges", Empty, "large.png mask.png --thresholds 0", "0 thresholds"),
    ("edges", Sizes, "small.png mask.png", "but its ground truth has"),
    ("regions", Nan, "nan.mat truth.mat", "NaN in row"),
    ("regions", Nan, "contours.mat nan-truth.mat", "NaN in row"),
    ("regions", Empty, "empty empty", "no files"),
    ("regions", Empty, "contours.mat unannotated.mat", "with annotations in it"),
    ("regions", Empty, "contours.mat truth.mat --thresholds 0", "0 thresholds"),
    ("regions", Sizes, "contours.mat wide-truth.mat", "but its ground truth has"),
    ("summary", Nan, "1 NaN 2", "finite"),
    ("summary", Nan, "1 inf 2", "finite"),
    ("summary", Empty, "", "required"),
    ("summary", Few, "1", "at least two"),
    ("ttest", Nan, "1 2 3 -- 1 NaN 3", "finite"),
    ("ttest", Empty, "1 2 3", "required"),
    ("ttest", Few, "1 2 3 -- 4", "at least two"),
    ("ttest", Few, "1 1 1 -- 2 2 2", "spread"),
];

/// Flaws that a verb's input cannot have, with the reason.
const IMPOSSIBLE: &[(&str, Flaw, &str)] = &[
    ("kid", Sizes, "images of any size are brought to that of the network"),
    ("pr", Sizes, "images of any size are brought to that of the network"),
    ("is", Sizes, "images of any size are brought to that of the network"),
    ("stats", Sizes, "images of any size are brought to that of the network"),
    ("nll", Sizes, "images of any size are brought to that of the network"),
    ("pixel-frechet", Sizes, "images of any size are reduced to 8x8"),
    ("random-frechet", Sizes, "the filters take images of any size"),
    ("nearest", Few, "one image has a nearest one"),
    ("psnr", Few, "each pair has its value"),
    ("ssim", Few, "each pair has its value"),
    ("ms-ssim", Few, "each pair has its value"),
    ("lpips", Few, "each pair has its value"),
    ("saliency", Few, "each map has its values"),
    ("edges", Few, "each map has its values"),
    ("regions", Few, "each segmentation has its values"),
    ("summary", Sizes, "it has one set of numbers"),
    ("ttest", Sizes, "Welch's test takes sets of different sizes"),
];

/// Part of a MATLAB file.
fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// An array of a class of MATLAB: 1 for cells, 2 for structures, 6 for numbers.
fn array(class: u32, dims: [u32; 2], name: &str, contents: &[u8]) -> Vec<u8> {
    let dims = dims.map(u32::to_le_bytes).concat();
    let flags = [class.to_le_bytes(), [0; 4]].concat();
    element(14, &[element(6, &flags), element(5, &dims), element(1, name.as_bytes()), contents.to_vec()].concat())
}

fn numbers(name: &str, dims: [u32; 2], value: impl Fn(usize) -> f64) -> Vec<u8> {
    let values: Vec<u8> = (0..(dims[0] * dims[1]) as usize).flat_map(|i| value(i).to_le_bytes()).collect();
    array(6, dims, name, &element(9, &values))
}

/// `groundTruth` with annotations of regions.
fn truth(annotations: &[Vec<u8>]) -> Vec<u8> {
    let fields = |matrix: &Vec<u8>| {
        let name = b"Segmentation\0\0\0\0";
        array(2, [1, 1], "", &[element(5, &16u32.to_le_bytes()), element(1, name), matrix.clone()].concat())
    };
    let cells: Vec<u8> = annotations.iter().flat_map(fields).collect();
    array(1, [1, annotations.len() as u32], "groundTruth", &cells)
}

/// A stored zip with one array of floats in it.
fn npz_of_floats() -> Vec<u8> {
    let array = npy([2, 4], f32::NAN);
    let (name, size, sum) = (b"arr_0.npy", array.len() as u32, trained::crc(&array).to_le_bytes());
    // Version, flags, method, time, date; checksum, both sizes; length of the name, of the rest.
    let common =
        [&[20u8, 0, 0, 0, 0, 0, 0, 0, 0, 0], &sum[..], &size.to_le_bytes(), &size.to_le_bytes(), &[9, 0, 0, 0]]
            .concat();
    let local = [b"PK\x03\x04", &common[..], name, &array].concat();
    let central = [b"PK\x01\x02\x14\0", &common[..], &[0; 14], name].concat();
    let end = [
        &b"PK\x05\x06\0\0\0\0\x01\0\x01\0"[..],
        &(central.len() as u32).to_le_bytes(),
        &(local.len() as u32).to_le_bytes(),
        &[0; 2],
    ];
    [local, central, end.concat()].concat()
}

/// An array of floats as NumPy writes it.
fn npy(shape: [usize; 2], value: f32) -> Vec<u8> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", shape[0], shape[1]);
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let start = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    [start, value.to_le_bytes().repeat(shape[0] * shape[1])].concat()
}

fn make_inputs(dir: &Path) {
    let at = |name: &str| dir.join(name);
    for (folder, images) in [("empty", 0), ("one", 1), ("two", 2)] {
        std::fs::create_dir(at(folder)).unwrap();
        (0..images).for_each(|k| grey(&at(folder).join(format!("{k}.png")), 100 * k + 20, 16));
    }
    let save = |name: &str, [width, height, channels]: [usize; 3], pixel: fn(usize) -> u8| {
        let image = Image::new(width, height, channels, (0..width * height * channels).map(pixel).collect());
        std::fs::write(at(name), image.encode_png(&[]).unwrap()).unwrap();
    };
    ["wide", "mixed"].iter().for_each(|folder| std::fs::create_dir(at(folder)).unwrap());
    save("wide/a.png", [16, 12, 3], |_| 7);
    save("mixed/a.png", [16, 16, 3], |_| 7);
    save("mixed/b.png", [20, 20, 3], |_| 7);
    save("large.png", [40, 40, 1], |i| (i % 251) as u8);
    save("colour.png", [40, 40, 3], |i| (i % 251) as u8);
    save("small.png", [8, 8, 1], |i| (i * 3) as u8);
    save("mask.png", [40, 40, 1], |i| if i < 800 { 255 } else { 0 });
    save("black.png", [40, 40, 1], |_| 0);
    for (name, value) in [("good.npy", 0.5), ("nan.npy", f32::NAN), ("infinite.npy", f32::INFINITY)] {
        std::fs::write(at(name), npy([200, 200], value)).unwrap();
    }
    std::fs::write(at("floats.npz"), npz_of_floats()).unwrap();

    let statistics = |name: &str, dim: usize, mean: f64| {
        let covariance = (0..dim * dim).map(|i| f64::from(u8::from(i % (dim + 1) == 0))).collect();
        let gaussian = Gaussian { mean: vec![mean; dim], covariance };
        Statistics { gaussian, sums: None, protocol: None, weights: None }.save(&at(name)).unwrap();
    };
    statistics("stats.npz", 3, 0.0);
    statistics("four.npz", 4, 0.0);
    statistics("nan-stats.npz", 3, f64::NAN);
    let sums = |name: &str, dim: usize, values: &[f32]| {
        let mut sums = FeatureSums::new(dim);
        values.iter().for_each(|v| sums.push(&vec![*v; dim]));
        let gaussian =
            Gaussian::of(&sums).unwrap_or(Gaussian { mean: vec![0.0; dim], covariance: vec![1.0; dim * dim] });
        Statistics { gaussian, sums: Some(sums), protocol: None, weights: None }.save(&at(name)).unwrap();
    };
    sums("sums.npz", 3, &[1.0, 2.0]);
    sums("nan-sums.npz", 3, &[1.0, f32::NAN]);
    sums("four-sums.npz", 4, &[1.0, 2.0]);
    sums("one-sum.npz", 3, &[1.0]);

    let net = trained().join("run/checkpoints/step-00000002.safetensors");
    std::fs::copy(&net, at("net.safetensors")).unwrap();
    poisoned(&net, &at("nan.safetensors"));
    for (name, value) in [("lpips.safetensors", 0.01), ("lpips-nan.safetensors", f32::NAN)] {
        let shapes = FeatureNet::ALL[0].parameter_shapes().into_iter();
        let tensors: Vec<_> = shapes
            .map(|(name, shape)| {
                let n = shape.iter().product();
                (name, shape, vec![value; n])
            })
            .collect();
        save_tensors(&at(name), &tensors, &[].into()).unwrap();
    }

    let mat = |name: &str, variable: Vec<u8>| {
        let mut bytes = vec![b' '; 128];
        bytes[124..].copy_from_slice(&[0, 1, b'I', b'M']);
        std::fs::write(at(name), [bytes, variable].concat()).unwrap();
    };
    // Contours of double size plus one: 2x2 pixels.
    mat("contours.mat", numbers("ucm2", [5, 5], |_| 0.0));
    mat("nan.mat", numbers("ucm2", [5, 5], |i| if i == 7 { f64::NAN } else { 0.0 }));
    mat("truth.mat", truth(&[numbers("", [2, 2], |i| 1.0 + (i / 2) as f64)]));
    mat("nan-truth.mat", truth(&[numbers("", [2, 2], |_| f64::NAN)]));
    mat("wide-truth.mat", truth(&[numbers("", [2, 3], |_| 1.0)]));
    mat("unannotated.mat", truth(&[]));
}

/// The verbs that the help lists.
fn verbs() -> Vec<String> {
    let help = succeed(crossfade().args(["eval", "--help"]));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Further lines of a description are indented more than the two spaces before a name.
    let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_string).collect()
}

#[test]
fn every_verb_has_a_case_of_each_flaw() {
    let verbs = verbs();
    assert!(verbs.len() > 15, "the list is read from the help itself: {verbs:?}");
    for verb in &verbs {
        for flaw in FLAWS {
            let cases = REFUSED.iter().filter(|case| case.0 == verb && case.1 == flaw).count();
            let excuses = IMPOSSIBLE.iter().filter(|excuse| excuse.0 == verb && excuse.1 == flaw).count();
            assert!((cases > 0) != (excuses == 1), "eval {verb}: no case of {flaw:?}, or a case and an excuse");
        }
    }
    let known = |verb: &str| verbs.iter().any(|known| known == verb);
    assert!(REFUSED.iter().all(|case| known(case.0)) && IMPOSSIBLE.iter().all(|excuse| known(excuse.0)));
}

#[test]
fn what_means_nothing_has_no_value() {
    let dir = tempfile::tempdir().unwrap();
    make_inputs(dir.path());
    let run = |verb: &str, options: &str| -> Output {
        crossfade().current_dir(dir.path()).args(["eval", verb]).args(options.split_whitespace()).output().unwrap()
    };
    let mut wrong = vec![];
    for (verb, flaw, options, reason) in REFUSED {
        let Output { status, stdout, stderr } = run(verb, options);
        let (printed, message) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        let written = ["out.npz", "out.png"].iter().any(|name| dir.path().join(name).exists());
        if !matches!(status.code(), Some(1 | 2)) || !printed.is_empty() || !message.contains(reason) || written {
            wrong.push(format!("eval {verb} {options} ({flaw:?}): {status}, {printed}{message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The inputs are refused for their flaws and not for something else: without them there are values.
    for (verb, options) in [
        ("fid", "stats.npz stats.npz"),
        ("merge", "sums.npz sums.npz out.npz"),
        ("nll", "net.safetensors two"),
        ("nearest", "two two out.png"),
        ("pixel-frechet", "two two"),
        ("psnr", "good.npy good.npy"),
        ("lpips", "large.png large.png --weights lpips.safetensors"),
        ("saliency", "large.png mask.png"),
        ("edges", "large.png mask.png"),
        ("regions", "contours.mat truth.mat"),
        ("ttest", "1 2 3 -- 4 5 6"),
    ] {
        let Output { status, stdout, stderr } = run(verb, options);
        assert!(status.success() && !stdout.is_empty(), "eval {verb} {options}: {}", String::from_utf8_lossy(&stderr));
    }
}
