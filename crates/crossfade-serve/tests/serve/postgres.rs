//! Several servers share one queue in PostgreSQL.
use super::bits::{mixed, sampled};
use super::{database, start};
use crossfade_serve::StoreAddress;
use crossfade_serve::job::JobState;
use crossfade_serve::store::{self, Filter};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn two_servers_share_a_queue() {
    let Some(database) = database::start() else { return };
    let with = |slots: usize| {
        let url = database.url.clone();
        start(move |config| {
            config.store = StoreAddress::parse(&url);
            (config.slots, config.chunk, config.lease) = (slots, 2, Duration::from_secs(3));
            config.limits.max_queue_per_client = 256;
        })
    };
    let (one, two) = (with(2), with(2));
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
    let made = |running: &super::Running| -> f64 {
        let metrics = String::from_utf8(running.client.get("/metrics").expect(200).body).unwrap();
        metrics.lines().find_map(|line| line.strip_prefix("crossfade_pictures_total ")?.parse().ok()).unwrap()
    };
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
    a.extend("a", Duration::from_secs(60)).unwrap();
    assert!(a.finish("one", Some("a"), JobState::Failed, Some("why"), Duration::ZERO).unwrap());
    let ended = b.get("one").unwrap().unwrap();
    assert_eq!((ended.state, ended.error.as_deref()), (JobState::Failed, Some("why")));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(b.expire(u64::MAX).unwrap(), 1, "it had expired at once");
    assert!(a.get("one").unwrap().is_none() && a.input("one", "image").unwrap().is_none());
    let waiting = Filter { state: Some(JobState::Queued), limit: 5, ..Filter::default() };
    assert_eq!(a.list(&waiting).unwrap().iter().map(|job| job.id.clone()).collect::<Vec<_>>(), ["two"]);
}
