//! Reads ground truth and detections from MATLAB files of the BSDS or from plain images.
use std::path::Path;

use super::super::maps::{Map, Mask};
use crate::data::mat::{Numbers, Value, read_mat};
use crate::error::{Error, Result};

/// Limit of the values of an image in a MATLAB file.
const MAX_PIXELS: usize = crate::limits::MAP_PIXELS.size();

/// The detection for one image.
#[derive(Clone, Debug, PartialEq)]
pub enum Detection {
    /// The confidence that a pixel is on a boundary; thresholds turn it into boundary maps.
    Soft(Map),
    /// The boundaries of several segmentations, from coarse to fine or in any order.
    Segmentations(Vec<Mask>),
}

impl Detection {
    /// Width and height.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Self::Soft(map) => (map.width, map.height),
            Self::Segmentations(masks) => masks.first().map_or((0, 0), |m| (m.width, m.height)),
        }
    }
}

fn is_mat(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("mat"))
}

/// The annotators' boundaries: `groundTruth{i}.Boundaries` of a MATLAB file, or one image, thresholded at one half.
pub fn load_truth(path: &Path) -> Result<Vec<Mask>> {
    if !is_mat(path) {
        return Ok(vec![Map::of(&Map::read(path)?).at_least(0.5)]);
    }
    let mask =
        |(height, width, values): Matrix| Mask { width, height, bits: values.iter().map(|&v| v != 0.0).collect() };
    Ok(annotations(path, "Boundaries")?.into_iter().map(mask).collect())
}

/// Rows, columns and the values in row-major order.
pub(in crate::metrics) type Matrix = (usize, usize, Vec<f64>);

/// The matrix `field` of each annotator, all of the same size: `groundTruth{i}.field` of a MATLAB file.
pub(in crate::metrics) fn annotations(path: &Path, field: &str) -> Result<Vec<Matrix>> {
    let variables = read_mat(path)?;
    let cells = variables.iter().find_map(|(name, value)| match value {
        Value::Cell(cells) if name == "groundTruth" => Some(cells),
        _ => None,
    });
    let cells = cells.filter(|cells| !cells.is_empty());
    let cells = cells.ok_or_else(|| Error::file(path, "no cell array `groundTruth` with annotations in it"))?;
    let mut matrices: Vec<Matrix> = Vec::new();
    for cell in cells {
        let numbers = cell.field(field).and_then(Value::numbers);
        let numbers =
            numbers.ok_or_else(|| Error::file(path, format!("`groundTruth` has a cell without `{field}`")))?;
        let new = matrix(numbers, path)?;
        if matrices.first().is_some_and(|m| (m.0, m.1) != (new.0, new.1)) {
            return Err(Error::file(path, "the annotations are of different sizes"));
        }
        matrices.push(new);
    }
    Ok(matrices)
}

/// Reads a detection: an image, or a MATLAB file with `ucm2` (a contour map of double size) or `segs` (segmentations).
pub fn load_detection(path: &Path) -> Result<Detection> {
    if !is_mat(path) {
        return Ok(Detection::Soft(Map::of(&Map::read(path)?)));
    }
    for (name, value) in read_mat(path)? {
        match (name.as_str(), value) {
            ("ucm2", Value::Numbers(numbers)) => return contour_map(&numbers, path),
            ("segs", Value::Cell(cells)) if !cells.is_empty() => return segmentations(&cells, path),
            _ => (),
        }
    }
    Err(Error::file(path, "neither a matrix `ucm2` nor a cell array `segs` in it"))
}

pub(in crate::metrics) fn matrix(numbers: &Numbers, path: &Path) -> Result<Matrix> {
    // Before it is copied row by row.
    if numbers.values.is_empty() || numbers.values.len() > MAX_PIXELS {
        return Err(Error::file(path, format!("an array of the size {:?}", numbers.dims)));
    }
    let (height, width, values) = numbers.rows().ok_or_else(|| Error::file(path, "an array that is no matrix"))?;
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        return Err(Error::file(path, format!("{} in row {}, column {}", values[i], i / width + 1, i % width + 1)));
    }
    Ok((height, width, values))
}

/// A contour map of double size plus one: it also has values for the borders between pixels and around the image.
pub(in crate::metrics) fn double_size(numbers: &Numbers, path: &Path) -> Result<Matrix> {
    let (rows, columns, values) = matrix(numbers, path)?;
    if rows < 3 || columns < 3 || rows % 2 == 0 || columns % 2 == 0 {
        return Err(Error::file(path, format!("`ucm2` of {rows}x{columns} is not of double size plus one")));
    }
    // The thresholds are between 0 and 1, so that they would be meaningless on another scale.
    if values.iter().any(|v| !(0.0..=1.0).contains(v)) {
        return Err(Error::file(path, "`ucm2` has values outside 0 to 1"));
    }
    Ok((rows, columns, values))
}

/// Rows and columns 3, 5, 7 … of a map of double size: `ucm2(3:2:end, 3:2:end)`.
fn contour_map(numbers: &Numbers, path: &Path) -> Result<Detection> {
    let (rows, columns, values) = double_size(numbers, path)?;
    let (width, height) = (columns / 2, rows / 2);
    let pick = |i: usize| values[(2 * (i / width) + 2) * columns + 2 * (i % width) + 2];
    Ok(Detection::Soft(Map { width, height, values: (0..width * height).map(pick).collect() }))
}

fn segmentations(cells: &[Value], path: &Path) -> Result<Detection> {
    let mut masks: Vec<Mask> = Vec::new();
    for cell in cells {
        let numbers = cell.numbers().ok_or_else(|| Error::file(path, "`segs` has a cell that is no matrix"))?;
        let (height, width, labels) = matrix(numbers, path)?;
        if masks.first().is_some_and(|m| (m.width, m.height) != (width, height)) {
            return Err(Error::file(path, "the segmentations are of different sizes"));
        }
        masks.push(boundaries(width, height, &labels));
    }
    Ok(Detection::Segmentations(masks))
}

/// The pixels at whose lower right corner several segments meet, as `seg2bdry` of the benchmark does. In the last row
/// and column only neighbours along the border are compared.
fn boundaries(width: usize, height: usize, labels: &[f64]) -> Mask {
    let at = |x: usize, y: usize| labels[y * width + x];
    let bits = (0..width * height).map(|i| {
        let (x, y) = (i % width, i / width);
        let (right, below) = ((x + 1).min(width - 1), (y + 1).min(height - 1));
        let corners = [at(x, y), at(right, y), at(x, below), at(right, below)];
        corners.iter().any(|&label| label != corners[0])
    });
    Mask { width, height, bits: bits.collect() }
}
