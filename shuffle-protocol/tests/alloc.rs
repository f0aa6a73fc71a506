//! No input makes a decoder allocate more than a small multiple of what was sent (complaints C50, F9).
#![allow(unsafe_code, reason = "an allocator that counts is one")]

mod common;

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use shuffle_protocol::frame::Splitter;
use shuffle_protocol::message::{Layout, Message};

use crate::common::{BAD_COUNTS, LIMIT, count_positions, golden_frames, golden_messages, length};

/// Bytes for each byte of the input.
const MULTIPLE: usize = 4;
/// Bytes for the message itself and what bookkeeping the buffers need.
const SLACK: usize = 256;

/// Counts what this thread has allocated. Growing counts as a new block beside the old one.
struct Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        let now = NOW.get().saturating_add(block.size());
        NOW.set(now);
        PEAK.set(PEAK.get().max(now));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(block) }
    }

    unsafe fn dealloc(&self, start: *mut u8, block: Block) {
        NOW.set(NOW.get().saturating_sub(block.size()));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(start, block) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most that `work` had allocated at one time, what was there before not counted.
fn peak<T>(work: impl FnOnce() -> T) -> usize {
    NOW.set(0);
    PEAK.set(0);
    let result = work();
    let peak = PEAK.get();
    drop(result);
    peak
}

#[track_caller]
fn check(message: &[u8], layout: Layout) {
    let input = Bytes::copy_from_slice(message);
    let peak = peak(|| Message::decode_as(input, layout));
    let bound = MULTIPLE * message.len() + SLACK;
    assert!(peak <= bound, "{peak} bytes for {} bytes: {:02x?}", message.len(), start(message));
}

/// Splits a stream and drops what comes out. The receive buffer is the caller's and not counted.
#[track_caller]
fn check_stream(stream: &[u8]) {
    let mut received = BytesMut::from(stream);
    let mut splitter = Splitter::new(LIMIT);
    let peak = peak(|| while let Ok(Some(_)) = splitter.next(&mut received) {});
    let bound = MULTIPLE * stream.len() + SLACK;
    assert!(peak <= bound, "{peak} bytes for {} bytes: {:02x?}", stream.len(), start(stream));
}

fn start(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(64)]
}

#[test]
fn the_allocator_counts() {
    assert_eq!(peak(|| vec![0_u8; 1000]), 1000);
    let grown = peak(|| {
        let mut grown = Vec::<u8>::with_capacity(100);
        grown.reserve_exact(300);
        grown
    });
    assert_eq!(grown, 400);
}

#[test]
fn golden_messages_and_frames_cost_little() {
    golden_messages().iter().for_each(|entry| check(&entry.bytes, entry.layout()));
    golden_frames().iter().for_each(|entry| check_stream(&entry.bytes));
}

#[test]
fn c50_bad_counts_cost_nothing() {
    for entry in golden_messages() {
        for (at, _) in count_positions(&entry.bytes, entry.layout()) {
            for count in BAD_COUNTS {
                let mut bytes = entry.bytes.to_vec();
                bytes[at..at + 4].copy_from_slice(&count.to_be_bytes());
                check(&bytes, entry.layout());
            }
        }
    }
}

/// Four bytes anywhere, in both byte orders: the counts within bitmaps, and whatever else.
#[test]
fn c50_bad_counts_anywhere_cost_nothing() {
    let orders = |count: i32| [count.to_be_bytes(), count.to_le_bytes()];
    for entry in golden_messages() {
        for at in 0..entry.bytes.len().saturating_sub(3) {
            for count in BAD_COUNTS.into_iter().flat_map(orders) {
                let mut bytes = entry.bytes.to_vec();
                bytes[at..at + 4].copy_from_slice(&count);
                check(&bytes, Layout::Spark31);
                check(&bytes, Layout::Spark32);
            }
        }
    }
    for entry in golden_frames() {
        for at in 0..entry.bytes.len() - 3 {
            for count in BAD_COUNTS.into_iter().flat_map(orders) {
                let mut bytes = entry.bytes.to_vec();
                bytes[at..at + 4].copy_from_slice(&count);
                check_stream(&bytes);
            }
        }
    }
}

#[test]
fn f9_a_string_of_2_gib_costs_nothing() {
    let says_2_gib = |type_id: u8| {
        let mut message = vec![type_id];
        message.put_i32(i32::MAX);
        message
    };
    for type_id in 0..=19 {
        check(&says_2_gib(type_id), Layout::Spark32);
        let mut long = says_2_gib(type_id);
        long.put_bytes(b'a', 100_000);
        check(&long, Layout::Spark32);
    }
    for type_id in 0..=12 {
        for strings_at in [0_i64, 8, 12] {
            let mut frame = (9 + strings_at + 4).to_be_bytes().to_vec();
            frame.put_u8(type_id);
            frame.put_bytes(0, usize::try_from(strings_at).unwrap());
            frame.put_i32(i32::MAX);
            check_stream(&frame);
        }
    }
}

/// Frames that are announced and do not come.
#[test]
fn frames_that_do_not_come_cost_nothing() {
    for type_id in 0..=12 {
        for length in [9 + 100, length(LIMIT), i64::from(i32::MAX) + 7, i64::MAX, -1] {
            let mut frame = length.to_be_bytes().to_vec();
            frame.put_u8(type_id);
            check_stream(&frame);
            frame.put_bytes(0, 64);
            check_stream(&frame);
        }
    }
}

