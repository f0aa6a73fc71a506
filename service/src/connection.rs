//! One connection: bytes in, frames to the [`Session`], answers out in order.
//!
//! One task a connection. Reading and sending go on side by side within it, joined by a queue of
//! answers; a block's file is opened when its answer is at the front, so a connection holds one file
//! open whatever it asked for.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use prometheus_client::metrics::gauge::Gauge;
use shuffle_protocol::codec::{FrameCodec, ReadError};
use shuffle_protocol::frame::{Event, Foreign, Frame, FrameError};
use shuffle_protocol::message::{BlocksRemoved, Message};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::StreamExt as _;
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::blocks::{BlockError, Blocks};
use crate::inspector::Inspector;
use crate::metrics::{ErrorKind, Metrics};
use crate::send::{Outgoing, SendError, Sender};
use crate::session::{Answer, AskedBy, Session, Shared, Step};
use crate::store::{Durability, Journal, SETTLE};
use crate::streams::{Block, Chunk};

/// Answers a connection may have waiting before the service stops reading from it. Far more than this
/// many chunks are never under way for a client that reads what it asked for.
const QUEUE: usize = 16 * 1024;
/// Bytes of memory for them. A chunk that waits is a few numbers; an answer in words may be large, and
/// must not pile up for a peer that asks and does not read. One that is larger waits alone.
const QUEUE_BYTES: usize = 16 << 20;

/// How long a peer may take to close its half after the last answer.
const LINGER: Duration = Duration::from_secs(2);

/// What every connection needs besides its socket.
#[derive(Debug)]
pub struct Environment {
    /// What sessions share.
    pub shared: Arc<Shared>,
    /// Where blocks are found.
    pub blocks: Arc<Blocks>,
    /// Says when a registration is durable.
    pub journal: Arc<Journal>,
    /// Looks at directories that were registered.
    pub inspector: Arc<Inspector>,
    /// The largest frame a client may send in one piece.
    pub frame_limit: usize,
    /// A connection without a byte and without work for this long is closed; `None` never.
    pub idle: Option<Duration>,
    /// Changes with every application that expires.
    pub expiries: watch::Receiver<()>,
    /// The service is stopping: finish what was asked for and close.
    pub draining: CancellationToken,
}

/// A connection that was accepted and has not said who it is. It can only be admitted.
#[derive(Debug)]
pub struct Unauthenticated {
    socket: TcpStream,
    peer: SocketAddr,
}

impl Unauthenticated {
    /// A fresh connection.
    #[must_use]
    pub fn new(socket: TcpStream, peer: SocketAddr) -> Self {
        Self { socket, peer }
    }

    /// Lets anybody in, as Spark does with `spark.authenticate` off.
    #[must_use]
    pub fn admit_anyone(self) -> Connection {
        Connection { socket: self.socket, peer: self.peer }
    }
}

/// A connection that may ask for anything.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
}

/// Why a connection ended.
#[derive(Debug)]
enum End {
    /// The peer closed it between two frames, and everything it asked for was sent.
    Closed,
    /// Nothing happened on it for the idle time.
    Idle,
    /// The service stops.
    Draining,
    /// The session said so, after its last answer.
    Refused,
    /// Reading failed.
    Read(ReadError),
    /// Sending failed.
    Send(SendError),
}

impl Connection {
    /// Serves the connection to its end.
    pub async fn serve(self, env: Arc<Environment>) {
        let metrics = env.shared.metrics.clone();
        metrics.connections.inc();
        let _active = ActiveConnection::new(&metrics);
        let peer = self.peer;
        if let Err(error) = self.socket.set_nodelay(true) {
            debug!(%peer, %error, "Cannot switch on TCP_NODELAY");
        }
        debug!(%peer, "Connection");
        let end = self.run(&env).await;
        env.report(peer, &end);
    }

