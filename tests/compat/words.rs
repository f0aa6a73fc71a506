//! Answers as text, the same for the same answer, whichever service gave it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::{GetLocalDirsForExecutors, Message};
use shuffle_protocol::wire::StringArray;
use shuffle_protocol::{RequestId, StreamId};
use test_support::raw::Answer;

use crate::case::rpc_frame;

/// The id of the requests that show how far a service has come.
const PROBE: i64 = i64::MAX;

/// Asks for the directories of no executor, which every service answers, without a word in its log.
pub(crate) fn probe() -> Frame {
    let exec_ids = StringArray::default();
    rpc_frame(PROBE, GetLocalDirsForExecutors { app_id: "".into(), exec_ids })
}

/// True for the answer to a probe.
pub(crate) fn answers_probe(frame: &Frame) -> bool {
    matches!(frame, Frame::RpcResponse { id: RequestId(PROBE), .. })
}

/// What is different from service to service, and how it is called in all of them.
#[derive(Debug)]
pub(crate) struct Words {
    /// As opened, in order.
    pub(crate) streams: Vec<StreamId>,
    root: String,
}

impl Words {
    /// Of a service whose files are below `root`.
    pub(crate) fn of(root: &Path) -> Self {
        Self { streams: Vec::new(), root: root.to_string_lossy().into_owned() }
    }

    pub(crate) fn describe(&mut self, Answer { frame, data }: Answer) -> String {
        let text = match frame {
            Frame::RpcResponse { id, body } => {
                format!("RpcResponse {} {}", id.0, self.describe_body(&body))
            }
            Frame::RpcFailure { id, error } => format!("RpcFailure {}: {}", id.0, first(&error)),
            Frame::ChunkFetchSuccess { chunk, length } => {
                format!(
                    "Chunk {} of {}: {length} bytes {}",
                    chunk.chunk,
                    chunk.stream.0,
                    hex(&data)
                )
            }
            Frame::ChunkFetchFailure { chunk, error } => {
                format!("ChunkFailure {} of {}: {}", chunk.chunk, chunk.stream.0, first(&error))
            }
            Frame::StreamResponse { name, length } => {
                format!("Stream {name}: {length} bytes {}", hex(&data))
            }
            Frame::StreamFailure { name, error } => {
                format!("StreamFailure {name}: {}", first(&error))
            }
            other => format!("{other:?}"),
        };
        self.normalised(text)
    }

    fn describe_body(&mut self, body: &Bytes) -> String {
        match Message::decode(body.clone()) {
            Ok(message) if message.encode() == *body => match message {
                Message::StreamHandle(handle) => {
                    self.streams.push(handle.stream_id);
                    format!("StreamHandle of {} chunks", handle.num_chunks)
                }
                Message::LocalDirsForExecutors(dirs) => {
                    // Their order is that of a hash map.
                    let dirs: BTreeMap<_, _> = dirs.iter().collect();
                    format!("LocalDirs {dirs:?}")
                }
                other => format!("{other:?}"),
            },
            _ => hex(body),
        }
    }

    /// Without what differs from service to service.
    fn normalised(&self, mut text: String) -> String {
        for (number, stream) in self.streams.iter().enumerate() {
            text = text.replace(&stream.0.to_string(), &format!("{{{number}}}"));
        }
        text.replace(&self.root, "{root}")
    }
}

/// The first line of a stack trace.
fn first(error: &str) -> &str {
    error.lines().next().unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
