//! Which answer belongs to which request (`spec/wire-framing.md` §4). Decides only: no I/O, no clock.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use shuffle_protocol::RequestId;
use shuffle_protocol::frame::{Frame, StreamChunkId};

use crate::error::Misbehaviour;

/// The requests of one connection that were not answered yet. `R` waits for the answer of an RPC,
/// `B` for the bytes of a chunk or stream.
///
/// Call `handle_rpc`, `handle_chunk` or `handle_stream` when a request is about to be sent, in the
/// order in which they are sent; [`Outstanding::handle_frame`] with everything that arrives; and
/// [`Outstanding::handle_body_end`] after the last byte of a body.
#[derive(Debug)]
pub(super) struct Outstanding<R, B> {
    next_id: i64,
    rpcs: HashMap<RequestId, R>,
    chunks: HashMap<StreamChunkId, B>,
    streams: VecDeque<(String, B)>,
    /// Bytes of a body are arriving.
    receiving: bool,
}

/// What to do with a frame that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<R, B> {
    /// An RPC was answered, or refused with a text.
    Rpc(R, Result<Bytes, String>),
    /// This many bytes follow for a chunk or stream.
    Body(B, u64),
    /// There will be no bytes, and why.
    NoBody(B, String),
    /// Nobody waits for it: drop it, and the bytes that follow it if any.
    Unmatched(&'static str),
}

impl<R, B> Outstanding<R, B> {
    /// Request ids count on from `first_id`, a random number, as Spark's are random numbers: a
    /// reader of two connections' recordings can tell them apart.
    pub(super) fn new(first_id: i64) -> Self {
        Self {
            next_id: first_id & i64::MAX,
            rpcs: HashMap::new(),
            chunks: HashMap::new(),
            streams: VecDeque::new(),
            receiving: false,
        }
    }

