//! Connections: a limited number, with time limits on what a peer may leave undone.
use crate::metrics::Metrics;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep};
use tower::ServiceExt;
use tower::util::Oneshot;

/// The headers of a request must be there in this time, also on a connection that is kept open.
const HEADER_TIME: Duration = Duration::from_secs(20);
/// A peer that reads nothing for this long is gone.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// How long open connections may go on after the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Accepts connections until `stop` says so.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    connections: usize,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(connections.max(1)));
    let graceful = GracefulShutdown::new();
    loop {
        // Without a free place the next peer waits in the backlog of the system.
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, peer)) = accepted else {
            // For example too many open files: a moment later there may be some.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = Routed { router: router.clone(), peer };
        let connection = builder().serve_connection(TokioIo::new(Patient::new(stream)), service);
        let connection = graceful.watch(connection);
        let metrics = metrics.clone();
        tokio::spawn(async move {
            metrics.connection(true);
            // A peer that hangs up or sends nonsense is its own problem.
            let _ = connection.await;
            metrics.connection(false);
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
}

/// How connections are read.
pub fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(64 << 10);
    builder
}

/// The routes, for the requests of one peer.
pub struct Routed {
    /// The routes.
    pub router: Router,
    /// The peer.
    pub peer: SocketAddr,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Routed {
    type Response = Response;
    type Error = Infallible;
    type Future = Oneshot<Router, Request>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo::<SocketAddr>(self.peer));
        self.router.clone().oneshot(request)
    }
}

/// A connection on which a write that makes no progress fails after a while, so that a peer that does not read frees its
/// place.
struct Patient {
    stream: TcpStream,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream) -> Self {
        Self { stream, deadline: None }
    }

    /// Passes on what a write said; a pending one becomes an error when its time is over.
    fn timed<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.deadline = None;
            return poll;
        }
        let deadline =
            self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_TIME)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
