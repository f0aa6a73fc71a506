//! What the splitter refuses, when, and what it says (complaints F11 and C43).

mod common;

use bytes::{BufMut, BytesMut};
use shuffle_protocol::StreamId;
use shuffle_protocol::frame::{Event, Foreign, Frame, FrameError, Splitter, StreamChunkId};

use crate::common::{LIMIT, length, split};

/// A frame's length as the wire has it, itself included, and the type byte.
fn start(length: i64, type_id: i8) -> Vec<u8> {
    let mut start = length.to_be_bytes().to_vec();
    start.put_i8(type_id);
    start
}

/// Feeds `bytes` one at a time and tells with how many of them there is an error, and which.
fn refused(bytes: &[u8], limit: usize) -> (usize, FrameError) {
    let mut splitter = Splitter::new(limit);
    let mut received = BytesMut::new();
    for (at, &byte) in bytes.iter().enumerate() {
        received.put_u8(byte);
        match splitter.next(&mut received) {
            Ok(None) => {}
            Ok(Some(event)) => panic!("{event:?}"),
            Err(error) => {
                // The connection is of no use, but asking again does no harm.
                let _ = splitter.next(&mut received);
                return (at + 1, error);
            }
        }
    }
    panic!("no error in {bytes:?}")
}

#[test]
fn f11_lengths_that_no_frame_has_are_refused_at_once() {
    const GIB_2: i64 = 1 << 31;
    let table = [
        (0, "Frame length should be positive: -8"),
        (7, "Frame length should be positive: -1"),
        (8, "Frame length should be positive: 0"),
        (-1, "Frame length should be positive: -9"),
        (i64::MIN + 8, "Frame length should be positive: -9223372036854775808"),
        // Java's length wraps around here; ours stays what it is.
        (i64::MIN, "Frame length should be positive: -9223372036854775808"),
        (GIB_2 - 1 + 8, "Too large frame: 2147483647"),
        (GIB_2 + 8, "Too large frame: 2147483648"),
        (i64::MAX, "Too large frame: 9223372036854775799"),
    ];
    for (length, says) in table {
        for limit in [0, LIMIT, usize::MAX] {
            let (bytes, error) = refused(&start(length, 3), limit);
            assert_eq!((bytes, &*error.to_string()), (8, says), "length {length}");
        }
    }
}

#[test]
fn a_frame_of_nothing_but_a_type_is_refused_with_the_type() {
    for type_id in 0..=12 {
        let (bytes, error) = refused(&start(9, type_id), LIMIT);
        assert_eq!(bytes, 9, "type {type_id}");
        assert!(
            matches!(error, FrameError::Malformed { type_id: t, .. } if t == type_id),
            "{error:?}"
        );
    }
    let says = |type_id| refused(&start(9, type_id), LIMIT).1.to_string();
    assert_eq!(says(0), "malformed frame of type 0: streamId needs 8 bytes, 0 remain");
    assert_eq!(says(1), "malformed frame of type 1: chunk needs 12 bytes, 0 remain");
    assert_eq!(says(6), "malformed frame of type 6: streamId needs 4 bytes, 0 remain");
    assert_eq!(says(9), "malformed frame of type 9: bodyLength needs 4 bytes, 0 remain");
}

#[test]
fn types_that_nobody_sends_are_refused_with_the_ninth_byte() {
    for (type_id, says) in [
        (13, "Unknown message type: 13"),
        (127, "Unknown message type: 127"),
        (-1, "Unknown message type: -1"),
        (i8::MIN, "Unknown message type: -128"),
    ] {
        for length in [9, 100, length(LIMIT) + 100, i64::from(i32::MAX)] {
            let (bytes, error) = refused(&start(length, type_id), LIMIT);
            assert_eq!((bytes, &*error.to_string()), (9, says));
        }
    }
}

#[test]
fn frames_over_the_limit_are_refused_with_the_ninth_byte() {
    let at_limit = length(LIMIT) + 8;
    for type_id in (0..=12).filter(|&type_id| type_id != 1) {
        let over = start(at_limit + 1, type_id);
        let (bytes, error) = refused(&over, LIMIT);
        assert_eq!(
            (bytes, &*error.to_string()),
            (9, "frame of 1048577 bytes is over the limit of 1048576 bytes")
        );
        let none = split([&start(at_limit, type_id)[..]], LIMIT);
        assert_eq!((none.error, none.left.len()), (None, 9), "at the limit");
    }
}

/// The one frame that is larger than any limit: its bytes are handed on, not collected.
#[test]
fn chunks_have_no_limit_but_that_of_all_frames() {
    let mut largest = start(i64::from(i32::MAX) - 1 + 8, 1);
    largest.extend_from_slice(&[0; 12 + 1]);
    let split = split([&largest[..]], 0);
    let (frame, data) = &split.frames[0];
    assert_eq!(frame.streamed(), Frame::MAX_CHUNK);
    assert_eq!(data.len(), 1);
    assert!(!split.complete);
}

#[test]
fn a_chunk_without_room_for_its_header_is_refused_with_the_ninth_byte() {
    for length in 9..9 + 12 {
        let (bytes, error) = refused(&start(length, 1), LIMIT);
        assert_eq!(bytes, 9);
        assert!(matches!(error, FrameError::Malformed { type_id: 1, .. }), "{error:?}");
    }
}

