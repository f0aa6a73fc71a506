//! What one connection asks for and what it is told (`spec/ess-service.md`,
//! `spec/wire-framing.md` §6 and §7).
//!
//! Decides and does no I/O: a frame and the time go in, a [`Step`] comes out. Registrations and
//! heartbeats are done when it returns; what needs a disk is an [`Answer`] for the connection to
//! work off in order.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shuffle_protocol::block_id::OpenedBlocks;
use shuffle_protocol::failure::{Failure, stream_not_found};
use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::{
    DecodeError, DiagnoseCorruption, GetLocalDirsForExecutors, LocalDirsForExecutors, Message,
    OpenBlocks, RegisterDriver, RegisterExecutor, RemoveBlocks, StreamHandle,
};
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout, RequestId, StreamId};
use tracing::{debug, info, warn};

use crate::apps::{AppRegistry, Beat, DriverRegistered, Executor};
use crate::dirs::{LocalDir, LocalRoots};
use crate::log_limit::LogLimit;
use crate::metrics::{ErrorKind, Metrics};
use crate::store::Position;
use crate::streams::{Chunk, StreamIds, StreamLimits, StreamPlan, Streams};

/// The pseudo executor that stands for merged blocks.
const MERGER: &str = "shuffle-push-merger";

/// Bytes in the longest id or name that is registered. Spark's have some fifty; what is registered is
/// kept, logged and listed.
const MAX_NAME: usize = 4096;
/// Directories of one executor at most. It has one a disk.
const MAX_LOCAL_DIRS: usize = 1000;
/// Bytes of paths in one answer at most, a fraction of what a frame may have.
const MAX_ANSWER: usize = 256 << 20;

/// What the connections share.
#[derive(Debug)]
pub struct Shared {
    /// Who is registered.
    pub registry: Arc<AppRegistry>,
    /// Which directories may be registered.
    pub roots: Arc<LocalRoots>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Stream ids are the service's, streams the connection's.
    pub stream_ids: Arc<StreamIds>,
    /// How much one connection may keep open.
    pub stream_limits: StreamLimits,
    /// `spark.shuffle.maxChunksBeingTransferred`.
    pub max_chunks_in_transfer: i64,
    /// One line a peer and kind of nonsense.
    pub peer_log: LogLimit<(IpAddr, &'static str)>,
    /// One line an application and kind of failure.
    pub app_log: LogLimit<(AppId, &'static str)>,
}

impl Shared {
    /// How often the same complaint about the same peer or application is logged.
    pub const LOG_EVERY: Duration = Duration::from_secs(600);
}

/// What follows from a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to send.
    Done,
    /// One more answer for the way out.
    Answer(Answer),
    /// Send this, if anything, and close: what comes next on this connection cannot be trusted.
    Close(Option<Answer>),
}

/// An answer, or the work that makes one.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Ready.
    Frame(Frame),
    /// Ready when what was registered is durable.
    Registered {
        /// The answer.
        frame: Frame,
        /// When it may be sent.
        position: Position,
        /// Directories of the application that nobody has looked at yet.
        look_at: Option<(AppId, Vec<LocalDir>)>,
    },
    /// The bytes of a chunk.
    Chunk {
        /// What it was asked for by.
        by: AskedBy,
        /// Which one.
        chunk: Chunk,
    },
    /// Delete files, then tell how many.
    Remove(RequestId, RemoveBlocks),
    /// Compute a checksum, then tell who damaged the block.
    Diagnose(RequestId, DiagnoseCorruption),
}

/// The two ways of asking for a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedBy {
    /// ChunkFetchRequest: the bytes travel in the frame.
    Chunk(StreamChunkId),
    /// StreamRequest, by this name: they travel behind it, so there may be any number.
    Stream(String),
}

