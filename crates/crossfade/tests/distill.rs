//! Distillation (§2.9): exact targets in closed form, students that learn, resume to the bit and sample with their own steps.
#![allow(clippy::unwrap_used)]
use crossfade::checkpoint::{self, Checkpoint, Weights};
use crossfade::config::{AutoencoderRun, LatentConfig, RunConfig, SampleConfig};
use crossfade::engine::{Device, to_host};
use crossfade::generate::{Pipeline, StartNoise};
use crossfade::latent::Latent;
use crossfade::loss::AutoencoderLoss;
use crossfade::math::process::Edm;
use crossfade::math::{
    Adm, Attenuation, Blend, Coef, Gaussian, GaussianFn, Grid, GridKind, NoiseScale, Precond, Prediction, Process,
};
use crossfade::nn::condition::EncoderConfig;
use crossfade::nn::{AutoencoderConfig, CondUNetConfig, Decoders, UNetConfig};
use crossfade::sample::gaussian::{Denoise, GaussianProblem};
use crossfade::sample::{Hooks, Sampler, student_target};
use crossfade::task::{LowAs, SuperResolution, TaskConfig};
use crossfade::train::{
    DistillRequest, Distillation, RunDir, Stage, StageSummary, StepReport, train, train_autoencoder,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A denoiser of single numbers, as a function of (x_t, t).
struct Oracle<'a> {
    process: Gaussian,
    x0: &'a dyn Fn(f64, f64) -> f64,
}

impl Denoise<f64> for Oracle<'_> {
    fn denoise(&self, x_t: &f64, t: f64) -> crossfade::Result<Prediction<f64>> {
        Ok(self.process.prediction_of_x0(x_t, (self.x0)(*x_t, t), t))
    }
}

/// What the sampler of distillation makes of x at the first of `times`.
fn sampled(process: Gaussian, x0: &dyn Fn(f64, f64) -> f64, times: &[f64], x: f64) -> f64 {
    let oracle = Oracle { process, x0 };
    let mut hooks = Hooks { noise: &mut |_| panic!("it is deterministic"), observe: &mut |_| () };
    Sampler::Ddim.run(&GaussianProblem::new(&oracle, process), times, x, &mut hooks).unwrap().x0
}

/// x̂_0 that a student learns from the teacher `x0` on the teacher's times `path`.
fn target(process: Gaussian, x0: &dyn Fn(f64, f64) -> f64, path: &[f64], x: f64) -> Prediction<f64> {
    let path: Vec<Coef> = path.iter().map(|&t| t.into()).collect();
    student_target(&process, &x, &path, &mut |x, t| Ok(process.prediction_of_x0(x, x0(*x, t.same()), t.clone())))
        .unwrap()
}

fn times(process: Gaussian, kind: GridKind, steps: usize) -> Vec<f64> {
    Grid { kind, final_t: None }.times_on(&process, steps).unwrap()
}

/// For normal data the denoiser is x̂_0 = g_t x_t, a step multiplies x_t by α_s g_t + σ_s (1 − α_t g_t)/σ_t, and the student of
/// two steps is linear too, with a gain in closed form.
#[test]
fn the_student_of_a_linear_teacher_has_the_gain_of_two_steps() {
    let std = 0.4;
    for process in Gaussian::all() {
        let (alpha, sigma) = (|t| process.alpha(t), |t| process.sigma(t));
        let gain = |t: f64| alpha(t) * std * std / ((alpha(t) * std).powi(2) + sigma(t).powi(2));
        let factor = |t: f64, s: f64| alpha(s) * gain(t) + sigma(s) * (1.0 - alpha(t) * gain(t)) / sigma(t);
        for kind in [GridKind::UniformT, GridKind::Images] {
            let all = times(process, kind, 8);
            let students: Vec<f64> = all.iter().copied().step_by(2).collect();
            let mut gains = vec![];
            for path in all.windows(3).step_by(2) {
                let [t, u, s] = [path[0], path[1], path[2]];
                let both = factor(t, u) * factor(u, s);
                let exact = (sigma(t) * both - sigma(s)) / (sigma(t) * alpha(s) - alpha(t) * sigma(s));
                let found = target(process, &|x, t| gain(t) * x, path, 1.7);
                let name = process.name();
                assert!((found.x0 - 1.7 * exact).abs() < 1e-9, "{name} {t}: {} {exact}", found.x0 / 1.7);
                assert!((alpha(t) * found.x0 + sigma(t) * found.eps - 1.7).abs() < 1e-9, "{name} {t}");
                gains.push(exact);
            }
            // Half as many steps of the student end where the teacher ends.
            let at = |t: f64| students.iter().position(|&own| own == t).unwrap();
            let student = sampled(process, &|x, t| gains[at(t)] * x, &students, 1.3);
            let teacher = sampled(process, &|x, t| gain(t) * x, &all, 1.3);
            assert!((student - teacher).abs() < 1e-9 * (1.0 + teacher.abs()), "{}", process.name());
        }
    }
}

