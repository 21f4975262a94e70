//! Connections: a limited number, with time limits on what a peer may leave undone.
use crate::config::Limits;
use crate::metrics::Metrics;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::ServiceExt;
use tower::util::Oneshot;

/// How long open connections may go on after the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// One address other than loopback may have one part of so many of the connections.
const SHARE: usize = 2;
/// What a peer reads whose address has its share of the connections.
const REFUSED: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Accepts connections until `stop` says so.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
) {
    let most = limits.max_connections.max(1);
    let places = Arc::new(Semaphore::new(most));
    let shares = Shares::new(most.div_ceil(SHARE));
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
        let Some(share) = shares.take(peer.ip()) else {
            let _ = stream.try_write(REFUSED);
            continue;
        };
        let _ = stream.set_nodelay(true);
        let service = Routed { router: router.clone(), peer };
        let patient = Patient { stream, time: limits.times.write, deadline: None };
        let connection = builder(limits.times.header).serve_connection(TokioIo::new(patient), service);
        let connection = graceful.watch(connection);
        let metrics = metrics.clone();
        tokio::spawn(async move {
            metrics.connection(true);
            // A peer that hangs up or sends nonsense is its own problem.
            let _ = connection.await;
            metrics.connection(false);
            drop((share, place));
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
}

/// How connections are read. The headers of a request must be there in this time, also on a connection that is kept open.
pub fn builder(header: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(header).max_buf_size(64 << 10);
    builder
}

/// Counts the connections of each address, so that one peer does not take all. Loopback is exempt: a proxy on this machine
/// asks for everybody.
#[derive(Clone)]
struct Shares {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection that counts until it is dropped.
struct Share {
    shares: Shares,
    address: IpAddr,
}

impl Shares {
    fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// One more connection of an address; none if it has its share.
    fn take(&self, address: IpAddr) -> Option<Share> {
        let address = address.to_canonical();
        let mut counts = crate::lock(&self.counts);
        let count = counts.entry(address).or_default();
        if *count >= self.most && !address.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Share { shares: self.clone(), address })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = crate::lock(&self.shares.counts);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
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
    time: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    /// Passes on what a write said; a pending one becomes an error when its time is over.
    fn timed<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.deadline = None;
            return poll;
        }
        let until = Instant::now() + self.time;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(until)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_share_of_the_connections() {
        let shares = Shares::new(2);
        let [one, other, own] = [[10, 0, 0, 1], [10, 0, 0, 2], [127, 0, 0, 1]].map(IpAddr::from);
        let mut held: Vec<_> = (0..2).filter_map(|_| shares.take(one)).collect();
        assert!(held.len() == 2 && shares.take(one).is_none());
        assert!(shares.take(other).is_some(), "another address has its own");
        let many: Vec<_> = (0..9).filter_map(|_| shares.take(own)).collect();
        assert_eq!(many.len(), 9, "a proxy on this machine asks for everybody");
        held.pop();
        assert!(shares.take(one).is_some());
        drop((held, many));
        assert!(crate::lock(&shares.counts).is_empty(), "who is gone is forgotten");
    }
}
