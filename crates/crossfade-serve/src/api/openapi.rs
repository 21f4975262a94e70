//! The description of the interface, made from the code.
use super::{create, error, events, jobs, meta, view};
use crate::job::Kind;
use crate::request::{Fields, belongs};
use serde_json::{Value, json};
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Crossfade",
        description = "Pictures by few-step diffusion. Image k of a seed has the same bytes under any load.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        create::generations,
        create::variations,
        create::edits,
        create::tasks,
        create::jobs,
        jobs::list,
        jobs::show,
        jobs::cancel,
        jobs::delete,
        jobs::image,
        jobs::input,
        events::follow,
        meta::models,
        meta::model,
        meta::server,
        meta::healthz,
        meta::readyz,
        meta::metrics,
    ),
    components(schemas(
        Fields,
        error::ErrorBody,
        error::ErrorDetail,
        view::JobView,
        view::JobList,
        create::ImagesView,
        crate::models::ModelInfo,
        meta::ServerView,
    ))
)]
struct Api;

/// The bodies of the routes that create jobs: name of the schema, route, kind; none for any kind.
const BODIES: [(&str, &str, Option<Kind>); 5] = [
    ("GenerationRequest", "/v1/images/generations", Some(Kind::Generation)),
    ("VariationRequest", "/v1/images/variations", Some(Kind::Variation)),
    ("EditRequest", "/v1/images/edits", Some(Kind::Edit)),
    ("TaskRequest", "/v1/tasks/{task}", Some(Kind::Task)),
    ("JobRequest", "/v1/jobs", None),
];

/// The OpenAPI document.
pub fn document() -> Value {
    let mut document = serde_json::to_value(Api::openapi()).unwrap_or_default();
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    let fields = document["components"]["schemas"]["Fields"]["properties"].clone();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.remove("Fields");
    }
    for (name, route, kind) in BODIES {
        let mut json_body = schema(&fields, kind, false);
        let form = schema(&fields, kind, true);
        json_body["description"] = json!("Fields that are left out take the settings of the model.");
        document["components"]["schemas"][name] = json_body;
        document["components"]["schemas"][format!("{name}Form")] = form;
        document["paths"][route]["post"]["requestBody"] = json!({
            "required": true,
            "content": {
                "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } },
                "multipart/form-data": { "schema": { "$ref": format!("#/components/schemas/{name}Form") } },
            },
        });
    }
    for (_, route, kind) in BODIES {
        if kind.is_some() {
            document["paths"][route]["post"]["responses"]["200"]["content"]["image/png"] = json!({});
        }
    }
    document["paths"]["/v1/tasks/{task}"]["post"]["parameters"][0]["schema"]["enum"] = json!(create::TASKS);
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    document["security"] = json!([{}, { "token": [] }]);
    document
}

/// The fields of a kind, as JSON or as a form.
fn schema(fields: &Value, kind: Option<Kind>, form: bool) -> Value {
    let mut properties = serde_json::Map::new();
    for (name, field) in fields.as_object().into_iter().flatten() {
        // The address names the task.
        let own = kind.is_none_or(|kind| belongs(name, kind) && !(kind == Kind::Task && name == "task"));
        if !own {
            continue;
        }
        let mut field = field.clone();
        if ["image", "mask"].contains(&name.as_str()) {
            field = match form {
                true => json!({ "type": "string", "format": "binary", "contentMediaType": "image/png" }),
                false => json!({ "type": "string", "contentEncoding": "base64", "description": "A PNG, JPEG or WebP" }),
            };
        } else if form && name == "guidance_interval" {
            field = json!({ "type": "string", "description": "Two times with a comma", "examples": ["0.2,0.8"] });
        }
        properties.insert(name.clone(), field);
    }
    let required: &[&str] = if kind.is_some_and(|kind| kind != Kind::Generation) { &["image"] } else { &[] };
    json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required })
}
