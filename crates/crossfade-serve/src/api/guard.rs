//! Who may ask, from where, and how often; and what every answer carries.
use super::{ApiError, App, Client};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The tokens of those who may ask, as digests.
pub struct Tokens(Vec<(String, [u8; 32])>);

impl Tokens {
    pub fn new(tokens: &[(String, String)]) -> Self {
        Self(tokens.iter().map(|(name, token)| (name.clone(), digest(token.as_bytes()))).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of a token. The time it takes depends neither on the token nor on where it differs: digests of equal
    /// length are compared completely, and with all known ones.
    fn name(&self, token: &[u8]) -> Option<&str> {
        let given = digest(token);
        let mut found = None;
        for (name, known) in &self.0 {
            let different = known.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(different) == 0 {
                found = Some(name.as_str());
            }
        }
        found
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A bucket of requests for each client, which fills up over a minute.
pub struct Rates {
    per_minute: f64,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

/// Clients that are remembered.
const MAX_BUCKETS: usize = 10_000;

impl Rates {
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute: f64::from(per_minute.max(1)), buckets: Mutex::default() }
    }

    /// Takes one request; an error says when to come back.
    pub fn take(&self, client: &str) -> Result<(), ApiError> {
        let mut buckets = crate::lock(&self.buckets);
        let now = Instant::now();
        if buckets.len() > MAX_BUCKETS {
            // Full buckets are as good as none.
            let filling = |(left, at): &mut (f64, Instant)| {
                *left + at.elapsed().as_secs_f64() * self.per_minute / 60.0 < self.per_minute
            };
            buckets.retain(|_, bucket| filling(bucket));
        }
        let (left, at) = buckets.entry(client.into()).or_insert((self.per_minute, now));
        *left = (*left + (now - *at).as_secs_f64() * self.per_minute / 60.0).min(self.per_minute);
        *at = now;
        if *left >= 1.0 {
            *left -= 1.0;
            return Ok(());
        }
        let seconds = ((1.0 - *left) * 60.0 / self.per_minute).ceil() as u64;
        let message = format!("a client may ask {} times a minute; ask again in {seconds} s", self.per_minute);
        Err(ApiError::busy(message, "rate_limit_exceeded", seconds))
    }
}

/// Finds out who asks.
pub async fn identify(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = if app.tokens.is_empty() {
        Client { name: peer.ip().to_string(), only_own: false }
    } else {
        let token = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let token = token.and_then(|value| match value.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(token),
            _ => None,
        });
        match token.and_then(|token| app.tokens.name(token)) {
            Some(name) => Client { name: name.into(), only_own: true },
            None => return ApiError::unauthorized().into_response(),
        }
    };
    request.extensions_mut().insert(client);
    next.run(request).await
}

/// Refuses pages of other sites: browsers send their `Origin`, and a name that was rebound to this address is in `Host`.
pub async fn same_site(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = text(headers, header::HOST.as_str()).or_else(|| request.uri().authority().map(|a| a.as_str()));
    // Behind a proxy the page comes from the public address, and the proxy may pass its name on as `Host` or not.
    let public = app.public_url.as_deref().and_then(authority);
    let is_public = |name: &str| public.is_some_and(|public| public.eq_ignore_ascii_case(name));
    if app.tokens.is_empty() && !host.is_none_or(|host| is_own_host(host, app.address) || is_public(host)) {
        return ApiError::other_host().into_response();
    }
    if let Some(origin) = text(headers, header::ORIGIN.as_str()) {
        let from = authority(origin);
        if from.is_none() || (from != host && !from.is_some_and(is_public)) {
            return ApiError::other_site().into_response();
        }
    }
    next.run(request).await
}

/// The host of an address, with its port if there is one.
fn authority(url: &str) -> Option<&str> {
    url.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(rest))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether a `Host` is this server and no name that somebody pointed here. Addresses cannot be rebound.
fn is_own_host(host: &str, address: SocketAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_address = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == address.ip());
    // Behind `0.0.0.0` any address of the machine is its own.
    let any = address.ip().is_unspecified() && name.parse::<IpAddr>().is_ok();
    is_address || any || name.eq_ignore_ascii_case("localhost")
}

/// The content security policy of every answer.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                          connect-src 'self'; font-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// Headers of every answer.
pub async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let fixed = [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Counts answers.
pub async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let response = next.run(request).await;
    app.metrics.answer(response.status().as_u16(), began.elapsed());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_and_nothing_else() {
        let tokens = Tokens::new(&[("a".into(), "0123456789abcdef".into()), ("b".into(), "fedcba9876543210".into())]);
        assert_eq!(tokens.name(b"fedcba9876543210"), Some("b"));
        assert_eq!(tokens.name(b"fedcba987654321"), None);
        assert_eq!(tokens.name(b""), None);
    }

    #[test]
    fn names_that_were_pointed_here_are_refused() {
        let own = SocketAddr::from(([127, 0, 0, 1], 7860));
        for host in ["127.0.0.1:7860", "localhost:7860", "LOCALHOST", "[::1]:7860", "127.0.0.1"] {
            assert!(is_own_host(host, own), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7860", "10.0.0.1", ""] {
            assert!(!is_own_host(host, own), "{host}");
        }
        assert!(is_own_host("10.0.0.1:80", SocketAddr::from(([0, 0, 0, 0], 80))));
    }

    #[test]
    fn a_bucket_empties_and_says_when_to_come_back() {
        let rates = Rates::new(3);
        assert!((0..3).all(|_| rates.take("a").is_ok()));
        assert!(rates.take("a").is_err());
        assert!(rates.take("b").is_ok(), "another client has its own bucket");
    }
}
