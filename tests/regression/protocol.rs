//! Clients of every generation, and messages nobody expects: C04, C39, C40, F9, F10, F12.

use bytes::{BufMut as _, Bytes, BytesMut};
use shuffle_protocol::ShuffleId;
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::{
    BlocksRemoved, DiagnoseCorruption, FetchShuffleBlockChunks, FetchShuffleBlocks,
    GetLocalDirsForExecutors, Message, OpenBlocks, RemoveBlocks,
};

use super::*;

/// Messages that are longer than this version knows, and messages it does not know at all.
#[tokio::test]
async fn c04_mixed_versions_get_along() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = written(&service, "app", "1");

    let longer = |message: Message| {
        let mut body = BytesMut::from(message.encode());
        body.put_u64(0x0102_0304_0506_0708);
        body.freeze()
    };
    for message in [
        Message::from(executor.driver(HeartbeatTimeout::Never)),
        executor.registration().into(),
        executor.heartbeat().into(),
    ] {
        assert_eq!(client.rpc_bytes(longer(message)).await, Ok(Bytes::new()));
    }
    let app = app(&service, "app").app.unwrap();
    assert_eq!((app.driver.unwrap().heartbeats, app.executors), (1, 1));

    for _ in 0..1000 {
        client.send(&Frame::OneWayMessage { body: Bytes::from_static(&[99, 1, 2, 3]) }).await;
    }
    let text = client.rpc_bytes(Bytes::from_static(&[99])).await.unwrap_err();
    assert!(text.contains("Unknown message type: 99"), "{text}");
    assert_served(&mut client, &executor).await;
    assert_eq!(errors(&service), BTreeMap::from([("unknown-message".to_owned(), 1001)]));
    let lines = service.log_lines("Unknown message type: 99");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(&client.local_addr().to_string()), "{lines:?}");
    // Connecting again is no way to say it again.
    let mut again = RawClient::connect(service.shuffle).await;
    again.send(&Frame::OneWayMessage { body: Bytes::from_static(&[99]) }).await;
    let unknown = r#"shuffled_errors_total{kind="unknown-message"}"#;
    wait_for("it to be counted", || (service.metric(unknown) == 1002.0).then_some(()));
    assert_eq!(service.log_lines("Unknown message type: 99").len(), 1);
}

/// The ways in which clients of 2.4, 3.x and 4.x ask for the same blocks, each on the same service. Their
/// recorded conversations and the clients themselves are in other suites.
#[tokio::test]
async fn c39_spark_27665_one_service_for_all_generations_of_clients() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    // A map id of Spark 3 is a task's id, which may be larger than any of Spark 2.
    let large = (1 << 40) + 7;
    executor.write_map_output(0, large, &[content(0), content(1), content(2)]);
    let all = vec![Ok(content(0)), Ok(content(1)), Ok(content(2))];

    for map in [0, large] {
        let ids: Vec<_> = (0..3).map(|reduce| format!("shuffle_0_{map}_{reduce}")).collect();
        let old = OpenBlocks {
            app_id: executor.app_id.clone(),
            exec_id: executor.exec_id.clone(),
            block_ids: ids.iter().collect(),
        };
        assert_eq!(client.fetch(old.clone()).await, Ok(all.clone()), "2.4, useOldFetchProtocol");
        let new = executor.fetch(0, &[(map, &[0, 1, 2])]);
        assert_eq!(client.fetch(new.clone()).await, Ok(all.clone()), "3.0 and later");
        let batch = FetchShuffleBlocks {
            batch_fetch: true,
            ..executor.fetch(0, &[(map, &[0, 3]), (map, &[1, 3])])
        };
        let both = [content(0), content(1)].concat();
        assert_eq!(client.fetch(batch).await, Ok(vec![Ok(both), Ok(content(1))]), "in batches");
        for message in [Message::from(old), new.into()] {
            let stream = client.open(message).await.unwrap();
            for number in 0..3 {
                let name = format!("{}_{number}", stream.stream_id.0);
                assert_eq!(client.stream(&name).await, Ok(content(number)), "to disk");
            }
        }
    }
    // Push shuffle is refused as by every service without a merge manager.
    let merged = FetchShuffleBlockChunks {
        app_id: executor.app_id.clone(),
        exec_id: "shuffle-push-merger".into(),
        shuffle_id: ShuffleId(0),
        shuffle_merge_id: shuffle_protocol::ShuffleMergeId(0),
        reduce_ids: vec![0],
        chunk_ids: [[0]].iter().collect(),
    };
    let text =
        "java.lang.UnsupportedOperationException: Cannot handle shuffle block merge".to_owned();
    assert_eq!(client.fetch(merged).await, Ok(vec![Err(text)]));
    assert_served(&mut client, &executor).await;
}

/// Spark 2.4 and 3.0 refuse executors by the name of their shuffle manager.
#[tokio::test]
async fn c40_spark_33037_any_shuffle_manager_is_welcome() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let managers = [
        "sort",
        "tungsten-sort",
        "org.apache.spark.shuffle.sort.SortShuffleManager",
        "org.apache.spark.shuffle.unsafe.UnsafeShuffleManager",
        "com.example.ColumnarShuffleManager",
        r#"org.apache.spark.shuffle.sort.SortShuffleManager:{"mergeDir":"merge_manager_1","attemptId":"1"}"#,
        r#"sort:{"mergeDir":"../../etc"}"#,
        "sort:{",
        "",
    ];
    for (number, manager) in managers.into_iter().enumerate() {
        let executor = written(&service, "app", &number.to_string());
        let mut registration = executor.registration();
        manager.clone_into(&mut registration.info.shuffle_manager);
        assert_eq!(client.rpc(registration).await, Ok(Bytes::new()), "{manager}");
        assert_served(&mut client, &executor).await;
    }
    let shown = app(&service, "app").executors;
    assert_eq!(shown.len(), managers.len());
    for executor in shown {
        let number: usize = executor.id.parse().unwrap();
        assert_eq!(executor.shuffle_manager, managers[number]);
    }
}

