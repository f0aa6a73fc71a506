//! Fetching blocks by Spark's rules (`spec/ess-service.md` §9.2 and §9.3).

mod plan;
mod progress;
mod sink;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::frame::StreamChunkId;
use shuffle_protocol::message::StreamHandle;
use shuffle_protocol::{AppId, ExecId};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

pub use self::plan::InvalidFetch;
use self::plan::plan;
use self::progress::{Progress, Verdict};
use self::sink::Memory;
pub use self::sink::{BlockSink, Checksummed, Discard, FileSink};
use crate::client::ShuffleServiceClient;
use crate::connection::{Arrival, Body, Connection, Room};
use crate::error::{ConnectionError, RequestError, first_line};
use crate::server::ServerAddr;

/// Which blocks to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    /// The application.
    pub app_id: AppId,
    /// The executor that wrote the blocks.
    pub exec_id: ExecId,
    /// The blocks: shuffle blocks or batches of one shuffle, or RDD blocks. A block that is named
    /// twice is fetched once.
    pub blocks: Vec<BlockId>,
}

/// What became of one block.
#[derive(Debug, Clone)]
pub struct Fetched<T> {
    /// The block.
    pub block: BlockId,
    /// Its bytes, or what its sink made of them; or why there are none.
    pub result: Result<T, BlockError>,
}

/// Why a block was not fetched.
#[derive(Debug, Clone, Error)]
pub enum BlockError {
    /// The blocks could not be opened, or the connection ended before the block was here; all
    /// retries were used up if there was any use in them.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The service refused this block or one before it: the text, for people, says whose fault it
    /// is.
    #[error(
        "{server}: Failure while fetching StreamChunkId[streamId={},chunkIndex={}]: {}",
        chunk.stream, chunk.chunk, first_line(error)
    )]
    Refused {
        /// The service.
        server: ServerAddr,
        /// The chunk that was refused. The blocks behind it fail with it.
        chunk: StreamChunkId,
        /// The whole text, which may be a stack trace.
        error: Arc<str>,
    },
    /// The service opened another number of chunks than was asked for. Its fault.
    #[error("{server} opened {got} chunks where {expected} were asked for")]
    WrongChunkCount {
        /// The service.
        server: ServerAddr,
        /// Chunks asked for.
        expected: usize,
        /// Chunks opened.
        got: i32,
    },
    /// The block is larger than what is taken into memory. The caller's choice: use
    /// [`fetch_to`](ShuffleServiceClient::fetch_to) for it.
    #[error(
        "a block of {length} bytes is over the {limit} bytes taken into memory; fetch it to a file, \
         or raise spark.network.maxRemoteBlockSizeFetchToMem"
    )]
    TooLargeForMemory {
        /// Bytes in the block.
        length: u64,
        /// [`max_block_in_memory`](crate::ClientOptions::max_block_in_memory).
        limit: u64,
    },
    /// The sink failed: a full disk, say. A local fault.
    #[error("the block cannot be written: {0}")]
    Sink(Arc<io::Error>),
    /// The task of the fetch panicked, most likely in a sink, or its runtime was shut down.
    #[error("the fetch was abandoned")]
    Abandoned,
}

impl BlockError {
    /// True if fetching the block again may help, beyond the retries that were made.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Request(error) => error.is_retryable(),
            Self::Refused { .. }
            | Self::WrongChunkCount { .. }
            | Self::TooLargeForMemory { .. }
            | Self::Sink(_)
            | Self::Abandoned => false,
        }
    }
}

impl From<ConnectionError> for BlockError {
    fn from(error: ConnectionError) -> Self {
        Self::Request(error.into())
    }
}

/// A fetch on its way. Dropping it ends the fetch.
///
/// When results are not taken, it stops asking for more after
/// [`max_blocks_ahead`](crate::ClientOptions::max_blocks_ahead) blocks; others are not held up by it.
pub struct Fetch<T> {
    blocks: Arc<[BlockId]>,
    reported: Vec<bool>,
    results: mpsc::UnboundedReceiver<Report<T>>,
    _task: AbortOnDropHandle<()>,
}

/// One result on its way to the caller.
struct Report<T> {
    block: usize,
    result: Result<T, BlockError>,
    /// Given back when the caller has the result.
    _ahead: Option<OwnedSemaphorePermit>,
}

impl<T> Fetch<T> {
    /// The next result, in the order in which blocks arrive; `None` when every block had its one.
    pub async fn next(&mut self) -> Option<Fetched<T>> {
        let (block, result) = match self.results.recv().await {
            Some(Report { block, result, .. }) => (block, result),
            None => {
                let left = self.reported.iter().position(|reported| !reported)?;
                (left, Err(BlockError::Abandoned))
            }
        };
        self.reported[block] = true;
        Some(Fetched { block: self.blocks[block].clone(), result })
    }

    /// All results, in the order in which blocks arrive.
    pub async fn all(mut self) -> Vec<Fetched<T>> {
        let mut all = Vec::new();
        while let Some(fetched) = self.next().await {
            all.push(fetched);
        }
        all
    }
}

