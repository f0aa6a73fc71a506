//! Every message and frame that Spark's own encoders wrote, read and written back
//! (`tests/golden/README.md`).

mod common;

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::{
    BlockPushReturnCode, BlocksRemoved, CorruptionCause, DiagnoseCorruption, ExecutorShuffleInfo,
    FetchShuffleBlockChunks, FetchShuffleBlocks, FinalizeShuffleMerge, GetLocalDirsForExecutors,
    Layout, LocalDirsForExecutors, MergeStatuses, Message, OpenBlocks, PushBlockStream,
    RegisterDriver, RegisterExecutor, RemoveBlocks, RemoveShuffleMerge, ShuffleServiceHeartbeat,
    StreamHandle, UploadBlock, UploadBlockStream,
};
use shuffle_protocol::wire::{Bitmap, IntArrays, StringArray};
use shuffle_protocol::{
    AppId, ExecId, MapId, ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId,
};

use crate::common::{
    Entry, HANDSHAKE, LIMIT, Split, bitmap, golden, golden_frames, golden_messages, hex,
    is_handshake, split,
};

const VERSIONS: [&str; 9] =
    ["2.4.8", "3.0.3", "3.1.3", "3.2.4", "3.3.4", "3.4.4", "3.5.9", "4.0.5", "4.3.0"];

#[test]
fn messages_decode_to_their_fields_and_encode_to_their_bytes() {
    for entry in golden_messages() {
        let message = Message::decode_as(entry.bytes.clone(), entry.layout());
        let message = message.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        assert_eq!(message.name(), entry.name);
        let expected = message_of(&entry);
        assert_eq!(message, expected);
        assert_eq!(expected.encode_as(entry.layout()), entry.bytes, "{message:?}");
    }
}

#[test]
fn frames_decode_to_their_fields_and_encode_to_their_bytes() {
    for entry in golden_frames() {
        let (frame, data) = frame_of(&entry);
        let expected = Split {
            frames: vec![(frame.clone(), data.clone())],
            complete: true,
            ..Split::default()
        };
        assert_eq!(split([&entry.bytes[..]], LIMIT), expected, "{}", entry.name);
        let mut out = BytesMut::new();
        frame.encode(&mut out);
        out.extend_from_slice(&data);
        assert_eq!(out, entry.bytes, "{frame:?}");
    }
}

#[test]
fn all_frames_of_a_version_are_one_stream() {
    for version in VERSIONS {
        let mut entries = golden_frames();
        entries.retain(|entry| entry.versions.iter().any(|v| v == version));
        let frames: Vec<_> = entries.iter().map(frame_of).collect();
        let stream: Vec<u8> = entries.iter().flat_map(|entry| entry.bytes.to_vec()).collect();
        let expected = Split { frames, complete: true, ..Split::default() };
        assert_eq!(split([&stream[..]], LIMIT), expected, "{version}");
    }
}

