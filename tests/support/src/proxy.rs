//! A TCP proxy that spoils what passes: it holds bytes back, lets them trickle, or cuts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What happens to bytes, in both directions and on all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toxic {
    /// They pass.
    Nothing,
    /// They are held back while the connection stays open, as by a network that is gone. They pass
    /// when this ends.
    BlackHole,
    /// So many pass at a time, then none for so long.
    Trickle {
        /// Bytes at a time; not zero.
        bytes: usize,
        /// Between two times.
        every: Duration,
    },
}

/// Passes connections on to one address. Dropping it closes everything.
#[derive(Debug)]
pub struct ToxicProxy {
    addr: SocketAddr,
    toxic: watch::Sender<Toxic>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    connections: AtomicUsize,
    /// Ends the connections that exist.
    cut: Mutex<CancellationToken>,
    closed: CancellationToken,
}

impl ToxicProxy {
    /// Listens on a free port of the loopback interface and passes everything on to `upstream`.
    pub async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let (toxic, spoiling) = watch::channel(Toxic::Nothing);
        let closed = CancellationToken::new();
        let cut = Mutex::new(closed.child_token());
        let shared = Arc::new(Shared { upstream, connections: AtomicUsize::new(0), cut, closed });
        tokio::spawn(accept(listener, shared.clone(), spoiling));
        Self { addr, toxic, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What happens to bytes from now on.
    pub fn set(&self, toxic: Toxic) {
        self.toxic.send_replace(toxic);
    }

    /// Closes the connections there are. New ones pass.
    pub fn cut(&self) {
        let next = self.shared.closed.child_token();
        let mut cut = self.shared.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *cut, next).cancel();
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for ToxicProxy {
    fn drop(&mut self) {
        self.shared.closed.cancel();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, spoiling: watch::Receiver<Toxic>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.closed.cancelled() => return,
        };
        let Ok((client, _)) = accepted else { continue };
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let cut = shared.cut.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let pass = pass(client, shared.upstream, spoiling.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = pass => {}
                () = cut.cancelled() => {}
            }
        });
    }
}

async fn pass(client: TcpStream, upstream: SocketAddr, spoiling: watch::Receiver<Toxic>) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("an option of TCP");
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        pump(from_client, to_server, spoiling.clone()),
        pump(from_server, to_client, spoiling),
    );
}

/// Passes one direction on until its end.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut spoiling: watch::Receiver<Toxic>,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut bytes).await {
            Ok(read) if read > 0 => read,
            // The other direction may go on.
            _ => return drop(to.shutdown().await),
        };
        let mut rest = &bytes[..read];
        while !rest.is_empty() {
            // It may have changed while nothing came.
            let passing = spoiling.wait_for(|toxic| *toxic != Toxic::BlackHole).await;
            let Ok(toxic) = passing.map(|toxic| *toxic) else {
                return; // the proxy is gone
            };
            let (now, later) = match toxic {
                Toxic::Trickle { bytes, .. } => rest.split_at(bytes.clamp(1, rest.len())),
                Toxic::Nothing | Toxic::BlackHole => (rest, &[][..]),
            };
            if to.write_all(now).await.is_err() {
                return;
            }
            rest = later;
            if let Toxic::Trickle { every, .. } = toxic {
                tokio::time::sleep(every).await;
            }
        }
    }
}
