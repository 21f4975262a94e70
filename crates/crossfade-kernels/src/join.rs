//! Channels of two tensors side by side.
use crate::team::Share;
use rayon::prelude::*;

/// out = [a, b] along the channels.
///
/// # Shapes
/// `a` `[n, ..]` and `b` `[n, ..]` of `sizes` numbers a sample, `out` `[n, sizes[0] + sizes[1]]`.
pub fn join(a: &[f32], b: &[f32], sizes: [usize; 2], out: &mut [f32]) {
    let [left, right] = sizes;
    assert!(left > 0 && right > 0 && a.len() / left == b.len() / right && out.len() == a.len() + b.len());
    let samples = out.par_chunks_exact_mut(left + right).zip(a.par_chunks_exact(left)).zip(b.par_chunks_exact(right));
    samples.share(|((out, a), b)| {
        out[..left].copy_from_slice(a);
        out[left..].copy_from_slice(b);
    });
}

/// The opposite of [`join`], and its gradient.
///
/// # Shapes
/// As there.
pub fn part(x: &[f32], sizes: [usize; 2], a: &mut [f32], b: &mut [f32]) {
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
    fn what_is_joined_can_be_parted() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]);
        let mut both = [0.0; 6];
        join(&a, &b, [2, 1], &mut both);
        assert_eq!(both, [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
        let (mut left, mut right) = ([0.0; 4], [0.0; 2]);
        part(&both, [2, 1], &mut left, &mut right);
        assert!(left == a && right == b);
    }
}
