//! What removal and durability cost: `cargo bench --bench cleanup`, in about two minutes.
//!
//! Every figure stands beside another one of the same run, since a machine's own speed means nothing.
//! Spark's service comes from the tests' cache (`tests/run` fills it); without it, that comparison is
//! left out.

#![expect(clippy::print_stdout, reason = "figures are what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has nothing to tell")]

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use shuffle_protocol::RequestId;
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::Message;
use shuffled_service::admin::AppDetail;
use test_support::fixture::FixtureExecutor;
use test_support::process::{ServiceCommand, ServiceProcess, wait_for};
use test_support::raw::RawClient;
use test_support::spark::{JvmService, Kind, SPARK_3};

const FILES: usize = 200_000;
const ROWS: usize = 100_000;
const CONNECTIONS: usize = 20;
const EACH: usize = 500;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(expiry());
    runtime.block_on(registrations());
    runtime.block_on(start());
}

fn service() -> ServiceCommand {
    ServiceCommand::new(env!("CARGO_BIN_EXE_shuffled")).durable()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// An executor's directory with so many files, as Spark spreads them.
fn filled(root: &Path, app: &str, files: usize) -> FixtureExecutor {
    let executor = FixtureExecutor::new(app, "1", &[root]);
    let dir = &executor.local_dirs[0];
    for sub in 0..64 {
        fs::create_dir_all(dir.join(format!("{sub:02x}"))).unwrap();
    }
    for number in 0..files {
        File::create(dir.join(format!("{:02x}/shuffle_0_{number}_0.data", number % 64))).unwrap();
    }
    executor
}

async fn expiry() {
    println!("\n== expiry and removal ==");
    let service = service().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let mut answers = Vec::new();
    let mut reaped = Duration::ZERO;
    for files in [10, FILES] {
        let executor = filled(&service.root(), &format!("app-{files}"), files);
        client.rpc(executor.registration()).await.unwrap();
        let start = Instant::now();
        let (status, body) = service.admin_post(&format!("/v1/apps/app-{files}/expire"), "{}");
        let answered = start.elapsed();
        assert_eq!(status, 200, "{body}");
        wait_for("the renaming", || (!executor.local_dirs[0].exists()).then_some(()));
        let renamed = start.elapsed();
        wait_for("the removal", || is_removed(&service, &format!("app-{files}")).then_some(()));
        reaped = start.elapsed();
        println!(
            "{files:>7} files: answered after {}, out of the way after {}, gone after {}",
            ms(answered),
            ms(renamed),
            ms(reaped)
        );
        answers.push(answered);
    }
    let ratio = answers[1].as_secs_f64() / answers[0].as_secs_f64();
    println!("answer with {FILES} files / with 10: {ratio:.2}");

    let executor = filled(&service.root(), "for-rm", FILES);
    let start = Instant::now();
    let status = Command::new("rm").arg("-rf").arg(&executor.local_dirs[0]).status();
    let rm = start.elapsed();
    assert!(status.unwrap().success());
    println!(
        "rm -rf of the same: {}; shuffled / rm -rf: {:.2}",
        ms(rm),
        reaped.as_secs_f64() / rm.as_secs_f64()
    );
}

fn is_removed(service: &ServiceProcess, app: &str) -> bool {
    let body = service.admin_get(&format!("/v1/apps/{app}"));
    let detail: AppDetail = serde_json::from_str(&body).unwrap();
    detail.expired.is_some_and(|expired| expired.dirs_removed == expired.dirs)
}

async fn registrations() {
    println!("\n== registrations, {CONNECTIONS} connections at once ==");
    let durable = service().start();
    let ours = per_second(durable.shuffle, &durable.root()).await;
    println!("durable:              {ours:>8.0} /s");
    let memory = ServiceCommand::new(env!("CARGO_BIN_EXE_shuffled")).start();
    let without = per_second(memory.shuffle, &memory.root()).await;
    println!("without a store:      {without:>8.0} /s; durable / without: {:.2}", ours / without);
    if std::env::var_os("SHUFFLED_BENCH_NO_SPARK").is_some() {
        return;
    }
    let db = tempfile::TempDir::new().unwrap();
    let dir = db.path().to_str().unwrap();
    let conf = [("spark.shuffle.service.db.enabled", "true"), ("spark.local.dir", dir)];
    let jvm = JvmService::start(SPARK_3, Kind::Standalone, &conf);
    // Its code is compiled by the first round.
    per_second(jvm.shuffle, &jvm.root()).await;
    let theirs = per_second(jvm.shuffle, &jvm.root()).await;
    println!("Spark's, with its DB: {theirs:>8.0} /s; shuffled / Spark's: {:.2}", ours / theirs);
    println!("(Spark's does not sync its DB; shuffled answers when the registration is on disk)");
}

async fn per_second(service: SocketAddr, root: &Path) -> f64 {
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..CONNECTIONS {
        let root = root.to_owned();
        running.spawn(async move {
            let mut client = RawClient::connect(service).await;
            for exec in 0..EACH {
                client.rpc(executor(&root, number, exec).registration()).await.unwrap();
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    (CONNECTIONS * EACH) as f64 / start.elapsed().as_secs_f64()
}

fn executor(root: &Path, app: usize, exec: usize) -> FixtureExecutor {
    let dir: PathBuf = root.join(format!("blockmgr-{app}-{}", exec % 4));
    fs::create_dir_all(&dir).unwrap();
    FixtureExecutor {
        app_id: format!("app-{app}").into(),
        exec_id: exec.to_string().into(),
        local_dirs: vec![dir],
    }
}

async fn start() {
    println!("\n== start ==");
    let mut service = service().start();
    let empty = restarted(&mut service);
    let mut client = RawClient::connect(service.shuffle).await;
    for batch in 0..ROWS / 1000 {
        for number in 0..1000 {
            let message = executor(&service.root(), batch, number).registration();
            let body = Message::from(message).encode();
            client.send(&Frame::RpcRequest { id: RequestId(1), body }).await;
        }
        for _ in 0..1000 {
            client.next().await.unwrap();
        }
    }
    let full = restarted(&mut service);
    let registered = service.metric("shuffleService_registeredExecutorsSize");
    assert!(registered >= ROWS as f64, "{registered}");
    println!(
        "with {ROWS} executors: {}; with none: {}; ratio {:.1}",
        ms(full),
        ms(empty),
        full.as_secs_f64() / empty.as_secs_f64()
    );
}

/// From the start of the process to its being ready, after a kill.
fn restarted(service: &mut ServiceProcess) -> Duration {
    service.kill();
    let start = Instant::now();
    service.start_again();
    start.elapsed()
}
