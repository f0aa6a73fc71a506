//! Every form of block id and block file name, parsed into a type.
//!
//! Source: `spec/block-transfer.md` §4 (syntax), §3.1 (OpenBlocks), §3.6 (RemoveBlocks).
//!
//! Nothing else turns a client's text into a file name: what is displayed here is built from
//! numbers, so it holds no separator and names one file only. For the same reason a number is
//! digits alone, without a sign and without leading zeros. Java's `parseInt` takes `+5`, `-5` and
//! `05`; no Spark client writes them, and a second spelling of a name would hash to another path.

use std::fmt;
use std::str::FromStr;

use crate::checksum::Algorithm;
use crate::{AppId, MapId, ReduceId, ShuffleId, ShuffleMergeId};

/// A block id or the name of a block file.
///
/// [`FromStr`] takes exactly what [`Display`](fmt::Display) writes for ids without negative
/// numbers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum BlockId {
    /// `shuffle_<shuffle>_<map>_<reduce>`: one partition of a map output.
    Shuffle {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The map output.
        map: MapId,
        /// The partition.
        reduce: ReduceId,
    },
    /// `shuffle_<shuffle>_<map>_<start>_<end>`: several partitions of a map output; only clients
    /// use it.
    ShuffleBatch {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The map output.
        map: MapId,
        /// The first partition.
        start: ReduceId,
        /// The end of the partitions, exclusive.
        end: ReduceId,
    },
    /// `shuffle_<shuffle>_<map>_0.data`: the data file of a map output.
    ShuffleData {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The map output.
        map: MapId,
    },
    /// `shuffle_<shuffle>_<map>_0.index`: the index file of a map output.
    ShuffleIndex {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The map output.
        map: MapId,
    },
    /// `shuffle_<shuffle>_<map>_0.checksum.<algorithm>`: the checksum file of a map output.
    ShuffleChecksum {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The map output.
        map: MapId,
        /// How the checksums were computed.
        algorithm: Algorithm,
    },
    /// `rdd_<rdd>_<split>`: a cached RDD partition, both a block and a file.
    Rdd {
        /// The RDD.
        rdd: i32,
        /// The partition of the RDD.
        split: i32,
    },
    /// `shufflePush_<shuffle>_<merge>_<map index>_<reduce>`: a block pushed to a merger.
    Push {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The generation of the merge; Spark 3.1 has none and leaves it out of the id.
        merge: Option<ShuffleMergeId>,
        /// The partition index of the map task, which is not its [`MapId`].
        map_index: i32,
        /// The partition.
        reduce: ReduceId,
    },
    /// `shuffleMerged_<shuffle>_<merge>_<reduce>`: a merged partition as its reducer sees it.
    Merged {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The generation of the merge.
        merge: ShuffleMergeId,
        /// The partition.
        reduce: ReduceId,
    },
    /// `shuffleChunk_<shuffle>_<merge>_<reduce>_<chunk>`: a chunk of a merged partition.
    MergedChunk {
        /// The shuffle.
        shuffle: ShuffleId,
        /// The generation of the merge.
        merge: ShuffleMergeId,
        /// The partition.
        reduce: ReduceId,
        /// The chunk, from 0.
        chunk: i32,
    },
    /// `shuffleMerged_<app>_<shuffle>_<merge>_<reduce>.<part>`: a file of a merged partition.
    MergedFile {
        /// The application; a merger serves several from one directory tree.
        app: AppId,
        /// The shuffle.
        shuffle: ShuffleId,
        /// The generation of the merge.
        merge: ShuffleMergeId,
        /// The partition.
        reduce: ReduceId,
        /// Which of the three files.
        part: MergedPart,
    },
}

/// The three files of a merged partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum MergedPart {
    /// `data`: the chunks, back to back.
    Data,
    /// `index`: where each chunk ends.
    Index,
    /// `meta`: which maps each chunk holds.
    Meta,
}

impl MergedPart {
    const ALL: [Self; 3] = [Self::Data, Self::Index, Self::Meta];

