//! Our client against Spark's own Mesos service: everything it asks is understood, and a driver that
//! it keeps registered lives as long as it beats.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::{Algorithm, Checksummer};
use shuffle_protocol::message::{CorruptionCause, DiagnoseCorruption};
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout, MapId, ReduceId, ShuffleId};
use shuffled_client::{
    Checksummed, ClientOptions, DriverOptions, FetchRequest, FileSink, ServerAddr,
    ShuffleServiceClient,
};
use tempfile::TempDir;
use test_support::fixture::{FixtureExecutor, partition};
use test_support::spark::JvmService;
use tokio::time::{sleep, timeout};

const EXEC: &str = "1";
const MAPS: i64 = 3;
/// Lengths of the partitions of each map output: none, a byte, and more than a socket's buffer.
const PARTITIONS: [usize; 4] = [0, 1, 70_000, 3 << 20];

/// Of the drivers here.
const TIMEOUT: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(200);
/// Longer than anything takes. Nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every request.
pub(crate) async fn requests(service: &JvmService) {
    let disk = service.root();
    let executor = executor("app-fetch", &[disk.join("d0"), disk.join("d1")]);
    let client = client(service, ClientOptions::default());
    let (app, exec) = (executor.app_id.clone(), executor.exec_id.clone());

    let early = client.local_dirs(&app, std::slice::from_ref(&exec)).await.unwrap_err();
    assert!(early.to_string().contains("Executor is not registered"), "{early}");
    let info = executor.registration().info;
    client.register_executor(&app, &exec, &info).await.unwrap();
    client.register_executor_with_retries(&app, &exec, &info, &Default::default()).await.unwrap();

    let dirs = client.local_dirs(&app, std::slice::from_ref(&exec)).await.unwrap();
    let expected = executor.local_dirs.iter().map(|dir| dir.to_str().unwrap().to_owned()).collect();
    assert_eq!(dirs, [(exec.clone(), expected)]);

    fetch_everything(&client, &executor).await;
    let old = ClientOptions { use_old_fetch_protocol: true, ..ClientOptions::default() };
    fetch_everything(&self::client(service, old), &executor).await;
    fetch_to_files(&client, &executor).await;
    fetch_batches(&client, &executor).await;
    diagnose(&client, &executor).await;

    let removed = client.remove_blocks(&app, &exec, ["rdd_1_0", "rdd_1_7", "../x"]).await.unwrap();
    assert_eq!((removed, executor.path("rdd_1_0").exists()), (1, false));
    let blocks = vec!["rdd_1_1".parse().unwrap(), "rdd_1_0".parse().unwrap()];
    let request = FetchRequest { app_id: app.clone(), exec_id: exec.clone(), blocks };
    let mut fetched = client.fetch(request).unwrap().all().await;
    fetched.sort_by_key(|fetched| fetched.block.to_string());
    let refused = fetched[0].result.as_ref().unwrap_err();
    assert!(refused.to_string().contains("Chunk was not found"), "{refused}");
    assert!(!refused.is_retryable());
    assert_eq!(fetched[1].result.as_ref().unwrap().len(), 1000);
    client.close();
}

