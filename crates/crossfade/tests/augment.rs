//! The augmentation pipe against the reference, and the promises it makes to training.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
use crossfade::augment::{Draws, Margin, augment};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// u in [−1, 1) of the golden vectors' value formula.
fn u(name: &str, index: u64) -> f64 {
    let fnv = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    let hash = name.bytes().fold(14_695_981_039_346_656_037, fnv);
    let mut s = hash.wrapping_add(index).wrapping_add(0x9E37_79B9_7F4A_7C15);
    s = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    s = (s ^ (s >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    s ^= s >> 31;
    (s >> 11) as f64 * 2f64.powi(-53) * 2.0 - 1.0
}

/// The values of a little-endian f32 `.npy` file.
fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(bytes.starts_with(b"\x93NUMPY\x01") && bytes[10..header].windows(5).any(|w| w == b"'<f4'"));
    bytes[header..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Every golden case of this kind; none when the vectors are absent.
fn cases(kind: &str) -> Vec<(PathBuf, Value)> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/golden/public");
    let root = std::env::var("CROSSFADE_GOLDEN").unwrap_or(default.into());
    let Ok(folders) = std::fs::read_dir(&root) else {
        eprintln!("skipped: no golden vectors in {root}; set CROSSFADE_GOLDEN to their folder");
        return vec![];
    };
    let mut paths: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let parse = |path: PathBuf| {
        let text = std::fs::read_to_string(path.join("case.json")).ok()?;
        // Cases of other kinds may hold NaN, which is not JSON.
        let wanted = text.contains(&format!("\"kind\": \"{kind}\""));
        wanted.then(|| (path, serde_json::from_str(&text).unwrap()))
    };
    let found: Vec<_> = paths.into_iter().filter_map(parse).collect();
    if found.is_empty() {
        eprintln!("skipped: no case of kind {kind} in {root}");
    }
    found
}

/// Fails if `actual` is farther from the case's output (its f64 run) than the case allows.
fn compare(folder: &Path, case: &Value, output: &str, actual: &[f32]) {
    let about = &case["outputs"][output];
    let expected = npy(&folder.join(about["file_f64run"].as_str().unwrap()));
    assert_eq!(actual.len(), expected.len());
    let difference = || actual.iter().zip(&expected).map(|(a, e)| f64::from(a - e));
    let max_abs = difference().fold(0.0, |max, d| d.abs().max(max));
    let l2 = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let rel_l2 = l2(&mut difference()) / l2(&mut expected.iter().map(|&e| f64::from(e)));
    let tolerance = |name: &str| about["tolerance"][name].as_f64().unwrap();
    println!("{} {output}: max_abs {max_abs:.1e}, rel_l2 {rel_l2:.1e}", case["case"]);
    assert!(max_abs <= tolerance("max_abs"), "{} {output}: off by {max_abs:e}", case["case"]);
    assert!(rel_l2 <= tolerance("rel_l2"), "{} {output}: relatively off by {rel_l2:e}", case["case"]);
}

/// Draw `number` of the case for image `k`; `row` counts in draws of shape [rows, N].
fn draw(case: &Value, number: usize, row: usize, k: usize) -> f64 {
    let n = case["inputs"]["images"]["shape"][0].as_u64().unwrap();
    let [name, kind, _] = case["draws"][number].as_array().unwrap().as_slice() else { panic!("a draw has 3 fields") };
    let name = format!("{}{}", case["salt"].as_str().unwrap(), name.as_str().unwrap());
    let u = u(&name, row as u64 * n + k as u64);
    let value = match kind.as_str().unwrap() {
        "randint(2): floor((u+1)/2*2)" => ((u + 1.0) / 2.0 * 2.0).floor(),
        "rand: (u+1)/2" => (u + 1.0) / 2.0,
        "randn: sqrt(3)*u" => 3f64.sqrt() * u,
        other => panic!("unknown draw {other}"),
    };
    f64::from(value as f32)
}

fn draws(case: &Value, k: usize) -> Draws {
    let draw = |number| draw(case, number, 0, k);
    Draws {
        xflip: draw(0) == 1.0,
        xflip_gate: draw(1),
        yflip: draw(2) == 1.0,
        yflip_gate: draw(3),
        scale: draw(4),
        scale_gate: draw(5),
        rotate: draw(6),
        rotate_gate: draw(7),
        aniso: draw(8),
        aniso_angle: draw(9),
        aniso_gate: draw(10),
        aniso_angle_gate: draw(11),
        translate: [draw(12), self::draw(case, 12, 1, k)],
        translate_gate: draw(13),
    }
}

#[test]
fn golden_images_and_labels() {
    for (folder, case) in cases("augment") {
        let settings = &case["settings"];
        let fixed = [
            ("xflip", 1e8),
            ("yflip", 1.0),
            ("scale", 1.0),
            ("rotate_frac", 1.0),
            ("aniso", 1.0),
            ("translate_frac", 1.0),
            ("scale_std", 0.2),
            ("rotate_frac_max", 1.0),
            ("aniso_std", 0.2),
            ("aniso_rotate_prob", 0.5),
            ("translate_frac_std", 0.125),
        ];
        fixed.iter().for_each(|(key, value)| assert_eq!(settings[key].as_f64(), Some(*value), "{key}"));

        let about = &case["inputs"]["images"];
        let shape: [usize; 4] = std::array::from_fn(|i| about["shape"][i].as_u64().unwrap() as usize);
        let name = about["name"].as_str().unwrap();
        let mut images: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| u(name, i as u64) as f32).collect();
        let draws: Vec<Draws> = (0..shape[0]).map(|k| draws(&case, k)).collect();
        let labels = augment(&mut images, shape, &draws, settings["p"].as_f64().unwrap(), Margin::Batch);
        compare(&folder, &case, "images", &images);
        compare(&folder, &case, "labels", labels.as_flattened());
    }
}

fn noise(shape: [usize; 4]) -> Vec<f32> {
    (0..shape.iter().product::<usize>()).map(|i| u("noise", i as u64) as f32).collect()
}

fn sample_draws(n: usize) -> Vec<Draws> {
    (0..n as u64).map(|k| Draws::new(5, k)).collect()
}

#[test]
fn draws_follow_the_counter_and_have_the_right_laws() {
    assert_eq!(Draws::new(1, 7), Draws::new(1, 7));
    assert_ne!(Draws::new(1, 7), Draws::new(1, 8));
    assert_ne!(Draws::new(1, 7), Draws::new(2, 7));
    let all = sample_draws(4000);
    let mean = |f: &dyn Fn(&Draws) -> f64| all.iter().map(f).sum::<f64>() / all.len() as f64;
    let uniforms: [fn(&Draws) -> f64; 8] = [
        |d| d.xflip_gate,
        |d| d.scale_gate,
        |d| d.rotate,
        |d| d.rotate_gate,
        |d| d.aniso_angle,
        |d| d.aniso_gate,
        |d| d.translate_gate,
        |d| f64::from(u8::from(d.yflip)),
    ];
    uniforms.iter().for_each(|f| assert!((mean(f) - 0.5).abs() < 0.04));
    let normals: [fn(&Draws) -> f64; 4] = [|d| d.scale, |d| d.aniso, |d| d.translate[0], |d| d.translate[1]];
    for f in normals {
        assert!(mean(&f).abs() < 0.08 && (mean(&|d| f(d).powi(2)) - 1.0).abs() < 0.12);
    }
}

#[test]
fn probability_zero_changes_nothing() {
    let shape = [16, 3, 8, 8];
    for (p, flips) in [(0.0, false), (1e-7, true)] {
        let mut images = noise(shape);
        let labels = augment(&mut images, shape, &sample_draws(16), p, Margin::Image);
        let mut expected = noise(shape);
        for ((image, draws), label) in expected.chunks_exact_mut(3 * 64).zip(sample_draws(16)).zip(labels) {
            let flip = flips && draws.xflip;
            if flip {
                image.chunks_exact_mut(8).for_each(<[f32]>::reverse);
            }
            assert_eq!(label, [f32::from(u8::from(flip)), 0., 0., 0., 0., 0., 0., 0., 0.]);
        }
        assert!(images == expected, "p = {p}");
    }
}

#[test]
fn the_filter_alone_returns_the_image() {
    let shape = [2, 1, 8, 12];
    let mut images = noise(shape);
    augment(&mut images, shape, &sample_draws(2), 0.0, Margin::Batch);
    assert!(images.iter().zip(noise(shape)).all(|(a, b)| (a - b).abs() < 2e-6));
}

#[test]
fn an_image_does_not_depend_on_its_batch() {
    let (shape, one) = ([6, 3, 12, 10], [1, 3, 12, 10]);
    let draws = sample_draws(6);
    let mut together = noise(shape);
    let labels = augment(&mut together, shape, &draws, 0.7, Margin::Image);
    let mut alone = noise(shape);
    for (k, image) in alone.chunks_exact_mut(3 * 12 * 10).enumerate() {
        assert_eq!(augment(image, one, &draws[k..=k], 0.7, Margin::Image), [labels[k]]);
    }
    assert!(alone == together, "an image differs");
}

#[test]
fn threads_do_not_change_a_bit() {
    let shape = [9, 3, 12, 10];
    let run = |threads: usize, margin: Margin| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut images = noise(shape);
        let labels = pool.install(|| augment(&mut images, shape, &sample_draws(9), 0.7, margin));
        (images, labels)
    };
    for margin in [Margin::Image, Margin::Batch] {
        assert!(run(1, margin) == run(2, margin), "{margin:?}");
    }
}

