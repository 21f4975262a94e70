//! Tiling: processes large images in overlapping windows and blends the outputs. Rows are passed on as soon as they are
//! finished, so that memory is bounded by one row of windows.
use crate::error::Result;

/// A window of the input image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first row.
    pub y: usize,
    /// The first column.
    pub x: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of columns.
    pub width: usize,
}

/// The windows along one axis of the image.
#[derive(Clone, Debug)]
struct Axis {
    starts: Vec<usize>,
    window: usize,
    /// The blending weight of each output position of each window.
    weights: Vec<Vec<f32>>,
    /// The sum of the weights at each output position. Windows form a full grid and the weight of a pixel is the
    /// product of both axes' weights, so the sum over all windows is the product of both axes' sums.
    totals: Vec<f32>,
}

impl Axis {
    fn new(size: usize, starts: Vec<usize>, window: usize, scale: usize, weight: impl Fn(usize, usize) -> f32) -> Self {
        let out = window * scale;
        let weights: Vec<Vec<f32>> = (0..starts.len()).map(|k| (0..out).map(|i| weight(k, i)).collect()).collect();
        let mut totals = vec![0.0; size * scale];
        for (start, weights) in starts.iter().zip(&weights) {
            totals[start * scale..].iter_mut().zip(weights).for_each(|(total, w)| *total += w);
        }
        Self { starts, window, weights, totals }
    }

    /// Windows start at multiples of `stride`; the last one is moved back to fit. All weights are 1 (§7).
    fn reference(size: usize, window: usize, stride: usize, scale: usize) -> Self {
        let window = window.min(size);
        let count = (size - window).div_ceil(stride) + 1;
        let starts = (0..count).map(|k| (k * stride).min(size - window)).collect();
        Self::new(size, starts, window, scale, |_, _| 1.0)
    }

    /// The smallest number of windows with at least `overlap`, spread evenly. Weights are 0 within `halo` of a window's
    /// end inside the image and rise as sin² over the rest of the overlap; the weights of two neighbours add up to 1,
    /// because sin² + cos² = 1.
    fn smooth(size: usize, window: usize, overlap: usize, halo: usize, scale: usize) -> Self {
        let window = window.min(size);
        let overlap = overlap.min(window - 1);
        let count = if size == window { 1 } else { (size - overlap).div_ceil(window - overlap) };
        let last = count.max(2) - 1;
        let starts: Vec<usize> = (0..count).map(|k| (k * (size - window) + last / 2) / last).collect();
        let overlap_before = |k: usize| (starts[k - 1] + window - starts[k]) * scale;
        let (halo, out) = (halo * scale, window * scale);
        let rise = |i: usize, overlap: usize| {
            let ramp = overlap.saturating_sub(2 * halo).max(1) as f64;
            let position = ((i as f64 - halo as f64 + 0.5) / ramp).clamp(0.0, 1.0);
            (position * std::f64::consts::FRAC_PI_2).sin().powi(2) as f32
        };
        let weight = |k: usize, i: usize| {
            let left = if k == 0 { 1.0 } else { rise(i, overlap_before(k)) };
            let right = if k + 1 == count { 1.0 } else { rise(out - 1 - i, overlap_before(k + 1)) };
            left * right
        };
        Self::new(size, starts.clone(), window, scale, weight)
    }
}

/// The windows of an image and the weights of their outputs.
#[derive(Clone, Debug)]
pub struct Plan {
    rows: Axis,
    columns: Axis,
    scale: usize,
}

impl Plan {
    /// The reference's windows; where several overlap, the result is their plain mean.
    ///
    /// # Shapes
    /// All pairs are (height, width) of the input; outputs are `scale` times as large.
    pub fn reference(size: [usize; 2], window: [usize; 2], stride: [usize; 2], scale: usize) -> Self {
        let axis = |i: usize| Axis::reference(size[i], window[i], stride[i].max(1), scale);
        Self { rows: axis(0), columns: axis(1), scale }
    }

    /// Evenly spread and smoothly blended windows. Outputs within `halo` of a window's end inside the image are not
    /// used. An operator whose receptive field reaches no further than `halo` thus gives the same result as on the
    /// whole image. `overlap` must be more than twice `halo`.
    ///
    /// # Shapes
    /// As [`Plan::reference`].
    pub fn smooth(size: [usize; 2], window: [usize; 2], overlap: usize, halo: usize, scale: usize) -> Self {
        let axis = |i: usize| Axis::smooth(size[i], window[i], overlap, halo, scale);
        Self { rows: axis(0), columns: axis(1), scale }
    }

    /// All windows, row by row.
    pub fn windows(&self) -> Vec<Window> {
        (0..self.rows.starts.len()).flat_map(|row| self.row(row)).collect()
    }

    fn row(&self, row: usize) -> Vec<Window> {
        let (y, height, width) = (self.rows.starts[row], self.rows.window, self.columns.window);
        self.columns.starts.iter().map(|&x| Window { y, x, height, width }).collect()
    }
}

/// Finished rows of the output.
pub struct Rows<'a> {
    /// The index of the first row.
    pub y: usize,
    /// The number of rows.
    pub rows: usize,
    /// Values per row.
    pub width: usize,
    /// The values, `[channels, rows, width]`.
    pub values: &'a [f32],
}

/// Computes the outputs of windows, each `[channels, scale·height, scale·width]`.
pub type Evaluate<'a> = &'a mut dyn FnMut(&[Window]) -> Result<Vec<Vec<f32>>>;

