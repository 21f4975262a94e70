//! Partitions of an image into regions, read from files.
use std::collections::HashMap;
use std::path::Path;

use super::super::edges::ground_truth::{Matrix, annotations, double_size, matrix};
use crate::data::mat::{Value, read_mat};
use crate::error::{Error, Result};

/// A partition of an image: every pixel belongs to one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// The region of each pixel, top row first; regions are numbered in the order of their first pixel.
    pub regions: Vec<u32>,
    /// The number of pixels of each region, never 0.
    pub areas: Vec<u64>,
}

impl Segmentation {
    /// The partition in which pixels with equal labels form a region, connected or not.
    pub fn new(width: usize, height: usize, labels: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers = HashMap::new();
        let mut areas = Vec::new();
        let number = |label| {
            let region = *numbers.entry(label).or_insert(areas.len() as u32);
            if region as usize == areas.len() {
                areas.push(0);
            }
            areas[region as usize] += 1;
            region
        };
        let regions = labels.into_iter().map(number).collect();
        Self { width, height, regions, areas }
    }

    fn of_matrix((height, width, values): Matrix, path: &Path) -> Result<Self> {
        if let Some(i) = values.iter().position(|v| *v < 1.0 || v.fract() != 0.0) {
            let (row, column) = (i / width + 1, i % width + 1);
            let message = format!("label {} in row {row}, column {column}; labels must be 1, 2, 3 …", values[i]);
            return Err(Error::file(path, message));
        }
        Ok(Self::new(width, height, values.iter().map(|&v| v as u64)))
    }
}

/// The annotators' segmentations: `groundTruth{i}.Segmentation` of a MATLAB file.
pub fn load_truth(path: &Path) -> Result<Vec<Segmentation>> {
    annotations(path, "Segmentation")?.into_iter().map(|m| Segmentation::of_matrix(m, path)).collect()
}

/// The segmentations of one image, one for each scale.
pub struct Loaded {
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Whether the file lists segmentations; otherwise they come from a contour map and thresholds.
    pub listed: bool,
    /// The segmentations; those of a contour map are computed lazily.
    pub segmentations: Box<dyn Iterator<Item = Segmentation>>,
}

/// Reads a MATLAB file with `ucm2` (a contour map of double size, segmented at ascending `thresholds`) or `segs`
/// (segmentations).
pub(crate) fn load_segmentations(path: &Path, thresholds: &[f64]) -> Result<Loaded> {
    for (name, value) in read_mat(path)? {
        match (name.as_str(), value) {
            ("ucm2", Value::Numbers(numbers)) => return contour_map(double_size(&numbers, path)?, thresholds, path),
            ("segs", Value::Cell(cells)) if !cells.is_empty() => return list(&cells, path),
            _ => (),
        }
    }
    Err(Error::file(path, "neither a matrix `ucm2` nor a cell array `segs` in it"))
}

fn list(cells: &[Value], path: &Path) -> Result<Loaded> {
    let mut segmentations: Vec<Segmentation> = Vec::new();
    for cell in cells {
        let numbers = cell.numbers().ok_or_else(|| Error::file(path, "`segs` has a cell that is no matrix"))?;
        let new = Segmentation::of_matrix(matrix(numbers, path)?, path)?;
        if segmentations.first().is_some_and(|s| (s.width, s.height) != (new.width, new.height)) {
            return Err(Error::file(path, "the segmentations are of different sizes"));
        }
        segmentations.push(new);
    }
    let (width, height) = segmentations.first().map_or((0, 0), |s| (s.width, s.height));
    Ok(Loaded { width, height, listed: true, segmentations: Box::new(segmentations.into_iter()) })
}

fn contour_map((rows, columns, values): Matrix, thresholds: &[f64], path: &Path) -> Result<Loaded> {
    let lowest = thresholds.first().copied().unwrap_or(0.0);
    // Contours are drawn between pixels; one on a pixel would leave it without a region.
    let cells = (1..rows).step_by(2).flat_map(|y| (1..columns).step_by(2).map(move |x| (x, y)));
    if let Some((x, y)) = cells.into_iter().find(|(x, y)| values[y * columns + x] > lowest) {
        let message = format!("`ucm2` has a contour on a pixel, not between pixels: row {}, column {}", y + 1, x + 1);
        return Err(Error::file(path, message));
    }
    let thresholds = thresholds.to_vec();
    let mut merger = Merger::new(columns, values);
    let segmentations = Box::new(thresholds.into_iter().map(move |t| merger.segment_at(t)));
    Ok(Loaded { width: columns / 2, height: rows / 2, listed: false, segmentations })
}

/// A contour map that is segmented at ascending thresholds: cells up to the level are merged with their neighbours by
/// union-find.
///
/// Regions only merge as the level rises, so that all thresholds together need one pass over the cells.
struct Merger {
    columns: usize,
    values: Vec<f64>,
    /// The cells, sorted by value.
    order: Vec<u32>,
    /// The number of cells that are up to the current level and merged.
    merged: usize,
    /// The parent of each cell in the union-find tree of its region.
    parent: Vec<u32>,
    level: f64,
}