/// With many steps of the teacher the target is that of the exact map x_s = x_t √(var(x_s)/var(x_t)) of normal data.
#[test]
fn the_target_for_normal_data_tends_to_the_exact_map() {
    let std: f64 = 0.5;
    for process in [Process::default(), Process::Edm(Edm::default())].map(|process| process.gaussian().unwrap()) {
        let variance = |t: f64| (process.alpha(t) * std).powi(2) + process.sigma(t).powi(2);
        let gain = |t: f64| process.alpha(t) * std * std / variance(t);
        let [t, s] = [2.0, 0.2].map(|ratio| process.time_of_ratio(ratio));
        let error = |steps: usize| {
            let at = |i: usize| (2.0f64.ln() + i as f64 / steps as f64 * (0.2f64.ln() - 2.0f64.ln())).exp();
            let path: Vec<f64> = (0..=steps).map(|i| process.time_of_ratio(at(i))).collect();
            let found = target(process, &|x, t| gain(t) * x, &path, 1.0);
            let x_s = process.alpha(s) * found.x0 + process.sigma(s) * found.eps;
            (x_s - (variance(s) / variance(t)).sqrt()).abs()
        };
        let (coarse, fine) = (error(32), error(64));
        assert!(fine < 0.02 && (1.8..2.2).contains(&(coarse / fine)), "{} {t}: {coarse} {fine}", process.name());
    }
}

/// Students of exact students: from eight steps to one, on data that is ±1, whose denoiser is not linear.
#[test]
fn halving_three_times_ends_where_eight_steps_end() {
    fn estimate(process: Gaussian, all: &[f64], stride: usize, x: f64, t: f64) -> f64 {
        if stride == 1 {
            return (process.alpha(t) * x / process.sigma(t).powi(2)).tanh();
        }
        let from = all.iter().position(|&own| own == t).unwrap();
        let path = [all[from], all[from + stride / 2], all[from + stride]];
        target(process, &|x, t| estimate(process, all, stride / 2, x, t), &path, x).x0
    }
    for process in Gaussian::all() {
        let all = times(process, GridKind::Images, 8);
        let x = 0.7 * process.sigma(1.0);
        let teacher = sampled(process, &|x, t| estimate(process, &all, 1, x, t), &all, x);
        for stride in [2, 4, 8] {
            let own: Vec<f64> = all.iter().copied().step_by(stride).collect();
            let student = sampled(process, &|x, t| estimate(process, &all, stride, x, t), &own, x);
            let name = process.name();
            assert!((student - teacher).abs() < 1e-7, "{name}, {} steps: {student} {teacher}", own.len() - 1);
        }
    }
}

/// A network that trains in moments.
fn small(process: Process) -> RunConfig {
    let decoders = if process.adm().is_some() { Decoders::Conv } else { Decoders::One };
    let network = UNetConfig {
        resolution: 8,
        width: 16,
        mult: vec![1, 2],
        blocks: 1,
        attention: vec![],
        ..UNetConfig::default()
    };
    let mut config =
        RunConfig { seed: 3, process, network: UNetConfig { decoders, ..network }.into(), ..RunConfig::default() };
    (config.train.steps, config.train.batch, config.train.log_every) = (40, 8, 1);
    config.train.checkpoint_every = 2;
    (config.optim.lr, config.optim.warmup, config.optim.ema_after) = (2e-3, 2, 1);
    (config.optim.ema_every, config.sample.steps) = (1, 8);
    config
}

fn velocity() -> Process {
    Adm { precond: Precond::Velocity, ..Adm::default() }.into()
}

