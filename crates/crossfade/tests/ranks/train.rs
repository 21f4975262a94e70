//! Training: the bytes are those of one process, for any number of ranks, and a rank that fails stops all of them.
use super::on_ranks;
use crossfade::checkpoint;
use crossfade::config::{AutoencoderRun, RunConfig};
use crossfade::engine::Device;
use crossfade::train::{RunDir, train, train_autoencoder};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Three micro-batches a step, which two ranks share unevenly.
const TRAIN: &str = "[train]\nsteps = 4\nbatch = 2\naccumulate = 3\ncheckpoint_every = 2\nlog_every = 1\nsample_every = 4\n\
                     loader_threads = 1\n[sample]\nsteps = 2\n";
const UNET: &str = "[network]\nresolution = 8\nwidth = 16\nmult = [1, 2]\nblocks = 1\nattention = []\ndropout = 0.1\n";
const DATA: &str = "[data]\nkind = \"procedural\"\nlen = 40\n[optim]\nwarmup = 2\nema_after = 1\nema_every = 1\n";

pub fn diffusion(extra: &str) -> RunConfig {
    RunConfig::parse(&format!("{UNET}{DATA}{TRAIN}{extra}"), "test").unwrap()
}

/// A network with batch normalisations, whose running statistics depend on the order of the micro-batches.
pub fn conditional() -> RunConfig {
    let network = "[network]\nkind = \"cond-unet\"\nchannels = 3\ncondition_channels = 4\nwidth = 16\nmult = [1, 2]\nheads = 1\n\
                   encoder = { kind = \"unet\", width = 16, stride = 2 }\ncondition_windows = [[4, 4], [2, 2]]\n\
                   feature_windows = [[4, 4], [2, 2]]\n[task]\nkind = \"inpainting\"\nsize = 16\nmask_channel = true\n";
    RunConfig::parse(&format!("{network}{DATA}{TRAIN}"), "test").unwrap()
}

pub fn autoencoder() -> AutoencoderRun {
    let network = "[autoencoder]\nresolution = 16\nchannels = 3\nwidth = 32\nmult = [1, 1]\nblocks = 1\n\
                   [loss]\nperceptual = 0.0\ndisc_start = 1\ndisc_width = 8\ndisc_depth = 2\n";
    let train = TRAIN.split("[sample]").next().unwrap();
    AutoencoderRun::parse(&format!("{network}{DATA}{train}"), "test").unwrap()
}

/// A training in a directory: resumed or not, with the steps after which it is stopped.
type Fit<'a> = &'a (dyn Fn(&Path, bool, u64) -> crossfade::Result<()> + Sync);

pub fn fit(config: &RunConfig, dir: &Path, resume: bool, last: u64) -> crossfade::Result<()> {
    let stop = AtomicBool::new(false);
    let run = RunDir(dir.to_path_buf());
    let mut report = |step: &crossfade::train::StepReport| stop.store(step.step >= last, Ordering::Relaxed);
    train(config, &run, &Device::flex(), resume, &stop, &mut report).map(|_| ())
}

pub fn fit_autoencoder(config: &AutoencoderRun, dir: &Path, resume: bool, last: u64) -> crossfade::Result<()> {
    let stop = AtomicBool::new(false);
    let mut hear = |event: crossfade::train::Event| {
        if let crossfade::train::Event::Step(step) = event {
            stop.store(step.step >= last, Ordering::Relaxed);
        }
    };
    train_autoencoder(config, &RunDir(dir.to_path_buf()), &Device::flex(), resume, &stop, &mut hear).map(|_| ())
}

/// All files of the checkpoints, in the order of the steps.
fn checkpoints(dir: &Path) -> Vec<Vec<u8>> {
    let found = checkpoint::list(&dir.join("checkpoints")).unwrap();
    found.iter().map(|(_, path)| std::fs::read(path).unwrap()).collect()
}

fn bytes_do_not_depend_on_ranks(train: Fit) {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("alone");
    train(&alone, false, u64::MAX).unwrap();
    let wanted = checkpoints(&alone);
    assert_eq!(wanted.len(), 2);
    for size in [2, 3, 4] {
        let run = dir.path().join(size.to_string());
        on_ranks(size, |_| train(&run, false, u64::MAX).unwrap());
        assert!(checkpoints(&run) == wanted, "{size} ranks make other bytes");
        let log = |run: &Path| {
            let text = std::fs::read_to_string(run.join("log.jsonl")).unwrap();
            let strip = |line: &str| line.split(",\"images_per_second\"").next().unwrap().to_string();
            text.lines().map(strip).collect::<Vec<_>>()
        };
        assert_eq!(log(&run), log(&alone), "{size} ranks log other losses");
    }
    // Stopped on four ranks after three steps, which no interval saves, and resumed on two.
    let run = dir.path().join("resumed");
    on_ranks(4, |_| train(&run, false, 3).unwrap());
    on_ranks(2, |_| train(&run, true, u64::MAX).unwrap());
    assert!(checkpoints(&run).pop() == wanted.last().cloned(), "a resumed run makes other bytes");
}

#[test]
fn diffusion_has_the_bytes_of_one_process() {
    let config = diffusion("");
    bytes_do_not_depend_on_ranks(&|dir, resume, last| fit(&config, dir, resume, last));
}

