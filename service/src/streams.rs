//! The chunk streams of one connection (`spec/wire-framing.md` §6, the rules of 4.x).
//!
//! A stream holds what was asked for in numbers, not an object a block, and nothing is looked up
//! before its chunk is asked for. Streams belong to the connection that opened them: another
//! connection does not see them, and they go with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use prometheus_client::metrics::gauge::Gauge;
use shuffle_protocol::block_id::OpenedBlocks;
use shuffle_protocol::failure::Failure;
use shuffle_protocol::frame::StreamChunkId;
use shuffle_protocol::message::{FetchShuffleBlockChunks, FetchShuffleBlocks};
use shuffle_protocol::wire::IntArrays;
use shuffle_protocol::{AppId, ExecId, MapId, ReduceId, ShuffleId, StreamId};

use crate::apps::Pin;

/// One block of an executor, as a chunk names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// The partitions `start..end` of a map output.
    Shuffle {
        /// The shuffle.
        shuffle_id: ShuffleId,
        /// The map output.
        map_id: MapId,
        /// First partition.
        start: ReduceId,
        /// The one after the last.
        end: ReduceId,
    },
    /// A partition of an RDD on disk.
    Rdd {
        /// The RDD.
        rdd_id: i32,
        /// The partition.
        split: i32,
    },
    /// A chunk of a merged block, which this service does not have.
    Merged,
}

/// The chunks of one stream, as compact as they were on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Chunks {
    Opened(OpenedBlocks),
    Fetched { shuffle_id: ShuffleId, map_ids: Vec<i64>, reduce_ids: IntArrays },
    Batches { shuffle_id: ShuffleId, map_ids: Vec<i64>, ranges: IntArrays },
    Merged { chunks: usize },
}

impl Chunks {
    fn len(&self) -> usize {
        match self {
            Self::Opened(blocks) => blocks.len(),
            Self::Fetched { reduce_ids, .. } => reduce_ids.values().len(),
            Self::Batches { map_ids, .. } => map_ids.len(),
            Self::Merged { chunks } => *chunks,
        }
    }

    /// Chunk number `at`, which is below `len`.
    fn block(&self, at: usize) -> Block {
        match self {
            Self::Opened(OpenedBlocks::Shuffle { shuffle_id, blocks }) => {
                let (map_id, reduce) = blocks[at];
                Block::one(*shuffle_id, map_id, reduce)
            }
            Self::Opened(OpenedBlocks::Rdd(blocks)) => {
                let (rdd_id, split) = blocks[at];
                Block::Rdd { rdd_id, split }
            }
            Self::Fetched { shuffle_id, map_ids, reduce_ids } => {
                let map_id = MapId(map_ids[reduce_ids.array_of(at)]);
                Block::one(*shuffle_id, map_id, ReduceId(reduce_ids.values()[at]))
            }
            Self::Batches { shuffle_id, map_ids, ranges } => Block::Shuffle {
                shuffle_id: *shuffle_id,
                map_id: MapId(map_ids[at]),
                start: ReduceId(ranges.values()[2 * at]),
                end: ReduceId(ranges.values()[2 * at + 1]),
            },
            Self::Opened(OpenedBlocks::MergedChunks { .. }) | Self::Merged { .. } => Block::Merged,
        }
    }

    /// Bytes of memory it holds, roughly.
    fn weight(&self) -> usize {
        match self {
            Self::Opened(blocks) => 16 * blocks.len(),
            Self::Fetched { map_ids, reduce_ids: ids, .. }
            | Self::Batches { map_ids, ranges: ids, .. } => {
                16 * map_ids.len() + 4 * ids.values().len()
            }
            Self::Merged { .. } => 0,
        }
    }
}

impl Block {
    fn one(shuffle_id: ShuffleId, map_id: MapId, reduce: ReduceId) -> Self {
        // The end of the last possible partition does not fit; the index has no such partition, and
        // says so.
        let end = ReduceId(reduce.0.saturating_add(1));
        Self::Shuffle { shuffle_id, map_id, start: reduce, end }
    }
}

/// A checked request to open a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPlan {
    app_id: AppId,
    exec_id: ExecId,
    chunks: Chunks,
}

