//! From a block to the part of a file that holds it (`spec/on-disk.md`).

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::time::Instant;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use shuffle_protocol::block_id::{BlockId, OpenedBlocks, RemovableName};
use shuffle_protocol::checksum::{Algorithm, Checksummer, diagnose, entry_offset};
use shuffle_protocol::failure::Failure;
use shuffle_protocol::index::{IndexError, IndexFile, Segment};
use shuffle_protocol::message::{CorruptionCause, DiagnoseCorruption, RemoveBlocks};
use shuffle_protocol::{AppId, ExecId, MapId, ReduceId, ShuffleId};
use tracing::{info, warn};

use crate::apps::{AppRegistry, Executor, Found, Traffic};
use crate::dirs::{LocalDir, LocalRoots, OpenError};
use crate::disk::{Disk, Disks};
use crate::metrics::{ErrorKind, Metrics};
use crate::streams::{Block, Chunk, StreamPlan};

/// An index is eight bytes a partition; a file of this size is none (Spark allows 2²⁴ partitions).
const MAX_INDEX: u64 = 1 << 28;
/// An index up to this size (a hundred thousand partitions) is read as a whole and cached. Of a larger
/// one only the two offsets are read that a request needs: a file full of holes costs its owner nothing,
/// and must not cost the service its size in memory for each request.
const WHOLE_INDEX: u64 = 1 << 20;
/// How much is read at a time to compute a checksum.
const CHECKSUM_BUFFER: usize = 64 * 1024;

/// An open part of a file, ready to be sent.
#[derive(Debug)]
pub struct FileSegment {
    /// Open for reading; `None` for a part of no bytes, which needs no file.
    pub file: Option<Arc<File>>,
    /// Which part.
    pub segment: Segment,
    /// Where it is, for messages.
    pub path: String,
    /// The disk it is on.
    pub disk: Disk,
    /// Where to count it.
    pub traffic: Arc<Traffic>,
}

/// Why a block cannot be had: what the client is told, and what is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockError {
    /// For the client.
    pub failure: Failure,
    /// For the metrics.
    pub kind: ErrorKind,
}

/// Finds blocks, and deletes and diagnoses them.
#[derive(Debug)]
pub struct Blocks {
    registry: Arc<AppRegistry>,
    roots: Arc<LocalRoots>,
    disks: Arc<Disks>,
    indexes: IndexCache,
    metrics: Arc<Metrics>,
}

impl Blocks {
    /// Finds blocks of the executors in `registry` below `roots`, and keeps up to `index_cache_bytes`
    /// of index files in memory.
    #[must_use]
    pub fn new(
        registry: Arc<AppRegistry>,
        roots: Arc<LocalRoots>,
        disks: Arc<Disks>,
        metrics: Arc<Metrics>,
        index_cache_bytes: u64,
    ) -> Self {
        let indexes = IndexCache::new(index_cache_bytes);
        Self { registry, roots, disks, indexes, metrics }
    }

    /// Opens the file of `chunk` where the chunk begins.
    pub async fn open(&self, chunk: &Chunk, now: Instant) -> Result<FileSegment, BlockError> {
        self.open_with(chunk, || self.executor(&chunk.app_id, &chunk.exec_id, now)).await
    }

    /// Finds out whether a block can be read, without counting as a read of its application.
    pub async fn examine(
        &self,
        app_id: &AppId,
        exec_id: &ExecId,
        block_id: &str,
    ) -> Result<FileSegment, BlockError> {
        let wrong = |failure| BlockError { failure, kind: ErrorKind::BadRequest };
        let opened = OpenedBlocks::parse(&[block_id]).map_err(|error| wrong(error.into()))?;
        let plan = StreamPlan::opened(app_id.clone(), exec_id.clone(), opened);
        let chunk = plan.first().ok_or_else(|| wrong(Failure::ChunkNotFound))?;
        let find = || {
            self.registry
                .peek_executor(app_id, exec_id)
                .ok_or_else(|| not_registered(app_id, exec_id))
        };
        self.open_with(&chunk, find).await
    }

