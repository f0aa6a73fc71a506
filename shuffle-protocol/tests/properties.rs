//! What holds for any frame, any message and any bytes.

mod common;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::{
    BlockPushReturnCode, BlocksRemoved, CorruptionCause, DecodeError, DiagnoseCorruption,
    ExecutorShuffleInfo, FetchShuffleBlockChunks, FetchShuffleBlocks, FinalizeShuffleMerge,
    GetLocalDirsForExecutors, Layout, LocalDirsForExecutors, MergeStatuses, Message, OpenBlocks,
    PushBlockStream, RegisterDriver, RegisterExecutor, RemoveBlocks, RemoveShuffleMerge,
    ShuffleServiceHeartbeat, StreamHandle, UploadBlock, UploadBlockStream,
};
use shuffle_protocol::wire::{Bitmap, IntArrays, StringArray};
use shuffle_protocol::{
    AppId, ExecId, MapId, ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId,
};

use crate::common::{
    BAD_COUNTS, LIMIT, Split, bitmap, count_positions, golden_frames, golden_messages, split,
};

const LAYOUTS: [Layout; 2] = [Layout::Spark31, Layout::Spark32];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9_.-]{1,40}", ".{0,12}"]
}

fn texts() -> impl Strategy<Value = StringArray> {
    vec(text(), 0..6).prop_map(|texts| texts.iter().collect())
}

fn blob() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

fn int_arrays() -> impl Strategy<Value = IntArrays> {
    vec(vec(any::<i32>(), 0..5), 0..5).prop_map(|arrays| arrays.iter().collect())
}

fn app() -> impl Strategy<Value = AppId> {
    text().prop_map(AppId::from)
}

fn exec() -> impl Strategy<Value = ExecId> {
    text().prop_map(ExecId::from)
}

prop_compose! {
    fn shuffle()(id: i32) -> ShuffleId { ShuffleId(id) }
}
prop_compose! {
    fn merge()(id: i32) -> ShuffleMergeId { ShuffleMergeId(id) }
}
prop_compose! {
    fn reduce()(id: i32) -> ReduceId { ReduceId(id) }
}
prop_compose! {
    fn request()(id: i64) -> RequestId { RequestId(id) }
}
prop_compose! {
    fn chunk()(stream: i64, chunk: i32) -> StreamChunkId {
        StreamChunkId { stream: StreamId(stream), chunk }
    }
}

/// A container of a bitmap: how many values, and as runs or not.
fn bitmaps() -> impl Strategy<Value = Bitmap> {
    let cardinality = prop_oneof![1..20_usize, 4090..4100_usize, Just(65536_usize)];
    let container = (cardinality, prop::option::of(0..20_usize));
    vec(container, 0..12).prop_map(|containers| {
        let with_runs = containers.iter().any(|(_, runs)| runs.is_some());
        let short = |number: usize| u16::try_from(number).expect("16 bits");
        let count = short(containers.len());
        let mut out = BytesMut::new();
        if with_runs {
            out.put_u16_le(12347);
            out.put_u16_le(count - 1);
            let mut flags = vec![0; containers.len().div_ceil(8)];
            for (i, (_, runs)) in containers.iter().enumerate() {
                flags[i / 8] |= u8::from(runs.is_some()) << (i % 8);
            }
            out.put_slice(&flags);
        } else {
            out.put_u32_le(12346);
            out.put_u32_le(count.into());
        }
        for (key, (cardinality, _)) in (0..count).zip(&containers) {
            out.put_u16_le(key);
            out.put_u16_le(short(cardinality - 1));
        }
        if !with_runs || count >= 4 {
            out.put_bytes(0, 4 * containers.len());
        }
        for (cardinality, runs) in containers {
            match runs {
                Some(runs) => {
                    out.put_u16_le(short(runs));
                    out.put_bytes(0, 4 * runs);
                }
                None if cardinality > 4096 => out.put_bytes(0, 8192),
                None => out.put_bytes(0, 2 * cardinality),
            }
        }
        let made = out.freeze();
        assert_eq!(bitmap(&made).1, made.len());
        Bitmap::try_from(made).expect("a bitmap")
    })
}

