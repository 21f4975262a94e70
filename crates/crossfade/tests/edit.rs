//! From a picture (§3.6): inversion, and sampling that starts at a noised picture.
#![allow(clippy::unwrap_used)]
use crossfade::apply::{Application, Options};
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{RunConfig, SampleConfig};
use crossfade::data::image16::{Format, write_rows};
use crossfade::data::{DataConfig, Fit, Image, Image16, Planes};
use crossfade::engine::{Device, to_host};
use crossfade::generate::{Edit, EditRecipe, Pipeline, Source, reproduce_edit};
use crossfade::lab::{GaussianOracle, Mixture, Oracle, Points};
use crossfade::math::{Adm, Attenuation, Grid, GridKind, NoiseScale, Process};
use crossfade::nn::{Decoders, UNetConfig};
use crossfade::sample::gaussian::GaussianProblem;
use crossfade::sample::{AttenuationProblem, Form, Sampler};
use crossfade::task::TaskConfig;
use crossfade::train::{RunDir, train};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The root mean square of what a round trip of `steps` steps changes.
fn round_trip_error(process: &Process, sampler: Sampler, grid: &GridKind, steps: usize) -> f64 {
    let mixture = Mixture::random(2, 3, 0.3, 0.6, 1);
    let x0 = mixture.sample(40, 5);
    let times = sampler.times(process, &Grid { kind: grid.clone(), final_t: None }, steps).unwrap();
    let (inverted, back): (_, Points) = match sampler.form(process).unwrap() {
        Form::Attenuation(adm) => {
            let oracle = Oracle::new(mixture, adm);
            let (inverted, back) = sampler.round_trip(&AttenuationProblem::new(&oracle, adm), &times, &x0).unwrap();
            (inverted.x_t, back.x0)
        }
        Form::Gaussian(gaussian) => {
            let oracle = GaussianOracle { mixture, process: gaussian };
            let (inverted, back) = sampler.round_trip(&GaussianProblem::new(&oracle, gaussian), &times, &x0).unwrap();
            (inverted.x_t, back.x0)
        }
        Form::Velocity(_) => unreachable!("cld has no invertible sampler"),
    };
    assert!(inverted.data.iter().all(|v| v.is_finite()), "{} {}", process.name(), sampler.name());
    let squares: f64 = back.data.iter().zip(&x0.data).map(|(a, b)| (a - b).powi(2)).sum();
    (squares / x0.data.len() as f64).sqrt()
}

/// On the exact denoisers of a mixture, twice the steps divide the error of a round trip by 2 to the sampler's order.
#[test]
fn a_round_trip_has_the_order_of_its_sampler() {
    let attenuations = NoiseScale::ALL.iter().map(|&noise| Process::from(Adm::new(Attenuation::Constant, noise)));
    let others = Process::all().into_iter().filter(|p| ["flow", "edm", "vp", "ve"].contains(&p.name()));
    let linear = Process::from(Adm::new(Attenuation::Linear, NoiseScale::Sqrt));
    for process in attenuations.chain([linear]).chain(others) {
        let samplers = Sampler::invertible(&process);
        assert!(samplers.iter().any(|s| s.order() == 1) && samplers.iter().any(|s| s.order() == 2), "{process:?}");
        for sampler in samplers {
            // Grids whose last step becomes shorter with their number; EDM's own one ends at little noise at any number.
            let grid = match process.name() {
                "adm" => GridKind::UniformSqrt,
                "edm" => sampler.grid(&process, &GridKind::Auto),
                _ => GridKind::UniformT,
            };
            let [few, many] = [40, 160].map(|steps| round_trip_error(&process, sampler, &grid, steps));
            let (order, wanted) = ((few / many).log2() / 2.0, f64::from(sampler.order()));
            assert!(order > wanted - 0.35, "{} {}: {few} {many}, order {order}", process.name(), sampler.name());
            assert!(many < if wanted == 1.0 { 0.03 } else { 1e-3 }, "{} {}: {many}", process.name(), sampler.name());
        }
    }
}

/// A network of 8x8 pixels, trained for two steps.
fn trained(sets: &[&str], dir: &Path) -> Checkpoint {
    let network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        decoders: Decoders::One,
        ..UNetConfig::default()
    };
    let data = DataConfig::Procedural { seed: 1, len: 8 };
    let mut config = RunConfig { seed: 3, network: network.into(), data, ..RunConfig::default() };
    (config.train.steps, config.train.batch, config.optim.warmup) = (2, 4, 1);
    let config = config.with_overrides(sets).unwrap();
    train(&config, &RunDir(dir.into()), &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
    Checkpoint::open(&checkpoint::newest(dir).unwrap()).unwrap()
}

