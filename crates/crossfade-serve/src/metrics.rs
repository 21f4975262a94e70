//! Counters and histograms, as Prometheus reads them.
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A histogram with fixed upper bounds.
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<AtomicU64>,
    /// The sum in millionths, so that it can be added to atomically.
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    fn add(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            below += count.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        below += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        let sum = self.sum.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {below}\n{name}_sum {sum}\n{name}_count {below}");
    }
}

const SECONDS: &[f64] = &[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
const IMAGES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// How jobs end, for the counter of ended jobs.
pub const ENDS: [&str; 3] = ["done", "failed", "cancelled"];

/// Everything that is counted.
pub struct Metrics {
    images_per_pass: Histogram,
    runs_per_pass: Histogram,
    pass_seconds: Histogram,
    waiting_seconds: Histogram,
    running_seconds: Histogram,
    request_seconds: Histogram,
    evaluated_images: AtomicU64,
    accepted: AtomicU64,
    ended: [AtomicU64; 3],
    pictures: AtomicU64,
    responses: [AtomicU64; 6],
    connections: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            images_per_pass: Histogram::new(IMAGES),
            runs_per_pass: Histogram::new(IMAGES),
            pass_seconds: Histogram::new(SECONDS),
            waiting_seconds: Histogram::new(SECONDS),
            running_seconds: Histogram::new(SECONDS),
            request_seconds: Histogram::new(SECONDS),
            evaluated_images: zero(),
            accepted: zero(),
            ended: std::array::from_fn(|_| zero()),
            pictures: zero(),
            responses: std::array::from_fn(|_| zero()),
            connections: zero(),
        }
    }
}

/// What is measured at the moment of asking.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauges {
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run on any server.
    pub running: u64,
    /// Bytes of weights in memory.
    pub weights: u64,
    /// Threads that run samplers.
    pub runs: u64,
}

impl Metrics {
    /// One forward pass.
    pub fn pass(&self, images: usize, runs: usize, time: Duration) {
        self.images_per_pass.add(images as f64);
        self.runs_per_pass.add(runs as f64);
        self.pass_seconds.add(time.as_secs_f64());
        self.evaluated_images.fetch_add(images as u64, Ordering::Relaxed);
    }

    /// A job that was accepted.
    pub fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// A picture that was stored.
    pub fn picture(&self) {
        self.pictures.fetch_add(1, Ordering::Relaxed);
    }

    /// A job that ended here after waiting and running for these seconds.
    pub fn end(&self, state: &str, waiting: f64, running: f64) {
        if let Some(k) = ENDS.iter().position(|end| *end == state) {
            self.ended[k].fetch_add(1, Ordering::Relaxed);
        }
        self.waiting_seconds.add(waiting.max(0.0));
        self.running_seconds.add(running.max(0.0));
    }

    /// An answer with its status.
    pub fn answer(&self, status: u16, time: Duration) {
        self.responses[usize::from(status / 100).min(5)].fetch_add(1, Ordering::Relaxed);
        self.request_seconds.add(time.as_secs_f64());
    }

    /// A connection that was opened or closed.
    pub fn connection(&self, opened: bool) {
        match opened {
            true => self.connections.fetch_add(1, Ordering::Relaxed),
            false => self.connections.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// The text that Prometheus reads.
    pub fn text(&self, gauges: Gauges) -> String {
        let mut out = String::new();
        let mut simple = |kind: &str, name: &str, help: &str, values: &[(&str, f64)]| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        simple("gauge", "crossfade_info", "The version of the server.", &[(&version, 1.0)]);
        simple("gauge", "crossfade_queue_length", "Jobs that wait.", &[("", gauges.queued as f64)]);
        simple("gauge", "crossfade_jobs_running", "Jobs that run, on all servers.", &[("", gauges.running as f64)]);
        simple("gauge", "crossfade_runs", "Samplers that run here.", &[("", gauges.runs as f64)]);
        simple("gauge", "crossfade_connections", "Open connections.", &[("", load(&self.connections))]);
        simple("gauge", "crossfade_weights_bytes", "Weights in memory.", &[("", gauges.weights as f64)]);
        simple("gauge", "crossfade_resident_bytes", "Memory of the process.", &[("", resident_bytes() as f64)]);
        simple("counter", "crossfade_jobs_accepted_total", "Jobs that were accepted.", &[("", load(&self.accepted))]);
        let ended = [0, 1, 2].map(|k| (format!("{{state=\"{}\"}}", ENDS[k]), load(&self.ended[k])));
        let ended: Vec<(&str, f64)> = ended.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
        simple("counter", "crossfade_jobs_ended_total", "Jobs that ended here.", &ended);
        simple("counter", "crossfade_pictures_total", "Pictures that were stored.", &[("", load(&self.pictures))]);
        let evaluated = load(&self.evaluated_images);
        simple("counter", "crossfade_evaluations_total", "Images evaluated by networks.", &[("", evaluated)]);
        let classes = ["{class=\"2xx\"}", "{class=\"3xx\"}", "{class=\"4xx\"}", "{class=\"5xx\"}"];
        let answers: Vec<_> = classes.iter().zip(&self.responses[2..]).map(|(class, n)| (*class, load(n))).collect();
        simple("counter", "crossfade_responses_total", "Answers by their status.", &answers);
        self.images_per_pass.write(&mut out, "crossfade_batch_images", "Images of a forward pass.");
        self.runs_per_pass.write(&mut out, "crossfade_batch_runs", "Runs of samplers that share a forward pass.");
        self.pass_seconds.write(&mut out, "crossfade_pass_seconds", "Time of a forward pass.");
        self.waiting_seconds.write(&mut out, "crossfade_job_waiting_seconds", "Time of jobs in the queue.");
        self.running_seconds.write(&mut out, "crossfade_job_running_seconds", "Time of jobs from start to end.");
        self.request_seconds.write(&mut out, "crossfade_request_seconds", "Time until an answer begins.");
        out
    }
}

/// Bytes of this process in memory; 0 where the system does not tell.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
