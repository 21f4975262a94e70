//! A PostgreSQL of Debian's package on a free port of loopback, in a temporary folder.
#![allow(dead_code)]
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Database {
    pub url: String,
    port: u16,
    connections: u32,
    server: Child,
    dir: tempfile::TempDir,
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Database {
    /// Ends the server, and all its connections with it.
    pub fn stop(&mut self) {
        let pid = self.server.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.server.wait().unwrap();
    }

    /// Starts a server that was stopped.
    pub fn go_on(&mut self) {
        self.server = run(&self.dir.path().join("data"), self.port, self.connections);
        self.wait();
    }

    fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while crossfade_serve::store::open(&crossfade_serve::StoreAddress::parse(&self.url)).is_err() {
            assert!(Instant::now() < until, "the database does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn run(data: &Path, port: u16, connections: u32) -> Child {
    program(&programs().unwrap().join("postgres"))
        .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", &port.to_string()])
        .args(["-N", &connections.to_string(), "-D"])
        .arg(data)
        .current_dir(data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The folder of the server's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|bin| bin.join("postgres").is_file() && bin.join("initdb").is_file());
    found.sort();
    found.pop()
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n")
}

/// A program of the database, as a user that it accepts: it refuses to run as root.
fn program(path: &Path) -> Command {
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"]).arg(path);
    command
}

/// Starts a database; none, with a note, where the package is not installed.
pub fn start() -> Option<Database> {
    start_with(100)
}

/// Starts a database that takes so many connections.
pub fn start_with(connections: u32) -> Option<Database> {
    let Some(bin) = programs() else {
        eprintln!("skipped: /usr/lib/postgresql/*/bin has no server; install Debian's package postgresql");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    if is_root() {
        assert!(Command::new("chown").arg("postgres").arg(&data).status().unwrap().success());
    }
    let made = program(&bin.join("initdb"))
        .args(["-A", "trust", "-U", "test", "-N", "-D"])
        .arg(&data)
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = run(&data, port, connections);
    let url = format!("postgres://test@127.0.0.1:{port}/postgres");
    let database = Database { url, port, connections, server, dir };
    database.wait();
    Some(database)
}
