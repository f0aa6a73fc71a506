//! Push-based shuffle (`spec/push-shuffle.md`, layouts in `spec/block-transfer.md` §2).
//!
//! The service refuses all of it, as one without a merge manager does; the layouts are here because
//! a refusal has to name what it refuses.

use bytes::{BufMut, BytesMut};

use super::{Fields, Layout};
use crate::ids::{AppId, ReduceId, ShuffleId, ShuffleMergeId};
use crate::wire::{Bitmap, Reader, WireError, WriteWire};

/// What the layout of 3.1 leaves out: no attempt, and the first generation.
const NO_ATTEMPT: i32 = -1;
const FIRST_MERGE: ShuffleMergeId = ShuffleMergeId(0);

/// Announces a pushed block, in the meta of an upload: `string appId, i32 appAttemptId, i32
/// shuffleId, i32 shuffleMergeId, i32 mapIndex, i32 reduceId, i32 index`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushBlockStream {
    /// The application.
    pub app_id: AppId,
    /// Its attempt; −1 for none. Not in 3.1.
    pub app_attempt_id: i32,
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// Its generation. Not in 3.1.
    pub shuffle_merge_id: ShuffleMergeId,
    /// Index of the map partition.
    pub map_index: i32,
    /// The partition.
    pub reduce_id: ReduceId,
    /// Position in the client's request.
    pub index: i32,
}

impl Fields for PushBlockStream {
    fn read(reader: &mut Reader, layout: Layout) -> Result<Self, WireError> {
        let app_id = reader.string("appId")?.into();
        let app_attempt_id = read_attempt(reader, layout)?;
        let shuffle_id = ShuffleId(reader.i32("shuffleId")?);
        Ok(Self {
            app_id,
            app_attempt_id,
            shuffle_id,
            shuffle_merge_id: read_merge_id(reader, layout)?,
            map_index: reader.i32("mapIndex")?,
            reduce_id: ReduceId(reader.i32("reduceId")?),
            index: reader.i32("index")?,
        })
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        out.put_string(self.app_id.as_str());
        write_attempt(out, layout, self.app_attempt_id);
        out.put_i32(self.shuffle_id.0);
        write_merge_id(out, layout, self.shuffle_merge_id);
        out.put_i32(self.map_index);
        out.put_i32(self.reduce_id.0);
        out.put_i32(self.index);
    }
}

/// Ends the merging of a shuffle: `string appId, i32 appAttemptId, i32 shuffleId, i32
/// shuffleMergeId`. Answered by [`MergeStatuses`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalizeShuffleMerge {
    /// The application.
    pub app_id: AppId,
    /// Its attempt; −1 for none. Not in 3.1.
    pub app_attempt_id: i32,
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// Its generation. Not in 3.1.
    pub shuffle_merge_id: ShuffleMergeId,
}

impl Fields for FinalizeShuffleMerge {
    fn read(reader: &mut Reader, layout: Layout) -> Result<Self, WireError> {
        let app_id = reader.string("appId")?.into();
        let app_attempt_id = read_attempt(reader, layout)?;
        let shuffle_id = ShuffleId(reader.i32("shuffleId")?);
        let shuffle_merge_id = read_merge_id(reader, layout)?;
        Ok(Self { app_id, app_attempt_id, shuffle_id, shuffle_merge_id })
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        out.put_string(self.app_id.as_str());
        write_attempt(out, layout, self.app_attempt_id);
        out.put_i32(self.shuffle_id.0);
        write_merge_id(out, layout, self.shuffle_merge_id);
    }
}

/// What was merged: `i32 shuffleId, i32 shuffleMergeId, bitmap[] bitmaps, i32[] reduceIds, i64[]
/// sizes`; the three arrays are of one length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeStatuses {
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// Its generation. Not in 3.1.
    pub shuffle_merge_id: ShuffleMergeId,
    /// The map indexes in each merged partition.
    pub bitmaps: Vec<Bitmap>,
    /// The merged partitions.
    pub reduce_ids: Vec<i32>,
    /// Their sizes in bytes.
    pub sizes: Vec<i64>,
}

impl Fields for MergeStatuses {
    fn read(reader: &mut Reader, layout: Layout) -> Result<Self, WireError> {
        let shuffle_id = ShuffleId(reader.i32("shuffleId")?);
        Ok(Self {
            shuffle_id,
            shuffle_merge_id: read_merge_id(reader, layout)?,
            bitmaps: reader.bitmaps("bitmaps")?,
            reduce_ids: reader.i32s("reduceIds")?,
            sizes: reader.i64s("sizes")?,
        })
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        out.put_i32(self.shuffle_id.0);
        write_merge_id(out, layout, self.shuffle_merge_id);
        out.put_bitmaps(&self.bitmaps);
        out.put_i32s(&self.reduce_ids);
        out.put_i64s(&self.sizes);
    }
}

/// Answers a pushed block: `i8 returnCode, string failureBlockId`. Codes: `spec/push-shuffle.md` §4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPushReturnCode {
    /// 0 is success.
    pub return_code: i8,
    /// The pushed block, empty on success.
    pub failure_block_id: String,
}

impl Fields for BlockPushReturnCode {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            return_code: reader.i8("returnCode")?,
            failure_block_id: reader.string("failureBlockId")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_i8(self.return_code);
        out.put_string(&self.failure_block_id);
    }
}

/// Deletes merged blocks: `string appId, i32 appAttemptId, i32 shuffleId, i32 shuffleMergeId`. Sent
/// one-way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveShuffleMerge {
    /// The application.
    pub app_id: AppId,
    /// Its attempt; −1 for none.
    pub app_attempt_id: i32,
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// Its generation; −1 for all.
    pub shuffle_merge_id: ShuffleMergeId,
}

impl Fields for RemoveShuffleMerge {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            app_attempt_id: reader.i32("appAttemptId")?,
            shuffle_id: ShuffleId(reader.i32("shuffleId")?),
            shuffle_merge_id: ShuffleMergeId(reader.i32("shuffleMergeId")?),
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_i32(self.app_attempt_id);
        out.put_i32(self.shuffle_id.0);
        out.put_i32(self.shuffle_merge_id.0);
    }
}

fn read_attempt(reader: &mut Reader, layout: Layout) -> Result<i32, WireError> {
    match layout {
        Layout::Spark31 => Ok(NO_ATTEMPT),
        Layout::Spark32 => reader.i32("appAttemptId"),
    }
}

fn read_merge_id(reader: &mut Reader, layout: Layout) -> Result<ShuffleMergeId, WireError> {
    match layout {
        Layout::Spark31 => Ok(FIRST_MERGE),
        Layout::Spark32 => reader.i32("shuffleMergeId").map(ShuffleMergeId),
    }
}

fn write_attempt(out: &mut BytesMut, layout: Layout, attempt: i32) {
    if layout == Layout::Spark32 {
        out.put_i32(attempt);
    }
}

fn write_merge_id(out: &mut BytesMut, layout: Layout, merge_id: ShuffleMergeId) {
    if layout == Layout::Spark32 {
        out.put_i32(merge_id.0);
    }
}
