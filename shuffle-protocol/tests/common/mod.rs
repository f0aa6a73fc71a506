//! What several of the test binaries need.
#![allow(dead_code, reason = "each test binary uses a part")]

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use shuffle_protocol::frame::{Event, Frame, FrameError, Splitter};
use shuffle_protocol::message::Layout;

/// What the tests let the splitter take in one piece.
pub(crate) const LIMIT: usize = 1 << 20;

/// A length as frames carry it.
pub(crate) fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("memory is shorter than 2^63 bytes")
}

/// Counts and lengths that no message of this size can have.
pub(crate) const BAD_COUNTS: [i32; 7] =
    [-1, i32::MIN, i32::MAX, i32::MAX - 8, 1 << 28, 1 << 24, -1 << 16];

/// Bytes from their hexadecimal form.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert_eq!(text.len() % 2, 0, "half a byte in {text}");
    let digits = text.as_bytes().chunks(2);
    let digits = digits.map(|pair| std::str::from_utf8(pair).expect("hex is ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex digits")).collect()
}

/// One entry of the files in `tests/golden`.
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) fields: Value,
    pub(crate) bytes: Bytes,
    pub(crate) versions: Vec<String>,
}

impl Entry {
    /// The layout that the entry is written in, by the versions that write it.
    pub(crate) fn layout(&self) -> Layout {
        let push = matches!(
            self.name.as_str(),
            "PushBlockStream" | "FinalizeShuffleMerge" | "MergeStatuses"
        );
        if push && self.versions == ["3.1.3"] { Layout::Spark31 } else { Layout::Spark32 }
    }
}

/// Everything in `tests/golden`, the messages of the handshakes included.
pub(crate) fn golden() -> Vec<Entry> {
    [include_str!("../golden/by-version.json"), include_str!("../golden/push-3.1.3.json")]
        .into_iter()
        .flat_map(|file| match serde_json::from_str(file) {
            Ok(Value::Array(entries)) => entries,
            other => panic!("golden file: {other:?}"),
        })
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().expect("text").to_owned();
            let versions = entry["versions"].as_array().expect("array").iter();
            Entry {
                kind: text("kind"),
                name: text("name"),
                fields: entry["fields"].clone(),
                bytes: hex(&text("hex")).into(),
                versions: versions.map(|v| v.as_str().expect("text").to_owned()).collect(),
            }
        })
        .collect()
}

/// The block-transfer messages of `golden`.
pub(crate) fn golden_messages() -> Vec<Entry> {
    let mut entries = golden();
    entries.retain(|entry| entry.kind == "blocktransfer");
    entries
}

/// The frames of `golden` as byte streams, bodies included.
pub(crate) fn golden_frames() -> Vec<Entry> {
    let mut entries = golden();
    entries.retain(|entry| entry.kind == "frames" && !is_handshake(&entry.name));
    entries
}

/// The bodies of the two handshakes, which are read before there is a message to read.
pub(crate) const HANDSHAKE: [&str; 4] =
    ["AuthMessage", "ClientChallenge", "SaslMessage", "ServerResponse"];

pub(crate) fn is_handshake(name: &str) -> bool {
    HANDSHAKE.contains(&name)
}

/// What a splitter made of a stream: frames, each with all of its streamed bytes that came.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Split {
    pub(crate) frames: Vec<(Frame, Vec<u8>)>,
    /// Whether the last frame got all of its bytes.
    pub(crate) complete: bool,
    pub(crate) error: Option<FrameError>,
    /// Bytes behind the last whole frame. Nothing once there was an error.
    pub(crate) left: Vec<u8>,
}

/// Splits a stream that arrives in `pieces`.
pub(crate) fn split<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Split {
    let mut splitter = Splitter::new(limit);
    let mut received = BytesMut::new();
    let mut split = Split { complete: true, ..Split::default() };
    for piece in pieces {
        received.extend_from_slice(piece);
        loop {
            match splitter.next(&mut received) {
                Ok(None) => break,
                Ok(Some(Event::Frame(frame))) => {
                    assert!(split.complete, "a frame within the bytes of another");
                    split.complete = frame.streamed() == 0;
                    split.frames.push((frame, Vec::new()));
                }
                Ok(Some(Event::Data { bytes, last })) => {
                    assert!(!split.complete, "bytes that no frame announced");
                    assert!(!bytes.is_empty(), "no bytes");
                    let (frame, data) = split.frames.last_mut().expect("a frame announced them");
                    data.extend_from_slice(&bytes);
                    split.complete = data.len() as u64 == frame.streamed();
                    assert_eq!(last, split.complete);
                }
                Err(error) => {
                    split.error = Some(error);
                    return split;
                }
            }
            assert_eq!(splitter.between_frames(), split.complete);
        }
    }
    split.left = received.to_vec();
    split
}

