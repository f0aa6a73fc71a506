//! What is kept in memory, and for how long: C05, C25, C27, C28.

use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::{GetLocalDirsForExecutors, Message, OpenBlocks, RegisterDriver};
use shuffle_protocol::{ExecId, RequestId, ShuffleId};

use super::*;

/// Sends `messages` as RPCs without waiting, then takes all answers.
async fn pipelined(
    client: &mut RawClient,
    messages: impl Iterator<Item = Message>,
) -> Vec<Message> {
    let mut requests = bytes::BytesMut::new();
    let mut count = 0;
    for message in messages {
        count += 1;
        Frame::RpcRequest { id: RequestId(count), body: message.encode() }.encode(&mut requests);
    }
    client.send_bytes(&requests).await.expect("the service takes requests");
    let mut answers = Vec::new();
    for number in 1..=count {
        match client.next().await.expect("the connection goes on").frame {
            Frame::RpcResponse { id: RequestId(id), body } => {
                assert_eq!(id, number);
                answers
                    .extend((!body.is_empty()).then(|| Message::decode(body).expect("a message")));
            }
            other => panic!("expected an answer, got {other:?}"),
        }
    }
    answers
}

/// Ten thousand applications come and go, each with an executor and a stream that nobody reads to its
/// end; every tenth has files, which are read.
#[tokio::test]
async fn c05_spark_4994_what_belongs_to_an_application_goes_with_it() {
    const BATCH: usize = 625;
    const BATCHES: usize = 16;
    // Open streams would keep them for a while.
    let service = command().conf("shuffled.cleanup.maxDeferral", "0").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let mut resident = Vec::new();
    for batch in 0..BATCHES {
        let apps = (0..BATCH).map(|n| format!("app-{batch}-{n}"));
        let executors: Vec<_> = apps
            .map(|app| {
                let dir = service.root().join(format!("blockmgr-{app}"));
                FixtureExecutor { app_id: app.into(), exec_id: "1".into(), local_dirs: vec![dir] }
            })
            .collect();
        let with_files = || executors.iter().step_by(10);
        with_files().for_each(|e| e.write_map_output(0, 0, &[content(0), content(1)]));
        pipelined(&mut client, executors.iter().map(|e| e.registration().into())).await;
        let open = executors.iter().map(|e| e.fetch(0, &[(0, &[0, 1])]).into());
        for stream in pipelined(&mut client, open).await.into_iter().step_by(10) {
            let Message::StreamHandle(stream) = stream else { panic!("expected a stream") };
            assert_eq!(client.chunk(chunk(&stream, 0)).await, Ok(content(0)));
        }
        assert_eq!(service.metric("shuffled_streams_open"), BATCH as f64);
        // Only now, since a millisecond is soon over.
        let drivers = executors
            .iter()
            .map(|e| RegisterDriver { app_id: e.app_id.clone(), heartbeat_timeout_ms: 1 }.into());
        pipelined(&mut client, drivers).await;
        wait_gauges_zero(
            &service,
            &["shuffled_apps", "shuffled_streams_open", "shuffled_removals_pending"],
        );
        resident.push(service.resident_bytes());
    }
    drop(client);
    assert_gauges_zero(&service);
    assert_eq!(service.metric("shuffled_dirs_removed_total"), (BATCH * BATCHES) as f64);
    assert_eq!(fs::read_dir(service.root()).unwrap().count(), 0);
    let (half, end) = (resident[BATCHES / 2 - 1], resident[BATCHES - 1]);
    // An allocator goes on filling its arenas for a while; what stayed of an application, its executor and
    // its stream would be more than this for each.
    let apps = (BATCH * BATCHES / 2) as u64;
    assert!(end.saturating_sub(half) < 1024 * apps, "memory after each batch: {resident:?}");
}

/// Open streams cost a few bytes a block, and open no file.
#[tokio::test]
async fn c25_spark_20426_an_open_stream_is_a_list_of_numbers() {
    const CONNECTIONS: usize = 10;
    const STREAMS: usize = 100;
    const BLOCKS: i32 = 5000;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let ids: Vec<_> = (0..BLOCKS).map(|reduce| format!("shuffle_0_0_{reduce}")).collect();
    let old = Message::from(OpenBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: ids.iter().collect(),
    });
    let reduces: Vec<i32> = (0..BLOCKS).collect();
    let new = Message::from(executor.fetch(0, &[(0, &reduces)]));
    let before = service.resident_bytes();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = RawClient::connect(service.shuffle).await;
        for _ in 0..STREAMS / 2 {
            for message in [&old, &new] {
                assert_eq!(client.open(message.clone()).await.unwrap().num_chunks, BLOCKS);
            }
        }
        clients.push(client);
    }
    let grown = service.resident_bytes().saturating_sub(before);
    let streams = CONNECTIONS * STREAMS;
    assert_eq!(service.metric("shuffled_streams_open"), streams as f64, "none was dropped");
    let blocks = streams as u64 * u64::try_from(BLOCKS).unwrap();
    assert!(grown < 100 * blocks, "{grown} bytes for {blocks} blocks");
    let opened: Vec<_> = open_files(&service)
        .into_iter()
        .filter(|f| f.starts_with(&executor.local_dirs[0]))
        .collect();
    assert_eq!(opened, [""; 0].map(PathBuf::from));
    drop(clients);
    drop(client);
    assert_nothing_open(&service);
}

