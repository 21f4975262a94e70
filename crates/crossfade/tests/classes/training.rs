//! Training with classes.
use super::{failure, fit, small, small_of};
use crossfade::checkpoint::{self, Checkpoint};
use crossfade::data::DataConfig;
use crossfade::engine::Device;
use crossfade::train::{RunDir, drops_label, train};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_resumed_run_with_classes_ends_with_the_same_bytes() {
    let config = small();
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = fit(&config, whole.path(), false);
    let stop = AtomicBool::new(false);
    let dir = RunDir(parts.path().to_path_buf());
    train(&config, &dir, &Device::flex(), false, &stop, &mut |r| stop.store(r.step == 3, Ordering::Relaxed)).unwrap();
    let two = fit(&config, parts.path(), true);
    assert!(std::fs::read(&one.path).unwrap() == std::fs::read(&two.path).unwrap());
    assert_eq!(one.class_names, ["sunset", "sea", "forest", "clay", "night", "rose"]);
    let label = &one.read().unwrap()["model.map_label.weight"];
    assert_eq!(label.0, [16, 6]);
}

/// The initial weights of a network do not depend on its classes, and one without classes has none of their parameters.
#[test]
fn classes_add_one_matrix_and_change_no_other_weight() {
    let (with, mut without) = (small(), small());
    without.network.as_unet_mut().unwrap().classes = 0;
    without.train.label_dropout = 0.1;
    let weights = |config: &crossfade::RunConfig| {
        let network = config.network.init(config.ports(), config.seed, &Device::flex());
        crossfade::nn::weights::collect(&network)
    };
    let (with, plain) = (weights(&with), weights(&without));
    assert_eq!(with.len(), plain.len() + 1);
    assert!(plain.iter().all(|tensor| with.contains(tensor) && !tensor.0.contains("label")));
    // Nor is anything about classes written for such a network.
    let text = without.to_toml().unwrap();
    assert!(!text.contains("class") && !text.contains("label") && !text.contains("guidance"), "{text}");
}

#[test]
fn labels_are_dropped_as_often_as_asked_for_every_sample_on_its_own() {
    for probability in [0.0, 0.1, 0.5, 1.0] {
        let dropped = (0..20_000).filter(|&k| drops_label(7, k, probability)).count() as f64 / 20_000.0;
        assert!((dropped - probability).abs() < 0.01, "{probability}: {dropped}");
    }
    assert_eq!((0..50).map(|k| drops_label(1, k, 0.5)).collect::<Vec<_>>(), {
        (0..50).map(|k| drops_label(1, k, 0.5)).collect::<Vec<_>>()
    });
    assert!((0..50).any(|k| drops_label(1, k, 0.5) != drops_label(2, k, 0.5)));
}

/// The network is told the classes: with other labels of the same images its weights are others.
#[test]
fn labels_reach_the_network_unless_all_are_dropped() {
    let weights = |classes: bool, dropout: f64| {
        let (mut config, dir) = (small(), tempfile::tempdir().unwrap());
        (config.train.label_dropout, config.train.steps) = (dropout, 2);
        if !classes {
            config.network.as_unet_mut().unwrap().classes = 0;
            config.train.label_dropout = 0.1;
        }
        fit(&config, dir.path(), false).read().unwrap()["model.map_layer0.weight"].clone()
    };
    let never = weights(true, 1.0);
    assert!(never == weights(false, 0.1), "no class is the zero vector");
    assert!(never != weights(true, 0.0));
}

#[test]
fn data_that_does_not_fit_is_refused_with_the_right_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small();
    config.network.as_unet_mut().unwrap().classes = 4;
    let error = failure(&config, &dir.path().join("run"));
    assert!(error.contains("network.classes = 6"), "{error}");
    let images = dir.path().join("images");
    std::fs::create_dir(&images).unwrap();
    let picture = crossfade::data::Image::new(8, 8, 3, vec![5; 192]).encode_png(&[]).unwrap();
    std::fs::write(images.join("a.png"), picture).unwrap();
    config.data = DataConfig::Folder { path: images, fit: Default::default(), filter: Default::default() };
    let error = failure(&config, &dir.path().join("run"));
    assert!(error.contains("has no labels") && error.contains("dataset.json"), "{error}");
}

#[test]
fn options_for_classes_need_classes() {
    let mut config = small();
    config.network.as_unet_mut().unwrap().classes = 0;
    config.sample.class = "night".into();
    let error = config.validate().err().unwrap().to_string();
    assert!(error.contains("train.label_dropout") && error.contains("sample.class"), "{error}");
    let sets = ["sample.guidance=-1", "sample.guidance_interval=[0.8, 0.2]", "train.label_dropout=2"];
    let error = small().with_overrides(&sets).err().unwrap().to_string();
    assert!(sets.iter().all(|set| error.contains(set)), "{error}");
    let error = small().with_overrides(&["sample.guidance_interval=[0.2, 0.8]"]).err().unwrap().to_string();
    assert!(error.contains("guidance is 1"), "{error}");
    assert!(small().with_overrides(&["sample.guidance=2", "sample.guidance_interval=[0.2, 0.8]"]).is_ok());
}

#[test]
fn other_names_of_classes_are_not_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    let picture = crossfade::data::Image::new(8, 8, 3, vec![5; 192]).encode_png(&[]).unwrap();
    for class in ["a", "b"] {
        std::fs::create_dir_all(images.join(class)).unwrap();
        std::fs::write(images.join(class).join("x.png"), &picture).unwrap();
    }
    let mut config = small_of("adm");
    config.network.as_unet_mut().unwrap().classes = 2;
    config.data = DataConfig::Folder { path: images.clone(), fit: Default::default(), filter: Default::default() };
    let run = dir.path().join("run");
    fit(&config, &run, false);
    let (_, path) = checkpoint::list(&run.join("checkpoints")).unwrap().pop().unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().class_names, ["a", "b"]);
    std::fs::rename(images.join("a"), images.join("c")).unwrap();
    let stop = AtomicBool::new(false);
    let again = train(&config, &RunDir(run), &Device::flex(), true, &stop, &mut |_| ());
    let error = again.err().unwrap().to_string();
    assert!(error.contains("\"c\"") && error.contains("\"a\""), "{error}");
}