/// How many entries each version has of each message and frame: all of them are in the tests above.
#[test]
fn every_message_of_every_version_is_here() {
    const ALL: &[&str] = &VERSIONS;
    const MESOS: &[&str] = &["2.4.8", "3.0.3", "3.1.3", "3.2.4", "3.3.4", "3.4.4", "3.5.9"];
    const FROM_3_0: &[&str] =
        &["3.0.3", "3.1.3", "3.2.4", "3.3.4", "3.4.4", "3.5.9", "4.0.5", "4.3.0"];
    const FROM_3_1: &[&str] = &["3.1.3", "3.2.4", "3.3.4", "3.4.4", "3.5.9", "4.0.5", "4.3.0"];
    const FROM_3_2: &[&str] = &["3.2.4", "3.3.4", "3.4.4", "3.5.9", "4.0.5", "4.3.0"];
    const FROM_3_4: &[&str] = &["3.4.4", "3.5.9", "4.0.5", "4.3.0"];
    let expected = [
        ("OpenBlocks", 2, ALL),
        ("UploadBlock", 2, ALL),
        ("RegisterExecutor", 3, ALL),
        ("StreamHandle", 3, ALL),
        ("RegisterDriver", 3, MESOS),
        ("ShuffleServiceHeartbeat", 2, MESOS),
        ("UploadBlockStream", 2, ALL),
        ("RemoveBlocks", 2, FROM_3_0),
        ("BlocksRemoved", 2, FROM_3_0),
        ("FetchShuffleBlocks", 4, FROM_3_0),
        ("GetLocalDirsForExecutors", 2, FROM_3_0),
        ("LocalDirsForExecutors", 3, FROM_3_0),
        ("PushBlockStream", 2, FROM_3_1),
        ("FinalizeShuffleMerge", 2, FROM_3_1),
        ("MergeStatuses", 2, FROM_3_1),
        ("FetchShuffleBlockChunks", 2, FROM_3_2),
        ("DiagnoseCorruption", 2, FROM_3_2),
        ("CorruptionCause", 5, FROM_3_2),
        ("BlockPushReturnCode", 2, FROM_3_2),
        ("RemoveShuffleMerge", 1, FROM_3_4),
        ("ChunkFetchRequest", 2, ALL),
        ("ChunkFetchSuccess", 2, ALL),
        ("ChunkFetchFailure", 2, ALL),
        ("RpcRequest", 2, ALL),
        ("RpcResponse", 2, ALL),
        ("RpcFailure", 2, ALL),
        ("StreamRequest", 2, ALL),
        ("StreamResponse", 2, ALL),
        ("StreamFailure", 2, ALL),
        ("OneWayMessage", 2, ALL),
        ("UploadStream", 2, ALL),
        ("MergedBlockMetaRequest", 2, FROM_3_2),
        ("MergedBlockMetaSuccess", 2, FROM_3_2),
    ];
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .flat_map(|(name, count, versions)| {
            versions.iter().map(move |&v| ((name.into(), v.into()), count))
        })
        .collect();
    let mut found: BTreeMap<(String, String), i32> = BTreeMap::new();
    for entry in golden_messages().into_iter().chain(golden_frames()) {
        for version in entry.versions {
            *found.entry((entry.name.clone(), version)).or_default() += 1;
        }
    }
    assert_eq!(found, expected);

    let ids: BTreeSet<u8> = golden_messages().iter().map(|entry| entry.bytes[0]).collect();
    assert_eq!(ids, (0..=19).collect());
    let ids: BTreeSet<u8> = golden_frames().iter().map(|entry| entry.bytes[8]).collect();
    assert_eq!(ids, (0..=12).collect());
}

#[test]
fn what_is_left_out_are_the_handshakes() {
    let all = golden();
    let (left_out, _) = all.iter().partition::<Vec<_>, _>(|entry| is_handshake(&entry.name));
    assert_eq!(left_out.len() + golden_messages().len() + golden_frames().len(), all.len());
    let names: BTreeSet<&str> = left_out.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, HANDSHAKE.into());
}

#[test]
fn every_form_of_bitmap_has_the_length_it_has() {
    let forms: Value = serde_json::from_str(include_str!("golden/bitmaps-0.9.0.json")).unwrap();
    let forms = forms.as_array().unwrap();
    assert_eq!(forms.len(), 8);
    for form in forms {
        let length = usize::try_from(form["length"].as_u64().unwrap()).unwrap();
        let mut bytes = hex(form["head"].as_str().unwrap());
        bytes.resize(length, 0);
        let whole = bytes.clone();
        bytes.extend_from_slice(b"what comes next");
        let read = Bitmap::try_from(Bytes::from(bytes)).unwrap();
        assert_eq!(read.as_bytes(), whole, "{form}");
        for cut in 0..length {
            let cut = Bytes::from(whole[..cut].to_vec());
            assert!(Bitmap::try_from(cut).is_err(), "{form}");
        }
    }
}

