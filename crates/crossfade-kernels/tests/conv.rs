//! Convolutions against a plain f64 computation, and their independence of batch and threads.
#![allow(clippy::unwrap_used)]
use crossfade_kernels::Isa;
use crossfade_kernels::conv::{Algorithm, ConvShape, Method, Prepared, backward_input, backward_weight, forward};
use proptest::prelude::*;

/// Numbers in −1..1 from a seed.
fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
        })
        .collect()
}

struct Case {
    s: ConvShape,
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    dy: Vec<f32>,
}

/// Sums of products.
struct Exact {
    sums: Vec<f64>,
    squares: f64,
}

impl Exact {
    fn zeros(len: usize) -> Self {
        Self { sums: vec![0.0; len], squares: 0.0 }
    }

    fn add(&mut self, at: usize, term: f64) {
        self.sums[at] += term;
        self.squares += term * term;
    }

    /// Root mean square and largest error, relative to the size that sums of such terms have if their signs are random:
    /// unlike the sums' own size it does not vanish when they cancel.
    fn errors(&self, computed: &[f32]) -> (f64, f64) {
        let size = (self.squares / self.sums.len() as f64).sqrt().max(f64::MIN_POSITIVE);
        let errors = computed.iter().zip(&self.sums).map(|(&c, e)| (f64::from(c) - e).abs() / size);
        let (sum, largest) = errors.fold((0.0, 0.0), |(sum, largest), e| {
            // Not f64::max, which would ignore a NaN.
            (sum + e * e, if e <= largest { largest } else { e })
        });
        ((sum / self.sums.len() as f64).sqrt(), largest)
    }
}

struct Results {
    y: Vec<f32>,
    dx: Vec<f32>,
    dw: Vec<f32>,
    db: Vec<f32>,
}

impl Case {
    fn new(s: ConvShape) -> Self {
        let (x, weight) = (noise(s.x_len(), 1), noise(s.weight_len(), 2));
        Self { s, x, weight, bias: noise(s.co, 3), dy: noise(s.y_len(), 4) }
    }

    /// Calls `f(y, x, weight)` with the indices of every product.
    fn products(&self, mut f: impl FnMut(usize, usize, usize)) {
        let s = &self.s;
        let (oh, ow, k) = (s.out_h(), s.out_w(), s.kernel);
        let inside =
            |o: usize, tap: usize, size: usize| (o * s.stride + tap).checked_sub(s.padding).filter(|&i| i < size);
        for (n, o, i) in triples(s.n, s.co, s.ci) {
            for (ky, kx, oy) in triples(k, k, oh) {
                let Some(iy) = inside(oy, ky, s.h) else { continue };
                for ox in 0..ow {
                    let Some(ix) = inside(ox, kx, s.w) else { continue };
                    let y = ((n * s.co + o) * oh + oy) * ow + ox;
                    f(y, ((n * s.ci + i) * s.h + iy) * s.w + ix, ((o * s.ci + i) * k + ky) * k + kx);
                }
            }
        }
    }

    /// y, dx, dw and db.
    fn exact(&self) -> [Exact; 4] {
        let (s, plane) = (&self.s, self.s.out_h() * self.s.out_w());
        let channel = |y: usize| y / plane % s.co;
        let [mut y, mut dx, mut dw, mut db] = [s.y_len(), s.x_len(), s.weight_len(), s.co].map(Exact::zeros);
        self.products(|iy, ix, iw| {
            let [x, w, g] = [self.x[ix], self.weight[iw], self.dy[iy]].map(f64::from);
            y.add(iy, x * w);
            dx.add(ix, g * w);
            dw.add(iw, g * x);
        });
        for (i, &g) in self.dy.iter().enumerate() {
            y.add(i, f64::from(self.bias[channel(i)]));
            db.add(channel(i), f64::from(g));
        }
        [y, dx, dw, db]
    }

