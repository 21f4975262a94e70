//! Edges: the BSDS benchmark.