/// The message that the JSON of an entry describes.
fn message_of(entry: &Entry) -> Message {
    let f = &entry.fields;
    let app_id = || AppId::from(text(&f["appId"]));
    let exec_id = || ExecId::from(text(&f["execId"]));
    let shuffle_id = || ShuffleId(int(&f["shuffleId"]));
    let reduce_id = || ReduceId(int(&f["reduceId"]));
    // 3.1 has neither; these are what the decoder puts in their place.
    let old = entry.layout() == Layout::Spark31;
    let app_attempt_id = || if old { -1 } else { int(&f["appAttemptId"]) };
    let shuffle_merge_id = || ShuffleMergeId(if old { 0 } else { int(&f["shuffleMergeId"]) });
    match entry.name.as_str() {
        "OpenBlocks" => {
            OpenBlocks { app_id: app_id(), exec_id: exec_id(), block_ids: texts(&f["blockIds"]) }
                .into()
        }
        "UploadBlock" => UploadBlock {
            app_id: app_id(),
            exec_id: exec_id(),
            block_id: text(&f["blockId"]).into(),
            metadata: blob(&f["metadata"]),
            data: blob(&f["blockData"]),
        }
        .into(),
        "RegisterExecutor" => {
            let info = &f["executorInfo"];
            RegisterExecutor {
                app_id: app_id(),
                exec_id: exec_id(),
                info: ExecutorShuffleInfo {
                    local_dirs: texts(&info["localDirs"]),
                    sub_dirs_per_local_dir: int(&info["subDirsPerLocalDir"]),
                    shuffle_manager: text(&info["shuffleManager"]).into(),
                },
            }
            .into()
        }
        "StreamHandle" => {
            let stream_id = StreamId(long(&f["streamId"]));
            StreamHandle { stream_id, num_chunks: int(&f["numChunks"]) }.into()
        }
        "RegisterDriver" => {
            let heartbeat_timeout_ms = long(&f["heartbeatTimeoutMs"]);
            RegisterDriver { app_id: app_id(), heartbeat_timeout_ms }.into()
        }
        "ShuffleServiceHeartbeat" => ShuffleServiceHeartbeat { app_id: app_id() }.into(),
        "UploadBlockStream" => UploadBlockStream {
            block_id: text(&f["blockId"]).into(),
            metadata: blob(&f["metadata"]),
        }
        .into(),
        "RemoveBlocks" => {
            RemoveBlocks { app_id: app_id(), exec_id: exec_id(), block_ids: texts(&f["blockIds"]) }
                .into()
        }
        "BlocksRemoved" => BlocksRemoved { num_removed_blocks: int(&f["numRemovedBlocks"]) }.into(),
        "FetchShuffleBlocks" => FetchShuffleBlocks {
            app_id: app_id(),
            exec_id: exec_id(),
            shuffle_id: shuffle_id(),
            map_ids: items(&f["mapIds"]).iter().map(long).collect(),
            reduce_ids: int_arrays(&f["reduceIds"]),
            batch_fetch: f["batchFetchEnabled"].as_bool().expect("a boolean"),
        }
        .into(),
        "GetLocalDirsForExecutors" => {
            GetLocalDirsForExecutors { app_id: app_id(), exec_ids: texts(&f["execIds"]) }.into()
        }
        "LocalDirsForExecutors" => items(&f["localDirsByExec"])
            .iter()
            .map(|pair| (text(&pair[0]), items(&pair[1]).iter().map(text).collect()))
            .collect::<LocalDirsForExecutors>()
            .into(),
        "PushBlockStream" => PushBlockStream {
            app_id: app_id(),
            app_attempt_id: app_attempt_id(),
            shuffle_id: shuffle_id(),
            shuffle_merge_id: shuffle_merge_id(),
            map_index: int(&f["mapIndex"]),
            reduce_id: reduce_id(),
            index: int(&f["index"]),
        }
        .into(),
        "FinalizeShuffleMerge" => FinalizeShuffleMerge {
            app_id: app_id(),
            app_attempt_id: app_attempt_id(),
            shuffle_id: shuffle_id(),
            shuffle_merge_id: shuffle_merge_id(),
        }
        .into(),
        "MergeStatuses" => MergeStatuses {
            shuffle_id: shuffle_id(),
            shuffle_merge_id: shuffle_merge_id(),
            bitmaps: bitmaps_of(entry),
            reduce_ids: ints(&f["reduceIds"]),
            sizes: items(&f["sizes"]).iter().map(long).collect(),
        }
        .into(),
        "FetchShuffleBlockChunks" => FetchShuffleBlockChunks {
            app_id: app_id(),
            exec_id: exec_id(),
            shuffle_id: shuffle_id(),
            shuffle_merge_id: shuffle_merge_id(),
            reduce_ids: ints(&f["reduceIds"]),
            chunk_ids: int_arrays(&f["chunkIds"]),
        }
        .into(),
        "DiagnoseCorruption" => DiagnoseCorruption {
            app_id: app_id(),
            exec_id: exec_id(),
            shuffle_id: shuffle_id(),
            map_id: MapId(long(&f["mapId"])),
            reduce_id: reduce_id(),
            checksum: long(&f["checksum"]),
            algorithm: text(&f["algorithm"]).into(),
        }
        .into(),
        "CorruptionCause" => {
            let cause = text(&f["cause"]);
            let causes = (0..=4).filter_map(CorruptionCause::from_code);
            let named = causes.filter(|known| known.to_string() == cause).collect::<Vec<_>>();
            assert_eq!(named.len(), 1, "{cause}");
            named[0].into()
        }
        "BlockPushReturnCode" => BlockPushReturnCode {
            return_code: i8::try_from(int(&f["returnCode"])).expect("a byte"),
            failure_block_id: text(&f["failureBlockId"]).into(),
        }
        .into(),
        "RemoveShuffleMerge" => RemoveShuffleMerge {
            app_id: app_id(),
            app_attempt_id: app_attempt_id(),
            shuffle_id: shuffle_id(),
            shuffle_merge_id: shuffle_merge_id(),
        }
        .into(),
        other => panic!("no fields known for {other}"),
    }
}