/// Evaluates all windows, `batch` at a time and never from two rows of windows at once, and passes the blended rows to
/// `sink` in order.
///
/// # Shapes
/// `evaluate` returns `[channels, scale·height, scale·width]` for each window.
pub fn run(
    plan: &Plan,
    channels: usize,
    batch: usize,
    evaluate: Evaluate,
    sink: &mut dyn FnMut(Rows<'_>) -> Result<()>,
) -> Result<()> {
    let (scale, columns) = (plan.scale, &plan.columns);
    let (band, width) = (plan.rows.window * scale, columns.totals.len());
    let mut sums = vec![0.0f32; channels * band * width];
    for (row, &start) in plan.rows.starts.iter().enumerate() {
        // Batches end with the row of windows, because its finished rows are passed on before the next row starts.
        for (group, windows) in plan.row(row).chunks(batch.max(1)).enumerate() {
            for (i, output) in evaluate(windows)?.iter().enumerate() {
                let column = group * batch.max(1) + i;
                add(&mut sums, width, output, plan, row, column);
            }
        }
        // Rows above the next row of windows get no further contributions.
        let next = plan.rows.starts.get(row + 1);
        let done = next.map_or(band, |&next| (next - start) * scale);
        let y = start * scale;
        let mut values = Vec::with_capacity(channels * done * width);
        for plane in sums.chunks_exact(band * width) {
            for (line, &total) in plane.chunks_exact(width).zip(&plan.rows.totals[y..]).take(done) {
                values.extend(line.iter().zip(&columns.totals).map(|(sum, across)| sum / (total * across)));
            }
        }
        sink(Rows { y, rows: done, width, values: &values })?;
        for plane in sums.chunks_exact_mut(band * width) {
            // The rows that the next windows overlap move to the top of the buffer.
            plane.copy_within(done * width.., 0);
            plane[(band - done) * width..].fill(0.0);
        }
    }
    Ok(())
}

/// Adds the weighted output of one window to the sums of its row of windows.
fn add(sums: &mut [f32], width: usize, output: &[f32], plan: &Plan, row: usize, column: usize) {
    let (down, across) = (&plan.rows.weights[row], &plan.columns.weights[column]);
    let x = plan.columns.starts[column] * plan.scale;
    let planes = sums.chunks_exact_mut(down.len() * width).zip(output.chunks_exact(down.len() * across.len()));
    for (plane, output) in planes {
        for ((line, values), wy) in plane.chunks_exact_mut(width).zip(output.chunks_exact(across.len())).zip(down) {
            for ((sum, value), wx) in line[x..].iter_mut().zip(values).zip(across) {
                *sum += value * (wy * wx);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    /// The 5x5 mean with zero padding.
    fn blur(values: &[f32], height: usize, width: usize) -> Vec<f32> {
        let at = |y: i64, x: i64| {
            let inside = (0..height as i64).contains(&y) && (0..width as i64).contains(&x);
            if inside { values[y as usize * width + x as usize] } else { 0.0 }
        };
        let mean = |y: i64, x: i64| {
            (-2..=2).flat_map(|dy| (-2..=2).map(move |dx| (dy, dx))).map(|(dy, dx)| at(y + dy, x + dx)).sum::<f32>()
                / 25.0
        };
        (0..height as i64).flat_map(|y| (0..width as i64).map(move |x| (y, x))).map(|(y, x)| mean(y, x)).collect()
    }

    fn tiled(plan: &Plan, image: &[f32], width: usize, batch: usize) -> Vec<f32> {
        let mut out = vec![];
        let mut evaluate = |windows: &[Window]| {
            let cut = |w: &Window| {
                let rows = (w.y..w.y + w.height).flat_map(|y| &image[y * width + w.x..][..w.width]);
                blur(&rows.copied().collect::<Vec<_>>(), w.height, w.width)
            };
            Ok(windows.iter().map(cut).collect())
        };
        run(plan, 1, batch, &mut evaluate, &mut |rows| {
            assert_eq!(rows.y * width, out.len());
            out.extend_from_slice(rows.values);
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn a_local_operator_gives_the_same_in_windows_and_whole() {
        for (height, width) in [(1, 1), (7, 90), (33, 34), (61, 47), (128, 65)] {
            let mut image = vec![0.0; height * width];
            Stream::new(1, 0, 0, Purpose::Lab).fill_normal(&mut image);
            let whole = blur(&image, height, width);
            for (window, overlap, batch) in [(16, 6, 1), (16, 10, 3), (32, 9, 2)] {
                let plan = Plan::smooth([height, width], [window; 2], overlap, 2, 1);
                let ours = tiled(&plan, &image, width, batch);
                assert_eq!(ours.len(), whole.len());
                let worst = ours.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-5, "{height}x{width} in {window}: {worst}");
            }
        }
        // Without a halo, the zero padding at the ends of the windows is visible.
        let image = vec![1.0; 40 * 40];
        let off = tiled(&Plan::smooth([40; 2], [16; 2], 6, 0, 1), &image, 40, 1);
        assert!(off[20 * 40..21 * 40].iter().any(|v| (v - 1.0).abs() > 0.01));
    }

    #[test]
    fn windows_cover_with_at_least_the_overlap() {
        for size in [1, 5, 16, 17, 100, 4000] {
            let axis = Axis::smooth(size, 16, 6, 2, 1);
            assert_eq!((axis.starts[0], axis.starts[axis.starts.len() - 1] + axis.window), (0, size));
            assert!(axis.starts.windows(2).all(|w| w[0] < w[1] && w[1] + 6 <= w[0] + 16), "{:?}", axis.starts);
            assert!(axis.totals.iter().all(|&total| total > 0.0));
        }
    }
}