/// The largest difference between both margins outside and inside the three outermost pixels.
fn margins_differ(draws: &[Draws], [n, c, h, w]: [usize; 4]) -> (f32, f32) {
    let run = |margin| {
        let mut images = noise([n, c, h, w]);
        augment(&mut images, [n, c, h, w], draws, 1.0, margin);
        images
    };
    let (image, batch) = (run(Margin::Image), run(Margin::Batch));
    let mut worst = (0f32, 0f32);
    for (i, (a, b)) in image.iter().zip(&batch).enumerate() {
        let (y, x) = (i / w % h, i % w);
        let side = if (3..h - 3).contains(&y) && (3..w - 3).contains(&x) { &mut worst.1 } else { &mut worst.0 };
        *side = side.max((a - b).abs());
    }
    worst
}

#[test]
fn margins_agree_but_for_the_border_of_a_shrunk_or_rotated_image() {
    let all = sample_draws(60);
    let changed = |f: &dyn Fn(&Draws) -> Draws| all.iter().map(f).collect::<Vec<_>>();
    // Half of the rotations and stretches, and a shrinking far beyond the usual.
    let mixed =
        changed(&|d| Draws { rotate_gate: 0.5 + d.rotate_gate, aniso_gate: 0.5 + d.aniso_gate, scale: -4.0, ..*d });
    // Enlarged, flipped and moved only: nothing reaches past either margin.
    let enlarged = changed(&|d| Draws { rotate_gate: 2.0, aniso_gate: 2.0, scale: d.scale.abs(), ..*d });
    for shape in [[60, 1, 24, 16], [60, 1, 16, 40]] {
        for (draws, at_most) in [(&all, 2e-4), (&mixed, 1e-2), (&enlarged, 1e-6)] {
            let (border, inside) = margins_differ(draws, shape);
            assert!(inside < 1e-6, "{shape:?} inside: {inside:e}");
            assert!(border < at_most, "{shape:?} border: {border:e}");
        }
        assert!(margins_differ(&mixed, shape).0 > 1e-4, "the exception is real");
    }
}

#[test]
fn tiny_images_survive() {
    for shape in [[8, 1, 1, 1], [8, 2, 1, 5], [8, 1, 3, 2]] {
        for margin in [Margin::Image, Margin::Batch] {
            let mut images = noise(shape);
            augment(&mut images, shape, &sample_draws(8), 1.0, margin);
            assert!(images.iter().all(|x| x.abs() < 4.0), "{shape:?}");
        }
    }
}
