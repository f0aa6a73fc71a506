//! The block-transfer messages (`spec/block-transfer.md`): what travels inside RPCs, one-way
//! messages and the meta of an upload.
//!
//! One file a family. A message is one signed type byte and its fields; bytes after the last field
//! are left alone, because a newer peer may have put fields there that this version does not know.

mod blocks;
mod driver;
mod executor;
mod fetch;
mod push;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

pub use self::blocks::{
    BlocksRemoved, DiagnoseCorruption, RemoveBlocks, UploadBlock, UploadBlockStream,
};
pub use self::driver::{RegisterDriver, ShuffleServiceHeartbeat};
pub use self::executor::{
    ExecutorShuffleInfo, GetLocalDirsForExecutors, LocalDirsForExecutors, RegisterExecutor,
};
pub use self::fetch::{FetchShuffleBlockChunks, FetchShuffleBlocks, OpenBlocks, StreamHandle};
pub use self::push::{
    BlockPushReturnCode, FinalizeShuffleMerge, MergeStatuses, PushBlockStream, RemoveShuffleMerge,
};
pub use crate::checksum::CorruptionCause;
use crate::wire::{Reader, WireError};

/// Why a message cannot be used. The peer's fault, or a peer of a generation that nobody knows yet.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A type byte that no Spark up to 4.3 sends.
    #[error("Unknown message type: {0}")]
    UnknownType(i8),
    /// The fields of a known message cannot be read.
    #[error("malformed {message}: {error}")]
    Malformed {
        /// Spark's name of the message.
        message: &'static str,
        /// What is wrong with it.
        error: WireError,
    },
    /// No byte at all.
    #[error("empty message")]
    Empty,
}

/// The layouts that a message had over time. Only ids 12 to 14 ever changed theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// 3.1: the push family without attempt and merge ids. No working feature ever sent it.
    Spark31,
    /// 3.2 and later, and everything that is not of the push family in any version.
    #[default]
    Spark32,
}

/// What a message type has to offer to be one of [`Message`].
trait Fields: Sized {
    fn read(reader: &mut Reader, layout: Layout) -> Result<Self, WireError>;
    fn write(&self, out: &mut BytesMut, layout: Layout);
}

macro_rules! messages {
    ($($(#[$doc:meta])* $id:literal $name:ident,)*) => {
        /// Every block-transfer message, by Spark's names.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $name($name),)*
        }

        impl Message {
            /// Reads a message in the layout of `layout`'s generation.
            pub fn decode_as(message: Bytes, layout: Layout) -> Result<Self, DecodeError> {
                let mut reader = Reader::new(message);
                let id = reader.i8("type").map_err(|_| DecodeError::Empty)?;
                match id {
                    $($id => $name::read(&mut reader, layout)
                        .map(Self::$name)
                        .map_err(|error| DecodeError::Malformed { message: stringify!($name), error }),)*
                    unknown => Err(DecodeError::UnknownType(unknown)),
                }
            }

            /// Writes the message, type byte first, in the layout of `layout`'s generation.
            #[must_use]
            pub fn encode_as(&self, layout: Layout) -> Bytes {
                let mut out = BytesMut::new();
                match self {
                    $(Self::$name(message) => {
                        out.put_i8($id);
                        message.write(&mut out, layout);
                    })*
                }
                out.freeze()
            }

            /// Spark's name of the message.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)*
                }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })*
    };
}

messages! {
    /// Opens a stream over blocks named by text; the only way before 3.0.
    0 OpenBlocks,
    /// Executor to executor; a shuffle service refuses it.
    1 UploadBlock,
    /// Tells where an executor keeps its files.
    2 RegisterExecutor,
    /// Answers the three messages that open a stream.
    3 StreamHandle,
    /// Mesos drivers of 2.0 to 3.5.
    4 RegisterDriver,
    /// Mesos drivers of 2.0 to 3.5.
    5 ShuffleServiceHeartbeat,
    /// Executor to executor; a shuffle service refuses it.
    6 UploadBlockStream,
    /// Deletes files of an executor, since 3.0.
    7 RemoveBlocks,
    /// Answers `RemoveBlocks`.
    8 BlocksRemoved,
    /// Opens a stream over shuffle blocks named by numbers, since 3.0.
    9 FetchShuffleBlocks,
    /// Asks where executors keep their files, since 3.0.
    10 GetLocalDirsForExecutors,
    /// Answers `GetLocalDirsForExecutors`.
    11 LocalDirsForExecutors,
    /// Announces a pushed block, since 3.1.
    12 PushBlockStream,
    /// Ends the merging of a shuffle, since 3.1.
    13 FinalizeShuffleMerge,
    /// Answers `FinalizeShuffleMerge`.
    14 MergeStatuses,
    /// Opens a stream over chunks of merged blocks, since 3.2.
    15 FetchShuffleBlockChunks,
    /// Asks who damaged a block, since 3.2.
    16 DiagnoseCorruption,
    /// Answers `DiagnoseCorruption`.
    17 CorruptionCause,
    /// Answers a pushed block, since 3.2.
    18 BlockPushReturnCode,
    /// Deletes merged blocks, since 3.4.
    19 RemoveShuffleMerge,
}

impl Message {
    /// Reads a message in today's layout.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use shuffle_protocol::message::{Message, ShuffleServiceHeartbeat};
    ///
    /// let beat = Message::decode(Bytes::from_static(b"\x05\0\0\0\x05app-1")).unwrap();
    /// assert_eq!(beat, ShuffleServiceHeartbeat { app_id: "app-1".into() }.into());
    /// ```
    pub fn decode(message: Bytes) -> Result<Self, DecodeError> {
        Self::decode_as(message, Layout::default())
    }

    /// Writes the message in today's layout.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.encode_as(Layout::default())
    }
}