impl AskedBy {
    /// The frame that refuses the chunk.
    #[must_use]
    pub fn refuse(self, failure: &Failure) -> Frame {
        let error = failure.to_string();
        match self {
            Self::Chunk(chunk) => Frame::ChunkFetchFailure { chunk, error },
            Self::Stream(name) if *failure == Failure::ChunkNotFound => {
                let error = stream_not_found(&name);
                Frame::StreamFailure { name, error }
            }
            Self::Stream(name) => Frame::StreamFailure { name, error },
        }
    }

    /// The frame that announces `length` bytes of it.
    pub fn accept(self, length: u64) -> Result<Frame, Frame> {
        match self {
            Self::Chunk(_) if length > Frame::MAX_CHUNK => {
                Err(self.refuse(&Failure::ChunkTooLarge { length }))
            }
            Self::Chunk(chunk) => Ok(Frame::ChunkFetchSuccess { chunk, length }),
            Self::Stream(name) => Ok(Frame::StreamResponse { name, length }),
        }
    }
}

/// One connection that may ask for anything: authentication is off, or done.
#[derive(Debug)]
pub struct Session {
    peer: SocketAddr,
    shared: Arc<Shared>,
    streams: Streams,
}

impl Session {
    /// A new connection from `peer`.
    #[must_use]
    pub fn new(peer: SocketAddr, shared: Arc<Shared>) -> Self {
        let streams = Streams::new(
            shared.stream_limits,
            shared.stream_ids.clone(),
            shared.metrics.open_streams.clone(),
        );
        Self { peer, shared, streams }
    }

    /// A frame came in whole.
    pub fn handle_frame(&mut self, frame: Frame, now: Instant) -> Step {
        match frame {
            Frame::RpcRequest { id, body } => self.handle_rpc(id, body, now),
            Frame::OneWayMessage { body } => {
                self.handle_one_way(body, now);
                Step::Done
            }
            Frame::ChunkFetchRequest(chunk) => {
                self.handle_chunk_request(chunk, AskedBy::Chunk(chunk), now)
            }
            Frame::StreamRequest { name } => match parse_stream_name(&name) {
                Ok(chunk) => self.handle_chunk_request(chunk, AskedBy::Stream(name), now),
                Err(failure) => {
                    self.shared.metrics.error(ErrorKind::BadRequest);
                    Step::Answer(Answer::Frame(AskedBy::Stream(name).refuse(&failure)))
                }
            },
            Frame::UploadStream { id, meta, .. } => {
                // The data is under way already and nobody wants it, so the connection ends.
                let failure = match Message::decode(meta) {
                    Ok(Message::PushBlockStream(_)) => Failure::NoMergeManager,
                    Ok(message) => Failure::UnexpectedUpload(message.name()),
                    Err(error) => error.into(),
                };
                Step::Close(Some(Answer::Frame(self.refuse(id, &failure))))
            }
            Frame::MergedBlockMetaRequest { id, .. } => {
                Step::Answer(Answer::Frame(self.refuse(id, &Failure::NoMergeManager)))
            }
            Frame::ChunkFetchSuccess { .. }
            | Frame::ChunkFetchFailure { .. }
            | Frame::RpcResponse { .. }
            | Frame::RpcFailure { .. }
            | Frame::StreamResponse { .. }
            | Frame::StreamFailure { .. }
            | Frame::MergedBlockMetaSuccess { .. } => {
                // The service never asks, so this answers nothing. Spark ignores it, too.
                self.shared.metrics.error(ErrorKind::BadRequest);
                self.complain("answer", now, "Ignoring an answer to a request that was never sent");
                Step::Done
            }
        }
    }

    /// Applications expired: their streams go.
    pub fn handle_expiry(&mut self) {
        let registry = &self.shared.registry;
        // Of those that expired only the last ones are remembered, and of an application that was never
        // registered the streams stay: a registration may still come.
        self.streams.drop_gone(|app, was_registered| {
            !registry.contains(app) && (was_registered || registry.is_gone(app))
        });
    }

