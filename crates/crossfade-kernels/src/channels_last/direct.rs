//! Convolution with any window, as a matrix product that reads the window in place.
use super::{Conv, Map, Slot};
use crate::product::{Epilogue, Left, PackedMatrix, Panel, Product, Right, panels};
use crate::simd::{Isa, Kernel, Simd};

/// Weights with rows k = (tap, ci), columns co.
pub(super) fn filters(isa: Isa, weight: &[f32], ci: usize, co: usize, taps: usize) -> PackedMatrix {
    PackedMatrix::new(isa, [taps * ci, co], weight, ci * taps, |k| k % ci * taps + k / ci).detach()
}

/// The convolution of all images of `x`.
pub(super) struct Direct<'a> {
    pub(super) conv: &'a Conv,
    pub(super) filters: &'a PackedMatrix,
    pub(super) x: &'a Map,
    pub(super) out: Slot<'a>,
}

impl Kernel for Direct<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let filters = self.filters;
        for panel in panels(s.isa(), self.conv.co) {
            for image in 0..self.x.images {
                self.image(s, image, panel, filters.panel(panel));
            }
        }
    }
}

impl Direct<'_> {
    /// Computes one panel of output channels of one image.
    #[inline(always)]
    fn image<S: Simd>(&mut self, s: S, image: usize, panel: Panel, weights: &[f32]) {
        let (x, window, ci) = (self.x, self.conv.window, self.conv.ci);
        let [oh, ow] = window.output(x.h, x.w);
        let Slot { map, image: first, channel } = &mut self.out;
        let channel = *channel + panel.start * S::LANES;
        // For a 1x1 kernel and without borders the rows of an image are one long row.
        let flat = window.taps() == 1 && window.stride == 1 && x.border[1] == 0 && map.border[1] == 0;
        let (lines, line) = if flat { (1, oh * ow) } else { (oh, ow) };
        for y in 0..lines {
            let top = (y * window.stride) as isize - window.padding[0] as isize;
            let (a, c) =
                (x.at(image, top, -(window.padding[1] as isize)), map.at(*first + image, y as isize, 0) + channel);
            // The last window of the line ends inside the image's border, the last pixel of the result in its map.
            let reach = (line - 1) * window.stride * ci + (window.kernel[0] - 1) * x.row() + window.kernel[1] * ci;
            assert!(a + reach <= x.data.len() && c + (line - 1) * map.c + panel.count * S::LANES <= map.data.len());
            let (run, width) = (window.kernel[1] * ci, panel.count * S::LANES);
            let product = Product {
                rows: line,
                vectors: panel.count,
                runs: window.kernel[0],
                depth: run,
                a: Left { ptr: x.data[a..].as_ptr(), row: window.stride * ci, step: 1, run: x.row() },
                b: Right { ptr: weights.as_ptr(), step: width, run: run * width },
                c: map.data[c..].as_mut_ptr(),
                c_row: map.c,
                epilogue: Epilogue::BiasRelu(self.conv.bias[panel.start * S::LANES..][..width].as_ptr()),
            };
            // SAFETY: reads and writes were just checked; `weights` and `bias` hold the whole panel.
            unsafe { s.isa().run_raw(product) };
        }
    }
}