fn one_block(executor: &FixtureExecutor) -> Message {
    executor.fetch(0, &[(0, &[0])]).into()
}

/// A client that opens and never fetches: bounded while it stays, nothing when it has gone.
#[tokio::test]
async fn c27_spark_26418_streams_that_nobody_reads_are_bounded() {
    const STREAMS: usize = 100_000;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let mut last = None;
    for _ in 0..STREAMS / 1000 {
        let open = (0..1000).map(|_| one_block(&executor));
        last = pipelined(&mut client, open).await.pop();
    }
    assert_eq!(service.metric("shuffled_streams_open"), 65_536.0);
    let Some(Message::StreamHandle(last)) = last else { panic!("expected a stream") };
    assert_eq!(
        client.chunk(chunk(&last, 0)).await,
        Ok(content(0)),
        "the latest are those that stay"
    );

    // The limit is one of the connection, so others are not disturbed.
    let mut other = RawClient::connect(service.shuffle).await;
    assert_served(&mut other, &executor).await;
    drop(other);
    drop(client);
    assert_nothing_open(&service);
}

/// The application expires while its streams are open and a chunk of it is under way.
#[tokio::test]
async fn c28_spark_30246_streams_of_an_expired_application_go() {
    // Open streams would keep their application for a while.
    let service = command().conf("shuffled.cleanup.maxDeferral", "0").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let dying = registered(&service, &mut client, "dying", "1").await;
    let living = registered(&service, &mut client, "living", "1").await;
    let open = (0..1000).map(|n| one_block(if n % 10 == 0 { &living } else { &dying }));
    pipelined(&mut client, open).await;
    let kept = client.open(one_block(&living)).await.unwrap();
    let lost = client.open(one_block(&dying)).await.unwrap();
    client.rpc(dying.driver(seconds(1))).await.unwrap();
    wait_removed(&service, "dying");
    wait_for("the streams of the one to go", || {
        (service.metric("shuffled_streams_open") == 101.0).then_some(())
    });
    assert!(client.chunk(chunk(&lost, 0)).await.unwrap_err().contains("Unknown stream ID."));
    assert_eq!(client.chunk(chunk(&kept, 0)).await, Ok(content(0)));

    // The other way round: closed first, expired afterwards; and a stream of an application that was
    // never there.
    pipelined(&mut client, (0..100).map(|_| one_block(&living))).await;
    let nobody =
        FixtureExecutor { exec_id: ExecId::from("x"), app_id: "nobody".into(), ..living.clone() };
    client.open(one_block(&nobody)).await.unwrap();
    drop(client);
    wait_gauges_zero(&service, &["shuffled_streams_open"]);
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(living.driver(seconds(1))).await.unwrap();
    drop(client);
    wait_removed(&service, "living");
    assert_gauges_zero(&service);
}

/// More applications expire at once than the service remembers: their streams go all the same.
#[tokio::test]
async fn c28_streams_go_however_many_applications_expire_at_once() {
    const APPS: usize = 3000;
    // Open streams would keep their applications for a while.
    let service = command().conf("shuffled.cleanup.maxDeferral", "0").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executors: Vec<_> = (0..APPS)
        .map(|n| FixtureExecutor {
            app_id: format!("app-{n}").into(),
            exec_id: "1".into(),
            local_dirs: vec![service.root().join("blockmgr-x")],
        })
        .collect();
    pipelined(&mut client, executors.iter().map(|e| e.registration().into())).await;
    pipelined(&mut client, executors.iter().map(one_block)).await;
    let drivers = executors
        .iter()
        .map(|e| RegisterDriver { app_id: e.app_id.clone(), heartbeat_timeout_ms: 1 }.into());
    pipelined(&mut client, drivers).await;
    wait_gauges_zero(&service, &["shuffled_apps", "shuffled_streams_open"]);
}

