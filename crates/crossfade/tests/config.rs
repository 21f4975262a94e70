//! Configurations: strictness with lines, overrides, round trips, and every committed file.
#![allow(clippy::unwrap_used)]
use crossfade::Error;
use crossfade::config::{AutoencoderRun, RunConfig, SampleConfig, is_autoencoder};
use crossfade::data::DataConfig;
use crossfade::math::{Adm, Attenuation, Blend, Grid, GridKind, NoiseScale, Weighting};
use crossfade::nn::{BackboneConfig, Decoders};
use crossfade::sample::Sampler;
use proptest::prelude::*;
use std::path::Path;

fn problems(result: crossfade::Result<RunConfig>) -> Vec<String> {
    match result {
        Err(Error::Config(problems)) => problems,
        other => panic!("problems expected, got {other:?}"),
    }
}

/// Asserts that there are exactly these problems, each given by what it must contain.
#[track_caller]
fn assert_problems(found: Vec<String>, expected: &[&[&str]]) {
    let list = found.join("\n");
    assert_eq!(found.len(), expected.len(), "{list}");
    for (line, parts) in found.iter().zip(expected) {
        for part in *parts {
            assert!(line.contains(part), "{part:?} expected in {line:?} of\n{list}");
        }
    }
}

#[test]
fn every_committed_configuration_is_valid() {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs"));
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if is_autoencoder(&std::fs::read_to_string(&path).unwrap()) {
            let config = AutoencoderRun::load(&path).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(AutoencoderRun::parse(&config.to_toml().unwrap(), "again").unwrap(), config);
            continue;
        }
        let config = RunConfig::load(&path).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(RunConfig::parse(&config.to_toml().unwrap(), "again").unwrap(), config, "{}", path.display());
        for (_, path) in config.data.clone().paths_mut() {
            assert!(path.is_relative(), "{}", path.display());
        }
        count += 1;
    }
    assert!(count >= 15);
}

/// §2.8, appendix A.1.
#[test]
fn the_references_runs_have_their_values() {
    let load =
        |name: &str| RunConfig::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name)).unwrap();
    // §4.3: the conditional networks of appendix A.
    for (name, parameters) in [
        ("inpaint-celebahq.toml", 245_389_056),
        ("sr-div2k.toml", 224_788_592),
        ("saliency-duts.toml", 224_788_592),
        ("edges-bsds.toml", 224_910_438),
    ] {
        let config = load(name);
        assert_eq!((config.sizes().parameters, config.network.channels()), (parameters, 3), "{name}");
        assert!(!config.task.is_unconditional() && config.latent.is_some(), "{name}");
    }
    let adm = load("cifar10-adm.toml");
    assert_eq!(adm.sizes().parameters, 216_141_136);
    assert_eq!((adm.lr_schedule().at(2_000_000), adm.ema_schedule().update_every), (5e-6, 8));
    let const2 = load("cifar10-const2.toml");
    assert_eq!(const2.sizes().parameters, 90_095_048);
    let process = const2.process.adm().unwrap();
    assert_eq!((process.noise, const2.network.decoders()), (NoiseScale::Linear, Decoders::One));
    assert_eq!((const2.lr_schedule().at(2_000_000), process.t_min), (5e-5, 1e-3));
    for run in [adm, const2] {
        assert_eq!((run.train.batch * run.train.accumulate, run.train.steps), (256, 800_000));
        assert_eq!(run.lr_schedule().at(0), 1e-4 / 5000.0);
    }
}