    const fn extension(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Index => "index",
            Self::Meta => "meta",
        }
    }
}

impl BlockId {
    /// The file of this name, if the id is that of a file: one path component without separator.
    ///
    /// `None` for the ids of blocks that are parts of files, and for a merged file of an
    /// application whose id cannot be part of a file name.
    #[must_use]
    pub fn file_name(&self) -> Option<String> {
        match self {
            Self::ShuffleData { .. }
            | Self::ShuffleIndex { .. }
            | Self::ShuffleChecksum { .. }
            | Self::Rdd { .. } => Some(self.to_string()),
            Self::MergedFile { app, .. } => is_name_part(app.as_str()).then(|| self.to_string()),
            Self::Shuffle { .. }
            | Self::ShuffleBatch { .. }
            | Self::Push { .. }
            | Self::Merged { .. }
            | Self::MergedChunk { .. } => None,
        }
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shuffle { shuffle, map, reduce } => write!(f, "shuffle_{shuffle}_{map}_{reduce}"),
            Self::ShuffleBatch { shuffle, map, start, end } => {
                write!(f, "shuffle_{shuffle}_{map}_{start}_{end}")
            }
            Self::ShuffleData { shuffle, map } => write!(f, "shuffle_{shuffle}_{map}_0.data"),
            Self::ShuffleIndex { shuffle, map } => write!(f, "shuffle_{shuffle}_{map}_0.index"),
            Self::ShuffleChecksum { shuffle, map, algorithm } => {
                write!(f, "shuffle_{shuffle}_{map}_0.checksum.{algorithm}")
            }
            Self::Rdd { rdd, split } => write!(f, "rdd_{rdd}_{split}"),
            Self::Push { shuffle, merge: Some(merge), map_index, reduce } => {
                write!(f, "shufflePush_{shuffle}_{merge}_{map_index}_{reduce}")
            }
            Self::Push { shuffle, merge: None, map_index, reduce } => {
                write!(f, "shufflePush_{shuffle}_{map_index}_{reduce}")
            }
            Self::Merged { shuffle, merge, reduce } => {
                write!(f, "shuffleMerged_{shuffle}_{merge}_{reduce}")
            }
            Self::MergedChunk { shuffle, merge, reduce, chunk } => {
                write!(f, "shuffleChunk_{shuffle}_{merge}_{reduce}_{chunk}")
            }
            Self::MergedFile { app, shuffle, merge, reduce, part } => {
                let extension = part.extension();
                write!(f, "shuffleMerged_{app}_{shuffle}_{merge}_{reduce}.{extension}")
            }
        }
    }
}

impl FromStr for BlockId {
    type Err = InvalidBlockId;

    fn from_str(id: &str) -> Result<Self, InvalidBlockId> {
        let parsed = match id.split_once('_').map(|(kind, _)| kind) {
            Some("shuffle") => parse_shuffle(id),
            Some("rdd") => parse_rdd(id),
            Some("shufflePush") => parse_push(id),
            Some("shuffleMerged") => parse_merged(id),
            Some("shuffleChunk") => parse_chunk(id),
            _ => None,
        };
        parsed.ok_or_else(|| InvalidBlockId(id.into()))
    }
}

/// A client sent something that is no block id, or not one that it may name here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid block id: {0:?}")]
pub struct InvalidBlockId(Box<str>);

impl InvalidBlockId {
    /// What the client sent.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0
    }
}