/// The bitmaps of a `MergeStatuses`, cut out of its bytes by their values.
fn bitmaps_of(entry: &Entry) -> Vec<Bitmap> {
    // Behind the type byte, the shuffle, the merge and the count.
    let mut at = if entry.layout() == Layout::Spark31 { 9 } else { 13 };
    let mut bitmaps = Vec::new();
    for expected in items(&entry.fields["bitmaps"]) {
        let (values, length) = bitmap(&entry.bytes[at..]);
        let expected = items(expected).iter().map(long).map(u32::try_from);
        assert_eq!(values, expected.map(|v| v.expect("32 bits")).collect::<Vec<_>>());
        let bytes = entry.bytes.slice(at..at + length);
        bitmaps.push(Bitmap::try_from(bytes).expect("a bitmap"));
        assert_eq!(bitmaps[bitmaps.len() - 1].as_bytes().len(), length);
        at += length;
    }
    bitmaps
}

/// The frame that the JSON of an entry describes, and the bytes behind it.
fn frame_of(entry: &Entry) -> (Frame, Vec<u8>) {
    let f = &entry.fields;
    let id = || RequestId(long(&f["requestId"]));
    let name = || text(&f["streamId"]).to_owned();
    let error = |key: &str| text(&f[key]).to_owned();
    let chunk = || StreamChunkId {
        stream: StreamId(long(&f["streamChunkId"]["streamId"])),
        chunk: int(&f["streamChunkId"]["chunkIndex"]),
    };
    let streamed = || {
        let body = blob(&f["body"]).to_vec();
        (body.len() as u64, body)
    };
    let frame = match entry.name.as_str() {
        "ChunkFetchRequest" => Frame::ChunkFetchRequest(chunk()),
        "ChunkFetchSuccess" => {
            let (length, body) = streamed();
            return (Frame::ChunkFetchSuccess { chunk: chunk(), length }, body);
        }
        "ChunkFetchFailure" => {
            Frame::ChunkFetchFailure { chunk: chunk(), error: error("errorString") }
        }
        "RpcRequest" => Frame::RpcRequest { id: id(), body: blob(&f["body"]) },
        "RpcResponse" => Frame::RpcResponse { id: id(), body: blob(&f["body"]) },
        "RpcFailure" => Frame::RpcFailure { id: id(), error: error("errorString") },
        "StreamRequest" => Frame::StreamRequest { name: name() },
        "StreamResponse" => {
            let (length, body) = streamed();
            assert_eq!(f["byteCount"], length);
            return (Frame::StreamResponse { name: name(), length }, body);
        }
        "StreamFailure" => Frame::StreamFailure { name: name(), error: error("error") },
        "OneWayMessage" => Frame::OneWayMessage { body: blob(&f["body"]) },
        "UploadStream" => {
            let (length, body) = streamed();
            return (Frame::UploadStream { id: id(), meta: blob(&f["meta"]), length }, body);
        }
        "MergedBlockMetaRequest" => Frame::MergedBlockMetaRequest {
            id: id(),
            app_id: text(&f["appId"]).into(),
            shuffle_id: ShuffleId(int(&f["shuffleId"])),
            shuffle_merge_id: ShuffleMergeId(int(&f["shuffleMergeId"])),
            reduce_id: ReduceId(int(&f["reduceId"])),
        },
        "MergedBlockMetaSuccess" => Frame::MergedBlockMetaSuccess {
            id: id(),
            num_chunks: int(&f["numChunks"]),
            body: blob(&f["body"]),
        },
        other => panic!("no fields known for {other}"),
    };
    (frame, Vec::new())
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn long(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

fn int(value: &Value) -> i32 {
    i32::try_from(long(value)).expect("32 bits")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn ints(value: &Value) -> Vec<i32> {
    items(value).iter().map(int).collect()
}

fn int_arrays(value: &Value) -> IntArrays {
    items(value).iter().map(ints).collect()
}

fn texts(value: &Value) -> StringArray {
    items(value).iter().map(text).collect()
}

fn blob(value: &Value) -> Bytes {
    hex(text(&value["hex"])).into()
}
