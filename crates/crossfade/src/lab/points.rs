//! Batches of points in f64, which take the place of images in the laboratory.
use crossfade_math::{Coef, Field};

/// A batch of `data.len() / dim` points with `dim` coordinates each.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// Coordinates of a point.
    pub dim: usize,
    /// All coordinates, point by point.
    pub data: Vec<f64>,
}

impl Points {
    /// The number of points.
    pub fn count(&self) -> usize {
        self.data.len() / self.dim
    }

    /// Iterates over the points.
    pub fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks_exact(self.dim)
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { dim: self.dim, data: self.data.iter().map(|&x| f(x)).collect() }
    }

    fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(self.data.len(), other.data.len(), "both point sets must have the same size");
        Self { dim: self.dim, data: self.data.iter().zip(&other.data).map(|(&x, &y)| f(x, y)).collect() }
    }
}

impl Field for Points {
    fn lincomb(terms: &[(Coef, &Self)]) -> Self {
        let first = terms[0].1;
        let mut out = Self { dim: first.dim, data: vec![0.0; first.data.len()] };
        for (coef, x) in terms {
            match coef {
                Coef::Same(c) => out.data.iter_mut().zip(&x.data).for_each(|(o, x)| *o += c * x),
                Coef::Each(c) => {
                    let rows = out.data.chunks_exact_mut(x.dim).zip(x.iter());
                    for ((o, x), c) in rows.zip(c) {
                        o.iter_mut().zip(x).for_each(|(o, x)| *o += c * x);
                    }
                }
            }
        }
        out
    }
    fn mul(&self, other: &Self) -> Self {
        self.zip(other, |x, y| x * y)
    }
    fn div(&self, other: &Self) -> Self {
        self.zip(other, |x, y| x / y)
    }
    fn exp(&self) -> Self {
        self.map(f64::exp)
    }
    fn sin(&self) -> Self {
        self.map(f64::sin)
    }
    fn asin(&self) -> Self {
        self.map(f64::asin)
    }
    fn sinc(&self) -> Self {
        self.map(|x| Field::sinc(&x))
    }
    fn exprel(&self) -> Self {
        self.map(|x| Field::exprel(&x))
    }
    fn clamp(&self, low: f64, high: f64) -> Self {
        self.map(|x| x.clamp(low, high))
    }
}
