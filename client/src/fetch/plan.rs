//! Which message asks for which blocks (`spec/ess-service.md` §9.2). Decides only.

use std::collections::HashMap;

use shuffle_protocol::block_id::{BlockId, OpenBlocksError, OpenedBlocks};
use shuffle_protocol::message::{FetchShuffleBlockChunks, FetchShuffleBlocks, Message, OpenBlocks};
use shuffle_protocol::{AppId, ExecId, ShuffleId, ShuffleMergeId};
use thiserror::Error;

/// Blocks that cannot be asked for together. The caller's fault; never retryable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidFetch {
    /// No blocks.
    #[error("Zero-sized blockIds array")]
    NoBlocks,
    /// Something that no service serves as a block, or blocks of different shuffles or kinds;
    /// Spark's text.
    #[error(transparent)]
    Blocks(#[from] OpenBlocksError),
}

impl InvalidFetch {
    /// Never.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// One message that opens a stream, and what its chunks are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) message: Message,
    /// For each chunk the position of its block in the list given.
    pub(super) chunks: Vec<usize>,
}

/// Plans how to ask for `wanted`, positions in `blocks`.
pub(super) fn plan(
    app_id: &AppId,
    exec_id: &ExecId,
    blocks: &[BlockId],
    wanted: Vec<usize>,
    old_protocol: bool,
) -> Result<Plan, InvalidFetch> {
    let first = wanted.first().map(|&at| &blocks[at]).ok_or(InvalidFetch::NoBlocks)?;
    let all =
        |kind: fn(&BlockId) -> bool| !old_protocol && wanted.iter().all(|&at| kind(&blocks[at]));
    if all(|block| matches!(block, BlockId::Shuffle { .. } | BlockId::ShuffleBatch { .. })) {
        shuffle_blocks(app_id, exec_id, first, blocks, wanted)
    } else if all(|block| matches!(block, BlockId::MergedChunk { .. })) {
        merged_chunks(app_id, exec_id, blocks, wanted)
    } else {
        let ids: Vec<String> = wanted.iter().map(|&at| blocks[at].to_string()).collect();
        // What every service would say. So what is left after a part of it came is valid, too.
        OpenedBlocks::parse(&ids)?;
        let message = OpenBlocks {
            app_id: app_id.clone(),
            exec_id: exec_id.clone(),
            block_ids: ids.iter().collect(),
        };
        Ok(Plan { message: message.into(), chunks: wanted })
    }
}

/// Things under keys, the keys in the order in which they first came.
struct Groups<K, V> {
    keys: Vec<K>,
    values: Vec<Vec<V>>,
    place: HashMap<K, usize>,
}

impl<K: Copy + Eq + std::hash::Hash, V> Groups<K, V> {
    fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new(), place: HashMap::new() }
    }

    fn add(&mut self, key: K, value: V) {
        let place = *self.place.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.values.push(Vec::new());
            self.keys.len() - 1
        });
        self.values[place].push(value);
    }
}

fn shuffle_blocks(
    app_id: &AppId,
    exec_id: &ExecId,
    first: &BlockId,
    blocks: &[BlockId],
    wanted: Vec<usize>,
) -> Result<Plan, InvalidFetch> {
    let expected = shuffle_of(first);
    let batch_fetch = matches!(first, BlockId::ShuffleBatch { .. });
    let mut maps = Groups::new();
    for at in wanted {
        let block = &blocks[at];
        if shuffle_of(block) != expected {
            let got = block.to_string().into();
            return Err(OpenBlocksError::ExpectedShuffleId { expected, got }.into());
        }
        match block {
            BlockId::Shuffle { map, reduce, .. } if !batch_fetch => {
                maps.add((map.0, None), (at, vec![reduce.0]));
            }
            // Two ranges of one map output get an entry each: an entry holds one range.
            BlockId::ShuffleBatch { map, start, end, .. } if batch_fetch => {
                maps.add((map.0, Some(start.0)), (at, vec![start.0, end.0]));
            }
            _ => {
                let id = block.to_string().into();
                return Err(OpenBlocksError::UnexpectedShuffleBlockIdFormat(id).into());
            }
        }
    }
    let message = FetchShuffleBlocks {
        app_id: app_id.clone(),
        exec_id: exec_id.clone(),
        shuffle_id: expected,
        map_ids: maps.keys.iter().map(|(map, _)| *map).collect(),
        reduce_ids: maps
            .values
            .iter()
            .map(|blocks| blocks.iter().flat_map(|(_, ids)| ids).copied().collect::<Vec<_>>())
            .collect(),
        batch_fetch,
    };
    let chunks = maps.values.iter().flatten().map(|(at, _)| *at).collect();
    Ok(Plan { message: message.into(), chunks })
}

