//! The training objective.
mod objective;

pub use objective::{AuxEstimate, AuxWeight, Auxiliary, Objective, Pairing, Reduction};
