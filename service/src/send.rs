//! The way out of a connection: `header | bytes | file segment`, in order.
//!
//! Files go by sendfile, on a thread that may block: a cold page is a disk read inside the call.
//! The socket itself never blocks; when the peer does not take more, the thread is given back.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::net::SendFlags;
use shuffle_protocol::index::Segment;
use tokio::io::Interest;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::timeout;

use crate::blocks::FileSegment;
use crate::metrics::Metrics;

/// How much one call on the disk's thread sends at most, so that a connection with a fast peer does
/// not keep the disk's share from others.
const BURST: u64 = 4 << 20;

/// One answer, ready to leave.
#[derive(Debug)]
pub struct Outgoing {
    /// The encoded frame, without its streamed bytes.
    pub header: Bytes,
    /// What follows it.
    pub body: Option<FileSegment>,
}

/// Why an answer did not leave whole; the connection is of no use after any of these.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The peer closed or reset the connection.
    #[error("the peer closed the connection: {0}")]
    PeerClosed(io::Error),
    /// The peer took nothing for the whole timeout.
    #[error("the peer took no byte for {} s", .0.as_secs())]
    PeerStalled(Duration),
    /// The file ended before the length that was promised in the header.
    #[error("{path} ended {missing} bytes early, after its length was promised")]
    Truncated {
        /// The file.
        path: String,
        /// Bytes that were promised and are not there.
        missing: u64,
    },
    /// Reading the file failed half-way.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// A bug here.
    #[error(transparent)]
    Panicked(#[from] crate::disk::DiskTaskPanicked),
}

/// Writes answers to one socket.
#[derive(Debug)]
pub struct Sender {
    socket: Arc<OwnedWriteHalf>,
    /// How long the peer may take nothing; `None` for any time.
    stall: Option<Duration>,
    metrics: Arc<Metrics>,
}

impl Sender {
    /// Writes to `socket`; gives up on a peer that takes no byte for `stall`.
    #[must_use]
    pub fn new(socket: OwnedWriteHalf, stall: Option<Duration>, metrics: Arc<Metrics>) -> Self {
        Self { socket: Arc::new(socket), stall, metrics }
    }

    /// Writes one answer whole.
    pub async fn send(&self, outgoing: Outgoing) -> Result<(), SendError> {
        let more = outgoing.body.as_ref().is_some_and(|body| body.segment.length > 0);
        self.send_bytes(outgoing.header, more).await?;
        match outgoing.body {
            Some(body) => self.send_file(body).await,
            None => Ok(()),
        }
    }

    /// `more` tells the kernel to wait for what follows instead of sending a packet of its own.
    async fn send_bytes(&self, mut bytes: Bytes, more: bool) -> Result<(), SendError> {
        let flags = if more { SendFlags::MORE | SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL };
        let stream = self.socket.as_ref().as_ref();
        while bytes.has_remaining() {
            self.writable().await?;
            let sent = stream.try_io(Interest::WRITABLE, || {
                rustix::net::send(stream, &bytes, flags).map_err(io::Error::from)
            });
            match sent {
                Ok(sent) => bytes.advance(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(SendError::PeerClosed(error)),
            }
        }
        Ok(())
    }

    async fn send_file(&self, body: FileSegment) -> Result<(), SendError> {
        let FileSegment { file, segment, path, disk, traffic } = body;
        let mut at = segment.offset;
        while let Some(file) = &file
            && at < segment.end()
        {
            self.writable().await?;
            let (file, socket) = (file.clone(), self.socket.clone());
            let part = Segment { offset: at, length: segment.end() - at };
            let (sent, outcome) = disk.run(move || burst(&socket, &file, part)).await?;
            at += sent;
            self.metrics.bytes_sent.inc_by(sent);
            match outcome {
                Burst::MoreToCome => {}
                Burst::EndOfFile => {
                    return Err(SendError::Truncated { path, missing: segment.end() - at });
                }
                Burst::Failed(error) if is_peers(&error) => {
                    return Err(SendError::PeerClosed(error));
                }
                Burst::Failed(error) => return Err(SendError::File { path, error }),
            }
        }
        traffic.add_chunk(segment.length);
        Ok(())
    }

    async fn writable(&self) -> Result<(), SendError> {
        let writable = self.socket.writable();
        let ready = match self.stall {
            None => writable.await,
            Some(stall) => {
                timeout(stall, writable).await.map_err(|_| SendError::PeerStalled(stall))?
            }
        };
        ready.map_err(SendError::PeerClosed)
    }
}

/// How a burst ended.
enum Burst {
    /// The peer takes no more for now, or the burst is long enough.
    MoreToCome,
    /// The file has no more bytes.
    EndOfFile,
    /// The system said no.
    Failed(io::Error),
}

/// Sends as much of `part` as the socket takes at once. May block on the disk, never on the peer.
fn burst(socket: &OwnedWriteHalf, file: impl AsFd, part: Segment) -> (u64, Burst) {
    let stream: &tokio::net::TcpStream = socket.as_ref();
    let mut offset = part.offset;
    let end = part.end().min(part.offset.saturating_add(BURST));
    while offset < end {
        let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
        // The call moves `offset`; a result of 0 means that the file is shorter than it was.
        let sent = stream.try_io(Interest::WRITABLE, || {
            rustix::fs::sendfile(stream, &file, Some(&mut offset), count).map_err(io::Error::from)
        });
        match sent {
            Ok(0) => return (offset - part.offset, Burst::EndOfFile),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (offset - part.offset, Burst::Failed(error)),
        }
    }
    (offset - part.offset, Burst::MoreToCome)
}

/// Whether an error of a call on both socket and file is the socket's.
fn is_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}
