//! Jobs: created, watched, listed, cancelled, forgotten.
use super::{start, start_in};
use serde_json::{Value, json};
use std::time::Duration;

/// Steps that keep a job busy for a while.
const LONG: u64 = 1000;

#[test]
fn events_tell_every_step_of_every_picture() {
    let running = start(|_| ());
    let client = &running.client;
    let request = json!({"kind": "generation", "model": "classes", "seed": 7, "n": 3, "steps": 4, "sampler": "ab2"});
    let accepted = client.post("/v1/jobs", &request).expect(202);
    let id = accepted.json()["id"].as_str().unwrap().to_string();
    assert_eq!(accepted.header("location"), Some(format!("/v1/jobs/{id}").as_str()));
    // Once while it runs, and once after it: the same events.
    for _ in 0..2 {
        let events = client.events(&id);
        let of =
            |name: &str| -> Vec<&Value> { events.iter().filter(|(n, _)| n == name).map(|(_, data)| data).collect() };
        assert_eq!(events.first().unwrap().0, "job");
        assert_eq!(events.last().unwrap().0, "end");
        assert_eq!(events.last().unwrap().1["state"], "done");
        assert_eq!(of("image").len(), 3);
        let steps = of("step");
        assert_eq!(steps.len(), 12, "{steps:?}");
        for (index, step) in (0..3).flat_map(|index| (0..4).map(move |step| (index, step))) {
            let found = steps.iter().find(|event| event["index"] == index && event["step"] == step).unwrap();
            assert_eq!(found["steps"], 4);
            let preview = found["preview"].as_str().unwrap();
            assert!(preview.starts_with("data:image/png;base64,"), "{preview}");
        }
        assert_eq!(steps.last().unwrap()["evaluations"], 4);
    }
    let silent = json!({"model": "classes", "seed": 7, "steps": 4, "previews": false, "async": true});
    let id = client.post("/v1/images/generations", &silent).expect(202).json()["id"].as_str().unwrap().to_string();
    client.ended(&id);
    let events = client.events(&id);
    assert!(events.iter().filter(|(name, _)| name == "step").all(|(_, data)| data["preview"].is_null()));
}

#[test]
fn the_last_preview_is_the_picture_of_a_deterministic_sampler() {
    let running = start(|_| ());
    let client = &running.client;
    let request = json!({"model": "classes", "seed": 3, "steps": 1, "sampler": "first-order", "previews": true});
    let id = client.post("/v1/jobs", &request).expect(202).json()["id"].as_str().unwrap().to_string();
    let picture = client.pictures(&client.ended(&id)).remove(0);
    let events = client.events(&id);
    let step = &events.iter().find(|(name, _)| name == "step").unwrap().1;
    use base64::Engine;
    let preview = step["preview"].as_str().unwrap().strip_prefix("data:image/png;base64,").unwrap();
    let preview = base64::engine::general_purpose::STANDARD.decode(preview).unwrap();
    let pixels = |png: &[u8]| crossfade::data::Image::decode(png, "a picture").unwrap();
    assert_eq!(pixels(&preview), pixels(&picture));
}

#[test]
fn a_reader_that_comes_back_gets_what_followed() {
    let running = start(|_| ());
    let client = &running.client;
    let request = json!({"model": "classes", "seed": 7, "steps": 5});
    let id = client.post("/v1/jobs", &request).expect(202).json()["id"].as_str().unwrap().to_string();
    client.ended(&id);
    let text = String::from_utf8(client.get(&format!("/v1/jobs/{id}/events")).expect(200).body).unwrap();
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let steps = |text: &str| text.matches("event: step").count();
    assert_eq!(steps(&text), 5);
    // The third step was seen.
    let seen = text.split("\n\n").filter(|block| block.contains("event: step")).nth(2).unwrap();
    let seen = seen.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert!(ids.contains(&seen));
    let rest = client.with("last-event-id", seen).get(&format!("/v1/jobs/{id}/events")).expect(200);
    assert_eq!(steps(&String::from_utf8(rest.body).unwrap()), 2);
    let stale = client.with("last-event-id", "00000000-4").get(&format!("/v1/jobs/{id}/events")).expect(200);
    assert_eq!(steps(&String::from_utf8(stale.body).unwrap()), 5, "numbers of another start mean nothing");
}