impl StreamPlan {
    /// The stream of an OpenBlocks message.
    #[must_use]
    pub fn opened(app_id: AppId, exec_id: ExecId, blocks: OpenedBlocks) -> Self {
        Self { app_id, exec_id, chunks: Chunks::Opened(blocks) }
    }

    /// The stream of a FetchShuffleBlocks message. Map and reduce ids must match each other in
    /// number; Spark only asserts that, and ends the stream early where a list is empty.
    pub fn fetched(message: FetchShuffleBlocks) -> Result<Self, Failure> {
        let FetchShuffleBlocks { app_id, exec_id, shuffle_id, map_ids, reduce_ids, batch_fetch } =
            message;
        if map_ids.is_empty() {
            return Err(Failure::IllegalArgument("FetchShuffleBlocks without map ids".into()));
        }
        if map_ids.len() != reduce_ids.len() {
            return Err(Failure::IllegalArgument(format!(
                "FetchShuffleBlocks with {} map ids and {} lists of reduce ids",
                map_ids.len(),
                reduce_ids.len()
            )));
        }
        let fits = |list: &[i32]| if batch_fetch { list.len() == 2 } else { !list.is_empty() };
        if let Some((map_id, list)) = map_ids.iter().zip(reduce_ids.iter()).find(|m| !fits(m.1)) {
            let wanted = if batch_fetch { "a first and an end" } else { "at least one" };
            return Err(Failure::IllegalArgument(format!(
                "FetchShuffleBlocks with {} reduce ids for map {map_id} where {wanted} should be",
                list.len()
            )));
        }
        let chunks = if batch_fetch {
            Chunks::Batches { shuffle_id, map_ids, ranges: reduce_ids }
        } else {
            Chunks::Fetched { shuffle_id, map_ids, reduce_ids }
        };
        Ok(Self { app_id, exec_id, chunks })
    }

    /// The stream of a FetchShuffleBlockChunks message: opens, and each of its chunks is refused.
    #[must_use]
    pub fn merged(message: FetchShuffleBlockChunks) -> Self {
        let chunks = Chunks::Merged { chunks: message.chunk_ids.values().len() };
        let FetchShuffleBlockChunks { app_id, exec_id, .. } = message;
        Self { app_id, exec_id, chunks }
    }

    /// The application whose blocks they are.
    #[must_use]
    pub fn app_id(&self) -> &AppId {
        &self.app_id
    }

    /// Bytes of memory it holds, roughly.
    fn weight(&self) -> usize {
        const STREAM: usize = 256;
        // Each request brings its own copy of the ids, of any length.
        STREAM + self.app_id.as_str().len() + self.exec_id.as_str().len() + self.chunks.weight()
    }

    /// Its first chunk, if it has any.
    #[must_use]
    pub fn first(&self) -> Option<Chunk> {
        (self.num_chunks() > 0).then(|| self.chunk(0))
    }

    fn chunk(&self, at: usize) -> Chunk {
        Chunk {
            app_id: self.app_id.clone(),
            exec_id: self.exec_id.clone(),
            block: self.chunks.block(at),
        }
    }

    /// Chunks of the stream.
    #[must_use]
    pub fn num_chunks(&self) -> usize {
        self.chunks.len()
    }
}

/// A chunk whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The application.
    pub app_id: AppId,
    /// The executor that wrote the block.
    pub exec_id: ExecId,
    /// The block.
    pub block: Block,
}

/// Gives out stream ids for the whole service, from a random start, so that an id tells nothing
/// about another connection's.
#[derive(Debug)]
pub struct StreamIds(AtomicI64);

impl StreamIds {
    /// Counts from `start`, of which only the lower 62 bits are used, so that ids stay positive.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self(AtomicI64::new((start >> 2).cast_signed()))
    }

    fn next(&self) -> StreamId {
        StreamId(self.0.fetch_add(1, Ordering::Relaxed) & i64::MAX)
    }
}

/// How much one connection may keep open. A client that fetches what it opens stays far below; one
/// that does not loses the streams it left alone for longest.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// Open streams.
    pub streams: usize,
    /// Bytes of memory for what they ask for.
    pub bytes: usize,
    /// A stream of which no chunk was asked for this long is dropped.
    pub idle: Duration,
}

