//! The codec as tokio-util drives it, and what the end of a connection is.

mod common;

use std::io;

use bytes::{BufMut, BytesMut};
use shuffle_protocol::codec::{FrameCodec, ReadError};
use shuffle_protocol::frame::{Event, Frame, FrameError, StreamChunkId};
use shuffle_protocol::{RequestId, StreamId};
use tokio_util::codec::{Decoder, Encoder};

use crate::common::LIMIT;

fn chunk(length: u64) -> Frame {
    Frame::ChunkFetchSuccess { chunk: StreamChunkId { stream: StreamId(1), chunk: 0 }, length }
}

/// What a codec gives for a connection that carries `received` and ends.
fn until_the_end(mut received: BytesMut) -> (Vec<Event>, Option<ReadError>) {
    let mut codec = FrameCodec::new(LIMIT);
    let mut events = Vec::new();
    loop {
        match codec.decode_eof(&mut received) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

#[test]
fn an_end_between_frames_is_no_error() {
    let (events, error) = until_the_end(BytesMut::new());
    assert!(events.is_empty() && error.is_none());

    let answer = Frame::RpcResponse { id: RequestId(1), body: "ok".into() };
    let mut sent = BytesMut::new();
    let mut codec = FrameCodec::new(LIMIT);
    codec.encode(&answer, &mut sent).unwrap();
    codec.encode(&chunk(2), &mut sent).unwrap();
    sent.put_slice(b"ab");
    let (events, error) = until_the_end(sent);
    let data = Event::Data { bytes: "ab".into(), last: true };
    assert_eq!(events, [Event::Frame(answer), Event::Frame(chunk(2)), data]);
    assert!(error.is_none());
}

#[test]
fn an_end_within_a_frame_or_its_bytes_is_an_error() {
    let mut sent = BytesMut::new();
    chunk(3).encode(&mut sent);
    let header = sent.len();
    sent.put_slice(b"ab");
    for end in 1..sent.len() {
        let (events, error) = until_the_end(BytesMut::from(&sent[..end]));
        assert_eq!(events.len(), end.saturating_sub(header - 1).min(2), "{end}");
        let Some(ReadError::Io(error)) = error else { panic!("{end}: {error:?}") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{end}");
    }
}

#[test]
fn what_is_no_frame_is_an_error_before_and_at_the_end() {
    let zero = || BytesMut::zeroed(8);
    let not_positive = |error| matches!(error, ReadError::Frame(FrameError::NotPositive(-8)));
    assert!(not_positive(FrameCodec::new(LIMIT).decode(&mut zero()).unwrap_err()));
    assert!(not_positive(until_the_end(zero()).1.unwrap()));
}
