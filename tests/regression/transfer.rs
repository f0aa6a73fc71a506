//! Blocks on their way: C20, C26, C35, C38, C41, C42, and files that are not as they should be.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FileType, Mode, mknodat};
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::{Algorithm, Checksummer, CorruptionCause};
use shuffle_protocol::frame::{Event, Frame};
use shuffle_protocol::message::{DiagnoseCorruption, Message, OpenBlocks};
use shuffle_protocol::{ShuffleId, map_output};

use super::hold::Hold;
use super::*;

/// The stream opens, its chunks fail with the text that people and tools know, and the connection goes
/// on.
#[tokio::test]
async fn c20_spark_27736_the_text_for_an_executor_nobody_registered() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = written(&service, "app_1", "7");
    let text = "java.lang.RuntimeException: Executor is not registered (appId=app_1, execId=7)";
    let stream = client.open(executor.fetch(0, &[(0, &[0, 1])])).await.unwrap();
    assert_eq!(stream.num_chunks, 2);
    for number in 0..2 {
        assert_eq!(client.chunk(chunk(&stream, number)).await, Err(text.to_owned()));
    }
    let blocks = OpenBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: ["shuffle_0_0_0"].iter().collect(),
    };
    let stream = client.open(blocks).await.unwrap();
    let by_name = client.stream(&format!("{}_0", stream.stream_id.0)).await;
    assert_eq!(by_name, Err(text.to_owned()));
    assert_eq!(errors(&service), BTreeMap::from([("not-registered".to_owned(), 3)]));

    // Another executor of the application does not help; registering this one does.
    registered(&service, &mut client, "app_1", "8").await;
    let chunks = client.fetch(executor.fetch(0, &[(0, &[0])])).await.unwrap();
    assert_eq!(chunks, [Err(text.to_owned())]);
    client.rpc(executor.registration()).await.unwrap();
    assert_served(&mut client, &executor).await;

    // After an expiry the text is the same, and the operator can see why.
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    wait_removed(&service, "app_1");
    let chunks = client.fetch(executor.fetch(0, &[(0, &[0])])).await.unwrap();
    assert_eq!(chunks, [Err(text.to_owned())]);
    assert_eq!(app(&service, "app_1").expired.unwrap().reason, "heartbeat-timeout");
}

/// Few descriptors, many connections, each with far more chunks under way: they wait, none fails.
#[tokio::test]
async fn c26_spark_4307_few_descriptors_are_enough() {
    const CONNECTIONS: usize = 64;
    const CHUNKS: i32 = 500;
    let service = command().durable().descriptor_limit(256).start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = FixtureExecutor::new("app", "1", &[&service.root()]);
    // Ten map outputs of fifty partitions, so that files are opened again and again.
    for map in 0..10 {
        let partitions: Vec<_> = (0..50).map(|r| partition(MapId(map), ReduceId(r), 300)).collect();
        executor.write_map_output(0, map, &partitions);
    }
    client.rpc(executor.registration()).await.unwrap();
    drop(client);
    let reduces: Vec<i32> = (0..50).collect();
    let maps: Vec<(i64, &[i32])> = (0..10).map(|map| (map, reduces.as_slice())).collect();

    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = RawClient::connect(service.shuffle).await;
        let stream = client.open(executor.fetch(0, &maps)).await.unwrap();
        assert_eq!(stream.num_chunks, CHUNKS);
        let mut requests = bytes::BytesMut::new();
        (0..CHUNKS).for_each(|c| Frame::ChunkFetchRequest(chunk(&stream, c)).encode(&mut requests));
        client.send_bytes(&requests).await.unwrap();
        clients.push((client, stream));
    }
    for (client, stream) in &mut clients {
        for number in 0..CHUNKS {
            let answer = client.next().await.expect("the connection goes on");
            let chunk = chunk(stream, number);
            assert_eq!(answer.frame, Frame::ChunkFetchSuccess { chunk, length: 300 });
            let (map, reduce) = (MapId(i64::from(number / 50)), ReduceId(number % 50));
            assert_eq!(answer.data, partition(map, reduce, 300));
        }
    }
    drop(clients);
    assert_eq!(errors(&service), BTreeMap::new());
    assert_eq!(service.log_lines("WARN"), [""; 0]);
    assert_nothing_open(&service);
}

