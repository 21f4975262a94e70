//! VGG-16 without gradients, on the kernels for networks that only run forward.
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Tensor;
use crossfade_kernels::channels_last::{self, Map, Window, max_pool};
use rayon::prelude::*;

use super::vgg::{Part, pools};
use crate::engine::{from_vec, to_host};
use crate::nn::layers::Conv;

const SAME: Window = Window { kernel: [3, 3], stride: 1, padding: [1, 1] };
const HALVE: Window = Window { kernel: [2, 2], stride: 2, padding: [0, 0] };

/// The convolutions in the layout of the kernels, kept from call to call.
///
/// Modules that are copied or mapped to other weights share what is kept: each call compares it with the weights at hand,
/// which takes a hundredth of the time of packing them.
#[derive(Clone, Debug, Default)]
pub(super) struct ForwardOnly(Arc<Mutex<Option<Arc<Packed>>>>);

struct Packed {
    weights: Vec<[Vec<f32>; 2]>,
    /// Rows of the input that the kernels were chosen for.
    rows: usize,
    convs: Vec<channels_last::Conv>,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} packed convolutions for {} rows", self.convs.len(), self.rows)
    }
}

impl ForwardOnly {
    /// The features of all `levels`.
    ///
    /// # Shapes
    /// `x` `[B, 3, H, W]`, H and W multiples of what the levels need, to `[B, c_k, h_k, w_k]`.
    pub fn run(&self, convs: &[Conv], levels: &[Vec<Part>], x: Tensor<4>) -> Vec<Tensor<4>> {
        let ([b, c, h, w], device) = (x.dims(), x.device());
        let packed = self.packed(convs, h);
        let shapes: Vec<[usize; 3]> = levels.iter().map(|parts| level_shape(parts, &packed, [h, w])).collect();
        let mut outputs: Vec<Vec<f32>> = shapes.iter().map(|s| vec![0.0; b * s.iter().product::<usize>()]).collect();
        let mut images: Vec<Vec<&mut [f32]>> = (0..b).map(|_| Vec::with_capacity(levels.len())).collect();
        for (output, shape) in outputs.iter_mut().zip(&shapes) {
            let parts = output.chunks_exact_mut(shape.iter().product());
            images.iter_mut().zip(parts).for_each(|(image, part)| image.push(part));
        }
        let pixels = to_host(x);
        let each = pixels.par_chunks_exact(c * h * w).zip(images);
        each.for_each(|(pixels, mut outputs)| one_image(&packed.convs, levels, pixels, [h, w], &mut outputs));
        let tensor = |(values, [c, h, w]): (Vec<f32>, [usize; 3])| from_vec(values, [b, c, h, w], &device);
        outputs.into_iter().zip(shapes).map(tensor).collect()
    }

    fn packed(&self, convs: &[Conv], rows: usize) -> Arc<Packed> {
        let weights: Vec<_> = convs.iter().map(|conv| [to_host(conv.weight()), to_host(conv.bias())]).collect();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = kept.as_ref().filter(|packed| packed.rows == rows && packed.weights == weights) {
            return packed.clone();
        }
        let mut side = rows;
        let sides: Vec<usize> = (0..convs.len())
            .map(|i| {
                side /= if pools(i) { 2 } else { 1 };
                side
            })
            .collect();
        let pack = |([weight, bias], side): (&[Vec<f32>; 2], &usize)| {
            channels_last::Conv::new(weight, bias, weight.len() / (9 * bias.len()), SAME, *side)
        };
        let convs = weights.par_iter().zip(&sides).map(pack).collect();
        let packed = Arc::new(Packed { weights, rows, convs });
        *kept = Some(packed.clone());
        packed
    }
}

/// Channels, rows and columns of a level for a picture of `size`.
fn level_shape(parts: &[Part], packed: &Packed, size: [usize; 2]) -> [usize; 3] {
    let channels = parts.iter().map(|part| packed.weights[part.layer][1].len() * part.ratio * part.ratio).sum();
    let halvings = |layer: usize| (0..=layer).filter(|&i| pools(i)).count();
    let [h, w] = parts.first().map_or(size, |part| size.map(|side| (side >> halvings(part.layer)) / part.ratio));
    [channels, h, w]
}

/// # Shapes
/// `pixels` [3, H, W]; `outputs` one for each level, [c_k, h_k, w_k].
fn one_image(
    convs: &[channels_last::Conv],
    levels: &[Vec<Part>],
    pixels: &[f32],
    [h, w]: [usize; 2],
    outputs: &mut [&mut [f32]],
) {
    let mut x = Map::new(1, [h, w, 3], [1, 1]);
    for y in 0..h {
        for (column, pixel) in x.line_mut(0, y).chunks_exact_mut(3).enumerate() {
            pixel.iter_mut().enumerate().for_each(|(c, v)| *v = pixels[(c * h + y) * w + column]);
        }
    }
    let mut written = vec![0; levels.len()];
    for (i, conv) in convs.iter().enumerate() {
        if pools(i) {
            let mut half = Map::new(1, [x.h / 2, x.w / 2, x.c], [1, 1]);
            max_pool(&x, HALVE, half.from(0, 0));
            x = half;
        }
        let mut y = Map::new(1, conv.output(&x), [1, 1]);
        conv.forward(&x, y.from(0, 0));
        x = y;
        let len = x.h * x.w * x.c;
        for ((parts, output), written) in levels.iter().zip(&mut *outputs).zip(&mut written) {
            if let Some(part) = parts.iter().find(|part| part.layer == i) {
                unshuffle(&x, part, &mut output[*written..*written + len]);
                *written += len;
            }
        }
    }
}

/// Writes a layer as channels of squares of pixels, in the order of [`pixel_unshuffle`](crate::nn::functional::pixel_unshuffle).
///
/// # Shapes
/// `x` [H, W, C] to [C·ratio², H/ratio, W/ratio].
fn unshuffle(x: &Map, &Part { ratio, scale, .. }: &Part, out: &mut [f32]) {
    let [rows, columns] = [x.h / ratio, x.w / ratio];
    for y in 0..x.h {
        let line = x.line(0, y);
        for (c, dx) in (0..x.c).flat_map(|c| (0..ratio).map(move |dx| (c, dx))) {
            let plane = (c * ratio + y % ratio) * ratio + dx;
            let row = &mut out[(plane * rows + y / ratio) * columns..][..columns];
            row.iter_mut().enumerate().for_each(|(i, v)| *v = line[(i * ratio + dx) * x.c + c] * scale);
        }
    }
}