fn teacher(config: &RunConfig, dir: &Path) -> Checkpoint {
    let run = RunDir(dir.join("teacher"));
    let done = train(config, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
    Checkpoint::open(&done.checkpoint).unwrap()
}

fn reopened(checkpoint: &Checkpoint) -> Checkpoint {
    Checkpoint::open(&checkpoint.path).unwrap()
}

fn request(to: &[usize], steps: u64) -> DistillRequest {
    DistillRequest { to: to.to_vec(), steps: Some(steps), ..DistillRequest::default() }
}

fn distil(plan: &Distillation, out: &Path, resume: bool) -> Vec<StageSummary> {
    plan.run(out, &Device::flex(), resume, &AtomicBool::new(false), &mut |_, _| ()).unwrap()
}

fn bytes(done: &StageSummary) -> Vec<u8> {
    std::fs::read(&done.summary.checkpoint).unwrap()
}

/// Samples of a checkpoint, in the space of its network.
fn samples(checkpoint: &Checkpoint, sample: &SampleConfig) -> (Vec<f32>, usize) {
    let pipeline = Pipeline::open(checkpoint, Weights::Ema, sample, &Device::flex()).unwrap();
    let starts: Vec<_> = (0..16).map(StartNoise::Index).collect();
    let made = pipeline.sample(5, &starts, &mut |_| ()).unwrap();
    (to_host(made.x0.0), made.nfe)
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>() / a.len() as f64
}

/// The students of a real network come closer to what it makes with eight steps than it comes itself with as few as they have:
/// with two and with one at least twice as close.
#[test]
fn students_learn_what_their_teacher_makes_with_more_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(velocity());
    (config.train.steps, config.sample.blend) = (150, Blend::Average);
    let teacher = teacher(&config, dir.path());
    let plan = Distillation::new(reopened(&teacher), &request(&[4, 2, 1], 150)).unwrap();
    let done = distil(&plan, &dir.path().join("students"), false);
    assert_eq!(done.iter().map(|stage| stage.sampling_steps).collect::<Vec<_>>(), [4, 2, 1]);
    let (many, _) = samples(&teacher, &plan.stages()[0].teacher);
    for (stage, done) in plan.stages().iter().zip(&done) {
        // The run directory is opened as the command line does.
        let student = Checkpoint::open(&checkpoint::newest(&done.run).unwrap()).unwrap();
        assert_eq!(student.config.sample, stage.sample);
        let (own, evaluations) = samples(&student, &student.config.sample);
        assert_eq!(evaluations, stage.steps, "the student's own number of steps");
        let (before, _) = samples(&teacher, &stage.sample);
        let (before, after) = (distance(&before, &many), distance(&own, &many));
        // With four steps the teacher is close to its eight steps already.
        let most = if stage.steps == 4 { before } else { 0.5 * before };
        assert!(after < most, "{} steps: {before} before, {after} after", stage.steps);
    }
}

/// A distillation that is stopped in the first stage, between stages and in the last one, and resumed, ends with the same bytes.
#[test]
fn a_resumed_distillation_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(velocity());
    config.train.accumulate = 2;
    config.train.augment = 0.5;
    config.network.as_unet_mut().unwrap().augment_dim = 9;
    config.train.steps = 6;
    let teacher = teacher(&config, dir.path());
    let plan = || Distillation::new(reopened(&teacher), &request(&[2, 1], 5)).unwrap();
    let whole = distil(&plan(), &dir.path().join("whole"), false);
    let parts = dir.path().join("parts");
    for (stage, after) in [(2, 3), (2, 5), (1, 1), (1, 4)] {
        let stop = AtomicBool::new(false);
        let mut note = |own: &Stage, step: &StepReport| {
            stop.store(own.steps == stage && step.step == after, Ordering::Relaxed);
        };
        let done = plan().run(&parts, &Device::flex(), (stage, after) != (2, 3), &stop, &mut note).unwrap();
        let stopped = done.iter().find(|done| done.sampling_steps == stage).unwrap();
        assert_eq!(stopped.summary.step, after);
    }
    let resumed = distil(&plan(), &parts, true);
    assert_eq!(resumed.len(), 2);
    for (whole, parts) in whole.iter().zip(&resumed) {
        assert!(bytes(whole) == bytes(parts), "{} steps differ", whole.sampling_steps);
    }
    // What is there is not overwritten, and not continued with another teacher or other options.
    let again = plan().run(&parts, &Device::flex(), false, &AtomicBool::new(false), &mut |_, _| ());
    assert!(again.err().unwrap().to_string().contains("--resume"));
    let other = DistillRequest { from: Some(8), ..request(&[2, 1], 5) };
    let other = Distillation::new(reopened(&teacher), &other).unwrap();
    let error = other.run(&parts, &Device::flex(), true, &AtomicBool::new(false), &mut |_, _| ()).err().unwrap();
    assert!(error.to_string().contains("distill.sample.steps"), "{error}");
    // A distilled network is not trained as if it were not.
    let student = Checkpoint::open(&resumed[0].summary.checkpoint).unwrap();
    let run = RunDir(parts.join("2"));
    let error =
        train(&student.config, &run, &Device::flex(), true, &AtomicBool::new(false), &mut |_| ()).err().unwrap();
    assert!(error.to_string().contains("crossfade distill"), "{error}");
    assert_eq!(RunConfig::parse(&student.config.to_toml().unwrap(), "x").unwrap(), student.config);
}

