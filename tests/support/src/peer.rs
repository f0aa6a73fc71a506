//! A shuffle service that follows a script: it expects requests one by one and answers as the test
//! says. For tests of whoever talks to a service.
//!
//! ```no_run
//! # use shuffle_protocol::message::{Message, RegisterDriver, ShuffleServiceHeartbeat};
//! # use test_support::peer::Peer;
//! # async fn script() {
//! let mut peer = Peer::bind().await;
//! // … the client under test connects to peer.addr() …
//! let mut driver = peer.accept().await;
//! let registration = RegisterDriver { app_id: "app".into(), heartbeat_timeout_ms: 120_000 };
//! driver.expect(registration).await.acknowledge().await;
//! driver.expect_one_way(ShuffleServiceHeartbeat { app_id: "app".into() }).await;
//! # }
//! ```
//!
//! Over TCP ([`Peer::bind`]) or in memory ([`Peer::in_memory`]), which goes with a stopped clock: no
//! byte is ever on its way in the kernel while the clock jumps ahead.
//!
//! Everything panics with what was expected and what came instead.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use shuffle_protocol::RequestId;
use shuffle_protocol::frame::{Event, Frame, Splitter, StreamChunkId};
use shuffle_protocol::message::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Bytes that an in-memory connection holds in each direction.
const MEMORY_BUFFER: usize = 64 * 1024;

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Listens, and hands out the connections as they come.
#[derive(Debug)]
pub struct Peer {
    listener: Listener,
    accepted: usize,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Memory(mpsc::UnboundedReceiver<DuplexStream>),
}

impl Peer {
    /// Listens on a free port of the loopback interface.
    pub async fn bind() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        Self { listener: Listener::Tcp(listener), accepted: 0 }
    }

    /// Listens without a socket. The [`Line`] connects to it.
    #[must_use]
    pub fn in_memory() -> (Self, Line) {
        let (connect, connections) = mpsc::unbounded_channel();
        let peer = Self { listener: Listener::Memory(connections), accepted: 0 };
        (peer, Line { connect, down: Arc::default(), dialed: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Panics
    /// In memory there is no address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().expect("it is bound"),
            Listener::Memory(_) => panic!("a peer in memory has no address"),
        }
    }

    /// Waits for the next connection. Cancel safe.
    pub async fn accept(&mut self) -> Conversation {
        let socket: Box<dyn Socket> = match &mut self.listener {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await.expect("a listener that listens");
                stream.set_nodelay(true).expect("an option of TCP");
                Box::new(stream)
            }
            Listener::Memory(connections) => match connections.recv().await {
                Some(stream) => Box::new(stream),
                None => pending().await, // nobody is left who could connect
            },
        };
        self.accepted += 1;
        Conversation {
            socket,
            received: BytesMut::new(),
            splitter: Splitter::new(1 << 30),
            fragment: usize::MAX,
        }
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted
    }
}

/// Connects to a [`Peer`] in memory; clones do the same.
#[derive(Debug, Clone)]
pub struct Line {
    connect: mpsc::UnboundedSender<DuplexStream>,
    down: Arc<AtomicBool>,
    dialed: Arc<AtomicUsize>,
}

impl Line {
    /// Connects, or is refused while the line is down or the peer is gone.
    ///
    /// # Errors
    /// Connection refused.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        self.dialed.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (here, there) = duplex(MEMORY_BUFFER);
        self.connect.send(there).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(here)
    }

    /// While down, connecting is refused. Connections that exist stay.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// How often [`Line::connect`] was called.
    #[must_use]
    pub fn dialed(&self) -> usize {
        self.dialed.load(Ordering::SeqCst)
    }
}

/// One connection, at the service's end. Dropping it closes it.
pub struct Conversation {
    socket: Box<dyn Socket>,
    received: BytesMut,
    splitter: Splitter,
    fragment: usize,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("unread", &self.received.len()).finish_non_exhaustive()
    }
}

impl Conversation {
    /// From now on sends at most `size` bytes at a time.
    #[must_use]
    pub fn fragmented(mut self, size: usize) -> Self {
        self.fragment = size;
        self
    }

