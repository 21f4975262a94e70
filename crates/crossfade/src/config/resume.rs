//! Which options may change between a run and its resumption.
use super::RunConfig;
use crate::error::{Error, Result};

impl RunConfig {
    /// An error that lists every option in which a resumed run would differ from the one that wrote the checkpoint. How often
    /// things are written and how samples are drawn may change: the weights do not depend on them.
    pub fn must_resume_as(&self, wanted: &Self) -> Result<()> {
        let neutral = |config: &Self| {
            let mut config = config.clone();
            let plain = Self::default();
            config.sample = plain.sample;
            config.train.log_every = plain.train.log_every;
            config.train.sample_every = plain.train.sample_every;
            config.train.checkpoint_every = plain.train.checkpoint_every;
            config.train.keep = plain.train.keep;
            config.train.loader_threads = plain.train.loader_threads;
            config.to_toml()
        };
        let (old, new) = (neutral(self)?, neutral(wanted)?);
        let changed: Vec<String> = (old.lines().zip(new.lines()))
            .filter(|(a, b)| a != b)
            .map(|(a, b)| format!("the run has `{a}`, the configuration `{b}`"))
            .collect();
        if old == new {
            return Ok(());
        }
        let advice = "a resumed run must be the same run; restore these options or start in another directory";
        Err(Error::Config([vec![advice.to_string()], changed].concat()))
    }
}
