//! RemoveBlocks, DiagnoseCorruption, and files that are not as they should be.

use shuffle_protocol::checksum::{Algorithm, Checksummer};
use shuffle_protocol::{MapId, ReduceId};
use test_support::fixture::partition;

use crate::case::{Case, EXEC, case};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = remove();
    cases.extend(diagnose());
    cases.extend(files());
    cases
}

fn remove() -> Vec<Case> {
    let mut cases = vec![
        case("remove_rdd").remove(&["rdd_1_0", "rdd_1_9"]).exists("rdd_1_0").exists("rdd_1_1"),
        case("remove_empty_file").remove(&["rdd_1_1"]).exists("rdd_1_1"),
        case("remove_twice").remove(&["rdd_1_0"]).remove(&["rdd_1_0"]),
        case("remove_named_twice").remove(&["rdd_1_0", "rdd_1_0"]),
        case("remove_map_output")
            .remove(&[
                "shuffle_0_0_0.data",
                "shuffle_0_0_0.index",
                "shuffle_0_0_0.checksum.ADLER32",
            ])
            .exists("shuffle_0_0_0.data")
            .exists("shuffle_0_0_0.index")
            .exists("shuffle_0_0_0.checksum.ADLER32")
            .exists("shuffle_0_1_0.data"),
        case("remove_nothing").remove(&[]),
        case("remove_of_nobody").remove_of("nobody", &["rdd_1_0"]).exists("rdd_1_0"),
        case("remove_nothing_of_nobody").remove_of("nobody", &[]),
        case("remove_of_unregistered").unregistered().remove(&["rdd_1_0"]).exists("rdd_1_0"),
        case("remove_and_fetch").remove(&["rdd_1_0"]).open(&["rdd_1_0"]).chunks(0..1),
        case("remove_index_and_fetch")
            .fetch(&[0], &[&[0]], false)
            .chunk(0)
            .remove(&["shuffle_0_0_0.index", "shuffle_0_0_0.data"])
            .fetch(&[0], &[&[0]], false)
            .chunks_of(1, 0..1),
        case("remove_without_sub_dirs").register(&["{dir}"], 0, "sort").remove(&["rdd_1_0"]),
        case("remove_without_dirs").register(&[], 64, "sort").remove(&["rdd_1_0"]),
    ];
    // Complaint F12.
    for (name, id) in [
        ("empty", ""),
        ("dot", "."),
        ("dot_dot", ".."),
        ("traversal", "../../../rdd_1_0"),
        ("traversal_inside", "rdd_1_0/../rdd_1_0"),
        ("absolute", "/etc/passwd"),
        ("slash", "a/b"),
        ("slash_at_the_end", "rdd_1_0/"),
        ("backslash", "a\\b"),
        ("nul", "rdd_1_0\0"),
        ("nul_only", "\0"),
        ("shuffle_block", "shuffle_0_0_0"),
        ("spaces", " rdd_1_0"),
        ("missing_kind", "unknown_1"),
        ("long", &"x".repeat(300)),
        ("very_long", &"x".repeat(5000)),
    ] {
        cases.push(
            case(format!("remove_id_{name}")).remove(&[id]).exists("rdd_1_0").exists("rdd_1_1"),
        );
    }
    // Names that only exist here because the case makes them. Spark asks for none of them.
    for (name, id) in [
        ("temp_shuffle", "temp_shuffle_0a1b-2c3d"),
        ("temp_local", "temp_local_0a1b-2c3d"),
        ("other", "notes.txt"),
        ("leading_zero", "rdd_01_0"),
        ("checksum_unknown", "shuffle_0_0_0.checksum.XYZ"),
        ("broadcast", "broadcast_3"),
    ] {
        cases.push(case(format!("remove_file_{name}")).write(id, "here").remove(&[id]).exists(id));
    }
    cases
}

/// The checksum of partition 2 of map 1.
fn sum(algorithm: Algorithm) -> i64 {
    let mut sum = Checksummer::new(algorithm);
    sum.update(&partition(MapId(1), ReduceId(2), 30));
    sum.value()
}