/// Every process of the form α_t x_0 + σ_t eps, with its own kind of network, noise scale and scalings.
#[test]
fn every_process_of_alpha_and_sigma_is_distilled() {
    let adm = [
        Adm::default(),
        Adm { noise: NoiseScale::Linear, ..Adm::default() },
        Adm { precond: Precond::Velocity, ..Adm::default() },
    ];
    let others = Process::all()
        .into_iter()
        .filter(|process| process.adm().is_none() && process.gaussian().is_some() && !process.needs_latents());
    for process in adm.map(Process::from).into_iter().chain(others) {
        let dir = tempfile::tempdir().unwrap();
        let mut config = small(process);
        if process.name() == "ddpm-x0" {
            config.network.as_unet_mut().unwrap().decoders = Decoders::Conv;
        }
        config.train.steps = 4;
        let teacher = teacher(&config, dir.path());
        for grid in [GridKind::Images, GridKind::UniformT] {
            let request = DistillRequest { grid: Some(grid.clone()), ..request(&[2, 1], 3) };
            let plan = Distillation::new(reopened(&teacher), &request).unwrap();
            let named = plan.stages()[0].sample.grid.kind.name();
            assert_eq!(named == "uniform-t", grid == GridKind::UniformT, "{named}");
            let done = distil(&plan, &dir.path().join(grid.name()), false);
            let student = Checkpoint::open(&done[1].summary.checkpoint).unwrap();
            assert_eq!(samples(&student, &student.config.sample).1, 1, "{}", process.name());
        }
    }
}

/// Guidance is distilled into the first student, which then needs one evaluation for each step. That the targets are guided
/// is tested where they are made, in `train/teacher.rs`.
#[test]
fn guidance_is_distilled_with_the_classes() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(velocity());
    config.network.as_unet_mut().unwrap().classes = 6;
    (config.train.steps, config.train.label_dropout) = (20, 0.2);
    let teacher = teacher(&config, dir.path());
    let student = |guidance: f64| {
        let request = DistillRequest { guidance: Some(guidance), from: Some(4), ..request(&[2, 1], 5) };
        let plan = Distillation::new(reopened(&teacher), &request).unwrap();
        let twice = samples(&teacher, &plan.stages()[0].teacher).1;
        assert_eq!(twice, if guidance == 1.0 { 4 } else { 8 });
        let done = distil(&plan, &dir.path().join(guidance.to_string()), false);
        done.iter().map(|done| Checkpoint::open(&done.summary.checkpoint).unwrap()).collect::<Vec<_>>()
    };
    let (plain, guided) = (student(1.0), student(3.0));
    for (number, (guided, plain)) in guided.iter().zip(&plain).enumerate() {
        assert_eq!(guided.class_names, teacher.class_names);
        assert!(guided.checksum != plain.checksum && guided.config.sample.guidance == 1.0);
        let distilled = guided.config.distill.as_ref().unwrap().sample.guidance;
        assert_eq!(distilled, if number == 0 { 3.0 } else { 1.0 }, "only the first teacher is guided");
        let of_classes = SampleConfig { class: "0,4".into(), ..guided.config.sample.clone() };
        assert_eq!(samples(guided, &of_classes).1, 2 - number, "one evaluation for each step");
    }
}

