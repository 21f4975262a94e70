//! Concatenation of two tensors along the channels, and its gradient.
use crate::team::Share;
use rayon::prelude::*;

/// out = [a, b] along the channels. `sizes` are the numbers of a sample of `a` and of `b`.
///
/// # Shapes
/// `a` `[n, sizes[0]]`, `b` `[n, sizes[1]]`, `out` `[n, sizes[0] + sizes[1]]`.
pub fn concat(a: &[f32], b: &[f32], sizes: [usize; 2], out: &mut [f32]) {
    let [left, right] = sizes;
    assert!(left > 0 && right > 0 && a.len() / left == b.len() / right && out.len() == a.len() + b.len());
    let samples = out.par_chunks_exact_mut(left + right).zip(a.par_chunks_exact(left)).zip(b.par_chunks_exact(right));
    samples.share(|((out, a), b)| {
        out[..left].copy_from_slice(a);
        out[left..].copy_from_slice(b);
    });
}

/// The inverse of [`concat()`], which is also its gradient.
///
/// # Shapes
/// `x` `[n, sizes[0] + sizes[1]]`, `a` `[n, sizes[0]]`, `b` `[n, sizes[1]]`.
pub fn split(x: &[f32], sizes: [usize; 2], a: &mut [f32], b: &mut [f32]) {
    let [left, right] = sizes;
    assert!(left > 0 && right > 0 && a.len() / left == b.len() / right && x.len() == a.len() + b.len());
    let samples = x.par_chunks_exact(left + right).zip(a.par_chunks_exact_mut(left)).zip(b.par_chunks_exact_mut(right));
    samples.share(|((x, a), b)| {
        a.copy_from_slice(&x[..left]);
        b.copy_from_slice(&x[left..]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_inverts_concat() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]);
        let mut both = [0.0; 6];
        concat(&a, &b, [2, 1], &mut both);
        assert_eq!(both, [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
        let (mut left, mut right) = ([0.0; 4], [0.0; 2]);
        split(&both, [2, 1], &mut left, &mut right);
        assert!(left == a && right == b);
    }
}
