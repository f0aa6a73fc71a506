//! The fuzz targets as plain functions. They panic on what must not be; the fuzzer finds the bytes.
//!
//! `fuzz_targets/` hands them to libFuzzer, `shuffle-protocol/tests/corpus.rs` runs them over
//! `corpus/` as ordinary tests.

use bytes::{Bytes, BytesMut};
use shuffle_protocol::ReduceId;
use shuffle_protocol::block_id::{BlockId, OpenedBlocks, RemovableName};
use shuffle_protocol::frame::{Event, Frame, FrameError, Splitter};
use shuffle_protocol::index::IndexFile;
use shuffle_protocol::message::{Layout, Message};

/// What the splitter may take in one piece here.
const LIMIT: usize = 1 << 16;

/// A byte stream cut anywhere gives the same frames, and what is read is written and read again.
///
/// The first byte chooses the cuts.
pub(crate) fn frames(data: &[u8]) {
    let Some((&cuts, stream)) = data.split_first() else { return };
    let whole = split([stream]);
    assert_eq!(split(pieces(stream, cuts)), whole);
    for (frame, _) in whole.0 {
        let mut written = BytesMut::new();
        frame.encode(&mut written);
        let read = Splitter::new(LIMIT).next(&mut written);
        assert_eq!(read, Ok(Some(Event::Frame(frame))));
        assert!(written.is_empty());
    }
}

/// A message that is read is written and read again, in no more bytes than it came in.
pub(crate) fn messages(data: &[u8]) {
    for layout in [Layout::Spark31, Layout::Spark32] {
        let message = Bytes::copy_from_slice(data);
        let Ok(message) = Message::decode_as(message, layout) else { continue };
        let written = message.encode_as(layout);
        assert!(written.len() <= data.len());
        assert_eq!(Message::decode_as(written, layout).as_ref(), Ok(&message));
        let _ = format!("{message:?}");
    }
}

/// Ids, one a line: each has one spelling, and no name of a file leads out of its directory.
pub(crate) fn block_ids(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let ids: Vec<&str> = text.split('\n').collect();
    for id in &ids {
        if let Ok(block) = id.parse::<BlockId>() {
            assert_eq!(block.to_string(), *id);
            if let Some(name) = block.file_name() {
                assert!(is_in_directory(&name), "{name:?}");
            }
        }
        if let Ok(name) = id.parse::<RemovableName>() {
            assert!(is_in_directory(&name.to_string()), "{name}");
            assert_eq!(name.to_string(), *id);
        }
    }
    if let Ok(opened) = OpenedBlocks::parse(&ids) {
        assert_eq!(opened.len(), ids.len());
    }
}

/// An index file gives segments that follow each other, or errors.
pub(crate) fn index(data: &[u8]) {
    let Ok(index) = IndexFile::parse(data) else { return };
    assert_eq!(index.partitions(), data.len() / 8 - 1);
    let partitions = i32::try_from(index.partitions()).expect("the fuzzer's files are small");
    let some = partitions.min(64) + 1;
    for start in -1..=some {
        let one = index.segment(ReduceId(start));
        for end in -1..=some {
            let Ok(range) = index.segment_range(ReduceId(start), ReduceId(end)) else { continue };
            assert!(0 <= start && start <= end && end <= partitions);
            assert!(i64::try_from(range.end()).is_ok());
            if let Ok(one) = one.as_ref() {
                assert_eq!(one.offset, range.offset);
            }
        }
    }
    assert!(index.segment(ReduceId(i32::MAX)).is_err());
}

fn is_in_directory(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

/// What a splitter finds: frames with their streamed bytes, the error, and the bytes that remain.
type Found = (Vec<(Frame, Vec<u8>)>, Option<FrameError>, Vec<u8>);

fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Found {
    let mut splitter = Splitter::new(LIMIT);
    let mut received = BytesMut::new();
    let mut frames: Vec<(Frame, Vec<u8>)> = Vec::new();
    for piece in pieces {
        received.extend_from_slice(piece);
        loop {
            match splitter.next(&mut received) {
                Ok(None) => break,
                Ok(Some(Event::Frame(frame))) => frames.push((frame, Vec::new())),
                Ok(Some(Event::Data { bytes, last })) => {
                    assert!(!bytes.is_empty());
                    let (frame, data) = frames.last_mut().expect("bytes follow a frame");
                    data.extend_from_slice(&bytes);
                    assert_eq!(last, data.len() as u64 == frame.streamed());
                }
                Err(error) => return (frames, Some(error), Vec::new()),
            }
        }
    }
    (frames, None, received.to_vec())
}

/// Pieces of 1 to 16 bytes, or of one byte each.
fn pieces(mut stream: &[u8], cuts: u8) -> impl Iterator<Item = &[u8]> {
    let mut state = u32::from(cuts);
    std::iter::from_fn(move || {
        if stream.is_empty() {
            return None;
        }
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = if cuts == 0 { 1 } else { 1 + (state >> 28) as usize };
        let (piece, rest) = stream.split_at(length.min(stream.len()));
        stream = rest;
        Some(piece)
    })
}
