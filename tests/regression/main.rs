//! What people who run shuffle services complain about: a test for each complaint, against the real
//! binary, over a real socket, with real files.
//!
//! A test bears the complaint's number and Spark's issue, where there is one. Some complaints have more
//! tests beside the code, with the time in the test's hand; these here show the whole.

mod cleanup;
mod durable;
mod hold;
mod hostile;
mod liveness;
mod memory;
mod operator;
mod protocol;
mod transfer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shuffle_protocol::frame::StreamChunkId;
use shuffle_protocol::message::StreamHandle;
use shuffle_protocol::{HeartbeatTimeout, MapId, ReduceId};
use shuffled_service::admin::{AppDetail, AppList, RecordView};
use test_support::fixture::{FixtureExecutor, partition};
use test_support::process::{ServiceCommand, ServiceProcess, wait_for};
use test_support::raw::RawClient;

/// As [`wait_for`].
const PATIENCE: Duration = Duration::from_secs(60);

/// A service that looks for silent drivers every second, the shortest time that can be configured.
fn command() -> ServiceCommand {
    ServiceCommand::new(env!("CARGO_BIN_EXE_shuffled")).conf("spark.shuffle.cleaner.interval", "1s")
}

fn seconds(seconds: u64) -> HeartbeatTimeout {
    Duration::from_secs(seconds).into()
}

/// Waits until `check` gives something.
async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An executor of `app` on the service's only disk, registered, with one map output of three
/// partitions (see [`content`]).
async fn registered(
    service: &ServiceProcess,
    client: &mut RawClient,
    app: &str,
    exec: &str,
) -> FixtureExecutor {
    let executor = written(service, app, exec);
    client.rpc(executor.registration()).await.expect("a registration");
    executor
}

/// The same without the registration.
fn written(service: &ServiceProcess, app: &str, exec: &str) -> FixtureExecutor {
    let executor = FixtureExecutor::new(app, exec, &[&service.root()]);
    executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
    executor
}

/// The bytes of a partition of the map output that [`registered`] and [`written`] leave; the last one
/// is empty.
fn content(reduce: i32) -> Vec<u8> {
    let length = if reduce == 2 { 0 } else { 1000 };
    partition(MapId(0), ReduceId(reduce), length)
}

/// Reads all of that map output.
async fn assert_served(client: &mut RawClient, executor: &FixtureExecutor) {
    let chunks = client.fetch(executor.fetch(0, &[(0, &[0, 1, 2])])).await;
    assert_eq!(chunks, Ok(vec![Ok(content(0)), Ok(content(1)), Ok(content(2))]));
}

fn chunk(stream: &StreamHandle, chunk: i32) -> StreamChunkId {
    StreamChunkId { stream: stream.stream_id, chunk }
}

/// What `/v1/apps/ID` says, of an application that is known at all.
fn app(service: &ServiceProcess, id: &str) -> AppDetail {
    let body = service.admin_get(&format!("/v1/apps/{id}"));
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// How the application expired, once it has.
fn expired(service: &ServiceProcess, id: &str) -> Option<RecordView> {
    let body = service.admin_get("/v1/apps");
    let list: AppList = serde_json::from_str(&body).expect("the answer of the admin HTTP");
    list.expired.into_iter().find(|gone| gone.id.as_deref() == Some(id))
}

/// Waits until the application has expired and its directories are dealt with.
fn wait_removed(service: &ServiceProcess, id: &str) -> RecordView {
    wait_for("the expiry and the removal of the directories", || {
        expired(service, id).filter(|gone| gone.dirs_removed + gone.dirs_kept == gone.dirs)
    })
}

/// Expires an application as an operator does.
fn expire(service: &ServiceProcess, id: &str) {
    let (status, body) = service.admin_post(&format!("/v1/apps/{id}/expire"), "{}");
    assert_eq!(status, 200, "{body}");
}

/// Registers a driver that never beats, and waits until it has expired: proof that the cleaner has
/// looked at everybody, at least `timeout` after this was called.
async fn canary_expires(service: &ServiceProcess, name: &str, timeout: HeartbeatTimeout) {
    let canary = FixtureExecutor { app_id: name.into(), exec_id: "1".into(), local_dirs: vec![] };
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(canary.driver(timeout)).await.expect("a registration");
    until("the canary's expiry", async || expired(service, name)).await;
}

/// All series of `shuffled_errors_total` that are not zero, by kind.
fn errors(service: &ServiceProcess) -> BTreeMap<String, u64> {
    let page = service.admin_get("/metrics");
    page.lines()
        .filter_map(|line| line.strip_prefix("shuffled_errors_total{kind=\"")?.split_once("\"} "))
        .map(|(kind, count)| (kind.to_owned(), count.parse().expect("a count")))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Nothing is registered any more, and nothing is open.
fn assert_gauges_zero(service: &ServiceProcess) {
    wait_gauges_zero(
        service,
        &[
            "shuffleService_registeredExecutorsSize",
            "shuffled_apps",
            "shuffled_drivers",
            "shuffled_removals_pending",
        ],
    );
    assert_nothing_open(service);
}

/// No connection is open, and nothing that goes with one.
fn assert_nothing_open(service: &ServiceProcess) {
    wait_gauges_zero(
        service,
        &[
            "shuffleService_numActiveConnections",
            "shuffled_streams_open",
            "shuffled_chunks_in_transfer",
        ],
    );
}

fn wait_gauges_zero(service: &ServiceProcess, gauges: &[&str]) {
    let page = service.admin_get("/metrics");
    for gauge in gauges {
        assert!(page.contains(&format!("\n{gauge} ")), "there is no {gauge}");
        wait_for(&format!("{gauge} to be 0"), || (service.metric(gauge) == 0.0).then_some(()));
    }
}

/// The files that a process holds open.
fn open_files(service: &ServiceProcess) -> Vec<PathBuf> {
    let fds = fs::read_dir(format!("/proc/{}/fd", service.pid())).expect("it runs");
    fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).collect()
}

/// Processor time that a process has used, in ticks of 10 ms.
fn cpu_ticks(service: &ServiceProcess) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", service.pid())).expect("it runs");
    // After the name, which is in parentheses: user time and system time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks")).sum()
}

/// A tree that nobody may touch, beside the service's root, with its content.
fn canary_tree(service: &ServiceProcess) -> PathBuf {
    let root = service.root();
    let tree = root.parent().expect("the root has a parent").join("canary");
    // A link in place of a sub-directory would be followed to these.
    for sub in 0..64 {
        fs::create_dir_all(tree.join(format!("{sub:02x}"))).expect("the test's own directory");
    }
    tree
}

/// Copies what `executor` wrote below `tree`, sub-directories and all.
fn copy_files(executor: &FixtureExecutor, tree: &Path) {
    for dir in &executor.local_dirs {
        for path in files_below(dir) {
            let below = path.strip_prefix(dir).expect("it lies there");
            fs::copy(&path, tree.join(below)).expect("the test's own files");
        }
    }
}

/// Every file below `dir`, sorted.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("the test's own directory").flatten() {
            let path = entry.path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}
