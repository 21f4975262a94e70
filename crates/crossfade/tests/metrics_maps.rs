//! Saliency, edge and region metrics against numpy, scipy and scikit-image (`tools/metrics_maps.py`), and against the numbers
//! that the BSDS benchmark and saliency toolboxes stored.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "common/shared.rs"]
mod shared;

use crossfade::data::Image;
use crossfade::metrics::edges::ground_truth::{load_detection, load_truth};
use crossfade::metrics::edges::matching::{Disc, Points, correspond};
use crossfade::metrics::edges::nms::suppress;
use crossfade::metrics::edges::summary::summarise;
use crossfade::metrics::edges::thin::thin;
use crossfade::metrics::edges::{self, EdgesConfig, Protocol, counts::Counts};
use crossfade::metrics::maps::{Map, Mask};
use crossfade::metrics::regions::scores::{ImageScores, Scores as RegionScores, Truth, score};
use crossfade::metrics::regions::{self, segmentation::Segmentation};
use crossfade::metrics::saliency::{self, Normalise, SaliencyConfig, Scores, Size};
use crossfade::rng::{Purpose, Stream};
use serde_json::Value;
use shared::shared;
use std::fs;
use std::path::Path;

fn expected() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/metrics_maps.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u8).collect()
}

fn grey(case: &Value, key: &str) -> Image {
    let side = |name: &str| case[name].as_u64().unwrap() as usize;
    Image::new(side("width"), side("height"), 1, bytes(&case[key]))
}

fn mask(case: &Value, key: &str) -> Mask {
    let image = grey(case, key);
    Mask { width: image.width, height: image.height, bits: image.pixels.iter().map(|&v| v != 0).collect() }
}

fn save(image: &Image, path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, image.encode_png(&[]).unwrap()).unwrap();
}

fn close(what: &str, ours: f64, theirs: f64, tolerance: f64) {
    assert!((ours - theirs).abs() <= tolerance, "{what}: {ours} instead of {theirs} ± {tolerance}");
}

fn scores_agree(ours: &Scores, theirs: &Value) {
    let ours = serde_json::to_value(ours).unwrap();
    for (key, value) in theirs.as_object().unwrap() {
        close(&format!("{} {key}", ours["name"]), ours[key].as_f64().unwrap(), value.as_f64().unwrap(), 1e-10);
    }
}

#[test]
fn saliency_measures_equal_the_published_formulas() {
    let dir = tempfile::tempdir().unwrap();
    let cases = expected()["saliency"]["random"].as_array().unwrap().clone();
    for (i, case) in cases.iter().enumerate() {
        save(&grey(case, "map"), &dir.path().join(format!("maps/{i}.png")));
        save(&grey(case, "mask"), &dir.path().join(format!("masks/{i}.png")));
    }
    let (maps, masks) = (dir.path().join("maps"), dir.path().join("masks"));
    let result = saliency::evaluate(&maps, &masks, &SaliencyConfig::default(), &mut |_, _| ()).unwrap();
    for (ours, case) in result.images.iter().zip(&cases) {
        scores_agree(ours, &case["scores"]);
    }
    assert_eq!(result.report.warnings.len(), 2, "{:?}", result.report.warnings);
}

#[test]
fn saliency_of_real_maps_equals_the_published_formulas() {
    let (Some(maps), Some(masks)) = (shared("data/saliency/SOD_DSS_maps"), shared("data/saliency/SOD_masks")) else {
        return;
    };
    for case in expected()["saliency"]["real"].as_array().unwrap() {
        let file = format!("{}.png", case["name"].as_str().unwrap());
        let (map, mask) = (maps.join(&file), masks.join(&file));
        let result = saliency::evaluate(&map, &mask, &SaliencyConfig::default(), &mut |_, _| ()).unwrap();
        scores_agree(&result.images[0], &case["scores"]);
    }
}

