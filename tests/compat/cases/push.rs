//! Push shuffle and uploads, which a service without a merge manager refuses, and messages that only
//! answer others.

use bytes::Bytes;
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::{
    BlockPushReturnCode, BlocksRemoved, CorruptionCause, FetchShuffleBlockChunks,
    FinalizeShuffleMerge, Message, PushBlockStream, RegisterDriver, RemoveShuffleMerge,
    StreamHandle, UploadBlock, UploadBlockStream,
};
use shuffle_protocol::{ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId};

use crate::case::Reference::Standalone;
use crate::case::{Case, EXEC, Fields, case, encode};

pub(crate) fn cases() -> Vec<Case> {
    let push = |case: &Case| PushBlockStream {
        app_id: case.app(),
        app_attempt_id: -1,
        shuffle_id: ShuffleId(0),
        shuffle_merge_id: ShuffleMergeId(0),
        map_index: 0,
        reduce_id: ReduceId(0),
        index: 0,
    };
    let finalize = |case: &Case| FinalizeShuffleMerge {
        app_id: case.app(),
        app_attempt_id: -1,
        shuffle_id: ShuffleId(0),
        shuffle_merge_id: ShuffleMergeId(0),
    };
    let remove = |case: &Case| RemoveShuffleMerge {
        app_id: case.app(),
        app_attempt_id: -1,
        shuffle_id: ShuffleId(0),
        shuffle_merge_id: ShuffleMergeId(0),
    };
    let merged = |case: &Case, reduces: &[i32], chunks: &[&[i32]]| FetchShuffleBlockChunks {
        app_id: case.app(),
        exec_id: "shuffle-push-merger".into(),
        shuffle_id: ShuffleId(0),
        shuffle_merge_id: ShuffleMergeId(0),
        reduce_ids: reduces.to_vec(),
        chunk_ids: chunks.iter().copied().collect(),
    };
    let upload_block = |case: &Case| UploadBlock {
        app_id: case.app(),
        exec_id: EXEC.into(),
        block_id: "rdd_1_5".into(),
        metadata: Bytes::from_static(b"meta"),
        data: Bytes::from_static(b"data"),
    };
    let upload_stream =
        UploadBlockStream { block_id: "rdd_1_5".into(), metadata: Bytes::from_static(b"meta") };
    let merged_meta = |case: &Case| Frame::MergedBlockMetaRequest {
        id: RequestId(7),
        app_id: case.app(),
        shuffle_id: ShuffleId(0),
        shuffle_merge_id: ShuffleMergeId(0),
        reduce_id: ReduceId(0),
    };
    vec![
        case("push_as_rpc").with(push),
        case("push_as_one_way").with_one_way(push).local_dirs(&[EXEC]),
        case("push_as_upload").with_upload(push, b"block"),
        case("push_as_upload_of_nothing").with_upload(push, b""),
        case("finalize").with(finalize),
        case("finalize_as_one_way").with_one_way(finalize).local_dirs(&[EXEC]),
        case("remove_merge").with(remove),
        case("remove_merge_as_one_way").with_one_way(remove).local_dirs(&[EXEC]),
        case("merged_chunks").with(|case| merged(case, &[0, 1], &[&[0, 1], &[0]])).chunks(0..3),
        case("merged_chunks_none").with(|case| merged(case, &[], &[])).chunks(0..1),
        case("merged_chunks_empty_list").with(|case| merged(case, &[0], &[&[]])).chunks(0..1),
        case("merged_chunks_mismatch").with(|case| merged(case, &[0], &[&[0], &[1]])).chunks(0..2),
        case("merged_chunks_as_stream").with(|case| merged(case, &[0], &[&[0]])).stream("{0}_0"),
        case("merged_meta").frame_of(merged_meta).local_dirs(&[EXEC]),
        case("upload_block").with(upload_block).exists("rdd_1_5"),
        case("upload_block_as_one_way").with_one_way(upload_block).exists("rdd_1_5"),
        case("upload_block_as_upload").with_upload(upload_block, b"data").exists("rdd_1_5"),
        case("upload_block_stream").rpc(upload_stream.clone()),
        case("upload_block_stream_as_upload").with_upload(|_| upload_stream.clone(), b"data"),
        case("upload_unknown").frame(&upload(Bytes::from_static(&[99]), 4)).bytes("data"),
        case("upload_empty_meta").frame(&upload(Bytes::new(), 0)),
        case("upload_register_driver").at(Standalone).with_upload(
            |case| RegisterDriver { app_id: case.app(), heartbeat_timeout_ms: 120_000 },
            b"",
        ),
        case("upload_negative_length").bytes(crate::case::framed(
            &Fields::of(10).i64(9).bytes(b"\x05\0\0\0\x01a").i64(-1).done(),
        )),
        case("answer_stream_handle")
            .rpc(StreamHandle { stream_id: StreamId(4242), num_chunks: 1 })
            .local_dirs(&[EXEC]),
        case("answer_blocks_removed").rpc(BlocksRemoved { num_removed_blocks: 1 }),
        case("answer_corruption_cause").rpc(CorruptionCause::DiskIssue),
        case("answer_push_return_code")
            .rpc(BlockPushReturnCode { return_code: 0, failure_block_id: String::new() }),
        case("answer_corruption_cause_unknown").payload(vec![17, 99]),
    ]
}

fn upload(meta: Bytes, length: u64) -> Frame {
    Frame::UploadStream { id: RequestId(77), meta, length }
}

impl Case {
    fn with<M: Into<Message>>(self, message: impl FnOnce(&Self) -> M) -> Self {
        let message = message(&self);
        self.rpc(message)
    }

    fn with_one_way<M: Into<Message>>(self, message: impl FnOnce(&Self) -> M) -> Self {
        let message = message(&self);
        self.one_way(message)
    }

    fn with_upload<M: Into<Message>>(
        self,
        message: impl FnOnce(&Self) -> M,
        data: &'static [u8],
    ) -> Self {
        let frame = upload(message(&self).into().encode(), data.len() as u64);
        self.bytes([&encode(&frame)[..], data].concat()).local_dirs(&[EXEC])
    }

    fn frame_of(self, frame: impl FnOnce(&Self) -> Frame) -> Self {
        let frame = frame(&self);
        self.frame(&frame)
    }
}
