//! The oracle laboratory.