#[test]
fn sod_dss_equals_the_toolbox() {
    let (Some(maps), Some(masks)) = (shared("data/saliency/SOD_DSS_maps"), shared("data/saliency/SOD_masks")) else {
        return;
    };
    let config = SaliencyConfig { normalise: Normalise::Toolbox, ..SaliencyConfig::default() };
    let result = saliency::evaluate(&maps, &masks, &config, &mut |_, _| ()).unwrap();
    let get = |name: &str| result.report.get(name).unwrap();
    close("MAE", get("MAE"), 0.12132238755437856, 1e-12);
    close("max F", get("max F"), 0.8439217877341806, 1e-12);
    close("S", get("S"), 0.751368312311368, 1e-12);
    let table = fs::read_to_string(maps.with_file_name("SOD_DSS_reference.csv")).unwrap();
    let rows: Vec<_> = table.lines().skip(1).map(|line| line.split_once(',').unwrap()).collect();
    assert_eq!(rows.len(), result.images.len());
    for (name, mae) in rows {
        let image = result.images.iter().find(|s| s.name == name).unwrap();
        close(name, image.mae, mae.parse().unwrap(), 5.1e-9);
    }
}

#[test]
fn the_reference_protocol_resizes_and_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let ramp = Image::new(4, 2, 1, vec![0, 100, 140, 255, 0, 100, 140, 255]);
    save(&ramp, &dir.path().join("a.png"));
    save(&Image::new(4, 2, 1, vec![0, 0, 255, 255, 0, 0, 255, 255]), &dir.path().join("b.png"));
    let (map, mask) = (dir.path().join("a.png"), dir.path().join("b.png"));
    let soft = saliency::evaluate(&map, &mask, &SaliencyConfig::default(), &mut |_, _| ()).unwrap();
    close("soft", soft.report.get("MAE").unwrap(), (100.0 + 115.0) / (4.0 * 255.0), 1e-12);
    let adm = saliency::evaluate(&map, &mask, &SaliencyConfig::adm(), &mut |_, _| ()).unwrap();
    // The ramp passes one half at 0.1875 of a pixel, that is 18 of 384 columns, beside the mask's step.
    close("adm", adm.report.get("MAE").unwrap(), 18.0 / 384.0, 1.5 / 384.0);
    assert!(adm.report.to_string().contains("384x384"));
}

#[test]
fn bad_input_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (maps, masks) = (dir.path().join("maps"), dir.path().join("masks"));
    fs::create_dir(&maps).unwrap();
    let small = Image::new(4, 4, 1, vec![128; 16]);
    save(&small, &masks.join("one.png"));
    let saliency =
        |config: &SaliencyConfig| saliency::evaluate(&maps, &masks, config, &mut |_, _| ()).map(|s| s.report);
    let edges = || edges::evaluate(&maps, &masks, &EdgesConfig::default(), &mut |_, _| ()).map(|e| e.report);
    let both = |part: &str| {
        for error in [saliency(&SaliencyConfig::default()).unwrap_err(), edges().unwrap_err()] {
            assert!(error.to_string().contains(part), "{error}");
        }
    };
    both("maps: no files");
    fs::write(maps.join("one.png"), b"no image").unwrap();
    both("one.png: not a readable image");
    save(&Image::new(5, 4, 1, vec![0; 20]), &maps.join("one.png"));
    both("one.png: 5x4 pixels");
    let fitted = SaliencyConfig { size: Size::Mask, ..SaliencyConfig::default() };
    assert_eq!(saliency(&fitted).unwrap().get("MAE"), Some(1.0));
    save(&small, &maps.join("two.png"));
    both("two.png: there is no file of this name");
    save(&small, &masks.join("two.png"));
    save(&small, &masks.join("three.png"));
    both("three.png: there is no map for it");
    save(&small, &maps.join("three.jpg"));
    save(&small, &maps.join("three.png"));
    both("has the same name as");
    fs::write(masks.join("four.mat"), b"damaged").unwrap();
    let error = load_truth(&masks.join("four.mat")).unwrap_err().to_string();
    assert!(error.contains("four.mat: not a readable MATLAB file"), "{error}");
}

#[test]
fn thinning_equals_scikit_image() {
    let case = &expected()["edges"]["thin"];
    assert_eq!(thin(&mask(case, "mask")), mask(case, "thin"));
}

