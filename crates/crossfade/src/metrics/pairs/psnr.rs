//! Peak signal-to-noise ratio.
use super::super::metric::{Compared, MetricSpec, Value, Verb};
use super::components::{Components, Formula};
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
    value: |components, _| psnr(components),
    unbounded: true,
    state: |report, _| report.with("unit", "dB, peak 255, of all channels together; mean over the images"),
};

/// 10·log10(255²/MSE) over all values of all components; infinite for equal images.
fn psnr(components: Components) -> f64 {
    let (mut squares, mut count) = (0.0, 0);
    for (a, b) in components {
        count += a.values.len();
        a.values.iter().zip(&b.values).for_each(|(a, b)| squares += (a - b) * (a - b));
    }
    psnr_of(squares, count)
}
