//! How a connection is made.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;

use crate::server::ServerAddr;

/// Bytes both ways.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// What [`Dial::dial`] gives.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send + 'a>>;

/// Makes connections: TCP unless a test or a tunnel does it another way.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to `server` once. The caller limits the time.
    fn dial<'a>(&'a self, server: &'a ServerAddr) -> Dialing<'a>;
}

/// TCP with Spark's socket options: no delay, keep-alive (`spec/wire-framing.md` §8).
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial<'a>(&'a self, server: &'a ServerAddr) -> Dialing<'a> {
        Box::pin(async move {
            let mut last = None;
            for addr in tokio::net::lookup_host((server.host(), server.port())).await? {
                let socket =
                    if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                socket.set_nodelay(true)?;
                socket.set_keepalive(true)?;
                match socket.connect(addr).await {
                    Ok(stream) => return Ok(Box::new(stream) as Box<dyn Transport>),
                    Err(error) => last = Some(error),
                }
            }
            Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address")))
        })
    }
}
