//! What a run shows of itself: pictures made with the averaged weights.
use crate::apply::{Model, Part};
use crate::config::RunConfig;
use crate::data::Planes;
use crate::data::{Dataset, Filter, Image, PassOrder, contact_sheet, resize};
use crate::engine::Device;
use crate::error::Result;
use crate::generate::{Maker, Start, decoded, sample_batch};
use crate::latent::Latent;
use crate::loader::index;
use crate::nn::{CondUNet, Denoiser, UNet};
use crate::task::SampleKey;

/// Pictures on a sheet.
const COUNT: u64 = 16;
/// Examples on a sheet of a task.
const EXAMPLES: u64 = 4;

/// A kind of network that can show what it has learnt.
pub trait Sheet: Sized {
    /// Always of the same noise and examples.
    fn sheet(
        net: Denoiser<Self>,
        config: &RunConfig,
        latent: Option<&Latent>,
        set: &dyn Dataset,
        device: &Device,
    ) -> Result<Image>;
}

impl Sheet for UNet {
    fn sheet(
        net: Denoiser,
        config: &RunConfig,
        latent: Option<&Latent>,
        _set: &dyn Dataset,
        device: &Device,
    ) -> Result<Image> {
        let (c, side) = (config.network.channels, config.network.resolution);
        let starts: Vec<_> = (0..COUNT).map(Start::Index).collect();
        let sampled = sample_batch(&net, &config.sample, [c, side, side], config.seed, &starts, device, &mut |_| ())?;
        let images = decoded(latent, sampled.x0.0);
        Ok(contact_sheet(&images, 4, 2, (128 / images[0].width).max(1)))
    }
}

impl Sheet for CondUNet {
    /// A row an example: what the network is told, what it makes of it, what was wanted.
    fn sheet(
        net: Denoiser<Self>,
        config: &RunConfig,
        latent: Option<&Latent>,
        set: &dyn Dataset,
        device: &Device,
    ) -> Result<Image> {
        let maker = Maker::new(net, config, latent.cloned(), config.sample.clone(), config.seed, device);
        let mut rows = vec![];
        for counter in 0..EXAMPLES {
            let k = index(config.seed, counter, set.len());
            let draw = SampleKey { seed: config.seed, counter, flip: false };
            let pair = config.task.task().example(&set.get(k)?, set.label(k)?.as_ref(), &draw)?;
            let [_, height, width] = pair.target.shape;
            let Some(condition) = pair.condition else { continue };
            let told = shown(&condition, width, height);
            let part = Part { condition, size: [height, width], y: 0, x: 0 };
            let made = maker.make(counter, std::slice::from_ref(&part))?;
            let picture = |planes| shown(&config.task.task().output(planes, &part.condition), width, height);
            rows.push(told);
            rows.extend(made.into_iter().map(picture));
            rows.push(picture(pair.target));
        }
        Ok(contact_sheet(&rows, 3, 2, (128 / rows[0].width).max(1)))
    }
}

/// Planes as a colour picture of that size; a fourth channel is left out.
fn shown(planes: &Planes, width: usize, height: usize) -> Image {
    let [c, h, w] = planes.shape;
    let kept = if c == 4 { 3 } else { c };
    let image = Planes::new([kept, h, w], planes.values[..kept * h * w].to_vec()).to_image();
    resize(&image.with_channels(3), width, height, Filter::Box, PassOrder::HorizontalFirst)
}
