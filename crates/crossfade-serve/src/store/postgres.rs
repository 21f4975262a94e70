//! The store that several servers share: PostgreSQL.
//!
//! A server takes a job by locking its row (`FOR UPDATE SKIP LOCKED`), so that two never take the same one, and holds it
//! by a lease that it extends. `NOTIFY` tells the others of new jobs. All times are the clock of the database.
use super::connections::Connections;
use super::{Admission, COLUMNS, Counts, Filter, NewJob, Row, Store, Waiting, to_text};
use crate::config::Limits;
use crate::job::{Job, JobState, Picture};
use crate::lock;
use crossfade::Result;
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::ToSql;
use std::sync::Mutex;
use std::time::Duration;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS crossfade_jobs (
    seq BIGSERIAL PRIMARY KEY, id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, label TEXT NOT NULL, kind TEXT NOT NULL,
    model TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
    started DOUBLE PRECISION, finished DOUBLE PRECISION, expires DOUBLE PRECISION, cancel BOOLEAN NOT NULL DEFAULT FALSE,
    error TEXT, owner TEXT, lease DOUBLE PRECISION, bytes BIGINT NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS crossfade_jobs_by_state ON crossfade_jobs (state, seq);
CREATE INDEX IF NOT EXISTS crossfade_jobs_by_client ON crossfade_jobs (client, seq);
CREATE TABLE IF NOT EXISTS crossfade_pictures (
    job TEXT NOT NULL REFERENCES crossfade_jobs (id) ON DELETE CASCADE, number BIGINT NOT NULL,
    description TEXT NOT NULL, png BYTEA NOT NULL, PRIMARY KEY (job, number));
CREATE TABLE IF NOT EXISTS crossfade_inputs (
    job TEXT NOT NULL REFERENCES crossfade_jobs (id) ON DELETE CASCADE, name TEXT NOT NULL, bytes BYTEA NOT NULL,
    PRIMARY KEY (job, name));
";

/// The channel of notifications.
const CHANNEL: &str = "crossfade_jobs";
/// Serialises admissions, so that limits hold for all servers together.
const ADMISSION_LOCK: i64 = 0x6372_6f73_7366;
/// Serialises the making of tables by servers that start together.
const TABLES_LOCK: i64 = ADMISSION_LOCK + 1;
/// Seconds since 1970 by the clock of the database.
const NOW: &str = "extract(epoch FROM clock_timestamp())::double precision";

/// Jobs in a database.
pub struct PostgresStore {
    connections: Connections,
    /// Hears of new jobs; beside the others, because it waits for most of the time.
    listener: Mutex<Option<Client>>,
}

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

impl PostgresStore {
    /// Connects, and makes the tables where they are missing.
    pub fn open(url: &str) -> Result<Self> {
        let store = Self { connections: Connections::new(url)?, listener: Mutex::default() };
        store.with(|client| {
            let mut transaction = client.transaction()?;
            transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&TABLES_LOCK])?;
            transaction.batch_execute(TABLES)?;
            transaction.commit()
        })?;
        Ok(store)
    }

    fn with<T>(&self, work: impl Fn(&mut Client) -> std::result::Result<T, postgres::Error>) -> Result<T> {
        self.connections.with(work)
    }

    fn execute(&self, query: &str, values: Values<'_>) -> Result<u64> {
        self.with(|client| client.execute(query, values))
    }

    fn bytes(&self, query: &str, values: Values<'_>) -> Result<Option<Vec<u8>>> {
        self.with(|client| Ok(client.query_opt(query, values)?.map(|row| row.get(0))))
    }
}

fn row(row: &postgres::Row) -> Row {
    Row {
        id: row.get(0),
        client: row.get(1),
        user: row.get(2),
        spec: row.get(3),
        state: row.get(4),
        created: row.get(5),
        started: row.get(6),
        finished: row.get(7),
        expires: row.get(8),
        cancel: row.get(9),
        error: row.get(10),
    }
}

type Parts = (Row, Vec<String>, Vec<String>, Option<u64>);

/// The rows of a job.
fn parts(client: &mut Client, row: Row) -> std::result::Result<Parts, postgres::Error> {
    let pictures = "SELECT description FROM crossfade_pictures WHERE job = $1 ORDER BY number";
    let pictures = client.query(pictures, &[&row.id])?.iter().map(|row| row.get(0)).collect();
    let inputs = "SELECT name FROM crossfade_inputs WHERE job = $1 ORDER BY name";
    let inputs = client.query(inputs, &[&row.id])?.iter().map(|row| row.get(0)).collect();
    let before = "SELECT count(*) FROM crossfade_jobs WHERE state = 'queued' AND seq < \
                  (SELECT seq FROM crossfade_jobs WHERE id = $1)";
    let position = match row.state.as_str() {
        "queued" => Some(client.query_one(before, &[&row.id])?.get::<_, i64>(0) as u64),
        _ => None,
    };
    Ok((row, pictures, inputs, position))
}

fn job((row, pictures, inputs, position): Parts) -> Result<Job> {
    row.into_job(pictures, inputs, position)
}

impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn insert(&self, new: &NewJob, limits: &Limits) -> Result<Admission> {
        let spec = to_text(&new.spec)?;
        let bytes: i64 = new.inputs.iter().map(|(_, bytes)| bytes.len() as i64).sum();
        self.with(|client| {
            let mut transaction = client.transaction()?;
            transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&ADMISSION_LOCK])?;
            // A job whose commit was not answered is not inserted twice.
            if transaction.query_opt("SELECT 1 FROM crossfade_jobs WHERE id = $1", &[&new.id])?.is_some() {
                return Ok(Admission::Accepted);
            }
            let all = "SELECT count(*), count(*) FILTER (WHERE client = $1) FROM crossfade_jobs WHERE state = 'queued'";
            let counts = transaction.query_one(all, &[&new.client])?;
            if counts.get::<_, i64>(0) as usize >= limits.max_queue {
                return Ok(Admission::QueueFull);
            }
            if counts.get::<_, i64>(1) as usize >= limits.max_queue_per_client {
                return Ok(Admission::ClientFull);
            }
            let insert = format!(
                "INSERT INTO crossfade_jobs (id, client, label, kind, model, spec, state, created, bytes) \
                 VALUES ($1, $2, $3, $4, $5, $6, 'queued', {NOW}, $7)"
            );
            let kind = new.spec.kind.name();
            let values: Values<'_> = &[&new.id, &new.client, &new.user, &kind, &new.spec.model, &spec, &bytes];
            transaction.execute(&insert, values)?;
            for (name, bytes) in &new.inputs {
                let insert = "INSERT INTO crossfade_inputs (job, name, bytes) VALUES ($1, $2, $3)";
                transaction.execute(insert, &[&new.id, name, bytes])?;
            }
            transaction.execute("SELECT pg_notify($1, 'new')", &[&CHANNEL])?;
            transaction.commit()?;
            Ok(Admission::Accepted)
        })
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        let query = format!("SELECT {COLUMNS} FROM crossfade_jobs WHERE id = $1");
        let found = self.with(|client| match client.query_opt(&query, &[&id])? {
            Some(found) => parts(client, row(&found)).map(Some),
            None => Ok(None),
        })?;
        found.map(job).transpose()
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        let query = format!(
            "SELECT {COLUMNS} FROM crossfade_jobs WHERE ($1::text IS NULL OR client = $1) AND ($2::text IS NULL OR \
             state = $2) AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR model = $4) AND ($5::text IS NULL OR \
             seq < (SELECT seq FROM crossfade_jobs WHERE id = $5)) ORDER BY seq DESC LIMIT $6"
        );
        let (state, kind) = (filter.state.map(JobState::name), filter.kind.map(crate::job::Kind::name));
        let limit = filter.limit as i64;
        let values: Values<'_> = &[&filter.client, &state, &kind, &filter.model, &filter.before, &limit];
        let found = self.with(|client| {
            let rows: Vec<Row> = client.query(&query, values)?.iter().map(row).collect();
            rows.into_iter().map(|row| parts(client, row)).collect::<std::result::Result<Vec<_>, _>>()
        })?;
        found.into_iter().map(job).collect()
    }

    fn waiting(&self) -> Result<Vec<Waiting>> {
        let query = "SELECT id, client, label FROM crossfade_jobs WHERE state = 'queued' ORDER BY seq LIMIT 4096";
        let of = |row: &postgres::Row| Waiting { id: row.get(0), client: row.get(1), user: row.get(2) };
        self.with(|client| Ok(client.query(query, &[])?.iter().map(of).collect()))
    }

    fn claim(&self, id: &str, owner: &str, lease: Duration) -> Result<Option<Job>> {
        let update = format!(
            "UPDATE crossfade_jobs SET state = 'running', owner = $2, lease = {NOW} + $3, \
             started = coalesce(started, {NOW}) WHERE id = (SELECT id FROM crossfade_jobs WHERE id = $1 AND \
             state = 'queued' FOR UPDATE SKIP LOCKED) RETURNING {COLUMNS}"
        );
        let seconds = lease.as_secs_f64();
        let found = self.with(|client| match client.query_opt(&update, &[&id, &owner, &seconds])? {
            Some(found) => parts(client, row(&found)).map(Some),
            None => Ok(None),
        })?;
        found.map(job).transpose()
    }

    fn extend(&self, owner: &str, active: &[String], lease: Duration) -> Result<Vec<String>> {
        let extend = format!(
            "UPDATE crossfade_jobs SET lease = {NOW} + $3 WHERE state = 'running' AND owner = $1 AND id = ANY($2) \
             RETURNING id"
        );
        let queue = "UPDATE crossfade_jobs SET state = 'queued', owner = NULL, lease = NULL WHERE state = 'running' AND \
                     owner = $1 AND NOT id = ANY($2)";
        let seconds = lease.as_secs_f64();
        self.with(|client| {
            let held = client.query(&extend, &[&owner, &active, &seconds])?.iter().map(|row| row.get(0)).collect();
            if client.execute(queue, &[&owner, &active])? > 0 {
                client.execute("SELECT pg_notify($1, 'again')", &[&CHANNEL])?;
            }
            Ok(held)
        })
    }

    fn requeue(&self, owner: Option<&str>) -> Result<usize> {
        let update = format!(
            "UPDATE crossfade_jobs SET state = 'queued', owner = NULL, lease = NULL WHERE state = 'running' AND \
             (lease < {NOW} OR owner = $1)"
        );
        let count = self.execute(&update, &[&owner])?;
        if count > 0 {
            self.execute("SELECT pg_notify($1, 'again')", &[&CHANNEL])?;
        }
        Ok(count as usize)
    }

    fn put_picture(&self, id: &str, picture: &Picture, png: &[u8]) -> Result<()> {
        let (text, number, bytes) = (to_text(picture)?, picture.index as i64, png.len() as i64);
        self.with(|client| {
            let mut transaction = client.transaction()?;
            let insert = "INSERT INTO crossfade_pictures (job, number, description, png) \
                          SELECT id, $2, $3, $4 FROM crossfade_jobs WHERE id = $1 ON CONFLICT DO NOTHING";
            if transaction.execute(insert, &[&id, &number, &text, &png])? > 0 {
                let update = "UPDATE crossfade_jobs SET bytes = bytes + $2 WHERE id = $1";
                transaction.execute(update, &[&id, &bytes])?;
            }
            transaction.commit()
        })
    }

    fn finish(
        &self,
        id: &str,
        owner: Option<&str>,
        state: JobState,
        error: Option<&str>,
        keep: Duration,
    ) -> Result<bool> {
        let update = format!(
            "UPDATE crossfade_jobs SET state = $2, error = $3, finished = {NOW}, expires = {NOW} + $4, owner = NULL, \
             lease = NULL WHERE id = $1 AND (($5::text IS NULL AND state = 'queued') OR (state = 'running' AND owner = $5))"
        );
        let values: Values<'_> = &[&id, &state.name(), &error, &keep.as_secs_f64(), &owner];
        Ok(self.execute(&update, values)? > 0)
    }

    fn ask_to_cancel(&self, id: &str) -> Result<()> {
        self.execute("UPDATE crossfade_jobs SET cancel = TRUE WHERE id = $1", &[&id])?;
        Ok(())
    }

    fn to_cancel(&self, owner: &str) -> Result<Vec<String>> {
        let query = "SELECT id FROM crossfade_jobs WHERE state = 'running' AND cancel AND owner = $1";
        self.with(|client| Ok(client.query(query, &[&owner])?.iter().map(|row| row.get(0)).collect()))
    }

    fn delete(&self, id: &str) -> Result<()> {
        self.execute("DELETE FROM crossfade_jobs WHERE id = $1", &[&id])?;
        Ok(())
    }

    fn picture(&self, id: &str, index: u64) -> Result<Option<Vec<u8>>> {
        let number = i64::try_from(index).unwrap_or(-1);
        self.bytes("SELECT png FROM crossfade_pictures WHERE job = $1 AND number = $2", &[&id, &number])
    }

    fn input(&self, id: &str, name: &str) -> Result<Option<Vec<u8>>> {
        self.bytes("SELECT bytes FROM crossfade_inputs WHERE job = $1 AND name = $2", &[&id, &name])
    }

    fn expire(&self, keep_bytes: u64) -> Result<usize> {
        let old = format!("DELETE FROM crossfade_jobs WHERE finished IS NOT NULL AND expires < {NOW}");
        let many = "DELETE FROM crossfade_jobs WHERE id IN (SELECT id FROM (SELECT id, sum(bytes) OVER (ORDER BY \
                    finished DESC, seq DESC) AS newer FROM crossfade_jobs WHERE finished IS NOT NULL) AS ended \
                    WHERE newer > $1::bigint)";
        let most = i64::try_from(keep_bytes).unwrap_or(i64::MAX);
        Ok((self.execute(&old, &[])? + self.execute(many, &[&most])?) as usize)
    }

    fn counts(&self) -> Result<Counts> {
        let query = "SELECT count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state = 'running') \
                     FROM crossfade_jobs WHERE state IN ('queued', 'running')";
        let row = self.with(|client| client.query_one(query, &[]))?;
        Ok(Counts { queued: row.get::<_, i64>(0) as u64, running: row.get::<_, i64>(1) as u64 })
    }

    fn wait_for_change(&self, time: Duration) {
        let mut listener = lock(&self.listener);
        if listener.as_ref().is_none_or(Client::is_closed) {
            let connected = self.connections.connect().and_then(|mut client| {
                client.batch_execute(&format!("LISTEN {CHANNEL}"))?;
                Ok(client)
            });
            *listener = connected.ok();
        }
        // Without a connection the store is asked again after the same time.
        let Some(client) = listener.as_mut() else { return std::thread::sleep(time) };
        if client.notifications().timeout_iter(time).next().is_err() {
            *listener = None;
            std::thread::sleep(time);
        }
    }
}