#[test]
fn suppression_equals_the_toolbox_in_numpy() {
    let expected = expected();
    let case = &expected["edges"]["nms"];
    let ours: Vec<u8> =
        suppress(&Map::of(&grey(case, "map"))).values.iter().map(|v| (v * 255.0).round() as u8).collect();
    let off = ours.iter().zip(bytes(&case["suppressed"])).filter(|(a, b)| a.abs_diff(*b) > 1).count();
    assert_eq!(off, 0);
    // Ours is in single precision, as the toolbox, so that ties may fall to the other side here and there.
    let Some(maps) = shared("data/bsds500/reference/pidinet_maps") else { return };
    let case = &expected["edges"]["real"][0];
    let path = maps.join(format!("{}.png", case["name"].as_str().unwrap()));
    let suppressed = suppress(&Map::of(&Image::decode(&fs::read(&path).unwrap(), &path).unwrap()));
    for (level, counts) in case["at_least_and_thinned"].as_object().unwrap() {
        let cut = suppressed.at_least(level.parse::<f64>().unwrap() / 255.0);
        for (ours, theirs) in [cut.count(), thin(&cut).count()].iter().zip(counts.as_array().unwrap()) {
            let theirs = theirs.as_f64().unwrap();
            close(&format!("pixels from {level}"), *ours as f64, theirs, 0.003 * theirs);
        }
    }
}

/// The size and the cost of the best matching, by plain augmenting paths of least cost (Bellman and Ford).
fn slow_matching(from: &[(i32, i32)], to: &[(i32, i32)], radius: f64) -> (usize, i64) {
    let cost = |a: (i32, i32), b: (i32, i32)| {
        let d2 = f64::from((a.0 - b.0).pow(2) + (a.1 - b.1).pow(2));
        (d2 <= radius * radius).then_some((d2.sqrt() * 100.0).round() as i64)
    };
    let mut owner: Vec<Option<usize>> = vec![None; to.len()];
    let (mut size, mut total) = (0, 0);
    loop {
        let mut row: Vec<i64> =
            (0..from.len()).map(|i| if owner.contains(&Some(i)) { i64::MAX / 2 } else { 0 }).collect();
        let mut column: Vec<(i64, usize)> = vec![(i64::MAX / 2, 0); to.len()];
        for _ in 0..=from.len() {
            for (i, &a) in from.iter().enumerate() {
                for (j, &b) in to.iter().enumerate().filter(|(j, _)| owner[*j] != Some(i)) {
                    if let Some(c) = cost(a, b).filter(|c| row[i] + c < column[j].0) {
                        column[j] = (row[i] + c, i);
                    }
                }
            }
            for (j, i) in owner.iter().enumerate().filter_map(|(j, o)| o.map(|i| (j, i))) {
                row[i] = row[i].min(column[j].0 - cost(from[i], to[j]).unwrap());
            }
        }
        let end =
            (0..to.len()).filter(|&j| owner[j].is_none() && column[j].0 < i64::MAX / 4).min_by_key(|&j| column[j].0);
        let Some(mut j) = end else { return (size, total) };
        size += 1;
        total += column[j].0;
        loop {
            let i = column[j].1;
            let before = owner.iter().position(|&o| o == Some(i));
            owner[j] = Some(i);
            match before {
                Some(k) => j = k,
                None => break,
            }
        }
    }
}

#[test]
fn the_matching_is_the_greatest_and_the_nearest() {
    let (width, height, radius) = (14, 11, 2.9);
    for case in 0..60 {
        let mut random = Stream::new(9, case, 0, Purpose::Noise);
        let density = [0.08, 0.15, 0.3][case as usize % 3];
        let mut draw = |share: f64| {
            let bits = (0..width * height).map(|_| random.uniform() < share).collect();
            Mask { width, height, bits }
        };
        let (detected, truth) = (draw(density), draw(0.15));
        let places = |m: &Mask| -> Vec<(i32, i32)> {
            let set = m.bits.iter().enumerate().filter(|(_, b)| **b);
            set.map(|(i, _)| ((i % width) as i32, (i / width) as i32)).collect()
        };
        let (from, to) = (places(&detected), places(&truth));
        let matched =
            correspond(&Points::new(&detected), &Points::new(&truth), &Disc::new(radius, width, height)).unwrap();
        let chosen: Vec<_> = from.iter().zip(&matched).filter(|(_, m)| **m).map(|(p, _)| *p).collect();
        let best = slow_matching(&from, &to, radius);
        assert_eq!(chosen.len(), best.0, "case {case}");
        // The chosen pixels alone can be matched as well as all of them.
        assert_eq!(slow_matching(&chosen, &to, radius), best, "case {case}");
    }
}

