//! Connections to PostgreSQL: a bounded number, which all threads of a server share.
use crate::lock;
use crossfade::{Error, Result};
use postgres::error::Severity;
use postgres::{Client, Config, NoTls};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Connections of one server. A database takes a hundred by default, from all its servers together.
const MOST: usize = 16;
/// How long it may take to connect.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long the machine of the database may say nothing at all.
const SILENCE: Duration = Duration::from_secs(15);

/// See the module.
pub struct Connections {
    config: Config,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Client>,
    used: usize,
}

pub fn failed(e: postgres::Error) -> Error {
    // The message of the database says more than that of the connection.
    let text = e.as_db_error().map_or_else(|| e.to_string(), |e| e.message().to_string());
    Error::Run(format!("the store: {text}"))
}

/// Whether a connection is of no use after an error: that of a query leaves it as it was.
fn is_broken(client: &Client, e: &postgres::Error) -> bool {
    let ends = |severity| matches!(severity, Some(Severity::Fatal | Severity::Panic));
    client.is_closed() || e.as_db_error().is_none_or(|e| ends(e.parsed_severity()))
}

impl Connections {
    pub fn new(url: &str) -> Result<Self> {
        let mut config: Config = url.parse().map_err(failed)?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIME);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
        }
        Ok(Self { config, state: Mutex::default(), freed: Condvar::new() })
    }

    /// A connection of its own, which is not counted.
    pub fn connect(&self) -> std::result::Result<Client, postgres::Error> {
        self.config.connect(NoTls)
    }

    /// Uses a connection, and waits until one is free. One that broke is dropped, and the work is done again on a new one:
    /// the database may have been restarted.
    pub fn with<T>(&self, work: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error>) -> Result<T> {
        let mut place = self.place();
        let kept = place.client.take().filter(|client| !client.is_closed());
        let mut attempt = |mut client: Client| match work(&mut client) {
            Err(e) if is_broken(&client, &e) => Err(e),
            done => {
                place.client = Some(client);
                Ok(done)
            }
        };
        if let Some(Ok(done)) = kept.map(&mut attempt) {
            return done.map_err(failed);
        }
        // A transaction of the broken connection was not committed, or nobody knows. All work can be repeated.
        self.connect().and_then(attempt).and_then(|done| done).map_err(failed)
    }

    fn place(&self) -> Place<'_> {
        let mut state = lock(&self.state);
        while state.used >= MOST {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.used += 1;
        Place { connections: self, client: state.idle.pop() }
    }
}

/// The right to use one of the connections, which is kept if it is still good.
struct Place<'a> {
    connections: &'a Connections,
    client: Option<Client>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.connections.state);
        state.used -= 1;
        state.idle.extend(self.client.take());
        drop(state);
        self.connections.freed.notify_one();
    }
}
