//! Element-wise loops over slices: whole vectors first, then one masked vector for the rest.
use super::Simd;

/// out_i = f(x_i)
#[inline(always)]
pub(crate) fn map<S: Simd>(s: S, x: &[f32], out: &mut [f32], f: impl Fn(S::V) -> S::V) {
    let (mut xs, mut outs) = (x.chunks_exact(S::LANES), out.chunks_exact_mut(S::LANES));
    for (x, out) in xs.by_ref().zip(outs.by_ref()) {
        s.store(f(s.load(x)), out);
    }
    if !xs.remainder().is_empty() {
        s.store_part(f(s.load_part(xs.remainder())), outs.into_remainder());
    }
}

/// out_i = f(x_i, y_i)
#[inline(always)]
pub(crate) fn map2<S: Simd>(s: S, x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(S::V, S::V) -> S::V) {
    let (mut xs, mut ys) = (x.chunks_exact(S::LANES), y.chunks_exact(S::LANES));
    let mut outs = out.chunks_exact_mut(S::LANES);
    for ((x, y), out) in xs.by_ref().zip(ys.by_ref()).zip(outs.by_ref()) {
        s.store(f(s.load(x), s.load(y)), out);
    }
    if !xs.remainder().is_empty() {
        let v = f(s.load_part(xs.remainder()), s.load_part(ys.remainder()));
        s.store_part(v, outs.into_remainder());
    }
}

/// out_i = f(out_i, x_i)
#[inline(always)]
pub(crate) fn update<S: Simd>(s: S, out: &mut [f32], x: &[f32], f: impl Fn(S::V, S::V) -> S::V) {
    let (mut xs, mut outs) = (x.chunks_exact(S::LANES), out.chunks_exact_mut(S::LANES));
    for (x, out) in xs.by_ref().zip(outs.by_ref()) {
        s.store(f(s.load(out), s.load(x)), out);
    }
    if !xs.remainder().is_empty() {
        let out = outs.into_remainder();
        s.store_part(f(s.load_part(out), s.load_part(xs.remainder())), out);
    }
}
