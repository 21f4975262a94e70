//! Requests to `crossfade serve`: their fields, and the bytes of a connection.
use super::containers::{byte, parts, take};
use super::scratch::{accepted, folder};
use super::seeds::small_checkpoint;
use crossfade::engine::Device;
use crossfade_serve::job::{JobSpec, Kind};
use crossfade_serve::{Front, Limits, ModelSource, ServeConfig, StoreAddress};
use std::sync::OnceLock;

/// A server without a network and with one small model; it accepts no job, so that none is ever run.
fn front() -> &'static Front {
    static FRONT: OnceLock<Front> = OnceLock::new();
    FRONT.get_or_init(|| {
        let checkpoint = small_checkpoint();
        let model = ModelSource::parse(&format!("small={}", checkpoint.to_str().unwrap())).unwrap();
        let store = StoreAddress::Sqlite(folder().join("server/jobs.sqlite"));
        let mut config = ServeConfig::new(([127, 0, 0, 1], 7860).into(), vec![model], store);
        config.limits = Limits {
            max_body: 1 << 20,
            max_pixels: 1 << 12,
            max_queue: 0,
            requests_per_minute: u32::MAX,
            ..Limits::default()
        };
        Front::start(config, &Device::flex()).unwrap()
    })
}

/// The boundary of forms in inputs.
pub const BOUNDARY: &str = "b";

/// The fields of a request: JSON, or a form whose parts are made of an input (name, bytes).
pub fn request(input: &[u8]) {
    let mut rest = input;
    let kind = Kind::ALL[usize::from(byte(&mut rest)) % 4];
    let (media, body) = match byte(&mut rest) % 3 {
        0 => ("application/json".to_string(), rest.to_vec()),
        1 => (format!("multipart/form-data; boundary={BOUNDARY}"), rest.to_vec()),
        _ => {
            let mut body = vec![];
            while !rest.is_empty() {
                let (names, length) = (crossfade_serve::request::FIELDS, usize::from(byte(&mut rest)));
                let name = names[usize::from(byte(&mut rest)) % names.len()].0;
                let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
                body.extend([head.as_bytes(), take(&mut rest, length), b"\r\n"].concat());
            }
            body.extend(format!("--{BOUNDARY}--\r\n").bytes());
            (format!("multipart/form-data; boundary={BOUNDARY}"), body)
        }
    };
    let Some(spec) = accepted(front().prepare(kind, &media, &body)) else { return };
    // The store keeps it as JSON, and another server makes the same pictures of it.
    let text = serde_json::to_string(&spec).expect("a job can be stored");
    let again: JobSpec = serde_json::from_str(&text).expect("a stored job can be read");
    assert_eq!(spec, again, "a job changes in the store");
    let limits = Limits::default();
    assert!(spec.n <= limits.max_count && spec.steps <= limits.max_steps && spec.kind == kind);
    let command = spec.command("small.safetensors");
    assert!(!command.contains(char::is_control), "{command:?} would steer a terminal");
}

/// The bytes of a connection. `\n` in the head of a request may stand for `\r\n`.
pub fn http(input: &[u8]) {
    let parts = parts(input, 2);
    // After a zero byte comes a body whose length the head then states.
    let bytes = if input.contains(&0) {
        let head = String::from_utf8_lossy(parts[0]).trim_end().replace('\n', "\r\n").replace("\r\r", "\r");
        let length = parts[1].len();
        [format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").as_bytes(), parts[1]].concat()
    } else {
        input.to_vec()
    };
    let answer = front().exchange(&bytes);
    if answer.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 ") || text.starts_with("HTTP/1.0 "), "no answer of HTTP: {text:?}");
    let status: u16 = text[9..12].parse().expect("a status");
    // A stopping server and a slow job are the only reasons for an error of its own, and here is neither.
    assert!(status < 500, "the server made a mistake: {text}");
    for line in text.split("\r\n\r\n").next().unwrap_or_default().split("\r\n") {
        assert!(!line.contains(char::is_control), "a header that steers: {line:?}");
    }
}
