//! Reading reference checkpoints without executing anything.
