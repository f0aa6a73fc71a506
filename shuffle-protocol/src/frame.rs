//! The transport's frames (`spec/wire-framing.md` §2, §3, §5) and the splitter that finds them.
//!
//! Push bytes in, take [`Event`]s out. A frame whose body can be large (a chunk, a stream, an
//! upload) is announced by its header, and its bytes are handed on as they arrive; they are never
//! collected. Every other frame is small, has a cap, and comes whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::ids::{AppId, ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId};
use crate::wire::{Reader, WireError, WriteWire};

/// The length field and the type byte.
const PREFIX: usize = 9;
/// The length field, which the length itself includes.
const LENGTH_FIELD: i64 = 8;
/// Frames must stay below this, without their length field.
const MAX_FRAME: i64 = i32::MAX as i64;
/// Stream id and chunk index in front of a chunk.
const CHUNK_HEADER: usize = 12;

/// A frame without what travels after it; [`Frame::streamed`] tells how many bytes that are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// 0: asks for one chunk.
    ChunkFetchRequest(StreamChunkId),
    /// 1: a chunk of `length` bytes, which follow as data.
    ChunkFetchSuccess {
        /// The chunk.
        chunk: StreamChunkId,
        /// Its bytes; they are within the frame, so fewer than 2³¹.
        length: u64,
    },
    /// 2: a chunk that cannot be had.
    ChunkFetchFailure {
        /// The chunk.
        chunk: StreamChunkId,
        /// Why, for people.
        error: String,
    },
    /// 3: a request whose payload is a [`Message`](crate::message::Message).
    RpcRequest {
        /// Chosen by the client.
        id: RequestId,
        /// The payload.
        body: Bytes,
    },
    /// 4: the answer.
    RpcResponse {
        /// The request's.
        id: RequestId,
        /// The payload; empty for a bare acknowledgement.
        body: Bytes,
    },
    /// 5: the answer to a request that failed.
    RpcFailure {
        /// The request's.
        id: RequestId,
        /// Why: first line `java.class.Name: message`.
        error: String,
    },
    /// 6: asks for a stream, in practice for one chunk as `<streamId>_<chunkIndex>`.
    StreamRequest {
        /// The stream's name.
        name: String,
    },
    /// 7: a stream of `length` bytes, which follow the frame.
    StreamResponse {
        /// The stream's name.
        name: String,
        /// Its bytes; any number.
        length: u64,
    },
    /// 8: a stream that cannot be had.
    StreamFailure {
        /// The stream's name.
        name: String,
        /// Why, for people.
        error: String,
    },
    /// 9: a message that nobody answers.
    OneWayMessage {
        /// The payload.
        body: Bytes,
    },
    /// 10: an upload of `length` bytes, which follow the frame. Since 2.4.
    UploadStream {
        /// Chosen by the client.
        id: RequestId,
        /// What is uploaded, as a [`Message`](crate::message::Message).
        meta: Bytes,
        /// Its bytes; any number.
        length: u64,
    },
    /// 11: asks for the bitmaps of a merged block. Since 3.2.
    MergedBlockMetaRequest {
        /// Chosen by the client.
        id: RequestId,
        /// The application.
        app_id: AppId,
        /// The shuffle.
        shuffle_id: ShuffleId,
        /// Its generation.
        shuffle_merge_id: ShuffleMergeId,
        /// The partition.
        reduce_id: ReduceId,
    },
    /// 12: the bitmaps of a merged block. Since 3.2.
    MergedBlockMetaSuccess {
        /// The request's.
        id: RequestId,
        /// Chunks in the merged block.
        num_chunks: i32,
        /// One bitmap a chunk, back to back.
        body: Bytes,
    },
}

/// One chunk of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamChunkId {
    /// The stream.
    pub stream: StreamId,
    /// Counts from 0.
    pub chunk: i32,
}

/// What the splitter found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A frame. When it has streamed bytes, they come next, as [`Event::Data`].
    Frame(Frame),
    /// Some of the bytes that the last frame announced; never empty.
    Data {
        /// The bytes.
        bytes: Bytes,
        /// True with the last of them.
        last: bool,
    },
}

