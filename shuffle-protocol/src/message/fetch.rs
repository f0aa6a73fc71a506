//! Opening a stream over blocks (`spec/block-transfer.md` §3.1 to §3.4).

use bytes::{BufMut, BytesMut};

use super::{Fields, Layout};
use crate::ids::{AppId, ExecId, ShuffleId, ShuffleMergeId, StreamId};
use crate::wire::{IntArrays, Reader, StringArray, WireError, WriteWire};

/// Opens blocks by their ids: `string appId, string execId, string[] blockIds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenBlocks {
    /// The application.
    pub app_id: AppId,
    /// The executor that wrote the blocks.
    pub exec_id: ExecId,
    /// One chunk each, in this order. [`crate::block_id`] reads them.
    pub block_ids: StringArray,
}

impl Fields for OpenBlocks {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            exec_id: reader.string("execId")?.into(),
            block_ids: reader.strings("blockIds")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_string(self.exec_id.as_str());
        out.put_strings(&self.block_ids);
    }
}

/// Opens shuffle blocks by numbers: `string appId, string execId, i32 shuffleId, i64[] mapIds,
/// i32 n, n × i32[] reduceIds, boolean batchFetchEnabled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchShuffleBlocks {
    /// The application.
    pub app_id: AppId,
    /// The executor that wrote the blocks.
    pub exec_id: ExecId,
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// The map outputs.
    pub map_ids: Vec<i64>,
    /// For each map output its reduce ids, or with `batch_fetch` first and end of one range.
    pub reduce_ids: IntArrays,
    /// One chunk a map output (a range of partitions) instead of one a partition.
    pub batch_fetch: bool,
}

impl Fields for FetchShuffleBlocks {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            exec_id: reader.string("execId")?.into(),
            shuffle_id: ShuffleId(reader.i32("shuffleId")?),
            map_ids: reader.i64s("mapIds")?,
            reduce_ids: reader.i32_arrays("reduceIds")?,
            batch_fetch: reader.bool("batchFetchEnabled")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_string(self.exec_id.as_str());
        out.put_i32(self.shuffle_id.0);
        out.put_i64s(&self.map_ids);
        out.put_i32_arrays(&self.reduce_ids);
        out.put_bool(self.batch_fetch);
    }
}

/// Opens chunks of merged blocks: `string appId, string execId, i32 shuffleId, i32 shuffleMergeId,
/// i32[] reduceIds, i32 n, n × i32[] chunkIds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchShuffleBlockChunks {
    /// The application.
    pub app_id: AppId,
    /// The literal `shuffle-push-merger`; not used.
    pub exec_id: ExecId,
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// Its generation.
    pub shuffle_merge_id: ShuffleMergeId,
    /// The merged partitions.
    pub reduce_ids: Vec<i32>,
    /// For each partition its chunks.
    pub chunk_ids: IntArrays,
}

impl Fields for FetchShuffleBlockChunks {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            exec_id: reader.string("execId")?.into(),
            shuffle_id: ShuffleId(reader.i32("shuffleId")?),
            shuffle_merge_id: ShuffleMergeId(reader.i32("shuffleMergeId")?),
            reduce_ids: reader.i32s("reduceIds")?,
            chunk_ids: reader.i32_arrays("chunkIds")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_string(self.exec_id.as_str());
        out.put_i32(self.shuffle_id.0);
        out.put_i32(self.shuffle_merge_id.0);
        out.put_i32s(&self.reduce_ids);
        out.put_i32_arrays(&self.chunk_ids);
    }
}

/// An open stream: `i64 streamId, i32 numChunks`. Chunks are asked for on the same connection, each
/// once, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHandle {
    /// The stream.
    pub stream_id: StreamId,
    /// Chunks `0..num_chunks` can be fetched.
    pub num_chunks: i32,
}

impl Fields for StreamHandle {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            stream_id: StreamId(reader.i64("streamId")?),
            num_chunks: reader.i32("numChunks")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_i64(self.stream_id.0);
        out.put_i32(self.num_chunks);
    }
}
