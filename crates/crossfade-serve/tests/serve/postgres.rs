//! Several servers share one queue in PostgreSQL.
use super::bits::{drawn, mixed, sampled};
use super::client::{Client, PATIENCE};
use super::{Running, database, start};
use crossfade_serve::StoreAddress;
use crossfade_serve::job::JobState;
use crossfade_serve::store::{self, Filter};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A server on a database with few threads.
fn on(database: &database::Database, slots: usize) -> Running {
    let url = database.url.clone();
    start(move |config| {
        config.store = StoreAddress::parse(&url);
        (config.slots, config.chunk, config.lease) = (slots, 2, Duration::from_secs(3));
        config.limits.max_queue_per_client = 256;
    })
}

fn created(client: &Client, request: &Value) -> String {
    client.post("/v1/jobs", request).expect(202).json()["id"].as_str().unwrap().to_string()
}

/// Waits until this holds.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A value of `/metrics`.
fn metric(client: &Client, name: &str) -> f64 {
    let metrics = String::from_utf8(client.get("/metrics").expect(200).body).unwrap();
    let name = format!("crossfade_{name} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap()
}

fn state(client: &Client, id: &str) -> String {
    client.get(&format!("/v1/jobs/{id}")).expect(200).json()["state"].as_str().unwrap().to_string()
}

#[test]
fn what_happens_at_another_server_is_told() {
    let Some(database) = database::start() else { return };
    let endless = json!({"model": "flow", "seed": 2, "n": 64, "steps": 1000});
    let one = on(&database, 1);
    let busy = created(&one.client, &endless);
    until("the first job begins", || state(&one.client, &busy) == "running");
    // The only thread of the first server is taken.
    let two = on(&database, 1);
    let request = json!({"model": "classes", "seed": 7, "n": 3, "steps": 4, "class": "1"});
    let id = created(&one.client, &request);
    let events = one.client.events(&id);
    let of = |name: &str| events.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect::<Vec<_>>();
    assert_eq!(of("image").len(), 3, "{events:?}");
    assert!(of("job").iter().all(|job| job["progress"]["steps"] == 12), "{events:?}");
    assert_eq!(of("end")[0]["state"], "done");
    assert!(one.client.pictures(of("end")[0]) == sampled(&request));
    assert!(metric(&two.client, "pictures_total") >= 3.0 && metric(&one.client, "pictures_total") < 64.0);
    // A request that waits here for what is made there.
    one.client.post("/v1/images/generations", &request).expect(200);
    // Deleted here, stopped there.
    let other = created(&one.client, &endless);
    until("the other server takes it", || metric(&two.client, "runs") > 0.0);
    one.client.request("DELETE", &format!("/v1/jobs/{other}"), None, &[]).expect(204);
    until("the other server stops", || metric(&two.client, "runs") == 0.0);
    one.client.request("DELETE", &format!("/v1/jobs/{busy}"), None, &[]).expect(204);
    until("this server stops", || metric(&one.client, "runs") == 0.0);
}

#[test]
fn more_clients_than_connections_are_served() {
    // Fewer than a server has threads that ask the store.
    let Some(database) = database::start_with(24) else { return };
    let running = on(&database, 32);
    let clients: Vec<_> = (0..80)
        .map(|seed| {
            let client = running.client.clone();
            std::thread::spawn(move || {
                let request = json!({"model": "classes", "seed": seed, "n": 2, "steps": 2, "user": format!("{seed}")});
                client.post("/v1/images/generations", &request).expect(200);
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let jobs = running.client.get("/v1/jobs?limit=100").expect(200).json();
    assert!(jobs["data"].as_array().unwrap().iter().all(|job| job["state"] == "done"), "{jobs}");
}

#[test]
fn a_database_that_is_started_anew_fails_no_job() {
    let Some(mut database) = database::start() else { return };
    let running = on(&database, 2);
    let client = &running.client;
    let request = json!({"model": "classes", "seed": 3, "n": 40, "steps": 30, "class": "1"});
    let id = created(client, &request);
    // Its picture is read from the store when it begins.
    let png = drawn(40, 40).encode_png(&[]).unwrap();
    let form = [("model", "sr"), ("seed", "4"), ("n", "6"), ("async", "true"), ("user", "other")];
    let task = client.form("/v1/tasks/sr", &form, &[("image", &png)]).expect(202).json();
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || {
            let request = json!({"model": "flow", "seed": 5, "n": 4, "steps": 100, "user": "third"});
            client.post("/v1/images/generations", &request).expect(200).json()
        })
    };
    let jobs = || client.get("/v1/jobs").expect(200).json()["data"].as_array().unwrap().len();
    until("all jobs are accepted", || jobs() == 3);
    let images = |job: &Value| job["progress"]["images_done"].as_u64().unwrap();
    until("pictures are made", || images(&client.get(&format!("/v1/jobs/{id}")).expect(200).json()) >= 2);
    assert_eq!(state(client, &id), "running");
    database.stop();
    client.get("/readyz").expect(503);
    // Pictures are ready that cannot be stored.
    std::thread::sleep(Duration::from_secs(1));
    database.go_on();
    until("the server is back", || client.get("/readyz").status == 200);
    assert!(client.pictures(&client.ended(&id)) == sampled(&request));
    let task = client.ended(task["id"].as_str().unwrap());
    assert_eq!(client.pictures(&task).len(), 6);
    assert_eq!(waiting.join().unwrap()["data"].as_array().unwrap().len(), 4);
}

#[test]
fn two_servers_share_a_queue() {
    let Some(database) = database::start() else { return };
    let (one, two) = (on(&database, 2), on(&database, 2));
    let requests: Vec<Value> = (0..3).flat_map(|_| mixed()).collect();
    let ids: Vec<String> = requests
        .iter()
        .map(|request| one.client.post("/v1/jobs", request).expect(202).json()["id"].as_str().unwrap().to_string())
        .collect();
    // Both see every job, and both made some.
    for (id, request) in ids.iter().zip(&requests) {
        let job = two.client.ended(id);
        assert!(two.client.pictures(&job) == sampled(request), "{request}");
        assert_eq!(one.client.get(&format!("/v1/jobs/{id}")).expect(200).json()["state"], "done");
    }
    let made = |running: &Running| metric(&running.client, "pictures_total");
    assert!(made(&one) > 0.0 && made(&two) > 0.0, "{} {}", made(&one), made(&two));
    // A request that waits at one server for a job that the other one makes.
    let answers: Vec<_> = (0..6)
        .map(|seed| {
            let client = if seed % 2 == 0 { one.client.clone() } else { two.client.clone() };
            std::thread::spawn(move || client.post("/v1/images/generations", &json!({"seed": seed})).status)
        })
        .collect();
    assert!(answers.into_iter().all(|answer| answer.join().unwrap() == 200));
    // Cancelled at the server that does not make it.
    let long = json!({"model": "flow", "seed": 2, "n": 30, "steps": 1000});
    let id = one.client.post("/v1/jobs", &long).expect(202).json()["id"].as_str().unwrap().to_string();
    for client in [&one.client, &two.client] {
        client.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).expect(200);
    }
    assert_eq!(two.client.ended(&id)["state"], "cancelled");
    assert_eq!(two.client.events(&id).last().unwrap().1["state"], "cancelled");
}

#[test]
fn a_job_is_taken_once_and_again_after_its_lease() {
    let Some(database) = database::start() else { return };
    let address = StoreAddress::parse(&database.url);
    let running = {
        let address = address.clone();
        start(move |config| config.store = address)
    };
    let done = running.client.post("/v1/images/generations", &json!({"seed": 1, "n": 2})).expect(200).json();
    drop(running);
    let open = || store::open(&address).unwrap();
    let (a, b) = (open(), open());
    // A new job from the settings of one that is done.
    let old = a.get(done["job"].as_str().unwrap()).unwrap().unwrap();
    let new = |id: &str| store::NewJob {
        id: id.into(),
        client: "me".into(),
        user: String::new(),
        spec: old.spec.clone(),
        inputs: vec![("image", vec![1, 2, 3])],
    };
    let limits = crossfade_serve::Limits { max_queue: 2, ..Default::default() };
    assert_eq!(a.insert(&new("one"), &limits).unwrap(), store::Admission::Accepted);
    assert_eq!(b.insert(&new("one"), &limits).unwrap(), store::Admission::Accepted, "the same job twice is one");
    assert_eq!(b.insert(&new("two"), &limits).unwrap(), store::Admission::Accepted);
    assert_eq!(b.insert(&new("three"), &limits).unwrap(), store::Admission::QueueFull);
    assert_eq!(a.input("one", "image").unwrap().unwrap(), [1, 2, 3]);
    assert_eq!(a.get("two").unwrap().unwrap().position, Some(1));
    // Sixteen threads want it, one gets it.
    let stores: Vec<_> = (0..16).map(|k| (k, open())).collect();
    let takers: Vec<_> = stores
        .into_iter()
        .map(|(k, store)| {
            std::thread::spawn(move || store.claim("one", &format!("s{k}"), Duration::from_secs(1)).unwrap())
        })
        .collect();
    let taken = takers.into_iter().filter_map(|taker| taker.join().unwrap()).count();
    assert_eq!(taken, 1);
    assert_eq!(a.requeue(None).unwrap(), 0, "its lease has not ended");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(b.requeue(None).unwrap(), 1);
    assert!(a.claim("one", "a", Duration::from_secs(60)).unwrap().is_some());
    assert!(!b.finish("one", Some("b"), JobState::Done, None, Duration::from_secs(1)).unwrap(), "not its job");
    // What a server says that it works at is kept for it, and what it does not know of waits again.
    let minute = Duration::from_secs(60);
    assert!(b.claim("two", "a", minute).unwrap().is_some());
    let known = ["one", "other"].map(String::from);
    assert_eq!(a.extend("a", &known, minute).unwrap(), ["one"]);
    assert_eq!(b.extend("b", &known, minute).unwrap(), [""; 0], "not its job");
    assert_eq!(a.get("two").unwrap().unwrap().state, JobState::Queued);
    assert!(a.finish("one", Some("a"), JobState::Failed, Some("why"), Duration::ZERO).unwrap());
    let ended = b.get("one").unwrap().unwrap();
    assert_eq!((ended.state, ended.error.as_deref()), (JobState::Failed, Some("why")));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(b.expire(u64::MAX).unwrap(), 1, "it had expired at once");
    assert!(a.get("one").unwrap().is_none() && a.input("one", "image").unwrap().is_none());
    let waiting = Filter { state: Some(JobState::Queued), limit: 5, ..Filter::default() };
    assert_eq!(a.list(&waiting).unwrap().iter().map(|job| job.id.clone()).collect::<Vec<_>>(), ["two"]);
}
