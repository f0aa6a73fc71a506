//! RegisterExecutor and GetLocalDirsForExecutors.

use shuffle_protocol::message::GetLocalDirsForExecutors;

use crate::case::Reference::Standalone;
use crate::case::{Case, EXEC, SORT, case};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("register").unregistered().register(&["{dir}", "{dir1}"], 64, SORT).fetch_all(),
        case("register_again").register(&["{dir}", "{dir1}"], 64, SORT).fetch_all(),
        // The second one counts: the first directory's files are looked for in the second.
        case("register_again_elsewhere").register(&["{dir1}"], 64, SORT).fetch_all(),
        case("register_the_other_way_round").register(&["{dir1}", "{dir}"], 64, SORT).fetch_all(),
        case("register_without_dirs").unregistered().register(&[], 64, SORT).fetch_all(),
        case("register_with_one_sub_dir").register(&["{dir}", "{dir1}"], 1, SORT).fetch_all(),
        case("register_without_sub_dirs").register(&["{dir}", "{dir1}"], 0, SORT).fetch_all(),
        case("register_with_negative_sub_dirs")
            .register(&["{dir}", "{dir1}"], -1, SORT)
            .fetch_all(),
        case("register_with_as_many_sub_dirs_as_there_are")
            .register(&["{dir}", "{dir1}"], i32::MAX, SORT)
            .fetch_all(),
        case("register_with_bytes_behind")
            .unregistered()
            .register_bytes(
                EXEC,
                &[b"{dir}", b"{dir1}"],
                64,
                SORT.as_bytes(),
                b"\0\0\0\x07newfield",
            )
            .fetch_all(),
        case("register_without_a_name").unregistered().register_bytes(
            "",
            &[b"{dir}"],
            64,
            SORT.as_bytes(),
            b"",
        ),
        case("register_manager_not_utf8").unregistered().register_bytes(
            EXEC,
            &[b"{dir}", b"{dir1}"],
            64,
            b"sort\xff\xfe",
            b"",
        ),
        case("register_dir_not_utf8").at(Standalone).unregistered().register_bytes(
            EXEC,
            &[b"/nowhere/blockmgr-\xff\xfe"],
            64,
            SORT.as_bytes(),
            b"",
        ),
    ];

    // Complaint C40: any manager is good.
    for (name, manager) in [
        ("class", "org.apache.spark.shuffle.sort.SortShuffleManager"),
        ("tungsten", "org.apache.spark.shuffle.unsafe.UnsafeShuffleManager"),
        ("short", "sort"),
        ("tungsten_short", "tungsten-sort"),
        ("hash", "org.apache.spark.shuffle.hash.HashShuffleManager"),
        ("foreign", "org.apache.gluten.shuffle.ColumnarShuffleManager"),
        ("empty", ""),
        ("unicode", "срт 🙂"),
        (
            "json",
            "org.apache.spark.shuffle.sort.SortShuffleManager:{\"mergeDir\":\"merge_manager\"}",
        ),
        (
            "json_attempt",
            "org.apache.spark.shuffle.sort.SortShuffleManager:{\"mergeDir\":\"merge_manager_1\",\"attemptId\":\"1\"}",
        ),
        ("json_broken", "org.apache.spark.shuffle.sort.SortShuffleManager:{\"mergeDir\":"),
        ("json_traversal", "sort:{\"mergeDir\":\"../../etc\"}"),
    ] {
        cases.push(
            case(format!("manager_{name}"))
                .unregistered()
                .register(&["{dir}", "{dir1}"], 64, manager)
                .fetch_all(),
        );
    }

    // Which directories may be registered. The Mesos service takes any (spec/ess-service.md F12), so
    // the standalone one is the reference.
    for (name, dir) in [
        ("doubled_slashes", "{root}//dir_doubled_slashes///blockmgr-x"),
        ("slash_at_the_end", "{root}/dir_slash_at_the_end/blockmgr-x/"),
        ("dot", "{root}/./dir_dot/blockmgr-x"),
        ("dot_dot_inside", "{root}/a/../dir_dot_dot_inside/blockmgr-x"),
        ("dot_dot_outside", "{root}/../blockmgr-x"),
        ("dot_dot_far_outside", "{root}/../../../../../../etc/blockmgr-x"),
        ("outside", "/nowhere/blockmgr-x"),
        ("the_root_itself", "{root}"),
        ("of_the_file_system", "/"),
        ("relative", "blockmgr-x"),
        ("relative_dot", "."),
        ("empty", ""),
        ("blank", " "),
        ("nul", "{root}/dir_nul/block\0mgr-x"),
        ("line_break", "{root}/dir_line_break/block\nmgr-x"),
        ("unicode", "{root}/dir_unicode/blockmgr-ü"),
        ("prefix_of_root", "{root}x/blockmgr-x"),
        ("not_made", "{root}/dir_not_made/blockmgr-x"),
        ("no_block_managers", "{root}/dir_no_block_managers/x"),
    ] {
        cases.push(
            case(format!("dir_{name}"))
                .at(Standalone)
                .unregistered()
                .register(&[dir], 64, SORT)
                .local_dirs(&[EXEC]),
        );
    }
    cases.push(
        case("dir_good_and_bad")
            .at(Standalone)
            .unregistered()
            .register(&["{dir}", "/nowhere"], 64, SORT)
            .local_dirs(&[EXEC]),
    );
    cases.push(
        case("dir_twice")
            .unregistered()
            .register(&["{dir}", "{dir}"], 64, SORT)
            .local_dirs(&[EXEC])
            .fetch_all(),
    );

    cases.extend([
        case("local_dirs").local_dirs(&[EXEC]),
        case("local_dirs_of_two")
            .register_bytes("2", &[b"{dir1}"], 64, SORT.as_bytes(), b"")
            .local_dirs(&["2", EXEC]),
        case("local_dirs_of_none").local_dirs(&[]),
        case("local_dirs_twice").local_dirs(&[EXEC, EXEC]),
        case("local_dirs_of_nobody").local_dirs(&["nobody"]),
        case("local_dirs_of_some").local_dirs(&[EXEC, "nobody"]),
        case("local_dirs_of_no_name").local_dirs(&[""]),
        case("local_dirs_without_dirs").unregistered().register(&[], 64, SORT).local_dirs(&[EXEC]),
        case("local_dirs_of_the_merger").local_dirs(&["shuffle-push-merger"]),
        case("local_dirs_of_the_merger_too").local_dirs(&[EXEC, "shuffle-push-merger"]),
        case("local_dirs_of_nobody_and_the_merger").local_dirs(&["nobody", "shuffle-push-merger"]),
        case("local_dirs_of_another_application").rpc(GetLocalDirsForExecutors {
            app_id: "another".into(),
            exec_ids: [EXEC].iter().collect(),
        }),
        case("local_dirs_of_unregistered").unregistered().local_dirs(&[EXEC]),
        case("local_dirs_of_none_unregistered").unregistered().local_dirs(&[]),
    ]);
    cases
}

impl Case {
    /// Shows where the service looks for files.
    fn fetch_all(self) -> Self {
        self.local_dirs(&[EXEC])
            .fetch(&[0, 1], &[&[0, 1, 2, 3], &[0]], false)
            .chunks(0..5)
            .open(&["rdd_1_0", "rdd_1_2"])
            .chunks_of(1, 0..2)
    }
}
