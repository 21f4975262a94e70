//! Dropout whose mask is a counter's hash: nothing is stored, the backward pass makes it again.
use crate::CHUNK;
use crate::lanes::{Kernel, Level, Simd};
use crate::team::Share;
use rayon::prelude::*;

/// out = x·mask: 0 where the 16 bits of an element are below `threshold`, 2^16/(2^16 − threshold) elsewhere. Four
/// elements share the 64 bits of SplitMix64 at `start` + i/4, `start` being that of their sample.
///
/// # Shapes
/// `x`, `out` `[n, size]`, `starts` `[n]`.
pub fn dropout(x: &[f32], starts: &[u64], threshold: u16, out: &mut [f32]) {
    assert!(!starts.is_empty() && x.len() == out.len() && x.len().is_multiple_of(starts.len()));
    let (level, size) = (Level::best(), x.len() / starts.len());
    let kept = (65536.0 / f64::from(65536 - u32::from(threshold))) as f32;
    let samples = out.par_chunks_mut(size.max(1)).zip(x.par_chunks(size.max(1))).zip(starts);
    samples.share(|((out, x), &start)| {
        out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).enumerate().share(|(i, (out, x))| {
            level.run(Drop { x, start: start.wrapping_add((i * CHUNK / 4) as u64), threshold, kept, out });
        });
    });
}

struct Drop<'a> {
    x: &'a [f32],
    start: u64,
    threshold: u16,
    kept: f32,
    out: &'a mut [f32],
}

impl Kernel for Drop<'_> {
    type Output = ();

    /// Plain loops that the compiler turns into vectors of whichever width `S` stands for.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        const WORDS: usize = 16;
        for (i, (out, x)) in self.out.chunks_mut(4 * WORDS).zip(self.x.chunks(4 * WORDS)).enumerate() {
            let first = self.start.wrapping_add((i * WORDS) as u64);
            let mut factors = [0.0; 4 * WORDS];
            for (word, four) in factors.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let bits = mix(first.wrapping_add(word as u64));
                for (lane, factor) in four.iter_mut().enumerate() {
                    *factor = if (bits >> (16 * lane)) as u16 >= self.threshold { self.kept } else { 0.0 };
                }
            }
            out.iter_mut().zip(x).zip(&factors).for_each(|((out, x), factor)| *out = x * factor);
        }
    }
}

/// The output function of SplitMix64.
#[inline(always)]
pub fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_follow_their_counter() {
        let (size, starts, threshold) = (CHUNK + 70, [7, u64::MAX - 3, 9], 20_000);
        let x = vec![1.0; 3 * size];
        let mut out = vec![9.0; 3 * size];
        dropout(&x, &starts, threshold, &mut out);
        let kept = (65536.0 / (65536.0 - 20_000.0)) as f32;
        for (i, &y) in out.iter().enumerate() {
            let at = i % size;
            let bits = mix(starts[i / size].wrapping_add((at / 4) as u64)) >> (16 * (at % 4)) & 0xffff;
            assert_eq!(y, if bits >= u64::from(threshold) { kept } else { 0.0 }, "element {i}");
        }
    }
}
