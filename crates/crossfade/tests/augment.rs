//! The promises that the augmentation pipe makes to training.
#![allow(clippy::unwrap_used)]
use crossfade::augment::{Draws, Margin, augment};
use crossfade::rng::{Purpose, Stream};

fn noise(shape: [usize; 4]) -> Vec<f32> {
    let mut stream = Stream::new(0, 0, 0, Purpose::Noise);
    (0..shape.iter().product::<usize>()).map(|_| (2.0 * stream.uniform() - 1.0) as f32).collect()
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
