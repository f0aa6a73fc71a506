//! Opening streams and taking their chunks.

use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::FetchShuffleBlocks;
use shuffle_protocol::{ShuffleId, StreamId};

use crate::case::Reference::{Mesos, Standalone};
use crate::case::{Case, EXEC, case, rpc_frame};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = open_blocks();
    cases.extend(fetch_shuffle_blocks());
    cases.extend(chunks());
    cases.extend(streams());
    cases
}

fn open_blocks() -> Vec<Case> {
    let mut cases = vec![
        case("open_shuffle")
            .open(&["shuffle_0_0_0", "shuffle_0_1_3", "shuffle_0_0_2"])
            .chunks(0..3),
        case("open_twice_the_same").open(&["shuffle_0_0_0", "shuffle_0_0_0"]).chunks(0..2),
        case("open_empty_partition").open(&["shuffle_0_0_1"]).chunks(0..1),
        case("open_rdd").open(&["rdd_1_0", "rdd_1_2"]).chunks(0..2),
        // Complaint C41: an empty file is a block, none is a failure.
        case("open_rdd_empty").open(&["rdd_1_1"]).chunks(0..1),
        case("open_rdd_missing").open(&["rdd_1_0", "rdd_1_9", "rdd_1_2"]).chunks(0..3),
        case("open_rdd_missing_as_stream").open(&["rdd_1_9"]).stream("{0}_0"),
        case("open_chunks_of_merged").open(&["shuffleChunk_0_0_0_0"]).chunks(0..1),
        case("open_two_chunks_of_merged")
            .open(&["shuffleChunk_0_0_0_0", "shuffleChunk_0_0_0_1"])
            .chunks(0..2),
        // Complaint F10.
        case("open_nothing").open(&[]),
        // Complaint C20: the stream opens, its chunk fails.
        case("open_of_nobody").open_of("nobody", &["shuffle_0_0_0"]).chunks(0..1),
        case("open_rdd_of_nobody").open_of("nobody", &["rdd_1_0"]).chunks(0..1),
        case("open_of_nobody_as_stream").open_of("nobody", &["shuffle_0_0_0"]).stream("{0}_0"),
        case("open_of_unregistered").unregistered().open(&["shuffle_0_0_0"]).chunks(0..1),
        case("open_map_missing").open(&["shuffle_0_7_0"]).chunks(0..1),
        case("open_reduce_beyond").open(&["shuffle_0_0_4"]).chunks(0..1),
        case("open_reduce_far_beyond").open(&["shuffle_0_0_2147483647"]).chunks(0..1),
        case("open_bad_among_good")
            .open(&["shuffle_0_0_0", "shuffle_0_7_0", "shuffle_0_1_0"])
            .chunks(0..3),
        case("open_mixed_shuffle_rdd").open(&["shuffle_0_0_0", "rdd_1_0"]),
        case("open_mixed_rdd_shuffle").open(&["rdd_1_0", "shuffle_0_0_0"]),
        case("open_mixed_shuffle_chunk").open(&["shuffle_0_0_0", "shuffleChunk_0_0_0_0"]),
        case("open_mixed_chunk_shuffle").open(&["shuffleChunk_0_0_0_0", "shuffle_0_0_0"]),
        case("open_mixed_shuffles").open(&["shuffle_0_0_0", "shuffle_1_0_0"]),
        case("open_mixed_merges").open(&["shuffleChunk_0_0_0_0", "shuffleChunk_0_1_0_0"]),
        case("open_mixed_rdds").open(&["rdd_1_0", "rdd_2_0"]).chunks(0..2),
        case("open_batch_behind").open(&["shuffle_0_0_0", "shuffle_0_0_0_2"]),
        case("open_bad_behind").open(&["shuffle_0_0_0", "shuffle_0_x_0"]),
        case("open_empty_behind").open(&["shuffle_0_0_0", ""]),
        case("open_rdd_bad_behind").open(&["rdd_1_0", "rdd_1_x"]),
        case("open_rdd_long_behind").open(&["rdd_1_0", "rdd_1_0_0"]),
    ];
    for (name, id) in [
        ("batch", "shuffle_0_0_0_2"),
        ("data_file", "shuffle_0_0_0.data"),
        ("index_file", "shuffle_0_0_0.index"),
        ("too_short", "shuffle_0_0"),
        ("too_long", "shuffle_0_0_0_0_0"),
        ("empty", ""),
        ("underscores", "____"),
        ("unknown", "bogus_1"),
        ("broadcast", "broadcast_0"),
        ("broadcast_piece", "broadcast_0_piece0"),
        ("temp_local", "temp_local_0a1b"),
        ("upper_case", "SHUFFLE_0_0_0"),
        ("spaces", "shuffle_0_ 0_0"),
        ("underscore_at_the_end", "shuffle_0_0_0_"),
        ("underscores_at_the_end", "shuffle_0_0_0__"),
        ("underscore_in_the_middle", "shuffle_0__0"),
        ("plus", "shuffle_0_+5_0"),
        ("minus", "shuffle_0_-5_0"),
        ("leading_zero", "shuffle_0_05_0"),
        ("plus_shuffle", "shuffle_+0_0_0"),
        ("plus_reduce", "shuffle_0_0_+0"),
        ("minus_reduce", "shuffle_0_0_-1"),
        ("minus_shuffle", "shuffle_-1_0_0"),
        ("minus_zero", "shuffle_-0_0_0"),
        ("hexadecimal", "shuffle_0_0x1_0"),
        ("letters", "shuffle_a_b_c"),
        ("arabic_digits", "shuffle_0_٥_0"),
        ("fraction", "shuffle_0_0.5_0"),
        ("shuffle_over_i32", "shuffle_2147483648_0_0"),
        ("reduce_over_i32", "shuffle_0_0_2147483648"),
        ("map_over_i32", "shuffle_0_3000000000_0"),
        ("map_max_i32", "shuffle_0_2147483647_0"),
        ("map_max_i64", "shuffle_0_9223372036854775807_0"),
        ("map_over_i64", "shuffle_0_9223372036854775808_0"),
        ("rdd_over_i32", "rdd_2147483648_0"),
        ("rdd_plus", "rdd_1_+0"),
        ("rdd_minus", "rdd_-1_0"),
        ("rdd_leading_zero", "rdd_01_0"),
        ("rdd_long", "rdd_1_0_0"),
        ("rdd_short", "rdd_1"),
        ("rdd_traversal", "rdd_1_../../../../../etc/passwd"),
        ("traversal", "shuffle_0_../../../../etc/passwd_0"),
        ("nul", "shuffle_0_0\0_0"),
        ("merged", "shuffleMerged_0_0_0"),
        ("merged_with_application", "shuffleMerged_app_0_0_0"),
        ("push", "shufflePush_0_0_0_0"),
        ("chunk_short", "shuffleChunk_0_0_0"),
        ("chunk_letters", "shuffleChunk_0_0_0_x"),
        ("chunk_minus", "shuffleChunk_0_0_0_-1"),
        ("very_long", &"shuffle_0_0_".repeat(10_000)),
    ] {
        cases.push(case(format!("open_id_{name}")).open(&[id]).chunks(0..1));
    }
    cases
}

