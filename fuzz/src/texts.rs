//! Texts: configurations with overrides, and small files and arguments.
use super::containers::{kind, parts};
use super::scratch::{accepted, file};
use super::weights::check_config;
use crossfade::config::{AutoencoderRun, RunConfig, Study, is_autoencoder};
use crossfade::data::matlab_resize::Scale;
use crossfade::generate::Shard;
use crossfade::math::{Blend, GridKind};
use crossfade::metrics::statistics::read_report;
use crossfade::sample::Sampler;
use crossfade::train::log;
use crossfade_serve::read_tokens;

/// A configuration of a run, of an autoencoder or of a study, and up to four overrides, each after a zero byte.
pub fn config(input: &[u8]) {
    let (kind, rest) = kind(input, 3);
    let parts: Vec<String> = parts(rest, 5).iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let (text, sets) = (&parts[0], parts[1..].iter().filter(|set| !set.is_empty()).collect::<Vec<_>>());
    is_autoencoder(text);
    match kind {
        0 => {
            let parsed = accepted(RunConfig::parse(text, "fuzz.toml"));
            parsed.iter().for_each(check_config);
            if let Some(config) = accepted(parsed.unwrap_or_default().with_overrides(&sets)) {
                check_config(&config);
            }
        }
        1 => {
            let parsed = accepted(AutoencoderRun::parse(text, "fuzz.toml"));
            let changed = accepted(parsed.clone().unwrap_or_default().with_overrides(&sets));
            for config in parsed.into_iter().chain(changed) {
                let written = config.to_toml().expect("what was accepted can be written");
                let again = AutoencoderRun::parse(&written, "again.toml").expect("what was written can be read");
                assert_eq!(config, again, "a configuration changes when it is written");
            }
        }
        _ => {
            if let Some(study) = accepted(Study::parse(text, "fuzz.toml")) {
                study.validate().expect("what was accepted is valid");
                accepted(study.with_overrides(&sets));
            }
        }
    }
}

/// Small files and arguments: tokens, reports, logs, and the values of options.
pub fn texts(input: &[u8]) {
    let (kind, rest) = kind(input, 4);
    match kind {
        0 => {
            let tokens = accepted(read_tokens(&file("texts/tokens", rest)));
            let least = |(name, token): &(String, String)| !name.is_empty() && token.len() >= 16;
            assert!(tokens.is_none_or(|tokens| !tokens.is_empty() && tokens.iter().all(least)));
        }
        1 => {
            let path = file("texts/report.json", rest);
            for name in [None, Some("fid")] {
                let found = accepted(read_report(&path, name));
                assert!(found.is_none_or(|found| found.value.is_finite()), "a report of no number");
            }
        }
        2 => {
            let path = file("texts/log.jsonl", rest);
            let steps = accepted(log::read(&path)).unwrap_or_default();
            assert!(steps.len() <= 1 + rest.iter().filter(|&&byte| byte == b'\n').count());
            let _ = log::seconds(&path, 8);
            // What continues at a step keeps the lines before it, once and for all.
            let kept = |step: u64| {
                accepted(log::Log::open(&path, step));
                std::fs::read(&path).unwrap()
            };
            let first = kept(1000);
            assert_eq!(first, kept(1000), "a log changes each time that it is opened");
        }
        _ => arguments(&String::from_utf8_lossy(rest)),
    }
}

fn arguments(text: &str) {
    // Errors of the formulas' crate know no terminal; they are printed as errors of a request.
    let shown = |e: &dyn std::fmt::Display| crossfade::Error::request(e.to_string());
    if let Some(grid) = accepted(GridKind::from_argument(text).map_err(|e| shown(&e))) {
        let again = GridKind::from_argument(&grid.argument()).expect("what is written can be read");
        assert_eq!(grid.argument(), again.argument(), "a grid changes when it is written");
    }
    if let Some(sampler) = accepted(Sampler::parse(text).map_err(|e| shown(&e))) {
        assert_eq!(Sampler::parse(sampler.name()).ok(), Some(sampler));
    }
    accepted(Blend::parse(text).map_err(|e| shown(&e)));
    accepted(Scale::parse(text));
    accepted(Shard::parse(text));
    // A set of images in a place that does not exist, with any part of it.
    assert!(crossfade::metrics::features::open(&format!("/dev/null/{text}")).is_err());
}