    async fn open_with(
        &self,
        chunk: &Chunk,
        find: impl FnOnce() -> Result<Found, BlockError>,
    ) -> Result<FileSegment, BlockError> {
        match chunk.block {
            // Of no executor, so none is looked up.
            Block::Merged => {
                Err(BlockError { failure: Failure::NoMergeManager, kind: ErrorKind::BadRequest })
            }
            Block::Rdd { rdd_id, split } => {
                let Found { executor, traffic } = find()?;
                let file = place(&executor, &BlockId::Rdd { rdd: rdd_id, split })?;
                let (disk, (open, segment)) = self.on_disk(&file, open_rdd_block).await?;
                let path = file.path();
                Ok(FileSegment { file: Some(open), segment, path, disk, traffic })
            }
            Block::Shuffle { shuffle_id, map_id, start, end } => {
                let Found { executor, traffic } = find()?;
                let output = MapOutput::of(&executor, shuffle_id, map_id)?;
                let key = (chunk.app_id.clone(), chunk.exec_id.clone(), shuffle_id, map_id);
                // The data file is opened first: what is cached of the index counts only for the very
                // data file it was read beside, because a retried stage of Spark 2 writes both anew
                // under the same names.
                let (disk, (data, stamp)) = self.on_disk(&output.data, open_data).await?;
                let segment = match self.indexes.get(&key, stamp) {
                    Some(index) => index.segment_range(start, end).map_err(output.in_index())?,
                    None => {
                        let look_up = move |roots: &LocalRoots, index: &Placed| {
                            look_up(roots, index, start..end)
                        };
                        let (_, (segment, index)) = self.on_disk(&output.index, look_up).await?;
                        if let Some(index) = index
                            && data.is_some()
                        {
                            self.indexes.put(key, stamp, Arc::new(index));
                        }
                        segment.map_err(output.in_index())?
                    }
                };
                let file = output.check(segment, data, stamp, start..end)?;
                let path = output.data.path();
                Ok(FileSegment { file, segment, path, disk, traffic })
            }
        }
    }

    /// Deletes files by name and says how many there were. A name that is no file of Spark's to
    /// delete is skipped, a file that cannot be deleted is logged, and neither counts.
    pub async fn remove(&self, message: RemoveBlocks, now: Instant) -> Result<i32, BlockError> {
        let Found { executor, .. } = self.executor(&message.app_id, &message.exec_id, now)?;
        let (mut removed, mut skipped) = (0, 0_u64);
        for name in message.block_ids.iter() {
            // Millions of names that are none must not keep a runtime thread.
            tokio::task::coop::consume_budget().await;
            let name: RemovableName = match name.parse() {
                Ok(name) => name,
                Err(_) => {
                    // Of a million of them, one is enough for the log.
                    if skipped == 0 {
                        warn!(app = %message.app_id, name, "Skipping block with invalid id");
                    }
                    skipped += 1;
                    self.metrics.error(ErrorKind::BadRequest);
                    continue;
                }
            };
            if let BlockId::ShuffleIndex { shuffle, map } | BlockId::ShuffleData { shuffle, map } =
                *name.block()
            {
                let key = (message.app_id.clone(), message.exec_id.clone(), shuffle, map);
                self.indexes.remove(&key);
            }
            let Ok(file) = place(&executor, name.block()) else { continue };
            let roots = self.roots.clone();
            let dir = file.dir.clone();
            let gone = self.disks.run(&dir, move || file.remove(&roots)).await.map_err(internal)?;
            match gone {
                Ok(Some(bytes)) => {
                    removed += 1;
                    self.metrics.files_removed.inc();
                    self.metrics.bytes_removed.inc_by(bytes);
                }
                Ok(None) => {}
                Err(error) => {
                    warn!(app = %message.app_id, %error, "Failed to delete block");
                    self.metrics.error(kind_of(&error));
                }
            }
        }
        info!(app = %message.app_id, exec = %message.exec_id, asked = message.block_ids.len(), removed, skipped,
            "Removed blocks on request");
        Ok(removed)
    }

    /// Finds out where a block was damaged.
    pub async fn diagnose(
        &self,
        message: DiagnoseCorruption,
        now: Instant,
    ) -> Result<CorruptionCause, BlockError> {
        let Found { executor, .. } = self.executor(&message.app_id, &message.exec_id, now)?;
        let Ok(algorithm) = message.algorithm.parse::<Algorithm>() else {
            return Ok(CorruptionCause::UnsupportedChecksumAlgorithm);
        };
        let (shuffle, map) = (message.shuffle_id, message.map_id);
        let output = MapOutput::of(&executor, shuffle, map)?;
        let checksums = BlockId::ShuffleChecksum { shuffle, map, algorithm };
        let checksums = place(&executor, &checksums)?;
        let cause = self.cause(&output, &checksums, algorithm, &message).await;
        Ok(cause.unwrap_or_else(|why| {
            warn!(app = %message.app_id, why = %why.failure, "Unable to diagnose shuffle block corruption");
            CorruptionCause::UnknownIssue
        }))
    }

