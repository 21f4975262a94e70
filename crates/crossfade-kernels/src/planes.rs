//! Linear maps of the rows and columns of planes: interpolation, pooling, and their gradients.
use crate::CHUNK;
use crate::pool::Workspace;
use crate::team::Share;
use rayon::prelude::*;

/// A sparse matrix that maps a line to another.
#[derive(Clone, Debug, PartialEq)]
pub struct LineMap {
    from: usize,
    /// Where the entries of every output begin, and the end of the last.
    starts: Vec<usize>,
    entries: Vec<(usize, f32)>,
}

impl LineMap {
    /// A map of lines of `from` numbers; every output is a weighted sum of the inputs given with their weights.
    pub fn new(from: usize, outputs: impl IntoIterator<Item = Vec<(usize, f32)>>) -> Self {
        let (mut starts, mut entries) = (vec![0], vec![]);
        for output in outputs {
            assert!(output.iter().all(|(i, _)| *i < from), "a line of {from} has no such element");
            entries.extend(output);
            starts.push(entries.len());
        }
        Self { from, starts, entries }
    }

    /// Numbers of an output line.
    pub fn to(&self) -> usize {
        self.starts.len() - 1
    }

    /// Numbers of an input line.
    pub fn from(&self) -> usize {
        self.from
    }

    /// The whole matrix, `[to, from]`.
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

    /// The transposed matrix, which maps gradients.
    pub fn transposed(&self) -> Self {
        let mut outputs = vec![vec![]; self.from];
        for i in 0..self.to() {
            self.entries(i).iter().for_each(|&(j, weight)| outputs[j].push((i, weight)));
        }
        Self::new(self.to(), outputs)
    }

    /// Every row of `x` mapped.
    fn rows(&self, x: &[f32], out: &mut [f32]) {
        for (x, out) in x.chunks_exact(self.from).zip(out.chunks_exact_mut(self.to())) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.entries(i).iter().map(|&(j, weight)| weight * x[j]).sum();
            }
        }
    }

    /// Every column of `x`, which is `width` wide, mapped.
    fn columns(&self, x: &[f32], width: usize, out: &mut [f32]) {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            out.fill(0.0);
            for &(j, weight) in self.entries(i) {
                out.iter_mut().zip(&x[j * width..]).for_each(|(out, x)| *out += weight * x);
            }
        }
    }
}

/// Every plane with its columns mapped by `rows` (as many rows as that gives) and its rows by `columns`.
///
/// # Shapes
/// `x` `[planes, h, w]` to `[planes, rows.to(), columns.to()]`.
pub fn map(x: &[f32], rows: &LineMap, columns: &LineMap, out: &mut [f32]) {
    let (from, to) = (rows.from * columns.from, rows.to() * columns.to());
    assert!(x.len() * to == out.len() * from, "other planes");
    if out.is_empty() {
        return;
    }
    // What makes the plane smaller, or less large, comes first.
    let first_rows = rows.to() * columns.from <= rows.from * columns.to();
    let middle = if first_rows { rows.to() * columns.from } else { rows.from * columns.to() };
    let share = (CHUNK / from.max(to)).max(1);
    out.par_chunks_mut(share * to).zip(x.par_chunks(share * from)).share(|(out, x)| {
        let room = &mut *Workspace::take(middle);
        for (out, x) in out.chunks_exact_mut(to).zip(x.chunks_exact(from)) {
            if first_rows {
                rows.columns(x, columns.from, room);
                columns.rows(room, out);
            } else {
                columns.rows(x, room);
                rows.columns(room, columns.to(), out);
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