impl<T> fmt::Debug for Fetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetch").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

/// How the chunks of a stream are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Via {
    /// ChunkFetchRequest: below 2 GiB each.
    Chunks,
    /// StreamRequest: any size.
    Streams,
}

impl ShuffleServiceClient {
    /// Fetches blocks into memory. Begins at once; needs a tokio runtime.
    ///
    /// Every block gets exactly one result. After I/O errors the blocks that have none yet are asked
    /// for again, [`max_retries`](crate::ClientOptions::max_retries) times; a refusal is final, and
    /// fails the blocks behind it as well.
    ///
    /// # Errors
    /// Blocks that cannot be asked for together.
    pub fn fetch(&self, request: FetchRequest) -> Result<Fetch<Bytes>, InvalidFetch> {
        let limit = Some(self.options().max_block_in_memory);
        self.start_fetch(request, Via::Chunks, limit, |_| Memory::default())
    }

    /// Fetches blocks of any size to sinks, one made by `open` for each block when it begins to
    /// arrive. Otherwise like [`fetch`](Self::fetch).
    ///
    /// # Errors
    /// Blocks that cannot be asked for together.
    pub fn fetch_to<S: BlockSink + 'static>(
        &self,
        request: FetchRequest,
        open: impl FnMut(&BlockId) -> S + Send + 'static,
    ) -> Result<Fetch<S::Output>, InvalidFetch> {
        self.start_fetch(request, Via::Streams, None, open)
    }

    fn start_fetch<S: BlockSink + 'static>(
        &self,
        request: FetchRequest,
        via: Via,
        limit: Option<u64>,
        open: impl FnMut(&BlockId) -> S + Send + 'static,
    ) -> Result<Fetch<S::Output>, InvalidFetch> {
        let FetchRequest { app_id, exec_id, mut blocks } = request;
        let mut seen = HashSet::with_capacity(blocks.len());
        blocks.retain(|block| seen.insert(block.clone()));
        let blocks: Arc<[BlockId]> = blocks.into();
        // What can be asked for now can also be asked for in part, by a retry.
        let old_protocol = self.options().use_old_fetch_protocol;
        plan(&app_id, &exec_id, &blocks, (0..blocks.len()).collect(), old_protocol)?;

        // Bounded by what is asked for: see `room`.
        let (report, results) = mpsc::unbounded_channel();
        let ahead = Arc::new(Semaphore::new(self.options().max_blocks_ahead.get()));
        let reported = vec![false; blocks.len()];
        let job = Job {
            client: self.clone(),
            app_id,
            exec_id,
            blocks: blocks.clone(),
            via,
            limit,
            open,
            sinks: HashMap::new(),
            ahead,
            report,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(job.run()));
        Ok(Fetch { blocks, reported, results, _task: task })
    }
}

/// One call to fetch.
struct Job<S: BlockSink, F> {
    client: ShuffleServiceClient,
    app_id: AppId,
    exec_id: ExecId,
    blocks: Arc<[BlockId]>,
    via: Via,
    limit: Option<u64>,
    open: F,
    /// Of blocks that had begun to arrive when the connection broke.
    sinks: HashMap<usize, S>,
    /// How many more blocks may be asked for before the caller takes results.
    ahead: Arc<Semaphore>,
    report: mpsc::UnboundedSender<Report<S::Output>>,
}

impl<S: BlockSink, F: FnMut(&BlockId) -> S> Job<S, F> {
    async fn run(mut self) {
        let (max_retries, retry_wait) =
            (self.client.options().max_retries, self.client.options().retry_wait);
        let mut progress = Progress::new(self.blocks.len(), max_retries, retry_wait);
        loop {
            let Err(error) = self.attempt(&mut progress).await else { return };
            let unsettled = progress.unsettled();
            match progress.handle_failed(error.is_retryable()) {
                Verdict::RetryAfter(wait) => {
                    info!(
                        server = %self.client.server(), %error,
                        "Retrying fetch ({}/{max_retries}) for {} outstanding blocks after {} ms",
                        progress.retries(),
                        unsettled.len(),
                        wait.as_millis(),
                    );
                    tokio::time::sleep(wait).await;
                }
                Verdict::GiveUp => {
                    for block in unsettled {
                        self.settle(&mut progress, block, Err(error.clone()), None);
                    }
                    return;
                }
            }
        }
    }

    /// Asks for everything not settled. An error is about all that is not settled then.
    async fn attempt(&mut self, progress: &mut Progress) -> Result<(), BlockError> {
        let options = self.client.options();
        let fail_within = (options.max_retries > 0).then(|| options.retry_wait.mul_f64(0.95));
        let connection = self.client.data(fail_within).await?;
        let old_protocol = options.use_old_fetch_protocol;
        let plan =
            plan(&self.app_id, &self.exec_id, &self.blocks, progress.unsettled(), old_protocol);
        // A part of what could be asked for as a whole.
        let Ok(plan) = plan else { return Err(BlockError::Abandoned) };
        let in_flight = connection.permit().await?;
        let answer = connection.rpc(&plan.message).await?;
        drop(in_flight);
        let handle = self.client.stream_handle(answer)?;
        if usize::try_from(handle.num_chunks) != Ok(plan.chunks.len()) {
            return Err(BlockError::WrongChunkCount {
                server: self.client.server().clone(),
                expected: plan.chunks.len(),
                got: handle.num_chunks,
            });
        }
        self.take_chunks(progress, &connection, handle, &plan.chunks).await
    }