    fn run(&self, method: Method) -> Results {
        let s = &self.s;
        // Poisoned, to show what is not written.
        let poison = |len: usize| vec![f32::NAN; len];
        let (mut y, mut dx) = (poison(s.y_len()), poison(s.x_len()));
        let (mut dw, mut db) = (poison(s.weight_len()), poison(s.co));
        method.forward(&self.x, &self.weight, Some(&self.bias), s, &mut y);
        method.backward_input(&self.dy, &self.weight, s, &mut dx);
        method.backward_weight(&self.x, &self.dy, s, &mut dw, Some(&mut db));
        Results { y, dx, dw, db }
    }
}

fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |a| (0..b).flat_map(move |b| (0..c).map(move |c| (a, b, c))))
}

/// All instruction sets and algorithms against f64.
fn check(s: ConvShape) {
    let case = Case::new(s);
    let exact = case.exact();
    for isa in Isa::available() {
        for algorithm in [Algorithm::Winograd, Algorithm::Direct] {
            let Some(method) = Method::new(isa, algorithm, &s) else { continue };
            let Results { y, dx, dw, db } = case.run(method);
            for ((name, computed), exact) in [("y", y), ("dx", dx), ("dw", dw), ("db", db)].iter().zip(&exact) {
                let (rms, largest) = exact.errors(computed);
                let (rms_bound, bound) = if algorithm == Algorithm::Winograd { (6e-6, 6e-5) } else { (3e-6, 2e-5) };
                assert!(rms < rms_bound, "{name} of {s:?}, {} {algorithm:?}: rms error {rms:e}", isa.name());
                assert!(largest < bound, "{name} of {s:?}, {} {algorithm:?}: error {largest:e}", isa.name());
            }
        }
    }
}

/// [n, ci, co, h, w, kernel, stride, padding]
fn shape([n, ci, co, h, w, kernel, stride, padding]: [usize; 8]) -> ConvShape {
    ConvShape { n, ci, co, h, w, kernel, stride, padding }
}

#[test]
fn the_layers_of_a_network() {
    for sizes in [
        [2, 3, 20, 9, 8, 3, 1, 1],
        [2, 20, 3, 8, 9, 3, 1, 1],
        [1, 32, 48, 8, 8, 3, 1, 1],
        [3, 17, 33, 4, 4, 3, 1, 1],
        [2, 18, 35, 7, 5, 3, 2, 1],
        [2, 35, 18, 8, 8, 4, 2, 1],
        [1, 3, 16, 11, 13, 7, 1, 3],
        [1, 3, 16, 14, 14, 7, 2, 3],
        [3, 40, 25, 5, 7, 1, 1, 0],
        [2, 9, 17, 6, 6, 1, 2, 0],
        [2, 16, 16, 10, 10, 3, 1, 0],
        [2, 16, 16, 10, 10, 3, 1, 2],
    ] {
        check(shape(sizes));
    }
}

#[test]
fn extremes_of_channels_and_batch() {
    check(shape([1, 1024, 2, 2, 2, 3, 1, 1]));
    check(shape([1, 2, 1024, 2, 2, 3, 1, 1]));
    check(shape([1, 1024, 17, 1, 3, 1, 1, 0]));
    check(shape([64, 5, 6, 3, 2, 3, 1, 1]));
    check(shape([64, 5, 6, 4, 4, 4, 2, 1]));
    check(shape([1, 1, 1, 1, 1, 1, 1, 0]));
    check(shape([1, 1, 1, 1, 1, 3, 1, 1]));
    check(shape([1, 2, 3, 5, 67, 3, 1, 1]));
    check(shape([1, 2, 1, 70, 3, 3, 1, 1]));
}

