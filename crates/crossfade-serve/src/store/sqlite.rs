//! The store in a file: SQLite with a write-ahead log. One server has it at a time.
use super::{Admission, COLUMNS, Counts, Filter, NewJob, Row, Store, Waiting, to_text};
use crate::config::Limits;
use crate::job::{Job, JobState, Picture};
use crossfade::files::create_directories;
use crossfade::{Error, Result};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params, params_from_iter};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, label TEXT NOT NULL,
    kind TEXT NOT NULL, model TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, created REAL NOT NULL, started REAL,
    finished REAL, expires REAL, cancel INTEGER NOT NULL DEFAULT 0, error TEXT, owner TEXT, lease REAL,
    bytes INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, seq);
CREATE INDEX IF NOT EXISTS jobs_by_client ON jobs (client, seq);
CREATE TABLE IF NOT EXISTS pictures (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, number INTEGER NOT NULL, description TEXT NOT NULL,
    png BLOB NOT NULL, PRIMARY KEY (job, number));
CREATE TABLE IF NOT EXISTS inputs (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, name TEXT NOT NULL, bytes BLOB NOT NULL,
    PRIMARY KEY (job, name));
";

/// The format of the tables.
const VERSION: i64 = 1;

/// Jobs in a file.
pub struct SqliteStore {
    /// Readers and the writer do not wait for each other.
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    _lock: Option<File>,
}

fn failed(e: rusqlite::Error) -> Error {
    Error::Run(format!("the store: {e}"))
}

impl SqliteStore {
    /// Opens the file, or makes it. A job that a killed server worked at is queued again.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            create_directories(folder)?;
        }
        let lock = lock(path)?;
        let bad = |e: rusqlite::Error| Error::file(path, format!("cannot be used as a store: {e}"));
        let writer = connect(path).map_err(bad)?;
        let version: i64 = writer.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(bad)?;
        if version > VERSION {
            return Err(Error::file(path, "was written by a newer version; use that one, or another --store"));
        }
        writer.execute_batch(TABLES).map_err(bad)?;
        writer.execute_batch(&format!("PRAGMA user_version = {VERSION}")).map_err(bad)?;
        let store =
            Self { writer: Mutex::new(writer), reader: Mutex::new(connect(path).map_err(bad)?), _lock: Some(lock) };
        // Nobody else has the file, so that whatever is running there belongs to a server that is gone.
        let queued = "UPDATE jobs SET state = 'queued', owner = NULL, lease = NULL WHERE state = 'running'";
        store.write().execute(queued, []).map_err(failed)?;
        Ok(store)
    }

    /// The connection that writes. What it commits survives the end of the process at once, and a power failure when the
    /// disk has written it or after the next [`SqliteStore::write_safely`]. That is enough for what can be done again: a job
    /// that goes back by a step is made again, to the same bytes.
    fn write(&self) -> MutexGuard<'_, Connection> {
        self.writer_with("PRAGMA synchronous = normal")
    }

    /// The connection that writes, with commits that wait for the disk. A job must survive a power failure as soon as its
    /// acceptance is told, and what was deleted must not come back.
    fn write_safely(&self) -> MutexGuard<'_, Connection> {
        self.writer_with("PRAGMA synchronous = full")
    }

    fn writer_with(&self, pragma: &str) -> MutexGuard<'_, Connection> {
        let connection = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = connection.execute_batch(pragma) {
            crate::note(&format!("the store: {e}"));
        }
        connection
    }

    fn read(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA foreign_keys = on; PRAGMA secure_delete = off;",
    )?;
    Ok(connection)
}

/// Locks the file beside the store; the system releases it when the process ends, however it ends.
fn lock(path: &Path) -> Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&name).map_err(Error::io(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::file(path, "is in use by another server; give each its own --store, or share a PostgreSQL"))
        }
        Err(TryLockError::Error(e)) => Err(Error::io(path)(e)),
    }
}

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        id: row.get(0)?,
        client: row.get(1)?,
        user: row.get(2)?,
        spec: row.get(3)?,
        state: row.get(4)?,
        created: row.get(5)?,
        started: row.get(6)?,
        finished: row.get(7)?,
        expires: row.get(8)?,
        cancel: row.get(9)?,
        error: row.get(10)?,
    })
}

/// The job of a row with what belongs to it.
fn job(db: &Connection, row: Row) -> Result<Job> {
    let texts = |query: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = db.prepare_cached(query)?;
        statement.query_map([&row.id], |row| row.get(0))?.collect()
    };
    let pictures = texts("SELECT description FROM pictures WHERE job = ? ORDER BY number").map_err(failed)?;
    let inputs = texts("SELECT name FROM inputs WHERE job = ? ORDER BY name").map_err(failed)?;
    let position = match row.state.as_str() {
        "queued" => {
            let before =
                "SELECT count(*) FROM jobs WHERE state = 'queued' AND seq < (SELECT seq FROM jobs WHERE id = ?)";
            Some(db.query_row(before, [&row.id], |row| row.get::<_, i64>(0)).map_err(failed)? as u64)
        }
        _ => None,
    };
    row.into_job(pictures, inputs, position)
}

