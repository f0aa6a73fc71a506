//! Blocks as files: uploads, removal, and the search for who damaged one
//! (`spec/block-transfer.md` §3.6 and §3.8).

use bytes::{BufMut, Bytes, BytesMut};

use super::{Fields, Layout};
use crate::checksum::CorruptionCause;
use crate::ids::{AppId, ExecId, MapId, ReduceId, ShuffleId};
use crate::wire::{Reader, StringArray, WireError, WriteWire};

/// A block with its bytes, from executor to executor: `string appId, string execId, string blockId,
/// bytes metadata, bytes data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadBlock {
    /// The application.
    pub app_id: AppId,
    /// The executor that stores the block.
    pub exec_id: ExecId,
    /// The block.
    pub block_id: String,
    /// Serialised by Java; opaque here.
    pub metadata: Bytes,
    /// The block's bytes.
    pub data: Bytes,
}

impl Fields for UploadBlock {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            exec_id: reader.string("execId")?.into(),
            block_id: reader.string("blockId")?,
            metadata: reader.bytes("metadata")?,
            data: reader.bytes("blockData")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_string(self.exec_id.as_str());
        out.put_string(&self.block_id);
        out.put_bytes_field(&self.metadata);
        out.put_bytes_field(&self.data);
    }
}

/// Announces a block that follows as a stream, from executor to executor: `string blockId, bytes
/// metadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadBlockStream {
    /// The block.
    pub block_id: String,
    /// Serialised by Java; opaque here.
    pub metadata: Bytes,
}

impl Fields for UploadBlockStream {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self { block_id: reader.string("blockId")?, metadata: reader.bytes("metadata")? })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(&self.block_id);
        out.put_bytes_field(&self.metadata);
    }
}

/// Deletes files: `string appId, string execId, string[] blockIds`. Answered by [`BlocksRemoved`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveBlocks {
    /// The application.
    pub app_id: AppId,
    /// The executor that wrote the files.
    pub exec_id: ExecId,
    /// File names.
    pub block_ids: StringArray,
}

impl Fields for RemoveBlocks {
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

/// How many files `RemoveBlocks` deleted: `i32 numRemovedBlocks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlocksRemoved {
    /// Files that are gone now and were there before.
    pub num_removed_blocks: i32,
}

impl Fields for BlocksRemoved {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self { num_removed_blocks: reader.i32("numRemovedBlocks")? })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_i32(self.num_removed_blocks);
    }
}

/// A reader found a block damaged and asks where that happened: `string appId, string execId, i32
/// shuffleId, i64 mapId, i32 reduceId, i64 checksum, string algorithm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagnoseCorruption {
    /// The application.
    pub app_id: AppId,
    /// The executor that wrote the block.
    pub exec_id: ExecId,
    /// The shuffle.
    pub shuffle_id: ShuffleId,
    /// The map output.
    pub map_id: MapId,
    /// The partition.
    pub reduce_id: ReduceId,
    /// What the reader computed over the bytes it got.
    pub checksum: i64,
    /// Name of the algorithm, case-sensitive.
    pub algorithm: String,
}

impl Fields for DiagnoseCorruption {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            exec_id: reader.string("execId")?.into(),
            shuffle_id: ShuffleId(reader.i32("shuffleId")?),
            map_id: MapId(reader.i64("mapId")?),
            reduce_id: ReduceId(reader.i32("reduceId")?),
            checksum: reader.i64("checksum")?,
            algorithm: reader.string("algorithm")?,
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_string(self.exec_id.as_str());
        out.put_i32(self.shuffle_id.0);
        out.put_i64(self.map_id.0);
        out.put_i32(self.reduce_id.0);
        out.put_i64(self.checksum);
        out.put_string(&self.algorithm);
    }
}

impl Fields for CorruptionCause {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        let code = reader.i8("cause")?;
        let out_of_range = WireError::OutOfRange { what: "cause", value: code.into() };
        u8::try_from(code).ok().and_then(Self::from_code).ok_or(out_of_range)
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_u8(self.code());
    }
}
