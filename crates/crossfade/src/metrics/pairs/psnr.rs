//! Peak signal-to-noise ratio.
use super::super::metric::{Compared, MetricSpec, Value, Verb};
use super::super::raster::Component;
use super::components::Formula;
use super::protocol::Protocol;
use crate::data::image::psnr_of;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "psnr",
    about: "Peak signal-to-noise ratio of outputs against targets",
    values: &[Value::higher("psnr", "PSNR, dB")],
    compared: Compared::Target,
    network: None,
    protocols: &Protocol::NAMES,
    min_images: 2,
    revision: 1,
    verb: Verb::Common {
        examples: "Examples:
  crossfade eval psnr outputs targets
  crossfade eval psnr upscaled Set5/HR --protocol basicsr --crop 4 --per-image

Protocols:
  adm        all channels, no border left out, floats as they are (the default)
  basicsr    y of BT.601, unrounded; --crop N as wide as the scale factor
  sr-matlab  the same, y rounded as MATLAB's rgb2ycbcr does for 8-bit images
  skimage    as adm; SSIM with scikit-image's default window

Files are paired by their names without ending; .npy arrays of floats from 0 to 1 are read too.",
    },
    open: |options| FORMULA.open(options),
};

static FORMULA: Formula = Formula {
    name: SPEC.name,
    min_side: |_| 1,
    value: |output, target, _| psnr(output, target),
    unbounded: true,
    state: |report, _| report.with("unit", "dB, peak 255, of all channels together; mean over the images"),
};

/// 10·log10(255²/MSE) over all values of all components; infinite for equal images.
fn psnr(output: &[Component], target: &[Component]) -> f64 {
    let count: usize = output.iter().map(|p| p.values.len()).sum();
    let pairs = output.iter().zip(target).flat_map(|(a, b)| a.values.iter().zip(&b.values));
    psnr_of(pairs.map(|(a, b)| (a - b) * (a - b)).sum(), count)
}