fn merged_chunks(
    app_id: &AppId,
    exec_id: &ExecId,
    blocks: &[BlockId],
    wanted: Vec<usize>,
) -> Result<Plan, InvalidFetch> {
    let mut generation: Option<(ShuffleId, ShuffleMergeId)> = None;
    let mut partitions = Groups::new();
    for at in wanted {
        let BlockId::MergedChunk { shuffle, merge, reduce, chunk } = blocks[at] else {
            let id = blocks[at].to_string().into();
            return Err(OpenBlocksError::UnexpectedShuffleChunkIdFormat(id).into());
        };
        let (shuffle_id, merge_id) = *generation.get_or_insert((shuffle, merge));
        if (shuffle, merge) != (shuffle_id, merge_id) {
            let got = blocks[at].to_string().into();
            return Err(OpenBlocksError::ExpectedMerge { shuffle_id, merge_id, got }.into());
        }
        partitions.add(reduce.0, (at, chunk));
    }
    let (shuffle_id, shuffle_merge_id) = generation.ok_or(InvalidFetch::NoBlocks)?;
    let message = FetchShuffleBlockChunks {
        app_id: app_id.clone(),
        exec_id: exec_id.clone(),
        shuffle_id,
        shuffle_merge_id,
        reduce_ids: partitions.keys,
        chunk_ids: partitions
            .values
            .iter()
            .map(|chunks| chunks.iter().map(|(_, chunk)| *chunk).collect::<Vec<_>>())
            .collect(),
    };
    let chunks = partitions.values.iter().flatten().map(|(at, _)| *at).collect();
    Ok(Plan { message: message.into(), chunks })
}