/// Any message of today's layout.
fn messages() -> impl Strategy<Value = Message> {
    let fetch = prop_oneof![
        (app(), exec(), texts()).prop_map(|(app_id, exec_id, block_ids)| {
            OpenBlocks { app_id, exec_id, block_ids }.into()
        }),
        (any::<i64>(), any::<i32>()).prop_map(|(id, num_chunks)| {
            StreamHandle { stream_id: StreamId(id), num_chunks }.into()
        }),
        (app(), exec(), shuffle(), vec(any::<i64>(), 0..6), int_arrays(), any::<bool>()).prop_map(
            |(app_id, exec_id, shuffle_id, map_ids, reduce_ids, batch_fetch)| {
                FetchShuffleBlocks { app_id, exec_id, shuffle_id, map_ids, reduce_ids, batch_fetch }
                    .into()
            }
        ),
        (app(), exec(), shuffle(), merge(), vec(any::<i32>(), 0..6), int_arrays()).prop_map(
            |(app_id, exec_id, shuffle_id, shuffle_merge_id, reduce_ids, chunk_ids)| {
                FetchShuffleBlockChunks {
                    app_id,
                    exec_id,
                    shuffle_id,
                    shuffle_merge_id,
                    reduce_ids,
                    chunk_ids,
                }
                .into()
            }
        ),
    ];
    let life = prop_oneof![
        (app(), exec(), texts(), any::<i32>(), text()).prop_map(
            |(app_id, exec_id, local_dirs, sub_dirs_per_local_dir, shuffle_manager)| {
                let info =
                    ExecutorShuffleInfo { local_dirs, sub_dirs_per_local_dir, shuffle_manager };
                RegisterExecutor { app_id, exec_id, info }.into()
            }
        ),
        (app(), any::<i64>()).prop_map(|(app_id, heartbeat_timeout_ms)| {
            RegisterDriver { app_id, heartbeat_timeout_ms }.into()
        }),
        app().prop_map(|app_id| ShuffleServiceHeartbeat { app_id }.into()),
        (app(), texts()).prop_map(|(app_id, exec_ids)| GetLocalDirsForExecutors {
            app_id,
            exec_ids
        }
        .into()),
        vec((text(), vec(text(), 0..4)), 0..4)
            .prop_map(|execs| execs.into_iter().collect::<LocalDirsForExecutors>().into()),
    ];
    let blocks = prop_oneof![
        (app(), exec(), text(), blob(), blob()).prop_map(
            |(app_id, exec_id, block_id, metadata, data)| {
                UploadBlock { app_id, exec_id, block_id, metadata, data }.into()
            }
        ),
        (text(), blob())
            .prop_map(|(block_id, metadata)| UploadBlockStream { block_id, metadata }.into()),
        (app(), exec(), texts()).prop_map(|(app_id, exec_id, block_ids)| {
            RemoveBlocks { app_id, exec_id, block_ids }.into()
        }),
        any::<i32>().prop_map(|num_removed_blocks| BlocksRemoved { num_removed_blocks }.into()),
        (app(), exec(), shuffle(), any::<i64>(), reduce(), any::<i64>(), text()).prop_map(
            |(app_id, exec_id, shuffle_id, map_id, reduce_id, checksum, algorithm)| {
                let map_id = MapId(map_id);
                DiagnoseCorruption {
                    app_id,
                    exec_id,
                    shuffle_id,
                    map_id,
                    reduce_id,
                    checksum,
                    algorithm,
                }
                .into()
            }
        ),
        (0..5_u8).prop_filter_map("a code", CorruptionCause::from_code).prop_map(Message::from),
    ];
    let push = prop_oneof![
        (app(), any::<i32>(), shuffle(), merge(), any::<i32>(), reduce(), any::<i32>()).prop_map(
            |(
                app_id,
                app_attempt_id,
                shuffle_id,
                shuffle_merge_id,
                map_index,
                reduce_id,
                index,
            )| {
                PushBlockStream {
                    app_id,
                    app_attempt_id,
                    shuffle_id,
                    shuffle_merge_id,
                    map_index,
                    reduce_id,
                    index,
                }
                .into()
            }
        ),
        (app(), any::<i32>(), shuffle(), merge()).prop_map(
            |(app_id, app_attempt_id, shuffle_id, shuffle_merge_id)| {
                FinalizeShuffleMerge { app_id, app_attempt_id, shuffle_id, shuffle_merge_id }.into()
            }
        ),
        (
            shuffle(),
            merge(),
            vec(bitmaps(), 0..4),
            vec(any::<i32>(), 0..4),
            vec(any::<i64>(), 0..4)
        )
            .prop_map(|(shuffle_id, shuffle_merge_id, bitmaps, reduce_ids, sizes)| {
                MergeStatuses { shuffle_id, shuffle_merge_id, bitmaps, reduce_ids, sizes }.into()
            }),
        (any::<i8>(), text()).prop_map(|(return_code, failure_block_id)| {
            BlockPushReturnCode { return_code, failure_block_id }.into()
        }),
        (app(), any::<i32>(), shuffle(), merge()).prop_map(
            |(app_id, app_attempt_id, shuffle_id, shuffle_merge_id)| {
                RemoveShuffleMerge { app_id, app_attempt_id, shuffle_id, shuffle_merge_id }.into()
            }
        ),
    ];
    prop_oneof![4 => fetch, 5 => life, 6 => blocks, 5 => push]
}

