//! The formulas of diffusion by analytical image attenuation, as in the paper, and nothing else.
//!
//! `x_t = x_0 + H_t(phi) + sigma_t eps`, with `H_t = ∫₀ᵗ h` and `x_0 + H_1 = 0`. The crate has no tensors and no
//! files. Coefficients are `f64`, and the few formulas that act on images are written once over [`Field`], which
//! `f64` implements for tests and the engine's tensors implement for training and sampling.
//!
//! | paper | code | |
//! |---|---|---|
//! | x_0, x_t | `x0`, `x_t` | clean image, image at time t in \[0, 1\] |
//! | h_t, H_t | [`AttenuationFn::h`], [`AttenuationFn::H`] | attenuation rate and its integral (Eq. 4) |
//! | φ | `phi` | parameters of h, one or more parts, the last solved from x_0 + H_1 = 0 |
//! | ε | `eps` | the noise, never anything else |
//! | σ_t | [`NoiseScale::sigma`] | √t, or t |
//! | t, t−Δt | `t`, `s` | a step goes from t down to s |
//! | ũ, σ̃ | `u_tilde`, `sigma_tilde` | mean and deviation of q(x_s \| x_t, x_0) (Eq. 9) |
//!
//! "§" in comments refers to the sections of `docs/METHOD.md`, "Eq." and "Alg." to the paper.
#![forbid(unsafe_code)]
#![allow(non_snake_case, reason = "the paper's letters: H_t, D_t, J0, F_phi")]

mod attenuation;
mod average;
mod blend;
mod field;
mod grid;
mod likelihood;
mod noise;
mod precond;
mod problem;
pub mod process;
mod quadrature;
mod registry;
mod schedule;
pub mod solver;
mod times;
mod weight;

pub use attenuation::{Attenuation, AttenuationFn, Moments, PartMoments};
pub use average::{PowerProfile, Reconstruction, StoredAverage, reconstruct};
pub use blend::{Blend, Estimate};
pub use field::{Coef, Field};
pub use grid::{Grid, GridKind};
pub use likelihood::{KAPPA_MIN, NoiseLevel, NoiseRange, bits_per_dim, level};
pub use noise::NoiseScale;
pub use precond::{Precond, Scaling, Scalings};
pub use problem::Problem;
pub use process::{Adm, Draw, Gaussian, GaussianFn, Prediction, Process, ProcessFn};
pub use quadrature::{JointNode, Node, gauss_legendre, joint_nodes, normal_nodes};
pub use registry::{UnknownName, nearest};
pub use schedule::{EmaAction, EmaSchedule, LrSchedule};
pub use times::{DrawnTime, TimeDistribution, TrainingTimes};
pub use weight::{LossNorm, Weighting};
