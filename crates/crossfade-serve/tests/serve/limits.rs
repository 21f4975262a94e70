//! Limits, overload, and peers that misbehave.
use super::bits::sampled;
use super::client::read_answer;
use super::start;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
