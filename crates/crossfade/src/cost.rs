//! The cost of a network: parameters, multiply-accumulates, evaluations, time, memory.
use std::fmt;
use std::time::Instant;

use serde::Serialize;

use crate::apply::{Model, Part};
use crate::bench::peak_rss_mb;
use crate::config::{RunConfig, SampleConfig};
use crate::data::Planes;
use crate::error::{Error, Result};
use crate::generate::{Pipeline, StartNoise};
use crate::nn::config::{BlockPlan, Resample};
use crate::nn::{BackboneConfig, Decoders, NetworkPorts, UNetConfig};

/// Multiply-accumulates of one network evaluation for one image. Normalisation, activations, sums, resampling and
/// softmax are not counted, as in PyTorch's `FlopCounterMode`, which counts two FLOPs per multiply-accumulate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Macs {
    /// Convolutions, including the projections of attention.
    pub convolution: u64,
    /// Dense layers of the time embedding.
    pub linear: u64,
    /// The two matrix products of every attention.
    pub attention: u64,
}

impl Macs {
    /// Counts one evaluation of the network for one image of its resolution.
    pub fn of(network: &UNetConfig, ports: NetworkPorts) -> Self {
        let mut count = Self::default();
        let (m, c) = (network.width as u64, (network.channels * network.patch_area()) as u64);
        let side = network.side() as u64;
        let top = m * network.mult.first().copied().unwrap_or(1) as u64;
        let bottom = m * network.mult.last().copied().unwrap_or(1) as u64;
        let deepest = side >> (network.mult.len().max(1) - 1);
        count.linear += m * 4 * m + 4 * m * 4 * m;
        let condition = (network.condition_channels * network.patch_area()) as u64;
        count.convolution += 9 * (c * ports.inputs as u64 + condition) * top * side * side;
        count.blocks(&network.encoder_plan(), side, 4 * m);
        let decoders = if network.decoders == Decoders::Two { 2 } else { 1 };
        for _ in 0..decoders {
            let n = deepest * deepest;
            // The gate in front of each decoder: a 3x3 convolution, a map of one channel, its query and key, and the
            // self-attention of the map.
            count.convolution += (9 * bottom * bottom + bottom + 2) * n;
            count.attention += 2 * n * n;
            count.blocks(&network.decoder_plan(), deepest, 4 * m);
        }
        let outputs = ports.phi_parts as u64 + u64::from(network.decoders != Decoders::One);
        count.convolution += 9 * top * c * outputs * side * side;
        if network.decoders == Decoders::Conv {
            count.convolution += 9 * top * top * side * side;
        }
        count
    }

    /// Counts a sequence of blocks; the first one reads feature maps of `side`.
    fn blocks(&mut self, plan: &[BlockPlan], mut side: u64, embedding: u64) {
        for block in plan {
            side = match block.resample {
                Resample::Keep => side,
                Resample::Down => side / 2,
                Resample::Up => 2 * side,
            };
            let (n, cin, cout) = (side * side, block.cin as u64, block.cout as u64);
            // The two 3x3 convolutions of a residual block, at the resolution after resampling.
            self.convolution += 9 * (cin + cout) * cout * n;
            self.linear += embedding * 2 * cout;
            if cin != cout {
                self.convolution += cin * cout * n;
            }
            if block.heads() > 0 {
                self.convolution += 4 * cout * cout * n;
                self.attention += 2 * cout * n * n;
            }
        }
    }

    /// The sum over all layers.
    pub fn total(&self) -> u64 {
        self.convolution + self.linear + self.attention
    }
}

/// The cost of making one image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Height and width of the images.
    pub resolution: [usize; 2],
    /// The number of parameters of the network.
    pub parameters: u64,
    /// Multiply-accumulates of one evaluation; none for conditional networks, whose layers are not counted.
    pub macs: Option<Macs>,
    /// Their sum.
    pub macs_per_evaluation: Option<u64>,
    /// The sampler.
    pub sampler: &'static str,
    /// Sampling steps.
    pub steps: usize,
    /// Network evaluations per image.
    pub evaluations: usize,
    /// Multiply-accumulates per image.
    pub macs_per_image: Option<u64>,
    /// The measured speed, if it was measured.
    pub speed: Option<Speed>,
}

/// Measured speed and memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Images per batch.
    pub batch: usize,
    /// Threads that were used.
    pub threads: usize,
    /// Seconds for a batch, the best of the repeats.
    pub seconds: f64,
    /// `batch / seconds`.
    pub images_per_second: f64,
    /// Peak resident memory of the process, in MiB.
    pub peak_memory_mib: u64,
}