/// A file that got shorter between the opening of the stream and the chunk: a failure with a name, and
/// the connection goes on.
#[tokio::test]
async fn c35_a_file_truncated_after_the_open_is_a_chunk_failure() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let stream = client.open(executor.fetch(0, &[(0, &[0, 1, 2])])).await.unwrap();
    assert_eq!(client.chunk(chunk(&stream, 0)).await, Ok(content(0)));
    truncate(&executor.data_path(0, 0), 1500);
    let text = client.chunk(chunk(&stream, 1)).await.unwrap_err();
    let path = executor.data_path(0, 0);
    assert!(text.contains(&format!("{} has 1500 bytes", path.display())), "{text}");
    assert!(text.contains("byte 2000"), "{text}");
    assert_eq!(client.chunk(chunk(&stream, 2)).await, Ok(vec![]), "no bytes, so none are missing");
    let chunks = client.fetch(executor.fetch(0, &[(0, &[0])])).await;
    assert_eq!(chunks, Ok(vec![Ok(content(0))]), "what is still there is served");
    assert_eq!(errors(&service), BTreeMap::from([("bad-file".to_owned(), 1)]));
}

/// During the transfer: the promised length cannot be kept, so the connection is closed, at once and
/// without a processor that spins on a file that gives no bytes.
#[tokio::test]
async fn c35_spark_28849_a_file_truncated_during_the_transfer_closes_the_connection() {
    const LENGTH: u64 = 256 << 20;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    sparse_map_output(&executor, 1, LENGTH);
    let mut other = RawClient::connect(service.shuffle).await;
    for by_name in [false, true] {
        truncate(&executor.data_path(0, 1), LENGTH);
        let mut slow = RawClient::connect(service.shuffle).await;
        let stream = slow.open(executor.fetch(0, &[(1, &[0])])).await.unwrap();
        slow.send(&if by_name {
            Frame::StreamRequest { name: format!("{}_0", stream.stream_id.0) }
        } else {
            Frame::ChunkFetchRequest(chunk(&stream, 0))
        })
        .await;
        match slow.event().await {
            Some(Event::Frame(frame)) => assert_eq!(frame.streamed(), LENGTH),
            other => panic!("expected the beginning of the chunk, got {other:?}"),
        }
        // It reads nothing for now, so most of the file is still to be sent.
        truncate(&executor.data_path(0, 1), 1 << 20);
        assert_served(&mut other, &executor).await;
        let mut received = 0;
        while let Some(event) = slow.event().await {
            match event {
                Event::Data { bytes, last } => {
                    assert!(!last, "bytes that are not there");
                    received += bytes.len() as u64;
                }
                Event::Frame(frame) => panic!("a frame within a chunk: {frame:?}"),
            }
        }
        assert!(received < LENGTH);
    }
    // Both are told in one line, which names the file and the peer.
    let lines = service.log_lines("after its length was promised");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(&executor.data_path(0, 1).display().to_string()), "{lines:?}");
    assert!(lines[0].contains("peer=127.0.0.1:"), "{lines:?}");
    assert_eq!(errors(&service), BTreeMap::from([("bad-file".to_owned(), 2)]));
    assert_idle(&service, "after the truncation").await;
    assert_served(&mut other, &executor).await;
}

/// A partition without bytes is a header without a body, and nothing to wait for.
#[tokio::test]
async fn c35_partitions_without_bytes_are_served_without_spinning() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    // Spark writes no data file at all for a map output that is empty altogether.
    executor.write_map_output(0, 1, &["", "", ""]);
    fs::remove_file(executor.data_path(0, 1)).unwrap();
    executor.write_map_output(0, 2, &["", "x", ""]);
    let chunks =
        client.fetch(executor.fetch(0, &[(0, &[2]), (1, &[0, 1, 2]), (2, &[0, 1, 2])])).await;
    let sizes: Vec<_> =
        chunks.unwrap().into_iter().map(|chunk| chunk.expect("a chunk").len()).collect();
    assert_eq!(sizes, [0, 0, 0, 0, 0, 1, 0]);
    let stream = client.open(executor.fetch(0, &[(1, &[0, 1])])).await.unwrap();
    for number in 0..2 {
        let name = format!("{}_{number}", stream.stream_id.0);
        assert_eq!(client.stream(&name).await, Ok(vec![]));
    }
    assert_idle(&service, "after empty chunks").await;
    assert_eq!(errors(&service), BTreeMap::new());
}