fn parse_shuffle(id: &str) -> Option<BlockId> {
    let Some((stem, extension)) = id.split_once('.') else {
        return if let Some([shuffle, map, reduce]) = fields(id, "shuffle") {
            let (shuffle, map) = (ShuffleId(number(shuffle)?), MapId(number(map)?));
            Some(BlockId::Shuffle { shuffle, map, reduce: ReduceId(number(reduce)?) })
        } else {
            let [shuffle, map, start, end] = fields(id, "shuffle")?;
            let (shuffle, map) = (ShuffleId(number(shuffle)?), MapId(number(map)?));
            let (start, end) = (ReduceId(number(start)?), ReduceId(number(end)?));
            Some(BlockId::ShuffleBatch { shuffle, map, start, end })
        };
    };
    let [shuffle, map, "0"] = fields(stem, "shuffle")? else {
        return None;
    };
    let (shuffle, map) = (ShuffleId(number(shuffle)?), MapId(number(map)?));
    match extension {
        "data" => Some(BlockId::ShuffleData { shuffle, map }),
        "index" => Some(BlockId::ShuffleIndex { shuffle, map }),
        _ => {
            let algorithm = extension.strip_prefix("checksum.")?.parse().ok()?;
            Some(BlockId::ShuffleChecksum { shuffle, map, algorithm })
        }
    }
}

fn parse_rdd(id: &str) -> Option<BlockId> {
    let [rdd, split] = fields(id, "rdd")?;
    Some(BlockId::Rdd { rdd: number(rdd)?, split: number(split)? })
}

fn parse_push(id: &str) -> Option<BlockId> {
    let (shuffle, merge, map_index, reduce) =
        if let Some([shuffle, merge, map_index, reduce]) = fields(id, "shufflePush") {
            (shuffle, Some(ShuffleMergeId(number(merge)?)), map_index, reduce)
        } else {
            let [shuffle, map_index, reduce] = fields(id, "shufflePush")?;
            (shuffle, None, map_index, reduce)
        };
    Some(BlockId::Push {
        shuffle: ShuffleId(number(shuffle)?),
        merge,
        map_index: number(map_index)?,
        reduce: ReduceId(number(reduce)?),
    })
}

fn parse_merged(id: &str) -> Option<BlockId> {
    if let Some([shuffle, merge, reduce]) = fields(id, "shuffleMerged")
        && let (Some(shuffle), Some(merge), Some(reduce)) =
            (number(shuffle), number(merge), number(reduce))
    {
        return Some(BlockId::Merged {
            shuffle: ShuffleId(shuffle),
            merge: ShuffleMergeId(merge),
            reduce: ReduceId(reduce),
        });
    }
    // The application id may hold `_` and `.` itself, so the rest is taken from the end.
    let (stem, extension) = id.strip_prefix("shuffleMerged_")?.rsplit_once('.')?;
    let part = MergedPart::ALL.into_iter().find(|part| part.extension() == extension)?;
    let (stem, reduce) = stem.rsplit_once('_')?;
    let (stem, merge) = stem.rsplit_once('_')?;
    let (app, shuffle) = stem.rsplit_once('_')?;
    is_name_part(app).then_some(())?;
    Some(BlockId::MergedFile {
        app: app.into(),
        shuffle: ShuffleId(number(shuffle)?),
        merge: ShuffleMergeId(number(merge)?),
        reduce: ReduceId(number(reduce)?),
        part,
    })
}

fn parse_chunk(id: &str) -> Option<BlockId> {
    let [shuffle, merge, reduce, chunk] = fields(id, "shuffleChunk")?;
    Some(BlockId::MergedChunk {
        shuffle: ShuffleId(number(shuffle)?),
        merge: ShuffleMergeId(number(merge)?),
        reduce: ReduceId(number(reduce)?),
        chunk: number(chunk)?,
    })
}

/// The parts of `id` behind `kind`, if there are exactly `N`. No allocation, whatever the id.
fn fields<'a, const N: usize>(id: &'a str, kind: &str) -> Option<[&'a str; N]> {
    let mut parts = id.strip_prefix(kind)?.strip_prefix('_')?.split('_');
    let mut fields = [""; N];
    for field in &mut fields {
        *field = parts.next()?;
    }
    parts.next().is_none().then_some(fields)
}

/// A decimal number in its one spelling: digits without a sign or leading zeros.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let canonical = text == "0" || !text.starts_with('0');
    (canonical && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Whether `text` can be part of a file name.
fn is_name_part(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '\\', '\0'])
}

