//! Ctrl-C and SIGTERM: one flag for every verb that can stop early, and the error that says it did.
use anyhow::{Context as _, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The error of a run that stopped early because it was interrupted.
///
/// It is an error, with its own exit code, because a scheduler must not take an interrupted study for a finished one.
#[derive(Debug)]
pub struct Stopped;

impl Stopped {
    /// The exit code that shells report for a program ended by Ctrl-C: 128 + SIGINT.
    pub const CODE: u8 = 130;
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "interrupted before the end; run the same command again to continue")
    }
}

impl std::error::Error for Stopped {}

/// Installs the handler and returns the flag that it sets on Ctrl-C, and on SIGTERM, which schedulers send before they
/// kill a job. A second signal ends the program at once.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    // One flag for the whole program: with several devices the verb runs in several threads.
    static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        return Ok(Arc::clone(stop));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let on_signal = move || {
        if flag.swap(true, Ordering::Relaxed) {
            // Exiting here is safe: every file is written under a temporary name and renamed when it is complete.
            std::process::exit(Stopped::CODE.into());
        }
    };
    ctrlc::set_handler(on_signal).context("installing the Ctrl-C handler")?;
    *known = Some(Arc::clone(&stop));
    Ok(stop)
}
