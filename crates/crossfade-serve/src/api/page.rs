//! The page and the page to try the interface, embedded in the binary.
use super::ApiError;
use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

/// The files of the page.
#[derive(RustEmbed)]
#[folder = "web/"]
struct Web;

/// The files of `/docs`.
#[derive(RustEmbed)]
#[folder = "docs/"]
struct Docs;

/// The page.
pub async fn index() -> Result<Response, ApiError> {
    served(Web::get("index.html").or_else(|| Docs::get("index.html")), "index.html")
}

/// The page to try the interface.
pub async fn docs() -> Result<Response, ApiError> {
    served(Docs::get("index.html"), "index.html")
}

/// A file of the page. Only names of embedded files are found; no path reaches the file system.
pub async fn file(Path(path): Path<String>) -> Result<Response, ApiError> {
    let found = match (path.strip_prefix("assets/"), path.strip_prefix("docs/")) {
        (Some(name), _) => Web::get(name),
        (None, Some(name)) => Docs::get(name),
        (None, None) => None,
    };
    served(found, &path)
}

fn served(file: Option<rust_embed::EmbeddedFile>, name: &str) -> Result<Response, ApiError> {
    let file = file.ok_or_else(|| ApiError::not_found("route; see /openapi.json"))?;
    let kind = match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "json" => "application/json",
        "woff2" => "font/woff2",
        "ico" => "image/x-icon",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    };
    let mut response = ([(header::CONTENT_TYPE, kind)], file.data.into_owned()).into_response();
    // A new version of the program is a new page.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