/// A peer that reads nothing costs nothing, and disturbs nobody.
#[tokio::test]
async fn c35_a_peer_that_does_not_read_is_waited_for_without_spinning() {
    const LENGTH: u64 = 256 << 20;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    sparse_map_output(&executor, 1, LENGTH);
    let mut slow = RawClient::connect(service.shuffle).await;
    let stream = slow.open(executor.fetch(0, &[(1, &[0])])).await.unwrap();
    slow.send(&Frame::ChunkFetchRequest(chunk(&stream, 0))).await;
    assert!(slow.event().await.is_some());
    assert_idle(&service, "while a peer does not read").await;
    assert_served(&mut client, &executor).await;
    let mut received = 0;
    while received < LENGTH {
        match slow.event().await {
            Some(Event::Data { bytes, .. }) => received += bytes.len() as u64,
            other => panic!("expected the rest of the chunk, got {other:?}"),
        }
    }
}

/// Over a second or more of doing nothing, the service uses far less than a processor.
async fn assert_idle(service: &ServiceProcess, when: &str) {
    let (start, before) = (Instant::now(), cpu_ticks(service));
    canary_expires(service, &format!("canary {when}"), seconds(1)).await;
    let used =
        Duration::from_millis(10) * u32::try_from(cpu_ticks(service) - before).expect("a few");
    let passed = start.elapsed();
    assert!(used < passed / 3, "{when} the service used {used:?} of {passed:?}");
}

/// What is larger than a frame: in a stream of its own, whole; in a frame, a failure that says what to
/// set.
#[tokio::test]
async fn c38_spark_27876_a_partition_of_three_gibibytes() {
    const LENGTH: u64 = 3 << 30;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let marks = sparse_map_output(&executor, 1, LENGTH);
    let before = service.resident_bytes();

    let stream = client.open(executor.fetch(0, &[(1, &[0])])).await.unwrap();
    let text = client.chunk(chunk(&stream, 0)).await.unwrap_err();
    assert!(text.contains(&format!("a block of {LENGTH} bytes")), "{text}");
    assert!(text.contains("spark.network.maxRemoteBlockSizeFetchToMem"), "{text}");

    let stream = client.open(executor.fetch(0, &[(1, &[0])])).await.unwrap();
    let name = format!("{}_0", stream.stream_id.0);
    client.send(&Frame::StreamRequest { name: name.clone() }).await;
    let answer = client.event().await;
    assert_eq!(answer, Some(Event::Frame(Frame::StreamResponse { name, length: LENGTH })));
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < LENGTH {
        let Some(Event::Data { bytes, .. }) = client.event().await else {
            panic!("the stream ended after {at} bytes");
        };
        let mut expected = &zeros[..bytes.len()];
        let patched: Vec<u8>;
        if let Some(mark) = marks.iter().find(|m| **m + 8 > at && **m < at + bytes.len() as u64) {
            patched = (at..at + bytes.len() as u64).map(|at| marked(*mark, at)).collect();
            expected = &patched;
        }
        assert!(*bytes == *expected, "other bytes between {at} and {}", at + bytes.len() as u64);
        at += bytes.len() as u64;
    }
    assert_served(&mut client, &executor).await;
    let after = service.resident_bytes();
    assert!(after < before + (32 << 20), "memory went from {before} to {after} bytes");
    assert!(service.metric("shuffleService_blockTransferRateBytes_total") > 3e9);
}

/// A map output number `map` with one partition of `length` bytes, zero but for eight bytes at each of
/// the places returned: the beginning, the end, and where 32 bits end.
fn sparse_map_output(executor: &FixtureExecutor, map: i64, length: u64) -> Vec<u64> {
    executor.write_map_output(0, map, &["x"]);
    let mut index = 0u64.to_be_bytes().to_vec();
    index.extend(length.to_be_bytes());
    let own = "the test's own file can be written";
    fs::write(executor.index_path(0, map), index).expect(own);
    let data = File::create(executor.data_path(0, map)).expect(own);
    data.set_len(length).expect(own);
    let marks = [0, length / 3, (1 << 31) - 4, (1 << 31) + (1 << 20), length - 8];
    let marks: Vec<u64> = marks.into_iter().filter(|mark| *mark + 8 <= length).collect();
    for mark in &marks {
        let bytes: Vec<u8> = (*mark..*mark + 8).map(|at| marked(*mark, at)).collect();
        data.write_all_at(&bytes, *mark).expect(own);
    }
    marks
}

/// The byte at `at` where the only mark near is at `mark`.
fn marked(mark: u64, at: u64) -> u8 {
    if (mark..mark + 8).contains(&at) { (mark / 7 + at).to_le_bytes()[0] | 1 } else { 0 }
}