fn refusal(teacher: &Checkpoint, request: &DistillRequest) -> String {
    Distillation::new(reopened(teacher), request)
        .err()
        .map_or_else(|| panic!("{request:?} was accepted"), |e| e.to_string())
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(velocity());
    config.train.steps = 1;
    let plain = teacher(&config, dir.path());
    for to in [&[4, 3][..], &[2, 4], &[4, 4], &[4, 1], &[0], &[2, 1, 0], &[]] {
        let error = refusal(&plain, &request(to, 1));
        assert!(error.contains("half of the one before"), "{to:?}: {error}");
    }
    for from in [4, 6, 1] {
        let error = refusal(&plain, &DistillRequest { from: Some(from), ..request(&[4], 1) });
        assert!(error.contains("multiple") && error.contains("for example 8"), "{from}: {error}");
    }
    let error = refusal(&plain, &DistillRequest { guidance: Some(2.0), ..request(&[2], 1) });
    assert!(error.contains("without classes"), "{error}");
    let set = |set: &str| DistillRequest { sets: vec![set.into()], ..request(&[2], 1) };
    for (text, wanted) in [
        ("network.width=32", "network"),
        ("process.noise=linear", "process"),
        ("sample.sampler=ab2", "ddim"),
        ("sample.free_first_step=true", "free_first_step"),
        ("loss.weighting=reciprocal", "infinite"),
        ("train.stpes=3", "did you mean"),
    ] {
        let error = refusal(&plain, &set(text));
        assert!(error.contains(wanted), "{text}: {error}");
    }
    assert!(Distillation::new(reopened(&plain), &set("network.dropout=0.2")).is_ok());
    for process in [Process::Cld(Default::default()), Adm::new(Attenuation::Linear, NoiseScale::Sqrt).into()] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = small(process);
        (config.train.steps, config.network.as_unet_mut().unwrap().decoders) = (1, Decoders::Two);
        let error = refusal(&teacher(&config, dir.path()), &request(&[2], 1));
        assert!(error.contains("cannot be distilled") && error.contains("constant attenuation"), "{error}");
    }
    let mut config = small(velocity());
    config.network.as_unet_mut().unwrap().classes = 6;
    (config.train.steps, config.train.label_dropout) = (1, 0.0);
    let sure = tempfile::tempdir().unwrap();
    let error = refusal(&teacher(&config, sure.path()), &DistillRequest { guidance: Some(2.0), ..request(&[2], 1) });
    assert!(error.contains("label_dropout = 0"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the teacher");
}

/// A student teaches with its own steps and times only, and what it was taught stays in its configuration.
#[test]
fn a_student_teaches_on_its_own_times() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = small(velocity());
    config.train.steps = 2;
    let teacher = teacher(&config, dir.path());
    let plan = Distillation::new(reopened(&teacher), &request(&[4], 2)).unwrap();
    let done = distil(&plan, &dir.path().join("a"), false);
    let student = Checkpoint::open(&done[0].summary.checkpoint).unwrap();
    let next = Distillation::new(reopened(&student), &request(&[2, 1], 2)).unwrap();
    let process = config.process;
    let own = student.config.sample.times(&process).unwrap();
    assert_eq!(next.stages()[0].teacher.times(&process).unwrap(), own);
    assert_eq!(next.stages()[0].sample.times(&process).unwrap(), [own[0], own[2], 0.0]);
    for wrong in [
        DistillRequest { from: Some(8), ..request(&[2], 1) },
        DistillRequest { grid: Some(GridKind::UniformT), ..request(&[2], 1) },
    ] {
        let error = refusal(&student, &wrong);
        assert!(error.contains("distilled network of 4 steps"), "{error}");
    }
    let done = distil(&next, &dir.path().join("b"), false);
    let last = Checkpoint::open(&done[1].summary.checkpoint).unwrap();
    assert!(refusal(&last, &request(&[1], 1)).contains("nothing left to halve"));
    assert_eq!(last.config.sampler_for(Sampler::Auto), Sampler::Ddim);
    assert_eq!(last.config.grid_for(GridKind::Auto), last.config.sample.grid.kind);
    assert_eq!(teacher.config.sampler_for(Sampler::Auto), Sampler::Auto);
    // At t = 1 a student does not return the mean of the images, which its checkpoint therefore does not hold.
    let free = SampleConfig { free_first_step: true, ..last.config.sample.clone() };
    assert!(Pipeline::open(&last, Weights::Ema, &free, &Device::flex()).is_err());
    assert!(last.config.clone().with_overrides(&["sample.free_first_step=true"]).is_err());
}