fn fetch_shuffle_blocks() -> Vec<Case> {
    vec![
        case("fetch").fetch(&[0], &[&[0, 2, 3]], false).chunks(0..3),
        case("fetch_maps").fetch(&[1, 0], &[&[3, 0], &[1]], false).chunks(0..3),
        case("fetch_map_over_i32").fetch(&[3_000_000_000], &[&[1, 0]], false).chunks(0..2),
        case("fetch_empty_partition").fetch(&[0], &[&[1]], false).chunks(0..1),
        case("fetch_same_map_twice").fetch(&[0, 0], &[&[0], &[0]], false).chunks(0..2),
        case("fetch_same_reduce_twice").fetch(&[0], &[&[2, 2]], false).chunks(0..2),
        case("fetch_batch").fetch(&[0, 1], &[&[0, 4], &[1, 3]], true).chunks(0..2),
        case("fetch_batch_one").fetch(&[1], &[&[2, 3]], true).chunks(0..1),
        case("fetch_batch_all_empty").fetch(&[0], &[&[1, 2]], true).chunks(0..1),
        case("fetch_batch_of_none").fetch(&[1], &[&[2, 2]], true).chunks(0..1),
        case("fetch_batch_reversed").fetch(&[1], &[&[3, 1]], true).chunks(0..1),
        case("fetch_batch_negative").fetch(&[1], &[&[-1, 1]], true).chunks(0..1),
        case("fetch_batch_beyond").fetch(&[1], &[&[2, 9]], true).chunks(0..1),
        case("fetch_batch_all_beyond").fetch(&[1], &[&[8, 9]], true).chunks(0..1),
        case("fetch_batch_at_the_end").fetch(&[1], &[&[4, 4]], true).chunks(0..1),
        case("fetch_batch_of_three_numbers").fetch(&[1], &[&[0, 1, 2]], true).chunks(0..1),
        case("fetch_batch_of_one_number").fetch(&[1], &[&[0]], true).chunks(0..1),
        case("fetch_batch_of_no_number").fetch(&[1], &[&[]], true).chunks(0..1),
        case("fetch_reduce_beyond").fetch(&[0], &[&[4]], false).chunks(0..1),
        case("fetch_reduce_negative").fetch(&[0], &[&[-1]], false).chunks(0..1),
        case("fetch_reduce_max").fetch(&[0], &[&[i32::MAX]], false).chunks(0..1),
        case("fetch_map_missing").fetch(&[7], &[&[0]], false).chunks(0..1),
        case("fetch_map_negative").fetch(&[-1], &[&[0]], false).chunks(0..1),
        case("fetch_shuffle_missing").fetch_shuffle(9).chunks(0..1),
        case("fetch_shuffle_negative").fetch_shuffle(-1).chunks(0..1),
        case("fetch_no_maps").fetch(&[], &[], false).chunks(0..1),
        case("fetch_no_maps_batch").fetch(&[], &[], true).chunks(0..1),
        case("fetch_maps_without_reduces").fetch(&[0, 1], &[], false).chunks(0..1),
        case("fetch_reduces_without_maps").fetch(&[], &[&[0]], false).chunks(0..1),
        case("fetch_more_maps").fetch(&[0, 1], &[&[0]], false).chunks(0..2),
        case("fetch_more_reduces").fetch(&[0], &[&[0], &[1]], false).chunks(0..2),
        case("fetch_empty_reduces").fetch(&[0], &[&[]], false).chunks(0..1),
        case("fetch_empty_reduces_first").fetch(&[0, 1], &[&[], &[0]], false).chunks(0..1),
        case("fetch_empty_reduces_last").fetch(&[0, 1], &[&[0], &[]], false).chunks(0..2),
        case("fetch_with_bytes_behind").fetch_trailing().chunks(0..1),
        case("fetch_bad_among_good").fetch(&[0, 7, 1], &[&[0], &[0], &[0]], false).chunks(0..3),
        case("fetch_of_unregistered").unregistered().fetch(&[0], &[&[0]], false).chunks(0..1),
        // Registered after the stream was opened: the look-up is the chunk's.
        case("fetch_before_registration")
            .unregistered()
            .fetch(&[0], &[&[0]], false)
            .register(&["{dir}", "{dir1}"], 64, "sort")
            .chunks(0..1),
        case("fetch_many").fetch_many(2000).chunks(0..2000),
    ]
}

