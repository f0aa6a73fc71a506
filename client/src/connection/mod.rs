//! One multiplexed connection to a shuffle service.
//!
//! One task a connection runs three loops side by side: writing what is queued, reading what
//! arrives, and watching for silence. What belongs to what is decided in [`answers`], what silence
//! means in [`quiet`]; both under one lock that no await crosses.
//!
//! The bytes of a chunk or stream are handed to its reader piece by piece, through a queue of
//! [`PIECES`]. A reader that does not keep up stops the whole connection from reading, which is the
//! only backpressure the protocol has: everything behind those bytes waits for them. A reader that
//! goes away does not: the rest of its bytes is thrown away as it arrives.

mod answers;
mod quiet;
mod slot;

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use shuffle_protocol::frame::{Event, Frame, Splitter, StreamChunkId};
use shuffle_protocol::message::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::answers::{Answer, Outstanding};
use self::quiet::{Quiet, Verdict};
pub(crate) use self::slot::Slot;
use crate::dial::Transport;
use crate::error::{ConnectionError, RequestError};
use crate::options::ClientOptions;
use crate::server::ServerAddr;

/// Bytes read at a time at most, so also the size of the pieces of a body.
const READ_BUFFER: usize = 64 * 1024;
/// Bytes of requests gathered into one write.
const WRITE_BATCH: usize = 64 * 1024;
/// Pieces of a body that wait for its reader.
const PIECES: usize = 8;
/// Requests that wait to be written.
const OUTBOX: usize = 64;
/// The largest message of a request; what is around it fits in the rest of the frame.
const MAX_MESSAGE: usize = i32::MAX as usize - 1024;

/// A handle; clones share the connection. It closes when the last handle is gone.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Outgoing>,
}

#[derive(Debug)]
struct Shared {
    server: ServerAddr,
    state: Mutex<State>,
    /// Set before anybody who waits is let go, so that all can say why.
    reason: OnceLock<ConnectionError>,
    closed: CancellationToken,
    in_flight: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    open: bool,
    outstanding: Waiting,
    quiet: Quiet,
}

type Waiting = Outstanding<oneshot::Sender<Result<Bytes, String>>, BodyWaiter>;

#[derive(Debug)]
struct Outgoing {
    frame: Frame,
    /// Told when the frame is with the socket.
    written: Option<oneshot::Sender<()>>,
}

impl Outgoing {
    /// True if the peer owes an answer to it.
    fn is_request(&self) -> bool {
        !matches!(self.frame, Frame::OneWayMessage { .. })
    }
}

/// Who waits for a chunk or stream.
#[derive(Debug)]
struct BodyWaiter {
    index: usize,
    arrivals: mpsc::UnboundedSender<Arrival>,
    /// Held until the last byte is here.
    _in_flight: OwnedSemaphorePermit,
}

/// A place among the requests that wait to be written.
type Place = mpsc::OwnedPermit<Outgoing>;

/// What one more request for a chunk or stream needs.
#[derive(Debug)]
pub(crate) struct Room {
    in_flight: OwnedSemaphorePermit,
    place: Place,
}

/// A chunk or stream that was asked for begins to arrive, or never will.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// As given when it was asked for.
    pub(crate) index: usize,
    /// Its bytes, or the service's refusal.
    pub(crate) body: Result<Body, String>,
}

/// The bytes of a chunk or stream, as they come in.
#[derive(Debug)]
pub(crate) struct Body {
    length: u64,
    received: u64,
    pieces: mpsc::Receiver<Bytes>,
    shared: Arc<Shared>,
}

impl Body {
    /// All the bytes, as announced.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The next bytes, never empty; `None` after the last.
    ///
    /// # Errors
    /// The connection ended before the last byte.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ConnectionError> {
        match self.pieces.recv().await {
            Some(bytes) => {
                self.received += bytes.len() as u64;
                Ok(Some(bytes))
            }
            None if self.received == self.length => Ok(None),
            None => Err(self.shared.reason()),
        }
    }
}

