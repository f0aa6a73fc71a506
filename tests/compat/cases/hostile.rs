//! What no Spark client sends: unknown messages, broken payloads, broken frames, other protocols.

use bytes::Bytes;
use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::{
    DiagnoseCorruption, ExecutorShuffleInfo, FetchShuffleBlockChunks, FinalizeShuffleMerge,
    GetLocalDirsForExecutors, Message, OpenBlocks, PushBlockStream, RegisterDriver,
    RegisterExecutor, RemoveBlocks, RemoveShuffleMerge, ShuffleServiceHeartbeat, UploadBlock,
    UploadBlockStream,
};
use shuffle_protocol::{MapId, ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId};

use super::fetch::pipelined;
use crate::case::Reference::{Both, Mesos, Standalone};
use crate::case::{Case, EXEC, Fields, case, encode, framed, length, rpc_frame};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = unknown();
    cases.extend(truncated());
    cases.extend(counts());
    cases.extend(frames());
    cases.extend(connections());
    cases
}

/// Complaint C04.
fn unknown() -> Vec<Case> {
    let mut cases = vec![
        case("unknown_one_way").step_one_way(&[99]).local_dirs(&[EXEC]),
        case("unknown_one_way_many").unknown_one_ways(1000).local_dirs(&[EXEC]),
        case("unknown_empty").payload(""),
        case("unknown_empty_one_way").step_one_way(&[]).local_dirs(&[EXEC]),
        case("unknown_java_serialised").payload(vec![0xAC, 0xED, 0, 5]),
    ];
    for id in [20_i8, 21, 99, 127, -1, -5, -22, -128] {
        cases.push(case(format!("unknown_{id}")).payload(vec![id.cast_unsigned(), 0, 0]));
    }
    cases
}

/// Each message cut at every length.
fn truncated() -> Vec<Case> {
    let app = || "app".into();
    let messages: [(Message, _); 15] = [
        (
            OpenBlocks {
                app_id: app(),
                exec_id: EXEC.into(),
                block_ids: ["shuffle_0_0_0", "shuffle_0_0_1"].iter().collect(),
            }
            .into(),
            Both,
        ),
        (case("app").fetching(&[0, 1], &[&[0], &[1, 2]], false).into(), Both),
        (
            FetchShuffleBlockChunks {
                app_id: app(),
                exec_id: "shuffle-push-merger".into(),
                shuffle_id: ShuffleId(0),
                shuffle_merge_id: ShuffleMergeId(0),
                reduce_ids: vec![0, 1],
                chunk_ids: [&[0, 1][..], &[0]].iter().copied().collect(),
            }
            .into(),
            Both,
        ),
        (
            RegisterExecutor {
                app_id: app(),
                exec_id: EXEC.into(),
                info: ExecutorShuffleInfo {
                    local_dirs: ["/nowhere/blockmgr-a", "/nowhere/blockmgr-b"].iter().collect(),
                    sub_dirs_per_local_dir: 64,
                    shuffle_manager: "sort".into(),
                },
            }
            .into(),
            Standalone,
        ),
        (RegisterDriver { app_id: app(), heartbeat_timeout_ms: 120_000 }.into(), Mesos),
        (ShuffleServiceHeartbeat { app_id: app() }.into(), Mesos),
        (
            RemoveBlocks {
                app_id: app(),
                exec_id: EXEC.into(),
                block_ids: ["a", "b"].iter().collect(),
            }
            .into(),
            Both,
        ),
        (
            GetLocalDirsForExecutors { app_id: app(), exec_ids: [EXEC, "2"].iter().collect() }
                .into(),
            Both,
        ),
        (
            DiagnoseCorruption {
                app_id: app(),
                exec_id: EXEC.into(),
                shuffle_id: ShuffleId(0),
                map_id: MapId(0),
                reduce_id: ReduceId(0),
                checksum: 5,
                algorithm: "XYZ".into(),
            }
            .into(),
            Both,
        ),
        (
            FinalizeShuffleMerge {
                app_id: app(),
                app_attempt_id: -1,
                shuffle_id: ShuffleId(0),
                shuffle_merge_id: ShuffleMergeId(0),
            }
            .into(),
            Both,
        ),
        (
            RemoveShuffleMerge {
                app_id: app(),
                app_attempt_id: -1,
                shuffle_id: ShuffleId(0),
                shuffle_merge_id: ShuffleMergeId(0),
            }
            .into(),
            Both,
        ),
        (
            PushBlockStream {
                app_id: app(),
                app_attempt_id: -1,
                shuffle_id: ShuffleId(0),
                shuffle_merge_id: ShuffleMergeId(0),
                map_index: 0,
                reduce_id: ReduceId(0),
                index: 0,
            }
            .into(),
            Both,
        ),
        (
            UploadBlock {
                app_id: app(),
                exec_id: EXEC.into(),
                block_id: "rdd_1_5".into(),
                metadata: Bytes::from_static(b"meta"),
                data: Bytes::from_static(b"data"),
            }
            .into(),
            Both,
        ),
        (
            UploadBlockStream { block_id: "rdd_1_5".into(), metadata: Bytes::from_static(b"meta") }
                .into(),
            Both,
        ),
        (
            shuffle_protocol::message::StreamHandle { stream_id: StreamId(1), num_chunks: 1 }
                .into(),
            Both,
        ),
    ];
    messages
        .into_iter()
        .map(|(message, reference)| {
            case(format!("truncated_{}", message.name())).at(reference).truncated(message)
        })
        .collect()
}

