//! What is removed, and what is not: C03, C06, C12, C13, F2.

use std::os::unix::fs::symlink;

use shuffle_protocol::message::{BlocksRemoved, Message, RemoveBlocks};

use super::*;

/// All directories of all executors, on all disks, also of those that came late.
#[tokio::test]
async fn c03_spark_8873_expiry_removes_every_directory_of_every_executor() {
    let service = command().start();
    let disks = [service.root().join("disk-a"), service.root().join("disk-b")];
    let executor = |exec: &str| {
        let executor = FixtureExecutor::new("app", exec, &[&disks[0], &disks[1]]);
        executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
        executor
    };
    let mut client = RawClient::connect(service.shuffle).await;
    let mut executors = vec![executor("1"), executor("2")];
    client.rpc(executors[0].registration()).await.unwrap();
    client.rpc(executors[0].driver(seconds(3))).await.unwrap();
    client.one_way(executors[0].heartbeat()).await;
    client.rpc(executors[1].registration()).await.unwrap();
    // The driver is silent from here on.
    executors.push(executor("3"));
    client.rpc(executors[2].registration()).await.unwrap();
    assert_eq!(app(&service, "app").executors.len(), 3);
    assert_eq!(app(&service, "app").app.unwrap().dirs, 6);

    let gone = wait_removed(&service, "app");
    assert_eq!((gone.executors, gone.dirs, gone.dirs_removed), (3, 6, 6));
    // Data, index and checksums of each.
    assert_eq!((gone.files_removed, gone.dirs_failing), (9, 0));
    for dir in executors.iter().flat_map(|executor| &executor.local_dirs) {
        assert!(!dir.exists(), "{}", dir.display());
    }
    assert!(disks.iter().all(|disk| disk.exists()), "what is above them stays, as in Spark");
}

fn remove(executor: &FixtureExecutor, names: &[&str]) -> RemoveBlocks {
    RemoveBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: names.iter().collect(),
    }
}

async fn removed(client: &mut RawClient, executor: &FixtureExecutor, names: &[&str]) -> i32 {
    match client.ask(remove(executor, names)).await {
        Ok(Message::BlocksRemoved(BlocksRemoved { num_removed_blocks })) => num_removed_blocks,
        other => panic!("expected a count, got {other:?}"),
    }
}

/// The files of a shuffle that nobody needs any more go by name while the application lives.
#[tokio::test]
async fn c06_spark_37618_shuffle_files_are_removed_by_name() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    assert_served(&mut client, &executor).await;

    let names = [
        "shuffle_0_0_0.data",
        "shuffle_0_9_0.data", // there is none
        "shuffle_0_0_0.index",
        "shuffle_0_0_0.checksum.ADLER32",
    ];
    assert_eq!(removed(&mut client, &executor, &names).await, 3);
    assert!(!executor.data_path(0, 0).exists());
    assert!(!executor.index_path(0, 0).exists());
    assert_eq!(removed(&mut client, &executor, &names).await, 0, "they are gone");

    // Nothing of the old index is left in memory: not even the empty partition is served.
    let chunks = client.fetch(executor.fetch(0, &[(0, &[2, 0])])).await.unwrap();
    for chunk in chunks {
        let text = chunk.unwrap_err();
        let index = executor.index_path(0, 0);
        assert!(text.contains(&format!("Failed to open file: {}", index.display())), "{text}");
    }
    // Nor when files of the same names come back.
    executor.write_map_output(0, 0, &["a", "bc", "def"]);
    let chunks = client.fetch(executor.fetch(0, &[(0, &[0, 1, 2])])).await;
    assert_eq!(chunks, Ok(vec![Ok(b"a".into()), Ok(b"bc".into()), Ok(b"def".into())]));
}

/// Removal goes by the list of directories, not by what is left in them.
#[tokio::test]
async fn c12_directories_go_although_every_block_was_removed_before() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let files = files_below(&executor.local_dirs[0]);
    let names: Vec<_> =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(removed(&mut client, &executor, &names).await, 3);
    assert_eq!(files_below(&executor.local_dirs[0]), [""; 0].map(PathBuf::from));
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    let gone = wait_removed(&service, "app");
    assert_eq!((gone.dirs_removed, gone.files_removed), (1, 0));
    assert!(!executor.local_dirs[0].exists());
}

/// A directory that two applications registered stays until both are gone.
#[tokio::test]
async fn c13_a_directory_of_a_live_application_stays() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let first = registered(&service, &mut client, "first", "1").await;
    let second = FixtureExecutor { app_id: "second".into(), ..first.clone() };
    client.rpc(second.registration()).await.unwrap();
    client.rpc(second.driver(HeartbeatTimeout::Never)).await.unwrap();
    client.rpc(first.driver(seconds(1))).await.unwrap();

    let gone = wait_removed(&service, "first");
    assert_eq!((gone.dirs_kept, gone.dirs_removed), (1, 0));
    let told = service.log_lines("a live application registered it too");
    assert_eq!(told.len(), 1, "the conflict is told");
    assert_served(&mut client, &second).await;

    expire(&service, "second");
    assert_eq!(wait_removed(&service, "second").dirs_removed, 1);
    assert!(!first.local_dirs[0].exists());
}

