//! A server that is given the bytes of connections, without a network: for tests and fuzzing.
use crate::api::ApiError;
use crate::api::body::Bodies;
use crate::config::{Limits, ServeConfig, Times};
use crate::job::{JobSpec, Kind};
use crate::models::Library;
use crate::{assemble, failed, net, store};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use crossfade::engine::Device;
use crossfade::{Error, Result};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
pub struct Front {
    library: Arc<Library>,
    limits: Limits,
    router: Router,
    runtime: tokio::runtime::Runtime,
}

impl Front {
    /// Opens the models and the store.
    pub fn start(mut config: ServeConfig, device: &Device) -> Result<Self> {
        let library = Arc::new(Library::open(std::mem::take(&mut config.models), config.memory, device)?);
        let store = store::open(&config.store)?;
        let (_, _, router) = assemble(&config, library.clone(), store, config.bind)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed("starting the threads of the server"))?;
        Ok(Self { library, limits: config.limits, router, runtime })
    }

    /// What a peer reads that sends `bytes` and nothing more.
    pub fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let written = Arc::new(Mutex::default());
        let stream = Stream { input: bytes.to_vec(), at: 0, written: written.clone() };
        let service = net::Routed { router: self.router.clone(), peer: SocketAddr::from(([127, 0, 0, 1], 1)) };
        // The end of the input must not end what is being answered.
        let serve =
            || net::builder(Times::default().header).half_close(true).serve_connection(TokioIo::new(stream), service);
        // An error is that of a peer that hangs up or sends nonsense.
        let _ = self.runtime.block_on(async { serve().await });
        std::mem::take(&mut crate::lock(&written))
    }

    /// The job that a request asks for: its content type and its body.
    pub fn prepare(&self, kind: Kind, media: &str, bytes: &[u8]) -> Result<JobSpec> {
        let refused = |e: ApiError| Error::Request(e.message().into());
        let request = Request::builder().header(header::CONTENT_TYPE, media).body(Body::from(bytes.to_vec()));
        let request = request.map_err(|e| Error::Request(e.to_string()))?;
        let request = self.runtime.block_on(Bodies::new(&self.limits).read(request)).map_err(refused)?.0;
        Ok(request.prepare(kind, &self.library, &self.limits).map_err(refused)?.spec)
    }
}

/// A connection in memory.
struct Stream {
    input: Vec<u8>,
    at: usize,
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = buffer.remaining().min(self.input.len() - self.at);
        buffer.put_slice(&self.input[self.at..self.at + count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        crate::lock(&self.written).extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
