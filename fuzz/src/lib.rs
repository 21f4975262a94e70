//! What the fuzz targets do: every way in which bytes that nobody vouches for enter the program, and what must hold whatever the
//! bytes are.
//!
//! There is one definition for two users. `fuzz_targets/` wraps each target for libFuzzer; the test `fuzz` of `crossfade-serve`
//! includes this file and runs every target over its seeds, its corpus and some thousand mutations of them.
//!
//! A target panics where a property does not hold: what was read is written and read again to the same, what a file claims is
//! within the limits, and errors print nothing that could steer a terminal.
#![allow(clippy::unwrap_used, missing_docs)]

pub mod containers;
pub mod images;
pub mod mutate;
pub mod pickles;
pub mod scratch;
pub mod seeds;
pub mod server;
pub mod sets;
pub mod texts;
pub mod weights;

/// A target: what is done with an input, and inputs to begin with.
pub struct Target {
    /// Its name: of the file in `fuzz_targets/`, of the corpus and of the dictionary.
    pub name: &'static str,
    /// Reads an input and checks what must hold.
    pub run: fn(&[u8]),
    /// Inputs that are read without an error, made by this project's own writers.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "tensors", run: weights::tensors, seeds: seeds::tensors },
    Target { name: "checkpoint", run: weights::checkpoint, seeds: seeds::checkpoint },
    Target { name: "pickle", run: weights::pickle, seeds: seeds::pickle },
    Target { name: "torch", run: weights::torch, seeds: seeds::torch },
    Target { name: "png", run: images::png, seeds: seeds::png },
    Target { name: "photo", run: images::photo, seeds: seeds::photo },
    Target { name: "recipe", run: images::recipe, seeds: seeds::recipe },
    Target { name: "zip", run: sets::zip, seeds: seeds::zip },
    Target { name: "npz", run: sets::npz, seeds: seeds::npz },
    Target { name: "mat", run: sets::mat, seeds: seeds::mat },
    Target { name: "cifar", run: sets::cifar, seeds: seeds::cifar },
    Target { name: "idx", run: sets::idx, seeds: seeds::idx },
    Target { name: "config", run: texts::config, seeds: seeds::config },
    Target { name: "texts", run: texts::texts, seeds: seeds::texts },
    Target { name: "request", run: server::request, seeds: seeds::request },
    Target { name: "http", run: server::http, seeds: seeds::http },
];