/// Every message with every number in it replaced by the largest and by a negative one: an answer each
/// time, no memory for what was only announced, and the connection goes on.
#[tokio::test]
async fn f9_spark_57426_a_count_from_a_peer_allocates_nothing() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let (app_id, exec_id) = (executor.app_id.clone(), executor.exec_id.clone());
    let messages = [
        Message::from(OpenBlocks {
            app_id: app_id.clone(),
            exec_id: exec_id.clone(),
            block_ids: ["shuffle_0_0_0"].iter().collect(),
        }),
        executor.fetch(0, &[(0, &[0, 1])]).into(),
        executor.registration().into(),
        executor.driver(HeartbeatTimeout::Never).into(),
        executor.heartbeat().into(),
        RemoveBlocks {
            app_id: app_id.clone(),
            exec_id: exec_id.clone(),
            block_ids: ["shuffle_9_9_0.data"].iter().collect(),
        }
        .into(),
        GetLocalDirsForExecutors { app_id: app_id.clone(), exec_ids: ["1"].iter().collect() }
            .into(),
        DiagnoseCorruption {
            app_id,
            exec_id,
            shuffle_id: ShuffleId(0),
            map_id: MapId(0),
            reduce_id: ReduceId(0),
            checksum: 0,
            algorithm: "ADLER32".into(),
        }
        .into(),
    ];
    let before = service.resident_bytes();
    let mut sent = 0;
    for message in messages.iter().map(Message::encode) {
        // 0 is OpenBlocks; the type byte is not a number of theirs.
        for at in 1..message.len().saturating_sub(3) {
            for value in [i32::MAX, -1, i32::MIN] {
                let mut damaged = message.to_vec();
                damaged[at..at + 4].copy_from_slice(&value.to_be_bytes());
                let _whatever = client.rpc_bytes(damaged.into()).await;
                sent += 1;
            }
        }
    }
    // And with nothing but a count, for every type there is and some that there are not.
    for tag in -128..=127_i8 {
        for value in [i32::MAX, -1] {
            let mut body = BytesMut::new();
            body.put_i8(tag);
            body.put_i32(value);
            assert!(client.rpc_bytes(body.freeze()).await.is_err(), "type {tag}");
            sent += 1;
        }
    }
    let grown = service.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes after {sent} messages");
    assert!(sent > 1000);
    client.rpc(executor.registration()).await.unwrap(); // in case one of them was one
    assert_served(&mut client, &executor).await;
    assert_eq!(service.metric("shuffled_task_restarts_total"), 0.0);
}

/// Spark's service fails with an index that is out of bounds.
#[tokio::test]
async fn f10_opening_no_blocks_is_a_failure() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let nothing = OpenBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: [""; 0].iter().collect(),
    };
    let text = client.rpc(nothing).await.unwrap_err();
    assert!(text.starts_with("java.lang.ArrayIndexOutOfBoundsException"), "{text}");
    assert!(!text.contains('\n'), "no stack trace: {text}");
    assert!(client.rpc(executor.fetch(0, &[])).await.is_err());
    assert_eq!(service.metric("shuffled_streams_open"), 0.0);
    assert_served(&mut client, &executor).await;
}

/// Spark 3.0 to 3.4 delete whatever the names point to.
#[tokio::test]
async fn f12_only_files_of_blocks_are_removed_by_name() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let canary = canary_tree(&service);
    copy_files(&executor, &canary);
    executor.write("rdd_1_2", b"x");
    executor.write("temp_shuffle_00000000-0000-0000-0000-000000000000", b"x");
    executor.write("broadcast_1", b"x");
    let outside = canary.join("rdd_0_0");
    fs::write(&outside, b"x").unwrap();
    let before = [files_below(&canary), files_below(&executor.local_dirs[0])];

    let absolute = outside.to_str().unwrap();
    let names = [
        "",
        ".",
        "..",
        "/",
        absolute,
        "../../../canary/rdd_0_0",
        "rdd_0_0/../../../../canary/rdd_0_0",
        "rdd_1_2/../rdd_1_2",
        "./rdd_1_2",
        "rdd_1_2/",
        "rdd_1_2\0",
        "rdd_1_2\0.data",
        "..\\canary\\rdd_0_0",
        "rdd_1_2\n",
        " rdd_1_2",
        "rdd_1_-2",
        "rdd_01_2",
        "rdd_1",
        "00",
        "shuffle_0_0_0",
        "shuffle_0_0_0.data/..",
        "SHUFFLE_0_0_0.DATA",
        "temp_shuffle_00000000-0000-0000-0000-000000000000",
        "broadcast_1",
    ];
    let ask = |names: &[&str]| RemoveBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: names.iter().collect(),
    };
    let removed = |count| Ok(Message::BlocksRemoved(BlocksRemoved { num_removed_blocks: count }));
    for name in names {
        assert_eq!(client.ask(ask(&[name])).await, removed(0), "{name:?}");
    }
    assert_eq!([files_below(&canary), files_below(&executor.local_dirs[0])], before);
    // Bad names do not keep good ones from being removed.
    let mut names = names.to_vec();
    names.insert(5, "rdd_1_2");
    names.push("shuffle_0_0_0.data");
    assert_eq!(client.ask(ask(&names)).await, removed(2));
    assert_eq!(files_below(&canary), before[0]);
    assert_eq!(files_below(&executor.local_dirs[0]).len(), before[1].len() - 2);
}
