//! Reads the fields of a request from JSON or from a form.
use super::ApiError;
use super::flat::Flat;
use crate::request::{FIELDS, Fields, Request, form_value};
use axum::body::Bytes;
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request as HttpRequest};
use axum::http::{StatusCode, header};
use base64::Engine;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use std::time::Duration;

/// How long the body of a request may take.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Bytes of a body that is too large which are still read.
const DISCARDED: usize = 64 << 20;
/// The largest number of parts of a form.
const MAX_PARTS: usize = 64;
/// The largest text of a form.
const MAX_TEXT: usize = 64 << 10;

/// The fields and pictures of a request.
pub async fn read(request: HttpRequest, limit: usize) -> Result<Request, ApiError> {
    let late = || ApiError::malformed("the body did not arrive in time");
    tokio::time::timeout(BODY_TIME, read_body(request, limit)).await.map_err(|_| late())?
}

async fn read_body(request: HttpRequest, limit: usize) -> Result<Request, ApiError> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > limit as u64) {
        discard(request, DISCARDED).await;
        return Err(ApiError::too_large(limit));
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/json" => {
            let bytes = Bytes::from_request(request, &()).await.map_err(|e| of_status(e.status(), &e, limit))?;
            let what = |e: &serde_json::Error| if e.is_data() { "a JSON object of fields" } else { "JSON" };
            let flat: Flat = serde_json::from_slice(&bytes)
                .map_err(|e| ApiError::malformed(format!("the body is not {}: {e}", what(&e))))?;
            of_fields(flat.0, None, None)
        }
        "multipart/form-data" => {
            let form = Multipart::from_request(request, &()).await;
            of_form(form.map_err(|e| ApiError::malformed(e.to_string()))?, limit).await
        }
        _ => Err(ApiError::media_type()),
    }
}

/// Reads and forgets a body that is too large, up to a bound: a peer that is still sending when the connection closes would
/// not see the answer.
async fn discard(request: HttpRequest, most: usize) {
    let mut body = request.into_body();
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > most {
            return;
        }
    }
}

fn of_status(status: StatusCode, error: &impl std::fmt::Display, limit: usize) -> ApiError {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(limit),
        _ => ApiError::malformed(error.to_string()),
    }
}

async fn of_form(mut form: Multipart, limit: usize) -> Result<Request, ApiError> {
    let bad = |e: MultipartError| of_status(e.status(), &e.body_text(), limit);
    let (mut fields, mut image, mut mask) = (Map::new(), None, None);
    let mut parts = 0;
    while let Some(part) = form.next_field().await.map_err(bad)? {
        parts += 1;
        if parts > MAX_PARTS {
            return Err(ApiError::malformed(format!("a form has at most {MAX_PARTS} parts")));
        }
        let name = part.name().unwrap_or_default().to_string();
        // OpenAI's client sends several pictures as `image[]`; one is taken.
        let name = name.strip_suffix("[]").unwrap_or(&name).to_string();
        let bytes = part.bytes().await.map_err(bad)?;
        let picture = match name.as_str() {
            "image" => Some(&mut image),
            "mask" => Some(&mut mask),
            _ => None,
        };
        if let Some(place) = picture {
            if place.replace(bytes.to_vec()).is_some() {
                return Err(ApiError::invalid(&name, "was sent twice"));
            }
            continue;
        }
        if bytes.len() > MAX_TEXT {
            return Err(ApiError::invalid(&name, "is too long"));
        }
        let text = String::from_utf8(bytes.to_vec())
            .map_err(|_| ApiError::malformed(format!("the field `{name}` is not a text")))?;
        if fields.insert(name.clone(), form_value(&name, text)).is_some() {
            return Err(ApiError::invalid(&name, "was sent twice"));
        }
    }
    of_fields(fields, image, mask)
}

fn of_fields(
    mut fields: Map<String, Value>,
    image: Option<Vec<u8>>,
    mask: Option<Vec<u8>>,
) -> Result<Request, ApiError> {
    // OpenAI's clients leave fields out by sending null.
    fields.retain(|_, value| !value.is_null());
    let known: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        let meant = crossfade::math::nearest(unknown, &known);
        let meant = meant.map_or(String::new(), |name| format!(" (did you mean `{name}`?)"));
        return Err(ApiError::invalid(unknown, format!("there is no field `{unknown}`{meant}")));
    }
    let mut given: Vec<String> = fields.keys().cloned().collect();
    given.extend(image.as_ref().map(|_| "image".to_string()));
    given.extend(mask.as_ref().map(|_| "mask".to_string()));
    let [in_image, in_mask] = ["image", "mask"].map(|name| fields.remove(name).map(|value| decoded(name, &value)));
    let fields: Fields = serde_path_to_error::deserialize(Value::Object(fields)).map_err(|e| {
        let path = e.path().to_string();
        ApiError::invalid(&path, format!("the field `{path}`: {}", e.inner()))
    })?;
    let image = image.or(in_image.transpose()?);
    Ok(Request { fields, given, image, mask: mask.or(in_mask.transpose()?) })
}

/// The bytes of a picture in JSON.
fn decoded(name: &str, value: &Value) -> Result<Vec<u8>, ApiError> {
    let text = value.as_str().unwrap_or_default();
    let text = match text.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,").map_or("", |(_, data)| data),
        None => text,
    };
    let decoded = base64::engine::general_purpose::STANDARD.decode(text.trim());
    let bytes = decoded.ok().filter(|bytes| !bytes.is_empty());
    bytes.ok_or_else(|| ApiError::invalid(name, "must be the base64 of a PNG, JPEG or WebP"))
}