/// Rows of numbers.
fn table(path: &Path) -> Vec<Vec<f64>> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split_whitespace().map(|n| n.parse().unwrap()).collect()).collect()
}

#[test]
fn the_benchmarks_example_is_reproduced() {
    let Some(example) = shared("data/bsds500/bench_example") else { return };
    let config = EdgesConfig { thresholds: 5, protocol: Protocol::AsIs, ..EdgesConfig::default() };
    for (maps, stored) in [("ucm2", "test_1"), ("png", "test_2"), ("segs", "test_3"), ("segs", "test_4")] {
        let result =
            edges::evaluate(&example.join(maps), &example.join("groundTruth"), &config, &mut |_, _| ()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        result.save(dir.path()).unwrap();
        // The stored runs differ from each other by up to 0.0013 in these numbers: the benchmark links outliers at random.
        for file in ["eval_bdry.txt", "eval_bdry_thr.txt", "eval_bdry_img.txt"] {
            let (ours, theirs) = (table(&dir.path().join(file)), table(&example.join(stored).join(file)));
            assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
                close(&format!("{maps} {file}"), *ours, *theirs, 0.0014);
            }
        }
        let ods = table(&example.join(stored).join("eval_bdry.txt"))[0][3];
        close(maps, result.report.get("ODS").unwrap(), ods, 2.5e-4);
    }
}

#[test]
fn stored_counts_of_hed_give_its_stored_scores() {
    let Some(stored) = shared("data/bsds500/reference/hed_eval") else { return };
    let mut files: Vec<_> = fs::read_dir(&stored).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.to_string_lossy().ends_with("_ev1.txt"));
    assert_eq!(files.len(), 200);
    let images: Vec<Vec<Counts>> = files.iter().map(|f| table(f).iter().map(|r| counts(r)).collect()).collect();
    let thresholds = EdgesConfig::default().levels();
    let summary = summarise(&thresholds, &images);
    close("ODS", summary.ods.f, 0.788797, 1e-6);
    close("ODS threshold", summary.ods.threshold, 0.46, 1e-6);
    close("AP", summary.ap, 0.810030, 2e-5);
    let curve = table(&stored.join("eval_bdry_thr.txt"));
    assert!(curve.len() >= 90);
    for row in curve {
        let point = summary.curve.iter().find(|p| (p.threshold - row[0]).abs() < 1e-6).unwrap();
        close("recall", point.recall, row[1], 1e-6);
        close("precision", point.precision, row[2], 1e-6);
    }
}

fn counts(row: &[f64]) -> Counts {
    Counts { cnt_r: row[1] as u64, sum_r: row[2] as u64, cnt_p: row[3] as u64, sum_p: row[4] as u64 }
}

#[test]
fn counts_of_hed_maps_equal_the_stored_ones() {
    let (Some(reference), Some(truth)) = (shared("data/bsds500/reference"), shared("data/bsds500/groundTruth/test"))
    else {
        return;
    };
    let config = EdgesConfig { thresholds: 9, protocol: Protocol::AsIs, ..EdgesConfig::default() };
    for name in ["100007", "141012", "230098"] {
        let map = reference.join(format!("hed_nms_maps/{name}.png"));
        let truth = load_truth(&truth.join(format!("{name}.mat"))).unwrap();
        let ours = edges::counts::count(load_detection(&map).unwrap(), &truth, &config, &map).unwrap();
        let stored = table(&reference.join(format!("hed_eval/{name}_ev1.txt")));
        for (ours, theirs) in ours.iter().zip(stored.iter().skip(9).step_by(10).map(|r| counts(r))) {
            assert_eq!((ours.sum_r, ours.sum_p), (theirs.sum_r, theirs.sum_p), "{name}");
            let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= 0.01 * b as f64;
            assert!(near(ours.cnt_r, theirs.cnt_r) && near(ours.cnt_p, theirs.cnt_p), "{name}: {ours:?} {theirs:?}");
        }
    }
}

/// The region scores of one image from its text files, which have six digits a number.
fn stored_scores(folder: &Path, name: &str) -> ImageScores {
    let file = |k: u32| table(&folder.join(format!("{name}_ev{k}.txt")));
    let scales = file(2).into_iter().zip(file(4)).map(|(a, b)| RegionScores {
        cnt_r: a[1],
        sum_r: a[2],
        cnt_p: a[3],
        sum_p: a[4],
        rand_index: b[1],
        variation: b[2],
    });
    ImageScores { scales: scales.collect(), best: file(3)[0][0] }
}