#[test]
fn streams_of_negative_length_are_refused() {
    let mut response = start(9 + 4 + 1 + 8, 7);
    response.extend_from_slice(b"\0\0\0\x01s");
    response.put_i64(-1);
    let error = refused(&response, LIMIT).1;
    assert_eq!(error.to_string(), "malformed frame of type 7: byteCount cannot be -1");
    let mut upload = start(9 + 8 + 4 + 8, 10);
    upload.put_bytes(0, 8 + 4);
    upload.put_i64(i64::MIN);
    let error = refused(&upload, LIMIT).1;
    assert_eq!(
        error.to_string(),
        "malformed frame of type 10: byteCount cannot be -9223372036854775808"
    );
}

#[test]
fn the_longest_stream_is_announced() {
    let mut response = start(9 + 4 + 1 + 8, 7);
    response.extend_from_slice(b"\0\0\0\x01s");
    response.put_i64(i64::MAX);
    response.put_u8(1);
    let split = split([&response[..]], LIMIT);
    let expected = Frame::StreamResponse { name: "s".into(), length: i64::MAX.unsigned_abs() };
    assert_eq!(split.frames, [(expected, vec![1])]);
    assert!(!split.complete);
}

/// Streamed bytes are handed on as they come, all that are there and none of the next frame.
#[test]
fn streamed_bytes_are_handed_on_as_they_come() {
    let chunk = StreamChunkId { stream: StreamId(1), chunk: 0 };
    let mut received = BytesMut::new();
    Frame::ChunkFetchSuccess { chunk, length: 1000 }.encode(&mut received);
    let mut splitter = Splitter::new(LIMIT);
    assert!(matches!(splitter.next(&mut received), Ok(Some(Event::Frame(_)))));
    for (arrives, handed_on) in [(600, 600), (1, 1), (405, 399)] {
        assert_eq!(splitter.next(&mut received), Ok(None));
        assert!(!splitter.between_frames());
        received.put_bytes(0, arrives);
        let Ok(Some(Event::Data { bytes, last })) = splitter.next(&mut received) else { panic!() };
        assert_eq!((bytes.len(), last), (handed_on, handed_on == 399));
    }
    assert!(splitter.between_frames());
    assert_eq!(received.len(), 6);
}

/// Trailing bytes in a frame without a body belong to the frame and mean nothing.
#[test]
fn what_follows_the_fields_within_a_frame_is_ignored() {
    for entry in common::golden_frames() {
        // A body is the rest of its frame; these have none, or one that follows the frame.
        if !matches!(entry.bytes[8], 0 | 2 | 5 | 6 | 7 | 8 | 10 | 11) {
            continue;
        }
        let frames = split([&entry.bytes[..]], LIMIT).frames;
        let in_frame = entry.bytes.len() - frames[0].1.len();
        let mut longer = entry.bytes[..in_frame].to_vec();
        longer[..8].copy_from_slice(&(length(in_frame) + 3).to_be_bytes());
        longer.extend_from_slice(b"new");
        longer.extend_from_slice(&entry.bytes[in_frame..]);
        let found = split([&longer[..]], LIMIT);
        assert_eq!(found.error, None);
        assert_eq!(found.frames, frames, "{}", entry.name);
    }
}

#[test]
fn c43_other_protocols_are_told_apart_and_named() {
    let hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03";
    let (bytes, error) = refused(hello, LIMIT);
    assert_eq!(bytes, 8);
    assert!(matches!(error, FrameError::TooLarge { foreign: Some(Foreign::Tls), .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "Too large frame: 1586112601866174457 (this looks like TLS, which Spark's port does not speak)"
    );
    let methods =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI"];
    for method in methods {
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (bytes, error) = refused(request.as_bytes(), LIMIT);
        assert_eq!(bytes, 8);
        assert!(
            matches!(error, FrameError::TooLarge { foreign: Some(Foreign::Http), .. }),
            "{method}"
        );
    }
    let (_, error) = refused(b"GET / HTTP/1.1\r\n\r\n", LIMIT);
    assert_eq!(
        error.to_string(),
        "Too large frame: 5135603447292250188 (this looks like HTTP; the admin port is another one)"
    );
}

#[test]
fn c43_bytes_without_sense_are_refused_at_once() {
    for bytes in [
        b"SSH-2.0-OpenSSH_9.6\r\n".as_slice(),
        b"\x80\x2e\x01\x03\x01\0\x15\0\0",
        b"\x03\0\0\x13\x0e\xe0\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\0\0\0",
        b"*1\r\n$4\r\nPING\r\n",
    ] {
        let (taken, error) = refused(bytes, LIMIT);
        assert_eq!(taken, 8, "{bytes:?}");
        assert!(matches!(
            error,
            FrameError::TooLarge { foreign: None, .. } | FrameError::NotPositive(_)
        ));
    }
}

/// Half a frame is no error until the connection ends.
#[test]
fn c43_half_a_frame_is_waited_for() {
    let mut splitter = Splitter::new(LIMIT);
    let mut received = BytesMut::from(&b"\0\0\0\0\0\0\0\x15\0\0\0"[..]);
    assert_eq!(splitter.next(&mut received), Ok(None));
    assert!(splitter.between_frames());
    received.put_bytes(0, 10);
    assert!(matches!(splitter.next(&mut received), Ok(Some(Event::Frame(_)))));
}

/// A chunk that cannot be in a frame is a mistake of ours, not something to write.
#[test]
fn frames_of_2_gib_are_not_written() {
    for length in [Frame::MAX_CHUNK + 1, u64::MAX - 20, u64::MAX] {
        let chunk = StreamChunkId { stream: StreamId(1), chunk: 0 };
        let written = std::panic::catch_unwind(|| {
            Frame::ChunkFetchSuccess { chunk, length }.encode(&mut BytesMut::new());
        });
        assert!(written.is_err(), "{length}");
    }
}