impl Connection {
    /// Starts the task that serves `transport`.
    pub(crate) fn start(
        server: ServerAddr,
        transport: Box<dyn Transport>,
        options: &ClientOptions,
    ) -> Self {
        let shared = Arc::new(Shared {
            server,
            state: Mutex::new(State {
                open: true,
                outstanding: Outstanding::new(fastrand::i64(0..=i64::MAX)),
                quiet: Quiet::new(options.connection_timeout, now()),
            }),
            reason: OnceLock::new(),
            closed: CancellationToken::new(),
            in_flight: Arc::new(Semaphore::new(options.max_requests_in_flight.get())),
        });
        let (outbox, queue) = mpsc::channel(OUTBOX);
        tokio::spawn(serve(shared.clone(), transport, queue, options.frame_limit));
        Self { shared, outbox }
    }

    /// Sends a message as an RPC and waits for the answer's payload.
    pub(crate) async fn rpc(&self, message: &Message) -> Result<Bytes, RequestError> {
        let body = self.encode(message)?;
        let (waiter, answer) = oneshot::channel();
        let place = self.place().await?;
        self.send(place, |outstanding| Frame::RpcRequest {
            id: outstanding.handle_rpc(waiter),
            body,
        })?;
        match answer.await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) => {
                Err(RequestError::Refused { server: self.shared.server.clone(), error })
            }
            Err(_) => Err(self.shared.reason().into()),
        }
    }

    /// Sends a message that nobody answers; done when it is with the socket.
    pub(crate) async fn one_way(&self, message: &Message) -> Result<(), RequestError> {
        let frame = Frame::OneWayMessage { body: self.encode(message)? };
        let (written, done) = oneshot::channel();
        let outgoing = Outgoing { frame, written: Some(written) };
        self.outbox.send(outgoing).await.map_err(|_| self.shared.reason())?;
        done.await.map_err(|_| self.shared.reason())?;
        Ok(())
    }

    /// Asks for a chunk; it arrives at `arrivals` under `index`. Never waits: who asks may be who has
    /// to take the bytes that hold up the connection.
    pub(crate) fn chunk(
        &self,
        chunk: StreamChunkId,
        index: usize,
        arrivals: mpsc::UnboundedSender<Arrival>,
        room: Room,
    ) -> Result<(), ConnectionError> {
        let waiter = BodyWaiter { index, arrivals, _in_flight: room.in_flight };
        self.send(room.place, |outstanding| {
            outstanding.handle_chunk(chunk, waiter);
            Frame::ChunkFetchRequest(chunk)
        })
    }

    /// Asks for a stream; it arrives at `arrivals` under `index`. Never waits, as [`Self::chunk`].
    pub(crate) fn stream(
        &self,
        name: String,
        index: usize,
        arrivals: mpsc::UnboundedSender<Arrival>,
        room: Room,
    ) -> Result<(), ConnectionError> {
        let waiter = BodyWaiter { index, arrivals, _in_flight: room.in_flight };
        self.send(room.place, |outstanding| {
            outstanding.handle_stream(name.clone(), waiter);
            Frame::StreamRequest { name }
        })
    }

    /// Waits until one more chunk or stream can be asked for at once.
    pub(crate) async fn room(&self) -> Result<Room, ConnectionError> {
        let in_flight = self.permit().await?;
        Ok(Room { in_flight, place: self.place().await? })
    }

    /// Waits until one more request for blocks may be outstanding. Every such request holds one
    /// until it is answered, which does not depend on anybody here.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, ConnectionError> {
        // Closed with the connection.
        self.shared.in_flight.clone().acquire_owned().await.map_err(|_| self.shared.reason())
    }

    /// True until the connection ends.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.lock().open
    }

    /// The service at the other end.
    pub(crate) fn server(&self) -> &ServerAddr {
        &self.shared.server
    }

    /// Waits until the connection has ended and tells why.
    pub(crate) async fn ended(&self) -> ConnectionError {
        self.shared.closed.cancelled().await;
        self.shared.reason()
    }

    /// Ends the connection; everything outstanding on it fails with `reason`.
    pub(crate) fn close(&self, reason: ConnectionError) {
        self.shared.close(reason);
    }

    fn encode(&self, message: &Message) -> Result<Bytes, RequestError> {
        let body = message.encode();
        if body.len() > MAX_MESSAGE {
            return Err(RequestError::RequestTooLarge { length: body.len() });
        }
        Ok(body)
    }

    async fn place(&self) -> Result<Place, ConnectionError> {
        self.outbox.clone().reserve_owned().await.map_err(|_| self.shared.reason())
    }

    /// Notes who waits for the answer and queues the request, in one step: answers to streams are
    /// matched by order alone.
    fn send(
        &self,
        place: Place,
        note: impl FnOnce(&mut Waiting) -> Frame,
    ) -> Result<(), ConnectionError> {
        let mut state = self.shared.lock();
        if !state.open {
            drop(state);
            return Err(self.shared.reason());
        }
        state.quiet.handle_request(now());
        let frame = note(&mut state.outstanding);
        place.send(Outgoing { frame, written: None });
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way through a change that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reason(&self) -> ConnectionError {
        let unset = || ConnectionError::TaskEnded { server: self.server.clone() };
        self.reason.get().cloned().unwrap_or_else(unset)
    }

    fn close(&self, reason: ConnectionError) {
        // The first reason is the one that counts.
        let _ = self.reason.set(reason);
        let left = {
            let mut state = self.lock();
            state.open = false;
            std::mem::replace(&mut state.outstanding, Outstanding::new(0))
        };
        drop(left); // lets go of everybody who waits
        self.in_flight.close();
        self.closed.cancel();
    }

    fn broken(&self, error: std::io::Error) -> ConnectionError {
        ConnectionError::Broken { server: self.server.clone(), error: Arc::new(error) }
    }
}