fn truncate(path: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the test's own file");
    file.set_len(length).expect("it can be written");
}

/// A missing RDD block is a failure, not a block without bytes.
#[tokio::test]
async fn c41_spark_27677_a_missing_rdd_block_is_a_failure() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    executor.write("rdd_1_0", &content(0));
    executor.write("rdd_1_1", b"");
    let blocks = OpenBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: ["rdd_1_0", "rdd_1_1", "rdd_1_2"].iter().collect(),
    };
    let missing = "java.lang.IllegalStateException: Chunk was not found".to_owned();
    let chunks = client.fetch(blocks.clone()).await;
    assert_eq!(chunks, Ok(vec![Ok(content(0)), Ok(vec![]), Err(missing)]));

    let stream = client.open(blocks).await.unwrap();
    let name = |chunk: i32| format!("{}_{chunk}", stream.stream_id.0);
    assert_eq!(client.stream(&name(0)).await, Ok(content(0)));
    assert_eq!(client.stream(&name(1)).await, Ok(vec![]));
    let missing = format!("Stream '{}' was not found.", name(2));
    assert_eq!(client.stream(&name(2)).await, Err(missing));
    assert_eq!(errors(&service), BTreeMap::from([("file-missing".to_owned(), 2)]));
    assert_served(&mut client, &executor).await;
}

/// Who damaged a block: the writer's disk, or the network. Never an RPC that fails.
#[tokio::test]
async fn c42_spark_36206_the_diagnosis_of_a_corrupt_block() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let checksum_file = |map: i64, algorithm| {
        let (shuffle, map) = (ShuffleId(0), MapId(map));
        executor.block_path(&BlockId::ShuffleChecksum { shuffle, map, algorithm })
    };
    for (map, algorithm) in (10..).zip(Algorithm::ALL) {
        let partitions = [content(0), content(1)];
        for (block, bytes) in map_output::files(ShuffleId(0), MapId(map), &partitions, algorithm) {
            executor.write(&block.file_name().unwrap(), &bytes);
        }
        let mut sum = Checksummer::new(algorithm);
        sum.update(&content(1));
        let ask = |checksum: i64, algorithm: &str| DiagnoseCorruption {
            app_id: executor.app_id.clone(),
            exec_id: executor.exec_id.clone(),
            shuffle_id: ShuffleId(0),
            map_id: MapId(map),
            reduce_id: ReduceId(1),
            checksum,
            algorithm: algorithm.to_owned(),
        };
        let (right, wrong) = (ask(sum.value(), algorithm.name()), ask(77, algorithm.name()));
        let passes = Ok(Message::CorruptionCause(CorruptionCause::ChecksumVerifyPass));
        assert_eq!(client.ask(right.clone()).await, passes, "{algorithm:?}");
        let network = Ok(Message::CorruptionCause(CorruptionCause::NetworkIssue));
        assert_eq!(client.ask(wrong.clone()).await, network, "{algorithm:?}");
        let unsupported =
            Ok(Message::CorruptionCause(CorruptionCause::UnsupportedChecksumAlgorithm));
        assert_eq!(client.ask(ask(sum.value(), "MD5")).await, unsupported);

        // One bit on the disk; the reader may have seen the good or the bad one.
        let data = OpenOptions::new().write(true).open(executor.data_path(0, map)).unwrap();
        data.write_all_at(&[content(1)[500] ^ 1], 1500).unwrap();
        let disk = Ok(Message::CorruptionCause(CorruptionCause::DiskIssue));
        assert_eq!(client.ask(right.clone()).await, disk, "{algorithm:?}");
        assert_eq!(client.ask(wrong.clone()).await, disk, "{algorithm:?}");

        // What is missing is no reason to fail.
        let unknown = Ok(Message::CorruptionCause(CorruptionCause::UnknownIssue));
        truncate(&checksum_file(map, algorithm), 8);
        assert_eq!(client.ask(right.clone()).await, unknown, "no entry for the partition");
        fs::remove_file(checksum_file(map, algorithm)).unwrap();
        assert_eq!(client.ask(right.clone()).await, unknown, "no checksums");
        fs::remove_file(executor.index_path(0, map)).unwrap();
        assert_eq!(client.ask(right.clone()).await, unknown, "no index");
    }
    assert_served(&mut client, &executor).await;
}

