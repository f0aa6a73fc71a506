//! What a refused request is told: one frozen mapping from reasons to texts.
//!
//! Spark answers with a Java stack trace. Its clients search that text for a few phrases
//! (`spec/block-transfer.md` §6) and people grep logs for others, so the first line is what Spark's
//! own service says, class name and all. No stack follows: there is none, and it would tell an
//! outsider about our insides. Where Spark has no words for a case, the words are ours.

use std::fmt;

use crate::block_id::OpenBlocksError;
use crate::ids::{AppId, ExecId, StreamId};
use crate::message::DecodeError;
use crate::timeout::TimeoutNotPositive;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Nobody registered this executor, or its application expired.
    ExecutorNotRegistered {
        /// As asked for.
        app_id: AppId,
        /// As asked for.
        exec_id: ExecId,
    },
    /// The payload cannot be read.
    Undecodable(DecodeError),
    /// A message that a shuffle service does not serve; its name.
    UnexpectedMessage(&'static str),
    /// The same, announced by an upload.
    UnexpectedUpload(&'static str),
    /// Push shuffle, which needs a merge manager.
    NoMergeManager,
    /// The removal of merged blocks, which needs one too.
    NoMergedRemove,
    /// A value that makes no sense, in Spark's words or ours.
    IllegalArgument(String),
    /// Text where a number should be.
    NotANumber(String),
    /// A list of blocks without any.
    NoBlocks,
    /// The stream does not exist on this connection, or all of it was handed out.
    UnknownStream(StreamId),
    /// Chunks are handed out in order, each once.
    OutOfOrderChunk {
        /// As asked for.
        chunk: i32,
        /// The next one in order.
        expected: i32,
    },
    /// The stream has fewer chunks.
    ChunkBeyondEnd(i32),
    /// No such file for an RDD block.
    ChunkNotFound,
    /// The index file of a map output cannot be opened: path and reason.
    IndexNotOpened {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Files that are there but cannot be served; names the file.
    BadFile(String),
    /// A chunk of 2 GiB or more does not fit a frame.
    ChunkTooLarge {
        /// Bytes in the chunk.
        length: u64,
    },
    /// Something went wrong here; names it.
    Internal(String),
}

impl Failure {
    fn class(&self) -> &'static str {
        match self {
            Self::ExecutorNotRegistered { .. }
            | Self::IndexNotOpened { .. }
            | Self::BadFile(_)
            | Self::Internal(_) => "java.lang.RuntimeException",
            Self::Undecodable(DecodeError::UnknownType(_))
            | Self::IllegalArgument(_)
            | Self::UnknownStream(_) => "java.lang.IllegalArgumentException",
            Self::Undecodable(_) => "java.lang.IndexOutOfBoundsException",
            Self::UnexpectedMessage(_)
            | Self::UnexpectedUpload(_)
            | Self::NoMergeManager
            | Self::NoMergedRemove => "java.lang.UnsupportedOperationException",
            Self::NotANumber(_) => "java.lang.NumberFormatException",
            Self::NoBlocks => "java.lang.ArrayIndexOutOfBoundsException",
            Self::OutOfOrderChunk { .. }
            | Self::ChunkBeyondEnd(_)
            | Self::ChunkNotFound
            | Self::ChunkTooLarge { .. } => "java.lang.IllegalStateException",
        }
    }
}

/// The text on the wire.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.class())?;
        match self {
            Self::ExecutorNotRegistered { app_id, exec_id } => {
                write!(f, "Executor is not registered (appId={app_id}, execId={exec_id})")
            }
            Self::Undecodable(error) => error.fmt(f),
            Self::UnexpectedMessage(message) => write!(f, "Unexpected message: {message}"),
            Self::UnexpectedUpload(message) => {
                write!(f, "Unexpected message with #receiveStream: {message}")
            }
            Self::NoMergeManager => f.write_str("Cannot handle shuffle block merge"),
            Self::NoMergedRemove => f.write_str("Cannot handle merged shuffle remove"),
            Self::IllegalArgument(message) | Self::BadFile(message) | Self::Internal(message) => {
                f.write_str(message)
            }
            Self::NotANumber(text) => write!(f, "For input string: \"{text}\""),
            Self::NoBlocks => f.write_str("Index 0 out of bounds for length 0"),
            Self::UnknownStream(_) => f.write_str("Unknown stream ID."),
            Self::OutOfOrderChunk { chunk, expected } => {
                write!(f, "Received out-of-order chunk index {chunk} (expected {expected})")
            }
            Self::ChunkBeyondEnd(chunk) => write!(f, "Requested chunk index beyond end {chunk}"),
            Self::ChunkNotFound => f.write_str("Chunk was not found"),
            Self::IndexNotOpened { path, reason } => {
                write!(f, "Failed to open file: {path}: {reason}")
            }
            Self::ChunkTooLarge { length } => write!(
                f,
                "a block of {length} bytes does not fit a frame of 2 GiB; let the reader fetch it to \
                 disk (spark.network.maxRemoteBlockSizeFetchToMem below 2g) or use more partitions"
            ),
        }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Undecodable(error)
    }
}

