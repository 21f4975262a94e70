//! Dropout whose mask is the hash of a counter: no mask is stored, the backward pass computes it again.
use crate::CHUNK;
use crate::simd::{Isa, Kernel, Simd};
use crate::team::Share;
use rayon::prelude::*;

/// out = x·mask. Every element has 16 random bits: the mask is 0 where they are below `threshold`, and
/// 2^16/(2^16 − threshold) elsewhere. Element i of a sample takes a quarter of the 64 bits of SplitMix64 at the counter
/// `start` + i/4, where `start` is that of the sample.
///
/// # Shapes
/// `x`, `out` `[n, size]`, `starts` `[n]`.
pub fn dropout(x: &[f32], starts: &[u64], threshold: u16, out: &mut [f32]) {
    assert!(!starts.is_empty() && x.len() == out.len() && x.len().is_multiple_of(starts.len()));
    let (isa, size) = (Isa::detect(), x.len() / starts.len());
    let keep_factor = (65536.0 / f64::from(65536 - u32::from(threshold))) as f32;
    let samples = out.par_chunks_mut(size.max(1)).zip(x.par_chunks(size.max(1))).zip(starts);
    samples.share(|((out, x), &start)| {
        out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).enumerate().share(|(i, (out, x))| {
            isa.run(Mask { x, start: start.wrapping_add((i * CHUNK / 4) as u64), threshold, keep_factor, out });
        });
    });
}

struct Mask<'a> {
    x: &'a [f32],
    start: u64,
    threshold: u16,
    keep_factor: f32,
    out: &'a mut [f32],
}

impl Kernel for Mask<'_> {
    type Output = ();

    /// Plain loops: the compiler turns them into vectors of the instruction set in which it compiles `run`.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        const WORDS: usize = 16;
        for (i, (out, x)) in self.out.chunks_mut(4 * WORDS).zip(self.x.chunks(4 * WORDS)).enumerate() {
            let first = self.start.wrapping_add((i * WORDS) as u64);
            let mut factors = [0.0; 4 * WORDS];
            for (word, four) in factors.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let bits = mix(first.wrapping_add(word as u64));
                for (lane, factor) in four.iter_mut().enumerate() {
                    *factor = if (bits >> (16 * lane)) as u16 >= self.threshold { self.keep_factor } else { 0.0 };
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
    fn the_mask_follows_from_the_counter() {
        let (size, starts, threshold) = (CHUNK + 70, [7, u64::MAX - 3, 9], 20_000);
        let x = vec![1.0; 3 * size];
        let mut out = vec![9.0; 3 * size];
        dropout(&x, &starts, threshold, &mut out);
        let keep_factor = (65536.0 / (65536.0 - 20_000.0)) as f32;
        for (i, &y) in out.iter().enumerate() {
            let at = i % size;
            let bits = mix(starts[i / size].wrapping_add((at / 4) as u64)) >> (16 * (at % 4)) & 0xffff;
            assert_eq!(y, if bits >= u64::from(threshold) { keep_factor } else { 0.0 }, "element {i}");
        }
    }
}
