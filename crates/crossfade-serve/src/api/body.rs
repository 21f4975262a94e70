//! Reads the fields of a request from JSON or from a form.
use super::ApiError;
use super::flat::{Flat, MAX_FIELDS};
use crate::config::Limits;
use crate::request::{FIELDS, Fields, Request, form_value, wanted};
use axum::body::{Body, Bytes};
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest, Multipart, Request as HttpRequest};
use axum::http::{StatusCode, header};
use base64::Engine;
use hyper::body::{Frame, SizeHint};
use serde_json::{Map, Value};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest number of parts of a form.
const MAX_PARTS: usize = 64;
/// The largest text of a form.
const MAX_TEXT: usize = 64 << 10;
/// Seconds after which there may be room for another body.
const RETRY: u64 = 1;

/// Room for the bytes of all requests that are being read or checked.
pub struct Bodies {
    room: Arc<Semaphore>,
    limit: usize,
    time: Duration,
}

/// The room that one request takes, until this is dropped.
#[derive(Clone)]
pub struct Room(Arc<Taken>);

struct Taken {
    room: Arc<Semaphore>,
    permits: std::sync::Mutex<Option<OwnedSemaphorePermit>>,
    /// Whether there was no room for more of it.
    refused: AtomicBool,
}

impl Bodies {
    pub fn new(limits: &Limits) -> Self {
        let bytes = limits.max_bodies.max(limits.max_body).min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(bytes)), limit: limits.max_body, time: limits.times.body }
    }

    /// The fields and pictures of a request, and the room that they take. It is taken as the bytes arrive, so that a peer
    /// that only announces many holds up nobody.
    pub async fn read(&self, request: HttpRequest) -> Result<(Request, Room), ApiError> {
        let (permits, refused) = (std::sync::Mutex::default(), AtomicBool::new(false));
        let room = Room(Arc::new(Taken { room: self.room.clone(), permits, refused }));
        let request = request.map(|body| Body::new(Counted { body, room: room.clone() }));
        let read = tokio::time::timeout(self.time, read_body(request, self.limit)).await;
        if room.0.refused.load(Ordering::Relaxed) {
            let message = "the server is reading as many pictures of requests as it may; send this again in a moment";
            return Err(ApiError::busy(message, "bodies_full", RETRY));
        }
        let request = read.map_err(|_| ApiError::too_late(self.time))??;
        Ok((request, room))
    }
}

impl Room {
    /// Takes room for so many bytes more; false if there is none.
    fn take(&self, bytes: usize) -> bool {
        let taken = u32::try_from(bytes).ok().and_then(|n| self.0.room.clone().try_acquire_many_owned(n).ok());
        let Some(taken) = taken else {
            self.0.refused.store(true, Ordering::Relaxed);
            return false;
        };
        let mut permits = crate::lock(&self.0.permits);
        match permits.as_mut() {
            Some(permits) => permits.merge(taken),
            None => *permits = Some(taken),
        }
        true
    }
}

/// A body that takes room as it arrives.
struct Counted {
    body: Body,
    room: Room,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let poll = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &poll
            && !self.room.take(frame.data_ref().map_or(0, Bytes::len))
        {
            return Poll::Ready(Some(Err(axum::Error::new("there is no room for this body"))));
        }
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn read_body(request: HttpRequest, limit: usize) -> Result<Request, ApiError> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/json" => {
            let bytes = Bytes::from_request(request, &()).await.map_err(|e| of_status(e.status(), limit))?;
            let flat: Flat = serde_json::from_slice(&bytes).map_err(|e| not_json(&e))?;
            of_fields(flat.0, None, None)
        }
        "multipart/form-data" => {
            let form = Multipart::from_request(request, &()).await;
            of_form(form.map_err(|_| ApiError::malformed("the content type of a form must name its boundary"))?, limit)
                .await
        }
        _ => Err(ApiError::media_type()),
    }
}

fn not_json(e: &serde_json::Error) -> ApiError {
    ApiError::malformed(match e.is_data() {
        true => format!("the body must be one JSON object of at most {MAX_FIELDS} fields"),
        false => format!("the body is not JSON; what is wrong is in line {}, column {}", e.line(), e.column()),
    })
}

fn of_status(status: StatusCode, limit: usize) -> ApiError {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(limit),
        _ => ApiError::malformed(
            "the body cannot be read; it ends too early, or it is no form of the boundary that it names",
        ),
    }
}

async fn of_form(mut form: Multipart, limit: usize) -> Result<Request, ApiError> {
    let bad = |e: MultipartError| of_status(e.status(), limit);
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
                return Err(ApiError::invalid(&name, format!("the field `{name}` was sent twice; send it once")));
            }
            continue;
        }
        if bytes.len() > MAX_TEXT {
            return Err(ApiError::invalid(&name, format!("the field `{name}` may have at most {MAX_TEXT} bytes")));
        }
        let text = String::from_utf8(bytes.to_vec())
            .map_err(|_| ApiError::malformed(format!("the field `{name}` is not a text")))?;
        if fields.insert(name.clone(), form_value(&name, text)).is_some() {
            return Err(ApiError::invalid(&name, format!("the field `{name}` was sent twice; send it once")));
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
        let field = e.path().to_string();
        let field = field.split('[').next().unwrap_or_default();
        ApiError::invalid(field, format!("the field `{field}` must be {}", wanted(field)))
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
    bytes
        .ok_or_else(|| ApiError::invalid(name, format!("the field `{name}` must be the base64 of a PNG, JPEG or WebP")))
}