fn get(db: &Connection, id: &str) -> Result<Option<Job>> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?")).map_err(failed)?;
    let found = statement.query_row([id], row).optional().map_err(failed)?;
    found.map(|row| job(db, row)).transpose()
}

impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn insert(&self, new: &NewJob, limits: &Limits) -> Result<Admission> {
        let mut db = self.write_safely();
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let count = |query: &str, values: &[&dyn rusqlite::ToSql]| -> Result<usize> {
            let found: i64 = transaction.query_row(query, values, |row| row.get(0)).map_err(failed)?;
            Ok(found as usize)
        };
        if count("SELECT count(*) FROM jobs WHERE state = 'queued'", &[])? >= limits.max_queue {
            return Ok(Admission::QueueFull);
        }
        let of_client = "SELECT count(*) FROM jobs WHERE state = 'queued' AND client = ?";
        if count(of_client, &[&new.client])? >= limits.max_queue_per_client {
            return Ok(Admission::ClientFull);
        }
        let bytes: usize = new.inputs.iter().map(|(_, bytes)| bytes.len()).sum();
        let insert = "INSERT INTO jobs (id, client, label, kind, model, spec, state, created, bytes) \
                      VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?)";
        let (kind, spec) = (new.spec.kind.name(), to_text(&new.spec)?);
        let values = params![new.id, new.client, new.user, kind, new.spec.model, spec, crate::now(), bytes as i64];
        transaction.execute(insert, values).map_err(failed)?;
        for (name, bytes) in &new.inputs {
            let insert = "INSERT INTO inputs (job, name, bytes) VALUES (?, ?, ?)";
            transaction.execute(insert, params![new.id, name, bytes]).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(Admission::Accepted)
    }

    fn get(&self, id: &str) -> Result<Option<Job>> {
        get(&self.read(), id)
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Job>> {
        let db = self.read();
        let mut query = format!("SELECT {COLUMNS} FROM jobs WHERE 1");
        let mut values: Vec<Value> = vec![];
        let conditions = [
            (" AND client = ?", filter.client.clone()),
            (" AND state = ?", filter.state.map(|state| state.name().to_string())),
            (" AND kind = ?", filter.kind.map(|kind| kind.name().to_string())),
            (" AND model = ?", filter.model.clone()),
            (" AND seq < (SELECT seq FROM jobs WHERE id = ?)", filter.before.clone()),
        ];
        for (condition, value) in conditions {
            if let Some(value) = value {
                query += condition;
                values.push(value.into());
            }
        }
        query += " ORDER BY seq DESC LIMIT ?";
        values.push((filter.limit as i64).into());
        let mut statement = db.prepare_cached(&query).map_err(failed)?;
        let rows = statement.query_map(params_from_iter(values), row).map_err(failed)?;
        let rows: Vec<Row> = rows.collect::<rusqlite::Result<_>>().map_err(failed)?;
        rows.into_iter().map(|row| job(&db, row)).collect()
    }

    fn waiting(&self) -> Result<Vec<Waiting>> {
        let db = self.read();
        let query = "SELECT id, client, label FROM jobs WHERE state = 'queued' ORDER BY seq LIMIT 4096";
        let mut statement = db.prepare_cached(query).map_err(failed)?;
        let of = |row: &rusqlite::Row<'_>| Ok(Waiting { id: row.get(0)?, client: row.get(1)?, user: row.get(2)? });
        let rows = statement.query_map([], of).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    fn claim(&self, id: &str, owner: &str, lease: Duration) -> Result<Option<Job>> {
        let db = self.write();
        let now = crate::now();
        let update = "UPDATE jobs SET state = 'running', owner = ?, lease = ?, started = coalesce(started, ?) \
                      WHERE id = ? AND state = 'queued'";
        let changed = db.execute(update, params![owner, now + lease.as_secs_f64(), now, id]).map_err(failed)?;
        if changed == 0 { Ok(None) } else { get(&db, id) }
    }

    fn extend(&self, owner: &str, active: &[String], _lease: Duration) -> Result<Vec<String>> {
        // Nobody else can take the jobs of this file; there is no lease to extend.
        let db = self.write();
        let queue = "UPDATE jobs SET state = 'queued', owner = NULL, lease = NULL WHERE state = 'running' AND owner = ? \
                     AND id NOT IN (SELECT value FROM json_each(?))";
        db.execute(queue, params![owner, to_text(&active)?]).map_err(failed)?;
        let mut statement =
            db.prepare_cached("SELECT id FROM jobs WHERE state = 'running' AND owner = ?").map_err(failed)?;
        let rows = statement.query_map([owner], |row| row.get(0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    fn requeue(&self, owner: Option<&str>) -> Result<usize> {
        let Some(owner) = owner else { return Ok(0) };
        let update =
            "UPDATE jobs SET state = 'queued', owner = NULL, lease = NULL WHERE state = 'running' AND owner = ?";
        self.write().execute(update, [owner]).map_err(failed)
    }

    fn put_picture(&self, id: &str, picture: &Picture, png: &[u8]) -> Result<()> {
        let mut db = self.write();
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let insert = "INSERT OR IGNORE INTO pictures (job, number, description, png) \
                      SELECT id, ?, ?, ? FROM jobs WHERE id = ?";
        let values = params![picture.index as i64, to_text(picture)?, png, id];
        if transaction.execute(insert, values).map_err(failed)? > 0 {
            let update = "UPDATE jobs SET bytes = bytes + ? WHERE id = ?";
            transaction.execute(update, params![png.len() as i64, id]).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn finish(
        &self,
        id: &str,
        owner: Option<&str>,
        state: JobState,
        error: Option<&str>,
        keep: Duration,
    ) -> Result<bool> {
        let now = crate::now();
        let update = "UPDATE jobs SET state = ?1, error = ?2, finished = ?3, expires = ?4, owner = NULL, lease = NULL \
                      WHERE id = ?5 AND ((?6 IS NULL AND state = 'queued') OR (state = 'running' AND owner = ?6))";
        let values = params![state.name(), error, now, now + keep.as_secs_f64(), id, owner];
        Ok(self.write().execute(update, values).map_err(failed)? > 0)
    }

    fn ask_to_cancel(&self, id: &str) -> Result<()> {
        self.write().execute("UPDATE jobs SET cancel = 1 WHERE id = ?", [id]).map_err(failed)?;
        Ok(())
    }

    fn to_cancel(&self, owner: &str) -> Result<Vec<String>> {
        let db = self.read();
        let query = "SELECT id FROM jobs WHERE state = 'running' AND cancel = 1 AND owner = ?";
        let mut statement = db.prepare_cached(query).map_err(failed)?;
        let rows = statement.query_map([owner], |row| row.get(0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    fn delete(&self, id: &str) -> Result<()> {
        self.write_safely().execute("DELETE FROM jobs WHERE id = ?", [id]).map_err(failed)?;
        Ok(())
    }

    fn picture(&self, id: &str, index: u64) -> Result<Option<Vec<u8>>> {
        let db = self.read();
        let query = "SELECT png FROM pictures WHERE job = ? AND number = ?";
        let number = i64::try_from(index).unwrap_or(-1);
        db.query_row(query, params![id, number], |row| row.get(0)).optional().map_err(failed)
    }

    fn input(&self, id: &str, name: &str) -> Result<Option<Vec<u8>>> {
        let db = self.read();
        let query = "SELECT bytes FROM inputs WHERE job = ? AND name = ?";
        db.query_row(query, params![id, name], |row| row.get(0)).optional().map_err(failed)
    }

    fn expire(&self, keep_bytes: u64) -> Result<usize> {
        let mut db = self.write();
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let old = "DELETE FROM jobs WHERE finished IS NOT NULL AND expires < ?";
        let mut gone = transaction.execute(old, [crate::now()]).map_err(failed)?;
        let many = "DELETE FROM jobs WHERE id IN (SELECT id FROM (SELECT id, sum(bytes) OVER (ORDER BY finished DESC, \
                    seq DESC) AS newer FROM jobs WHERE finished IS NOT NULL) WHERE newer > ?)";
        gone += transaction.execute(many, [i64::try_from(keep_bytes).unwrap_or(i64::MAX)]).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(gone)
    }

    fn counts(&self) -> Result<Counts> {
        let query = "SELECT count(*) FILTER (WHERE state = 'queued'), count(*) FILTER (WHERE state = 'running') \
                     FROM jobs WHERE state IN ('queued', 'running')";
        let of = |row: &rusqlite::Row<'_>| {
            Ok(Counts { queued: row.get::<_, i64>(0)? as u64, running: row.get::<_, i64>(1)? as u64 })
        };
        self.read().query_row(query, [], of).map_err(failed)
    }

    fn wait_for_change(&self, time: Duration) {
        // Only this server changes the file, and it wakes its own threads.
        std::thread::sleep(time);
    }
}