    fn handle_rpc(&mut self, id: RequestId, body: Bytes, now: Instant) -> Step {
        let message = match Message::decode(body) {
            Ok(message) => message,
            Err(error) => return Step::Answer(Answer::Frame(self.refuse(id, &error.into()))),
        };
        let reply = match message {
            Message::OpenBlocks(OpenBlocks { app_id, exec_id, block_ids }) => {
                let ids: Vec<&str> = block_ids.iter().collect();
                OpenedBlocks::parse(&ids)
                    .map_err(Failure::from)
                    .map(|blocks| StreamPlan::opened(app_id, exec_id, blocks))
                    .and_then(|plan| self.open_stream(plan, now))
            }
            Message::FetchShuffleBlocks(message) => {
                StreamPlan::fetched(message).and_then(|plan| self.open_stream(plan, now))
            }
            Message::FetchShuffleBlockChunks(message) => {
                self.open_stream(StreamPlan::merged(message), now)
            }
            Message::RegisterExecutor(message) => {
                return Step::Answer(match self.register_executor(id, message, now) {
                    Ok(answer) => answer,
                    Err(failure) => Answer::Frame(self.refuse(id, &failure)),
                });
            }
            Message::RegisterDriver(message) => {
                return Step::Answer(match self.register_driver(id, &message, now) {
                    Ok(answer) => answer,
                    Err(failure) => Answer::Frame(self.refuse(id, &failure)),
                });
            }
            Message::ShuffleServiceHeartbeat(beat) => {
                // Spark's service leaves a heartbeat that comes as an RPC without any answer.
                self.beat(&beat.app_id, now);
                Ok(Bytes::new())
            }
            Message::GetLocalDirsForExecutors(message) => self.local_dirs(&message),
            Message::RemoveBlocks(message) => return Step::Answer(Answer::Remove(id, message)),
            Message::DiagnoseCorruption(message) => {
                return Step::Answer(Answer::Diagnose(id, message));
            }
            Message::FinalizeShuffleMerge(_) => Err(Failure::NoMergeManager),
            Message::RemoveShuffleMerge(_) => Err(Failure::NoMergedRemove),
            other => Err(Failure::UnexpectedMessage(other.name())),
        };
        Step::Answer(Answer::Frame(match reply {
            Ok(body) => Frame::RpcResponse { id, body },
            Err(failure) => self.refuse(id, &failure),
        }))
    }

    fn handle_one_way(&mut self, body: Bytes, now: Instant) {
        match Message::decode(body) {
            Ok(Message::ShuffleServiceHeartbeat(beat)) => self.beat(&beat.app_id, now),
            Ok(other) => {
                self.shared.metrics.error(ErrorKind::BadRequest);
                self.complain(
                    "one-way",
                    now,
                    format_args!("Unexpected one-way message: {}", other.name()),
                );
            }
            Err(error) => {
                self.shared.metrics.error(kind_of(&error));
                self.complain("one-way", now, format_args!("One-way message: {error}"));
            }
        }
    }

    fn handle_chunk_request(&mut self, chunk: StreamChunkId, by: AskedBy, now: Instant) -> Step {
        let in_transfer = self.shared.metrics.chunks_in_transfer.get();
        let limit = self.shared.max_chunks_in_transfer;
        if in_transfer >= limit {
            self.shared.metrics.error(ErrorKind::Overload);
            self.complain(
                "overload",
                now,
                format_args!(
                    "The number of chunks being transferred {in_transfer} is above {limit} \
                     (spark.shuffle.maxChunksBeingTransferred), close the connection."
                ),
            );
            return Step::Close(None);
        }
        Step::Answer(match self.streams.take(chunk, now) {
            Ok(chunk) => Answer::Chunk { by, chunk },
            Err(failure) => {
                self.shared.metrics.error(ErrorKind::BadStream);
                debug!(peer = %self.peer, %failure, "Refusing a chunk");
                Answer::Frame(by.refuse(&failure))
            }
        })
    }

