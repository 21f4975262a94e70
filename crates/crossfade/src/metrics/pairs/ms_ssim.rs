//! SSIM over five scales (Wang, Simoncelli and Bovik 2003).
use super::super::metric::{Compared, MetricSpec, Value, Verb};
use super::super::raster::Component;
use super::components::{Components, Formula};
use super::protocol::Protocol;
use super::ssim::{Window, similarity};

pub(in crate::metrics) const SPEC: MetricSpec = MetricSpec {
    name: "ms-ssim",
    about: "Structural similarity over five scales, for images of 161 pixels or more",
    values: &[Value::higher("ms-ssim", "MS-SSIM")],
    compared: Compared::Target,
    network: None,
    protocols: &Protocol::NAMES,
    min_images: 2,
    revision: 1,
    verb: Verb::Common {
        examples: "Example:
  crossfade eval ms-ssim outputs targets --per-image",
    },
    open: |options| FORMULA.open(options),
};

static FORMULA: Formula = Formula {
    name: SPEC.name,
    min_side: |_| MIN_SIDE,
    value: |components, _| ms_ssim(components),
    unbounded: false,
    state: |report, _| {
        let weights = WEIGHTS.map(|w| w.to_string()).join(" ");
        report
            .with("window", Window::Gaussian.describe())
            .with("scales", format!("5, weights {weights}"))
            .with("mean", "over channels, then images")
    },
};

/// The exponents of the scales, finest first (Table 1 of the paper).
const WEIGHTS: [f64; 5] = [0.0448, 0.2856, 0.3001, 0.2363, 0.1333];

/// The smallest side at which the 11x11 window fits into the coarsest scale: (11 − 1)·2⁴ + 1.
const MIN_SIDE: usize = 161;

/// Π_{j<5} cs_j^{w_j} · ssim_5^{w_5}, averaged over the components. Negative means count as 0, because they have no
/// real power with a fractional exponent.
fn ms_ssim(components: Components) -> f64 {
    let count = components.len();
    let sum: f64 = components.map(|(x, y)| component_ms_ssim(x, y)).sum();
    sum / count as f64
}

fn component_ms_ssim(mut x: Component, mut y: Component) -> f64 {
    let mut product = 1.0;
    for (scale, &weight) in WEIGHTS.iter().enumerate() {
        let found = similarity(&x, &y, Window::Gaussian);
        let last = scale + 1 == WEIGHTS.len();
        product *= libm::pow(if last { found.ssim } else { found.contrast }.max(0.0), weight);
        if !last {
            x = halved(&x);
            y = halved(&y);
        }
    }
    product
}

/// The component at half size, by means of 2x2 pixels; the last row or column of an odd side counts twice.
fn halved(component: &Component) -> Component {
    let (w, h) = (component.width, component.height);
    let (width, height) = (w.div_ceil(2), h.div_ceil(2));
    let mean = |i: usize| {
        let (y, x) = (2 * (i / width), 2 * (i % width));
        let (below, right) = ((y + 1).min(h - 1), (x + 1).min(w - 1));
        let at = |y: usize, x: usize| component.values[y * w + x];
        0.25 * (at(y, x) + at(y, right) + at(below, x) + at(below, right))
    };
    Component { width, height, values: (0..width * height).map(mean).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_half_the_size_and_repeats_an_odd_end() {
        let component = Component { width: 3, height: 3, values: (0..9).map(f64::from).collect() };
        let half = halved(&component);
        assert_eq!((half.width, half.height), (2, 2));
        assert_eq!(half.values, [2.0, 3.5, 6.5, 8.0]);
    }

    #[test]
    fn the_value_is_a_product_of_powers_of_the_scales() {
        let wave = |k: f64| {
            let value =
                |i: usize| 128.0 + 50.0 * libm::sin((i % 176) as f64 * k) + 30.0 * libm::cos((i / 176) as f64 * 0.3);
            Component { width: 176, height: 170, values: (0..176 * 170).map(value).collect() }
        };
        let (mut x, mut y) = (wave(0.2), wave(0.203));
        let found = component_ms_ssim(wave(0.2), wave(0.203));
        let mut product = 1.0;
        for (scale, weight) in WEIGHTS.into_iter().enumerate() {
            let similarity = similarity(&x, &y, Window::Gaussian);
            let base = if scale == 4 { similarity.ssim } else { similarity.contrast };
            product *= libm::pow(base.max(0.0), weight);
            (x, y) = (halved(&x), halved(&y));
        }
        assert!((found - product).abs() < 1e-12 && found > 0.0 && found < 1.0, "{found} {product}");
        assert!((WEIGHTS.iter().sum::<f64>() - 1.0).abs() < 1e-3);
    }
}