impl From<OpenBlocksError> for Failure {
    fn from(error: OpenBlocksError) -> Self {
        match error {
            OpenBlocksError::Empty => Self::NoBlocks,
            OpenBlocksError::NumberFormat(text) => Self::NotANumber(text.into()),
            other => Self::IllegalArgument(other.to_string()),
        }
    }
}

impl From<TimeoutNotPositive> for Failure {
    fn from(error: TimeoutNotPositive) -> Self {
        Self::IllegalArgument(error.to_string())
    }
}

/// The one text of a [`StreamFailure`](crate::frame::Frame::StreamFailure) that a client matches as
/// a whole, without a class in front.
#[must_use]
pub fn stream_not_found(name: &str) -> String {
    format!("Stream '{name}' was not found.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    /// Clients and people search for these.
    #[test]
    fn the_texts_are_frozen() {
        let table = [
            (
                Failure::ExecutorNotRegistered { app_id: "app-1".into(), exec_id: "7".into() },
                "java.lang.RuntimeException: Executor is not registered (appId=app-1, execId=7)",
            ),
            (
                Failure::Undecodable(DecodeError::UnknownType(99)),
                "java.lang.IllegalArgumentException: Unknown message type: 99",
            ),
            (
                Failure::Undecodable(DecodeError::Empty),
                "java.lang.IndexOutOfBoundsException: empty message",
            ),
            (
                Failure::UnexpectedMessage("UploadBlock"),
                "java.lang.UnsupportedOperationException: Unexpected message: UploadBlock",
            ),
            (
                Failure::UnexpectedUpload("UploadBlockStream"),
                "java.lang.UnsupportedOperationException: Unexpected message with #receiveStream: \
                 UploadBlockStream",
            ),
            (
                Failure::NoMergeManager,
                "java.lang.UnsupportedOperationException: Cannot handle shuffle block merge",
            ),
            (
                Failure::IllegalArgument("Unexpected block id format: a".into()),
                "java.lang.IllegalArgumentException: Unexpected block id format: a",
            ),
            (
                Failure::NotANumber("x".into()),
                "java.lang.NumberFormatException: For input string: \"x\"",
            ),
            (
                Failure::NoBlocks,
                "java.lang.ArrayIndexOutOfBoundsException: Index 0 out of bounds for length 0",
            ),
            (
                Failure::UnknownStream(StreamId(1)),
                "java.lang.IllegalArgumentException: Unknown stream ID.",
            ),
            (
                Failure::OutOfOrderChunk { chunk: 2, expected: 1 },
                "java.lang.IllegalStateException: Received out-of-order chunk index 2 (expected 1)",
            ),
            (
                Failure::ChunkBeyondEnd(3),
                "java.lang.IllegalStateException: Requested chunk index beyond end 3",
            ),
            (Failure::ChunkNotFound, "java.lang.IllegalStateException: Chunk was not found"),
            (
                Failure::IndexNotOpened {
                    path: "/d/0c/shuffle_0_0_0.index".into(),
                    reason: "No such file or directory".into(),
                },
                "java.lang.RuntimeException: Failed to open file: /d/0c/shuffle_0_0_0.index: No such \
                 file or directory",
            ),
            (
                Failure::ChunkTooLarge { length: 1 << 31 },
                "java.lang.IllegalStateException: a block of 2147483648 bytes does not fit a frame of \
                 2 GiB; let the reader fetch it to disk (spark.network.maxRemoteBlockSizeFetchToMem \
                 below 2g) or use more partitions",
            ),
        ];
        for (failure, text) in table {
            assert_eq!(failure.to_string(), text);
        }
        assert_eq!(stream_not_found("1_0"), "Stream '1_0' was not found.");
    }

    /// Complaint C04: a peer of another generation learns which message it was.
    #[test]
    fn c04_an_unknown_message_is_named_by_its_number() {
        for number in [20_i8, 99, 127, -1, -5, i8::MIN] {
            let error = Message::decode(number.to_be_bytes().to_vec().into()).unwrap_err();
            assert_eq!(error, DecodeError::UnknownType(number));
            let text = Failure::from(error).to_string();
            assert!(text.ends_with(&format!(": Unknown message type: {number}")), "{text}");
        }
    }
}
