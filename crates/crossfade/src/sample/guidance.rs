//! Guidance: the prediction of a network is pushed away from that of a weaker one (§4.8).
use crossfade_math::{Coef, Field};

/// How strongly, and at which times, a prediction is guided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guidance {
    /// The weight w: 1 is the prediction itself, 0 the weaker one, more than 1 goes beyond the prediction.
    pub scale: f64,
    /// Guided are the times t from the first to the second of these, both included; t = 1 is noise.
    pub interval: [f64; 2],
}

impl Guidance {
    /// No guidance.
    pub const NONE: Self = Self { scale: 1.0, interval: [0.0, 1.0] };

    /// Whether the weaker prediction is needed at time t.
    pub fn acts(&self, t: f64) -> bool {
        self.scale != 1.0 && (self.interval[0]..=self.interval[1]).contains(&t)
    }

    /// Network evaluations for one prediction at time t: the weaker prediction takes one of its own.
    pub fn evaluations(&self, t: f64) -> usize {
        if self.acts(t) { 2 } else { 1 }
    }

    /// weak + w (strong − weak) where it acts, and `strong` elsewhere.
    pub fn combine<F: Field>(&self, strong: &F, weak: &F, t: &Coef) -> F {
        let scale = t.map(|t| if self.acts(t) { self.scale } else { 1.0 });
        F::lincomb(&[(scale.clone(), strong), (scale.map(|scale| 1.0 - scale), weak)])
    }
}