/// Drivers: an application stays while its driver beats, and goes when it does not.
pub(crate) async fn drivers(service: &JvmService) {
    let disk = service.root();
    let client = client(service, ClientOptions::default());
    // One kept by a DriverRegistration, which also registers again now and then; one that has
    // registered once and has nothing but heartbeats; one that nobody beats for.
    let [kept, beaten, silent] = ["app-kept", "app-beaten", "app-silent"]
        .map(|app| executor(app, &[disk.join(format!("{app}-0")), disk.join(format!("{app}-1"))]));
    for executor in [&kept, &beaten, &silent] {
        let registration = executor.registration();
        client
            .register_executor(&executor.app_id, &executor.exec_id, &registration.info)
            .await
            .unwrap();
    }
    let options = DriverOptions {
        timeout: HeartbeatTimeout::After(TIMEOUT),
        interval: INTERVAL,
        ..DriverOptions::default()
    };
    let registration = client.keep_registered(kept.app_id.clone(), options).unwrap();
    assert!(timeout(PATIENCE, registration.registered()).await.unwrap());
    for app in [&beaten.app_id, &silent.app_id] {
        client.register_driver(app, HeartbeatTimeout::After(TIMEOUT)).await.unwrap();
    }

    // The silent one is gone only after its timeout, and by then another timeout passes for those
    // that live.
    let start = Instant::now();
    let mut silent_gone = None;
    let mut status = registration.watch();
    while silent_gone.is_none_or(|at: Duration| start.elapsed() < at + TIMEOUT) {
        assert!(start.elapsed() < PATIENCE, "the service removes silent applications");
        timeout(PATIENCE, status.changed()).await.expect("it beats").unwrap();
        client.heartbeat(&beaten.app_id).await.unwrap();
        if silent_gone.is_none() && !any_left(&silent) {
            silent_gone = Some(start.elapsed());
        }
    }
    assert!(silent_gone.unwrap() >= TIMEOUT - INTERVAL, "not before its time: {silent_gone:?}");
    assert_eq!(registration.restarts(), 0);
    for executor in [&kept, &beaten] {
        assert!(executor.local_dirs.iter().all(|dir| dir.exists()), "{}", executor.app_id);
        fetch_everything(&client, executor).await;
    }

    // Nobody beats any more.
    timeout(PATIENCE, registration.close()).await.unwrap();
    for executor in [&kept, &beaten] {
        let gone = async {
            while any_left(executor) {
                sleep(Duration::from_millis(20)).await; // between two looks at another process
            }
        };
        timeout(PATIENCE, gone).await.expect("the service removes the application's directories");
        let unknown = client.local_dirs(&executor.app_id, &[EXEC.into()]).await.unwrap_err();
        assert!(unknown.to_string().contains("Executor is not registered"), "{unknown}");
    }
}

fn client(service: &JvmService, options: ClientOptions) -> ShuffleServiceClient {
    ShuffleServiceClient::new(ServerAddr::new("127.0.0.1", service.shuffle.port()), options)
}

fn executor(app: &str, disks: &[PathBuf; 2]) -> FixtureExecutor {
    let executor = FixtureExecutor::new(app, EXEC, &[&disks[0], &disks[1]]);
    for map in 0..MAPS {
        let partitions: Vec<_> = (0..4).map(|reduce| bytes_of(map, reduce)).collect();
        executor.write_map_output(0, map, &partitions);
    }
    for split in 0..2 {
        executor.write(&format!("rdd_1_{split}"), &partition(MapId(9), ReduceId(split), 1000));
    }
    executor
}

fn bytes_of(map: i64, reduce: i32) -> Vec<u8> {
    let length = PARTITIONS[usize::try_from(reduce).expect("a partition")];
    partition(MapId(map), ReduceId(reduce), length)
}

fn any_left(executor: &FixtureExecutor) -> bool {
    executor.local_dirs.iter().any(|dir| dir.exists())
}

fn request(executor: &FixtureExecutor, blocks: Vec<BlockId>) -> FetchRequest {
    FetchRequest { app_id: executor.app_id.clone(), exec_id: executor.exec_id.clone(), blocks }
}

/// Every partition of every map output, the last ones first.
fn all_blocks() -> Vec<BlockId> {
    let of = |map| {
        (0..4).rev().map(move |reduce| BlockId::Shuffle {
            shuffle: ShuffleId(0),
            map: MapId(map),
            reduce: ReduceId(reduce),
        })
    };
    (0..MAPS).rev().flat_map(of).collect()
}