fn diagnose() -> Vec<Case> {
    let (adler, crc32, crc32c) =
        (sum(Algorithm::Adler32), sum(Algorithm::Crc32), sum(Algorithm::Crc32c));
    let adler_file = "shuffle_0_1_0.checksum.ADLER32";
    let damaged = |name: &str| case(name).write("shuffle_0_1_0.data", [0x55; 100]);
    vec![
        case("diagnose_pass").diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_network").diagnose(1, 2, adler ^ 1, "ADLER32"),
        damaged("diagnose_disk").diagnose(1, 2, adler, "ADLER32"),
        damaged("diagnose_disk_and_network").diagnose(1, 2, 5, "ADLER32"),
        case("diagnose_crc32_pass").diagnose(1, 2, crc32, "CRC32"),
        case("diagnose_crc32_network").diagnose(1, 2, crc32 ^ 1, "CRC32"),
        case("diagnose_crc32c").diagnose(1, 2, crc32c, "CRC32C"),
        case("diagnose_wrong_algorithm").diagnose(1, 2, adler, "CRC32"),
        case("diagnose_lower_case").diagnose(1, 2, adler, "adler32"),
        case("diagnose_unknown_algorithm").diagnose(1, 2, adler, "XYZ"),
        case("diagnose_no_algorithm").diagnose(1, 2, adler, ""),
        case("diagnose_traversal").diagnose(1, 2, adler, "../../etc/passwd"),
        case("diagnose_negative_checksum").diagnose(1, 2, -1, "ADLER32"),
        case("diagnose_without_checksums").delete(adler_file).diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_short_checksums")
            .write(adler_file, [0; 17])
            .diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_empty_checksums").write(adler_file, "").diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_wrong_checksums")
            .write(adler_file, [7; 32])
            .diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_without_index")
            .delete("shuffle_0_1_0.index")
            .diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_without_index_unknown_algorithm")
            .delete("shuffle_0_1_0.index")
            .diagnose(1, 2, adler, "XYZ"),
        case("diagnose_without_data").delete("shuffle_0_1_0.data").diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_short_data")
            .write("shuffle_0_1_0.data", [1; 50])
            .diagnose(1, 2, adler, "ADLER32"),
        case("diagnose_missing_map").diagnose(7, 0, 1, "ADLER32"),
        case("diagnose_reduce_beyond").diagnose(1, 9, 1, "ADLER32"),
        case("diagnose_reduce_negative").diagnose(1, -1, 1, "ADLER32"),
        case("diagnose_empty_partition").diagnose(0, 1, 1, "ADLER32"),
        case("diagnose_of_nobody").diagnose_of("nobody", 1, 2, adler, "ADLER32"),
        case("diagnose_of_nobody_unknown_algorithm").diagnose_of("nobody", 1, 2, adler, "XYZ"),
    ]
}

/// Files that executors leave behind when something went wrong. A chunk of another map output shows
/// whether the connection goes on.
fn files() -> Vec<Case> {
    const DATA: &str = "shuffle_0_1_0.data";
    const INDEX: &str = "shuffle_0_1_0.index";
    let fetch = |case: Case| {
        case.fetch(&[1, 0], &[&[0, 1, 2, 3], &[0]], false).chunks(0..5).local_dirs(&[EXEC])
    };
    vec![
        fetch(case("index_missing").delete(INDEX)),
        fetch(case("index_empty").write(INDEX, "")),
        fetch(case("index_of_one_offset").index(1, &[0])),
        fetch(case("index_short").index(1, &[0, 10, 30])),
        fetch(case("index_with_a_rest").write(INDEX, {
            let offsets = [0_i64, 10, 30, 60, 100].map(i64::to_be_bytes).concat();
            [&offsets[..], &[1, 2, 3]].concat()
        })),
        fetch(case("index_cut_within_an_offset").write(INDEX, {
            let offsets = [0_i64, 10, 30, 60, 100].map(i64::to_be_bytes).concat();
            offsets[..offsets.len() - 1].to_vec()
        })),
        fetch(case("index_negative").index(1, &[0, -10, 30, 60, 100])),
        fetch(case("index_not_monotone").index(1, &[0, 30, 10, 60, 100])),
        fetch(case("index_not_from_zero").index(1, &[5, 10, 30, 60, 100])),
        fetch(case("index_beyond_the_data").index(1, &[0, 10, 30, 60, 1000])),
        fetch(case("index_far_beyond_the_data").index(1, &[0, 10, 30, 60, i64::MAX])),
        fetch(case("index_before_the_end").index(1, &[0, 10, 30, 60, 90])),
        fetch(case("data_missing").delete(DATA)),
        fetch(case("data_empty").write(DATA, "")),
        fetch(case("data_short").write(DATA, [7; 50])),
        fetch(case("data_long").write(DATA, [7; 200])),
        case("data_missing_empty_partition")
            .delete("shuffle_0_0_0.data")
            .fetch(&[0], &[&[1]], false)
            .chunk(0),
        case("data_missing_as_stream").delete(DATA).fetch(&[1], &[&[0]], false).stream("{0}_0"),
        case("data_short_as_stream")
            .write(DATA, [7; 50])
            .fetch(&[1], &[&[0, 3]], false)
            .stream("{0}_0")
            .stream("{0}_1"),
        case("data_missing_batch").delete(DATA).fetch(&[1], &[&[0, 4]], true).chunk(0),
        case("index_missing_batch").delete(INDEX).fetch(&[1], &[&[0, 4]], true).chunk(0),
        case("index_missing_as_stream").delete(INDEX).fetch(&[1], &[&[0]], false).stream("{0}_0"),
        // Written anew, as by a retried stage of Spark 2.
        case("index_rewritten")
            .fetch(&[1], &[&[0]], false)
            .chunk(0)
            .write(DATA, [9; 70])
            .index(1, &[0, 40, 50, 60, 70])
            .fetch(&[1], &[&[0]], false)
            .chunks_of(1, 0..1),
    ]
}