/// Bytes that are no frame. The peer's fault; after one of these the connection is of no use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The length is zero or negative.
    #[error("Frame length should be positive: {0}")]
    NotPositive(i64),
    /// The length is 2 GiB or more, which no Spark accepts.
    #[error("Too large frame: {length}{}", foreign.map(Foreign::hint).unwrap_or_default())]
    TooLarge {
        /// As read, without the length field.
        length: i64,
        /// What the first bytes look like when they are not Spark's at all.
        foreign: Option<Foreign>,
    },
    /// The length is over what this side takes in one piece.
    #[error("frame of {length} bytes is over the limit of {limit} bytes")]
    OverLimit {
        /// As read, without the length field.
        length: i64,
        /// The cap.
        limit: usize,
    },
    /// A type byte that no Spark sends.
    #[error("Unknown message type: {0}")]
    UnknownType(i8),
    /// The fields do not fit the frame.
    #[error("malformed frame of type {type_id}: {error}")]
    Malformed {
        /// The type byte.
        type_id: i8,
        /// What is wrong.
        error: WireError,
    },
}

/// Protocols that scanners and misdirected clients speak to Spark's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// A TLS ClientHello.
    Tls,
    /// An HTTP request.
    Http,
}

impl Foreign {
    fn of(start: [u8; 8]) -> Option<Self> {
        // The last one begins HTTP/2 without TLS.
        const METHODS: [&[u8]; 10] = [
            b"GET ",
            b"HEAD ",
            b"POST ",
            b"PUT ",
            b"DELETE ",
            b"CONNECT ",
            b"OPTIONS ",
            b"TRACE ",
            b"PATCH ",
            b"PRI ",
        ];
        if start[0] == 0x16 && start[1] == 0x03 {
            Some(Self::Tls)
        } else if METHODS.iter().any(|method| start.starts_with(method)) {
            Some(Self::Http)
        } else {
            None
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Tls => " (this looks like TLS, which Spark's port does not speak)",
            Self::Http => " (this looks like HTTP; the admin port is another one)",
        }
    }
}

impl Frame {
    /// Bytes that follow as [`Event::Data`].
    #[must_use]
    pub fn streamed(&self) -> u64 {
        match self {
            Self::ChunkFetchSuccess { length, .. }
            | Self::StreamResponse { length, .. }
            | Self::UploadStream { length, .. } => *length,
            _ => 0,
        }
    }

    fn type_id(&self) -> u8 {
        match self {
            Self::ChunkFetchRequest(_) => 0,
            Self::ChunkFetchSuccess { .. } => 1,
            Self::ChunkFetchFailure { .. } => 2,
            Self::RpcRequest { .. } => 3,
            Self::RpcResponse { .. } => 4,
            Self::RpcFailure { .. } => 5,
            Self::StreamRequest { .. } => 6,
            Self::StreamResponse { .. } => 7,
            Self::StreamFailure { .. } => 8,
            Self::OneWayMessage { .. } => 9,
            Self::UploadStream { .. } => 10,
            Self::MergedBlockMetaRequest { .. } => 11,
            Self::MergedBlockMetaSuccess { .. } => 12,
        }
    }