impl Merger {
    fn new(columns: usize, values: Vec<f64>) -> Self {
        let cells = values.len() as u32;
        let mut order: Vec<u32> = (0..cells).collect();
        order.sort_by(|&a, &b| values[a as usize].total_cmp(&values[b as usize]));
        Self { columns, values, order, merged: 0, parent: (0..cells).collect(), level: f64::NEG_INFINITY }
    }

    fn root(&mut self, mut cell: u32) -> u32 {
        while self.parent[cell as usize] != cell {
            // Path halving keeps the trees flat.
            let above = self.parent[self.parent[cell as usize] as usize];
            self.parent[cell as usize] = above;
            cell = above;
        }
        cell
    }

    /// The regions of pixels (cells with odd row and column) where the map is at most `level`, with 8-connectivity.
    fn segment_at(&mut self, level: f64) -> Segmentation {
        self.level = level;
        while let Some(&cell) = self.order.get(self.merged).filter(|&&c| self.values[c as usize] <= level) {
            self.merged += 1;
            self.join_neighbours(cell);
        }
        let (columns, rows) = (self.columns, self.values.len() / self.columns);
        let (width, height) = (columns / 2, rows / 2);
        let pixel = |i: usize| ((2 * (i / width) + 1) * columns + 2 * (i % width) + 1) as u32;
        let roots: Vec<u64> = (0..width * height).map(|i| u64::from(self.root(pixel(i)))).collect();
        Segmentation::new(width, height, roots)
    }

    fn join_neighbours(&mut self, cell: u32) {
        let (columns, rows) = (self.columns, self.values.len() / self.columns);
        let (x, y) = (cell as usize % columns, cell as usize / columns);
        for ny in y.saturating_sub(1)..=(y + 1).min(rows - 1) {
            for nx in x.saturating_sub(1)..=(x + 1).min(columns - 1) {
                let neighbour = ny * columns + nx;
                if self.values[neighbour] <= self.level {
                    let (a, b) = (self.root(cell), self.root(neighbour as u32));
                    self.parent[a.max(b) as usize] = a.min(b);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// 2x1 pixels with a border of 0.5 between them.
    fn two_pixels() -> Matrix {
        (3, 5, vec![0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0])
    }

    #[test]
    fn contours_part_regions_until_the_threshold_reaches_them() {
        let loaded = contour_map(two_pixels(), &[0.4, 0.5, 0.6], Path::new("a.mat")).unwrap();
        assert_eq!((loaded.width, loaded.height), (2, 1));
        let regions: Vec<_> = loaded.segmentations.map(|s| s.regions).collect();
        assert_eq!(regions, [[0, 1], [0, 0], [0, 0]]);
        let (rows, columns, mut values) = two_pixels();
        values[6] = 0.7;
        let error = contour_map((rows, columns, values), &[0.4], Path::new("a.mat")).err().unwrap().to_string();
        assert!(error.contains("a.mat") && error.contains("row 2, column 2"), "{error}");
    }

    #[test]
    fn labels_are_whole_numbers_from_one() {
        let path = Path::new("a.mat");
        let good = Segmentation::of_matrix((1, 4, vec![7.0, 2.0, 7.0, 9.0]), path).unwrap();
        assert_eq!((good.regions, good.areas), (vec![0, 1, 0, 2], vec![2, 1, 1]));
        for bad in [0.0, 1.5, -1.0] {
            let error = Segmentation::of_matrix((2, 1, vec![1.0, bad]), path).unwrap_err().to_string();
            assert!(error.contains("a.mat") && error.contains("row 2, column 1"), "{error}");
        }
    }

    /// The regions of a contour map are what spreading from pixel to pixel over cells up to the level reaches.
    #[test]
    fn regions_equal_those_of_spreading_over_cells() {
        for case in 0..30 {
            let mut random = crate::rng::Stream::new(8, case, 0, crate::rng::Purpose::Lab);
            let (width, height) = (1 + random.below(6) as usize, 1 + random.below(6) as usize);
            let (columns, rows) = (2 * width + 1, 2 * height + 1);
            let value = |i: usize, level: f64| if i / columns % 2 == 1 && i % columns % 2 == 1 { 0.0 } else { level };
            let values: Vec<f64> =
                (0..columns * rows).map(|i| value(i, (random.uniform() * 4.0).ceil() / 4.0)).collect();
            let mut merger = Merger::new(columns, values.clone());
            for level in [0.2, 0.25, 0.5, 0.75] {
                let mut labels = vec![0u64; values.len()];
                for start in 0..values.len() {
                    let mut open = vec![start];
                    while let Some(i) = open.pop() {
                        if labels[i] > 0 || values[i] > level {
                            continue;
                        }
                        labels[i] = start as u64 + 1;
                        let (x, y) = (i % columns, i / columns);
                        for ny in y.saturating_sub(1)..(y + 2).min(rows) {
                            open.extend((x.saturating_sub(1)..(x + 2).min(columns)).map(|nx| ny * columns + nx));
                        }
                    }
                }
                let pixels = (0..width * height).map(|i| labels[(2 * (i / width) + 1) * columns + 2 * (i % width) + 1]);
                assert_eq!(
                    merger.segment_at(level),
                    Segmentation::new(width, height, pixels),
                    "case {case} at {level}"
                );
            }
        }
    }
}