    /// An RPC goes out under the id returned.
    pub(super) fn handle_rpc(&mut self, waiter: R) -> RequestId {
        loop {
            let id = RequestId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1) & i64::MAX;
            // An id is used again only after 2^63 requests, but then it must not be taken.
            if let Entry::Vacant(free) = self.rpcs.entry(id) {
                free.insert(waiter);
                return id;
            }
        }
    }

    /// A chunk is asked for. A chunk can be fetched only once, so nobody else waits for it.
    pub(super) fn handle_chunk(&mut self, chunk: StreamChunkId, waiter: B) {
        self.chunks.insert(chunk, waiter);
    }

    /// A stream is asked for.
    pub(super) fn handle_stream(&mut self, name: String, waiter: B) {
        self.streams.push_back((name, waiter));
    }

    /// True while an answer, or the rest of one, is owed.
    pub(super) fn any(&self) -> bool {
        self.receiving
            || !self.rpcs.is_empty()
            || !self.chunks.is_empty()
            || !self.streams.is_empty()
    }

    /// Finds whom a frame is for.
    ///
    /// # Errors
    /// The peer may not send this frame; the connection is of no more use.
    pub(super) fn handle_frame(&mut self, frame: Frame) -> Result<Answer<R, B>, Misbehaviour> {
        self.receiving = frame.streamed() > 0;
        let answer = match frame {
            Frame::RpcResponse { id, body } | Frame::MergedBlockMetaSuccess { id, body, .. } => {
                self.rpcs.remove(&id).map(|waiter| Answer::Rpc(waiter, Ok(body)))
            }
            Frame::RpcFailure { id, error } => {
                self.rpcs.remove(&id).map(|waiter| Answer::Rpc(waiter, Err(error)))
            }
            Frame::ChunkFetchSuccess { chunk, length } => {
                self.chunks.remove(&chunk).map(|waiter| Answer::Body(waiter, length))
            }
            Frame::ChunkFetchFailure { chunk, error } => {
                self.chunks.remove(&chunk).map(|waiter| Answer::NoBody(waiter, error))
            }
            Frame::StreamResponse { name, length } => {
                Some(Answer::Body(self.next_stream(name)?, length))
            }
            Frame::StreamFailure { name, error } => {
                Some(Answer::NoBody(self.next_stream(name)?, error))
            }
            Frame::ChunkFetchRequest(_) => return Err(Misbehaviour::Request("ChunkFetchRequest")),
            Frame::RpcRequest { .. } => return Err(Misbehaviour::Request("RpcRequest")),
            Frame::StreamRequest { .. } => return Err(Misbehaviour::Request("StreamRequest")),
            Frame::OneWayMessage { .. } => return Err(Misbehaviour::Request("OneWayMessage")),
            Frame::UploadStream { .. } => return Err(Misbehaviour::Request("UploadStream")),
            Frame::MergedBlockMetaRequest { .. } => {
                return Err(Misbehaviour::Request("MergedBlockMetaRequest"));
            }
        };
        Ok(answer.unwrap_or(Answer::Unmatched("response for a request that is not outstanding")))
    }

    /// The last byte of a body arrived.
    pub(super) fn handle_body_end(&mut self) {
        self.receiving = false;
    }

    /// Streams are matched by order alone. Spark does not compare the names; a service that echoes
    /// another one has lost the order, and the bytes would be taken for another block's.
    fn next_stream(&mut self, got: String) -> Result<B, Misbehaviour> {
        match self.streams.pop_front() {
            Some((expected, waiter)) if expected == got => Ok(waiter),
            other => Err(Misbehaviour::StreamOutOfOrder {
                expected: other.map(|(expected, _)| expected),
                got,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use shuffle_protocol::StreamId;

    use super::*;

    type Waiting = Outstanding<&'static str, &'static str>;

    fn chunk(stream: i64, chunk: i32) -> StreamChunkId {
        StreamChunkId { stream: StreamId(stream), chunk }
    }

    fn response(id: RequestId) -> Frame {
        Frame::RpcResponse { id, body: Bytes::new() }
    }

    #[test]
    fn rpcs_are_matched_by_id_in_any_order() {
        let mut waiting = Waiting::new(7);
        let (a, b) = (waiting.handle_rpc("a"), waiting.handle_rpc("b"));
        assert_eq!((a, b), (RequestId(7), RequestId(8)));
        assert_eq!(waiting.handle_frame(response(b)), Ok(Answer::Rpc("b", Ok(Bytes::new()))));
        let refusal = Frame::RpcFailure { id: a, error: "no".into() };
        assert_eq!(waiting.handle_frame(refusal), Ok(Answer::Rpc("a", Err("no".into()))));
        assert!(!waiting.any());
        assert!(matches!(waiting.handle_frame(response(a)), Ok(Answer::Unmatched(_))));
    }

    #[test]
    fn request_ids_are_never_negative_and_never_taken_twice() {
        let mut waiting = Waiting::new(i64::MAX);
        assert_eq!(waiting.handle_rpc("a"), RequestId(i64::MAX));
        assert_eq!(waiting.handle_rpc("b"), RequestId(0));
        assert!(Waiting::new(-5).handle_rpc("c").0 >= 0);
        waiting.next_id = i64::MAX;
        assert_eq!(waiting.handle_rpc("d"), RequestId(1));
    }

    #[test]
    fn chunks_are_matched_by_stream_and_index() {
        let mut waiting = Waiting::new(0);
        waiting.handle_chunk(chunk(1, 0), "1/0");
        waiting.handle_chunk(chunk(2, 0), "2/0");
        let success = Frame::ChunkFetchSuccess { chunk: chunk(2, 0), length: 3 };
        assert_eq!(waiting.handle_frame(success.clone()), Ok(Answer::Body("2/0", 3)));
        waiting.handle_body_end();
        assert!(matches!(waiting.handle_frame(success), Ok(Answer::Unmatched(_))));
        waiting.handle_body_end();
        let failure = Frame::ChunkFetchFailure { chunk: chunk(1, 0), error: "gone".into() };
        assert_eq!(waiting.handle_frame(failure), Ok(Answer::NoBody("1/0", "gone".into())));
        assert!(!waiting.any());
    }

    #[test]
    fn a_body_on_its_way_is_outstanding_until_its_end() {
        let mut waiting = Waiting::new(0);
        waiting.handle_chunk(chunk(1, 0), "a");
        let success = Frame::ChunkFetchSuccess { chunk: chunk(1, 0), length: 1 };
        waiting.handle_frame(success).unwrap();
        assert!(waiting.any());
        waiting.handle_body_end();
        assert!(!waiting.any());
        waiting.handle_chunk(chunk(1, 1), "empty");
        let empty = Frame::ChunkFetchSuccess { chunk: chunk(1, 1), length: 0 };
        assert_eq!(waiting.handle_frame(empty), Ok(Answer::Body("empty", 0)));
        assert!(!waiting.any(), "an empty body ends with its header");
    }

    #[test]
    fn streams_are_matched_by_order_and_a_wrong_name_is_fatal() {
        let mut waiting = Waiting::new(0);
        waiting.handle_stream("5_0".into(), "a");
        waiting.handle_stream("5_1".into(), "b");
        let response = |name: &str| Frame::StreamResponse { name: name.into(), length: 0 };
        assert_eq!(waiting.handle_frame(response("5_0")), Ok(Answer::Body("a", 0)));
        assert_eq!(
            waiting.handle_frame(response("5_2")),
            Err(Misbehaviour::StreamOutOfOrder { expected: Some("5_1".into()), got: "5_2".into() })
        );
        assert_eq!(
            waiting.handle_frame(response("5_2")),
            Err(Misbehaviour::StreamOutOfOrder { expected: None, got: "5_2".into() })
        );
    }

    #[test]
    fn a_service_sends_no_requests() {
        let mut waiting = Waiting::new(0);
        let request = Frame::RpcRequest { id: RequestId(1), body: Bytes::new() };
        assert_eq!(waiting.handle_frame(request), Err(Misbehaviour::Request("RpcRequest")));
    }
}
