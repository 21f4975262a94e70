//! Parity with the reference: every case of the golden set, one test per kind of case.
//!
//! The set is looked for in `CROSSFADE_GOLDEN`, or beside the project. A new kind is one file with a `check` function
//! and one line in the list below; what has no line is printed by name, so nothing is left out silently.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod augment;
mod autoencoder;
mod case;
mod checkpoint_files;
mod compare;
mod cond_nets;
mod cond_unet_forward;
mod edge;
mod ema;
mod formula;
mod functions;
mod loss;
mod lr_schedule;
mod nets;
mod npy;
mod optimizer;
mod parameter_lists;
mod sampling;
mod sampling_pipeline;
#[path = "../common/shared.rs"]
mod shared;
mod sliding_window;
mod statistics;
mod swin_forward;
mod unet_forward;
mod unet_gradient;

use case::{Case, cases};

/// One kind of case: how it is checked (returning all failures), and which parts of a case are not checked.
struct Kind {
    name: &'static str,
    check: fn(&Case) -> Vec<String>,
    skips: fn(&Case) -> Vec<String>,
}

/// For kinds that are checked wholly.
fn nothing(_: &Case) -> Vec<String> {
    Vec::new()
}

macro_rules! kinds {
    ($($test:ident: $name:literal => $check:path, skips $skips:path;)*) => {
        const KINDS: &[Kind] = &[$(Kind { name: $name, check: $check, skips: $skips }),*];
        $(#[test] fn $test() { run($name) })*
    };
}

kinds! {
    golden_augment: "augment" => augment::check, skips nothing;
    golden_autoencoder: "autoencoder" => autoencoder::check, skips nothing;
    golden_autoencoder_loss: "vae_loss" => autoencoder::check_loss, skips nothing;
    golden_checkpoint_files: "checkpoint_files" => checkpoint_files::check, skips checkpoint_files::skips;
    golden_cond_unet_forward: "cond_unet_forward" => cond_unet_forward::check, skips nothing;
    golden_discriminator: "discriminator" => autoencoder::check_discriminator, skips nothing;
    golden_ema: "ema" => ema::check, skips nothing;
    golden_formula: "formula" => formula::check, skips nothing;
    golden_functions: "functions" => functions::check, skips functions::skips;
    golden_loss: "loss" => loss::check, skips loss::skips;
    golden_lr_schedule: "lr_schedule" => lr_schedule::check, skips nothing;
    golden_optimizer: "optimizer" => optimizer::check, skips nothing;
    golden_sampling: "sampling" => sampling::check, skips sampling::skips;
    golden_sampling_pipeline: "sampling_pipeline" => sampling_pipeline::check, skips nothing;
    golden_parameter_lists: "parameter_lists" => parameter_lists::check, skips parameter_lists::skips;
    golden_sliding_window: "sliding_window" => sliding_window::check, skips nothing;
    golden_statistics: "statistics" => statistics::check, skips nothing;
    golden_swin_forward: "swin_forward" => swin_forward::check, skips nothing;
    golden_unet_forward: "unet_forward" => unet_forward::check, skips nothing;
    golden_unet_gradient: "unet_gradient" => unet_gradient::check, skips nothing;
}

fn run(name: &str) {
    let kind = KINDS.iter().find(|kind| kind.name == name).expect("a registered kind");
    let all = cases();
    // The set beside the project has every kind; one that is named may have fewer.
    let whole = all.is_empty() || std::env::var_os("CROSSFADE_GOLDEN").is_some();
    let cases: Vec<Case> = all.into_iter().filter(|case| case.kind == name).collect();
    assert!(whole || !cases.is_empty(), "no case of the kind {name}");
    let failures: Vec<String> = cases
        .iter()
        .flat_map(|case| (kind.check)(case).into_iter().map(|failure| format!("{}: {failure}", case.name)))
        .collect();
    eprintln!("{name}: {} cases", cases.len());
    assert!(failures.is_empty(), "{} failures\n  {}", failures.len(), failures.join("\n  "));
}

#[test]
fn golden_every_case_is_known_or_listed_as_skipped() {
    let cases = cases();
    for case in &cases {
        match KINDS.iter().find(|kind| kind.name == case.kind) {
            None => eprintln!("skipped: {} (kind {})", case.name, case.kind),
            Some(kind) => (kind.skips)(case).iter().for_each(|part| eprintln!("skipped: {} / {part}", case.name)),
        }
    }
    let known = cases.iter().filter(|case| KINDS.iter().any(|kind| kind.name == case.kind)).count();
    eprintln!("{known} of {} cases are checked", cases.len());
    assert!(cases.is_empty() || known > 0, "a golden set without any case of a known kind");
}