    async fn run(self, env: &Arc<Environment>) -> End {
        let (read, write) = self.socket.into_split();
        let activity = Arc::new(Activity::new());
        let source = FramedRead::new(
            Metered { inner: read, activity: activity.clone() },
            FrameCodec::new(env.frame_limit),
        );
        let session = Session::new(self.peer, env.shared.clone());
        let (answers, queue) = mpsc::channel(QUEUE);
        let sender = Sender::new(write, env.idle, env.shared.metrics.clone());
        let writing = write_answers(sender, queue, env, &activity);
        tokio::pin!(writing);
        let reading = read_frames(source, session, answers, env);
        tokio::pin!(reading);
        let first = tokio::select! {
            end = &mut reading => end,
            failed = &mut writing => return match failed {
                Some(error) => End::Send(error),
                // The last answer is out, and the peer sees that there are no more.
                None => timeout(LINGER, reading).await.unwrap_or(End::Refused),
            },
            () = activity.idle(env.idle) => return End::Idle,
        };
        match first {
            // What was asked for before is still sent: a client may close its half and listen.
            End::Closed | End::Refused | End::Draining => writing.await.map_or(first, End::Send),
            other => other,
        }
    }
}

/// Reads frames until the connection ends, and queues what follows from them. The queue ends with
/// it, because it owns the sending half.
async fn read_frames(
    mut source: FramedRead<Metered, FrameCodec>,
    mut session: Session,
    answers: mpsc::Sender<Waiting>,
    env: &Environment,
) -> End {
    let mut expiries = env.expiries.clone();
    let room = Arc::new(Semaphore::new(QUEUE_BYTES));
    loop {
        let event = tokio::select! {
            event = source.next() => event,
            Ok(()) = expiries.changed() => {
                session.handle_expiry();
                continue;
            }
            () = env.draining.cancelled() => {
                drop(answers);
                discard(source).await;
                return End::Draining;
            }
        };
        let frame = match event {
            None => return End::Closed,
            Some(Err(error)) => return End::Read(error),
            // Bytes behind a frame that the session refused or ignored: nobody wants them.
            Some(Ok(Event::Data { .. })) => continue,
            Some(Ok(Event::Frame(frame))) => frame,
        };
        let now = Instant::now();
        let timed = Timed::of(&frame);
        let asked = weight(&frame);
        let step = session.handle_frame(frame, now.into_std());
        timed.observe(&env.shared.metrics, now.elapsed());
        let (answer, close) = match step {
            Step::Done => continue,
            Step::Answer(answer) => (Some(answer), false),
            Step::Close(answer) => (answer, true),
        };
        if let Some(answer) = answer {
            let in_transfer = matches!(answer, Answer::Chunk { .. })
                .then(|| InTransfer::new(&env.shared.metrics.chunks_in_transfer));
            let held = match &answer {
                Answer::Frame(frame) | Answer::Registered { frame, .. } => weight(frame),
                // The rest of the work is still in the words of the request.
                Answer::Chunk { .. } | Answer::Remove(..) | Answer::Diagnose(..) => asked,
            };
            let bytes = u32::try_from(held.min(QUEUE_BYTES)).unwrap_or(u32::MAX);
            let room = room.clone().acquire_many_owned(bytes).await;
            let room = room.expect("the semaphore is never closed");
            let waiting = Waiting { answer, _room: room, _in_transfer: in_transfer };
            if answers.send(waiting).await.is_err() {
                return End::Closed; // the sending side ended, and says why
            }
        }
        if close {
            drop(answers);
            discard(source).await;
            return End::Refused;
        }
    }
}

/// Takes what the peer still sends. A socket that is closed over unread bytes is reset, and the reset
/// would overtake the last answers.
async fn discard(mut source: FramedRead<Metered, FrameCodec>) {
    while let Some(Ok(_)) = source.next().await {}
}

/// An answer that waits for its turn, or is being sent.
struct Waiting {
    answer: Answer,
    _room: OwnedSemaphorePermit,
    _in_transfer: Option<InTransfer>,
}

/// Bytes of memory that a frame holds besides itself.
fn weight(frame: &Frame) -> usize {
    match frame {
        Frame::RpcRequest { body, .. }
        | Frame::RpcResponse { body, .. }
        | Frame::OneWayMessage { body }
        | Frame::MergedBlockMetaSuccess { body, .. } => body.len(),
        Frame::UploadStream { meta, .. } => meta.len(),
        Frame::RpcFailure { error, .. } | Frame::ChunkFetchFailure { error, .. } => error.len(),
        Frame::StreamRequest { name } | Frame::StreamResponse { name, .. } => name.len(),
        Frame::StreamFailure { name, error } => name.len() + error.len(),
        Frame::MergedBlockMetaRequest { app_id, .. } => app_id.as_str().len(),
        Frame::ChunkFetchRequest(_) | Frame::ChunkFetchSuccess { .. } => 0,
    }
}

