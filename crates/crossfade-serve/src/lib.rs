//! `crossfade serve`: pictures over HTTP that are the same bytes whatever the load. docs/SERVING.md describes the
//! interface.
//!
//! - `api/` answers requests: fields, limits, tokens, events, the page. It computes nothing.
//! - `request`, `prompt`: from the fields of a request to a [`job::JobSpec`], which says all that the pictures depend on.
//! - `store/`: accepted jobs and their pictures, in SQLite or PostgreSQL.
//! - `scheduler`: which part of which job runs next. `run`: makes pictures, with the calls of the command line.
//! - `batcher`: joins the evaluations of all running samplers to forward passes.
//! - `front`: a server without a network, for fuzzing.
//! - `models`: networks, loaded when they are needed. `events`, `metrics`, `net`: what their names say.
pub mod api;
mod batcher;
pub mod config;
mod events;
mod front;
pub mod job;
mod metrics;
mod models;
mod net;
mod prompt;
pub mod request;
mod run;
mod scheduler;
pub mod store;

pub use config::{Limits, ModelSource, ServeConfig, StoreAddress, Times, read_tokens};
#[doc(hidden)]
pub use front::Front;

use crossfade::engine::Device;
use crossfade::{Error, Result};
use scheduler::{Scheduler, SchedulerParts};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// A server that runs.
pub struct Server {
    address: SocketAddr,
    scheduler: Arc<Scheduler>,
    stop: watch::Sender<bool>,
    runtime: tokio::runtime::Runtime,
    connections: tokio::task::JoinHandle<()>,
    drain: Duration,
}

impl Server {
    /// Opens the models and the store, continues what an earlier server has left, and listens.
    pub fn start(mut config: ServeConfig, device: &Device) -> Result<Self> {
        if config.models.is_empty() {
            return Err(Error::request("there is nothing to serve: give a checkpoint or a run directory"));
        }
        let models = std::mem::take(&mut config.models);
        let library = Arc::new(models::Library::open(models, config.memory, device)?);
        let store = store::open(&config.store)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(64)
            .thread_name("http")
            .enable_all()
            .build()
            .map_err(failed("starting the threads of the server"))?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(config.bind));
        let listener = listener.map_err(|e| Error::Run(format!("listening on {}: {e}", config.bind)))?;
        let address = listener.local_addr().map_err(failed("the address of the server"))?;
        let (scheduler, metrics, router) = assemble(&config, library, store, address)?;
        let (stop, stopped) = watch::channel(false);
        let connections = runtime.spawn(net::serve(listener, router, config.limits.clone(), metrics, stopped));
        Ok(Self { address, scheduler, stop, runtime, connections, drain: config.drain })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for Ctrl-C or SIGTERM, then [`Server::stop`]s. A second signal ends the process at once.
    pub fn run(self) {
        self.runtime.block_on(signal());
        note("stopping: running jobs are finished, the others stay in the store");
        self.runtime.spawn(async {
            signal().await;
            std::process::exit(130);
        });
        self.stop();
    }

    /// Takes no more jobs, finishes those that run as far as there is time, and closes.
    pub fn stop(self) {
        self.scheduler.drain(self.drain);
        let _ = self.stop.send(true);
        let _ = self.runtime.block_on(self.connections);
        self.runtime.shutdown_timeout(Duration::from_secs(2));
    }
}

/// What answers requests, with the threads behind it.
fn assemble(
    config: &ServeConfig,
    library: Arc<models::Library>,
    store: Arc<dyn store::Store>,
    address: SocketAddr,
) -> Result<(Arc<Scheduler>, Arc<metrics::Metrics>, axum::Router)> {
    let metrics = Arc::new(metrics::Metrics::default());
    let batcher = batcher::Batcher::start(config.max_batch, metrics.clone());
    let batcher = batcher.map_err(failed("starting the thread that computes"))?;
    let hub = Arc::new(events::Hub::new(config.previews));
    let parts = SchedulerParts { store, library, batcher, hub, metrics: metrics.clone() };
    let scheduler = Scheduler::start(parts, config).map_err(failed("starting the scheduler"))?;
    let app = api::App::new(&scheduler, metrics.clone(), config, address);
    let router = api::router(&Arc::new(app));
    Ok((scheduler, metrics, router))
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |e| Error::Run(format!("{what}: {e}"))
}

/// Waits for Ctrl-C, or on Unix for SIGTERM.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        {
            tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Every thread that computes treats subnormal numbers as zero, as those of the command line do: bits depend on it.
fn prepare_thread() {
    // SAFETY: no code depends on the difference between a subnormal number and zero, which `crossfade` says of its own
    // threads too.
    unsafe { crossfade_kernels::flush_subnormals() };
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// 64 bits that nobody can guess, from the keys that the system gives the standard library's hash tables.
fn random_number() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one((COUNT.fetch_add(1, Ordering::Relaxed), std::process::id(), now().to_bits()))
}

/// A name of 128 bits.
fn random_name() -> String {
    format!("{:016x}{:016x}", random_number(), random_number())
}

/// A lock that a panic elsewhere does not close.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of the log, on standard error.
fn note(text: &str) {
    // If standard error is closed there is nowhere left to report that.
    let _ = writeln!(std::io::stderr().lock(), "crossfade serve: {text}");
}