/// Counts and lengths that promise more than there is. Before 4.0 Spark allocated what it was told,
/// and lost the connection or more (complaint F9), so 4.3.0 is the reference.
fn counts() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, count) in
        [("max", i32::MAX), ("minus_one", -1), ("min", i32::MIN), ("million", 1 << 20)]
    {
        let tables: [(&str, Bytes); 7] = [
            ("text", Fields::of(0).i32(count).raw(b"app").done()),
            ("texts", Fields::of(0).text("app").text("1").i32(count).text("rdd_1_0").done()),
            ("map_ids", Fields::of(9).text("app").text("1").i32(0).i32(count).i64(0).done()),
            (
                "reduce_lists",
                Fields::of(9).text("app").text("1").i32(0).i32(1).i64(0).i32(count).i32(1).done(),
            ),
            (
                "reduce_ids",
                Fields::of(9).text("app").text("1").i32(0).i32(1).i64(0).i32(1).i32(count).done(),
            ),
            (
                "merged_reduce_ids",
                Fields::of(15).text("app").text("1").i32(0).i32(0).i32(count).i32(1).done(),
            ),
            (
                "upload_bytes",
                Fields::of(1).text("app").text("1").text("rdd_1_0").i32(count).raw(b"me").done(),
            ),
        ];
        for (field, payload) in tables {
            cases.push(
                case(format!("count_{name}_{field}"))
                    .at(Standalone)
                    .payload(payload)
                    .local_dirs(&[EXEC]),
            );
        }
    }
    // Complaint F9, as it was measured.
    cases.push(
        case("f9_count_of_a_text")
            .at(Mesos)
            .payload(Fields::of(0).i32(i32::MAX).raw(b"app").done())
            .on(1)
            .local_dirs(&[EXEC]),
    );
    cases
}

fn frames() -> Vec<Case> {
    let rpc = |id: i64, body: &[u8]| Fields::of(3).i64(id).bytes(body).done();
    let mut cases = vec![
        // Complaint F11 and the lengths around it.
        case("frame_length_0").bytes(length(0)),
        case("frame_length_1").bytes(length(1)),
        case("frame_length_8").bytes(length(8)),
        case("frame_length_minus_1").bytes(length(-1)),
        case("frame_length_min").bytes(length(i64::MIN)),
        case("frame_length_max").bytes(length(i64::MAX)),
        case("frame_length_two_to_31_and_7").bytes(length((1 << 31) + 7)),
        // With the type byte, by which a service knows that it has to take the frame in one piece.
        case("frame_length_two_to_31").await_close([length(1 << 31), vec![3]].concat()),
        case("frame_length_two_to_31_and_6").await_close([length((1 << 31) + 6), vec![3]].concat()),
        case("frame_length_gib").await_close([length(1 << 30), vec![3]].concat()),
        // -1 is how Spark's decoder notes that it has no length yet.
        case("frame_length_7").await_close([length(7), framed(&rpc(5, &[99]))].concat()),
        // A body has a length of its own, which nobody looks at.
        case("frame_body_length_wrong")
            .bytes(framed(&Fields::of(3).i64(5).i32(1000).raw(&[99, 1, 2]).done())),
        case("frame_body_length_negative")
            .bytes(framed(&Fields::of(3).i64(5).i32(-1).raw(&[99, 1, 2]).done())),
        case("frame_body_length_zero")
            .bytes(framed(&Fields::of(3).i64(5).i32(0).raw(&[99, 1, 2]).done())),
        case("frame_negative_request_id").bytes(framed(&rpc(-5, &[99]))),
        case("frame_two_same_request_ids")
            .bytes([framed(&rpc(5, &[99])), framed(&rpc(5, &[98]))].concat()),
        case("frame_bytes_behind_header")
            .bytes(framed(&Fields::of(0).i64(4242).i32(0).raw(b"more").done())),
        case("frame_empty_one_way").bytes(framed(&Fields::of(9).i32(0).done())),
        case("frame_bytes_behind_stream_name")
            .bytes(framed(&Fields::of(6).text("4242_x").raw(b"more").done())),
        case("frame_stream_name_not_utf8").bytes(framed(&Fields::of(6).bytes(b"\xff\xfe").done())),
        case("frame_stream_name_max").bytes(framed(&Fields::of(6).i32(i32::MAX).done())),
        case("frame_stream_name_negative").bytes(framed(&Fields::of(6).i32(-1).done())),
        case("frame_merged_meta_bad_text")
            .bytes(framed(&Fields::of(11).i64(5).i32(1000).raw(b"a").done())),
    ];
    for (name, type_id) in
        [("13", 13_i8), ("99", 99), ("127", 127), ("user", -1), ("minus_128", -128)]
    {
        cases.push(
            case(format!("frame_type_{name}")).bytes(framed(&Fields::of(type_id).i64(1).done())),
        );
    }
    // A type byte and nothing, and one field too few.
    for type_id in 0..=12_i8 {
        cases.push(
            case(format!("frame_type_{type_id}_only")).bytes(framed(&Fields::of(type_id).done())),
        );
        cases.push(
            case(format!("frame_type_{type_id}_short"))
                .bytes(framed(&Fields::of(type_id).raw(&[0; 3]).done())),
        );
    }
    // Answers to what was never asked.
    let chunk = StreamChunkId { stream: StreamId(4242), chunk: 0 };
    for (name, frame, data) in [
        ("chunk", Frame::ChunkFetchSuccess { chunk, length: 3 }, &b"abc"[..]),
        ("chunk_failure", Frame::ChunkFetchFailure { chunk, error: "no".into() }, b""),
        ("rpc", Frame::RpcResponse { id: RequestId(5), body: Bytes::from_static(b"x") }, b""),
        ("rpc_failure", Frame::RpcFailure { id: RequestId(5), error: "no".into() }, b""),
        ("stream_failure", Frame::StreamFailure { name: "a".into(), error: "no".into() }, b""),
        ("stream_empty", Frame::StreamResponse { name: "a".into(), length: 0 }, b""),
        ("stream", Frame::StreamResponse { name: "a".into(), length: 3 }, b"abc"),
        (
            "merged_meta",
            Frame::MergedBlockMetaSuccess { id: RequestId(5), num_chunks: 0, body: Bytes::new() },
            b"",
        ),
    ] {
        cases.push(
            case(format!("frame_answer_{name}"))
                .bytes([&encode(&frame)[..], data].concat())
                .local_dirs(&[EXEC]),
        );
    }
    cases
}