    /// The algorithm of `spec/on-disk.md` §5, but where Spark's fails because the index cannot be read,
    /// the cause is unknown as well: that is what its client makes of the failure.
    async fn cause(
        &self,
        output: &MapOutput,
        checksums: &Placed,
        algorithm: Algorithm,
        asked: &DiagnoseCorruption,
    ) -> Result<CorruptionCause, BlockError> {
        let reduce = asked.reduce_id;
        // The end of the last possible partition does not fit; the index has no such partition.
        let partition = reduce..ReduceId(reduce.0.saturating_add(1));
        let look_up = move |roots: &LocalRoots, index: &Placed| look_up(roots, index, partition);
        let (_, (segment, _)) = self.on_disk(&output.index, look_up).await?;
        let segment = segment.map_err(output.in_index())?;
        let stored = move |roots: &LocalRoots, file: &Placed| stored_checksum(roots, file, reduce);
        let (_, stored) = self.on_disk(checksums, stored).await?;
        let compute =
            move |roots: &LocalRoots, file: &Placed| checksum(roots, file, segment, algorithm);
        let (_, computed) = self.on_disk(&output.data, compute).await?;
        Ok(diagnose(asked.checksum, stored, computed))
    }

    /// Runs `work` on a file, on the disk of that file and no other: the files of one map output lie on
    /// several, and one that hangs must not take the others' threads.
    async fn on_disk<T: Send + 'static>(
        &self,
        file: &Placed,
        work: impl FnOnce(&LocalRoots, &Placed) -> Result<T, BlockError> + Send + 'static,
    ) -> Result<(Disk, T), BlockError> {
        let (roots, disk, file) = (self.roots.clone(), self.disks.disk(&file.dir), file.clone());
        let done = disk.run(move || work(&roots, &file)).await.map_err(internal)??;
        Ok((disk, done))
    }

    /// Forgets what is cached of these applications. Looks through the whole cache, so call it once
    /// for all of them.
    pub fn forget(&self, apps: &HashSet<AppId>) {
        self.indexes.0.retain(|key, _| !apps.contains(&key.0));
    }

    fn executor(&self, app: &AppId, exec: &ExecId, now: Instant) -> Result<Found, BlockError> {
        self.registry.use_executor(app, exec, now).ok_or_else(|| not_registered(app, exec))
    }
}

fn not_registered(app_id: &AppId, exec_id: &ExecId) -> BlockError {
    BlockError {
        failure: Failure::ExecutorNotRegistered {
            app_id: app_id.clone(),
            exec_id: exec_id.clone(),
        },
        kind: ErrorKind::NotRegistered,
    }
}

/// A file name with the directories it lies in.
#[derive(Debug, Clone)]
struct Placed {
    dir: LocalDir,
    sub: String,
    name: String,
}

impl Placed {
    fn path(&self) -> String {
        format!("{}/{}/{}", self.dir, self.sub, self.name)
    }

    fn open(&self, roots: &LocalRoots) -> Result<File, OpenError> {
        roots.open_file(&self.dir, &self.sub, &self.name)
    }

    /// Unlinks the file; its length, or `None` when there is none.
    fn remove(&self, roots: &LocalRoots) -> Result<Option<u64>, OpenError> {
        let bytes = self.open(roots).and_then(|file| length(&file, || self.path())).unwrap_or(0);
        let there = roots.remove_file(&self.dir, &self.sub, &self.name)?;
        Ok(there.then_some(bytes))
    }
}

/// Where the file of `block` lies.
fn place(executor: &Executor, block: &BlockId) -> Result<Placed, BlockError> {
    let name = block.file_name();
    let (Some(layout), Some(name)) = (executor.layout, name) else {
        return Err(BlockError {
            failure: Failure::IllegalArgument(format!(
                "{block} has no place: its executor registered {} local dirs with {} sub-directories",
                executor.local_dirs.len(),
                executor.sub_dirs_per_local_dir,
            )),
            kind: ErrorKind::BadRequest,
        });
    };
    let place = layout.place(&name);
    let dir = executor.local_dirs[place.dir].clone();
    Ok(Placed { dir, sub: place.sub.to_string(), name })
}