fn chunks() -> Vec<Case> {
    let one = |name: &str| case(name).fetch(&[0], &[&[0, 1, 2]], false);
    vec![
        one("chunks_in_order").chunk(0).chunk(1).chunk(2),
        one("chunks_out_of_order").chunk(1).chunk(0).chunk(1),
        one("chunks_twice").chunk(0).chunk(0).chunk(1),
        one("chunks_negative").chunk(-1).chunk(0),
        one("chunks_min").chunk(i32::MIN).chunk(0),
        one("chunks_far_beyond").chunk(i32::MAX - 1).chunk(0),
        one("chunks_skipped").chunk(0).chunk(2).chunk(1).chunk(2),
        one("chunks_beyond_the_end").at(Standalone).chunks(0..4),
        one("chunks_of_a_finished_stream").at(Standalone).chunks(0..3).chunk(0),
        one("chunks_beyond_the_end_359").at(Mesos).chunks(0..4),
        case("chunks_of_no_stream").at(Standalone).unknown_chunk(4242),
        case("chunks_of_no_stream_359").at(Mesos).unknown_chunk(4242),
        case("chunks_of_a_negative_stream").at(Standalone).unknown_chunk(-1),
        // 4.x: streams are read on the connection that opened them.
        one("chunks_of_another_connection").at(Standalone).on(1).chunk(0).on(0).chunk(0),
        one("chunks_of_two_streams")
            .fetch(&[1], &[&[3, 2]], false)
            .chunks_of(1, 0..1)
            .chunk(0)
            .chunks_of(1, 1..2)
            .chunk(1),
        one("chunks_while_removed").chunk(0).delete("shuffle_0_0_0.index").chunk(1),
    ]
}