/// Works off the queue until it ends, or until sending fails.
async fn write_answers(
    sender: Sender,
    mut queue: mpsc::Receiver<Waiting>,
    env: &Environment,
    activity: &Activity,
) -> Option<SendError> {
    loop {
        activity.set_busy(false);
        let Waiting { answer, _room, _in_transfer } = queue.recv().await?;
        activity.set_busy(true);
        let sent = env.answer(&sender, answer).await;
        activity.touch();
        if let Err(error) = sent {
            return Some(error);
        }
    }
}

impl Environment {
    async fn answer(&self, sender: &Sender, answer: Answer) -> Result<(), SendError> {
        let now = Instant::now().into_std();
        let frame = match answer {
            Answer::Frame(frame) => frame,
            Answer::Registered { frame, position, look_at } => {
                // Acknowledged means on disk; where that cannot be, readiness and metrics say so.
                let settled = self.journal.settled_within(position, SETTLE).await;
                if settled == Durability::MemoryOnly {
                    self.shared.metrics.store_writable.set(0);
                }
                if let Some((app_id, dirs)) = look_at {
                    tokio::spawn(self.inspector.clone().inspect(app_id, dirs));
                }
                frame
            }
            Answer::Chunk { by, chunk } => return self.send_chunk(sender, by, &chunk).await,
            Answer::Remove(id, message) => match self.blocks.remove(message, now).await {
                Ok(num_removed_blocks) => Frame::RpcResponse {
                    id,
                    body: Message::from(BlocksRemoved { num_removed_blocks }).encode(),
                },
                Err(error) => Frame::RpcFailure { id, error: self.told(&error) },
            },
            Answer::Diagnose(id, message) => match self.blocks.diagnose(message, now).await {
                Ok(cause) => Frame::RpcResponse { id, body: Message::from(cause).encode() },
                Err(error) => Frame::RpcFailure { id, error: self.told(&error) },
            },
        };
        sender.send(Outgoing { header: encode(&frame), body: None }).await
    }

    async fn send_chunk(
        &self,
        sender: &Sender,
        by: AskedBy,
        chunk: &Chunk,
    ) -> Result<(), SendError> {
        let metrics = &self.shared.metrics;
        let opened = self.blocks.open(chunk, Instant::now().into_std()).await;
        let (frame, body) = match opened {
            Ok(body) => match by.accept(body.segment.length) {
                Ok(frame) => (frame, Some(body)),
                Err(refusal) => {
                    metrics.error(ErrorKind::BadRequest);
                    (refusal, None)
                }
            },
            Err(error) => {
                metrics.error(error.kind);
                let key = (chunk.app_id.clone(), error.kind.as_str());
                let silenced = self.shared.app_log.allow(key, Instant::now().into_std());
                if let Some(silenced) = silenced {
                    warn!(app = %chunk.app_id, exec = %chunk.exec_id, block = ?chunk.block,
                        failure = %error.failure, silenced, "Cannot serve a block");
                } else {
                    debug!(app = %chunk.app_id, exec = %chunk.exec_id, block = ?chunk.block,
                        failure = %error.failure, "Cannot serve a block");
                }
                (by.refuse(&error.failure), None)
            }
        };
        let served = body.is_some();
        sender.send(Outgoing { header: encode(&frame), body }).await?;
        if served {
            metrics.chunks_sent.inc();
            metrics.blocks_sent.inc_by(blocks_in(chunk.block));
        }
        Ok(())
    }

    fn told(&self, error: &BlockError) -> String {
        self.shared.metrics.error(error.kind);
        error.failure.to_string()
    }

    /// One line for a connection that ended otherwise than it should.
    fn report(&self, peer: SocketAddr, end: &End) {
        let metrics = &self.shared.metrics;
        let now = Instant::now().into_std();
        // A peer that speaks another protocol is told from one that has its frames wrong.
        let mut sort = None;
        let (kind, why): (_, &dyn std::fmt::Display) = match end {
            End::Closed | End::Draining | End::Refused => {
                debug!(%peer, ?end, "Connection closed");
                return;
            }
            End::Idle => {
                debug!(%peer, "Closing an idle connection");
                return;
            }
            End::Read(ReadError::Frame(error)) => {
                sort = Some(sort_of(error));
                (ErrorKind::MalformedFrame, error)
            }
            End::Read(ReadError::Io(error)) => (ErrorKind::PeerClosed, error),
            End::Send(error) => match error {
                SendError::PeerClosed(_) => (ErrorKind::PeerClosed, error as _),
                SendError::PeerStalled(_) => (ErrorKind::PeerStalled, error as _),
                SendError::Truncated { .. } => (ErrorKind::BadFile, error as _),
                SendError::File { .. } => (ErrorKind::Disk, error as _),
                SendError::Panicked(_) => (ErrorKind::Internal, error as _),
            },
        };
        metrics.error(kind);
        metrics.caught_exceptions.inc();
        let key = (peer.ip(), sort.unwrap_or(kind.as_str()));
        if let Some(silenced) = self.shared.peer_log.allow(key, now) {
            warn!(%peer, silenced, "Exception in connection: {why}");
        }
    }
}

