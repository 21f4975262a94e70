//! Errors as OpenAI's clients read them.
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, and what to do.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// The parts of an error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// A sentence.
    pub message: String,
    /// The kind of error.
    #[serde(rename = "type")]
    pub kind: String,
    /// The field at fault.
    pub param: Option<String>,
    /// A short name.
    pub code: Option<String>,
}

/// An error with its status.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    detail: ErrorDetail,
    retry_after: Option<u64>,
}

/// The name of a field.
pub trait Param {
    /// The name.
    fn param(&self) -> &str;
}

impl Param for &str {
    fn param(&self) -> &str {
        self
    }
}

impl Param for &String {
    fn param(&self) -> &str {
        self
    }
}

/// Names of fields at the beginning of messages of the library, such as "eta needs the sampler ddim".
const OPTIONS: &[(&str, &str)] = &[
    ("eta ", "eta"),
    ("churn ", "churn"),
    ("blend ", "blend"),
    ("clip ", "clip"),
    ("guidance_interval ", "guidance_interval"),
    ("steps ", "steps"),
    ("rho ", "rho"),
];

impl ApiError {
    fn new(status: StatusCode, kind: &str, message: impl Into<String>, code: &str) -> Self {
        let detail = ErrorDetail { message: message.into(), kind: kind.into(), param: None, code: Some(code.into()) };
        Self { status, detail, retry_after: None }
    }

    fn of_request(status: StatusCode, message: impl Into<String>, code: &str) -> Self {
        Self::new(status, "invalid_request_error", message, code)
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> &str {
        &self.detail.message
    }

    /// Whether there is no such thing.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Whether it is our fault, for example that of a store that does not answer.
    pub(crate) fn is_ours(&self) -> bool {
        self.status == StatusCode::INTERNAL_SERVER_ERROR
    }

    fn with_param(mut self, param: &str) -> Self {
        self.detail.param = Some(param.into());
        self
    }

    /// A field that cannot be as it is.
    pub fn invalid(param: impl Param, message: impl Into<String>) -> Self {
        Self::of_request(StatusCode::UNPROCESSABLE_ENTITY, message, "invalid_value").with_param(param.param())
    }

    /// A class that the model does not know.
    pub fn unknown_class(param: &str, message: impl Into<String>) -> Self {
        Self::of_request(StatusCode::UNPROCESSABLE_ENTITY, message, "unknown_class").with_param(param)
    }

    /// A model that is not served.
    pub fn no_model(name: &str, known: &str) -> Self {
        let message = format!("no model is called {name:?}; this server has {known}");
        Self::of_request(StatusCode::UNPROCESSABLE_ENTITY, message, "model_not_found").with_param("model")
    }

    /// A refusal of the library: about the settings, or our fault.
    pub fn of_option(error: &crossfade::Error) -> Self {
        use crossfade::Error;
        // Messages of the library may name the checkpoint; its directory is nobody's business.
        let message = without_folders(&error.to_string());
        match error {
            Error::Request(_) | Error::Config(_) => {
                let class = message.contains("no class is called");
                let code = if class { "unknown_class" } else { "invalid_value" };
                let refused = Self::of_request(StatusCode::UNPROCESSABLE_ENTITY, message.clone(), code);
                let named = OPTIONS.iter().find(|(start, _)| message.starts_with(start)).map(|(_, param)| *param);
                match named.or(class.then_some("class")) {
                    Some(param) => refused.with_param(param),
                    None => refused,
                }
            }
            _ => Self::server(error),
        }
    }

    /// Our fault; the details go to the log only.
    pub fn server(error: &crossfade::Error) -> Self {
        crate::note(&format!("error: {error}"));
        Self::internal(&without_folders(&error.to_string()))
    }

    /// Our fault.
    pub fn internal(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message, "server_error")
    }

    /// A body that cannot be read.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::of_request(StatusCode::BAD_REQUEST, message, "malformed")
    }

    /// A body that is too large.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the request is larger than {limit} bytes");
        Self::of_request(StatusCode::PAYLOAD_TOO_LARGE, message, "too_large")
    }

    /// A body that came too slowly.
    pub fn too_late(time: std::time::Duration) -> Self {
        let message = format!("the request did not arrive within {} s; send it again", time.as_secs());
        Self::of_request(StatusCode::REQUEST_TIMEOUT, message, "timeout")
    }

    /// A body of another type.
    pub fn media_type() -> Self {
        let message = "the content type must be application/json or multipart/form-data";
        Self::of_request(StatusCode::UNSUPPORTED_MEDIA_TYPE, message, "content_type")
    }

    /// Nothing there.
    pub fn not_found(what: &str) -> Self {
        Self::of_request(StatusCode::NOT_FOUND, format!("there is no such {what}"), "not_found")
    }

    /// No token, or a wrong one.
    pub fn unauthorized() -> Self {
        let message = "a token is needed: send the header `Authorization: Bearer TOKEN`";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message, "invalid_api_key")
    }

    /// A page of another site asks.
    pub fn other_site() -> Self {
        let message = "requests from pages of other sites are refused; a proxy must be named by --public-url";
        Self::new(StatusCode::FORBIDDEN, "permission_error", message, "other_site")
    }

    /// The name under which this server was asked is not its own.
    pub fn other_host() -> Self {
        let message = "this server was asked under a name that it does not know; use the address that it listens on, or \
                       start it with --public-url for this name or with --token-file";
        Self::new(StatusCode::FORBIDDEN, "permission_error", message, "other_site")
    }

    /// Come back later.
    pub fn busy(message: impl Into<String>, code: &str, seconds: u64) -> Self {
        let busy = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message, code);
        Self { retry_after: Some(seconds.max(1)), ..busy }
    }

    /// The server stops.
    pub fn stopping() -> Self {
        let message = "the server is stopping; ask again in a moment";
        let stopping = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message, "stopping");
        Self { retry_after: Some(5), ..stopping }
    }

    /// The job takes longer than the request may wait.
    pub fn too_slow(id: &str) -> Self {
        let message = format!("the pictures are not done yet; the job goes on: /v1/jobs/{id}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", message, "timeout")
    }

    /// The job ended without pictures.
    pub fn of_job(state: &str, message: &str) -> Self {
        match state {
            "cancelled" => Self::of_request(StatusCode::CONFLICT, "the job was cancelled", "cancelled"),
            _ => Self::internal(message),
        }
    }
}

/// A message without the directories of files that it names.
fn without_folders(message: &str) -> String {
    let word = |word: &str| match word.rfind('/').filter(|_| word.starts_with('/') || word.starts_with("./")) {
        Some(at) => word[at + 1..].to_string(),
        None => word.to_string(),
    };
    message.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

impl From<crossfade::Error> for ApiError {
    fn from(error: crossfade::Error) -> Self {
        Self::server(&error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { error: self.detail })).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// The answer to a method that a route does not have.
pub async fn wrong_method() -> ApiError {
    let message = "this route has no such method; see /openapi.json";
    ApiError::of_request(StatusCode::METHOD_NOT_ALLOWED, message, "method")
}

/// The answer to an unknown route.
pub async fn no_route() -> ApiError {
    ApiError::not_found("route; see /openapi.json")
}
