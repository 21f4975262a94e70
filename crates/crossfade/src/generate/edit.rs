//! From a picture (§3.6): sampling that starts at a noised picture, inversion to noise, interpolation between pictures.
use super::pipeline::{Pipeline, Watch};
use super::solve::{invert, solve, solve_from};
use super::start::{StartNoise, normals, slerp};
use crate::apply::{Model, Part, field};
use crate::config::RANDOM_CLASS;
use crate::data::{Filter, Fit, Image, PassOrder, Planes, resize};
use crate::engine::{Images, Tensor, from_vec, to_host};
use crate::error::{Error, Result};
use crate::latent::Latent;
use crate::nn::Conditioned;
use crate::rng::Purpose;
use crate::sample::{Hooks, Sampled, Sampler, State};
use crossfade_math::{Field, ProcessFn};

/// The noise of a picture, from which the same settings make the picture again.
pub struct Noise {
    /// Standard normals up to the errors of network and sampler, `[1, C, H, W]` in the space of the network.
    pub values: Images,
    /// Network evaluations.
    pub evaluations: usize,
}

impl Pipeline {
    /// Channels and side of the pictures that the network makes, in pixels; an error for a network that cannot start from a
    /// picture.
    pub fn picture_size(&self) -> Result<(usize, usize)> {
        let [channels, side, _] = self.ready()?;
        if !self.process().estimates_x0() {
            return Err(Error::request(format!(
                "{} was trained for the process {}, whose state has a velocity beside the picture that a picture does not \
                 determine; use a network of another process",
                self.origin(),
                self.process().name()
            )));
        }
        Ok(self.latent.as_ref().map_or((channels, side), |latent| (latent.image_channels(), side * latent.factor())))
    }

    /// The picture at the size and with the channels of the network. One of another size is fitted as those of a dataset
    /// are, and refused without `fit`.
    pub fn fitted(&self, picture: &Image, fit: Option<Fit>) -> Result<Image> {
        let (channels, side) = self.picture_size()?;
        let picture = picture.with_channels(channels);
        if (picture.width, picture.height) == (side, side) {
            return Ok(picture.into_owned());
        }
        let square = match fit {
            Some(Fit::Crop) => picture.centre_square(),
            Some(Fit::Stretch) => picture,
            None => {
                let (w, h) = (picture.width, picture.height);
                return Err(Error::request(format!(
                    "the picture has {w}x{h} pixels, the network {side}x{side}: give --fit crop or --fit stretch"
                )));
            }
        };
        Ok(resize(&square, side, side, Filter::default(), PassOrder::HorizontalFirst))
    }

    /// How many of the last steps of the time grid a strength runs: all of them at 1, none at 0.
    pub fn steps_of_strength(&self, strength: f64) -> Result<usize> {
        if !(0.0..=1.0).contains(&strength) {
            return Err(Error::request(format!("the strength must be from 0 to 1, not {strength}")));
        }
        let all = self.sample.times(self.process())?.len() - 1;
        // 0.29 · 100 is 28.999… in floating point and means 29.
        let steps = (strength * all as f64 + 1e-9).floor() as usize;
        if steps == 0 && strength > 0.0 {
            return Err(Error::request(format!(
                "a strength of {strength} is less than one of {all} steps: give a strength of at least {:.3}, or more steps",
                1.0 / all as f64
            )));
        }
        Ok(steps)
    }

    /// The network as [`crate::apply`] uses it on pictures of any size: each window is noised and sampled with the last
    /// steps of the grid. Where a picture is one window (`tiled` is false), its noise is that of the image with its index,
    /// so that a strength of 1 makes that image.
    pub fn edit_model(&self, strength: f64, seed: u64, tiled: bool) -> Result<EditModel<'_>> {
        let (channels, side) = self.picture_size()?;
        Ok(EditModel {
            pipeline: self,
            steps: self.steps_of_strength(strength)?,
            seed,
            tiled,
            channels,
            side,
            watch: None,
        })
    }

    /// The noise that the deterministic sampler of this pipeline turns into `picture`, which must have the network's size.
    pub fn invert(&self, picture: &Planes, seed: u64) -> Result<Noise> {
        let net = self.for_inversion(seed, 1)?;
        let x0 = Images(self.to_network(&[picture]));
        let (values, evaluations) = invert(&net, &self.sample, &x0)?;
        self.check_finite(&to_host(values.0.clone()))?;
        Ok(Noise { values, evaluations })
    }

    /// Samples from noises in the space of the network, such as those of [`Pipeline::invert`].
    ///
    /// # Shapes
    /// `[B, C, H, W]`, as the result.
    pub fn sample_noise(&self, noise: &Images, seed: u64) -> Result<Sampled<Images>> {
        let net = self.for_inversion(seed, noise.0.dims()[0])?;
        let mut hooks = Hooks { noise: &mut |_| noise.scale(0.0), observe: &mut |_| () };
        let sampled = solve(&net, &self.sample, self.known_mean(noise.0.dims()[0]), &|_| noise.clone(), &mut hooks)?;
        self.check_finite(&to_host(sampled.x0.0.clone()))?;
        Ok(sampled)
    }

    /// The pictures at these shares of the great circle from noise `a` to noise `b`: 0 is the first, 1 the second. Also
    /// returns the network evaluations per picture.
    pub fn between(&self, a: &Noise, b: &Noise, shares: &[f64], seed: u64) -> Result<(Vec<Image>, usize)> {
        let [_, c, h, w] = a.values.0.dims();
        let [a, b] = [a, b].map(|noise| to_host(noise.values.0.clone()));
        let values = shares.iter().flat_map(|&share| slerp(&a, &b, share)).collect();
        let sampled = self.sample_noise(&Images(from_vec(values, [shares.len(), c, h, w], &self.device)), seed)?;
        Ok((self.pictures(sampled.x0.0)?, sampled.nfe))
    }

    /// A picture in the space of the network and back in pixels: what an autoencoder alone changes; none on pixels.
    pub fn reconstructed(&self, picture: &Planes) -> Result<Option<Image>> {
        if self.latent.is_none() {
            return Ok(None);
        }
        Ok(self.pictures(self.to_network(&[picture]))?.pop())
    }

    /// Pictures `[C, H, W]` to x_0, `[B, C, H, W]` of pixels or latents.
    fn to_network(&self, pictures: &[&Planes]) -> Tensor<4> {
        let [c, h, w] = pictures.first().map_or([1, 1, 1], |planes| planes.shape);
        let values = pictures.iter().flat_map(|planes| planes.values.iter().copied()).collect();
        let pixels = from_vec(values, [pictures.len(), c, h, w], &self.device);
        self.latent.as_ref().map_or_else(|| pixels.clone(), |latent| latent.encode_mode(pixels.clone()))
    }

    /// The network for pictures of the class of image 0, if the settings fit inversion.
    fn for_inversion(&self, seed: u64, count: usize) -> Result<Conditioned<'_>> {
        self.picture_size()?;
        let able = Sampler::invertible(self.process());
        if !able.contains(&self.sample.sampler) || self.sample.eta != 0.0 {
            let names: Vec<_> = able.iter().map(|sampler| sampler.name()).collect();
            return Err(Error::request(format!(
                "inversion needs a single-step sampler without noise on {}: {}, and eta = 0",
                self.process().name(),
                names.join(" or ")
            )));
        }
        if !self.class_names.is_empty() && self.sample.class == RANDOM_CLASS {
            let problem = "was trained with classes, and noise belongs to a picture and its class";
            return Err(Error::request(format!("{} {problem}: give a class, or none", self.origin())));
        }
        let class = self.class_of(seed, StartNoise::Index(0))?;
        self.of_classes(&vec![class; count])
    }
}