/// The paper's Table I as printed (§2.8): side, batch, learning rates, steps, width, multipliers, smallest time.
#[test]
fn the_papers_runs_have_the_printed_values() {
    type Column = (&'static str, usize, [f64; 2], u64, usize, [usize; 4], f64);
    let columns: [Column; 6] = [
        ("cifar10", 128, [1e-4, 1e-5], 800_000, 160, [1, 2, 2, 2], 1e-3),
        ("celebahq", 48, [1e-4, 1e-5], 400_000, 128, [1, 2, 2, 2], 1e-3),
        ("inpainting", 48, [4e-5, 4e-6], 400_000, 96, [1, 2, 4, 8], 1e-4),
        ("super-resolution", 12, [5e-5, 5e-6], 200_000, 128, [1, 2, 4, 4], 1e-4),
        ("saliency", 16, [5e-5, 5e-6], 200_000, 128, [1, 2, 4, 4], 1e-4),
        ("edges", 16, [5e-5, 5e-6], 200_000, 128, [1, 2, 4, 4], 1e-4),
    ];
    for (name, batch, rates, steps, width, mult, t_min) in columns {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../configs/paper-{name}.toml"));
        let mut config = RunConfig::load(&path).unwrap();
        config.validate_training().unwrap();
        assert_eq!((config.train.batch * config.train.accumulate, config.train.steps), (batch, steps), "{name}");
        assert_eq!([config.lr_schedule().at(0), config.lr_schedule().at(steps)], rates, "{name}: no warm-up");
        let process = config.process.adm().unwrap();
        assert_eq!((process.t_min, process.noise, config.network.decoders()), (t_min, NoiseScale::Sqrt, Decoders::Two));
        let size = match config.network.as_unet().cloned() {
            Some(unet) => (unet.width, unet.mult),
            None => config.network.as_cond_unet_mut().map(|net| (net.width, net.mult.clone())).unwrap(),
        };
        assert_eq!(size, (width, mult.to_vec()), "{name}");
    }
}

/// Options that are not written while they have their default may still be given.
#[test]
fn an_unwritten_default_may_be_given() {
    assert_eq!(RunConfig::parse("[network]\npatch = 1", "x").unwrap(), RunConfig::default());
    assert_eq!(RunConfig::default().with_overrides(&["network.patch=1"]).unwrap(), RunConfig::default());
    let error = RunConfig::parse("[network]\npacth = 1", "x").unwrap_err().to_string();
    assert!(error.contains("did you mean `patch`"), "{error}");
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(RunConfig::parse("", "empty.toml").unwrap(), RunConfig::default());
    RunConfig::default().validate().unwrap();
    let text = RunConfig::default().to_toml().unwrap();
    assert_eq!(RunConfig::parse(&text, "x").unwrap(), RunConfig::default());
}

#[test]
fn all_problems_are_reported_with_their_lines() {
    let text = r#"seed = -1
[process]
attenuation = "spline"
[network]
widht = 32
mult = [1, "two"]
[data]
kind = "folder"
path = 3
fit = "corp"
[trian]
[optim]
batch = 8
lr = "fast"
[train]
batch = 0
steps = "x"
checkpoint_every = "x"
flip = 1
[sample]
sampler = "ab3"
grid = { kind = "power", rho = "x", sigma = 1 }
"#;
    assert_problems(
        problems(RunConfig::parse(text, "run.toml")),
        &[
            &["run.toml:1: seed: ", "-1", "whole number"],
            &["run.toml:3: process.attenuation: unknown value `spline`", "quadratic"],
            &["run.toml:5: network.widht: unknown key; did you mean `width`?"],
            &["run.toml:6: network.mult: ", "\"two\"", "whole number"],
            &["run.toml:9: data.path: integer `3` found"],
            &["run.toml:10: data.fit: unknown value `corp` (did you mean `crop`?)"],
            &["run.toml:11: trian: unknown key; did you mean `train`?"],
            &["run.toml:13: optim.batch: unknown key; there is one in [train]"],
            &["run.toml:14: optim.lr: string \"fast\" found, a number expected"],
            &["run.toml:16: train.batch: must be at least 1"],
            &["run.toml:17: train.steps: "],
            &["run.toml:18: train.checkpoint_every: "],
            &["run.toml:19: train.flip: ", "true or false"],
            &["run.toml:21: sample.sampler: unknown value `ab3`", "ab2", "pc"],
            &["run.toml:22: sample.grid.rho: "],
            &["run.toml:22: sample.grid.sigma: unknown key"],
        ],
    );
}

#[test]
fn tagged_sections_are_strict_too() {
    assert_problems(
        problems(RunConfig::parse("[data]\nkind = \"foldr\"\npath = \"x\"\n", "a.toml")),
        &[&["a.toml:2: data.kind: unknown value `foldr` (did you mean `folder`?)"]],
    );
    assert_problems(
        problems(RunConfig::parse("\n[data]\npath = \"x\"\n", "a.toml")),
        &[&["a.toml:2: data: `kind` is missing, one of: ", "procedural", "zip"]],
    );
    assert_problems(
        problems(RunConfig::parse("[data]\nkind = \"idx\"\n", "a.toml")),
        &[&["a.toml:1: data: `path` is missing"]],
    );
    // Serde itself ignores options of variants that have none.
    assert_problems(
        problems(RunConfig::parse("[process.precond]\nkind = \"none\"\nsigma_data = 1\n", "a.toml")),
        &[&["a.toml:3: process.precond.sigma_data: unknown key; kind `none` has no such option"]],
    );
    assert_problems(
        problems(RunConfig::parse("[sample.grid]\nkind = \"uniform-t\"\nrho = 3\n", "a.toml")),
        &[&["a.toml:3: sample.grid.rho: unknown key; kind `uniform-t`"]],
    );
    assert_problems(problems(RunConfig::parse("data = 3\n", "a.toml")), &[&["a.toml:1: data: ", "a section expected"]]);
    // Options that are left out of the written configuration at their default values may be given all the same.
    let text = "[optim]\nema_profiles = []\n[train]\naverage_every = 0\n[sample]\nfree_first_step = false\n\
                [sample.grid]\nkind = \"log-snr\"\ncurvature = 0.0\n";
    RunConfig::parse(text, "a.toml").unwrap();
    for (text, key) in [("ema_sigma = 0.5", "ema_sigma"), ("ema_profiles = [0.1, 0.05]", "ema_profiles")] {
        let found = problems(RunConfig::parse(&format!("[optim]\n{text}\n"), "a.toml"));
        assert_problems(found, &[&[&format!("a.toml:2: optim.{key}: ")]]);
    }
    // Sections whose kind has a default. The options of a misspelt kind are not held against the default kind.
    let text = "[task]\nkind = \"saliency\"\n[process]\nkind = \"edn\"\nsigma_data = 0.5\n[network]\n\
                kind = \"condunet\"\nchannels = 1\ncondition_channels = 3\n[train]\naugment = 0.1\n";
    assert_problems(
        problems(RunConfig::parse(text, "a.toml")),
        &[
            &["a.toml:4: process.kind: unknown value `edn` (did you mean `edm`?)"],
            &["a.toml:7: network.kind: unknown value `condunet` (did you mean `cond-unet`?)"],
        ],
    );
    let text = "[process]\nkind = \"edm\"\nattenuation = \"linear\"\nsigma_data = -1\n[network]\nkind = \"unet\"\n\
                heads = 3\nwidth = \"x\"\n";
    assert_problems(
        problems(RunConfig::parse(text, "a.toml")),
        &[
            &["a.toml:3: process.attenuation: unknown key", "sigma_max"],
            &["a.toml:4: process.sigma_data: must be positive"],
            &["a.toml:7: network.heads: unknown key"],
            &["a.toml:8: network.width: string \"x\" found, a whole number"],
        ],
    );
    assert_problems(
        problems(RunConfig::parse("process = 3\nnetwork = 4\n", "a.toml")),
        &[&["a.toml:1: process: ", "a section expected"], &["a.toml:2: network: ", "a section expected"]],
    );
}

#[test]
fn syntax_errors_come_together_and_with_the_others() {
    let text = "seed = \n[train]\nbacth = 8\nsteps 10\n[optim]\nlr = 1e-\n";
    let found = problems(RunConfig::parse(text, "b.toml"));
    for part in ["b.toml:1: ", "b.toml:3: train.bacth: unknown key; did you mean `batch`?", "b.toml:4: ", "b.toml:6: "]
    {
        assert!(found.iter().any(|line| line.starts_with(part)), "{part} in\n{}", found.join("\n"));
    }
    let twice = problems(RunConfig::parse("[optim]\nlr = 1e-3\nlr = 1e-4\n", "c.toml"));
    assert_problems(twice, &[&["c.toml:3: ", "duplicate"]]);
    let huge = problems(RunConfig::parse("seed = 99999999999999999999999\n", "c.toml"));
    assert!(huge[0].starts_with("c.toml:1: "), "{huge:?}");
}

#[test]
fn values_that_make_no_sense_are_named_together() {
    let text = r#"
[process]
attenuation = "linear"
t_min = 1.0
[process.precond]
kind = "optimal"
sigma_data = 0
[network]
decoders = "one"
width = 30
attention = [12]
[optim]
lr = 1e-4
lr_floor = 1e-3
beta2 = 1.0
[train]
augment = 0.1
[sample]
steps = 0
clip = nan
"#;
    assert_problems(
        problems(RunConfig::parse(text, "d.toml")),
        &[
            &["d.toml:4: process.t_min"],
            &["d.toml:7: process.precond.sigma_data: must be positive"],
            &["d.toml:9: network.decoders: a single decoder needs process.attenuation"],
            &["d.toml:10: network.width: must be a positive multiple of 4"],
            &["d.toml:11: network.attention: 12 is the side of the feature maps of no level"],
            &["d.toml:14: optim.lr_floor"],
            &["d.toml:15: optim.beta2"],
            &["d.toml:17: train.augment: needs network.augment_dim = 9"],
            &["d.toml:19: sample.steps"],
            &["d.toml:20: sample.clip"],
        ],
    );
    // A requirement that rests on a misspelt key is not reported as broken.
    assert_problems(
        problems(RunConfig::parse("[network]\naugment_dmi = 9\n[train]\naugment = 0.1\n", "e.toml")),
        &[&["e.toml:2: network.augment_dmi: unknown key; did you mean `augment_dim`?"]],
    );
    assert_problems(
        problems(RunConfig::parse("[network]\nwidth = 400000000000\n", "f.toml")),
        &[&["f.toml:2: network.width: must be at most"]],
    );
}

#[test]
fn many_problems_end_soon() {
    let text = |keys: usize| -> String { (0..keys).map(|i| format!("k{i} = 1\n")).collect() };
    let found = problems(RunConfig::parse(&text(1500), "g.toml"));
    assert!((10..100).contains(&found.len()));
    // More keys than any configuration needs are refused before they are looked at.
    let refused = RunConfig::parse(&text(3000), "g.toml").expect_err("too many keys");
    assert!(refused.to_string().contains("limit of 2000 (keys of a configuration)"), "{refused}");
}

#[test]
fn overrides_replace_values_and_kinds() {
    let sets = [
        "train.batch=8",
        "train.flip=false",
        "network.mult=[1, 2]",
        "network.attention = []",
        "process.attenuation=linear",
        "data.path=pictures/of my cat",
        "data.kind=folder",
        "sample.grid.kind=power",
        "sample.grid.rho=3",
        "sample.blend={ table = [0.1, 0.9] }",
        "loss.auxiliary.estimate=phi",
        "loss.auxiliary.weight=half-log",
        "loss.auxiliary.l1=mean",
    ];
    let config = RunConfig::default().with_overrides(&sets).unwrap();
    assert_eq!((config.train.batch, config.train.flip), (8, false));
    let network = config.network.as_unet().unwrap();
    assert_eq!((network.mult.as_slice(), network.attention.len()), (&[1, 2][..], 0));
    assert_eq!(config.process.phi_parts(), 2);
    assert!(matches!(&config.data, DataConfig::Folder { path, .. } if path == Path::new("pictures/of my cat")));
    assert_eq!(config.sample.grid.kind, GridKind::Power { rho: 3.0, sigma_min: 0.02 });
    assert_eq!(config.sample.blend, Blend::Table(vec![0.1, 0.9]));
    assert!(config.loss.auxiliary.is_some());
    let below = config.with_data_root(Path::new("/data"));
    assert!(matches!(&below.data, DataConfig::Folder { path, .. } if path == Path::new("/data/pictures/of my cat")));
}

#[test]
fn all_bad_overrides_are_reported() {
    let sets =
        ["train.batch", "train..x=1", "network.mult=[1", "train.bacth=8", "train.steps=0", "seed.x=1", "optim.lr=fast"];
    let found = problems(RunConfig::default().with_overrides(&sets));
    assert_problems(
        found,
        &[
            &["--set train.batch: expected section.key=value"],
            &["--set train..x=1: expected"],
            &["--set network.mult=[1: "],
            &["--set seed.x=1: `seed` is no section"],
            &["--set optim.lr=fast: string \"fast\" found"],
            &["--set train.bacth=8: unknown key; did you mean `batch`?"],
            &["--set train.steps=0: must be at least 1"],
        ],
    );
}

#[test]
fn sizes_follow_the_network() {
    let config = RunConfig::default().with_overrides(&["process.attenuation=linear"]).unwrap();
    let (one, two) = (RunConfig::default().sizes(), config.sizes());
    assert_eq!((one.phi_parts, two.phi_parts), (1, 2));
    // Three more output channels of a 3x3 convolution with a bias, from 64 channels.
    assert_eq!(two.parameters - one.parameters, 3 * (64 * 9 + 1));
    assert_eq!(one.weights_bytes, 4 * one.parameters);
    assert!(one.train_bytes > 5 * one.weights_bytes && one.sample_bytes < one.train_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_written_is_read_back(
        seed in 0..=i64::MAX as u64,
        lr in 1e-9f64..1.0,
        floor in 0.0f64..=1.0,
        t_min in 1e-9f64..0.999,
        batch in 1usize..10_000,
        sampler in prop::sample::select(Sampler::fitting(&Adm::new(Attenuation::Sine, NoiseScale::Sqrt).into())),
        attenuation in prop::sample::select(Attenuation::ALL.to_vec()),
        weighting in prop::sample::select(Weighting::ALL.to_vec()),
        kind in prop::sample::select(GridKind::all_in_time()),
        final_t in prop::option::of(1e-6f64..1e-3),
        blend in prop::sample::select(vec![Blend::Average, Blend::Heads, Blend::Table(vec![0.25, 1.0 / 3.0])]),
        path in "[a-zA-Z0-9 \"\\\\/äß]{1,20}",
    ) {
        let mut config = RunConfig { seed, data: DataConfig::Idx { path: path.into() }, ..RunConfig::default() };
        config.optim.lr = lr;
        config.optim.lr_floor = lr * floor;
        config.loss.weighting = weighting;
        config.train.batch = batch;
        config.process = Adm { attenuation, t_min, ..Adm::default() }.into();
        config.sample = SampleConfig { sampler, grid: Grid { kind, final_t }, blend, ..config.sample };
        let text = config.to_toml().unwrap();
        prop_assert_eq!(RunConfig::parse(&text, "x.toml").unwrap(), config.clone());
        prop_assert_eq!(config.clone().with_overrides(&["seed=1"]).unwrap(), RunConfig { seed: 1, ..config });
    }
}

/// What a resumed run may not change is listed key by key, sections that only one side has included.
#[test]
fn a_resumed_run_is_told_what_differs() {
    let config = RunConfig::default();
    config.must_resume_as(&config.clone().with_overrides(&["train.log_every=7", "sample.steps=3"]).unwrap()).unwrap();
    let sets = ["process.kind=edm", "network.decoders=one", "train.batch=8"];
    let other = config.clone().with_overrides(&sets).unwrap();
    let said = config.must_resume_as(&other).unwrap_err().to_string();
    for part in [
        "process.kind: the run has \"adm\", the configuration \"edm\"",
        "process.t_min: the run has 0.0001, the configuration not set",
        "network.decoders",
        "train.batch",
    ] {
        assert!(said.contains(part), "{part} in:\n{said}");
    }
    assert!(!said.contains("\noptim."), "{said}");
    assert!(other.must_resume_as(&config).unwrap_err().to_string().contains("the configuration not set"));
}

/// `loss.times` is read, survives TOML, and is refused where it means nothing.
#[test]
fn training_times_are_options_of_every_process() {
    let with = |sets: &[&str]| RunConfig::default().with_overrides(sets);
    let config = with(&["loss.times.keep_objective=true", "loss.times.kind=power", "loss.times.exponent=3"]).unwrap();
    assert!(config.loss.times.keep_objective, "another kind keeps what belongs to every kind");
    assert_eq!(RunConfig::parse(&config.to_toml().unwrap(), "round trip").unwrap(), config);
    let resumed = config.must_resume_as(&RunConfig::default()).unwrap_err().to_string();
    assert!(resumed.contains("loss.times"), "{resumed}");
    for kind in ["ddpm", "edm", "flow"] {
        with(&[&format!("process.kind={kind}"), "network.decoders=one", "loss.times.kind=logit-normal"]).unwrap();
    }
    for (sets, key) in [
        (&["loss.times.kind=power", "loss.times.exponent=-1"][..], "exponent"),
        (&["loss.times.keep_objective=true"], "keep_objective"),
        (&["process.kind=cld", "network.decoders=one", "loss.times.kind=log-normal"], "cld"),
        (&["loss.times.kind=powr"], "power"),
        (&["process.time_input=linaer"], "linear"),
    ] {
        let error = with(sets).unwrap_err().to_string();
        assert!(error.contains(key), "{sets:?}: {error}");
    }
}

/// Keys and values of a file are quoted in errors; a line break in one of them must not begin a line of its own.
#[test]
fn a_configuration_cannot_forge_lines() {
    let forged = "\nerror: all is well";
    let quoted = forged.escape_default().to_string();
    let of_file = [
        format!("[train]\n\"a{quoted}\" = 1"),
        format!("[process]\nkind = \"a{quoted}\""),
        format!("[\"a{quoted}\"]\nb = 1"),
        format!("[sample.grid]\nkind = \"uniform-t\"\n\"a{quoted}\" = 1"),
        format!("[data]\nkind = \"folder\"\npath = 1\nfit = \"a{quoted}\""),
    ];
    let mut errors: Vec<String> =
        of_file.iter().map(|text| RunConfig::parse(text, "here.toml").unwrap_err().to_string()).collect();
    errors.push(RunConfig::default().with_overrides(&[format!("process.kind=a{forged}")]).unwrap_err().to_string());
    let data = DataConfig::Idx { path: format!("a{forged}").into() };
    let other = RunConfig { data, ..RunConfig::default() };
    errors.push(other.must_resume_as(&RunConfig::default()).unwrap_err().to_string());
    for error in errors {
        assert!(error.contains("all is well"), "{error}");
        assert!(error.lines().all(|line| !line.starts_with("error")), "{error}");
    }
}