fn picture(side: usize) -> Image {
    DataConfig::Procedural { seed: 9, len: 4 }.open(side, 3).unwrap().get(2).unwrap()
}

fn pipeline(checkpoint: &Checkpoint, sample: &SampleConfig) -> Pipeline {
    Pipeline::open(checkpoint, Weights::Model, sample, &Device::flex()).unwrap()
}

/// Variation `k` of a picture, as the bytes of its file.
fn edited(pipeline: &Pipeline, image: &Image, strength: f64, k: u64, threads: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.png");
    let options = Options { window: Some(8), ..Options::default() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let apply = || {
        let model = pipeline.edit_model(strength, 5, image.width != 8).unwrap();
        let application = Application { task: &TaskConfig::default(), model: &model, options: &options, texts: &[] };
        application.run(&Image16::from_image(image), None, k, &file, &mut |_, _| ()).unwrap()
    };
    let applied = pool.install(apply);
    assert_eq!((applied.width, applied.height), (image.width, image.height));
    std::fs::read(&file).unwrap()
}

fn pixels(png: &[u8]) -> Vec<u8> {
    Image::decode(png, "edited").unwrap().pixels
}

/// For every kind of process, also one whose attenuation has a drawn part, and one whose times are discrete.
#[test]
fn strength_goes_from_the_picture_to_a_sample() {
    let kinds: [&[&str]; 6] = [
        &["process.kind=adm"],
        &["process.kind=adm", "process.attenuation=linear", "network.decoders=two"],
        &["process.kind=flow"],
        &["process.kind=edm"],
        &["process.kind=vp"],
        &["process.kind=ddpm", "sample.sampler=ddim"],
    ];
    for sets in kinds {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(sets, dir.path());
        let pipeline = pipeline(&checkpoint, &SampleConfig { steps: 6, ..checkpoint.config.sample.clone() });
        let image = picture(8);
        assert_eq!(pixels(&edited(&pipeline, &image, 0.0, 0, 1)), image.pixels, "{sets:?}: strength 0");
        let sampled = pipeline.images(5, 3..4).unwrap().remove(0);
        assert_eq!(pixels(&edited(&pipeline, &image, 1.0, 3, 1)), sampled.pixels, "{sets:?}: strength 1");
        let half = edited(&pipeline, &image, 0.5, 0, 1);
        assert_eq!(half, edited(&pipeline, &image, 0.5, 0, 2), "{sets:?}: threads");
        assert_ne!(half, edited(&pipeline, &image, 0.5, 1, 1), "{sets:?}: another variation");
        // Of 6 steps, half are 3, and 0.6 are 3 as well.
        assert_eq!(half, edited(&pipeline, &image, 0.6, 0, 1), "{sets:?}: whole steps");
        assert_eq!(pipeline.edit_model(0.99, 0, false).unwrap().steps(), 5);
        // Tiles of a larger picture, with the noise of their place.
        let large = Image::new(19, 11, 3, picture(19).pixels[..19 * 11 * 3].to_vec());
        assert_eq!(edited(&pipeline, &large, 0.5, 0, 1), edited(&pipeline, &large, 0.5, 0, 2), "{sets:?}: tiles");
        assert_eq!(pixels(&edited(&pipeline, &large, 0.0, 0, 1)), large.pixels);
    }
}

#[test]
fn a_network_inverts_a_picture_and_interpolates() {
    for sets in
        [["process.kind=adm"], ["process.kind=flow"], ["process.kind=edm"], ["process.kind=ve"], ["process.kind=ddpm"]]
    {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(&sets, dir.path());
        let sampler = Sampler::inverting(&checkpoint.config.process).unwrap();
        let settings = SampleConfig { sampler, steps: 40, clip: 0.0, ..SampleConfig::default() };
        let pipeline = pipeline(&checkpoint, &settings);
        let image = picture(8);
        let noise = pipeline.invert(&Planes::from_image(&image), 5).unwrap();
        let back = pipeline.sample_noise(&noise.values, 5).unwrap();
        let back = pipeline.decode(back.x0.0).remove(0);
        assert!(image.psnr(&back) > 30.0, "{sets:?}: {} dB", image.psnr(&back));
        let other = pipeline.invert(&Planes::from_image(&picture(8).flip()), 5).unwrap();
        let (line, _) = pipeline.between(&noise, &other, &[0.0, 0.5, 1.0], 5).unwrap();
        assert_eq!(line[0], back, "{sets:?}: the first of the line is the picture");
        assert!(line[1] != line[0] && line[1] != line[2]);
        assert!(to_host(noise.values.0).iter().all(|v| v.is_finite()));
    }
}

#[test]
fn what_cannot_be_edited_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(&[], &dir.path().join("adm"));
    let plain = pipeline(&checkpoint, &SampleConfig { steps: 5, ..SampleConfig::default() });
    let error = plain.fitted(&picture(12), None).unwrap_err().to_string();
    assert!(error.contains("12x12") && error.contains("8x8") && error.contains("--fit crop"), "{error}");
    assert_eq!(plain.fitted(&picture(12), Some(Fit::Crop)).unwrap().width, 8);
    let refused = |result: crossfade::Result<()>| result.unwrap_err().to_string();
    let error = refused(plain.edit_model(0.1, 0, false).map(|_| ()));
    assert!(error.contains("less than one of 5 steps"), "{error}");
    assert!(refused(plain.edit_model(1.5, 0, false).map(|_| ())).contains("from 0 to 1"));
    // Its default sampler is a multistep one.
    let error = refused(plain.invert(&Planes::from_image(&picture(8)), 0).map(|_| ()));
    assert!(error.contains("midpoint") && error.contains("first-order") && !error.contains("ab2"), "{error}");
    let class = pipeline(&checkpoint, &SampleConfig { class: "cat".into(), ..SampleConfig::default() });
    assert!(refused(class.edit_model(0.5, 0, false).map(|_| ())).contains("without classes"));
    let checkpoint = trained(&["process.kind=cld"], &dir.path().join("cld"));
    let cld = pipeline(&checkpoint, &SampleConfig::default());
    assert!(refused(cld.edit_model(0.5, 0, false).map(|_| ())).contains("velocity"));
    assert_eq!(Sampler::inverting(cld.process()), None);
}

