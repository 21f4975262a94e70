//! The elementwise operations from which every formula on images is built, so that each is written only once.

/// A coefficient of a formula: one number for all samples (sampling), or one per sample (training).
#[derive(Clone, Debug, PartialEq)]
pub enum Coef {
    /// The same number for every sample.
    Same(f64),
    /// One number for each sample of the batch.
    Each(Vec<f64>),
}

impl Coef {
    /// Applies `f` to each number.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Same(c) => Self::Same(f(*c)),
            Self::Each(c) => Self::Each(c.iter().map(|&c| f(c)).collect()),
        }
    }

    /// Applies `f` to the numbers of two coefficients; one that is the same for all samples goes with each of the other.
    pub fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        match (self, other) {
            (Self::Same(a), other) => other.map(|b| f(*a, b)),
            (Self::Each(_), Self::Same(b)) => self.map(|a| f(a, *b)),
            (Self::Each(a), Self::Each(b)) => Self::Each(a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()),
        }
    }

    /// The number of a coefficient that is the same for all samples.
    pub fn same(&self) -> f64 {
        match self {
            Self::Same(c) => *c,
            Self::Each(c) if c.len() == 1 => c[0],
            Self::Each(c) => panic!("one coefficient expected, {} given", c.len()),
        }
    }
}

impl From<f64> for Coef {
    fn from(c: f64) -> Self {
        Self::Same(c)
    }
}

/// Something that can be combined elementwise: a number, a batch of points, a tensor of images.
pub trait Field: Clone {
    /// Σ cᵢ xᵢ; at least one term.
    fn lincomb(terms: &[(Coef, &Self)]) -> Self;
    /// Elementwise product.
    fn mul(&self, other: &Self) -> Self;
    /// Elementwise quotient.
    fn div(&self, other: &Self) -> Self;
    /// eᶻ.
    fn exp(&self) -> Self;
    /// sin z.
    fn sin(&self) -> Self;
    /// arcsin z, for z in [−1, 1].
    fn asin(&self) -> Self;
    /// sin(z)/z, 1 at z = 0.
    fn sinc(&self) -> Self;
    /// (eᶻ−1)/z, 1 at z = 0.
    fn exprel(&self) -> Self;
    /// Limits each element to [low, high].
    fn clamp(&self, low: f64, high: f64) -> Self;

    /// c·x.
    fn scale(&self, c: impl Into<Coef>) -> Self {
        Self::lincomb(&[(c.into(), self)])
    }
    /// x + y.
    fn plus(&self, other: &Self) -> Self {
        Self::lincomb(&[(1.0.into(), self), (1.0.into(), other)])
    }
    /// x − y.
    fn minus(&self, other: &Self) -> Self {
        Self::lincomb(&[(1.0.into(), self), ((-1.0).into(), other)])
    }
}

impl Field for f64 {
    fn lincomb(terms: &[(Coef, &Self)]) -> Self {
        terms.iter().map(|(c, x)| c.same() * **x).sum()
    }
    fn mul(&self, other: &Self) -> Self {
        self * other
    }
    fn div(&self, other: &Self) -> Self {
        self / other
    }
    fn exp(&self) -> Self {
        f64::exp(*self)
    }
    fn sin(&self) -> Self {
        f64::sin(*self)
    }
    fn asin(&self) -> Self {
        f64::asin(*self)
    }
    fn sinc(&self) -> Self {
        if *self == 0.0 { 1.0 } else { f64::sin(*self) / self }
    }
    fn exprel(&self) -> Self {
        // `exp_m1` is accurate near 0, where eᶻ − 1 would cancel.
        if *self == 0.0 { 1.0 } else { self.exp_m1() / self }
    }
    fn clamp(&self, low: f64, high: f64) -> Self {
        f64::clamp(*self, low, high)
    }
}
