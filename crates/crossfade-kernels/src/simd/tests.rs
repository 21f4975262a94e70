use super::*;

struct Transposes;

impl Kernel for Transposes {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let l = S::LANES;
        let src: Vec<f32> = (0..l * (l + 3)).map(|i| i as f32).collect();
        let mut dst = vec![0.0; l * (l + 5)];
        // SAFETY: both arrays hold LANES rows of their stride.
        unsafe { s.transpose(src.as_ptr(), l + 3, dst.as_mut_ptr(), l + 5) };
        for i in 0..l {
            assert!((0..l).all(|j| dst[j * (l + 5) + i] == src[i * (l + 3) + j]), "row {i}");
        }
        let mut out = [0.0f32; MAX_LANES];
        let (x, two) = (s.load(&src), s.splat(2.0));
        s.store(s.sub(s.add(s.fma(x, two, two), s.fnma(x, two, s.zero())), s.mul(x, two)), &mut out);
        assert!((0..l).all(|i| out[i] == 2.0 - 2.0 * i as f32));
    }
}

#[test]
fn every_set_computes_and_transposes() {
    for isa in Isa::available() {
        isa.run(Transposes);
    }
}

struct Sizes;

impl Kernel for Sizes {
    type Output = (Isa, usize, usize);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        (s.isa(), S::LANES, S::PANEL)
    }
}

#[test]
fn sets_know_the_sizes_of_their_vectors() {
    for isa in Isa::available() {
        assert_eq!(isa.run(Sizes), (isa, isa.lanes(), isa.panel()));
        assert!(isa.lanes() <= MAX_LANES && isa.lanes() % isa.register_lanes() == 0);
    }
    assert_eq!(Isa::available()[0], Isa::detect());
}

struct Exp<'a>(&'a [f32], &'a mut [f32]);

impl Kernel for Exp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map(
            s,
            self.0,
            self.1,
            #[inline(always)]
            |x| s.exp(x),
        );
    }
}

#[test]
fn the_exponential_is_exact_to_about_an_ulp() {
    let x: Vec<f32> = (0..200_001).map(|i| -87.3 + 175.3 * i as f32 / 200_000.0).collect();
    let mut y = vec![0.0; x.len()];
    for isa in Isa::available() {
        isa.run(Exp(&x, &mut y));
        let errors = x.iter().zip(&y).map(|(&x, &y)| {
            let exact = f64::from(x.min(88.0)).exp();
            (f64::from(y) / exact - 1.0).abs()
        });
        let worst = errors.fold(0.0, f64::max);
        assert!(worst < 1.5e-7, "{isa:?}: {worst:e}");
    }
}

#[test]
fn the_exponential_saturates_and_keeps_nan() {
    let x = [f32::NAN, -1e9, f32::NEG_INFINITY, 1e9, 0.0];
    for isa in Isa::available() {
        let mut y = [1.0; 5];
        isa.run(Exp(&x, &mut y));
        assert!(y[0].is_nan() && y[1] < 1.3e-38 && y[1] == y[2] && y[3] > 1e38 && y[4] == 1.0, "{isa:?} {y:?}");
    }
}

struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        s.sum(s.load(self.0)) + s.sum(s.load_part(&self.0[..3]))
    }
}

#[test]
fn lanes_are_summed_and_parts_padded_with_zeros() {
    let x: Vec<f32> = (1..17).map(|i| i as f32).collect();
    for isa in Isa::available() {
        let lanes = isa.lanes();
        assert_eq!(isa.run(Sum(&x)), (lanes * (lanes + 1) / 2) as f32 + 6.0);
    }
}
