//! Convolution with few output channels, such as the last layer of a network, whose outputs are colours.
//!
//! Vectors over so few channels would be mostly empty. So every pixel is multiplied with the weights of all taps at once,
//! in vectors over (tap, channel), and the product of each tap is then added to the output with the tap's shift (known as
//! kn2row; Vasudevan et al. 2017, arXiv:1704.04428).
use super::ConvShape;
use crate::layout::{Gather, Scatter};
use crate::product::{Epilogue, Left, PackedMatrix, Product, Right, panels};
use crate::simd::Isa;
use crate::team::Share;
use crate::workspace::{Shared, Workspace};
use rayon::prelude::*;

/// Most output pixels of a task, which has at least one row.
const PIXELS: usize = 512;

/// Whether this takes at most half the multiplications of [`super::direct`], counting those in empty lanes.
pub(crate) fn is_faster(isa: Isa, s: &ConvShape) -> bool {
    let (l, taps) = (isa.register_lanes(), s.taps());
    s.stride == 1 && 2 * (taps * s.co).div_ceil(l) <= taps * s.co.div_ceil(l)
}

/// Weights with rows ci, columns (tap, co).
pub(crate) fn filters(isa: Isa, weight: &[f32], s: &ConvShape) -> PackedMatrix {
    let taps = s.taps();
    pack(isa, weight, s.ci, s.co, taps, |i, tap, o| (o * s.ci + i) * taps + tap)
}

/// Weights for the transposed convolution: rows co, columns (tap, ci), with the kernel turned by 180°.
pub(crate) fn rotated_filters(isa: Isa, weight: &[f32], s: &ConvShape) -> PackedMatrix {
    let taps = s.taps();
    pack(isa, weight, s.co, s.ci, taps, |o, tap, i| (o * s.ci + i) * taps + taps - 1 - tap)
}

fn pack(
    isa: Isa,
    weight: &[f32],
    k_len: usize,
    channels: usize,
    taps: usize,
    index: impl Fn(usize, usize, usize) -> usize,
) -> PackedMatrix {
    let columns = taps * channels;
    let mut rows = Workspace::take(k_len * columns);
    for (k, row) in rows.chunks_exact_mut(columns).enumerate() {
        for (column, to) in row.iter_mut().enumerate() {
            *to = weight[index(k, column / channels, column % channels)];
        }
    }
    PackedMatrix::new(isa, [k_len, columns], &rows, 1, |k| k * columns)
}

/// out = x ∗ filters + bias, for stride 1.
pub(crate) fn convolve(
    isa: Isa,
    x: &[f32],
    filters: &PackedMatrix,
    bias: Option<&[f32]>,
    s: &ConvShape,
    out: &mut [f32],
) {
    let (oh, ow) = (s.out_h(), s.out_w());
    let band = (PIXELS / ow).clamp(1, oh);
    let bands = oh.div_ceil(band);
    let to = Shared::new(out);
    (0..s.n * bands).into_par_iter().share(|task| {
        let (n, y0) = (task / bands, task % bands * band);
        let count = band.min(oh - y0);
        // Rows first..end of the image lie under the windows of the band.
        let first = y0.saturating_sub(s.padding).min(s.h);
        let end = (y0 + count + s.kernel - 1).saturating_sub(s.padding).clamp(first, s.h);
        let image = &x[n * s.ci * s.h * s.w..][..s.ci * s.h * s.w];
        let products = products(isa, image, filters, s, first, end);
        for o in 0..s.co {
            // SAFETY: rows y0 .. y0 + count of plane (n, o), which no other task writes; `out` has n · co planes of
            // oh · ow (checked on entry).
            let rows = unsafe {
                let at = to.get().add(((n * s.co + o) * oh + y0) * ow);
                std::slice::from_raw_parts_mut(at, count * ow)
            };
            rows.fill(bias.map_or(0.0, |bias| bias[o]));
            for tap in 0..s.taps() {
                let plane = &products[(tap * s.co + o) * (end - first) * s.w..][..(end - first) * s.w];
                add_shifted(rows, plane, s, tap, y0, first);
            }
        }
    });
}

/// The products of all pixels in rows `first..end`: planes [(tap, co)][row][column].
fn products(isa: Isa, image: &[f32], filters: &PackedMatrix, s: &ConvShape, first: usize, end: usize) -> Workspace {
    let (l, pixels, columns) = (isa.lanes(), (end - first) * s.w, s.taps() * s.co);
    let mut planes = Workspace::take(columns * pixels);
    let mut x = Workspace::take(pixels * s.ci);
    let gather = Gather {
        src: image.as_ptr(),
        plane: s.h * s.w,
        channels: s.ci,
        fill: s.ci,
        h: s.h,
        w: s.w,
        y0: first as isize,
        x0: 0,
        rows: end - first,
        cols: s.w,
        dst: x.as_mut_ptr(),
        ld: s.ci,
    };
    // SAFETY: `image` holds ci planes, `x` the rows' pixels.
    unsafe { isa.run_raw(gather) };
    for panel in panels(isa, columns) {
        let width = panel.count * l;
        let mut c = Workspace::take(pixels * width);
        let product = Product {
            rows: pixels,
            vectors: panel.count,
            runs: 1,
            depth: s.ci,
            a: Left::rows(x.as_ptr(), s.ci),
            b: Right::rows(filters.panel(panel).as_ptr(), width),
            c: c.as_mut_ptr(),
            c_row: width,
            epilogue: Epilogue::Store,
        };
        let column = panel.start * l;
        let scatter = Scatter {
            src: c.as_ptr(),
            ld: width,
            cols_ld: pixels,
            rows: 1,
            cols: pixels,
            channels: width.min(columns - column),
            dst: planes[column * pixels..].as_mut_ptr(),
            plane: pixels,
            w: pixels,
        };
        // SAFETY: `x` and `c` hold `pixels` pixels, the panel ci rows; `planes` the panel's columns from there on.
        unsafe {
            isa.run_raw(product);
            isa.run_raw(scatter);
        }
    }
    planes
}

/// rows[y][x] += plane[y + ky − padding][x + kx − padding] where that lies inside the image. `rows` begin at row y0 of the
/// output, `plane` at row `first` of the input.
fn add_shifted(rows: &mut [f32], plane: &[f32], s: &ConvShape, tap: usize, y0: usize, first: usize) {
    let (ow, ky, kx) = (s.out_w(), tap / s.kernel, tap % s.kernel);
    let x0 = s.padding.saturating_sub(kx);
    let x1 = (s.w + s.padding).saturating_sub(kx).min(ow);
    for (y, row) in rows.chunks_exact_mut(ow).enumerate() {
        let Some(from) = (y0 + y + ky).checked_sub(s.padding).filter(|&from| from < s.h) else { continue };
        if x0 < x1 {
            let from = &plane[(from - first) * s.w + x0 + kx - s.padding..][..x1 - x0];
            row[x0..x1].iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
}
