//! The options of the training loss, including those of the reference (§2.1–2.4).
use crossfade_math::{LossNorm, TrainingTimes, Weighting};
use serde::{Deserialize, Serialize};

/// How errors over C, H and W are reduced to one number per sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum, as in the reference. Gradients are then so large that clipping is practically always active.
    Sum,
}

/// Which heads have a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Supervise {
    /// Both phi and eps.
    #[default]
    Both,
    /// Only eps, from which x_0 is computed: the paper's attenuation without image supervision (Table 6).
    Eps,
}

/// The training objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// Which heads have a loss; `eps` needs a single decoder.
    pub supervise: Supervise,
    /// How training times are drawn; by default as the paper of the process does.
    pub times: TrainingTimes,
    /// The weights λ(t) of the two heads; `adaptive` is the mean squared error of the raw outputs, without divisions.
    pub weighting: Weighting,
    /// The norm of the errors.
    pub norm: LossNorm,
    /// How squared errors are reduced.
    pub reduction: Reduction,
    /// How absolute errors are reduced. The reference's class for pixels combines their mean with a sum of squares.
    pub l1_reduction: Reduction,
    /// The reference's extra term on the estimate of x_0; none in the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auxiliary: Option<Auxiliary>,
}

impl Default for Objective {
    fn default() -> Self {
        Self {
            supervise: Supervise::Both,
            times: TrainingTimes::default(),
            weighting: Weighting::Adaptive,
            norm: LossNorm::L2,
            reduction: Reduction::Mean,
            l1_reduction: Reduction::Mean,
            auxiliary: None,
        }
    }
}

/// The reference's auxiliary term: weight(t) · distance(x̂_0, x_0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auxiliary {
    /// The estimate of x_0 that is used.
    pub estimate: AuxEstimate,
    /// Absolute differences and how they are reduced; none to leave them out.
    #[serde(default)]
    pub l1: Option<Reduction>,
    /// Its weight over time.
    pub weight: AuxWeight,
    /// How the weights and distances of a batch are multiplied.
    #[serde(default)]
    pub pairing: Pairing,
}

/// An estimate of x_0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuxEstimate {
    /// −H_1(phi).
    Phi,
    /// x_t − H_t(phi) − σ_t eps.
    Heads,
}

/// A weight over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuxWeight {
    /// −½ ln t.
    HalfLog,
    /// 1 − t.
    Linear,
    /// (1 − t)².
    Square,
}

impl AuxWeight {
    /// The weight at t.
    pub fn at(self, t: f64) -> f64 {
        match self {
            Self::HalfLog => -0.5 * t.ln(),
            Self::Linear => 1.0 - t,
            Self::Square => (1.0 - t).powi(2),
        }
    }
}

/// How weights and distances of a batch are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// mean(w·L), with the weight of each sample, as intended.
    #[default]
    PerSample,
    /// mean(w)·mean(L), the effect of broadcasting (B) with (B, 1) in the reference's older release (§2.4).
    Mixed,
    /// B·mean(w)·mean(L), the same effect under a sum, in the reference's current release.
    MixedSum,
}