/// Lets go of everybody who waits, however the task ends.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close(ConnectionError::TaskEnded { server: self.0.server.clone() });
    }
}

async fn serve(
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    queue: mpsc::Receiver<Outgoing>,
    frame_limit: usize,
) {
    let _guard = CloseOnDrop(shared.clone());
    let (from, to) = split(transport);
    let reason = tokio::select! {
        reason = read(&shared, from, frame_limit) => reason,
        reason = write(&shared, to, queue) => reason,
        reason = watch(&shared) => reason,
        () = shared.closed.cancelled() => return,
    };
    debug!(server = %shared.server, %reason, "connection ended");
    shared.close(reason);
}

async fn read(
    shared: &Arc<Shared>,
    mut from: ReadHalf<Box<dyn Transport>>,
    frame_limit: usize,
) -> ConnectionError {
    let mut received = BytesMut::with_capacity(READ_BUFFER);
    let mut splitter = Splitter::new(frame_limit);
    let mut reader: Option<BodyReader> = None;
    loop {
        match splitter.next(&mut received) {
            Ok(Some(Event::Frame(frame))) => match begin(shared, frame) {
                Ok(next) => reader = next,
                Err(reason) => return reason,
            },
            Ok(Some(Event::Data { bytes, last })) => {
                deliver(shared, &mut reader, bytes).await;
                if last {
                    reader = None;
                    shared.lock().outstanding.handle_body_end();
                }
            }
            Ok(None) => {
                received.reserve(READ_BUFFER);
                match from.read_buf(&mut received).await {
                    Ok(0) if received.is_empty() && splitter.between_frames() => {
                        return ConnectionError::ClosedByPeer { server: shared.server.clone() };
                    }
                    Ok(0) => return shared.broken(std::io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => shared.lock().quiet.handle_received(now()),
                    Err(error) => return shared.broken(error),
                }
            }
            Err(error) => {
                let server = shared.server.clone();
                return ConnectionError::Misbehaved { server, error: error.into() };
            }
        }
    }
}

/// Where the bytes of the body that is arriving go.
struct BodyReader {
    pieces: mpsc::Sender<Bytes>,
    _waiter: BodyWaiter,
}

/// Hands out what the frame answers; gives the reader of the bytes that follow.
fn begin(shared: &Arc<Shared>, frame: Frame) -> Result<Option<BodyReader>, ConnectionError> {
    let answer = shared.lock().outstanding.handle_frame(frame);
    match answer {
        Ok(Answer::Rpc(waiter, answer)) => {
            // Nobody waits any more: the caller was cancelled.
            let _ = waiter.send(answer);
            Ok(None)
        }
        Ok(Answer::Body(waiter, length)) => {
            let (pieces, receiver) = mpsc::channel(PIECES);
            let shared = shared.clone();
            let body = Body { length, received: 0, pieces: receiver, shared };
            let _ = waiter.arrivals.send(Arrival { index: waiter.index, body: Ok(body) });
            Ok((length > 0).then_some(BodyReader { pieces, _waiter: waiter }))
        }
        Ok(Answer::NoBody(waiter, error)) => {
            let _ = waiter.arrivals.send(Arrival { index: waiter.index, body: Err(error) });
            Ok(None)
        }
        Ok(Answer::Unmatched(what)) => {
            warn!(server = %shared.server, "ignoring {what}");
            Ok(None)
        }
        Err(error) => Err(ConnectionError::Misbehaved { server: shared.server.clone(), error }),
    }
}

async fn deliver(shared: &Shared, reader: &mut Option<BodyReader>, bytes: Bytes) {
    let Some(BodyReader { pieces, .. }) = reader else { return };
    let gone = match pieces.try_send(bytes) {
        Ok(()) => false,
        Err(mpsc::error::TrySendError::Closed(_)) => true,
        Err(mpsc::error::TrySendError::Full(bytes)) => {
            shared.lock().quiet.handle_held_up(true, now());
            let gone = pieces.send(bytes).await.is_err();
            shared.lock().quiet.handle_held_up(false, now());
            gone
        }
    };
    if gone {
        *reader = None; // the rest is thrown away as it comes
    }
}

async fn write(
    shared: &Arc<Shared>,
    mut to: WriteHalf<Box<dyn Transport>>,
    mut queue: mpsc::Receiver<Outgoing>,
) -> ConnectionError {
    let mut out = BytesMut::new();
    let mut written = Vec::new();
    loop {
        let Some(first) = queue.recv().await else {
            // The last handle is gone.
            return ConnectionError::ClientClosed { server: shared.server.clone() };
        };
        let mut request = false;
        let mut next = Some(first);
        while let Some(outgoing) = next {
            request |= outgoing.is_request();
            outgoing.frame.encode(&mut out);
            written.extend(outgoing.written);
            next = if out.len() < WRITE_BATCH { queue.try_recv().ok() } else { None };
        }
        while !out.is_empty() {
            match to.write_buf(&mut out).await {
                Ok(0) => return shared.broken(std::io::ErrorKind::WriteZero.into()),
                Ok(_) => {
                    let mut state = shared.lock();
                    state.quiet.handle_sent(now());
                    if request {
                        state.quiet.handle_request(now());
                    }
                }
                Err(error) => return shared.broken(error),
            }
        }
        if let Err(error) = to.flush().await {
            return shared.broken(error);
        }
        for done in written.drain(..) {
            let _ = done.send(());
        }
    }
}

async fn watch(shared: &Shared) -> ConnectionError {
    loop {
        let next = {
            let state = shared.lock();
            state.quiet.poll_timeout(state.outstanding.any(), now())
        };
        let Some(next) = next else { return pending().await };
        tokio::time::sleep_until(next.into()).await;
        // Deciding and closing are one step, so that no request slips in between.
        let mut state = shared.lock();
        let server = shared.server.clone();
        let reason = match state.quiet.handle_timeout(state.outstanding.any(), now()) {
            Some(Verdict::Dead(quiet)) => ConnectionError::Quiet { server, quiet },
            Some(Verdict::Unused) => ConnectionError::Unused { server },
            None => continue,
        };
        let _ = shared.reason.set(reason.clone());
        state.open = false;
        return reason;
    }
}

/// The clock that tests can stop.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