#[test]
fn jobs_are_listed_cancelled_and_forgotten() {
    let running = start(|config| (config.slots, config.chunk) = (1, 1));
    let client = &running.client;
    let create =
        |request: Value| client.post("/v1/jobs", &request).expect(202).json()["id"].as_str().unwrap().to_string();
    let done = create(json!({"model": "classes", "seed": 1}));
    client.ended(&done);
    let long = create(json!({"model": "flow", "seed": 2, "n": 20, "steps": LONG}));
    let waiting = create(json!({"model": "flow", "seed": 3, "n": 20, "steps": LONG}));
    let cancelled = client.post(&format!("/v1/jobs/{waiting}/cancel"), &json!({})).expect(200).json();
    assert!(["cancelled", "running"].contains(&cancelled["state"].as_str().unwrap()), "{cancelled}");
    assert_eq!(client.ended(&waiting)["state"], "cancelled");
    client.post(&format!("/v1/jobs/{long}/cancel"), &json!({})).expect(200);
    assert_eq!(client.ended(&long)["state"], "cancelled");
    assert_eq!(client.events(&long).last().unwrap().1["state"], "cancelled");
    // Once more changes nothing.
    assert_eq!(client.post(&format!("/v1/jobs/{done}/cancel"), &json!({})).expect(200).json()["state"], "done");
    let listed = |query: &str| {
        let list = client.get(&format!("/v1/jobs{query}")).expect(200).json();
        let ids: Vec<String> =
            list["data"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().into()).collect();
        (ids, list["has_more"].as_bool().unwrap())
    };
    assert_eq!(listed(""), (vec![waiting.clone(), long.clone(), done.clone()], false));
    assert_eq!(listed("?limit=2"), (vec![waiting.clone(), long.clone()], true));
    assert_eq!(listed(&format!("?before={long}")), (vec![done.clone()], false));
    assert_eq!(listed("?state=cancelled&model=flow").0.len(), 2);
    assert_eq!(listed("?kind=task").0.len(), 0);
    for query in ["?limit=0", "?limit=1000", "?state=odd", "?before=none", "?unknown=1"] {
        assert_eq!(client.get(&format!("/v1/jobs{query}")).status, 422, "{query}");
    }
    assert_eq!(client.request("DELETE", &format!("/v1/jobs/{done}"), None, &[]).status, 204);
    assert_eq!(client.get(&format!("/v1/jobs/{done}")).status, 404);
    assert_eq!(client.get(&format!("/v1/jobs/{done}/images/0")).status, 404);
    let running_one = create(json!({"model": "flow", "seed": 2, "n": 20, "steps": LONG}));
    assert_eq!(client.request("DELETE", &format!("/v1/jobs/{running_one}"), None, &[]).status, 204);
    assert_eq!(client.get(&format!("/v1/jobs/{running_one}")).status, 404);
}

/// A short job of another client, and one of another user, end long before a long one that came first.
#[test]
fn a_long_job_does_not_hold_up_short_ones() {
    let tokens = [("a", "a-0123456789abcdef"), ("b", "b-0123456789abcdef")];
    let running = start(|config| {
        config.tokens = tokens.map(|(name, token)| (name.to_string(), token.to_string())).to_vec();
        (config.slots, config.chunk) = (2, 2);
    });
    let of = |k: usize| running.client.with("authorization", &format!("Bearer {}", tokens[k].1));
    let long = json!({"model": "flow", "seed": 2, "n": 64, "steps": LONG, "user": "one"});
    let long = of(0).post("/v1/jobs", &long).expect(202).json()["id"].as_str().unwrap().to_string();
    while of(0).get(&format!("/v1/jobs/{long}")).expect(200).json()["progress"]["steps_done"].as_u64().unwrap() < 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for seed in 0..3 {
        of(1).post("/v1/images/generations", &json!({"model": "classes", "seed": seed})).expect(200);
    }
    let job = of(0).get(&format!("/v1/jobs/{long}")).expect(200).json();
    assert_eq!(job["state"], "running", "{job}");
    of(0).request("DELETE", &format!("/v1/jobs/{long}"), None, &[]).expect(204);
}