/// The name of a file that RemoveBlocks may remove: a cached RDD partition (`rdd_*_*`) or the
/// data, index or checksum file of a map output. Every other name is refused, whatever it is,
/// since Spark asks for no other (`spec/block-transfer.md` §3.6).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RemovableName(BlockId);

impl RemovableName {
    /// What the name stands for.
    #[must_use]
    pub fn block(&self) -> &BlockId {
        &self.0
    }
}

impl fmt::Display for RemovableName {
    /// The file name, one path component.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RemovableName {
    type Err = InvalidBlockId;

    fn from_str(name: &str) -> Result<Self, InvalidBlockId> {
        match name.parse()? {
            block @ (BlockId::Rdd { .. }
            | BlockId::ShuffleData { .. }
            | BlockId::ShuffleIndex { .. }
            | BlockId::ShuffleChecksum { .. }) => Ok(Self(block)),
            _ => Err(InvalidBlockId(name.into())),
        }
    }
}

/// The blocks that one OpenBlocks message asks for, all of one kind; chunk i is the i-th.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenedBlocks {
    /// Partitions of map outputs.
    Shuffle {
        /// The one shuffle of all blocks.
        shuffle_id: ShuffleId,
        /// The blocks in the order of the request.
        blocks: Vec<(MapId, ReduceId)>,
    },
    /// Cached RDD partitions, as (RDD, split), in the order of the request.
    Rdd(Vec<(i32, i32)>),
    /// Chunks of merged partitions.
    MergedChunks {
        /// The one shuffle of all chunks.
        shuffle_id: ShuffleId,
        /// The one generation of all chunks.
        merge_id: ShuffleMergeId,
        /// The chunks in the order of the request, as (partition, chunk).
        chunks: Vec<(ReduceId, i32)>,
    },
}

impl OpenedBlocks {
    /// Reads the block ids of an OpenBlocks message. The first decides the kind and, for
    /// shuffles, the shuffle of all. As Java's `split` does, empty parts at the end of an id are
    /// dropped. Map ids are i64 here, while Spark takes only those that fit an i32.
    ///
    /// # Errors
    /// The client is at fault; the texts are Spark's (`spec/block-transfer.md` §3.1).
    pub fn parse<S: AsRef<str>>(ids: &[S]) -> Result<Self, OpenBlocksError> {
        let first = ids.first().ok_or(OpenBlocksError::Empty)?.as_ref();
        let trimmed = first.trim_end_matches('_');
        if let Some([shuffle, _, _]) = fields(trimmed, "shuffle") {
            let shuffle_id = ShuffleId(open_number(shuffle)?);
            let blocks = collect(ids, |id| shuffle_block(id, shuffle_id))?;
            Ok(Self::Shuffle { shuffle_id, blocks })
        } else if let Some([shuffle, merge, _, _]) = fields(trimmed, "shuffleChunk") {
            let shuffle_id = ShuffleId(open_number(shuffle)?);
            let merge_id = ShuffleMergeId(open_number(merge)?);
            let chunks = collect(ids, |id| merged_chunk(id, shuffle_id, merge_id))?;
            Ok(Self::MergedChunks { shuffle_id, merge_id, chunks })
        } else if fields::<2>(trimmed, "rdd").is_some() {
            Ok(Self::Rdd(collect(ids, rdd_block)?))
        } else {
            Err(OpenBlocksError::UnexpectedBlockIdFormat(first.into()))
        }
    }

    /// The number of blocks, at least 1: `numChunks` of the answer.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Shuffle { blocks, .. } => blocks.len(),
            Self::Rdd(blocks) => blocks.len(),
            Self::MergedChunks { chunks, .. } => chunks.len(),
        }
    }
}

fn collect<S: AsRef<str>, T>(
    ids: &[S],
    parse: impl Fn(&str) -> Result<T, OpenBlocksError>,
) -> Result<Vec<T>, OpenBlocksError> {
    ids.iter().map(|id| parse(id.as_ref())).collect()
}

