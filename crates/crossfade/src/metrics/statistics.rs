//! Repeated runs: mean, spread, confidence, Welch's t-test.
