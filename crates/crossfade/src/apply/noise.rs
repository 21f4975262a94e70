//! Noise as a function of the position in a picture, so that overlapping windows start from the same noise.
use crate::rng::{Purpose, Stream};

/// Side of the squares that have a random stream each. Larger squares waste more numbers at the edges of a window,
/// smaller ones start more streams.
const SQUARE: usize = 32;

/// Standard normals at the positions (`y`..`y`+height, `x`..`x`+width) of an unbounded noise image, one for each (seed,
/// picture, step, purpose).
///
/// # Shapes
/// `[channels, height, width]` as `shape`.
pub fn field(seed: u64, picture: u64, step: u64, purpose: Purpose, shape: [usize; 3], y: usize, x: usize) -> Vec<f32> {
    let [channels, height, width] = shape;
    let mut out = vec![0.0; channels * height * width];
    let mut square = vec![0.0; channels * SQUARE * SQUARE];
    for row in y / SQUARE..(y + height).div_ceil(SQUARE) {
        for column in x / SQUARE..(x + width).div_ceil(SQUARE) {
            // 20 bits each for the row and the column of a square suffice for pictures of 33 million pixels a side.
            let place = step << 40 | (row as u64) << 20 | column as u64;
            Stream::new(seed, picture, place, purpose).fill_normal(&mut square);
            for j in (row * SQUARE).max(y)..((row + 1) * SQUARE).min(y + height) {
                let (left, right) = ((column * SQUARE).max(x), ((column + 1) * SQUARE).min(x + width));
                for k in 0..channels {
                    let from = (k * SQUARE + j % SQUARE) * SQUARE + left % SQUARE;
                    let to = (k * height + j - y) * width + left - x;
                    out[to..to + right - left].copy_from_slice(&square[from..from + right - left]);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_see_the_same_noise_at_the_same_place() {
        let whole = field(1, 2, 0, Purpose::Tile, [2, 70, 100], 0, 0);
        let part = field(1, 2, 0, Purpose::Tile, [2, 40, 37], 13, 50);
        for k in 0..2 {
            for j in 0..40 {
                for i in 0..37 {
                    assert_eq!(part[(k * 40 + j) * 37 + i], whole[(k * 70 + 13 + j) * 100 + 50 + i]);
                }
            }
        }
        let variance = whole.iter().map(|v| v * v).sum::<f32>() / whole.len() as f32;
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
        assert_ne!(whole, field(1, 2, 1, Purpose::Tile, [2, 70, 100], 0, 0));
    }
}