fn open_rdd_block(roots: &LocalRoots, placed: &Placed) -> Result<(Arc<File>, Segment), BlockError> {
    let file = placed.open(roots).map_err(|error| match error {
        OpenError::NotFound { .. } => {
            BlockError { failure: Failure::ChunkNotFound, kind: ErrorKind::FileMissing }
        }
        other => unreadable(&other),
    })?;
    let length = length(&file, || placed.path()).map_err(|error| unreadable(&error))?;
    Ok((Arc::new(file), Segment { offset: 0, length }))
}

/// The two files of a map output.
#[derive(Debug)]
struct MapOutput {
    data: Placed,
    index: Placed,
}

impl MapOutput {
    fn of(executor: &Executor, shuffle: ShuffleId, map: MapId) -> Result<Self, BlockError> {
        Ok(Self {
            data: place(executor, &BlockId::ShuffleData { shuffle, map })?,
            index: place(executor, &BlockId::ShuffleIndex { shuffle, map })?,
        })
    }

    /// What is wrong with the index file.
    fn in_index(&self) -> impl FnOnce(IndexError) -> BlockError {
        |error| bad_file(format!("{}: {error}", self.index.path()))
    }

    /// The open data file, in which the `segment` of these partitions must lie; none where they have no
    /// byte.
    fn check(
        &self,
        segment: Segment,
        data: Option<File>,
        stamp: Stamp,
        partitions: Range<ReduceId>,
    ) -> Result<Option<Arc<File>>, BlockError> {
        let Range { start, end } = partitions;
        let path = self.data.path();
        if segment.length == 0 {
            return Ok(None);
        }
        let Some(data) = data else {
            return Err(BlockError {
                failure: Failure::BadFile(format!("no such file or directory: {path}")),
                kind: ErrorKind::FileMissing,
            });
        };
        if segment.end() > stamp.length {
            return Err(bad_file(format!(
                "{path} has {} bytes, but by {} partitions {start} to {end} end at byte {}",
                stamp.length,
                self.index.name,
                segment.end(),
            )));
        }
        Ok(Some(Arc::new(data)))
    }
}

/// A map output without a byte has no data file.
fn open_data(roots: &LocalRoots, data: &Placed) -> Result<(Option<File>, Stamp), BlockError> {
    match data.open(roots) {
        Ok(file) => {
            let stamp = Stamp::of(&file).map_err(|e| unreadable(&io(data, e)))?;
            Ok((Some(file), stamp))
        }
        Err(OpenError::NotFound { .. }) => Ok((None, Stamp::MISSING)),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Where partitions are by the index file; and its content, unless it is too large for that.
fn look_up(
    roots: &LocalRoots,
    index: &Placed,
    partitions: Range<ReduceId>,
) -> Result<(Result<Segment, IndexError>, Option<IndexFile>), BlockError> {
    let Range { start, end } = partitions;
    let not_opened = |error: &OpenError| BlockError {
        failure: Failure::IndexNotOpened {
            path: index.path(),
            reason: match error {
                // Its own text would name the path once more.
                OpenError::NotFound { .. } => "no such file or directory".to_owned(),
                other => other.to_string(),
            },
        },
        kind: kind_of(error),
    };
    let file = index.open(roots).map_err(|error| not_opened(&error))?;
    let length = length(&file, || index.path()).map_err(|error| not_opened(&error))?;
    if length > MAX_INDEX {
        return Err(bad_file(format!("{} has {length} bytes", index.path())));
    }
    let unread = |error| not_opened(&io(index, error));
    if length <= WHOLE_INDEX {
        let mut bytes = Vec::new();
        file.take(length).read_to_end(&mut bytes).map_err(unread)?;
        return Ok(match IndexFile::parse(&bytes) {
            Ok(index) => (index.segment_range(start, end), Some(index)),
            Err(error) => (Err(error), None),
        });
    }
    let offset = |at: usize| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at as u64 * 8).map_err(unread)?;
        Ok((at, i64::from_be_bytes(bytes)))
    };
    let count = usize::try_from(length / 8 - 1).unwrap_or(usize::MAX);
    let segment = match IndexFile::positions(count, start, end) {
        Ok((first, last)) => IndexFile::between(offset(first)?, offset(last)?),
        Err(error) => Err(error),
    };
    Ok((segment, None))
}