/// On latents: the autoencoder and the scale of the latents are the teacher's, whose own files are not needed.
#[test]
fn latents_are_distilled() {
    let dir = tempfile::tempdir().unwrap();
    let stage = dir.path().join("ae");
    let mut ae = AutoencoderRun { seed: 5, ..AutoencoderRun::default() };
    ae.autoencoder =
        AutoencoderConfig { resolution: 16, width: 32, mult: vec![1, 1], blocks: 1, ..AutoencoderConfig::default() };
    ae.loss = AutoencoderLoss { perceptual: 0.0, disc_start: 5, disc_width: 8, disc_depth: 2, ..ae.loss };
    (ae.train.steps, ae.train.batch, ae.optim.warmup) = (2, 2, 0);
    let never = AtomicBool::new(false);
    train_autoencoder(&ae, &RunDir(stage.clone()), &Device::flex(), false, &never, &mut |_| ()).unwrap();
    for process in [Process::parse("lsgm").unwrap(), velocity()] {
        let dir = dir.path().join(process.name());
        let mut config = small(process);
        (config.train.steps, config.sample.clip) = (4, 0.0);
        config.latent = Some(LatentConfig { autoencoder: stage.clone(), scale: None, cache: None });
        let teacher = teacher(&config, &dir);
        let moved = dir.join("moved");
        std::fs::rename(&stage, &moved).unwrap();
        let plan = Distillation::new(reopened(&teacher), &request(&[2, 1], 3)).unwrap();
        let done = distil(&plan, &dir.join("students"), false);
        let student = Checkpoint::open(&done[1].summary.checkpoint).unwrap();
        let scale = |checkpoint: &Checkpoint| Latent::of(checkpoint, &Device::flex()).unwrap().unwrap().scale();
        assert_eq!(scale(&student), scale(&teacher));
        let pipeline = Pipeline::open(&student, Weights::Ema, &student.config.sample, &Device::flex()).unwrap();
        let images = pipeline.images(0, 0..2).unwrap();
        assert_eq!((images[0].width, pipeline.evaluations().unwrap()), (16, 1));
        std::fs::rename(&moved, &stage).unwrap();
    }
}

/// A network with a condition: the teacher and the student are shown the same one.
#[test]
fn a_task_is_distilled() {
    let dir = tempfile::tempdir().unwrap();
    let task = TaskConfig::SuperResolution(SuperResolution { scale: 2, size: 16, low: LowAs::Enlarged, residual: 0.0 });
    let mut config = small(velocity());
    config.network = CondUNetConfig {
        channels: task.task().target_channels().unwrap(),
        condition_channels: task.task().condition_channels(),
        width: 8,
        mult: vec![1, 2],
        encoder: EncoderConfig::Unet { width: 8, stride: 1 },
        condition_windows: vec![[2, 2], [1, 1]],
        feature_windows: vec![[2, 2], [1, 1]],
        ..CondUNetConfig::default()
    }
    .into();
    (config.task, config.train.steps, config.train.batch) = (task, 4, 2);
    let teacher = teacher(&config, dir.path());
    let plan = || Distillation::new(reopened(&teacher), &request(&[1], 4)).unwrap();
    let whole = distil(&plan(), &dir.path().join("whole"), false);
    let parts = dir.path().join("parts");
    let stop = AtomicBool::new(false);
    let mut note = |_: &Stage, step: &StepReport| stop.store(step.step == 3, Ordering::Relaxed);
    plan().run(&parts, &Device::flex(), false, &stop, &mut note).unwrap();
    let resumed = distil(&plan(), &parts, true);
    assert!(bytes(&whole[0]) == bytes(&resumed[0]), "weights, statistics or optimiser differ");
    let student = Checkpoint::open(&whole[0].summary.checkpoint).unwrap();
    let pipeline = Pipeline::open(&student, Weights::Ema, &student.config.sample, &Device::flex()).unwrap();
    assert!(pipeline.task_model(student.config.task.name(), 1).is_ok() && pipeline.evaluations().unwrap() == 1);
}