#[derive(Debug)]
struct Stream {
    plan: StreamPlan,
    /// Nothing when the application was not registered when the stream was opened. That is not refused,
    /// as in Spark; the failure comes with the first chunk.
    pin: Option<Pin>,
    next: usize,
    touched: Instant,
}

/// The open streams of one connection.
#[derive(Debug)]
pub struct Streams {
    open: LruCache<StreamId, Stream>,
    weight: usize,
    limits: StreamLimits,
    ids: Arc<StreamIds>,
    /// All open streams of the service.
    gauge: Gauge,
}

impl Streams {
    /// No stream yet. `gauge` counts those of all connections.
    #[must_use]
    pub fn new(limits: StreamLimits, ids: Arc<StreamIds>, gauge: Gauge) -> Self {
        Self { open: LruCache::unbounded(), weight: 0, limits, ids, gauge }
    }

    /// Opens a stream. Makes room by dropping those that were left alone for longest.
    /// While it is open, `pin` defers the end of its application.
    pub fn open(&mut self, plan: StreamPlan, pin: Option<Pin>, now: Instant) -> StreamId {
        self.drop_idle(now);
        let id = self.ids.next();
        self.weight += plan.weight();
        self.open.put(id, Stream { plan, pin, next: 0, touched: now });
        self.gauge.inc();
        while self.open.len() > 1
            && (self.open.len() > self.limits.streams || self.weight > self.limits.bytes)
        {
            self.drop_oldest();
        }
        id
    }

    /// Takes the chunk that `wanted` names, whose turn it must be. With its last chunk the stream is
    /// forgotten.
    pub fn take(&mut self, wanted: StreamChunkId, now: Instant) -> Result<Chunk, Failure> {
        let stream =
            self.open.get_mut(&wanted.stream).ok_or(Failure::UnknownStream(wanted.stream))?;
        let next = i32::try_from(stream.next).unwrap_or(i32::MAX);
        if wanted.chunk != next {
            return Err(Failure::OutOfOrderChunk { chunk: wanted.chunk, expected: next });
        }
        if stream.next >= stream.plan.num_chunks() {
            return Err(Failure::ChunkBeyondEnd(wanted.chunk));
        }
        let chunk = stream.plan.chunk(stream.next);
        stream.next += 1;
        stream.touched = now;
        if stream.next == stream.plan.num_chunks() {
            self.remove(wanted.stream);
        }
        Ok(chunk)
    }

    /// Drops the streams of applications that `is_gone`, which is also told whether the application
    /// was registered when the stream was opened.
    pub fn drop_gone(&mut self, is_gone: impl Fn(&AppId, bool) -> bool) {
        // There are far more streams than applications.
        let mut known: HashMap<(&AppId, bool), bool> = HashMap::new();
        let streams: Vec<StreamId> = self
            .open
            .iter()
            .filter(|(_, Stream { plan, pin, .. })| {
                let app = (&plan.app_id, pin.is_some());
                *known.entry(app).or_insert_with(|| is_gone(app.0, app.1))
            })
            .map(|(id, _)| *id)
            .collect();
        streams.into_iter().for_each(|id| self.remove(id));
    }

