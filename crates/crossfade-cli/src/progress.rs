//! Progress on standard error: a bar on a terminal, else a plain line now and then.
use crate::output::duration;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Between plain lines.
const PAUSE: Duration = Duration::from_secs(10);

/// How far a job is.
pub struct Progress {
    how: How,
    label: String,
    detail: String,
    total: u64,
    /// Things that were done before the clock started.
    before: u64,
    started: Instant,
    last: Instant,
}

enum How {
    Bar(ProgressBar),
    Lines,
    Silent,
}

impl Progress {
    /// Starts the clock on `total` things.
    pub fn new(label: &str, total: u64, quiet: bool) -> Self {
        let how = if quiet {
            How::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left") {
                bar.set_style(style);
            }
            bar.set_message(label.to_string());
            How::Bar(bar)
        } else {
            How::Lines
        };
        let now = Instant::now();
        Self { how, label: label.to_string(), detail: String::new(), total, before: 0, started: now, last: now }
    }

    /// Counts `done` things as done before the clock started.
    pub fn begin_at(&mut self, done: u64) {
        self.before = done;
        if let How::Bar(bar) = &self.how {
            bar.set_position(done);
            bar.reset_eta();
        }
    }

    /// What else to show beside the bar.
    pub fn detail(&mut self, detail: String) {
        if let How::Bar(bar) = &self.how {
            bar.set_message(format!("{} {detail}", self.label));
        }
        self.detail = detail;
    }

    /// `done` things of `total` are done.
    pub fn set(&mut self, done: u64, total: u64) {
        self.total = total;
        match &self.how {
            How::Silent => (),
            How::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            How::Lines if self.last.elapsed() < PAUSE || done <= self.before => (),
            How::Lines => {
                self.last = Instant::now();
                let pace = self.started.elapsed().as_secs_f64() / (done - self.before) as f64;
                let left = pace * total.saturating_sub(done) as f64;
                // Nothing sensible can be done if standard error is closed.
                let _ = writeln!(
                    std::io::stderr().lock(),
                    "{}: {done} of {total}, about {} left {}",
                    self.label,
                    duration(left),
                    self.detail
                );
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}
