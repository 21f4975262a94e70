//! Structural similarity (Wang et al. 2004), averaged over the region in which the complete window fits.
use super::super::metric::{Compared, MetricSpec, Value, Verb};
use super::super::raster::Component;
use super::components::{Components, Formula};
use super::protocol::Protocol;

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "ssim",
    about: "Structural similarity of outputs against targets",
    values: &[Value::higher("ssim", "SSIM")],
    compared: Compared::Target,
    network: None,
    protocols: &Protocol::NAMES,
    min_images: 2,
    revision: 1,
    verb: Verb::Common {
        examples: "Examples:
  crossfade eval ssim outputs targets
  crossfade eval ssim upscaled Set5/HR --protocol basicsr --crop 4
  crossfade eval ssim outputs targets --protocol skimage

The window is 11x11 Gaussian with sigma 1.5, or 7x7 uniform with --protocol skimage. The other protocols are those of
`eval psnr`.",
    },
    open: |options| FORMULA.open(options),
};

static FORMULA: Formula = Formula {
    name: SPEC.name,
    min_side: |protocol| protocol.window.side(),
    value: |components, protocol| ssim(components, protocol.window),
    unbounded: false,
    state: |report, protocol| {
        report.with("window", protocol.window.describe()).with("mean", "over channels, then images")
    },
};

/// The window of the local statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// 11x11, Gaussian of σ = 1.5: Wang's, BasicSR's, and scikit-image's with `gaussian_weights=True, sigma=1.5,
    /// use_sample_covariance=False`.
    Gaussian,
    /// 7x7, all weights equal, variances divided by n − 1: the default of scikit-image.
    Uniform,
}

/// The constants C_1 and C_2 for values up to 255.
const C: [f64; 2] = [(0.01 * 255.0) * (0.01 * 255.0), (0.03 * 255.0) * (0.03 * 255.0)];

/// Pixels whose local means are in memory at once, if a strip is not a single row.
const STRIP: usize = 1 << 18;

impl Window {
    /// The weights along one axis; they sum to 1.
    fn weights(self) -> Vec<f64> {
        let weights: Vec<f64> = match self {
            Self::Gaussian => (-5..=5).map(|i| libm::exp(-f64::from(i * i) / (2.0 * 1.5 * 1.5))).collect(),
            Self::Uniform => vec![1.0; 7],
        };
        let total: f64 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    }

    /// The side of the window in pixels.
    pub(super) fn side(self) -> usize {
        match self {
            Self::Gaussian => 11,
            Self::Uniform => 7,
        }
    }

    /// The factor of variances: n/(n − 1) if the window uses the sample covariance.
    fn correction(self) -> f64 {
        match self {
            Self::Gaussian => 1.0,
            Self::Uniform => 49.0 / 48.0,
        }
    }

    /// The description in reports.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Gaussian => "11x11 Gaussian, sigma 1.5, whole windows only",
            Self::Uniform => "7x7 uniform, sample covariance, whole windows only",
        }
    }
}

/// Mean similarities of a component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Similarity {
    /// The mean of the luminance, contrast and structure terms together: SSIM.
    pub ssim: f64,
    /// The mean of contrast and structure alone.
    pub contrast: f64,
}

/// SSIM = (2 μ_x μ_y + C_1)(2 σ_xy + C_2) / ((μ_x² + μ_y² + C_1)(σ_x² + σ_y² + C_2)), averaged; the components must be at
/// least as large as the window.
pub(super) fn similarity(x: &Component, y: &Component, window: Window) -> Similarity {
    let (weights, n) = (window.weights(), window.correction());
    let (columns, rows) = (x.width + 1 - weights.len(), x.height + 1 - weights.len());
    let (mut ssim, mut contrast) = (0.0, 0.0);
    // In strips: the local means of all pixels at once would take several times the memory of the components.
    let strip = (STRIP / x.width).max(1);
    for top in (0..rows).step_by(strip) {
        let (first, height) = (top * x.width, strip.min(rows - top) + weights.len() - 1);
        let mean = |value: &dyn Fn(usize) -> f64| filter(x.width, height, &weights, &|i| value(first + i));
        let (mx, my) = (mean(&|i| x.values[i]), mean(&|i| y.values[i]));
        let mxx = mean(&|i| x.values[i] * x.values[i]);
        let myy = mean(&|i| y.values[i] * y.values[i]);
        let mxy = mean(&|i| x.values[i] * y.values[i]);
        for i in 0..mx.len() {
            let (ux, uy) = (mx[i], my[i]);
            let (vx, vy, vxy) = (n * (mxx[i] - ux * ux), n * (myy[i] - uy * uy), n * (mxy[i] - ux * uy));
            let cs = (2.0 * vxy + C[1]) / (vx + vy + C[1]);
            contrast += cs;
            ssim += cs * (2.0 * ux * uy + C[0]) / (ux * ux + uy * uy + C[0]);
        }
    }
    let count = (columns * rows) as f64;
    Similarity { ssim: ssim / count, contrast: contrast / count }
}