    /// Open streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True without an open stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn drop_idle(&mut self, now: Instant) {
        while let Some((_, oldest)) = self.open.peek_lru()
            && now.saturating_duration_since(oldest.touched) > self.limits.idle
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((&id, _)) = self.open.peek_lru() {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: StreamId) {
        if let Some(stream) = self.open.pop(&id) {
            self.weight -= stream.plan.weight();
            self.gauge.dec();
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let open = i64::try_from(self.open.len()).unwrap_or(i64::MAX);
        self.gauge.dec_by(open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StreamLimits =
        StreamLimits { streams: 4, bytes: 1 << 20, idle: Duration::from_secs(600) };

    fn streams(limits: StreamLimits) -> (Streams, Gauge) {
        let gauge = Gauge::default();
        (Streams::new(limits, Arc::new(StreamIds::new(7 << 2)), gauge.clone()), gauge)
    }

    fn plan(app: &str, maps: &[(i64, &[i32])], batch_fetch: bool) -> Result<StreamPlan, Failure> {
        StreamPlan::fetched(FetchShuffleBlocks {
            app_id: app.into(),
            exec_id: "1".into(),
            shuffle_id: ShuffleId(9),
            map_ids: maps.iter().map(|map| map.0).collect(),
            reduce_ids: maps.iter().map(|map| map.1).collect(),
            batch_fetch,
        })
    }

    fn partitions(map: i64, start: i32, end: i32) -> Block {
        Block::Shuffle {
            shuffle_id: ShuffleId(9),
            map_id: MapId(map),
            start: ReduceId(start),
            end: ReduceId(end),
        }
    }

    fn take(streams: &mut Streams, stream: StreamId, chunk: i32) -> Result<Block, Failure> {
        streams.take(StreamChunkId { stream, chunk }, Instant::now()).map(|chunk| chunk.block)
    }

    #[test]
    fn chunks_come_maps_first_and_reduces_within() {
        let (mut streams, _) = streams(LIMITS);
        let fetch = plan("a", &[(5, &[0, 2]), (1 << 40, &[7])], false).unwrap();
        assert_eq!(fetch.num_chunks(), 3);
        let id = streams.open(fetch, None, Instant::now());
        assert_eq!(take(&mut streams, id, 0), Ok(partitions(5, 0, 1)));
        assert_eq!(take(&mut streams, id, 1), Ok(partitions(5, 2, 3)));
        assert_eq!(take(&mut streams, id, 2), Ok(partitions(1 << 40, 7, 8)));
    }

    #[test]
    fn a_batch_is_one_chunk_a_map() {
        let (mut streams, _) = streams(LIMITS);
        let batch = plan("a", &[(5, &[0, 8]), (6, &[3, 4])], true).unwrap();
        assert_eq!(batch.num_chunks(), 2);
        let id = streams.open(batch, None, Instant::now());
        assert_eq!(take(&mut streams, id, 0), Ok(partitions(5, 0, 8)));
        assert_eq!(take(&mut streams, id, 1), Ok(partitions(6, 3, 4)));
    }

    #[test]
    fn chunks_are_given_out_in_order_and_once() {
        let (mut streams, gauge) = streams(LIMITS);
        let id = streams.open(plan("a", &[(5, &[0, 1])], false).unwrap(), None, Instant::now());
        let out_of_order = |chunk, expected| Err(Failure::OutOfOrderChunk { chunk, expected });
        assert_eq!(take(&mut streams, id, 1), out_of_order(1, 0));
        assert!(take(&mut streams, id, 0).is_ok());
        assert_eq!(take(&mut streams, id, 0), out_of_order(0, 1));
        assert_eq!(take(&mut streams, id, -1), out_of_order(-1, 1));
        assert!(take(&mut streams, id, 1).is_ok());
        assert_eq!(gauge.get(), 0, "forgotten with its last chunk");
        assert_eq!(take(&mut streams, id, 2), Err(Failure::UnknownStream(id)));
    }

    #[test]
    fn a_stream_without_chunks_has_none_to_give() {
        let (mut streams, _) = streams(LIMITS);
        let merged = StreamPlan::merged(FetchShuffleBlockChunks {
            app_id: "a".into(),
            exec_id: "shuffle-push-merger".into(),
            shuffle_id: ShuffleId(1),
            shuffle_merge_id: shuffle_protocol::ShuffleMergeId(0),
            reduce_ids: vec![],
            chunk_ids: IntArrays::default(),
        });
        let id = streams.open(merged, None, Instant::now());
        assert_eq!(take(&mut streams, id, 0), Err(Failure::ChunkBeyondEnd(0)));
    }

    #[test]
    fn requests_that_do_not_fit_together_are_refused() {
        assert!(plan("a", &[], false).is_err(), "no map");
        assert!(plan("a", &[(1, &[0]), (2, &[])], false).is_err(), "a map without partitions");
        assert!(plan("a", &[(1, &[0, 1, 2])], true).is_err(), "a range of three numbers");
        let mismatch = StreamPlan::fetched(FetchShuffleBlocks {
            app_id: "a".into(),
            exec_id: "1".into(),
            shuffle_id: ShuffleId(9),
            map_ids: vec![1, 2],
            reduce_ids: [[0]].iter().collect(),
            batch_fetch: false,
        });
        assert!(mismatch.is_err());
    }

    #[test]
    fn c27_streams_nobody_reads_are_bounded_and_go_with_the_connection() {
        let (mut streams, gauge) = streams(LIMITS);
        let start = Instant::now();
        let first = streams.open(plan("a", &[(1, &[0, 1])], false).unwrap(), None, start);
        for _ in 0..100 {
            streams.open(plan("a", &[(1, &[0, 1])], false).unwrap(), None, start);
        }
        assert_eq!((streams.len(), gauge.get()), (4, 4));
        assert_eq!(take(&mut streams, first, 0), Err(Failure::UnknownStream(first)));
        drop(streams);
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn c27_the_streams_left_alone_for_longest_make_room() {
        let (mut streams, _) = streams(LIMITS);
        let start = Instant::now();
        let one = || plan("a", &[(1, &[0, 1])], false).unwrap();
        let ids: Vec<_> = (0..4).map(|_| streams.open(one(), None, start)).collect();
        assert!(take(&mut streams, ids[0], 0).is_ok());
        streams.open(one(), None, start);
        assert!(take(&mut streams, ids[0], 1).is_ok(), "it was in use");
        assert_eq!(take(&mut streams, ids[1], 0), Err(Failure::UnknownStream(ids[1])));
    }

    #[test]
    fn c27_idle_streams_are_dropped_when_others_open() {
        let (mut streams, _) = streams(LIMITS);
        let start = Instant::now();
        let one = || plan("a", &[(1, &[0, 1])], false).unwrap();
        streams.open(one(), None, start);
        streams.open(one(), None, start + LIMITS.idle);
        assert_eq!(streams.len(), 2);
        streams.open(one(), None, start + LIMITS.idle + Duration::from_secs(1));
        assert_eq!(streams.len(), 2);
    }

    #[test]
    fn c25_memory_of_open_streams_is_bounded_by_what_they_ask_for() {
        let (mut streams, _) = streams(StreamLimits { streams: 1000, ..LIMITS });
        let reduces: Vec<i32> = (0..10_000).collect();
        for _ in 0..1000 {
            streams.open(plan("a", &[(1, &reduces)], false).unwrap(), None, Instant::now());
        }
        assert!(streams.weight <= LIMITS.bytes);
        assert!(
            streams.len() > 20,
            "a block takes {} bytes",
            LIMITS.bytes / streams.len() / 10_000
        );
        let huge: Vec<i32> = (0..1_000_000).collect();
        let id = streams.open(plan("a", &[(1, &huge)], false).unwrap(), None, Instant::now());
        assert_eq!(streams.len(), 1, "one that is over the limit by itself is served alone");
        assert!(take(&mut streams, id, 0).is_ok());
    }

    #[test]
    fn c27_the_ids_of_a_stream_count_as_well() {
        let (mut streams, _) = streams(LIMITS);
        let app = "a".repeat(LIMITS.bytes / 2);
        for _ in 0..3 {
            streams.open(plan(&app, &[(1, &[0])], false).unwrap(), None, Instant::now());
        }
        assert_eq!(streams.len(), 1);
    }

    #[test]
    fn c28_the_streams_of_an_application_go_with_it() {
        let (mut streams, gauge) = streams(LIMITS);
        let now = Instant::now();
        let mine = streams.open(plan("a", &[(1, &[0])], false).unwrap(), None, now);
        let other = streams.open(plan("b", &[(1, &[0])], false).unwrap(), None, now);
        streams.drop_gone(|app, _| app.as_str() == "a");
        assert_eq!(gauge.get(), 1);
        assert_eq!(take(&mut streams, mine, 0), Err(Failure::UnknownStream(mine)));
        assert!(take(&mut streams, other, 0).is_ok());
        assert_eq!((streams.weight, gauge.get()), (0, 0));
    }

    #[test]
    fn stream_ids_are_never_negative() {
        let ids = StreamIds::new(u64::MAX);
        assert!((0..1000).all(|_| ids.next().0 >= 0));
    }
}
