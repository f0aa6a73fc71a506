//! Recorded conversations (`tests/golden/captures` of the workspace): every byte both ways is part of
//! a frame, every payload is a message, and both are written back as they were read.

mod common;

use std::collections::BTreeSet;

use bytes::BytesMut;
use serde_json::Value;
use shuffle_protocol::failure::Failure;
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::Message;

use crate::common::{LIMIT, Split, hex, split};

macro_rules! captures {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../../tests/golden/captures/", $name, ".json"))),)*]
    };
}

const CAPTURES: [(&str, &str); 6] = captures![
    "driver-register-heartbeats-3.3.4",
    "driver-register-refused-3.3.4",
    "executor-errors-3.3.4",
    "executor-fetch-2.4.8",
    "executor-fetch-3.3.4",
    "executor-fetch-4.3.0",
];

/// One direction of a connection.
struct Recorded {
    bytes: Vec<u8>,
    /// The same as it came off the socket.
    pieces: Vec<Vec<u8>>,
}

#[test]
fn every_byte_is_accounted_for_and_written_back() {
    for (name, capture) in CAPTURES {
        for stream in recorded(capture) {
            let whole = split([&stream.bytes[..]], LIMIT);
            let pieces = stream.pieces.iter().map(|piece| &piece[..]);
            assert_eq!(split(pieces, LIMIT), whole, "{name}");
            let bytes = stream.bytes.chunks(1);
            assert_eq!(split(bytes, LIMIT), whole, "{name}");

            let mut out = BytesMut::new();
            for (frame, data) in &whole.frames {
                frame.encode(&mut out);
                out.extend_from_slice(data);
            }
            assert_eq!(out, stream.bytes, "{name}");
            let rest = Split { complete: true, ..Split::default() };
            assert_eq!(Split { frames: Vec::new(), ..whole }, rest, "{name}");
        }
    }
}

#[test]
fn every_payload_is_a_message_and_written_back() {
    let mut seen = BTreeSet::new();
    for (name, capture) in CAPTURES {
        for stream in recorded(capture) {
            for (frame, _) in split([&stream.bytes[..]], LIMIT).frames {
                let (Frame::RpcRequest { body, .. }
                | Frame::OneWayMessage { body }
                | Frame::RpcResponse { body, .. }) = frame
                else {
                    continue;
                };
                // An acknowledgement without anything in it.
                if body.is_empty() {
                    continue;
                }
                let message = Message::decode(body.clone());
                let message = message.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(message.encode(), body, "{name}: {message:?}");
                seen.insert(message.name());
            }
        }
    }
    let expected = [
        "BlocksRemoved",
        "CorruptionCause",
        "DiagnoseCorruption",
        "FetchShuffleBlocks",
        "FinalizeShuffleMerge",
        "GetLocalDirsForExecutors",
        "LocalDirsForExecutors",
        "OpenBlocks",
        "RegisterDriver",
        "RegisterExecutor",
        "RemoveBlocks",
        "ShuffleServiceHeartbeat",
        "StreamHandle",
    ];
    assert_eq!(seen, expected.into());
}

/// Every refusal that Spark's service gave begins as ours does.
#[test]
fn refusals_have_the_first_line_that_spark_gives() {
    let registered = |exec: &str| Failure::ExecutorNotRegistered {
        app_id: "app-bed-1".into(),
        exec_id: exec.into(),
    };
    let ours = [
        registered("7"),
        registered("nobody"),
        Failure::NoMergeManager,
        Failure::ChunkNotFound,
        Failure::IllegalArgument("Unexpected block id format: bogus_1".into()),
        // Java prints an object's class and hash here, and no path's reason; ours go on where
        // these end.
        Failure::UnexpectedMessage(""),
        Failure::IndexNotOpened {
            path: "/tmp/bed/d1/blockmgr-bbbb/3c/shuffle_3_99_0.index".into(),
            reason: String::new(),
        },
        Failure::IndexNotOpened {
            path: "/tmp/bed/d1/blockmgr-bbbb/1c/shuffle_3_77_0.index".into(),
            reason: String::new(),
        },
    ];
    let ours: BTreeSet<String> =
        ours.map(|failure| failure.to_string().trim_end_matches(": ").to_owned()).into();
    // A reduce id out of range. Java has nothing to say about it.
    const BARE: &str = "java.lang.IndexOutOfBoundsException";

    let mut seen = BTreeSet::new();
    for (name, capture) in CAPTURES {
        for stream in recorded(capture) {
            for (frame, _) in split([&stream.bytes[..]], LIMIT).frames {
                let error = match frame {
                    Frame::ChunkFetchFailure { error, .. } | Frame::RpcFailure { error, .. } => {
                        error
                    }
                    Frame::StreamFailure { .. } => panic!("{name}: no stream was asked for"),
                    _ => continue,
                };
                let first = error.lines().next().unwrap();
                if first != BARE {
                    let same = ours.iter().find(|ours| first.starts_with(&***ours));
                    seen.insert(same.unwrap_or_else(|| panic!("{name}: {first}")).clone());
                }
            }
        }
    }
    assert_eq!(seen, ours);
}

fn recorded(capture: &str) -> Vec<Recorded> {
    let capture: Value = serde_json::from_str(capture).expect("JSON");
    let connections = capture["connections"].as_array().expect("array");
    assert!(!connections.is_empty());
    let directions = |connection| ["c2s", "s2c"].map(|dir| recorded_in(connection, dir));
    connections.iter().flat_map(directions).collect()
}

fn recorded_in(connection: &Value, dir: &str) -> Recorded {
    let events = connection["events"].as_array().expect("array").iter();
    let events = events.filter(|event| event["dir"] == dir);
    let pieces: Vec<_> = events.filter_map(|event| event["hex"].as_str()).map(hex).collect();
    let bytes = hex(connection[dir].as_str().expect("text"));
    assert_eq!(pieces.concat(), bytes);
    Recorded { bytes, pieces }
}