/// A picture of 19x11 pixels with transparency.
fn transparent(path: &Path) {
    let format = Format { width: 19, height: 11, channels: 3, alpha: true, deep: false };
    write_rows(path, format, &[], |rows| {
        for y in 0..11 {
            let row: Vec<f32> = (0..19 * 3).map(|i| (i * (y + 2) % 17) as f32 / 8.5 - 1.0).collect();
            let shares: Vec<f32> = (0..19).map(|x| (x + y) as f32 / 29.0).collect();
            rows.row(&row, Some(&shares)).unwrap();
        }
        Ok(())
    })
    .unwrap();
}

/// An edited file is made again, byte for byte, from its recipe, the checkpoint and the pictures; others are refused.
#[test]
fn an_edit_is_made_again_from_its_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let sets = ["network.classes=6", "train.label_dropout=0.3", "process.kind=flow"];
    let checkpoint = trained(&sets, &at("run"));
    transparent(&at("alpha.png"));
    for (name, image) in [("a.png", picture(8)), ("b.png", picture(8).flip())] {
        std::fs::write(at(name), image.encode_png(&[]).unwrap()).unwrap();
    }
    let [a, b, alpha] = ["a.png", "b.png", "alpha.png"].map(|name| Source::read(&at(name)).unwrap());
    let sample = SampleConfig { class: "sea".into(), guidance: 1.5, steps: 6, ..checkpoint.config.sample.clone() };
    let change = pipeline(&checkpoint, &sample);
    let random = pipeline(&checkpoint, &SampleConfig { class: "random".into(), ..sample.clone() });
    let invert = pipeline(&checkpoint, &SampleConfig { sampler: Sampler::Heun, eta: 0.0, ..sample });
    let recipe = |pipeline: &Pipeline, source: &Source, fit: Option<Fit>, edit: Edit, index: u64| {
        EditRecipe::new(&checkpoint, Weights::Model, pipeline, (source, fit), edit, (5, index)).unwrap()
    };
    // Tiles with transparency, a fitted picture, a drawn class, a round trip, a place between two pictures.
    let tiled = recipe(&change, &alpha, None, Edit::Strength(0.5), 2);
    change.change(&alpha, &tiled, &at("tiled.png")).unwrap();
    let fitted = recipe(&change, &alpha, Some(Fit::Crop), Edit::Strength(0.5), 0);
    change.change(&alpha, &fitted, &at("fitted.png")).unwrap();
    let drawn = recipe(&random, &a, None, Edit::Strength(0.7), 3);
    random.change(&a, &drawn, &at("drawn.png")).unwrap();
    assert!(checkpoint.class_names.contains(&drawn.sample.class), "the recipe names the class: {}", drawn.sample.class);
    let trip = recipe(&invert, &a, None, Edit::Invert, 0);
    let image = invert.round_trip(&a.fitted(&invert, None).unwrap(), 5).unwrap().image;
    std::fs::write(at("trip.png"), trip.png(&image).unwrap()).unwrap();
    let line = recipe(&invert, &a, None, Edit::Between { to: b.recipe.clone(), share: 0.25 }, 0);
    let noises =
        [&a, &b].map(|source| invert.invert(&Planes::from_image(&source.fitted(&invert, None).unwrap()), 5).unwrap());
    let (images, _) = invert.between(&noises[0], &noises[1], &[0.0, 0.25, 1.0], 5).unwrap();
    std::fs::write(at("line.png"), line.png(&images[1]).unwrap()).unwrap();

    let again = |name: &str, inputs: &[PathBuf]| {
        reproduce_edit(&at(name), Some(&checkpoint.path), None, inputs, &Device::flex()).map(Option::unwrap)
    };
    for name in ["tiled.png", "fitted.png", "drawn.png", "trip.png", "line.png"] {
        // The pictures are found beside the results.
        assert!(again(name, &[]).unwrap().identical, "{name}");
    }
    // Transparency is kept.
    let [before, after] = ["alpha.png", "tiled.png"].map(|name| Image16::read(&at(name)).unwrap());
    assert!(before.alpha.is_some() && before.alpha == after.alpha && before.values != after.values);
    let error = again("trip.png", &[at("b.png")]).unwrap_err().to_string();
    assert!(error.contains("b.png") && error.contains("not the picture that was edited"), "{error}");
    std::fs::create_dir_all(at("far/away/from/it")).unwrap();
    let moved = at("far/away/from/it/line.png");
    std::fs::copy(at("line.png"), &moved).unwrap();
    let error = reproduce_edit(&moved, Some(&checkpoint.path), None, &[], &Device::flex()).unwrap_err().to_string();
    assert!(error.contains("--input") && error.contains("a.png"), "{error}");
    assert!(reproduce_edit(&at("a.png"), None, None, &[], &Device::flex()).unwrap().is_none(), "not an edit");
}

