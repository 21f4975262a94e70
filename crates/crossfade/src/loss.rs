//! The training objective.
