//! Any window, as a matrix product that reads the window in place.
use super::product::{Panel, Product, lanes, panels};
use super::{Conv, Map, Slot};
use crate::lanes::{Kernel, Level, Simd};
use crate::pool::Workspace;

/// Weights as [panel][tap][ci][lanes of the panel].
pub(super) fn filters(level: Level, weight: &[f32], ci: usize, co: usize, taps: usize) -> Workspace {
    let (l, k_len) = (lanes(level), taps * ci);
    let mut packed = Workspace::take(co * k_len);
    let mut to = packed.iter_mut();
    for panel in panels(l, co) {
        let channels = panel.start * l..(panel.start + panel.count) * l;
        for (tap, i) in (0..taps).flat_map(|tap| (0..ci).map(move |i| (tap, i))) {
            for (o, to) in channels.clone().zip(to.by_ref()) {
                *to = weight[(o * ci + i) * taps + tap];
            }
        }
    }
    packed.keep()
}

pub(super) struct Direct<'a> {
    pub(super) conv: &'a Conv,
    pub(super) filters: &'a [f32],
    pub(super) x: &'a Map,
    pub(super) out: Slot<'a>,
}

impl Kernel for Direct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let k_len = self.conv.window.taps() * self.conv.ci;
        for panel in panels(S::LANES, self.conv.co) {
            let weights = &self.filters[panel.start * S::LANES * k_len..][..panel.count * S::LANES * k_len];
            for image in 0..self.x.images {
                self.image(s, image, panel, weights);
            }
        }
    }
}

impl Direct<'_> {
    /// One picture, one panel of channels.
    #[inline(always)]
    fn image<S: Simd>(&mut self, s: S, image: usize, panel: Panel, weights: &[f32]) {
        let (x, window, ci) = (self.x, self.conv.window, self.conv.ci);
        let [oh, ow] = window.output(x.h, x.w);
        let Slot { map, image: first, channel } = &mut self.out;
        let channel = *channel + panel.start * S::LANES;
        // Without a window and without borders the rows of a picture are one long row.
        let flat = window.taps() == 1 && window.stride == 1 && x.border[1] == 0 && map.border[1] == 0;
        let (lines, line) = if flat { (1, oh * ow) } else { (oh, ow) };
        for y in 0..lines {
            let top = (y * window.stride) as isize - window.padding[0] as isize;
            let (a, c) =
                (x.at(image, top, -(window.padding[1] as isize)), map.at(*first + image, y as isize, 0) + channel);
            // The last window of the line ends inside the picture's border, the last pixel of the result in its map.
            let reach = (line - 1) * window.stride * ci + (window.kernel[0] - 1) * x.row() + window.kernel[1] * ci;
            assert!(a + reach <= x.data.len() && c + (line - 1) * map.c + panel.count * S::LANES <= map.data.len());
            let product = Product {
                a: x.data[a..].as_ptr(),
                lda: window.stride * ci,
                runs: window.kernel[0],
                run_stride: x.row(),
                k_len: window.kernel[1] * ci,
                b: weights.as_ptr(),
                c: map.data[c..].as_mut_ptr(),
                ldc: map.c,
                bias: Some(self.conv.bias[panel.start * S::LANES..].as_ptr()),
            };
            // SAFETY: reads and writes were just checked; `weights` and `bias` hold the whole panel.
            unsafe { product.run(s, line, panel.count) };
        }
    }
}
