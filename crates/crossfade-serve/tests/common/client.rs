//! A small HTTP client on loopback, and bits that all tests of the server use.
#![allow(dead_code)]
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No answer takes longer than this, or something is stuck.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {} {text}", self.status))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    /// The message of an error.
    #[track_caller]
    pub fn problem(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {}", self.json())).to_string()
    }
}

/// Talks to a server.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: SocketAddr,
    pub headers: Vec<(String, String)>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, headers: vec![] }
    }

    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.into(), value.into()));
        client
    }

    pub fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Sends the head and the body of a request.
    pub fn send(&self, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> std::io::Result<TcpStream> {
        let mut stream = self.connect()?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(kind) = kind {
            head += &format!("content-type: {kind}\r\n");
        }
        if !body.is_empty() || method == "POST" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        // A server that refuses a large body may close before it has read it.
        let _ = stream.write_all(body);
        Ok(stream)
    }

    pub fn try_request(&self, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> std::io::Result<Answer> {
        read_answer(self.send(method, path, kind, body)?)
    }

    #[track_caller]
    pub fn request(&self, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> Answer {
        self.try_request(method, path, kind, body).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, None, &[])
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, Some("application/json"), body.to_string().as_bytes())
    }

    /// Sends a form: texts and files.
    #[track_caller]
    pub fn form(&self, path: &str, texts: &[(&str, &str)], files: &[(&str, &[u8])]) -> Answer {
        let boundary = "crossfade-boundary-7f3a";
        let mut body = vec![];
        for (name, text) in texts {
            let part = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
            body.extend(part.bytes());
        }
        for (name, bytes) in files {
            let part = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"../../etc/{name}.png\"\r\n\
                 content-type: image/png\r\n\r\n"
            );
            body.extend(part.bytes());
            body.extend(*bytes);
            body.extend(b"\r\n");
        }
        body.extend(format!("--{boundary}--\r\n").bytes());
        self.request("POST", path, Some(&format!("multipart/form-data; boundary={boundary}")), &body)
    }

    /// Waits until a job has ended, and returns it.
    #[track_caller]
    pub fn ended(&self, id: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let job = self.get(&format!("/v1/jobs/{id}")).expect(200).json();
            if ["done", "failed", "cancelled"].contains(&job["state"].as_str().unwrap()) {
                return job;
            }
            assert!(Instant::now() < until, "the job does not end: {job}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The pictures of a job that is done.
    #[track_caller]
    pub fn pictures(&self, job: &Value) -> Vec<Vec<u8>> {
        assert_eq!(job["state"], "done", "{job}");
        let images = job["images"].as_array().unwrap();
        images.iter().map(|image| self.get(image["url"].as_str().unwrap()).expect(200).body).collect()
    }

    /// All events of a job: names and data.
    #[track_caller]
    pub fn events(&self, id: &str) -> Vec<(String, Value)> {
        let answer = self.get(&format!("/v1/jobs/{id}/events")).expect(200);
        let text = String::from_utf8(answer.body).unwrap();
        let field = |block: &str, name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_string())
        };
        let blocks = text.split("\n\n").filter(|block| block.contains("event:"));
        blocks
            .map(|block| {
                let data = field(block, "data:").unwrap();
                (field(block, "event:").unwrap(), serde_json::from_str(&data).unwrap())
            })
            .collect()
    }
}

/// Reads an answer to its end.
pub fn read_answer(stream: TcpStream) -> std::io::Result<Answer> {
    let broken = |what: &str| std::io::Error::other(what.to_string());
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| broken("no status"))?;
    let mut headers: Vec<(String, String)> = vec![];
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(broken("the headers end early"));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.into(), value.trim().into()));
    }
    let header = |name: &str| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone());
    let mut body = vec![];
    if header("transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(broken("the body ends early"));
            }
            let size = usize::from_str_radix(line.trim(), 16).map_err(|_| broken("a chunk without a size"))?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            body.extend(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = header("content-length") {
        body = vec![0; length.parse().map_err(|_| broken("content-length"))?];
        reader.read_exact(&mut body)?;
    } else {
        reader.read_to_end(&mut body)?;
    }
    Ok(Answer { status, headers, body })
}