/// A word for each way of sending no frame; each may be logged once in a while.
fn sort_of(error: &FrameError) -> &'static str {
    match error {
        FrameError::TooLarge { foreign: Some(Foreign::Tls), .. } => "tls",
        FrameError::TooLarge { foreign: Some(Foreign::Http), .. } => "http",
        FrameError::TooLarge { foreign: None, .. } | FrameError::OverLimit { .. } => "frame-size",
        FrameError::NotPositive(_) => "frame-length",
        FrameError::UnknownType(_) => "frame-type",
        FrameError::Malformed { .. } => "frame-fields",
    }
}

fn encode(frame: &Frame) -> bytes::Bytes {
    let mut header = BytesMut::new();
    frame.encode(&mut header);
    header.freeze()
}

fn blocks_in(block: Block) -> u64 {
    match block {
        Block::Shuffle { start, end, .. } => {
            u64::try_from(i64::from(end.0) - i64::from(start.0)).unwrap_or(0)
        }
        Block::Rdd { .. } | Block::Merged => 1,
    }
}

/// Counts a connection while it lives.
struct ActiveConnection<'a>(&'a Metrics);

impl<'a> ActiveConnection<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.active_connections.inc();
        Self(metrics)
    }
}

impl Drop for ActiveConnection<'_> {
    fn drop(&mut self) {
        self.0.active_connections.dec();
    }
}

/// Counts a chunk from being asked for to being sent, however the connection ends in between.
struct InTransfer(Gauge);

impl InTransfer {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InTransfer {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Which of Spark's timers a request belongs to.
enum Timed {
    Open,
    RegisterExecutor,
    Other,
}

impl Timed {
    fn of(frame: &Frame) -> Self {
        match frame {
            // The type byte; see the table of messages.
            Frame::RpcRequest { body, .. } => match body.first() {
                Some(0 | 9 | 15) => Self::Open,
                Some(2) => Self::RegisterExecutor,
                _ => Self::Other,
            },
            _ => Self::Other,
        }
    }

    fn observe(self, metrics: &Metrics, took: Duration) {
        let millis = took.as_secs_f64() * 1000.0;
        match self {
            Self::Open => metrics.open_block_latency.observe(millis),
            Self::RegisterExecutor => metrics.register_executor_latency.observe(millis),
            Self::Other => {}
        }
    }
}

/// When something last happened on a connection.
#[derive(Debug)]
struct Activity {
    start: Instant,
    /// Milliseconds after `start`.
    last: AtomicU64,
    /// An answer is being made or sent. A slow disk is no reason to close the connection, and a peer
    /// that takes nothing is the sender's to find out.
    busy: AtomicBool,
}

impl Activity {
    fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0), busy: AtomicBool::new(false) }
    }

    fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// Returns when nothing has happened for `limit`.
    async fn idle(&self, limit: Option<Duration>) {
        let Some(limit) = limit else { return pending().await };
        loop {
            let last = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed));
            let busy = self.busy.load(Ordering::Relaxed);
            let since = if busy { Instant::now() } else { last };
            // A limit that the clock cannot hold is centuries away.
            let Some(due) = since.checked_add(limit) else { return pending().await };
            if !busy && Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }
}

/// A socket that notes when bytes come.
#[derive(Debug)]
struct Metered {
    inner: OwnedReadHalf,
    activity: Arc<Activity>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_ready() {
            self.activity.touch();
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_time_without_end_is_no_panic() {
        let activity = Activity::new();
        assert!(timeout(LINGER, activity.idle(Some(Duration::MAX))).await.is_err());
        timeout(3 * LINGER, activity.idle(Some(LINGER))).await.expect("an end");
    }
}