/// So does one around a directory of a live application, and one within it; and in the end all of them
/// go.
#[tokio::test]
async fn c13_so_does_one_around_or_within_it() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let outer = registered(&service, &mut client, "outer", "1").await;
    let inner = FixtureExecutor::new("inner", "1", &[&outer.local_dirs[0].join("00")]);
    inner.write_map_output(0, 0, &[content(0), content(1), content(2)]);
    client.rpc(inner.registration()).await.unwrap();
    client.rpc(outer.driver(seconds(1))).await.unwrap();
    client.rpc(inner.driver(HeartbeatTimeout::Never)).await.unwrap();
    wait_for("the outer application's expiry", || expired(&service, "outer"));
    wait_for("the conflict to be told", || {
        service.log_lines("a live application registered a directory in it").first().cloned()
    });
    assert_served(&mut client, &inner).await;

    // Now the other way round: the inner one expires first.
    client.rpc(outer.registration()).await.unwrap();
    client.rpc(outer.driver(HeartbeatTimeout::Never)).await.unwrap();
    expire(&service, "inner");
    wait_for("the inner application's expiry", || expired(&service, "inner"));
    assert_served(&mut client, &outer).await;

    expire(&service, "outer");
    wait_for("everything to go", || (!outer.local_dirs[0].exists()).then_some(()));
}

/// The outer one may be kept for the sake of the inner one, but not for ever.
#[tokio::test]
async fn c13_what_was_kept_for_a_directory_within_it_goes_with_that() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let outer = registered(&service, &mut client, "outer", "1").await;
    let inner = FixtureExecutor::new("inner", "1", &[&outer.local_dirs[0].join("00")]);
    client.rpc(inner.registration()).await.unwrap();
    client.rpc(outer.driver(seconds(1))).await.unwrap();
    client.rpc(inner.driver(HeartbeatTimeout::Never)).await.unwrap();
    wait_for("the conflict to be told", || {
        service.log_lines("a live application registered a directory in it").first().cloned()
    });
    assert!(inner.local_dirs[0].exists());
    expire(&service, "inner");
    wait_for("both to go", || (!outer.local_dirs[0].exists()).then_some(()));
}

/// Whatever a client names, and whatever it puts in place of its directories after the registration:
/// nothing outside the root is removed.
#[tokio::test]
async fn f2_nothing_outside_the_root_is_removed() {
    let service = command().start();
    let canary = canary_tree(&service);
    let mut client = RawClient::connect(service.shuffle).await;
    let root = service.root();
    let swapped = written(&service, "app", "swapped");
    let swapped_sub = written(&service, "app", "swapped-sub");
    copy_files(&swapped, &canary);
    let before = files_below(&canary);
    assert_eq!(before.len(), 3);

    let refused = |dir: PathBuf| FixtureExecutor {
        app_id: "app".into(),
        exec_id: "refused".into(),
        local_dirs: vec![dir],
    };
    let up = root.join("../canary");
    let dirs = [canary.clone(), up.clone(), root.join("blockmgr-x/../../canary"), "/".into()];
    for dir in dirs.into_iter().chain([root.clone(), "/etc".into(), "".into(), "etc".into()]) {
        let text = client.rpc(refused(dir.clone()).registration()).await.unwrap_err();
        assert!(text.contains("localDirs entr"), "{}: {text}", dir.display());
    }
    // A link is found out only when it is used: a registration does not wait for a disk.
    symlink(&canary, root.join("blockmgr-link")).unwrap();
    let link = FixtureExecutor {
        app_id: "app".into(),
        exec_id: "link".into(),
        local_dirs: vec![root.join("blockmgr-link")],
    };
    let through = FixtureExecutor {
        app_id: "app".into(),
        exec_id: "through".into(),
        local_dirs: vec![root.join("blockmgr-link/00")],
    };
    for executor in [&link, &through, &swapped, &swapped_sub] {
        client.rpc(executor.registration()).await.unwrap();
    }
    // One directory becomes a link, and the sub-directories of the other.
    fs::rename(&swapped.local_dirs[0], root.join("moved-away")).unwrap();
    symlink(&canary, &swapped.local_dirs[0]).unwrap();
    for entry in fs::read_dir(&swapped_sub.local_dirs[0]).unwrap() {
        let sub = entry.unwrap().path();
        let name = sub.file_name().unwrap();
        fs::rename(&sub, root.join(format!("moved-{}", name.to_str().unwrap()))).unwrap();
        symlink(canary.join(name), &sub).unwrap();
    }
    let names = ["shuffle_0_0_0.data", "shuffle_0_0_0.index", "shuffle_0_0_0.checksum.ADLER32"];
    for executor in [&link, &through, &swapped, &swapped_sub] {
        assert_eq!(removed(&mut client, executor, &names).await, 0);
    }

    client.rpc(swapped.driver(seconds(1))).await.unwrap();
    let gone = wait_for("every directory to be tried", || {
        expired(&service, "app").filter(|gone| gone.dirs_removed + gone.dirs_failing == gone.dirs)
    });
    assert_eq!((gone.dirs, gone.dirs_removed), (4, 1), "the one whose links lie within it");
    assert!(!swapped_sub.local_dirs[0].exists());
    assert_eq!(files_below(&canary), before);
    // When the right directory is back, the next attempt finds it.
    fs::remove_file(&swapped.local_dirs[0]).unwrap();
    fs::rename(root.join("moved-away"), &swapped.local_dirs[0]).unwrap();
    wait_for("another attempt", || (!swapped.local_dirs[0].exists()).then_some(()));
    assert_eq!(files_below(&canary), before);
}
