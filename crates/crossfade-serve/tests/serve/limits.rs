//! Limits, overload, and peers that misbehave.
use super::bits::sampled;
use super::client::{Client, PATIENCE, read_answer};
use super::start;
use crossfade_serve::Times;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn limits_have_their_status_and_say_when_to_come_back() {
    let running = start(|config| {
        config.limits.max_body = 20_000;
        config.limits.max_pixels = 40 * 40;
        config.limits.requests_per_minute = 20;
    });
    let client = &running.client;
    let large = json!({"prompt": "x".repeat(30_000)});
    assert_eq!(client.post("/v1/images/generations", &large).status, 413);
    assert_eq!(client.form("/v1/tasks/sr", &[], &[("image", &vec![7; 30_000])]).status, 413);
    let png = super::bits::drawn(30, 30).encode_png(&[]).unwrap();
    let refused = client.form("/v1/tasks/sr", &[], &[("image", &png)]).expect(422);
    assert!(refused.problem().contains("pixels in the result"), "{}", refused.problem());
    // A picture that promises a billion pixels is refused by its header.
    let mut bomb = super::bits::drawn(4, 4).encode_png(&[]).unwrap();
    bomb[16..24].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
    assert_eq!(client.form("/v1/tasks/sr", &[], &[("image", &bomb)]).status, 422);
    let mut limited = None;
    for _ in 0..30 {
        let answer = client.post("/v1/images/generations", &json!({"n": 0}));
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.unwrap();
    assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    client.get("/v1/models").expect(200);
}

/// Ten times more than the queue holds: nothing but 200, 202 and 429, and what was accepted is done, to the right bytes.
#[test]
fn overload_gives_429_and_everything_accepted_is_done() {
    let running = start(|config| {
        config.limits.max_queue = 8;
        config.limits.max_queue_per_client = 8;
        config.limits.requests_per_minute = 100_000;
        (config.slots, config.chunk) = (2, 2);
    });
    let request = |k: usize| json!({"model": "classes", "seed": k, "n": 1 + k % 3, "steps": 6, "class": "1"});
    let (refused, next) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let accepted: Vec<(usize, String)> = std::thread::scope(|scope| {
        let work = || {
            let mut accepted = vec![];
            loop {
                let k = next.fetch_add(1, Ordering::Relaxed);
                if k >= 160 {
                    return accepted;
                }
                let answer = running.client.post("/v1/jobs", &request(k));
                match answer.status {
                    202 => accepted.push((k, answer.json()["id"].as_str().unwrap().to_string())),
                    429 => {
                        assert!(answer.header("retry-after").is_some());
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => panic!("{}", answer.json()),
                }
            }
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "the queue was never full");
    assert!(accepted.len() >= 8, "{}", accepted.len());
    for (k, id) in accepted {
        let job = running.client.ended(&id);
        assert!(running.client.pictures(&job) == sampled(&request(k)), "job {k}");
    }
}

/// Half requests, half bodies and readers that do not read: others are served meanwhile.
#[test]
fn peers_that_hang_do_not_hold_workers() {
    let running = start(|_| ());
    let client = &running.client;
    let mut hanging = vec![];
    for _ in 0..40 {
        let mut half = client.connect().unwrap();
        half.write_all(b"POST /v1/images/generations HTTP/1.1\r\nhost: 127.0.0.1\r\n").unwrap();
        hanging.push(half);
        let mut body = client.connect().unwrap();
        let head = "POST /v1/images/generations HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
                    content-length: 1000\r\n\r\n{\"n\":";
        body.write_all(head.as_bytes()).unwrap();
        hanging.push(body);
    }
    let long = json!({"model": "classes", "seed": 1, "n": 16, "steps": 20});
    let id = client.post("/v1/jobs", &long).expect(202).json()["id"].as_str().unwrap().to_string();
    for _ in 0..20 {
        // Readers of events and of pictures that never read.
        hanging.push(client.send("GET", &format!("/v1/jobs/{id}/events"), None, &[]).unwrap());
        let body = long.to_string();
        hanging.push(client.send("POST", "/v1/images/generations", Some("application/json"), body.as_bytes()).unwrap());
    }
    let answer = client.post("/v1/images/generations", &json!({"model": "classes", "seed": 5})).expect(200).json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 1);
    assert_eq!(client.ended(&id)["state"], "done");
    // Those who hang up in the middle lose nothing for anybody.
    hanging.truncate(50);
    client.get("/healthz").expect(200);
    drop(hanging);
    let listed = client.get("/v1/jobs?limit=100").expect(200).json();
    let ids: Vec<String> =
        listed["data"].as_array().unwrap().iter().map(|job: &Value| job["id"].as_str().unwrap().into()).collect();
    for id in ids {
        assert_eq!(client.ended(&id)["state"], "done");
    }
}

#[test]
fn connections_are_limited_and_come_free_again() {
    let running = start(|config| config.limits.max_connections = 4);
    let client = &running.client;
    let idle: Vec<_> = (0..4).map(|_| client.connect().unwrap()).collect();
    // The fifth waits in the backlog until a place is free.
    let mut waiting = client.send("GET", "/healthz", None, &[]).unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(waiting.read(&mut [0; 1]).is_err());
    drop(idle);
    waiting.set_read_timeout(Some(super::client::PATIENCE)).unwrap();
    assert_eq!(read_answer(waiting).unwrap().status, 200);
}

/// Waits until this holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn peers_that_hang_lose_their_connection() {
    let times = Times {
        header: Duration::from_millis(300),
        body: Duration::from_millis(300),
        write: Duration::from_millis(300),
    };
    let running = start(|config| config.limits.times = times);
    let client = &running.client;
    let mut half = client.connect().unwrap();
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n").unwrap();
    let mut rest = vec![];
    let _ = half.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    // A connection on which nothing more is asked.
    let mut idle = client.connect().unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    let mut rest = vec![];
    let _ = idle.read_to_end(&mut rest);
    assert!(String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 200 OK"));
    let mut body = client.connect().unwrap();
    let head = "POST /v1/images/generations HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
                content-length: 1000\r\n\r\n{\"n\":";
    body.write_all(head.as_bytes()).unwrap();
    let late = read_answer(body).unwrap();
    assert_eq!(late.status, 408, "{}", late.problem());
    // A reader that does not read: more answers than the buffers of the system hold.
    let deaf = client.connect().unwrap();
    let mut writer = deaf.try_clone().unwrap();
    let asking = std::thread::spawn(move || {
        let request = b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".repeat(2000);
        let _ = writer.write_all(&request);
    });
    let connections = || -> f64 {
        let metrics = String::from_utf8(client.get("/metrics").expect(200).body).unwrap();
        metrics.lines().find_map(|line| line.strip_prefix("crossfade_connections ")?.parse().ok()).unwrap()
    };
    until("the connection of a reader that does not read stays open", || connections() == 1.0);
    drop(deaf);
    asking.join().unwrap();
}

/// Requests that are refused before their body is read: who is still sending sees the answer all the same.
#[test]
fn refusals_reach_those_who_are_still_sending() {
    let token = "alice-0123456789abcdef";
    let running = start(|config| {
        config.tokens = vec![("alice".into(), token.into())];
        (config.limits.max_body, config.limits.requests_per_minute) = (1 << 20, 2);
    });
    let anybody = &running.client;
    let alice = anybody.with("authorization", &format!("Bearer {token}"));
    let large = vec![b' '; 24 << 20];
    let send = |client: &Client, path: &str, kind: &str| client.request("POST", path, Some(kind), &large).status;
    for _ in 0..3 {
        assert_eq!(send(anybody, "/v1/jobs", "application/json"), 401);
        assert_eq!(send(&anybody.with("origin", "http://evil.example"), "/v1/jobs", "application/json"), 403);
        assert_eq!(send(&alice, "/v1/tasks/nonsense", "application/json"), 404);
        assert_eq!(send(&alice, "/v1/models", "application/json"), 405);
    }
    assert_eq!(send(&alice, "/v1/jobs", "application/json"), 413);
    assert_eq!(send(&alice, "/v1/images/edits", "multipart/form-data; boundary=b"), 413);
    assert_eq!(send(&alice, "/v1/jobs", "application/json"), 429);
}

#[test]
fn bodies_have_a_bound_together() {
    let running = start(|config| {
        (config.limits.max_body, config.limits.max_bodies) = (400_000, 400_000);
        config.limits.requests_per_minute = 1_000_000;
    });
    let client = &running.client;
    let text = |bytes: usize| json!({"model": "nobody", "prompt": "x".repeat(bytes)});
    let head =
        "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 399999\r\n\r\n";
    // A body that stays unfinished.
    let begin = |bytes: usize| {
        let mut slow = client.connect().unwrap();
        slow.write_all(head.as_bytes()).unwrap();
        slow.write_all(&vec![b' '; bytes]).unwrap();
        slow
    };
    // What was only announced takes nothing.
    let mut slow = begin(0);
    client.post("/v1/jobs", &text(200_000)).expect(422);
    let (mut refused, mut pause) = (None, Duration::from_millis(20));
    until("no body is refused", || {
        // The server reads it in its own time; of two bodies that arrive together either may be refused.
        slow = begin(350_000);
        std::thread::sleep(pause);
        pause *= 2;
        let answer = client.post("/v1/jobs", &text(200_000));
        let full = answer.status == 429;
        refused = full.then_some(answer);
        full
    });
    let refused = refused.unwrap();
    assert_eq!((refused.header("retry-after"), &refused.json()["error"]["code"]), (Some("1"), &json!("bodies_full")));
    client.post("/v1/jobs", &text(1000)).expect(422);
    drop(slow);
    until("there is no room again", || client.post("/v1/jobs", &text(200_000)).status == 422);
}