/// A class and guidance change the result, and it does not depend on the threads.
#[test]
fn classes_and_guides_edit() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(&["network.classes=6", "train.checkpoint_every=1", "train.keep=9"], dir.path());
    let with = |class: &str, guidance: f64| {
        let sample = SampleConfig { class: class.into(), guidance, steps: 6, ..checkpoint.config.sample.clone() };
        pipeline(&checkpoint, &sample)
    };
    let image = picture(8);
    let sea = edited(&with("sea", 1.0), &image, 0.6, 0, 1);
    assert_eq!(sea, edited(&with("sea", 1.0), &image, 0.6, 0, 2));
    assert_ne!(pixels(&sea), pixels(&edited(&with("rose", 1.0), &image, 0.6, 0, 1)));
    let guided = edited(&with("sea", 2.0), &image, 0.6, 0, 1);
    assert_ne!(pixels(&sea), pixels(&guided));
    let early = checkpoint::list(&dir.path().join("checkpoints")).unwrap()[0].1.clone();
    let auto = with("sea", 2.0).guided_by(&Checkpoint::open(&early).unwrap(), Weights::Model).unwrap();
    let auto = [1, 2].map(|threads| edited(&auto, &image, 0.6, 0, threads));
    assert!(auto[0] == auto[1] && pixels(&auto[0]) != pixels(&guided));
    // Noise belongs to a picture and its class.
    let midpoint = |class: &str| SampleConfig {
        sampler: Sampler::Midpoint,
        class: class.into(),
        ..checkpoint.config.sample.clone()
    };
    let error =
        pipeline(&checkpoint, &midpoint("random")).invert(&Planes::from_image(&image), 0).err().unwrap().to_string();
    assert!(error.contains("give a class"), "{error}");
    assert!(pipeline(&checkpoint, &midpoint("sea")).invert(&Planes::from_image(&image), 0).is_ok());
}