    /// The next frame, or `None` when the client has closed the connection.
    ///
    /// # Panics
    /// What came is no frame, or carries streamed bytes, which no client sends to these scripts.
    pub async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            match self.splitter.next(&mut self.received).expect("a frame") {
                Some(Event::Frame(frame)) => return Some(frame),
                Some(Event::Data { .. }) => panic!("a client uploads nothing"),
                None => match self.socket.read_buf(&mut self.received).await {
                    Ok(0) | Err(_) => {
                        assert!(self.received.is_empty(), "closed within a frame");
                        return None;
                    }
                    Ok(_) => {}
                },
            }
        }
    }

    /// The next frame.
    pub async fn expect_frame(&mut self) -> Frame {
        self.next_frame().await.expect("the client closed the connection where a frame belongs")
    }

    /// The next frame, which is an RPC.
    pub async fn expect_rpc(&mut self) -> Asked<'_> {
        match self.expect_frame().await {
            Frame::RpcRequest { id, body } => {
                let message = Message::decode(body).expect("a message");
                Asked { conversation: self, id, message }
            }
            other => panic!("expected an RPC, got {other:?}"),
        }
    }

    /// The next frame, which is this message as an RPC.
    pub async fn expect(&mut self, message: impl Into<Message>) -> Asked<'_> {
        let asked = self.expect_rpc().await;
        assert_eq!(asked.message, message.into());
        asked
    }

    /// The next frame, which is this message and wants no answer.
    pub async fn expect_one_way(&mut self, message: impl Into<Message>) {
        match self.expect_frame().await {
            Frame::OneWayMessage { body } => {
                assert_eq!(Message::decode(body), Ok(message.into()));
            }
            other => panic!("expected a one-way message, got {other:?}"),
        }
    }

    /// The next frame, which asks for a chunk.
    pub async fn expect_chunk_request(&mut self) -> StreamChunkId {
        match self.expect_frame().await {
            Frame::ChunkFetchRequest(chunk) => chunk,
            other => panic!("expected a ChunkFetchRequest, got {other:?}"),
        }
    }

    /// The next frame, which asks for a stream by this name.
    pub async fn expect_stream_request(&mut self) -> String {
        match self.expect_frame().await {
            Frame::StreamRequest { name } => name,
            other => panic!("expected a StreamRequest, got {other:?}"),
        }
    }

    /// Waits until the client closes the connection.
    pub async fn expect_close(&mut self) {
        let frame = self.next_frame().await;
        assert_eq!(frame, None, "the client still talks");
    }

    /// Sends a frame; the bytes that it announces go with [`Conversation::send_bytes`].
    pub async fn send(&mut self, frame: &Frame) {
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        self.send_bytes(&out).await;
    }

    /// Sends bytes as they are. A client that has closed the connection is no failure: the script
    /// finds that out where it expects something.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.fragment.max(1)) {
            if self.socket.write_all(piece).await.is_err() || self.socket.flush().await.is_err() {
                return;
            }
            if self.fragment < usize::MAX {
                // Lets the client see the piece alone.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Sends one byte every `every`.
    pub async fn trickle(&mut self, bytes: &[u8], every: Duration) {
        for byte in bytes {
            tokio::time::sleep(every).await;
            self.send_bytes(std::slice::from_ref(byte)).await;
        }
    }

    /// Sends a whole chunk.
    pub async fn send_chunk(&mut self, chunk: StreamChunkId, bytes: &[u8]) {
        self.send(&Frame::ChunkFetchSuccess { chunk, length: bytes.len() as u64 }).await;
        self.send_bytes(bytes).await;
    }

    /// Sends a whole stream.
    pub async fn send_stream(&mut self, name: &str, bytes: &[u8]) {
        let length = bytes.len() as u64;
        self.send(&Frame::StreamResponse { name: name.to_owned(), length }).await;
        self.send_bytes(bytes).await;
    }
}

/// An RPC that waits for its answer.
#[derive(Debug)]
pub struct Asked<'a> {
    conversation: &'a mut Conversation,
    id: RequestId,
    message: Message,
}

impl Asked<'_> {
    /// What was asked.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// For an answer that comes later, or never.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Answers with nothing, which means done.
    pub async fn acknowledge(self) {
        self.conversation.send(&Frame::RpcResponse { id: self.id, body: Bytes::new() }).await;
    }

    /// Answers with a message.
    pub async fn answer(self, message: impl Into<Message>) {
        let body = message.into().encode();
        self.conversation.send(&Frame::RpcResponse { id: self.id, body }).await;
    }

    /// Answers that it cannot be.
    pub async fn refuse(self, error: &str) {
        let error = error.to_owned();
        self.conversation.send(&Frame::RpcFailure { id: self.id, error }).await;
    }
}