    /// Appends the frame to `out`, without its streamed bytes.
    ///
    /// # Panics
    /// When a chunk or payload makes the frame 2 GiB or larger, see [`Frame::MAX_CHUNK`], or when a
    /// stream is of 2⁶³ bytes or more.
    pub fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_i64(0); // the length, known at the end
        out.put_u8(self.type_id());
        let mut in_frame = 0;
        match self {
            Self::ChunkFetchRequest(chunk) => chunk.encode(out),
            Self::ChunkFetchSuccess { chunk, length } => {
                chunk.encode(out);
                in_frame = *length;
            }
            Self::ChunkFetchFailure { chunk, error } => {
                chunk.encode(out);
                out.put_string(error);
            }
            Self::RpcRequest { id, body } | Self::RpcResponse { id, body } => {
                out.put_i64(id.0);
                out.put_bytes_field(body);
            }
            Self::RpcFailure { id, error } => {
                out.put_i64(id.0);
                out.put_string(error);
            }
            Self::StreamRequest { name } => out.put_string(name),
            Self::StreamResponse { name, length } => {
                out.put_string(name);
                put_byte_count(out, *length);
            }
            Self::StreamFailure { name, error } => {
                out.put_string(name);
                out.put_string(error);
            }
            Self::OneWayMessage { body } => out.put_bytes_field(body),
            Self::UploadStream { id, meta, length } => {
                out.put_i64(id.0);
                out.put_bytes_field(meta);
                put_byte_count(out, *length);
            }
            Self::MergedBlockMetaRequest {
                id,
                app_id,
                shuffle_id,
                shuffle_merge_id,
                reduce_id,
            } => {
                out.put_i64(id.0);
                out.put_string(app_id.as_str());
                out.put_i32(shuffle_id.0);
                out.put_i32(shuffle_merge_id.0);
                out.put_i32(reduce_id.0);
            }
            Self::MergedBlockMetaSuccess { id, num_chunks, body } => {
                out.put_i64(id.0);
                out.put_i32(*num_chunks);
                out.put_slice(body);
            }
        }
        let length = ((out.len() - start) as u64).checked_add(in_frame);
        let length = length.and_then(|length| i64::try_from(length).ok());
        let length = length.filter(|length| length - LENGTH_FIELD < MAX_FRAME);
        let length = length.expect("frames stay below 2 GiB, see Frame::MAX_CHUNK");
        out[start..start + 8].copy_from_slice(&length.to_be_bytes());
    }

    /// The largest chunk that fits a [`Frame::ChunkFetchSuccess`]; larger ones travel by
    /// [`Frame::StreamResponse`] only.
    pub const MAX_CHUNK: u64 = (MAX_FRAME - 1) as u64 - 1 - CHUNK_HEADER as u64;

    /// Reads the header of a frame that came whole; `reader` stands behind the type byte.
    fn decode(type_id: i8, mut reader: Reader) -> Result<Self, WireError> {
        let r = &mut reader;
        Ok(match type_id {
            0 => Self::ChunkFetchRequest(StreamChunkId::decode(r)?),
            2 => Self::ChunkFetchFailure {
                chunk: StreamChunkId::decode(r)?,
                error: r.lossy_string("error")?,
            },
            // Types 3, 4 and 9 carry a body length that Spark's decoder does not look at either:
            // the body is the rest of the frame.
            3 => {
                let id = RequestId(r.i64("requestId")?);
                r.i32("bodyLength")?;
                Self::RpcRequest { id, body: reader.into_rest() }
            }
            4 => {
                let id = RequestId(r.i64("requestId")?);
                r.i32("bodyLength")?;
                Self::RpcResponse { id, body: reader.into_rest() }
            }
            5 => Self::RpcFailure {
                id: RequestId(r.i64("requestId")?),
                error: r.lossy_string("error")?,
            },
            6 => Self::StreamRequest { name: r.string("streamId")? },
            7 => Self::StreamResponse { name: r.string("streamId")?, length: byte_count(r)? },
            8 => {
                Self::StreamFailure { name: r.string("streamId")?, error: r.lossy_string("error")? }
            }
            9 => {
                r.i32("bodyLength")?;
                Self::OneWayMessage { body: reader.into_rest() }
            }
            10 => Self::UploadStream {
                id: RequestId(r.i64("requestId")?),
                meta: r.bytes("meta")?,
                length: byte_count(r)?,
            },
            11 => Self::MergedBlockMetaRequest {
                id: RequestId(r.i64("requestId")?),
                app_id: r.string("appId")?.into(),
                shuffle_id: ShuffleId(r.i32("shuffleId")?),
                shuffle_merge_id: ShuffleMergeId(r.i32("shuffleMergeId")?),
                reduce_id: ReduceId(r.i32("reduceId")?),
            },
            12 => {
                let id = RequestId(r.i64("requestId")?);
                let num_chunks = r.i32("numChunks")?;
                Self::MergedBlockMetaSuccess { id, num_chunks, body: reader.into_rest() }
            }
            other => unreachable!("the splitter let type {other} through"),
        })
    }
}