/// Complaint C43, and connections that end in the middle.
fn connections() -> Vec<Case> {
    let tls: &[u8] =
        b"\x16\x03\x01\x00\x55\x01\x00\x00\x51\x03\x03abcdefghijklmnopqrstuvwxyz012345\x20";
    let valid =
        encode(&rpc_frame(5, Message::from(ShuffleServiceHeartbeat { app_id: "a".into() })));
    let pipelined_and_close = |case: Case| {
        let message = case.fetching(&[1], &[&[3]], false);
        let frames: Vec<u8> =
            (0..50).flat_map(|id| encode(&rpc_frame(id, message.clone()))).collect();
        case.last(frames)
    };
    vec![
        case("foreign_tls_hello").bytes(tls),
        case("foreign_http_get").bytes("GET / HTTP/1.1\r\nHost: shuffle\r\n\r\n"),
        case("foreign_http_post").bytes("POST /submit HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
        case("foreign_http2").bytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        case("foreign_ssh").bytes("SSH-2.0-OpenSSH_9.2\r\n"),
        case("foreign_java_rmi").bytes(&b"JRMI\0\x02K"[..]).bytes([0; 64]),
        case("foreign_zeros").bytes([0; 64]),
        case("foreign_ones").bytes([0xff; 64]),
        case("closes_without_a_byte").last(""),
        case("closes_within_a_length").last(&valid[..5]),
        case("closes_behind_a_length").last(&valid[..8]),
        case("closes_within_a_header").last(&valid[..12]),
        case("closes_within_a_body").last(&valid[..valid.len() - 1]),
        case("closes_behind_a_request").last(encode(&rpc_frame(
            5,
            GetLocalDirsForExecutors { app_id: "a".into(), exec_ids: ["1"].iter().collect() },
        ))),
        pipelined_and_close(case("closes_behind_many_requests")),
        case("closes_within_an_upload").last(
            [
                &encode(&Frame::UploadStream {
                    id: RequestId(5),
                    meta: Bytes::from_static(&[99]),
                    length: 100,
                })[..],
                b"half",
            ]
            .concat(),
        ),
        pipelined(case("many_requests_at_once")),
    ]
}

impl Case {
    fn step_one_way(self, payload: &[u8]) -> Self {
        self.frame(&Frame::OneWayMessage { body: Bytes::copy_from_slice(payload) })
    }

    fn unknown_one_ways(self, times: usize) -> Self {
        let frame = Frame::OneWayMessage { body: Bytes::from_static(&[99]) };
        self.frames(&vec![frame; times])
    }
}