fn streams() -> Vec<Case> {
    let one = |name: &str| case(name).fetch(&[0], &[&[0, 1, 2]], false);
    let mut cases = vec![
        one("stream").stream("{0}_0").stream("{0}_1").stream("{0}_2"),
        one("stream_and_chunk").stream("{0}_0").chunk(1).stream("{0}_2"),
        one("stream_out_of_order").stream("{0}_1").stream("{0}_0"),
        one("stream_twice").stream("{0}_0").stream("{0}_0"),
        one("stream_beyond_the_end").at(Standalone).chunks(0..3).stream("{0}_3"),
        one("stream_of_another_connection")
            .at(Standalone)
            .on(1)
            .stream("{0}_0")
            .on(0)
            .stream("{0}_0"),
        one("stream_of_a_missing_file").delete("shuffle_0_0_0.index").stream("{0}_0"),
        one("stream_negative_chunk").stream("{0}_-1").chunk(0),
        one("stream_with_plus").stream("{0}_+0"),
        one("stream_with_zero").stream("{0}_00"),
        one("stream_three_parts").stream("{0}_0_0").chunk(0),
        one("stream_one_part").stream("{0}").chunk(0),
        one("stream_chunk_over_i32").stream("{0}_2147483648").chunk(0),
        one("stream_underscore_at_the_end").stream("{0}_0_"),
    ];
    for (name, stream) in [
        ("unknown", "4242_0"),
        ("of_a_jar", "/jars/some.jar"),
        ("empty", ""),
        ("underscore", "_"),
        ("letters", "a_b"),
        ("letters_in_the_chunk", "1_x"),
        ("traversal", "../../etc/passwd"),
        ("minus", "-1_0"),
        ("space", "1 _0"),
        ("over_i64", "9223372036854775808_0"),
        ("unicode", "📦_0"),
    ] {
        cases.push(case(format!("stream_name_{name}")).at(Standalone).stream(stream));
    }
    cases
}

impl Case {
    fn fetch_shuffle(self, shuffle: i32) -> Self {
        let message = self.fetching(&[0], &[&[0]], false);
        self.rpc(FetchShuffleBlocks { shuffle_id: ShuffleId(shuffle), ..message })
    }

    fn fetch_trailing(self) -> Self {
        let message = self.fetching(&[0], &[&[0]], false);
        self.rpc_and(message, b"more")
    }

    fn fetch_many(self, times: usize) -> Self {
        self.fetch(&[1], &[&vec![3; times]], false)
    }

    fn unknown_chunk(self, stream: i64) -> Self {
        let chunk = StreamChunkId { stream: StreamId(stream), chunk: 0 };
        self.frame(&Frame::ChunkFetchRequest(chunk))
    }
}

/// Requests sent without waiting for answers.
pub(crate) fn pipelined(case: Case) -> Case {
    let message = case.fetching(&[1], &[&[3]], false);
    let frames: Vec<_> = (0..300).map(|id| rpc_frame(id, message.clone())).collect();
    case.frames(&frames).local_dirs(&[EXEC])
}