/// Missing, short and inconsistent files, and what is no file at all: a failure that names the file and
/// what is wrong with it, and the connection goes on.
#[tokio::test]
async fn bad_files_are_chunk_failures_that_name_the_file() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let offsets = |offsets: &[i64]| -> Vec<u8> {
        offsets.iter().flat_map(|offset| offset.to_be_bytes()).collect()
    };
    type Damage<'a> = (&'a str, Box<dyn Fn(&Path, &Path) + 'a>, &'a str, &'a str);
    let damages: Vec<Damage<'_>> = vec![
        ("no index", Box::new(|i, _| fs::remove_file(i).unwrap()), "index", "no such file"),
        ("no data", Box::new(|_, d| fs::remove_file(d).unwrap()), "data", "no such file"),
        ("index of no bytes", Box::new(|i, _| truncate(i, 0)), "index", "too short: 0 bytes"),
        ("index of 7 bytes", Box::new(|i, _| truncate(i, 7)), "index", "too short: 7 bytes"),
        ("short index", Box::new(|i, _| truncate(i, 16)), "index", "out of range"),
        ("short data", Box::new(|_, d| truncate(d, 999)), "data", "has 999 bytes"),
        (
            "negative offset",
            Box::new(|i, _| fs::write(i, offsets(&[0, -5, 2000, 2000])).unwrap()),
            "index",
            "-5",
        ),
        (
            "offsets that go back",
            Box::new(|i, _| fs::write(i, offsets(&[0, 1000, 10, 2000])).unwrap()),
            "index",
            "1000",
        ),
        (
            "offsets far away",
            Box::new(|i, _| fs::write(i, offsets(&[0, 1000, i64::MAX, i64::MAX])).unwrap()),
            "data",
            "has 2000 bytes",
        ),
        ("huge index", Box::new(|i, _| truncate(i, 1 << 40)), "index", "1099511627776 bytes"),
        (
            "index is a directory",
            Box::new(|i, _| {
                fs::remove_file(i).unwrap();
                fs::create_dir(i).unwrap();
            }),
            "index",
            "not a regular file",
        ),
        (
            "data is a FIFO",
            Box::new(|_, d| {
                fs::remove_file(d).unwrap();
                let mode = Mode::from_raw_mode(0o666);
                mknodat(rustix::fs::CWD, d, FileType::Fifo, mode, 0).unwrap();
            }),
            "data",
            "not a regular file",
        ),
        (
            "index is a link",
            Box::new(|i, d| {
                let aside = d.with_extension("aside");
                fs::rename(i, &aside).unwrap();
                std::os::unix::fs::symlink(&aside, i).unwrap();
            }),
            "index",
            "symbolic link",
        ),
    ];
    for (map, (what, damage, file, why)) in (1..).zip(damages) {
        executor.write_map_output(0, map, &[content(0), content(1), content(2)]);
        // With the good index in memory it must not make a difference.
        for warm in [false, true] {
            if warm {
                let _ = client.fetch(executor.fetch(0, &[(0, &[0])])).await;
            } else {
                damage(&executor.index_path(0, map), &executor.data_path(0, map));
            }
            let chunks = client.fetch(executor.fetch(0, &[(map, &[1])])).await.unwrap();
            let text = chunks[0].clone().expect_err(what);
            let path = match file {
                "index" => executor.index_path(0, map),
                _ => executor.data_path(0, map),
            };
            assert!(text.contains(&path.display().to_string()), "{what}: {text}");
            assert!(text.contains(why), "{what}: {text}");
        }
        assert_served(&mut client, &executor).await;
    }
    assert_eq!(open_files(&service).iter().filter(|f| f.starts_with(service.root())).count(), 1);
}