impl StreamChunkId {
    fn encode(self, out: &mut BytesMut) {
        out.put_i64(self.stream.0);
        out.put_i32(self.chunk);
    }

    fn decode(reader: &mut Reader) -> Result<Self, WireError> {
        Ok(Self { stream: StreamId(reader.i64("streamId")?), chunk: reader.i32("chunkIndex")? })
    }
}

fn put_byte_count(out: &mut BytesMut, length: u64) {
    out.put_i64(i64::try_from(length).expect("files are shorter than 2^63 bytes"));
}

fn byte_count(reader: &mut Reader) -> Result<u64, WireError> {
    let count = reader.i64("byteCount")?;
    u64::try_from(count).map_err(|_| WireError::OutOfRange { what: "byteCount", value: count })
}

/// Finds frames in a stream of bytes, however it is cut.
///
/// Call [`Splitter::next`] with everything received and not yet taken until it gives `None`, then
/// receive more. It keeps nothing itself but where it is.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    /// Streamed bytes still to come before the next frame.
    streaming: u64,
}

impl Splitter {
    /// Refuses frames that have to be taken in one piece and are longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, streaming: 0 }
    }

    /// True between frames, false inside the bytes that a frame announced.
    #[must_use]
    pub fn between_frames(&self) -> bool {
        self.streaming == 0
    }

    /// Takes the next event off the front of `received`.
    pub fn next(&mut self, received: &mut BytesMut) -> Result<Option<Event>, FrameError> {
        if self.streaming > 0 {
            if received.is_empty() {
                return Ok(None);
            }
            let here = usize::try_from(self.streaming).unwrap_or(usize::MAX).min(received.len());
            self.streaming -= here as u64;
            let bytes = received.split_to(here).freeze();
            return Ok(Some(Event::Data { bytes, last: self.streaming == 0 }));
        }
        let Some(frame) = self.next_frame(received)? else { return Ok(None) };
        self.streaming = frame.streamed();
        Ok(Some(Event::Frame(frame)))
    }

    fn next_frame(&self, received: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(&start) = received.first_chunk::<8>() else { return Ok(None) };
        let length = i64::from_be_bytes(start).saturating_sub(LENGTH_FIELD);
        if length <= 0 {
            return Err(FrameError::NotPositive(length));
        }
        if length >= MAX_FRAME {
            return Err(FrameError::TooLarge { length, foreign: Foreign::of(start) });
        }
        let length_in_memory = usize::try_from(length).expect("positive and below 2^31");
        let Some(&type_id) = received.get(8) else { return Ok(None) };
        let type_id = type_id.cast_signed();
        let malformed = |error| FrameError::Malformed { type_id, error };
        match type_id {
            1 => {
                let header = PREFIX + CHUNK_HEADER;
                let frame = PREFIX - 1 + length_in_memory;
                if frame < header {
                    let error = WireError::Truncated {
                        what: "chunk",
                        needed: CHUNK_HEADER as u64,
                        remaining: frame - PREFIX,
                    };
                    return Err(malformed(error));
                }
                if received.len() < header {
                    return Ok(None);
                }
                received.advance(PREFIX);
                let mut reader = Reader::new(received.split_to(CHUNK_HEADER).freeze());
                let chunk = StreamChunkId::decode(&mut reader).map_err(malformed)?;
                Ok(Some(Frame::ChunkFetchSuccess { chunk, length: (frame - header) as u64 }))
            }
            0 | 2..=12 => {
                if length_in_memory > self.limit {
                    return Err(FrameError::OverLimit { length, limit: self.limit });
                }
                if received.len() < PREFIX - 1 + length_in_memory {
                    return Ok(None);
                }
                received.advance(PREFIX);
                let rest = received.split_to(length_in_memory - 1).freeze();
                Frame::decode(type_id, Reader::new(rest)).map(Some).map_err(malformed)
            }
            unknown => Err(FrameError::UnknownType(unknown)),
        }
    }
}