#[test]
fn a_server_that_stops_gives_its_jobs_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let requests = super::bits::mixed();
    let ids: Vec<String> = {
        let running = start_in(dir.path(), |config| {
            (config.drain, config.slots, config.chunk) = (Duration::ZERO, 2, 2);
        });
        let create = |request: &Value| running.client.post("/v1/jobs", request).expect(202).json()["id"].clone();
        requests.iter().map(|request| create(request).as_str().unwrap().to_string()).collect()
    };
    let running = start_in(dir.path(), |_| ());
    for (id, request) in ids.iter().zip(&requests) {
        let job = running.client.ended(id);
        assert!(running.client.pictures(&job) == super::bits::sampled(request), "{request}");
    }
    let mut second = super::config(dir.path());
    second.models.truncate(1);
    let refused = crossfade_serve::Server::start(second, &crossfade::engine::Device::flex()).err().unwrap();
    assert!(refused.to_string().contains("in use by another server"), "{refused}");
}

#[test]
fn results_expire_by_age_and_size() {
    let running = start(|config| config.limits.keep_bytes = 2000);
    let client = &running.client;
    let store = |seed: u64| client.post("/v1/images/generations", &json!({"seed": seed, "n": 2})).expect(200);
    (0..6).for_each(|seed| drop(store(seed)));
    let dir = running.dir.as_ref().unwrap().path().join("other.sqlite");
    let other = crossfade_serve::store::open(&crossfade_serve::StoreAddress::Sqlite(dir)).unwrap();
    assert_eq!(other.expire(0).unwrap(), 0, "an empty store");
    drop(running);
    // The policy itself, on a store of its own.
    let dir = tempfile::tempdir().unwrap();
    let running = start_in(dir.path(), |_| ());
    for seed in 0..4 {
        running.client.post("/v1/images/generations", &json!({"seed": seed, "model": "classes"})).expect(200);
    }
    let jobs = running.client.get("/v1/jobs").expect(200).json();
    let sizes: Vec<u64> =
        jobs["data"].as_array().unwrap().iter().map(|job| job["images"][0]["bytes"].as_u64().unwrap()).collect();
    drop(running);
    let store =
        crossfade_serve::store::open(&crossfade_serve::StoreAddress::Sqlite(dir.path().join("jobs.sqlite"))).unwrap();
    // The two newest fit exactly.
    assert_eq!(store.expire(sizes[0] + sizes[1]).unwrap(), 2);
    assert_eq!(store.list(&crossfade_serve::store::Filter { limit: 9, ..Default::default() }).unwrap().len(), 2);
    assert_eq!(store.expire(0).unwrap(), 2);
}

#[test]
fn results_expire_by_their_age() {
    for (keep, gone) in [(Duration::ZERO, 1), (Duration::from_secs(3600), 0)] {
        let dir = tempfile::tempdir().unwrap();
        let running = start_in(dir.path(), |config| config.limits.keep = keep);
        let request = json!({"seed": 1, "model": "classes", "steps": 1});
        let id = running.client.post("/v1/images/generations", &request).expect(200).json()["job"].clone();
        drop(running);
        let address = crossfade_serve::StoreAddress::Sqlite(dir.path().join("jobs.sqlite"));
        let store = crossfade_serve::store::open(&address).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(store.expire(u64::MAX).unwrap(), gone, "{keep:?}");
        let id = id.as_str().unwrap();
        assert_eq!(store.get(id).unwrap().is_none(), gone == 1);
        assert_eq!(store.picture(id, 0).unwrap().is_none(), gone == 1);
    }
}

/// A job that a server has claimed and knows nothing of waits again: the answer to its claim was lost.
#[test]
fn what_a_server_does_not_know_of_is_queued_again() {
    let dir = tempfile::tempdir().unwrap();
    let running = start_in(dir.path(), |config| config.drain = Duration::ZERO);
    let long = json!({"model": "flow", "seed": 2, "n": 20, "steps": LONG});
    let ids =
        [(); 2].map(|()| running.client.post("/v1/jobs", &long).expect(202).json()["id"].as_str().unwrap().to_string());
    drop(running);
    let address = crossfade_serve::StoreAddress::Sqlite(dir.path().join("jobs.sqlite"));
    let store = crossfade_serve::store::open(&address).unwrap();
    let minute = Duration::from_secs(60);
    ids.iter().for_each(|id| assert!(store.claim(id, "me", minute).unwrap().is_some()));
    assert_eq!(store.extend("me", &[ids[1].clone(), "unknown".into()], minute).unwrap(), [ids[1].clone()]);
    let waiting: Vec<String> = store.waiting().unwrap().into_iter().map(|job| job.id).collect();
    assert_eq!(waiting, [ids[0].clone()]);
}
