//! LPIPS of image pairs; the network is in `nn::lpips`.
use super::super::Report;
use super::super::metric::{
    Accumulator, Compared, FeatureNetwork, Measurement, Metric, MetricOptions, MetricSpec, Sample, Value, Verb,
};
use super::super::raster::Raster;
use super::summarise;
use crate::engine::{Device, Tensor, from_vec, to_host};
use crate::error::{Error, Result, Shown};
use crate::limits::{LPIPS_PIXELS, LPIPS_VGG_PIXELS};
use crate::nn::lpips::{FeatureNet, Lpips};

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "lpips",
    about: "Learned perceptual distance (LPIPS 0.1); smaller is more alike",
    values: &[Value::lower("lpips", "LPIPS")],
    compared: Compared::Target,
    network: Some(FeatureNetwork::Lpips),
    protocols: &["alex", "vgg"],
    min_images: 2,
    revision: 1,
    verb: Verb::Own,
    open: |options| Ok(Box::new(LpipsMetric::open(options)?)),
};

/// Number of pixels per batch of the network, unless a single image has more. It bounds the memory for feature maps.
const PIXELS: usize = 1 << 18;

struct LpipsMetric {
    network: Lpips,
    device: Device,
}

struct LpipsAccumulator<'a> {
    metric: &'a LpipsMetric,
    images: Vec<(String, f64)>,
}

impl LpipsMetric {
    fn open(options: &MetricOptions) -> Result<Self> {
        let name = options.protocol.unwrap_or(SPEC.protocols[0]);
        let unknown =
            || Error::request(format!("lpips has no backbone `{name}`; known: {}", SPEC.protocols.join(", ")));
        let backbone = FeatureNet::ALL.into_iter().find(|backbone| backbone.name() == name).ok_or_else(unknown)?;
        let network = Lpips::load(options.weights_of(SPEC.name)?, backbone, options.device)?;
        Ok(Self { network, device: options.device.clone() })
    }

    /// The distances of pairs that all have the same size.
    fn distances(&self, samples: &[Sample]) -> Result<Vec<f64>> {
        let ((width, height, _), needed) = (samples[0].output.size(), self.network.backbone().min_side());
        let pixels = (width * height) as u64;
        let limit = match self.network.backbone() {
            FeatureNet::Alex => LPIPS_PIXELS,
            FeatureNet::Vgg => LPIPS_VGG_PIXELS,
        };
        limit.check(pixels).map_err(|why| samples[0].error(why))?;
        let (side, name) = (width.min(height), self.network.backbone().name());
        if side < needed {
            let message = format!("lpips with {name} needs sides of {needed} pixels, there are {side}");
            return Err(samples[0].error(message));
        }
        let targets = samples.iter().map(Sample::target).collect::<Result<Vec<_>>>()?;
        if let Some((sample, other)) = samples.iter().zip(&targets).find(|(s, target)| s.output.size() != target.size())
        {
            let (is, should) = (sample.output.describe_size(), other.describe_size());
            return Err(sample.error(format!("is {is}, but its target is {should}")));
        }
        let outputs = tensor(samples.iter().map(|sample| &sample.output), &self.device);
        let targets = tensor(targets.into_iter(), &self.device);
        let values: Vec<f64> = to_host(self.network.forward(outputs, targets)).into_iter().map(f64::from).collect();
        match values.iter().position(|v| !v.is_finite()) {
            Some(i) => Err(samples[i].error(format!("lpips gives {}; are the weights damaged?", values[i]))),
            None => Ok(values),
        }
    }
}

impl Metric for LpipsMetric {
    fn accumulator(&self) -> Box<dyn Accumulator + '_> {
        Box::new(LpipsAccumulator { metric: self, images: vec![] })
    }
}

impl Accumulator for LpipsAccumulator<'_> {
    fn add(&mut self, samples: Vec<Sample>) -> Result<()> {
        samples.iter().try_for_each(Sample::check)?;
        let mut remaining = &samples[..];
        while let Some(first) = remaining.first() {
            let (width, height, _) = first.output.size();
            let max_batch = (PIXELS / (width * height)).max(1);
            let same_size = |sample: &&Sample| sample.output.size() == first.output.size();
            // A tensor holds images of one size only; an image of another size starts a new batch.
            let (batch, others) = remaining.split_at(remaining.iter().take(max_batch).take_while(same_size).count());
            let values = self.metric.distances(batch)?;
            self.images.extend(batch.iter().map(|sample| sample.name.clone()).zip(values));
            remaining = others;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Measurement> {
        let network = &self.metric.network;
        let report = Report::new(SPEC.name)
            .with("protocol", format!("lpips 0.1, {}", network.backbone().name()))
            .with("weights", format!("{} sha256:{}", network.path().shown(), network.sha256()))
            .with("values", "-1 to 1, at the pictures' own size");
        summarise(report, self.images)
    }
}

/// # Shapes
/// B images of the same size to `[B, C, H, W]` with values from −1 to 1.
fn tensor<'a>(images: impl Iterator<Item = &'a Raster>, device: &Device) -> Tensor<4> {
    let (mut values, mut shape) = (vec![], [0; 4]);
    for image in images {
        let (width, height, channels) = image.size();
        shape = [shape[0] + 1, channels, height, width];
        let channel = |k: usize| image.values().skip(k).step_by(channels).map(|v| (v / 127.5 - 1.0) as f32);
        (0..channels).for_each(|k| values.extend(channel(k)));
    }
    from_vec(values, shape, device)
}