async fn fetch_everything(client: &ShuffleServiceClient, executor: &FixtureExecutor) {
    let fetched = client.fetch(request(executor, all_blocks())).unwrap().all().await;
    assert_eq!(fetched.len(), all_blocks().len());
    for fetched in fetched {
        let BlockId::Shuffle { map, reduce, .. } = fetched.block else { panic!("not asked for") };
        let bytes = fetched.result.unwrap();
        assert!(bytes == bytes_of(map.0, reduce.0), "{map} {reduce}: {} bytes", bytes.len());
    }
    let blocks = (0..2).map(|split| BlockId::Rdd { rdd: 1, split }).collect();
    for fetched in client.fetch(request(executor, blocks)).unwrap().all().await {
        let BlockId::Rdd { split, .. } = fetched.block else { panic!("not asked for") };
        assert_eq!(fetched.result.unwrap(), partition(MapId(9), ReduceId(split), 1000));
    }
}

/// By StreamRequest, with checksums.
async fn fetch_to_files(client: &ShuffleServiceClient, executor: &FixtureExecutor) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().to_owned();
    let fetch = client.fetch_to(request(executor, all_blocks()), move |block| {
        Checksummed::new(FileSink::new(path.join(block.to_string())), Algorithm::Adler32)
    });
    let fetched = fetch.unwrap().all().await;
    assert_eq!(fetched.len(), all_blocks().len());
    for fetched in fetched {
        let BlockId::Shuffle { map, reduce, .. } = fetched.block else { panic!("not asked for") };
        let expected = bytes_of(map.0, reduce.0);
        let ((path, length), sum) = fetched.result.unwrap();
        assert_eq!((length, sum), (expected.len() as u64, adler32(&expected)));
        assert!(std::fs::read(path).unwrap() == expected, "{map} {reduce}");
    }
}

async fn fetch_batches(client: &ShuffleServiceClient, executor: &FixtureExecutor) {
    let blocks: Vec<BlockId> =
        ["shuffle_0_0_0_4", "shuffle_0_2_1_3"].map(|id| id.parse().unwrap()).to_vec();
    for fetched in client.fetch(request(executor, blocks)).unwrap().all().await {
        let BlockId::ShuffleBatch { map, start, end, .. } = fetched.block else {
            panic!("not asked for")
        };
        let expected: Vec<u8> =
            (start.0..end.0).flat_map(|reduce| bytes_of(map.0, reduce)).collect();
        assert!(fetched.result.unwrap() == expected, "{map} {start} {end}");
    }
}

async fn diagnose(client: &ShuffleServiceClient, executor: &FixtureExecutor) {
    let right = adler32(&bytes_of(1, 2));
    let ask = async |checksum, algorithm: &str| {
        let (app_id, exec_id): (AppId, ExecId) =
            (executor.app_id.clone(), executor.exec_id.clone());
        let block = DiagnoseCorruption {
            app_id,
            exec_id,
            shuffle_id: ShuffleId(0),
            map_id: MapId(1),
            reduce_id: ReduceId(2),
            checksum,
            algorithm: algorithm.to_owned(),
        };
        client.diagnose_corruption(block).await.unwrap()
    };
    assert_eq!(ask(right, "ADLER32").await, CorruptionCause::ChecksumVerifyPass);
    assert_eq!(ask(right + 1, "ADLER32").await, CorruptionCause::NetworkIssue);
    assert_eq!(ask(right, "MD5").await, CorruptionCause::UnsupportedChecksumAlgorithm);
    assert_eq!(ask(right, "CRC32").await, CorruptionCause::UnknownIssue, "it has no such file");
    let data = executor.data_path(0, 1);
    let whole = std::fs::read(&data).unwrap();
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    std::fs::write(&data, damaged).unwrap();
    assert_eq!(ask(right, "ADLER32").await, CorruptionCause::DiskIssue);
    std::fs::write(&data, whole).unwrap();
}

fn adler32(bytes: &[u8]) -> i64 {
    let mut sum = Checksummer::new(Algorithm::Adler32);
    sum.update(bytes);
    sum.value()
}