#[test]
fn augmented_images_and_further_averages_have_the_bytes_of_one_process() {
    let mut config = diffusion("");
    config.train.augment = 0.5;
    config.network.as_unet_mut().unwrap().augment_dim = 9;
    config.optim.ema_profiles = vec![0.05, 0.1];
    bytes_do_not_depend_on_ranks(&|dir, resume, last| fit(&config, dir, resume, last));
}

#[test]
fn a_flow_has_the_bytes_of_one_process() {
    let config = diffusion("[process]\nkind = \"flow\"\n");
    bytes_do_not_depend_on_ranks(&|dir, resume, last| fit(&config, dir, resume, last));
}

#[test]
fn a_task_has_the_bytes_of_one_process() {
    let config = conditional();
    bytes_do_not_depend_on_ranks(&|dir, resume, last| fit(&config, dir, resume, last));
}

#[test]
fn an_autoencoder_has_the_bytes_of_one_process() {
    let config = autoencoder();
    bytes_do_not_depend_on_ranks(&|dir, resume, last| fit_autoencoder(&config, dir, resume, last));
}

/// Another configuration on one rank is found before the first step.
#[test]
fn ranks_that_disagree_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let results = on_ranks(2, |group| {
        let mut config = diffusion("");
        config.train.batch += group.rank();
        fit(&config, dir.path(), false, u64::MAX)
    });
    for result in results {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("the configuration of rank"), "{message}");
    }
    assert!(!dir.path().join("log.jsonl").exists());
}

/// A rank that cannot go on stops the others with its reason; they do not wait for it.
#[test]
fn a_rank_that_fails_stops_the_others_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    // Only the first rank writes the log.
    std::fs::create_dir(dir.path().join("log.jsonl")).unwrap();
    let config = diffusion("");
    let messages = on_ranks(3, |_| fit(&config, dir.path(), false, u64::MAX).unwrap_err().to_string());
    for message in &messages[1..] {
        assert!(message.starts_with("rank 0 has failed") && message.contains("log.jsonl"), "{message}");
    }
}

/// Only the first rank has a micro-batch, so that only its loss is not a number; the others get its number and reason.
#[test]
fn a_training_that_diverges_stops_all_ranks_with_the_one_and_its_reason() {
    let diverging = |train: &mut crossfade::config::TrainConfig, optim: &mut crossfade::config::OptimConfig| {
        (train.accumulate, train.steps) = (1, 50);
        (optim.lr, optim.clip, optim.warmup) = (1e30, 0.0, 0);
    };
    let (mut network, mut first_stage) = (diffusion(""), autoencoder());
    diverging(&mut network.train, &mut network.optim);
    diverging(&mut first_stage.train, &mut first_stage.optim);
    let fits: [Fit; 2] = [&|dir, resume, last| fit(&network, dir, resume, last), &|dir, resume, last| {
        fit_autoencoder(&first_stage, dir, resume, last)
    }];
    for fit in fits {
        let dir = tempfile::tempdir().unwrap();
        let messages = on_ranks(3, |_| fit(dir.path(), false, u64::MAX).unwrap_err().to_string());
        assert!(messages[0].starts_with("step ") && messages[0].contains("not finite"), "{}", messages[0]);
        for message in &messages[1..] {
            assert_eq!(*message, format!("rank 0 has failed: {}", messages[0]));
        }
    }
}

/// What is sent in a step is what docs/SCALING.md says, to the byte.
#[test]
fn bytes_sent_are_those_of_the_model() {
    for (ranks, micro_batches) in [(2, 3), (3, 3), (4, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = diffusion("");
        (config.train.accumulate, config.train.checkpoint_every, config.train.sample_every) =
            (micro_batches, 1000, 1000);
        let sent = on_ranks(ranks, |group| {
            let run = RunDir(dir.path().to_path_buf());
            let (mut seen, never) = (vec![], AtomicBool::new(false));
            let steps = &mut |_: &crossfade::train::StepReport| seen.push(group.bytes_sent());
            train(&config, &run, &Device::flex(), false, &never, steps).unwrap();
            seen
        });
        let file = checkpoint::newest(dir.path()).unwrap();
        let tensors = crossfade::Checkpoint::open(&file).unwrap().read().unwrap();
        let sizes = tensors.iter().filter(|(name, _)| name.starts_with("model.")).map(|(_, (_, values))| values.len());
        let mut sizes: Vec<usize> = sizes.collect();
        let mean = tensors.get("mean_x0").map_or(0, |(_, values)| values.len());
        // The largest parameter goes to the rank that has the least.
        let mut owned = vec![0; ranks];
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        for size in &sizes {
            *owned.iter_mut().min_by_key(|load| **load).unwrap() += size;
        }
        let (rounds, own) = (micro_batches.div_ceil(ranks), micro_batches.div_ceil(ranks));
        let to = |other: usize| {
            let gradients = rounds + own * (8 + 8 + 8 + 8 * mean + 16 + 8 + 4 * owned[other]);
            let (norm, weights, stop) = (9 + 8 * sizes.len(), 9 + 4 * owned[0], 2);
            gradients + norm + weights + stop
        };
        let expected: usize = (1..ranks).map(to).sum();
        // Only rank 0 reports.
        assert_eq!((sent[0][2] - sent[0][1]) as usize, expected, "{ranks} ranks, {micro_batches} micro-batches");
    }
}