    /// Asks for the chunks in order, as many at a time as the connection allows, and takes them in
    /// the order in which they come.
    async fn take_chunks(
        &mut self,
        progress: &mut Progress,
        connection: &Connection,
        handle: StreamHandle,
        chunks: &[usize],
    ) -> Result<(), BlockError> {
        let (arrived, mut arrivals) = mpsc::unbounded_channel::<Arrival>();
        // What each chunk that was asked for holds of `ahead`. A broken attempt gives it back.
        let mut held: Vec<Option<OwnedSemaphorePermit>> = Vec::with_capacity(chunks.len());
        let mut next = 0;
        // Chunks from here on are not wanted any more, because this one was refused.
        let mut end = chunks.len();
        let mut left = end;
        while left > 0 {
            // Bodies first: they must never wait for anything but their sinks, because the whole
            // connection waits with them.
            tokio::select! {
                biased;
                Some(arrival) = arrivals.recv() => {
                    let chunk = arrival.index;
                    if chunk >= end {
                        continue;
                    }
                    match arrival.body {
                        Ok(body) => {
                            let result = self.take_block(chunks[chunk], body).await?;
                            self.settle(progress, chunks[chunk], result, held[chunk].take());
                            left -= 1;
                        }
                        Err(error) => {
                            let error = BlockError::Refused {
                                server: connection.server().clone(),
                                chunk: chunk_id(handle, chunk),
                                error: error.into(),
                            };
                            for &block in &chunks[chunk..end] {
                                if !progress.is_settled(block) {
                                    left -= 1;
                                    self.settle(progress, block, Err(error.clone()), None);
                                }
                            }
                            end = chunk;
                        }
                    }
                }
                room = room(&self.ahead, connection), if next < end => {
                    let (ahead, room) = room?;
                    held.push(Some(ahead));
                    let (arrived, id) = (arrived.clone(), chunk_id(handle, next));
                    match self.via {
                        Via::Chunks => connection.chunk(id, next, arrived, room)?,
                        Via::Streams => {
                            let name = format!("{}_{}", id.stream, id.chunk);
                            connection.stream(name, next, arrived, room)?;
                        }
                    }
                    next += 1;
                }
                reason = connection.ended() => return Err(reason.into()),
            }
        }
        Ok(())
    }

    /// Takes the bytes of one block. The outer error is the connection's, after which the block
    /// comes again; the inner one is final for this block.
    async fn take_block(
        &mut self,
        block: usize,
        mut body: Body,
    ) -> Result<Result<S::Output, BlockError>, ConnectionError> {
        let length = body.length();
        if let Some(limit) = self.limit.filter(|limit| length > *limit) {
            return Ok(Err(BlockError::TooLargeForMemory { length, limit }));
        }
        let failed = |error: io::Error| Ok(Err(BlockError::Sink(Arc::new(error))));
        let mut sink =
            self.sinks.remove(&block).unwrap_or_else(|| (self.open)(&self.blocks[block]));
        if let Err(error) = sink.begin(length).await {
            return failed(error);
        }
        loop {
            match body.next().await {
                Ok(Some(bytes)) => {
                    if let Err(error) = sink.write(bytes).await {
                        return failed(error);
                    }
                }
                Ok(None) => break,
                Err(broken) => {
                    self.sinks.insert(block, sink);
                    return Err(broken);
                }
            }
        }
        match sink.finish().await {
            Ok(output) => Ok(Ok(output)),
            Err(error) => failed(error),
        }
    }

    fn settle(
        &mut self,
        progress: &mut Progress,
        block: usize,
        result: Result<S::Output, BlockError>,
        ahead: Option<OwnedSemaphorePermit>,
    ) {
        if progress.handle_settled(block) {
            self.sinks.remove(&block);
            // Nobody listens any more: then this task is about to be aborted.
            let _ = self.report.send(Report { block, result, _ahead: ahead });
        }
    }
}

/// Waits until one more block may be asked for, by the caller's pace and by the connection's.
async fn room(
    ahead: &Arc<Semaphore>,
    connection: &Connection,
) -> Result<(OwnedSemaphorePermit, Room), BlockError> {
    // Never closed.
    let ahead = ahead.clone().acquire_owned().await.map_err(|_| BlockError::Abandoned)?;
    Ok((ahead, connection.room().await?))
}

fn chunk_id(handle: StreamHandle, chunk: usize) -> StreamChunkId {
    let chunk = i32::try_from(chunk).expect("no more chunks than the handle's i32 counted");
    StreamChunkId { stream: handle.stream_id, chunk }
}
