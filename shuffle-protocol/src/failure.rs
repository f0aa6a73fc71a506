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
    /// A message that a shuffle service does not serve; its name and fields.
    UnexpectedMessage(String),
    /// The same, announced by an upload.
    UnexpectedUpload(String),
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
            Self::Undecodable(DecodeError::UnknownType(_)) | Self::IllegalArgument(_) => {
                "java.lang.IllegalArgumentException"
            }
            Self::Undecodable(_) => "java.lang.IndexOutOfBoundsException",
            Self::UnexpectedMessage(_)
            | Self::UnexpectedUpload(_)
            | Self::NoMergeManager
            | Self::NoMergedRemove => "java.lang.UnsupportedOperationException",
            Self::NotANumber(_) => "java.lang.NumberFormatException",
            Self::NoBlocks => "java.lang.ArrayIndexOutOfBoundsException",
            Self::UnknownStream(_)
            | Self::OutOfOrderChunk { .. }
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