    fn open_stream(&mut self, plan: StreamPlan, now: Instant) -> Result<Bytes, Failure> {
        // A stream of more chunks than an i32 counts cannot come out of one frame.
        let num_chunks = i32::try_from(plan.num_chunks()).unwrap_or(i32::MAX);
        let pin = self.shared.registry.pin(plan.app_id());
        let stream_id = self.streams.open(plan, pin, now);
        Ok(Message::from(StreamHandle { stream_id, num_chunks }).encode())
    }

    fn register_executor(
        &mut self,
        id: RequestId,
        message: RegisterExecutor,
        now: Instant,
    ) -> Result<Answer, Failure> {
        let RegisterExecutor { app_id, exec_id, info } = message;
        check_name("appId", app_id.as_str())?;
        check_name("execId", exec_id.as_str())?;
        check_name("shuffleManager", &info.shuffle_manager)?;
        if info.local_dirs.len() > MAX_LOCAL_DIRS {
            return Err(Failure::IllegalArgument(format!(
                "{} localDirs; an executor may have up to {MAX_LOCAL_DIRS}",
                info.local_dirs.len()
            )));
        }
        let local_dirs = info
            .local_dirs
            .iter()
            .map(|dir| self.shared.roots.admit(dir))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|refused| {
                self.complain(
                    "register-executor",
                    now,
                    format_args!(
                        "Refusing to register executor {exec_id} of app {app_id}: {refused}"
                    ),
                );
                Failure::IllegalArgument(refused.to_string())
            })?;
        let executor = Executor::new(local_dirs, info.sub_dirs_per_local_dir, info.shuffle_manager);
        info!(peer = %self.peer, app = %app_id, exec = %exec_id, dirs = ?executor.local_dirs,
            sub_dirs = executor.sub_dirs_per_local_dir, manager = executor.shuffle_manager,
            "Registered executor");
        let registered = self.shared.registry.register_executor(&app_id, exec_id, executor, now);
        for dir in &registered.tombstoned {
            warn!(peer = %self.peer, app = %app_id, %dir,
                "Registered a directory that was being removed: it is brought back, unless its files \
                 are going already");
        }
        let frame = Frame::RpcResponse { id, body: Bytes::new() };
        let look_at = (!registered.new_dirs.is_empty()).then_some((app_id, registered.new_dirs));
        Ok(Answer::Registered { frame, position: registered.position, look_at })
    }

    fn register_driver(
        &mut self,
        id: RequestId,
        message: &RegisterDriver,
        now: Instant,
    ) -> Result<Answer, Failure> {
        let app_id = &message.app_id;
        check_name("appId", app_id.as_str())?;
        let timeout = HeartbeatTimeout::from_wire(message.heartbeat_timeout_ms)?;
        let (registered, position) =
            self.shared.registry.register_driver(app_id, timeout, self.peer, now);
        match registered {
            DriverRegistered::New => {
                info!(peer = %self.peer, app = %app_id, heartbeat_timeout = %timeout,
                    "Registered driver");
            }
            DriverRegistered::Repeated => {
                debug!(peer = %self.peer, app = %app_id, "Driver registered again");
            }
            DriverRegistered::Replaced(before) => {
                warn!(peer = %self.peer, app = %app_id, heartbeat_timeout = %timeout, %before,
                    "Received a registration request from an app that was already registered");
            }
            DriverRegistered::KeptLonger(kept) => {
                self.shared.metrics.timeouts_kept.inc();
                warn!(peer = %self.peer, app = %app_id, heartbeat_timeout = %timeout, %kept,
                    "Keeping the longer timeout of a live app: anybody could ask for a shorter one");
            }
        }
        let frame = Frame::RpcResponse { id, body: Bytes::new() };
        Ok(Answer::Registered { frame, position, look_at: None })
    }

    fn beat(&mut self, app_id: &AppId, now: Instant) {
        let beat = self.shared.registry.heartbeat(app_id, now);
        self.shared.metrics.heartbeat(beat);
        let complaint = match beat {
            Beat::Counted => return,
            Beat::Expired => {
                "Received a heartbeat from an app that had expired; its directories are gone or going, \
                 and its driver has to register again"
            }
            Beat::Unknown => "Received ShuffleServiceHeartbeat from an unknown app",
        };
        if check_name("appId", app_id.as_str()).is_err() {
            return self.complain(
                "heartbeat",
                now,
                "Heartbeat with an id that nobody can register",
            );
        }
        if let Some(silenced) = self.shared.app_log.allow((app_id.clone(), "heartbeat"), now) {
            warn!(peer = %self.peer, app = %app_id, silenced, "{complaint}");
        }
    }

    fn local_dirs(&self, message: &GetLocalDirsForExecutors) -> Result<Bytes, Failure> {
        let exec_ids = message.exec_ids.iter().filter(|id| *id != MERGER);
        let found = self.shared.registry.executors(&message.app_id, exec_ids);
        let executors = found.map_err(|exec_id| Failure::ExecutorNotRegistered {
            app_id: message.app_id.clone(),
            exec_id,
        })?;
        if message.exec_ids.iter().any(|id| id == MERGER) {
            return Err(Failure::NoMergeManager);
        }
        let paths = executors.values().flat_map(|executor| &executor.local_dirs);
        if paths.map(|dir| dir.named().len()).sum::<usize>() > MAX_ANSWER {
            let text = format!("the answer for {} executors is too large", executors.len());
            return Err(Failure::IllegalArgument(text));
        }
        let dirs: LocalDirsForExecutors = executors
            .iter()
            .map(|(id, executor): (&ExecId, _)| {
                let dirs = executor.local_dirs.iter().map(|dir| dir.named()).collect();
                (id.as_str(), dirs)
            })
            .collect();
        Ok(Message::from(dirs).encode())
    }

    /// The frame that refuses an RPC; counts it.
    fn refuse(&self, id: RequestId, failure: &Failure) -> Frame {
        self.shared.metrics.error(match failure {
            Failure::Undecodable(error) => kind_of(error),
            Failure::ExecutorNotRegistered { .. } => ErrorKind::NotRegistered,
            _ => ErrorKind::BadRequest,
        });
        debug!(peer = %self.peer, %failure, "Refusing a request");
        Frame::RpcFailure { id, error: failure.to_string() }
    }

    /// Logs what `kind` of nonsense the peer sent, once in a while.
    fn complain(&self, kind: &'static str, now: Instant, what: impl fmt::Display) {
        if let Some(silenced) = self.shared.peer_log.allow((self.peer.ip(), kind), now) {
            warn!(peer = %self.peer, silenced, "{what}");
        }
    }
}

/// Whether an id or name is one to keep.
fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    if name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(Failure::IllegalArgument(format!(
        "{what} of {} bytes; it may have up to {MAX_NAME}",
        name.len()
    )))
}

fn kind_of(error: &DecodeError) -> ErrorKind {
    match error {
        DecodeError::UnknownType(_) => ErrorKind::UnknownMessage,
        DecodeError::Malformed { .. } | DecodeError::Empty => ErrorKind::MalformedMessage,
    }
}

/// `<streamId>_<chunkIndex>`. As in Spark the numbers are read before anything is missed, and what
/// follows them is not looked at.
fn parse_stream_name(name: &str) -> Result<StreamChunkId, Failure> {
    fn number<N: FromStr>(part: Option<&str>) -> Result<N, Failure> {
        let missing = "Stream id and chunk index should be specified.";
        let text = part.ok_or_else(|| Failure::IllegalArgument(missing.to_owned()))?;
        text.parse().map_err(|_| Failure::NotANumber(text.to_owned()))
    }
    // Java's split drops empty parts at the end.
    let mut parts = name.trim_end_matches('_').split('_');
    let stream = StreamId(number(parts.next())?);
    let chunk = number(parts.next())?;
    Ok(StreamChunkId { stream, chunk })
}