/// While a disk hangs, everything that does not need it goes on: registration, heartbeats, expiry,
/// blocks of another disk. When it comes back, nothing was lost.
#[tokio::test]
async fn a_stuck_disk_stops_nobody_else() {
    let command = command();
    let disks = ["disk-1", "disk-2"].map(|disk| command.root().join(disk));
    disks.iter().for_each(|disk| fs::create_dir(disk).unwrap());
    let roots = disks.each_ref().map(|disk| disk.to_str().unwrap());
    let service = command.conf("shuffled.local.dirs", &roots.join(",")).start();
    let executor = |app: &str, disk: &Path| {
        let executor = FixtureExecutor::new(app, "1", &[disk]);
        executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
        executor
    };
    let (stuck, fine) = (executor("stuck", &disks[0]), executor("fine", &disks[1]));
    let late = executor("late", &disks[1]);
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(stuck.registration()).await.unwrap();
    client.rpc(fine.registration()).await.unwrap();
    assert_served(&mut client, &stuck).await;
    let data = stuck.data_path(0, 0);
    let Some(hold) = Hold::stuck(&[data.parent().unwrap()]) else {
        eprintln!("SKIPPED: this takes CAP_SYS_ADMIN");
        return;
    };
    // More than the threads that one disk may have.
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let mut client = RawClient::connect(service.shuffle).await;
        let stream = client.open(stuck.fetch(0, &[(0, &[0, 1])])).await.unwrap();
        for number in 0..2 {
            client.send(&Frame::ChunkFetchRequest(chunk(&stream, number))).await;
        }
        // A heartbeat behind chunks that hang, on the same connection.
        client.one_way(fine.heartbeat()).await;
        waiting.push((client, stream));
    }
    let in_transfer = || service.metric("shuffled_chunks_in_transfer") == 200.0;
    wait_for("all of them to wait", || in_transfer().then_some(()));

    client.rpc(fine.driver(seconds(2))).await.unwrap();
    client.rpc(late.registration()).await.unwrap();
    assert_served(&mut client, &late).await;
    until("an expiry while the disk hangs", async || {
        // Beats and blocks all the while.
        assert_eq!(client.rpc(fine.heartbeat()).await, Ok(bytes::Bytes::new()));
        assert_served(&mut client, &fine).await;
        if expired(&service, "late").is_none()
            && app(&service, "late").app.unwrap().driver.is_none()
        {
            client.rpc(late.driver(seconds(1))).await.unwrap();
        }
        expired(&service, "late")
    })
    .await;
    wait_removed(&service, "late");
    assert!(!late.local_dirs[0].exists());
    assert!(in_transfer(), "nothing of the stuck disk was answered meanwhile");

    drop(hold);
    for (client, stream) in &mut waiting {
        for number in 0..2 {
            let answer = client.next().await.expect("the connection was not closed");
            let chunk = chunk(stream, number);
            assert_eq!(answer.frame, Frame::ChunkFetchSuccess { chunk, length: 1000 });
            assert_eq!(answer.data, content(number));
        }
    }
    assert_eq!(errors(&service), BTreeMap::new());
}

/// The index of a map output may lie on another disk than its data. When that one hangs, only those who
/// need it wait, and not all who read from the disk of the data.
#[tokio::test]
async fn a_stuck_disk_takes_no_thread_of_another_disk() {
    let command = command();
    let disks = ["disk-1", "disk-2", "disk-3"].map(|disk| command.root().join(disk));
    disks.iter().for_each(|disk| fs::create_dir(disk).unwrap());
    let roots = disks.each_ref().map(|disk| disk.to_str().unwrap());
    let service = command.conf("shuffled.local.dirs", &roots.join(",")).start();
    // With two directories both files are always in the same one.
    let split = FixtureExecutor::new("split", "1", &disks.each_ref().map(PathBuf::as_path));
    let map = (0..1000)
        .find(|&map| {
            split.index_path(0, map).starts_with(&disks[0])
                && split.data_path(0, map).starts_with(&disks[1])
        })
        .unwrap();
    split.write_map_output(0, map, &[content(0)]);
    let fine = FixtureExecutor::new("fine", "1", &[&disks[1]]);
    fine.write_map_output(0, 0, &[content(0), content(1), content(2)]);
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(split.registration()).await.unwrap();
    client.rpc(fine.registration()).await.unwrap();
    let index = split.index_path(0, map);
    let Some(hold) = Hold::stuck(&[index.parent().unwrap()]) else {
        eprintln!("SKIPPED: this takes CAP_SYS_ADMIN");
        return;
    };
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let mut client = RawClient::connect(service.shuffle).await;
        let stream = client.open(split.fetch(0, &[(map, &[0])])).await.unwrap();
        client.send(&Frame::ChunkFetchRequest(chunk(&stream, 0))).await;
        waiting.push(client);
    }
    let in_transfer = || service.metric("shuffled_chunks_in_transfer") == 100.0;
    wait_for("all of them to wait", || in_transfer().then_some(()));
    // Whichever of them had a turn on the disk of the data by now, this one has its own.
    let served = assert_served(&mut client, &fine);
    tokio::time::timeout(PATIENCE, served).await.expect("blocks of the other disk");
    assert!(in_transfer(), "nothing of the stuck disk was answered meanwhile");

    drop(hold);
    for client in &mut waiting {
        assert_eq!(client.next().await.expect("the connection goes on").data, content(0));
    }
    assert_eq!(errors(&service), BTreeMap::new());
}