/// What the writer of a map output noted of the partition `reduce`.
fn stored_checksum(
    roots: &LocalRoots,
    checksums: &Placed,
    reduce: ReduceId,
) -> Result<i64, BlockError> {
    let file = checksums.open(roots).map_err(|error| unreadable(&error))?;
    let mut entry = [0; 8];
    let at = entry_offset(reduce).unwrap_or(u64::MAX);
    file.read_exact_at(&mut entry, at).map_err(|error| unreadable(&io(checksums, error)))?;
    Ok(i64::from_be_bytes(entry))
}

/// Of what there is of `segment`: a file that lost its end is damaged, and its checksum shows it.
fn checksum(
    roots: &LocalRoots,
    data: &Placed,
    segment: Segment,
    algorithm: Algorithm,
) -> Result<i64, BlockError> {
    let file = data.open(roots).map_err(|error| unreadable(&error))?;
    let mut sum = Checksummer::new(algorithm);
    let mut buffer = vec![0; CHECKSUM_BUFFER];
    let mut at = segment.offset;
    while at < segment.end() {
        let left = usize::try_from(segment.end() - at).unwrap_or(usize::MAX);
        let piece = &mut buffer[..left.min(CHECKSUM_BUFFER)];
        match file.read_at(piece, at) {
            Ok(0) => break,
            Ok(read) => {
                sum.update(&piece[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&io(data, error))),
        }
    }
    Ok(sum.value())
}

fn length(file: &File, path: impl Fn() -> String) -> Result<u64, OpenError> {
    file.metadata().map(|data| data.len()).map_err(|source| OpenError::Io { path: path(), source })
}

fn io(placed: &Placed, source: std::io::Error) -> OpenError {
    OpenError::Io { path: placed.path(), source }
}

fn kind_of(error: &OpenError) -> ErrorKind {
    match error {
        OpenError::NotFound { .. } => ErrorKind::FileMissing,
        OpenError::Permission { .. } => ErrorKind::Permission,
        OpenError::SymbolicLink { .. }
        | OpenError::NotARegularFile { .. }
        | OpenError::NotADirectory { .. }
        | OpenError::Moved { .. }
        | OpenError::NotAName { .. } => ErrorKind::BadFile,
        OpenError::Io { .. } => ErrorKind::Disk,
    }
}

fn unreadable(error: &OpenError) -> BlockError {
    BlockError { failure: Failure::BadFile(error.to_string()), kind: kind_of(error) }
}

fn bad_file(message: String) -> BlockError {
    BlockError { failure: Failure::BadFile(message), kind: ErrorKind::BadFile }
}

fn internal(error: crate::disk::DiskTaskPanicked) -> BlockError {
    BlockError { failure: Failure::Internal(error.to_string()), kind: ErrorKind::Internal }
}

type IndexKey = (AppId, ExecId, ShuffleId, MapId);

/// Tells a data file from the one that stood in its place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    const MISSING: Self = Self { device: 0, inode: 0, length: 0, modified: (0, 0) };

    fn of(file: &File) -> std::io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self {
            device: data.dev(),
            inode: data.ino(),
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
        })
    }
}

/// Index files, by the map output they belong to, weighed by the memory they take.
#[derive(Debug)]
struct IndexCache(Cache<IndexKey, (Stamp, Arc<IndexFile>), IndexWeight>);

#[derive(Debug, Clone)]
struct IndexWeight;

impl Weighter<IndexKey, (Stamp, Arc<IndexFile>)> for IndexWeight {
    fn weight(&self, key: &IndexKey, (_, index): &(Stamp, Arc<IndexFile>)) -> u64 {
        (index.weight() + key.0.as_str().len() + key.1.as_str().len()) as u64
    }
}

impl IndexCache {
    fn new(bytes: u64) -> Self {
        /// What an index of a hundred partitions weighs; only how the cache is cut depends on it.
        const TYPICAL: u64 = 1024;
        let items = usize::try_from(bytes / TYPICAL).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(items, bytes, IndexWeight))
    }

    fn get(&self, key: &IndexKey, stamp: Stamp) -> Option<Arc<IndexFile>> {
        self.0.get(key).filter(|(of, _)| *of == stamp).map(|(_, index)| index)
    }

    fn put(&self, key: IndexKey, stamp: Stamp, index: Arc<IndexFile>) {
        self.0.insert(key, (stamp, index));
    }

    fn remove(&self, key: &IndexKey) {
        self.0.remove(key);
    }
}