impl Cost {
    /// Counts everything that needs no run of the network.
    pub fn count(config: &RunConfig) -> Result<Self> {
        let parameters = config.network.parameter_count(config.ports());
        let (macs, resolution) = match config.network.as_unet() {
            Some(network) => (Some(Macs::of(network, config.ports())), [network.resolution; 2]),
            None => (None, task_size(config)?),
        };
        let sample = config.sample.resolved(&config.process)?;
        let evaluations = sample.evaluations(&config.process)?;
        Ok(Self {
            resolution,
            parameters: parameters as u64,
            macs,
            macs_per_evaluation: macs.map(|macs| macs.total()),
            sampler: sample.sampler.name(),
            steps: config.sample.steps,
            evaluations,
            macs_per_image: macs.map(|macs| macs.total() * evaluations as u64),
            speed: None,
        })
    }
}

/// Height and width of a task's output at its training size.
fn task_size(config: &RunConfig) -> Result<[usize; 2]> {
    config.task.task().size().ok_or_else(|| Error::request("the task has no fixed image size"))
}

/// Times `repeat` batches after a warm-up: images, or for a task tiles of the training size.
pub fn measure(
    pipeline: &Pipeline,
    config: &RunConfig,
    batch: usize,
    repeat: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Speed> {
    if !config.task.is_unconditional() {
        return measure_task(pipeline, config, batch, repeat, progress);
    }
    let starts: Vec<StartNoise> = (0..batch as u64).map(StartNoise::Index).collect();
    let run = |pipeline: &Pipeline| -> Result<f64> {
        let began = Instant::now();
        // `sample` reads the values, which waits for an asynchronous device to finish.
        pipeline.sample(0, &starts, &mut |_| ())?;
        Ok(began.elapsed().as_secs_f64())
    };
    // The warm-up takes one step only; it allocates memory and compiles shaders.
    run(&pipeline.with_sample(&SampleConfig { steps: 1, ..pipeline.sample_config().clone() })?)?;
    best(batch, repeat, progress, &mut || run(pipeline))
}

fn measure_task(
    pipeline: &Pipeline,
    config: &RunConfig,
    batch: usize,
    repeat: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Speed> {
    let (task, size) = (config.task.task(), task_size(config)?);
    let model = pipeline.task_model(config.task.name(), 0)?;
    let [height, width] = size.map(|side| side / task.scale());
    let channels = task.condition_channels();
    let image = Planes::new([channels, height, width], vec![0.0; channels * height * width]);
    let condition = if channels == 3 { task.condition(image)? } else { image };
    let parts = vec![Part { condition, size, y: 0, x: 0 }; batch];
    let mut run = || {
        let began = Instant::now();
        model.make(0, &parts)?;
        Ok(began.elapsed().as_secs_f64())
    };
    run()?;
    best(batch, repeat, progress, &mut run)
}

/// The fastest of `repeat` runs, each of which returns its duration in seconds. The minimum is the least disturbed by other
/// programs.
fn best(
    batch: usize,
    repeat: usize,
    progress: &mut dyn FnMut(usize, usize),
    run: &mut dyn FnMut() -> Result<f64>,
) -> Result<Speed> {
    let mut seconds = f64::INFINITY;
    for k in 0..repeat.max(1) {
        progress(k, repeat.max(1));
        seconds = seconds.min(run()?);
    }
    Ok(Speed {
        batch,
        threads: rayon::current_num_threads(),
        seconds,
        images_per_second: batch as f64 / seconds,
        peak_memory_mib: peak_rss_mb(),
    })
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = |n: u64| match n {
            0..10_000_000 => format!("{:.3} M", n as f64 / 1e6),
            _ => format!("{:.3} G", n as f64 / 1e9),
        };
        let Self { macs, steps, evaluations, .. } = self;
        writeln!(f, "parameters              {:.3} M ({})", self.parameters as f64 / 1e6, self.parameters)?;
        let [height, width] = self.resolution;
        writeln!(f, "an image                {height}x{width}")?;
        if let Some(macs) = macs {
            writeln!(f, "MACs per evaluation     {}", scaled(macs.total()))?;
            writeln!(f, "  convolutions          {}", scaled(macs.convolution))?;
            writeln!(f, "  dense layers          {}", scaled(macs.linear))?;
            writeln!(f, "  attention             {}", scaled(macs.attention))?;
        }
        writeln!(f, "evaluations per image   {evaluations} ({} with {steps} steps)", self.sampler)?;
        if let Some(macs) = self.macs_per_image {
            writeln!(f, "MACs per image          {}", scaled(macs))?;
        }
        if let Some(speed) = &self.speed {
            let rate = speed.images_per_second;
            writeln!(f, "images per second       {rate:.3} (batch {}, {} threads)", speed.batch, speed.threads)?;
            writeln!(f, "peak memory             {} MiB", speed.peak_memory_mib)?;
        }
        if self.macs.is_none() {
            return writeln!(f, "\nMACs are counted for networks without a condition only.");
        }
        writeln!(
            f,
            "\nA MAC is one multiplication with its addition (two FLOPs). Counted: convolutions, dense layers and the two\n\
             products of attention, by the direct method; not counted: normalisation, activation, softmax, resampling."
        )
    }
}
