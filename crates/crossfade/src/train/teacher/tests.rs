//! The targets against the sampler itself: one step with them ends where the teacher's steps end.
use super::*;
use crate::checkpoint::Weights;
use crate::config::RunConfig;
use crate::engine::{Tensor, to_host};
use crate::generate::{Pipeline, StartNoise};
use crate::nn::{Decoders, UNetConfig, one_hot};
use crate::sample::Sampler;
use crate::train::{RunDir, train};
use crossfade_math::process::{Ddpm, Edm, Flow};
use crossfade_math::{Adm, Blend, Grid, GridKind, Precond, Process};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A few steps of training with a large rate, so that the outputs of the network are not those of zero weights.
fn trained(process: Process, decoders: Decoders, dir: &Path) -> Checkpoint {
    let mut config = RunConfig { seed: 3, process, ..RunConfig::default() };
    let sizes =
        UNetConfig { resolution: 8, width: 16, mult: vec![1, 2], blocks: 1, attention: vec![], ..Default::default() };
    config.network = UNetConfig { decoders, classes: 6, ..sizes }.into();
    (config.train.steps, config.train.batch, config.optim.warmup, config.optim.lr) = (8, 4, 0, 1e-2);
    (config.optim.ema_after, config.optim.ema_every) = (8, 1);
    let run = RunDir(dir.to_path_buf());
    let done = train(&config, &run, &Device::flex(), false, &AtomicBool::new(false), &mut |_| ()).unwrap();
    Checkpoint::open(&done.checkpoint).unwrap()
}

#[test]
fn targets_lead_where_the_teachers_steps_lead() {
    let velocity = Adm { precond: Precond::Velocity, ..Adm::default() };
    let cases = [
        (Process::from(Adm::default()), Decoders::Two, Blend::Heads, 1.0),
        (velocity.into(), Decoders::Conv, Blend::Average, 3.0),
        (velocity.into(), Decoders::One, Blend::Reference, 1.0),
        (Process::Flow(Flow::default()), Decoders::One, Blend::Heads, 2.0),
        (Process::Edm(Edm::default()), Decoders::One, Blend::Heads, 1.0),
        (Process::DdpmX0(Ddpm::default()), Decoders::Two, Blend::Heads, 1.5),
    ];
    for (process, decoders, blend, guidance) in cases {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(process, decoders, dir.path());
        let sample = SampleConfig {
            sampler: Sampler::Ddim,
            steps: 4,
            blend,
            grid: Grid { kind: GridKind::Images, final_t: None },
            guidance,
            // Guided at the first time only, so that a batch has samples that are guided and samples that are not.
            guidance_interval: [0.95, 1.0],
            ..SampleConfig::default()
        };
        let of_classes = SampleConfig { class: "0,4".into(), ..sample.clone() };
        let pipeline = Pipeline::open(&checkpoint, Weights::Ema, &of_classes, &Device::flex()).unwrap();
        let starts: Vec<_> = (0..2).map(StartNoise::Index).collect();
        let mut states = vec![];
        let mut note = |state: crate::sample::State<Images>| states.push((state.t, state.x_t.0.clone()));
        let end = pipeline.sample(7, &starts, &mut note).unwrap().x0.0;
        let distill = DistillConfig { teacher: String::new(), weights: Weights::Ema, steps: 2, sample };
        let teacher = Teacher::open(&checkpoint, &distill, &Device::flex()).unwrap();
        assert_eq!([teacher.time(0.0).t, teacher.time(0.499).t, teacher.time(0.5).t], [1.0, 1.0, states[2].0]);
        // Both steps of the student in one batch.
        let x_t = Tensor::cat(vec![states[0].1.clone(), states[2].1.clone()], 0);
        let t = vec![states[0].0, states[0].0, states[2].0, states[2].0];
        let classes = [0, 4, 0, 4].map(Some);
        let nothing = Images(x_t.zeros_like());
        let noised = Noised {
            x0: nothing.clone(),
            phi: vec![],
            eps: nothing,
            weights: vec![1.0; 4],
            t,
            x_t: Images(x_t.clone()),
        };
        let classes = Some(one_hot(&classes, 6, &Device::flex()));
        let taught = teacher.teach(Prepared { noised, labels: None, classes, condition: None }).unwrap().noised;
        let gaussian = process.gaussian().unwrap();
        let arrives = gaussian.x_t(&taught.x0, &taught.eps, &Coef::Each(vec![states[2].0, states[2].0, 0.0, 0.0])).0;
        let stays = gaussian.x_t(&taught.x0, &taught.eps, &Coef::Each(taught.t.clone())).0;
        let wanted = Tensor::cat(vec![states[2].1.clone(), end], 0);
        for (found, wanted) in [(arrives, wanted), (stays, x_t)] {
            let (found, wanted) = (to_host(found), to_host(wanted));
            let largest = wanted.iter().fold(1.0f32, |most, value| most.max(value.abs()));
            for (found, wanted) in found.iter().zip(&wanted) {
                assert!((found - wanted).abs() < 2e-6 * largest, "{}: {found} {wanted}", process.name());
            }
        }
        if let Some(adm) = process.adm() {
            assert_eq!(taught.phi.len(), 1);
            assert_eq!(to_host(adm.H(&taught.phi, 1.0).0), to_host(taught.x0.0.clone() * -1.0));
        }
    }
}