/// A peer that asks and does not read, and then breaks the connection: however far the service came
/// with its requests, nothing of them is counted for ever.
#[tokio::test]
async fn c27_chunks_that_a_broken_connection_asked_for_are_not_under_way() {
    const CHUNKS: i32 = 40_000;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    executor.write_map_output(0, 1, &[vec![7; 64 << 20]]);
    let mut broken = RawClient::connect(service.shuffle).await;
    let reduces = vec![0; usize::try_from(CHUNKS).expect("positive")];
    let stream = broken.open(executor.fetch(0, &[(1, &reduces)])).await.expect("a stream");
    let mut requests = bytes::BytesMut::new();
    for number in 0..CHUNKS {
        Frame::ChunkFetchRequest(chunk(&stream, number)).encode(&mut requests);
    }
    broken.send_bytes(&requests).await.expect("the service takes requests");
    until("the queue to be full", async || {
        let queued = service.metric("shuffled_chunks_in_transfer");
        (queued > 16_384.0).then_some(())
    })
    .await;
    drop(broken);
    drop(client);
    assert_nothing_open(&service);
}

/// Answers that nobody reads do not pile up, however short the questions.
#[tokio::test]
async fn c50_large_answers_to_short_questions_wait_for_their_reader() {
    const QUESTIONS: i64 = 150;
    const DIRS: usize = 1000;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let mut executor = written(&service, "app", "1");
    let name = "d".repeat(200);
    let deep = (0..18).fold(service.root(), |dir, _| dir.join(&name));
    executor.local_dirs = (0..DIRS).map(|number| deep.join(number.to_string())).collect();
    client.rpc(executor.registration()).await.expect("a registration");
    let before = service.resident_bytes();

    let question = GetLocalDirsForExecutors {
        app_id: executor.app_id.clone(),
        exec_ids: ["1"].into_iter().collect(),
    };
    let body = Message::from(question).encode();
    let mut requests = bytes::BytesMut::new();
    for number in 1..=QUESTIONS {
        Frame::RpcRequest { id: RequestId(number), body: body.clone() }.encode(&mut requests);
    }
    client.send_bytes(&requests).await.expect("the service takes requests");
    canary_expires(&service, "canary", seconds(1)).await;
    let grown = service.resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for {QUESTIONS} short questions");
    for number in 1..=QUESTIONS {
        let answer = client.next().await.expect("the connection goes on").frame;
        let Frame::RpcResponse { id, body } = answer else { panic!("{answer:?}") };
        assert_eq!(id, RequestId(number));
        assert!(body.len() > DIRS * 3600);
    }
}

/// The most memory that the process ever had.
fn peak_bytes(service: &ServiceProcess) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// A file with a hole in it may have any size on a full disk.
#[tokio::test]
async fn c25_an_index_of_any_size_costs_no_memory() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    executor.write_map_output(0, 1, &["x"]);
    let index = BlockId::ShuffleIndex { shuffle: ShuffleId(0), map: MapId(1) };
    let file = fs::File::options().write(true).open(executor.block_path(&index)).unwrap();
    file.set_len(1 << 28).unwrap();
    let before = peak_bytes(&service);
    let chunks = client.fetch(executor.fetch(0, &[(1, &[0, 5, 1, 40_000_000])])).await.unwrap();
    assert_eq!(chunks[..2], [Ok(b"x".to_vec()), Ok(Vec::new())]);
    let text = chunks[2].clone().unwrap_err();
    assert!(text.contains("damaged: offset 1 is 1, but offset 2 is 0"), "{text}");
    let text = chunks[3].clone().unwrap_err();
    assert!(text.contains("out of range: the index has 33554431"), "{text}");
    let grown = peak_bytes(&service) - before;
    assert!(grown < 32 << 20, "{grown} bytes");
    assert_served(&mut client, &executor).await;
}

/// Names of any length are neither remembered by who keeps the log short, nor written into it whole.
#[tokio::test]
async fn c43_long_names_fill_neither_memory_nor_the_log() {
    const NAMES: usize = 50;
    const LENGTH: usize = 4 << 20;
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let before = service.resident_bytes();
    for number in 0..NAMES {
        let name = format!("{number}{}", "x".repeat(LENGTH));
        let unknown = FixtureExecutor { app_id: name.into(), ..executor.clone() };
        let chunks = client.fetch(unknown.fetch(0, &[(0, &[0])])).await.unwrap();
        assert!(chunks[0].clone().unwrap_err().contains("is not registered"));
    }
    assert_served(&mut client, &executor).await;
    let grown = service.resident_bytes().saturating_sub(before);
    assert!(grown < (NAMES / 2 * LENGTH) as u64, "{grown} bytes");
    assert_eq!(service.log_lines("Cannot serve a block").len(), NAMES);
    assert_eq!(service.log_lines("(cut, of").len(), NAMES);
    let longest = service.log().lines().map(str::len).max();
    assert!(longest < Some(LENGTH / 8), "{longest:?}");
}
