//! `crossfade serve`.
use crate::context::Context;
use anyhow::Result;
use clap::Args;
use crossfade::{Error, models};
use crossfade_serve::{ModelSource, ServeConfig, Server, StoreAddress, read_tokens};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Make pictures over HTTP: OpenAI's interface, jobs, events, a page
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade serve                                               the models that ship
  crossfade serve runs/cifar10-classes                          http://127.0.0.1:7860
  crossfade serve faces=runs/faces sr=runs/sr --store jobs.sqlite
  crossfade serve runs/faces --bind 0.0.0.0:7860 --token-file tokens
  crossfade serve --store postgres://user@host/crossfade        several servers, one queue

A picture has the bytes that `crossfade sample` writes for the same settings, whatever else runs.
Accepted jobs are in the store: after a crash the same command continues them. SIGTERM finishes
what runs and keeps the rest. docs/SERVING.md describes the interface.")]
pub struct ServeArgs {
    /// Model to serve: a run directory, a checkpoint or the name of a model that ships, with a name for requests if it is to
    /// have another one; repeatable [default: all models that ship]
    #[arg(value_name = "[NAME=]CHECKPOINT")]
    models: Vec<String>,

    /// Address to listen on; port 0 chooses a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7860")]
    bind: SocketAddr,

    /// Address that clients know the server by, for the URLs of pictures; needed behind a proxy with TLS, for example
    /// https://pictures.example.org [default: http:// and the host that the request names]
    #[arg(long, value_name = "URL", value_parser = public_url)]
    public_url: Option<String>,

    /// Where jobs are kept: a file of SQLite, or postgres://…, which several servers can share. A URL with a password is
    /// better given as the environment variable CROSSFADE_STORE, because everybody can see arguments of programs
    /// [default: CROSSFADE_STORE, else crossfade-serve.sqlite]
    #[arg(long, value_name = "FILE|URL")]
    store: Option<String>,

    /// Tokens of those who may ask, one `TOKEN` or `NAME TOKEN` a line
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Let everybody ask on an address that is not loopback
    #[arg(long, conflicts_with = "token_file")]
    no_auth: bool,

    /// Largest number of images of one forward pass; it does not change the images. On a CPU more than the default gain
    /// nothing, and runs that wait for the next pass do their other work meanwhile; a graphics card may want more
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    max_batch: u64,

    /// Images of a job that are sampled together; it does not change the images
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
    chunk: u64,

    /// Samplers that run at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=256))]
    slots: u64,

    /// Weights that stay loaded, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u64,

    /// Previews that are kept for readers of events, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    previews: usize,

    /// Largest request, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1024))]
    max_body: u64,

    /// Most pixels of a picture that is sent or made, in millions
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    max_megapixels: u64,

    /// Most pictures of a job
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    max_count: u64,

    /// Most steps of a sampler
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_steps: u64,

    /// Most jobs that wait
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_queue: u64,

    /// Most jobs of one client that wait [default: a quarter of --max-queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_queue_per_client: Option<u64>,

    /// Requests of one client a minute that create jobs
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Days that finished jobs are kept
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=36500))]
    keep_days: u64,

    /// Finished jobs that are kept, in MiB; the oldest go first
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    keep: u64,

    /// Seconds that a request waits for its pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    wait: u64,

    /// Seconds that running jobs may go on after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,

    /// Seconds after which the jobs of a server that is silent go to another one, with postgres://
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(2..=3600))]
    lease: u64,
}

/// An address such as `https://example.org/pictures`, without a slash at its end.
fn public_url(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_~:/[]%".contains(c);
    if host.is_empty() || host.starts_with('/') || !host.chars().all(plain) {
        return Err("expected http:// or https://, a host and perhaps a path".into());
    }
    Ok(text.trim_end_matches('/').to_string())
}

impl ServeArgs {
    fn config(&self) -> Result<ServeConfig> {
        if !self.bind.ip().is_loopback() && self.token_file.is_none() && !self.no_auth {
            return Err(Error::request(format!(
                "{} can be reached by others: give --token-file, or say --no-auth",
                self.bind
            ))
            .into());
        }
        let shipped = || models::all().iter().map(|model| model.name.to_string()).collect();
        let wanted: Vec<String> = if self.models.is_empty() { shipped() } else { self.models.clone() };
        if wanted.is_empty() {
            let problem = "no model ships with this program: name a run or a checkpoint, which `crossfade train` makes";
            return Err(Error::request(problem).into());
        }
        let models = wanted.iter().map(|text| ModelSource::parse(text)).collect::<crossfade::Result<_>>()?;
        let named =
            self.store.clone().or_else(|| std::env::var("CROSSFADE_STORE").ok().filter(|name| !name.is_empty()));
        let store = StoreAddress::parse(named.as_deref().unwrap_or("crossfade-serve.sqlite"));
        let mut config = ServeConfig::new(self.bind, models, store);
        config.public_url.clone_from(&self.public_url);
        if let Some(file) = &self.token_file {
            config.tokens = read_tokens(file)?;
        }
        (config.max_batch, config.chunk) = (self.max_batch as usize, self.chunk as usize);
        (config.slots, config.memory, config.previews) = (self.slots as usize, self.memory << 20, self.previews << 20);
        (config.drain, config.lease) = (Duration::from_secs(self.drain), Duration::from_secs(self.lease));
        let limits = &mut config.limits;
        limits.max_body = (self.max_body << 20) as usize;
        limits.max_pixels = (self.max_megapixels << 20) as usize;
        (limits.max_count, limits.max_steps) = (self.max_count, self.max_steps as usize);
        limits.max_queue = self.max_queue as usize;
        limits.max_queue_per_client = self.max_queue_per_client.unwrap_or((self.max_queue / 4).max(1)) as usize;
        limits.requests_per_minute = self.rate;
        (limits.keep, limits.keep_bytes) = (Duration::from_secs(self.keep_days * 86400), self.keep << 20);
        limits.wait = Duration::from_secs(self.wait);
        Ok(config)
    }
}

/// Serves until it is stopped.
pub fn run(args: &ServeArgs, context: &Context) -> Result<()> {
    let config = args.config()?;
    let names: Vec<String> = config.models.iter().map(|model| model.name.clone()).collect();
    let server = Server::start(config, &context.device)?;
    let url = format!("http://{}", server.address());
    context.print(format!("serving {} on {url}", names.join(", ")), json!({ "url": url, "models": names }))?;
    server.run();
    Ok(())
}