/// SSIM, averaged over the components.
fn ssim(components: Components, window: Window) -> f64 {
    let count = components.len();
    let sum: f64 = components.map(|(x, y)| similarity(&x, &y, window).ssim).sum();
    sum / count as f64
}

/// The weighted mean of `value` over every window that fits.
fn filter(width: usize, height: usize, weights: &[f64], value: &dyn Fn(usize) -> f64) -> Vec<f64> {
    let (w, h) = (width + 1 - weights.len(), height + 1 - weights.len());
    // Both windows are separable: two passes with n weights instead of one with n².
    let mut rows = Vec::with_capacity(w * height);
    let mut row = vec![0.0; width];
    for y in 0..height {
        row.iter_mut().enumerate().for_each(|(x, v)| *v = value(y * width + x));
        rows.extend(row.windows(weights.len()).map(|part| part.iter().zip(weights).map(|(v, k)| v * k).sum::<f64>()));
    }
    let mut out = vec![0.0; w * h];
    for (y, out) in out.chunks_exact_mut(w).enumerate() {
        for (row, k) in rows[y * w..].chunks_exact(w).zip(weights) {
            out.iter_mut().zip(row).for_each(|(sum, v)| *sum += k * v);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(width: usize, height: usize, seed: usize) -> Component {
        let value = |i: usize| ((i * 37 + i * i * seed) % 251) as f64;
        Component { width, height, values: (0..width * height).map(value).collect() }
    }

    /// The definition, window by window.
    fn slow(x: &Component, y: &Component, window: Window) -> Similarity {
        let (weights, side) = (window.weights(), window.side());
        let (mut ssim, mut contrast, mut count) = (0.0, 0.0, 0.0);
        for top in 0..=x.height - side {
            for left in 0..=x.width - side {
                let mean = |value: &dyn Fn(usize) -> f64| -> f64 {
                    let at = |i: usize, j: usize| weights[i] * weights[j] * value((top + i) * x.width + left + j);
                    (0..side).flat_map(|i| (0..side).map(move |j| (i, j))).map(|(i, j)| at(i, j)).sum()
                };
                let (ux, uy) = (mean(&|i| x.values[i]), mean(&|i| y.values[i]));
                let n = window.correction();
                let vx = n * mean(&|i| (x.values[i] - ux).powi(2));
                let vy = n * mean(&|i| (y.values[i] - uy).powi(2));
                let vxy = n * mean(&|i| (x.values[i] - ux) * (y.values[i] - uy));
                let cs = (2.0 * vxy + 58.5225) / (vx + vy + 58.5225);
                contrast += cs;
                ssim += cs * (2.0 * ux * uy + 6.5025) / (ux * ux + uy * uy + 6.5025);
                count += 1.0;
            }
        }
        Similarity { ssim: ssim / count, contrast: contrast / count }
    }

    #[test]
    fn the_fast_way_is_the_definition() {
        for window in [Window::Gaussian, Window::Uniform] {
            assert_eq!(window.weights().len(), window.side());
            for (width, height) in [(11, 11), (13, 20), (19, 12)] {
                let (x, y) = (component(width, height, 3), component(width, height, 5));
                let (found, expected) = (similarity(&x, &y, window), slow(&x, &y, window));
                assert!((found.ssim - expected.ssim).abs() < 1e-9, "{window:?} {found:?} {expected:?}");
                assert!((found.contrast - expected.contrast).abs() < 1e-9, "{window:?}");
            }
        }
    }

    /// A very wide image is processed in strips of few rows, or a few hundred times its size would be in memory.
    #[test]
    fn strips_do_not_change_the_value() {
        let (width, height) = (STRIP / 8, 24);
        let (wide, other) = (component(width, height, 3), component(width, height, 5));
        let turned = |c: &Component| {
            let value = |i: usize| c.values[i % c.height * c.width + i / c.height];
            Component { width: c.height, height: c.width, values: (0..c.values.len()).map(value).collect() }
        };
        let found = similarity(&wide, &other, Window::Uniform);
        let expected = similarity(&turned(&wide), &turned(&other), Window::Uniform);
        assert!((found.ssim - expected.ssim).abs() < 1e-9, "{found:?} {expected:?}");
    }
}