#[test]
fn the_benchmarks_example_of_regions_is_reproduced() {
    let Some(example) = shared("data/bsds500/bench_example") else { return };
    for (input, stored) in [("ucm2", vec!["test_1"]), ("segs", vec!["test_4", "test_5"])] {
        let result = regions::evaluate(&example.join(input), &example.join("groundTruth"), 5, &mut |_, _| ()).unwrap();
        let (ours, rounded) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        result.save(ours.path()).unwrap();
        // The benchmark sums up what its text files of each image say, so that it loses digits: with the same loss every
        // file is the same to the byte; without it the last digits differ.
        let images: Vec<_> = result.names.iter().map(|name| stored_scores(ours.path(), name)).collect();
        let summary = regions::summary::summarise(&result.thresholds, &images);
        summary.save(rounded.path(), &[], &result.thresholds, &[]).unwrap();
        let cover = ["eval_cover.txt", "eval_cover_th.txt", "eval_cover_img.txt"];
        for file in cover.into_iter().chain(["eval_RI_VOI.txt", "eval_RI_VOI_thr.txt"]) {
            for stored in stored.iter().map(|s| example.join(s).join(file)) {
                let text = |path: &Path| fs::read_to_string(path).unwrap().replace('\r', "");
                assert_eq!(text(&rounded.path().join(file)), text(&stored), "{}", stored.display());
                let (ours, theirs) = (table(&ours.path().join(file)), table(&stored));
                for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
                    close(&format!("{}", stored.display()), *ours, *theirs, 3.1e-6);
                }
            }
        }
        close("covering OIS", result.report.get("covering OIS").unwrap(), 0.725074, 1e-6);
    }
}

#[test]
fn region_measures_equal_their_definitions() {
    let (width, height) = (9, 7);
    let n = width * height;
    for case in 0..20 {
        let mut random = Stream::new(11, case, 0, Purpose::Noise);
        let mut draw = |labels: f64| -> Vec<u64> { (0..n).map(|_| (random.uniform() * labels) as u64).collect() };
        let (ours, theirs) = (draw(6.0), draw(4.0));
        let new = |labels: &[u64]| Segmentation::new(width, height, labels.iter().copied());
        let scores = score([new(&ours)], &[Truth::new(new(&theirs))]).scales[0];

        let pairs = (0..n).flat_map(|i| (0..i).map(move |j| (i, j)));
        let alike = pairs.filter(|&(i, j)| (ours[i] == ours[j]) == (theirs[i] == theirs[j])).count();
        close("Rand index", scores.rand_index, alike as f64 / (n * (n - 1) / 2) as f64, 1e-12);

        // H(S | S') + H(S' | S), pixel by pixel.
        let share = |i: usize, a: &[u64]| (0..n).filter(|&j| a[i] == a[j]).count() as f64;
        let common = |i: usize| (0..n).filter(|&j| ours[i] == ours[j] && theirs[i] == theirs[j]).count() as f64;
        let bits = |i: usize| (share(i, &ours) / common(i)).log2() + (share(i, &theirs) / common(i)).log2();
        close("variation", scores.variation, (0..n).map(bits).sum::<f64>() / n as f64, 1e-12);

        // Each pixel adds the best overlap of its region.
        let overlap = |v: u64, u: u64| {
            let count = |f: &dyn Fn(usize) -> bool| (0..n).filter(|&i| f(i)).count() as f64;
            count(&|i| theirs[i] == v && ours[i] == u) / count(&|i| theirs[i] == v || ours[i] == u)
        };
        let covering = |i: usize| (0..6).map(|u| overlap(theirs[i], u)).fold(0.0, f64::max);
        close("covering", scores.covering(), (0..n).map(covering).sum::<f64>() / n as f64, 1e-12);

        let same = score([new(&ours)], &[Truth::new(new(&ours))]).scales[0];
        assert_eq!((same.covering(), same.covered(), same.rand_index), (1.0, 1.0, 1.0));
        assert!(same.variation < 1e-12);
    }
}