/// A part of a message, for finding its counts.
#[derive(Clone)]
enum Part {
    Skip(usize),
    Bytes,
    ManyBytes,
    Array(usize),
    ManyArrays(usize),
    Bitmaps,
}

/// Where the counts and lengths of a well-formed message stand, nested ones and those inside bitmaps
/// included; the second number is the least size of what is counted.
pub(crate) fn count_positions(message: &[u8], layout: Layout) -> Vec<(usize, usize)> {
    use Part::{Array, Bitmaps, Bytes, ManyArrays, ManyBytes, Skip};
    let new = layout == Layout::Spark32;
    let parts = match message[0] {
        0 | 7 => vec![Bytes, Bytes, ManyBytes],
        1 => vec![Bytes; 5],
        2 => vec![Bytes, Bytes, ManyBytes, Skip(4), Bytes],
        3 | 8 | 17 => vec![],
        4 | 5 | 19 => vec![Bytes],
        6 => vec![Bytes, Bytes],
        9 => vec![Bytes, Bytes, Skip(4), Array(8), ManyArrays(4)],
        10 => vec![Bytes, ManyBytes],
        11 => vec![ManyBytes, Array(4), ManyBytes],
        12 | 13 => vec![Bytes],
        14 => vec![Skip(if new { 8 } else { 4 }), Bitmaps, Array(4), Array(8)],
        15 => vec![Bytes, Bytes, Skip(8), Array(4), ManyArrays(4)],
        16 => vec![Bytes, Bytes, Skip(4 + 8 + 4 + 8), Bytes],
        18 => vec![Skip(1), Bytes],
        other => panic!("no layout for message {other}"),
    };
    let mut found = Vec::new();
    let mut at = 1;
    let mut count = |at: &mut usize, element: usize| {
        found.push((*at, element));
        let bytes = message[*at..*at + 4].try_into().expect("four bytes");
        *at += 4;
        usize::try_from(i32::from_be_bytes(bytes)).expect("a well-formed message")
    };
    for part in parts {
        match part {
            Skip(bytes) => at += bytes,
            Bytes => at += count(&mut at, 1),
            Array(element) => at += element * count(&mut at, element),
            ManyBytes => {
                for _ in 0..count(&mut at, 4) {
                    at += count(&mut at, 1);
                }
            }
            ManyArrays(element) => {
                for _ in 0..count(&mut at, 4) {
                    at += element * count(&mut at, element);
                }
            }
            Bitmaps => {
                for _ in 0..count(&mut at, 8) {
                    at += bitmap(&message[at..]).1;
                }
            }
        }
    }
    found
}

/// The values of the portable Roaring bitmap that `bytes` begins with, and its length. An independent
/// reading of the format, for bitmaps that are well-formed.
pub(crate) fn bitmap(bytes: &[u8]) -> (Vec<u32>, usize) {
    let u16_at = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let size = |value: u32| usize::try_from(value).expect("32 bits fit");
    let with_runs = u16_at(0) == 12347;
    let containers = size(if with_runs { u16_at(2) + 1 } else { u16_at(4) });
    let flags = if with_runs { containers.div_ceil(8) } else { 0 };
    let descriptions = if with_runs { 4 + flags } else { 8 };
    let offsets = if !with_runs || containers >= 4 { 4 * containers } else { 0 };
    let mut at = descriptions + 4 * containers + offsets;
    let mut values = Vec::new();
    for container in 0..containers {
        let key = u16_at(descriptions + 4 * container) << 16;
        let cardinality = u16_at(descriptions + 4 * container + 2) + 1;
        if with_runs && bytes[4 + container / 8] >> (container % 8) & 1 == 1 {
            let runs = u16_at(at);
            at += 2;
            for _ in 0..runs {
                let (start, more) = (u16_at(at), u16_at(at + 2));
                values.extend((start..=start + more).map(|low| key | low));
                at += 4;
            }
        } else if cardinality > 4096 {
            let bits = &bytes[at..at + 8192];
            values.extend(
                (0..65536)
                    .filter(|&low| bits[size(low / 8)] >> (low % 8) & 1 == 1)
                    .map(|low| key | low),
            );
            at += 8192;
        } else {
            values.extend((0..cardinality).map(|i| key | u16_at(at + 2 * size(i))));
            at += 2 * size(cardinality);
        }
    }
    (values, at)
}