/// The most that a message of its size can hold of each thing that is unpacked.
#[test]
fn as_many_things_as_fit_cost_no_more_than_the_multiple() {
    const MANY: usize = 100_000;
    let many = |head: &[u8], item: &[u8]| {
        let mut message = head.to_vec();
        message.put_i32(i32::try_from(MANY).unwrap());
        message.extend(item.repeat(MANY));
        message
    };
    let names = [0; 8]; // an application and an executor without a name
    let fetch = |type_id: u8, numbers: usize| {
        let mut head = vec![type_id];
        head.extend_from_slice(&names);
        head.put_bytes(0, numbers);
        head
    };
    let empty_bitmap = b"\x3a\x30\0\0\0\0\0\0";
    let run_bitmap = b"\x3b\x30\0\0\x01\0\0\0\0\0\0";
    let mut table = vec![
        ("empty block ids", many(&fetch(0, 0), &[0; 4])),
        ("short block ids", many(&fetch(7, 0), b"\0\0\0\x01a")),
        ("executors", many(&[10, 0, 0, 0, 0], &[0; 4])),
        ("executors with directories", many(&[11], &[0; 4])),
        ("maps", many(&fetch(9, 4), &[0; 8])),
        ("empty reduce lists", many(&fetch(9, 4 + 4), &[0; 4])),
        ("short reduce lists", many(&fetch(9, 4 + 4), b"\0\0\0\x01\0\0\0\x05")),
        ("chunk lists", many(&fetch(15, 8 + 4), &[0; 4])),
        ("empty bitmaps", many(&[14, 0, 0, 0, 0, 0, 0, 0, 0], empty_bitmap)),
        ("bitmaps with runs", many(&[14, 0, 0, 0, 0, 0, 0, 0, 0], run_bitmap)),
    ];
    let mut lists = fetch(9, 4 + 4);
    lists.put_i32(1);
    table.push(("one long reduce list", many(&lists, &[0; 4])));
    let mut name = vec![5];
    name.put_i32(100_000);
    name.extend([b'a'].repeat(100_000));
    table.push(("a long name", name));
    for (what, message) in table {
        // With and without what comes behind it, so that it is read to its end and accepted.
        for behind in [0, 8, 12] {
            let mut message = message.clone();
            message.put_bytes(0, behind);
            println!("{what}");
            check(&message, Layout::Spark32);
        }
    }
}

/// A byte that is not UTF-8 becomes a character of three.
#[test]
fn errors_that_are_not_text_cost_no_more_than_the_multiple() {
    for (type_id, fields) in [(2, 12), (5, 8), (8, 4)] {
        for length in [1, 3, 100, 100_000] {
            for bad in [b"\xff".as_slice(), b"a\xff", b"\xf0\x9f\x98\x80\xf0\x9f\x98"] {
                let error: Vec<u8> = bad.iter().copied().cycle().take(length).collect();
                let length = i64::try_from(9 + fields + 4 + error.len()).unwrap();
                let mut frame = length.to_be_bytes().to_vec();
                frame.put_u8(type_id);
                frame.put_bytes(0, fields);
                frame.put_i32(i32::try_from(error.len()).unwrap());
                frame.extend(error);
                check_stream(&frame);
            }
        }
    }
}

/// A flood of frames in one buffer: what is done with one is gone before the next.
#[test]
fn a_flood_of_frames_costs_what_one_costs() {
    let stream: Vec<u8> = golden_frames().iter().flat_map(|entry| entry.bytes.to_vec()).collect();
    let flood = stream.repeat(50);
    let mut received = BytesMut::from(&flood[..]);
    let mut splitter = Splitter::new(LIMIT);
    let peak = peak(|| while let Ok(Some(_)) = splitter.next(&mut received) {});
    assert!(received.is_empty());
    assert!(peak <= 2 * SLACK, "{peak}");
}

proptest! {
    #[test]
    fn random_messages_cost_little(type_id in 0..20_u8, bytes in vec(any::<u8>(), 0..2000)) {
        let mut message = vec![type_id];
        message.extend_from_slice(&bytes);
        check(&message, Layout::Spark31);
        check(&message, Layout::Spark32);
    }

    /// Random bytes seldom hold a count that is believed; these do.
    #[test]
    fn messages_of_small_numbers_cost_little(
        type_id in 0..20_u8,
        bytes in vec(prop_oneof![8 => Just(0_u8), 1 => 1..40_u8, 1 => any::<u8>()], 0..2000),
    ) {
        let mut message = vec![type_id];
        message.extend_from_slice(&bytes);
        check(&message, Layout::Spark31);
        check(&message, Layout::Spark32);
    }

    #[test]
    fn random_streams_cost_little(
        length in 0..4000_i64,
        type_id in 0..13_u8,
        bytes in vec(prop_oneof![4 => Just(0_u8), 1 => any::<u8>()], 0..2000),
    ) {
        check_stream(&bytes);
        let mut stream = length.to_be_bytes().to_vec();
        stream.put_u8(type_id);
        stream.extend_from_slice(&bytes);
        check_stream(&stream);
    }
}
