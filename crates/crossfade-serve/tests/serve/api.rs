//! The interface: what it says and what it refuses.
use super::client::Client;
use super::start;
use base64::Engine;
use serde_json::{Value, json};

fn png_of(answer: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(answer["data"][0]["b64_json"].as_str().unwrap()).unwrap()
}

#[test]
fn urls_of_pictures_have_the_public_address() {
    let running = start(|config| config.public_url = Some("https://pictures.example.org/made".into()));
    let request = json!({"prompt": "", "model": "classes", "steps": 2, "response_format": "url"});
    let answer = running.client.post("/v1/images/generations", &request).expect(200).json();
    let url = answer["data"][0]["url"].as_str().unwrap();
    assert!(url.starts_with("https://pictures.example.org/made/v1/"), "{url}");
    // The page behind the proxy asks as its own site, whether the proxy passes its name on or not; other names are refused.
    let asks = |host: Option<&str>, origin: &str| {
        let client = running.client.with("origin", origin);
        let client = host.map_or(client.clone(), |host| client.with("host", host));
        client.post("/v1/jobs", &json!({"model": "classes", "steps": 1})).status
    };
    for (host, origin, status) in [
        (Some("pictures.example.org"), "https://pictures.example.org", 202),
        (None, "https://pictures.example.org", 202),
        (None, "https://pictures.example.org.evil.example", 403),
        (Some("evil.example"), "https://pictures.example.org", 403),
        (Some("pictures.example.org"), "https://evil.example", 403),
    ] {
        assert_eq!(asks(host, origin), status, "{host:?} {origin}");
    }
}

