//! Progress on standard error: a bar on a terminal, otherwise a plain line every few seconds.
use crate::output::duration;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between plain lines, so that log files stay short.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of a job over a number of items.
pub struct Progress {
    display: Display,
    label: String,
    detail: String,
    total: u64,
    /// Items that were done before the clock started; they must not count in the estimate of the remaining time.
    before: u64,
    started: Instant,
    last_line: Instant,
}

/// How progress is shown.
enum Display {
    Bar(ProgressBar),
    Lines,
    Silent,
}

impl Progress {
    /// Starts the clock for `total` items.
    pub fn new(label: &str, total: u64, quiet: bool) -> Self {
        let display = if quiet {
            Display::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left") {
                bar.set_style(style);
            }
            bar.set_message(label.to_string());
            Display::Bar(bar)
        } else {
            Display::Lines
        };
        let now = Instant::now();
        Self {
            display,
            label: label.to_string(),
            detail: String::new(),
            total,
            before: 0,
            started: now,
            last_line: now,
        }
    }

    /// Counts `done` items as done before the clock started, as in a resumed run.
    pub fn begin_at(&mut self, done: u64) {
        self.before = done;
        if let Display::Bar(bar) = &self.display {
            bar.set_position(done);
            bar.reset_eta();
        }
    }

    /// Sets the text that is shown after the label, for example the loss.
    pub fn detail(&mut self, detail: String) {
        if let Display::Bar(bar) = &self.display {
            bar.set_message(format!("{} {detail}", self.label));
        }
        self.detail = detail;
    }

    /// Reports that `done` of `total` items are done.
    pub fn set(&mut self, done: u64, total: u64) {
        self.total = total;
        match &self.display {
            Display::Silent => (),
            Display::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            Display::Lines if self.last_line.elapsed() < LINE_INTERVAL || done <= self.before => (),
            Display::Lines => {
                self.last_line = Instant::now();
                let seconds_per_item = self.started.elapsed().as_secs_f64() / (done - self.before) as f64;
                let left = seconds_per_item * total.saturating_sub(done) as f64;
                // If standard error is closed there is nowhere left to report that.
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
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}
