//! Separable linear maps of planes, such as interpolation and pooling, and their gradients: one sparse matrix for the rows
//! and one for the columns.
use crate::CHUNK;
use crate::team::Share;
use crate::workspace::Workspace;
use rayon::prelude::*;

/// A sparse matrix that maps a line of pixels (a row or a column of a plane) to another line.
#[derive(Clone, Debug, PartialEq)]
pub struct LineMap {
    from: usize,
    /// The entries of output i are `starts[i]..starts[i + 1]`, as in the CSR format.
    starts: Vec<usize>,
    /// Column and weight.
    entries: Vec<(usize, f32)>,
}

impl LineMap {
    /// A map from lines of `from` numbers. Every item of `outputs` lists the inputs that one output sums, with their
    /// weights.
    pub fn new(from: usize, outputs: impl IntoIterator<Item = Vec<(usize, f32)>>) -> Self {
        let (mut starts, mut entries) = (vec![0], vec![]);
        for output in outputs {
            assert!(output.iter().all(|(i, _)| *i < from), "an output reads beyond a line of {from} numbers");
            entries.extend(output);
            starts.push(entries.len());
        }
        Self { from, starts, entries }
    }

    /// Length of an output line.
    pub fn to(&self) -> usize {
        self.starts.len() - 1
    }

    /// Length of an input line.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The matrix in full, `[to, from]`.
    pub fn dense(&self) -> Vec<f32> {
        let mut matrix = vec![0.0; self.to() * self.from];
        for (i, row) in matrix.chunks_exact_mut(self.from.max(1)).enumerate() {
            self.entries(i).iter().for_each(|&(j, weight)| row[j] += weight);
        }
        matrix
    }

    fn entries(&self, output: usize) -> &[(usize, f32)] {
        &self.entries[self.starts[output]..self.starts[output + 1]]
    }

    /// The transposed matrix, which maps gradients back.
    pub fn transposed(&self) -> Self {
        let mut outputs = vec![vec![]; self.from];
        for i in 0..self.to() {
            self.entries(i).iter().for_each(|&(j, weight)| outputs[j].push((i, weight)));
        }
        Self::new(self.to(), outputs)
    }

    /// Maps every row of `x`.
    fn map_rows(&self, x: &[f32], out: &mut [f32]) {
        for (x, out) in x.chunks_exact(self.from).zip(out.chunks_exact_mut(self.to())) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.entries(i).iter().map(|&(j, weight)| weight * x[j]).sum();
            }
        }
    }

    /// Maps every column of `x`, whose rows have `width` numbers.
    fn map_columns(&self, x: &[f32], width: usize, out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            out.fill(0.0);
            for &(j, weight) in self.entries(i) {
                out.iter_mut().zip(&x[j * width..]).for_each(|(out, x)| *out += weight * x);
            }
        }
    }
}

/// Maps every plane P to R P Cᵀ, where R is the matrix `rows`, which changes the number of rows, and C is `columns`.
///
/// # Shapes
/// `x` `[planes, h, w]` to `[planes, rows.to(), columns.to()]`.
pub fn map(x: &[f32], rows: &LineMap, columns: &LineMap, out: &mut [f32]) {
    let (from, to) = (rows.from * columns.from, rows.to() * columns.to());
    assert!(x.len() * to == out.len() * from, "planes of another size");
    if out.is_empty() {
        return;
    }
    // The order that leaves the smaller plane in between is the faster one.
    let rows_first = rows.to() * columns.from <= rows.from * columns.to();
    let middle = if rows_first { rows.to() * columns.from } else { rows.from * columns.to() };
    let share = (CHUNK / from.max(to)).max(1);
    out.par_chunks_mut(share * to).zip(x.par_chunks(share * from)).share(|(out, x)| {
        let between = &mut *Workspace::take(middle);
        for (out, x) in out.chunks_exact_mut(to).zip(x.chunks_exact(from)) {
            if rows_first {
                rows.map_columns(x, columns.from, between);
                columns.map_rows(between, out);
            } else {
                columns.map_rows(x, between);
                rows.map_columns(between, columns.to(), out);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, numbers};

    #[test]
    fn planes_are_multiplied_from_both_sides() {
        let some = |from: usize, to: usize| {
            LineMap::new(from, (0..to).map(|i| (0..=i % 3).map(|k| ((5 * i + k) % from, 0.3 + k as f32)).collect()))
        };
        for ([h, w], [to_h, to_w]) in [([3, 5], [7, 2]), ([8, 8], [2, 2]), ([1, 1], [4, 6]), ([4, 3], [4, 9])] {
            let (rows, columns, x) = (some(h, to_h), some(w, to_w), numbers(1, 6 * h * w));
            for (rows, columns, x) in [
                (rows.clone(), columns.clone(), x),
                (rows.transposed(), columns.transposed(), numbers(2, 6 * to_h * to_w)),
            ] {
                let (left, right) = (rows.dense(), columns.dense());
                let mut exact = vec![];
                for plane in x.chunks_exact(rows.from * columns.from) {
                    for left in left.chunks_exact(rows.from) {
                        for right in right.chunks_exact(columns.from) {
                            let products = left.iter().enumerate().flat_map(|(i, l)| {
                                let row = &plane[i * columns.from..];
                                right.iter().zip(row).map(move |(r, x)| f64::from(*l) * f64::from(*r) * f64::from(*x))
                            });
                            exact.push(products.sum::<f64>());
                        }
                    }
                }
                let mut out = vec![9.0; exact.len()];
                map(&x, &rows, &columns, &mut out);
                assert_close(&out, &exact, 1e-6, "planes");
            }
        }
    }
}