/// A network that changes pictures, see [`Pipeline::edit_model`].
pub struct EditModel<'a> {
    pipeline: &'a Pipeline,
    /// The number of steps at the end of the grid that are run.
    steps: usize,
    seed: u64,
    tiled: bool,
    channels: usize,
    side: usize,
    watch: Option<Watch<'a>>,
}

impl<'a> EditModel<'a> {
    /// The same model, which tells `watch` of every step.
    pub fn watched(self, watch: Watch<'a>) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// The number of steps that are run.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The part in the channels of the network; parts are cut as RGB.
    fn picture(&self, part: &Part) -> Planes {
        match (self.channels, part.condition.shape[0]) {
            (1, 3) => Planes::from_image(&part.condition.to_image().with_channels(1)),
            _ => part.condition.clone(),
        }
    }
}

impl Model for EditModel<'_> {
    fn channels(&self) -> usize {
        self.channels
    }

    /// Windows have exactly the size of the network.
    fn unit(&self) -> usize {
        self.side
    }

    fn make(&self, picture: u64, parts: &[Part]) -> Result<Vec<Planes>> {
        let pipeline = self.pipeline;
        let pictures: Vec<Planes> = parts.iter().map(|part| self.picture(part)).collect();
        if self.steps == 0 || parts.is_empty() {
            return Ok(pictures);
        }
        let x0 = Images(pipeline.to_network(&pictures.iter().collect::<Vec<_>>()));
        let shape = x0.0.dims();
        let [_, c, h, w] = shape;
        // Noise is drawn in the space of the network, where positions are those of the picture divided by this factor.
        let factor = pipeline.latent.as_ref().map_or(1, Latent::factor);
        let noise = |step: u64, [whole, tile]: [Purpose; 2]| {
            let of = |part: &Part| match self.tiled {
                true => field(self.seed, picture, step, tile, [c, h, w], part.y / factor, part.x / factor),
                false => normals(self.seed, picture, step, whole, c * h * w),
            };
            Images(from_vec(parts.iter().flat_map(of).collect(), shape, &pipeline.device))
        };
        let start = |part: u64| noise(part, [Purpose::Start, Purpose::Tile]);
        let mut step_noise = |step: usize| noise(step as u64, [Purpose::Step, Purpose::TileStep]);
        let mut observe = |state: State<'_, Images>| self.watch.iter().for_each(|watch| watch(parts, &state));
        let mut hooks = Hooks { noise: &mut step_noise, observe: &mut observe };
        let class = pipeline.class_of(self.seed, StartNoise::Index(picture))?;
        let net = pipeline.of_classes(&vec![class; parts.len()])?;
        let times = pipeline.sample.times(pipeline.process())?;
        let first = times.len() - 1 - self.steps;
        let x0 = if first == 0 {
            // From pure noise, as in sampling: what the process leaves of a picture at its first time is not used.
            pipeline.run(&net, pipeline.known_mean(parts.len()), &start, &mut hooks)?.x0
        } else {
            // The normals of part 0 are eps, the others those of the drawn parts of phi.
            let extra: Vec<Images> = (0..pipeline.process().extra().phi).map(|k| start(1 + k as u64)).collect();
            let state = pipeline.process().forward(&x0, &start(0), &extra, &times[first].into()).state;
            solve_from(&net, &pipeline.sample, &state[0], first, &mut hooks)?.x0
        };
        pipeline.planes(x0.0)
    }
}
