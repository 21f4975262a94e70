//! Reads the rest of what a peer sends after its request was answered.
//!
//! A peer that is still sending when the connection closes does not see the answer: the system tells it of the broken
//! connection first. So refusals of large requests would be lost.
use super::App;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// Bytes that are read and forgotten, or as many as a body may have.
const DISCARDED: usize = 64 << 20;

/// Answers when the peer has sent everything, within bounds.
pub async fn read_to_the_end(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let waits = request.headers().contains_key(header::EXPECT);
    let (head, body) = request.into_parts();
    let mut shared = Shared(Arc::new(Mutex::new(Reading { body, begun: false })));
    let response = next.run(Request::from_parts(head, Body::new(shared.clone()))).await;
    // Who expects to be told to go on has sent nothing. Who sent too slowly has had its time.
    let nothing_sent = waits && !crate::lock(&shared.0).begun;
    if !nothing_sent && response.status() != StatusCode::REQUEST_TIMEOUT {
        let rest = shared.discard(DISCARDED.max(app.limits.max_body));
        let _ = tokio::time::timeout(app.limits.times.body, rest).await;
    }
    response
}

struct Reading {
    body: Body,
    begun: bool,
}

/// A body that can be read on when its request is gone.
#[derive(Clone)]
struct Shared(Arc<Mutex<Reading>>);

impl Shared {
    async fn discard(&mut self, most: usize) {
        let mut read = 0;
        while let Some(Ok(frame)) = self.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > most {
                return;
            }
        }
    }
}

impl hyper::body::Body for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut reading = crate::lock(&self.0);
        reading.begun = true;
        Pin::new(&mut reading.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        crate::lock(&self.0).body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        crate::lock(&self.0).body.size_hint()
    }
}
