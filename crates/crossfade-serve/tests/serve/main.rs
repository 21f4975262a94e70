//! The server, in this process: its interface, its limits, and that pictures have the bytes of `crossfade sample`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]
#[path = "../common/client.rs"]
mod client;
#[path = "../common/database.rs"]
mod database;
#[path = "../common/models.rs"]
mod models;

mod api;
mod bits;
mod jobs;
mod limits;
mod postgres;
mod tasks;

use client::Client;
use crossfade::engine::Device;
use crossfade_serve::{ModelSource, ServeConfig, Server, StoreAddress};
use std::path::Path;

/// A server with all test models, its client and its folder.
struct Running {
    client: Client,
    server: Option<Server>,
    dir: Option<tempfile::TempDir>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        drop(self.dir.take());
    }
}

/// The configuration of a server on a free port.
fn config(dir: &Path) -> ServeConfig {
    let model = |name: &str| ModelSource::parse(&format!("{name}={}", models::runs().join(name).display())).unwrap();
    let models = ["classes", "flow", "sr", "inpaint"].map(model).into();
    let store = StoreAddress::Sqlite(dir.join("jobs.sqlite"));
    ServeConfig::new("127.0.0.1:0".parse().unwrap(), models, store)
}

fn start(change: impl FnOnce(&mut ServeConfig)) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let mut running = start_in(dir.path(), change);
    running.dir = Some(dir);
    running
}

/// Threads compute as those of the program do: subnormal numbers are zero.
fn as_the_program() {
    static POOL: std::sync::Once = std::sync::Once::new();
    // SAFETY: nothing here depends on the difference between a subnormal number and zero.
    let flush = |_| unsafe { crossfade_kernels::flush_subnormals() };
    POOL.call_once(|| rayon::ThreadPoolBuilder::new().num_threads(2).start_handler(flush).build_global().unwrap());
    // SAFETY: as above.
    unsafe { crossfade_kernels::flush_subnormals() };
}

fn start_in(dir: &Path, change: impl FnOnce(&mut ServeConfig)) -> Running {
    as_the_program();
    let mut config = config(dir);
    change(&mut config);
    let server = Server::start(config, &Device::flex()).unwrap();
    Running { client: Client::new(server.address()), server: Some(server), dir: None }
}