/// Any frame; those with streamed bytes announce fewer than a hundred.
fn frames() -> impl Strategy<Value = Frame> {
    let length = 0..100_u64;
    prop_oneof![
        chunk().prop_map(Frame::ChunkFetchRequest),
        (chunk(), length.clone())
            .prop_map(|(chunk, length)| Frame::ChunkFetchSuccess { chunk, length }),
        (chunk(), text()).prop_map(|(chunk, error)| Frame::ChunkFetchFailure { chunk, error }),
        (request(), blob()).prop_map(|(id, body)| Frame::RpcRequest { id, body }),
        (request(), blob()).prop_map(|(id, body)| Frame::RpcResponse { id, body }),
        (request(), text()).prop_map(|(id, error)| Frame::RpcFailure { id, error }),
        text().prop_map(|name| Frame::StreamRequest { name }),
        (text(), length.clone()).prop_map(|(name, length)| Frame::StreamResponse { name, length }),
        (text(), text()).prop_map(|(name, error)| Frame::StreamFailure { name, error }),
        blob().prop_map(|body| Frame::OneWayMessage { body }),
        (request(), blob(), length).prop_map(|(id, meta, length)| Frame::UploadStream {
            id,
            meta,
            length
        }),
        (request(), app(), shuffle(), merge(), reduce()).prop_map(
            |(id, app_id, shuffle_id, shuffle_merge_id, reduce_id)| {
                Frame::MergedBlockMetaRequest {
                    id,
                    app_id,
                    shuffle_id,
                    shuffle_merge_id,
                    reduce_id,
                }
            }
        ),
        (request(), any::<i32>(), blob()).prop_map(|(id, num_chunks, body)| {
            Frame::MergedBlockMetaSuccess { id, num_chunks, body }
        }),
    ]
}

/// Frames as they travel, and what a splitter has to make of them.
fn conversation() -> impl Strategy<Value = (Vec<u8>, Split)> {
    vec(frames(), 0..8).prop_map(|frames| {
        let mut stream = BytesMut::new();
        let mut split = Split { complete: true, ..Split::default() };
        for (i, frame) in (0..).zip(frames) {
            frame.encode(&mut stream);
            let data: Vec<u8> = (0..=u8::MAX)
                .cycle()
                .zip(0..frame.streamed())
                .map(|(byte, _)| byte.wrapping_add(i))
                .collect();
            stream.extend_from_slice(&data);
            split.frames.push((frame, data));
        }
        (stream.to_vec(), split)
    })
}

/// `bytes` in pieces, some of them empty.
fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let mut start = 0;
    cuts.into_iter().map(|cut| &bytes[std::mem::replace(&mut start, cut)..cut]).collect()
}