fn shuffle_block(id: &str, expected: ShuffleId) -> Result<(MapId, ReduceId), OpenBlocksError> {
    let Some([shuffle, map, reduce]) = fields(id.trim_end_matches('_'), "shuffle") else {
        return Err(OpenBlocksError::UnexpectedShuffleBlockIdFormat(id.into()));
    };
    if ShuffleId(open_number(shuffle)?) != expected {
        return Err(OpenBlocksError::ExpectedShuffleId { expected, got: id.into() });
    }
    Ok((MapId(open_number(map)?), ReduceId(open_number(reduce)?)))
}

fn rdd_block(id: &str) -> Result<(i32, i32), OpenBlocksError> {
    let Some([rdd, split]) = fields(id.trim_end_matches('_'), "rdd") else {
        return Err(OpenBlocksError::UnexpectedRddBlockIdFormat(id.into()));
    };
    Ok((open_number(rdd)?, open_number(split)?))
}

fn merged_chunk(
    id: &str,
    shuffle_id: ShuffleId,
    merge_id: ShuffleMergeId,
) -> Result<(ReduceId, i32), OpenBlocksError> {
    let trimmed = id.trim_end_matches('_');
    let Some([shuffle, merge, reduce, chunk]) = fields(trimmed, "shuffleChunk") else {
        return Err(OpenBlocksError::UnexpectedShuffleChunkIdFormat(id.into()));
    };
    if ShuffleId(open_number(shuffle)?) != shuffle_id
        || ShuffleMergeId(open_number(merge)?) != merge_id
    {
        return Err(OpenBlocksError::ExpectedMerge { shuffle_id, merge_id, got: id.into() });
    }
    Ok((ReduceId(open_number(reduce)?), open_number(chunk)?))
}

fn open_number<N: FromStr>(text: &str) -> Result<N, OpenBlocksError> {
    number(text).ok_or_else(|| OpenBlocksError::NumberFormat(text.into()))
}