fn shuffle_of(block: &BlockId) -> ShuffleId {
    match block {
        BlockId::Shuffle { shuffle, .. } | BlockId::ShuffleBatch { shuffle, .. } => *shuffle,
        _ => ShuffleId(-1), // of no shuffle; the caller has looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(ids: &[&str], old_protocol: bool) -> Result<Plan, InvalidFetch> {
        let blocks: Vec<BlockId> = ids.iter().map(|id| id.parse().unwrap()).collect();
        let wanted = (0..blocks.len()).collect();
        plan(&"app".into(), &"1".into(), &blocks, wanted, old_protocol)
    }

    fn open_blocks(ids: &[&str]) -> Message {
        let block_ids = ids.iter().collect();
        OpenBlocks { app_id: "app".into(), exec_id: "1".into(), block_ids }.into()
    }

    #[test]
    fn shuffle_blocks_are_grouped_by_map_in_order_of_first_appearance() {
        let ids = ["shuffle_3_9_1", "shuffle_3_7_0", "shuffle_3_9_0", "shuffle_3_7_5"];
        let expected = FetchShuffleBlocks {
            app_id: "app".into(),
            exec_id: "1".into(),
            shuffle_id: ShuffleId(3),
            map_ids: vec![9, 7],
            reduce_ids: [[1, 0], [0, 5]].into_iter().collect(),
            batch_fetch: false,
        };
        let plan = planned(&ids, false).unwrap();
        assert_eq!(plan.message, expected.into());
        assert_eq!(plan.chunks, [0, 2, 1, 3], "chunks are counted in grouped order");
    }

    #[test]
    fn batches_are_one_chunk_each() {
        let ids = ["shuffle_3_9_0_4", "shuffle_3_7_0_4", "shuffle_3_9_4_8"];
        let plan = planned(&ids, false).unwrap();
        let Message::FetchShuffleBlocks(message) = plan.message else { panic!() };
        assert!(message.batch_fetch);
        assert_eq!(message.map_ids, [9, 7, 9]);
        assert_eq!(message.reduce_ids, [[0, 4], [0, 4], [4, 8]].into_iter().collect());
        assert_eq!(plan.chunks, [0, 1, 2]);
    }

    #[test]
    fn merged_chunks_are_grouped_by_partition() {
        let ids = ["shuffleChunk_1_2_5_0", "shuffleChunk_1_2_6_0", "shuffleChunk_1_2_5_1"];
        let plan = planned(&ids, false).unwrap();
        let Message::FetchShuffleBlockChunks(message) = plan.message else { panic!() };
        assert_eq!(message.reduce_ids, [5, 6]);
        assert_eq!(message.chunk_ids, [vec![0, 1], vec![0]].into_iter().collect());
        assert_eq!(plan.chunks, [0, 2, 1]);
    }

    #[test]
    fn everything_else_is_asked_for_by_name() {
        let ids = ["rdd_1_2", "rdd_1_0"];
        let plan = planned(&ids, false).unwrap();
        assert_eq!(plan.message, open_blocks(&ids));
        assert_eq!(plan.chunks, [0, 1]);
        let ids = ["shuffle_3_9_1", "shuffle_3_7_0", "shuffle_3_9_0"];
        let plan = planned(&ids, true).unwrap();
        assert_eq!(plan.message, open_blocks(&ids));
        assert_eq!(plan.chunks, [0, 1, 2]);
    }

    #[test]
    fn what_cannot_be_asked_for_together_is_refused_in_sparks_words() {
        for (ids, text) in [
            (&[][..], "Zero-sized blockIds array"),
            (&["shuffle_0_0_0", "shuffle_1_0_0"], "Expected shuffleId=0, got:shuffle_1_0_0"),
            (
                &["shuffle_0_0_0_1", "shuffle_0_0_0"],
                "Unexpected shuffle block id format: shuffle_0_0_0",
            ),
            (
                &["shuffle_0_0_0", "shuffle_0_0_0_1"],
                "Unexpected shuffle block id format: shuffle_0_0_0_1",
            ),
            (
                &["shuffleChunk_0_1_0_0", "shuffleChunk_0_2_0_0"],
                "Expected shuffleId = 0 and shuffleMergeId = 1 but got shuffleChunk_0_2_0_0",
            ),
            (&["shuffle_0_0_0", "rdd_1_2"], "Unexpected shuffle block id format: rdd_1_2"),
            (&["rdd_1_2", "shuffle_0_0_0"], "Unexpected RDD block id format: shuffle_0_0_0"),
            (&["shuffleMerged_0_1_0"], "Unexpected block id format: shuffleMerged_0_1_0"),
            (&["shuffle_0_0_0.data"], "For input string: \"0.data\""),
        ] {
            assert_eq!(planned(ids, false).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn only_what_is_wanted_is_asked_for() {
        let blocks: Vec<BlockId> =
            (0..10).map(|reduce| format!("shuffle_0_0_{reduce}").parse().unwrap()).collect();
        let plan = plan(&"app".into(), &"1".into(), &blocks, vec![8, 3], false).unwrap();
        let Message::FetchShuffleBlocks(message) = plan.message else { panic!() };
        assert_eq!(message.reduce_ids, [[8, 3]].into_iter().collect());
        assert_eq!(plan.chunks, [8, 3]);
    }
}