/// Ways to damage bytes.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Put(Index, i32),
    PutLong(Index, i64),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let at = any::<Index>;
    let number = prop_oneof![prop::sample::select(&BAD_COUNTS[..]), any::<i32>(), -3..40_i32];
    let long = prop_oneof![number.clone().prop_map(i64::from), any::<i64>()];
    let one = prop_oneof![
        (at(), 1..=255_u8).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        at().prop_map(Damage::Cut),
        (at(), number).prop_map(|(at, number)| Damage::Put(at, number)),
        (at(), long).prop_map(|(at, number)| Damage::PutLong(at, number)),
        (at(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (at(), 1..9_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
    ];
    vec(one, 1..4)
}

fn damaged(bytes: &[u8], damage: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for one in damage {
        let index = |at: &Index| at.index(bytes.len() + 1);
        match one {
            Damage::Flip(at, bits) => {
                let at = index(at);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
            }
            Damage::Cut(at) => bytes.truncate(index(at)),
            Damage::Put(at, number) => {
                let at = index(at);
                bytes.iter_mut().skip(at).zip(number.to_be_bytes()).for_each(|(b, new)| *b = new);
            }
            Damage::PutLong(at, number) => {
                let at = index(at);
                bytes.iter_mut().skip(at).zip(number.to_be_bytes()).for_each(|(b, new)| *b = new);
            }
            Damage::Insert(at, new) => {
                let at = index(at);
                bytes.splice(at..at, new.iter().copied());
            }
            Damage::Remove(at, count) => {
                let at = index(at);
                let end = bytes.len().min(at + count);
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// Decodes and, if that goes well, looks at everything; what is read is written and read again.
fn use_up(bytes: &Bytes) {
    for layout in LAYOUTS {
        let Ok(message) = Message::decode_as(bytes.clone(), layout) else { continue };
        let written = message.encode_as(layout);
        assert!(written.len() <= bytes.len());
        assert_eq!(Message::decode_as(written, layout).as_ref(), Ok(&message));
        assert!(!format!("{message:?}").is_empty());
        match message {
            Message::OpenBlocks(open) => {
                assert_eq!(open.block_ids.iter().count(), open.block_ids.len());
            }
            Message::RegisterExecutor(register) => {
                let dirs = register.info.local_dirs;
                assert_eq!(dirs.iter().count(), dirs.len());
            }
            Message::FetchShuffleBlocks(fetch) => {
                let arrays = fetch.reduce_ids;
                assert_eq!(arrays.iter().count(), arrays.len());
                assert_eq!(arrays.iter().flatten().count(), arrays.values().len());
            }
            Message::LocalDirsForExecutors(dirs) => {
                dirs.iter().for_each(|(_, dirs)| drop(dirs));
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn messages_survive_the_wire(message in messages(), trailing in blob()) {
        let bytes = message.encode();
        prop_assert_eq!(&Message::decode(bytes.clone()).unwrap(), &message);
        let mut longer = bytes.to_vec();
        longer.extend_from_slice(&trailing);
        prop_assert_eq!(Message::decode(longer.into()).unwrap(), message);
    }

    #[test]
    fn a_message_without_its_end_is_malformed(message in messages(), cut in any::<Index>()) {
        let bytes = message.encode();
        let error = Message::decode(bytes.slice(..cut.index(bytes.len()))).unwrap_err();
        match error {
            DecodeError::Empty => prop_assert_eq!(cut.index(bytes.len()), 0),
            DecodeError::Malformed { message: name, .. } => prop_assert_eq!(name, message.name()),
            DecodeError::UnknownType(_) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn what_3_1_left_out_is_all_that_its_layout_loses(message in messages()) {
        let bytes = message.encode_as(Layout::Spark31);
        let read = Message::decode_as(bytes.clone(), Layout::Spark31).unwrap();
        prop_assert_eq!(read.encode_as(Layout::Spark31), bytes);
        let expected = match message {
            Message::PushBlockStream(m) => PushBlockStream {
                app_attempt_id: -1,
                shuffle_merge_id: ShuffleMergeId(0),
                ..m
            }.into(),
            Message::FinalizeShuffleMerge(m) => FinalizeShuffleMerge {
                app_attempt_id: -1,
                shuffle_merge_id: ShuffleMergeId(0),
                ..m
            }.into(),
            Message::MergeStatuses(m) => {
                MergeStatuses { shuffle_merge_id: ShuffleMergeId(0), ..m }.into()
            }
            other => other,
        };
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn frames_survive_any_cuts(
        (stream, expected) in conversation(),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        prop_assert_eq!(split(pieces(&stream, &cuts), LIMIT), expected);
    }

    #[test]
    fn frames_survive_byte_by_byte((stream, expected) in conversation()) {
        prop_assert_eq!(split(stream.chunks(1), LIMIT), expected);
    }

    /// The end of the stream may be anywhere: what came before it is the same.
    #[test]
    fn an_end_costs_no_frame_before_it((stream, expected) in conversation(), cut in any::<Index>()) {
        let found = split([&stream[..cut.index(stream.len() + 1)]], LIMIT);
        prop_assert_eq!(found.error, None);
        prop_assert!(found.frames.len() <= expected.frames.len());
        for ((frame, data), (expected, whole)) in found.frames.iter().zip(&expected.frames) {
            prop_assert_eq!(frame, expected);
            prop_assert!(whole.starts_with(data));
        }
    }

    #[test]
    fn damaged_streams_give_the_same_however_they_are_cut(
        (stream, _) in conversation(),
        damage in damage(),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let stream = damaged(&stream, &damage);
        let whole = split([&stream[..]], LIMIT);
        prop_assert_eq!(&split(pieces(&stream, &cuts), LIMIT), &whole);
        prop_assert_eq!(split(stream.chunks(1), LIMIT), whole);
    }

    #[test]
    fn random_streams_give_the_same_however_they_are_cut(
        length in prop::option::of(9..80_i64),
        type_id in -1..14_i8,
        mut stream in vec(any::<u8>(), 0..200),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        if let Some(length) = length {
            let mut start = length.to_be_bytes().to_vec();
            start.put_i8(type_id);
            stream.splice(0..0, start);
        }
        let whole = split([&stream[..]], LIMIT);
        prop_assert_eq!(split(pieces(&stream, &cuts), LIMIT), whole);
    }

    #[test]
    fn random_bytes_do_no_harm(type_id in -1..21_i8, bytes in vec(any::<u8>(), 0..300)) {
        use_up(&Bytes::from(bytes.clone()));
        let mut message = vec![];
        message.put_i8(type_id);
        message.extend_from_slice(&bytes);
        use_up(&Bytes::from(message));
    }

    #[test]
    fn damaged_messages_do_no_harm(message in messages(), damage in damage()) {
        for layout in LAYOUTS {
            use_up(&Bytes::from(damaged(&message.encode_as(layout), &damage)));
        }
    }

    #[test]
    fn bitmaps_end_where_they_end(made in bitmaps(), trailing in blob(), damage in damage()) {
        let mut bytes = made.as_bytes().to_vec();
        bytes.extend_from_slice(&trailing);
        prop_assert_eq!(Bitmap::try_from(Bytes::from(bytes.clone())).unwrap(), made);
        let bytes = damaged(&bytes, &damage);
        if let Ok(found) = Bitmap::try_from(Bytes::from(bytes.clone())) {
            prop_assert!(bytes.starts_with(found.as_bytes()));
        }
    }
}

/// No length or count of any message can be more than the bytes behind it (complaints C50, F9).
#[test]
fn c50_every_count_is_held_against_what_remains() {
    let mut tried = 0;
    for entry in golden_messages() {
        for (at, element) in count_positions(&entry.bytes, entry.layout()) {
            let behind = (entry.bytes.len() - at - 4) / element;
            let one_too_many = i32::try_from(behind + 1).unwrap();
            for count in BAD_COUNTS.into_iter().chain([one_too_many]) {
                let mut bytes = entry.bytes.to_vec();
                bytes[at..at + 4].copy_from_slice(&count.to_be_bytes());
                let error = Message::decode_as(bytes.into(), entry.layout()).unwrap_err();
                let DecodeError::Malformed { message, error } = error else { panic!("{error}") };
                assert_eq!(message, entry.name);
                let says = error.to_string();
                let expected = if count < 0 {
                    format!("has the negative length {count}")
                } else {
                    let behind = entry.bytes.len() - at - 4;
                    let needed = usize::try_from(count).unwrap() * element;
                    format!("needs {needed} bytes, {behind} remain")
                };
                assert!(says.ends_with(&expected), "{message} at {at}: {says}, not {expected}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

/// Any four bytes of any message and any frame replaced by any bad count, in both byte orders.
#[test]
fn c50_bad_counts_anywhere_do_no_harm() {
    let orders = |count: i32| [count.to_be_bytes(), count.to_le_bytes()];
    for entry in golden_messages() {
        for at in 0..entry.bytes.len().saturating_sub(3) {
            for count in BAD_COUNTS.into_iter().flat_map(orders) {
                let mut bytes = entry.bytes.to_vec();
                bytes[at..at + 4].copy_from_slice(&count);
                use_up(&Bytes::from(bytes));
            }
        }
    }
    for entry in golden_frames() {
        for at in 0..entry.bytes.len() - 3 {
            for count in BAD_COUNTS.into_iter().flat_map(orders) {
                let mut bytes = entry.bytes.to_vec();
                bytes[at..at + 4].copy_from_slice(&count);
                let whole = split([&bytes[..]], LIMIT);
                assert_eq!(split(bytes.chunks(1), LIMIT), whole);
            }
        }
    }
}