#[test]
fn an_empty_batch_has_zero_gradients() {
    for sizes in [[0, 20, 20, 8, 8, 3, 1, 1], [0, 3, 4, 8, 8, 3, 2, 1]] {
        let case = Case::new(shape(sizes));
        let mut dw = vec![f32::NAN; case.s.weight_len()];
        forward(&[], &case.weight, None, &case.s, &mut []);
        backward_input(&[], &case.weight, &case.s, &mut []);
        backward_weight(&[], &[], &case.s, &mut dw, None);
        assert!(dw.iter().all(|&dw| dw == 0.0));
    }
}

/// Sizes whose f64 reference takes at most a few million products.
fn any_shape() -> impl Strategy<Value = ConvShape> {
    let kernel = prop_oneof![
        4 => Just((3usize, 1usize)),
        2 => Just((1, 0)),
        1 => prop_oneof![Just((4, 1)), Just((7, 3)), Just((3, 2)), Just((3, 0)), Just((2, 0)), Just((5, 2))],
    ];
    let stride = prop_oneof![3 => Just(1usize), 2 => Just(2), 1 => Just(3)];
    // Logarithmic, so that small and large sizes are equally likely.
    let channels = || (0.0f64..=10.0).prop_map(|log| log.exp2() as usize);
    let batch = (0.0f64..=6.0).prop_map(|log| log.exp2() as usize);
    let sizes = (1usize..30, 1usize..30);
    (batch, channels(), channels(), sizes, kernel, stride).prop_map(|(n, ci, co, (h, w), (kernel, padding), stride)| {
        let mut s = ConvShape { n, ci, co, h: h.max(kernel), w: w.max(kernel), kernel, stride, padding };
        while s.flops() > 6e6 {
            let ConvShape { n, ci, co, h, w, .. } = &mut s;
            let area = *h * *w / (kernel * kernel);
            let largest = [n, ci, co].into_iter().max().filter(|size| **size > area);
            match largest {
                Some(size) => *size = size.div_ceil(2),
                None if *h > *w => *h = (*h * 2 / 3).max(kernel),
                None => *w = (*w * 2 / 3).max(kernel),
            }
        }
        s
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_shapes(s in any_shape()) {
        check(s);
    }
}

const INVARIANT: [[usize; 8]; 6] = [
    // More tiles together than are few, and more channels than are transformed at a time.
    [9, 70, 40, 12, 9, 3, 1, 1],
    [7, 16, 64, 4, 4, 3, 1, 1],
    [7, 20, 33, 8, 8, 3, 2, 1],
    [7, 3, 20, 9, 9, 3, 1, 1],
    [7, 20, 3, 9, 9, 3, 1, 1],
    [7, 50, 18, 6, 6, 1, 1, 0],
];

#[test]
fn an_image_has_the_same_bits_in_any_batch() {
    for sizes in INVARIANT {
        let case = Case::new(shape(sizes));
        let (s, all) = (case.s, case.run(Method::choose(&case.s)));
        let (x_len, y_len) = (s.x_len() / s.n, s.y_len() / s.n);
        let prepared = Prepared::new(&case.weight, &s);
        for k in 0..s.n {
            let alone = ConvShape { n: 1, ..s };
            let (x, dy) = (&case.x[k * x_len..][..x_len], &case.dy[k * y_len..][..y_len]);
            let (mut y, mut again, mut dx) = (vec![0.0; y_len], vec![0.0; y_len], vec![0.0; x_len]);
            forward(x, &case.weight, Some(&case.bias), &alone, &mut y);
            prepared.forward(x, Some(&case.bias), 1, &mut again);
            backward_input(dy, &case.weight, &alone, &mut dx);
            assert!(y == all.y[k * y_len..][..y_len], "y of image {k} of {s:?}");
            assert!(y == again, "prepared weights, image {k} of {s:?}");
            assert!(dx == all.dx[k * x_len..][..x_len], "dx of image {k} of {s:?}");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for sizes in INVARIANT {
        let case = Case::new(shape(sizes));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let Results { y, dx, dw, db } = pool.install(|| case.run(Method::choose(&case.s)));
            [y, dx, dw, db]
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3), "{:?}", case.s);
    }
}
