//! Conversion between images as planes (NCHW: one plane for each channel) and channels-last images (NHWC: all channels
//! of a pixel side by side), where vectors run over channels.
use crate::simd::{RawKernel, Simd};

/// Copies a window of `channels` planes to channels-last order, with zeros outside the image:
/// dst[(r · cols + c) · ld + ch] = src[ch · plane + (y0 + r) · w + x0 + c] for ch < `channels`, and 0 for channels up to
/// `fill`.
///
/// # Safety (contract of whoever runs it)
/// `src` is valid for reads of `channels` planes of h · w floats, `plane` apart; `dst` is valid for writes of `fill`
/// (at least `channels`) floats at each (r · cols + c) · ld, and overlaps no plane.
pub(crate) struct Gather {
    pub(crate) src: *const f32,
    pub(crate) plane: usize,
    pub(crate) channels: usize,
    pub(crate) fill: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
    pub(crate) y0: isize,
    pub(crate) x0: isize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) dst: *mut f32,
    pub(crate) ld: usize,
}

impl RawKernel for Gather {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        // Columns first..end of the window lie inside the image.
        let first = self.x0.min(0).unsigned_abs().min(self.cols);
        let end = (self.w as isize - self.x0).clamp(first as isize, self.cols as isize) as usize;
        for r in 0..self.rows {
            let y = self.y0 + r as isize;
            let outside = y < 0 || y >= self.h as isize;
            let (first, end) = if outside { (self.cols, self.cols) } else { (first, end) };
            // SAFETY: by the contract; columns first..end of row y lie inside the image.
            unsafe {
                let dst = self.dst.add(r * self.cols * self.ld);
                self.zero(dst, 0, first);
                self.zero(dst, end, self.cols);
                if first < end {
                    let at = y as usize * self.w + (self.x0 + first as isize) as usize;
                    self.copy(s, self.src.add(at), dst.add(first * self.ld), end - first);
                }
            }
        }
    }
}

impl Gather {
    /// Zeroes the pixels from..to of a row of the window.
    ///
    /// # Safety
    /// `dst` is the start of a row of the window.
    #[inline(always)]
    unsafe fn zero(&self, dst: *mut f32, from: usize, to: usize) {
        for c in from..to {
            // SAFETY: pixel c of a row of the window.
            unsafe { std::slice::from_raw_parts_mut(dst.add(c * self.ld), self.fill) }.fill(0.0);
        }
    }

    /// Copies all channels of `count` pixels of one row.
    ///
    /// # Safety
    /// `src` and `dst` are the first pixel in the planes and in the window; `count` pixels lie inside both.
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, s: S, src: *const f32, dst: *mut f32, count: usize) {
        let l = S::LANES;
        let (blocks, pixels) = (self.channels / l * l, count / l * l);
        // SAFETY: by the contract; full blocks of channels and pixels go through the transpose, the rest one by one.
        unsafe {
            for ch in (0..blocks).step_by(l) {
                for c in (0..pixels).step_by(l) {
                    s.transpose(src.add(ch * self.plane + c), self.plane, dst.add(c * self.ld + ch), self.ld);
                }
            }
            for c in 0..count {
                let from = if c < pixels { blocks } else { 0 };
                for ch in from..self.channels {
                    *dst.add(c * self.ld + ch) = *src.add(ch * self.plane + c);
                }
                for ch in self.channels..self.fill {
                    *dst.add(c * self.ld + ch) = 0.0;
                }
            }
        }
    }
}

/// Copies channels-last pixels back to planes: dst[ch · plane + r · w + c] = src[(r · cols_ld + c) · ld + ch] for r < `rows`,
/// c < `cols`, ch < `channels`.
///
/// # Safety (contract of whoever runs it)
/// `src` is valid for reads of `channels` floats at each of those offsets, `dst` for writes at each of its own, and
/// they do not overlap.
pub(crate) struct Scatter {
    pub(crate) src: *const f32,
    pub(crate) ld: usize,
    pub(crate) cols_ld: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) channels: usize,
    pub(crate) dst: *mut f32,
    pub(crate) plane: usize,
    pub(crate) w: usize,
}

impl RawKernel for Scatter {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let l = S::LANES;
        let (blocks, pixels) = (self.channels / l * l, self.cols / l * l);
        for r in 0..self.rows {
            // SAFETY: by the contract; full blocks of channels and pixels go through the transpose, the rest one by one.
            unsafe {
                let (src, dst) = (self.src.add(r * self.cols_ld * self.ld), self.dst.add(r * self.w));
                for ch in (0..blocks).step_by(l) {
                    for c in (0..pixels).step_by(l) {
                        s.transpose(src.add(c * self.ld + ch), self.ld, dst.add(ch * self.plane + c), self.plane);
                    }
                }
                for ch in 0..self.channels {
                    let from = if ch < blocks { pixels } else { 0 };
                    for c in from..self.cols {
                        *dst.add(ch * self.plane + c) = *src.add(c * self.ld + ch);
                    }
                }
            }
        }
    }
}