/// Why an OpenBlocks message is refused. The client is at fault in every case. The texts are
/// Spark's; all are illegal-argument errors there but [`Empty`](Self::Empty) and
/// [`NumberFormat`](Self::NumberFormat).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenBlocksError {
    /// No block ids: an array-index error in the JVM.
    #[error("Index 0 out of bounds for length 0")]
    Empty,
    /// The first id is of no kind that can be opened.
    #[error("Unexpected block id format: {0}")]
    UnexpectedBlockIdFormat(Box<str>),
    /// The first id is a shuffle block and this one is not.
    #[error("Unexpected shuffle block id format: {0}")]
    UnexpectedShuffleBlockIdFormat(Box<str>),
    /// The first id is an RDD block and this one is not.
    #[error("Unexpected RDD block id format: {0}")]
    UnexpectedRddBlockIdFormat(Box<str>),
    /// The first id is a merged chunk and this one is not.
    #[error("Unexpected shuffle chunk id format: {0}")]
    UnexpectedShuffleChunkIdFormat(Box<str>),
    /// A shuffle block of another shuffle than the first.
    #[error("Expected shuffleId={expected}, got:{got}")]
    ExpectedShuffleId {
        /// The shuffle of the first id.
        expected: ShuffleId,
        /// The whole offending id.
        got: Box<str>,
    },
    /// A merged chunk of another shuffle or generation than the first.
    #[error("Expected shuffleId = {shuffle_id} and shuffleMergeId = {merge_id} but got {got}")]
    ExpectedMerge {
        /// The shuffle of the first id.
        shuffle_id: ShuffleId,
        /// The generation of the first id.
        merge_id: ShuffleMergeId,
        /// The whole offending id.
        got: Box<str>,
    },
    /// Not a decimal number of the type's range: a number-format error in the JVM.
    #[error("For input string: \"{0}\"")]
    NumberFormat(Box<str>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(id: &str) -> BlockId {
        id.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn refused(id: &str) {
        assert!(id.parse::<BlockId>().is_err(), "{id:?}");
        assert!(id.parse::<RemovableName>().is_err(), "{id:?}");
    }

    /// Every row of the table in `spec/block-transfer.md` §4.
    #[test]
    fn every_form() {
        let (shuffle, map, reduce) = (ShuffleId(1), MapId(1 << 40), ReduceId(3));
        let merge = ShuffleMergeId(2);
        let merged_file = |part| BlockId::MergedFile {
            app: "application_17_0001".into(),
            shuffle,
            merge,
            reduce,
            part,
        };
        let algorithm = Algorithm::Crc32c;
        for (id, expected, is_file) in [
            ("shuffle_1_1099511627776_3", BlockId::Shuffle { shuffle, map, reduce }, false),
            (
                "shuffle_1_1099511627776_3_8",
                BlockId::ShuffleBatch { shuffle, map, start: reduce, end: ReduceId(8) },
                false,
            ),
            ("shuffle_1_1099511627776_0.data", BlockId::ShuffleData { shuffle, map }, true),
            ("shuffle_1_1099511627776_0.index", BlockId::ShuffleIndex { shuffle, map }, true),
            (
                "shuffle_1_1099511627776_0.checksum.CRC32C",
                BlockId::ShuffleChecksum { shuffle, map, algorithm },
                true,
            ),
            ("rdd_7_3", BlockId::Rdd { rdd: 7, split: 3 }, true),
            (
                "shufflePush_1_2_5_3",
                BlockId::Push { shuffle, merge: Some(merge), map_index: 5, reduce },
                false,
            ),
            (
                "shufflePush_1_5_3",
                BlockId::Push { shuffle, merge: None, map_index: 5, reduce },
                false,
            ),
            ("shuffleMerged_1_2_3", BlockId::Merged { shuffle, merge, reduce }, false),
            (
                "shuffleChunk_1_2_3_9",
                BlockId::MergedChunk { shuffle, merge, reduce, chunk: 9 },
                false,
            ),
            ("shuffleMerged_application_17_0001_1_2_3.data", merged_file(MergedPart::Data), true),
            ("shuffleMerged_application_17_0001_1_2_3.index", merged_file(MergedPart::Index), true),
            ("shuffleMerged_application_17_0001_1_2_3.meta", merged_file(MergedPart::Meta), true),
        ] {
            assert_eq!(block(id), expected);
            assert_eq!(expected.to_string(), id);
            assert_eq!(expected.file_name(), is_file.then(|| id.to_owned()));
        }
    }

    #[test]
    fn numbers_have_one_spelling() {
        for number in
            ["", "+1", "-1", "01", "00", "1 ", " 1", "0x1", "1e3", "\u{661}", "2147483648"]
        {
            refused(&format!("rdd_{number}_0"));
            refused(&format!("rdd_0_{number}"));
            refused(&format!("shuffle_{number}_0_0"));
            refused(&format!("shuffle_{number}_0_0.data"));
        }
        assert_eq!(block("rdd_0_2147483647"), BlockId::Rdd { rdd: 0, split: i32::MAX });
        let map = MapId(i64::MAX);
        assert_eq!(
            block("shuffle_0_9223372036854775807_0.data"),
            BlockId::ShuffleData { shuffle: ShuffleId(0), map }
        );
        refused("shuffle_0_9223372036854775808_0.data");
    }

    #[test]
    fn not_block_ids() {
        for id in [
            "",
            "_",
            "shuffle",
            "shuffle_",
            "shuffle_1_2",
            "shuffle_1_2_3_4_5",
            "Shuffle_1_2_3",
            "rdd_1",
            "rdd_1_2_3",
            "rdd_1_2_",
            "rdd_1_2.data",
            "shuffle_1_2_1.data",
            "shuffle_1_2_0.meta",
            "shuffle_1_2_0.checksum",
            "shuffle_1_2_0.checksum.",
            "shuffle_1_2_0.checksum.adler32",
            "shuffle_1_2_0.checksum.CRC32/../x",
            "shuffle_1_2_0.data.uuid",
            "shuffle_1_2_0.data\0",
            "broadcast_1",
            "temp_shuffle_6c1f",
            "shuffleMerged__1_2_3.data",
            "shuffleMerged_../x_1_2_3.data",
            "shuffleMerged_a\\b_1_2_3.data",
            "shuffleMerged_a\0_1_2_3.data",
            "shuffleMerged_app_1_2_3",
            "shuffleMerged_app_1_2_3.txt",
        ] {
            refused(id);
        }
    }

    /// What Spark 3.0 to 3.4 would remove, F12.
    #[test]
    fn f12_only_known_files_are_removable() {
        for name in [
            "rdd_1_2",
            "shuffle_1_2_0.data",
            "shuffle_1_2_0.index",
            "shuffle_1_2_0.checksum.ADLER32",
        ] {
            let removable: RemovableName = name.parse().unwrap();
            assert_eq!(removable.to_string(), name);
            assert_eq!(removable.block().file_name().as_deref(), Some(name));
        }
        for name in [
            ".",
            "..",
            "/etc/passwd",
            "../../etc/passwd",
            "rdd_1_2/../../x",
            "rdd_1_2\\x",
            "rdd_1_2\0",
            "shuffle_1_2_3",
            "shuffle_1_2_3_4",
            "shufflePush_1_2_3_4",
            "shuffleMerged_1_2_3",
            "shuffleMerged_app_1_2_3.data",
            "shuffleChunk_1_2_3_4",
            "temp_local_6c1f",
            "broadcast_1",
        ] {
            assert_eq!(name.parse::<RemovableName>().unwrap_err().id(), name);
        }
    }

    #[test]
    fn a_merged_file_of_a_hostile_application_has_no_name() {
        let id = BlockId::MergedFile {
            app: "../../x".into(),
            shuffle: ShuffleId(1),
            merge: ShuffleMergeId(0),
            reduce: ReduceId(0),
            part: MergedPart::Data,
        };
        assert_eq!(id.file_name(), None);
    }

    #[test]
    fn open_blocks() {
        let blocks = vec![(MapId(2), ReduceId(3)), (MapId(1 << 40), ReduceId(0))];
        assert_eq!(
            OpenedBlocks::parse(&["shuffle_1_2_3", "shuffle_1_1099511627776_0"]),
            Ok(OpenedBlocks::Shuffle { shuffle_id: ShuffleId(1), blocks })
        );
        let rdd = OpenedBlocks::parse(&["rdd_1_2", "rdd_3_4__"]).unwrap();
        assert_eq!(rdd, OpenedBlocks::Rdd(vec![(1, 2), (3, 4)]));
        assert_eq!(rdd.len(), 2);
        assert_eq!(
            OpenedBlocks::parse(&["shuffleChunk_1_2_3_4"]),
            Ok(OpenedBlocks::MergedChunks {
                shuffle_id: ShuffleId(1),
                merge_id: ShuffleMergeId(2),
                chunks: vec![(ReduceId(3), 4)],
            })
        );
    }

    /// The texts of `spec/block-transfer.md` §3.1.
    #[test]
    fn open_blocks_errors() {
        for (ids, text) in [
            (&[][..], "Index 0 out of bounds for length 0"),
            (&[""], "Unexpected block id format: "),
            (&["____"], "Unexpected block id format: ____"),
            (&["shuffle_1_2_3_4"], "Unexpected block id format: shuffle_1_2_3_4"),
            (&["rdd_1_"], "Unexpected block id format: rdd_1_"),
            (&["shuffle_1_2_3", "rdd_1_2"], "Unexpected shuffle block id format: rdd_1_2"),
            (&["rdd_1_2", "shuffle_1_2_3"], "Unexpected RDD block id format: shuffle_1_2_3"),
            (&["shuffleChunk_1_2_3_4", "rdd_1_2"], "Unexpected shuffle chunk id format: rdd_1_2"),
            (&["shuffle_1_2_3", "shuffle_4_2_3"], "Expected shuffleId=1, got:shuffle_4_2_3"),
            (
                &["shuffleChunk_1_2_3_4", "shuffleChunk_1_9_3_4"],
                "Expected shuffleId = 1 and shuffleMergeId = 2 but got shuffleChunk_1_9_3_4",
            ),
            (&["shuffle_x_2_3"], "For input string: \"x\""),
            (&["shuffle_1__3"], "For input string: \"\""),
            (&["shuffle_1_2_3", "shuffle_1_2_-3"], "For input string: \"-3\""),
            (&["rdd_1_2147483648"], "For input string: \"2147483648\""),
            (&["shuffleChunk_1_y_3_4"], "For input string: \"y\""),
        ] {
            assert_eq!(OpenedBlocks::parse(ids).unwrap_err().to_string(), text, "{ids:?}");
        }
    }

    fn any_block() -> impl Strategy<Value = BlockId> {
        let n = || 0..=i32::MAX;
        let common = (n(), n(), n(), n(), 0..=i64::MAX);
        let app = "[a-zA-Z0-9_.-]{1,20}";
        (0..13, common, app).prop_map(|(form, (a, b, c, d, map), app)| {
            let (shuffle, merge, map) = (ShuffleId(a), ShuffleMergeId(b), MapId(map));
            let reduce = ReduceId(c);
            match form {
                0 => BlockId::Shuffle { shuffle, map, reduce },
                1 => BlockId::ShuffleBatch { shuffle, map, start: reduce, end: ReduceId(d) },
                2 => BlockId::ShuffleData { shuffle, map },
                3 => BlockId::ShuffleIndex { shuffle, map },
                4..7 => {
                    let algorithm = Algorithm::ALL[usize::try_from(form).unwrap() - 4];
                    BlockId::ShuffleChecksum { shuffle, map, algorithm }
                }
                7 => BlockId::Rdd { rdd: a, split: b },
                8 => BlockId::Push { shuffle, merge: Some(merge), map_index: d, reduce },
                9 => BlockId::Push { shuffle, merge: None, map_index: d, reduce },
                10 => BlockId::Merged { shuffle, merge, reduce },
                11 => BlockId::MergedChunk { shuffle, merge, reduce, chunk: d },
                _ => {
                    let part = MergedPart::ALL[usize::try_from(d % 3).unwrap()];
                    BlockId::MergedFile { app: app.as_str().into(), shuffle, merge, reduce, part }
                }
            }
        })
    }

    /// Texts near enough to ids to get past the first checks.
    fn almost_id() -> impl Strategy<Value = String> {
        let word = "(shuffle|rdd|shuffleMerged|shuffleChunk|shufflePush|x|)";
        (word, "[-+_.0-9a-z/]{0,20}(.data|.index|)").prop_map(|(kind, rest)| kind + "_" + &rest)
    }

    proptest! {
        #[test]
        fn display_then_parse(id in any_block()) {
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn what_parses_is_spelt_one_way(text in prop_oneof![any::<String>(), almost_id()]) {
            if let Ok(id) = text.parse::<BlockId>() {
                prop_assert_eq!(id.to_string(), text.clone());
                if let Some(name) = id.file_name() {
                    prop_assert!(is_name_part(&name));
                }
            }
            if let Ok(name) = text.parse::<RemovableName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn opening_never_panics(ids in proptest::collection::vec(almost_id(), 0..4)) {
            if let Ok(opened) = OpenedBlocks::parse(&ids) {
                prop_assert_eq!(opened.len(), ids.len());
            }
        }

        #[test]
        fn opened_blocks_are_those_asked_for(
            shuffle in 0..=i32::MAX,
            blocks in proptest::collection::vec((0..=i64::MAX, 0..=i32::MAX), 1..9),
        ) {
            let shuffle_id = ShuffleId(shuffle);
            let blocks: Vec<_> = blocks.into_iter().map(|(m, r)| (MapId(m), ReduceId(r))).collect();
            let ids: Vec<_> = blocks
                .iter()
                .map(|&(map, reduce)| BlockId::Shuffle { shuffle: shuffle_id, map, reduce }.to_string())
                .collect();
            prop_assert_eq!(OpenedBlocks::parse(&ids), Ok(OpenedBlocks::Shuffle { shuffle_id, blocks }));
        }
    }
}