#[test]
fn generations_answer_as_openai_does() {
    let running = start(|_| ());
    let client = &running.client;
    let request = json!({"prompt": "", "seed": 5, "class": "2", "steps": 3});
    let answer = client.post("/v1/images/generations", &request).expect(200);
    let id = answer.header("crossfade-job").unwrap().to_string();
    let answer = answer.json();
    assert!(answer["created"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!((&answer["data"][0]["seed"], &answer["data"][0]["class"]), (&json!(5), &json!("forest")));
    let png = png_of(&answer);
    let mut other = request.clone();
    other["response_format"] = json!("png");
    let file = client.post("/v1/images/generations", &other).expect(200);
    assert_eq!(file.header("content-type"), Some("image/png"));
    assert_eq!(file.body, png);
    other["response_format"] = json!("url");
    let linked = client.post("/v1/images/generations", &other).expect(200).json();
    let url = linked["data"][0]["url"].as_str().unwrap();
    let path = url.strip_prefix(&format!("http://{}", client.address)).unwrap();
    assert_eq!(client.get(path).expect(200).body, png);
    let job = client.get(&format!("/v1/jobs/{id}")).expect(200).json();
    assert_eq!(
        (&job["state"], &job["kind"], &job["progress"]["images_done"]),
        (&json!("done"), &json!("generation"), &json!(1))
    );
    assert_eq!(job["images"][0]["sha256"], crossfade::digest::sha256(&png));
    assert!(job["command"].as_str().unwrap().starts_with("crossfade sample "), "{job}");
    // What OpenAI's clients send beside that.
    let sent = json!({"prompt": "forest", "size": "8x8", "n": 2, "quality": "standard", "user": "me", "model": "classes",
        "background": "auto", "moderation": "low", "output_format": "png", "style": null});
    client.post("/v1/images/generations", &sent).expect(200);
}

#[test]
fn prompts_name_classes_or_are_refused_with_the_list() {
    let running = start(|_| ());
    let client = &running.client;
    let names = client.get("/v1/models/classes").expect(200).json()["classes"].clone();
    let name = names[3].as_str().unwrap();
    let prompt = json!({"prompt": format!("a picture of a {name}"), "seed": 1});
    let answer = client.post("/v1/images/generations", &prompt).expect(200).json();
    assert_eq!(answer["data"][0]["class"], json!(name));
    let refused = client.post("/v1/images/generations", &json!({"prompt": "an elephant in a suit"})).expect(422);
    assert_eq!(refused.json()["error"]["param"], "prompt");
    assert_eq!(refused.json()["error"]["code"], "unknown_class");
    assert!(names.as_array().unwrap().iter().all(|name| refused.problem().contains(name.as_str().unwrap())));
    let deaf = client.post("/v1/images/generations", &json!({"prompt": "cat", "model": "flow"})).expect(422);
    assert!(deaf.problem().contains("reads no text"), "{}", deaf.problem());
}

#[test]
fn what_cannot_be_done_is_refused_with_the_field() {
    let running = start(|_| ());
    let client = &running.client;
    let cases = [
        (json!({"stepz": 3}), "stepz", "did you mean `steps`"),
        (json!({"steps": 0}), "steps", "from 1 to"),
        (json!({"steps": 100_000}), "steps", "from 1 to"),
        (json!({"steps": "three"}), "steps", "`steps` must be a whole number"),
        (json!({"n": 0}), "n", "from 1 to"),
        (json!({"n": 1000}), "n", "from 1 to"),
        (json!({"n": 2, "response_format": "png"}), "response_format", "n must be 1"),
        (json!({"seed": -1}), "seed", "`seed` must be a whole number"),
        (json!({"sampler": "eulr"}), "sampler", "eulr"),
        (json!({"grid": "nowhere"}), "grid", "nowhere"),
        (json!({"eta": 0.5}), "eta", "needs the sampler ddim"),
        (json!({"eta": 5}), "eta", "from 0"),
        (json!({"class": "unicorn"}), "class", "no class is called"),
        (json!({"guidance": -1}), "guidance", "from 0"),
        (json!({"guidance": 2, "guidance_interval": [0.9, 0.1]}), "guidance_interval", "smaller one first"),
        (json!({"guidance_interval": [0.1, 0.9]}), "guidance_interval", "needs guidance"),
        (json!({"size": "1024x1024"}), "size", "`size` must be 8x8"),
        (json!({"stream": true}), "stream", "events"),
        (json!({"quality": "hd"}), "quality", "`quality` must be auto or standard"),
        (json!({"model": "nobody"}), "model", "classes"),
        (json!({"model": "sr"}), "model", "does not make generations"),
        (json!({"strength": 0.3}), "strength", "does not belong to a generation"),
        (json!({"kind": "task"}), "kind", "must be generation"),
        (json!({"first": u64::MAX, "n": 2}), "first", "2^64"),
        (json!({"user": "x".repeat(300)}), "user", "200"),
    ];
    for (request, param, problem) in cases {
        let answer = client.post("/v1/images/generations", &request);
        assert_eq!(answer.status, 422, "{request}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.json()["error"]["param"], param, "{request}: {}", answer.json());
        assert!(answer.problem().contains(problem), "{request}: {}", answer.problem());
    }
    // Nothing of that was accepted.
    assert_eq!(client.get("/v1/jobs").expect(200).json()["data"], json!([]));
    let raw = |kind: Option<&str>, body: &[u8]| client.request("POST", "/v1/images/generations", kind, body).status;
    assert_eq!(raw(Some("application/json"), b"{"), 400);
    assert_eq!(raw(Some("application/json"), b"[1]"), 400);
    assert_eq!(raw(Some("application/json"), b"\xff\xfe"), 400);
    assert_eq!(raw(Some("text/plain"), b"{}"), 415);
    assert_eq!(raw(None, b"{}"), 415);
    assert_eq!(raw(Some("multipart/form-data; boundary=x"), b"--y\r\n"), 400);
    assert_eq!(client.request("PUT", "/v1/jobs", None, &[]).status, 405);
    for path in
        ["/v1/nothing", "/v1/jobs/none", "/v1/models/none", "/v1/jobs/none/images/0", "/../../etc/passwd", "/%2e%2e/x"]
    {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    assert_eq!(client.post("/v1/tasks/nonsense", &json!({})).status, 404);
}

#[test]
fn models_and_the_server_describe_themselves() {
    let running = start(|_| ());
    let client = &running.client;
    let models = client.get("/v1/models").expect(200).json();
    let of = |name: &str| models["data"].as_array().unwrap().iter().find(|model| model["id"] == name).unwrap().clone();
    assert_eq!(models["object"], "list");
    assert_eq!((&of("classes")["width"], &of("classes")["channels"]), (&json!(8), &json!(3)));
    assert_eq!(of("classes")["kinds"], json!(["generation", "variation"]));
    assert_eq!(of("inpaint")["kinds"], json!(["task", "edit"]));
    assert_eq!((&of("sr")["tasks"], &of("sr")["scale"], &of("sr")["width"]), (&json!(["sr"]), &json!(2), &Value::Null));
    assert_eq!((&of("classes")["guidable"], &of("flow")["guidable"]), (&json!(true), &json!(false)));
    let digest = of("flow")["digest"].as_str().unwrap().to_string();
    let by_digest = client.post("/v1/images/generations", &json!({"model": digest, "seed": 1})).expect(200).json();
    assert_eq!(by_digest["model"], "flow");
    let server = client.get("/v1/server").expect(200).json();
    assert_eq!(
        (&server["auth"], &server["store"], &server["limits"]["max_count"]),
        (&json!("none"), &json!("sqlite"), &json!(64))
    );
    client.get("/healthz").expect(200);
    client.get("/readyz").expect(200);
    let metrics = String::from_utf8(client.get("/metrics").expect(200).body).unwrap();
    for name in ["queue_length", "batch_images_bucket", "pass_seconds_sum", "evaluations_total", "resident_bytes"] {
        assert!(metrics.contains(&format!("crossfade_{name}")), "{name}");
    }
}

/// Every route of the description answers, and the description has every field of a request.
#[test]
fn the_description_fits_the_server() {
    let running = start(|_| ());
    let client = &running.client;
    let described = client.get("/openapi.json").expect(200).json();
    assert!(described["openapi"].as_str().unwrap().starts_with("3.1"), "{}", described["openapi"]);
    let schemas = &described["components"]["schemas"];
    for (field, kinds) in crossfade_serve::request::FIELDS {
        let has = |name: &str| !schemas[name]["properties"][field].is_null();
        assert!(has("JobRequest") && has("GenerationRequest") == kinds.contains('g'), "{field}");
        assert!(has("VariationRequest") == kinds.contains('v') && has("EditRequest") == kinds.contains('e'), "{field}");
    }
    let fields: Vec<&str> = crossfade_serve::request::FIELDS.iter().map(|(name, _)| *name).collect();
    for name in schemas["JobRequest"]["properties"].as_object().unwrap().keys() {
        assert!(fields.contains(&name.as_str()), "{name} is missing in FIELDS");
    }
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{task}", "sr").replace(['{', '}'], "");
            let answer = client.request(&method.to_uppercase(), &path, Some("application/json"), b"{}");
            let known = answer.status != 405 && !String::from_utf8_lossy(&answer.body).contains("no such route");
            assert!(known, "{method} {path}: {}", answer.status);
        }
    }
    for name in ["/docs", "/docs/docs.js", "/docs/docs.css", "/"] {
        let answer = client.get(name).expect(200);
        let text = String::from_utf8_lossy(&answer.body);
        // The page asks nobody but this server.
        assert!(!text.contains("http://") && !text.contains("https://") || name == "/", "{name}");
    }
}

/// What every answer carries, and who is refused.
#[test]
fn pages_of_other_sites_are_refused() {
    let running = start(|_| ());
    let client = &running.client;
    let own = format!("http://{}", client.address);
    let answer = client.with("origin", &own).post("/v1/images/generations", &json!({"seed": 1})).expect(200);
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(answer.header("access-control-allow-origin").is_none(), "CORS is off");
    for (name, value) in [("origin", "http://evil.example"), ("origin", "null"), ("host", "evil.example:80")] {
        let refused = client.with(name, value).post("/v1/images/generations", &json!({"seed": 1}));
        assert_eq!(refused.status, 403, "{name}: {value}");
    }
    assert_eq!(client.request("OPTIONS", "/v1/jobs", None, &[]).status, 405);
}

#[test]
fn tokens_keep_clients_apart() {
    let [alice, bob] = ["alice-0123456789abcdef", "bob-fedcba9876543210"];
    let tokens = vec![("alice".into(), alice.to_string()), ("bob".into(), bob.to_string())];
    let running = start(|config| config.tokens = tokens);
    let anybody = &running.client;
    for path in ["/v1/models", "/v1/jobs", "/metrics", "/v1/server", "/v1/jobs/x/events"] {
        let refused = anybody.get(path).expect(401);
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        assert_eq!(refused.json()["error"]["type"], "authentication_error");
    }
    for wrong in ["Bearer ", "Bearer alice-0123456789abcde", "Basic alice-0123456789abcdef", alice] {
        assert_eq!(anybody.with("authorization", wrong).get("/v1/models").status, 401, "{wrong}");
    }
    for open in ["/healthz", "/readyz", "/openapi.json", "/docs", "/"] {
        anybody.get(open).expect(200);
    }
    let of = |token: &str| -> Client { anybody.with("authorization", &format!("Bearer {token}")) };
    let (alice, bob) = (of(alice), of(bob));
    let job = alice.post("/v1/jobs", &json!({"seed": 1})).expect(202).json();
    let id = job["id"].as_str().unwrap();
    alice.ended(id);
    for path in ["", "/events", "/images/0", "/inputs/image"] {
        assert_eq!(bob.get(&format!("/v1/jobs/{id}{path}")).status, 404, "{path}");
    }
    assert_eq!(bob.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).status, 404);
    assert_eq!(bob.request("DELETE", &format!("/v1/jobs/{id}"), None, &[]).status, 404);
    assert_eq!(bob.get("/v1/jobs").expect(200).json()["data"], json!([]));
    assert_eq!(alice.get("/v1/jobs").expect(200).json()["data"][0]["id"], id);
    alice.get(&format!("/v1/jobs/{id}/images/0")).expect(200);
}
