//! Real Spark, unmodified, at the service: whole applications, and the clients of its executors and
//! drivers alone. See `tests/README.md`.

#![expect(clippy::print_stdout, reason = "the figures, for whoever asks for output")]

mod service;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::process::wait_for;
use test_support::spark::{JobResult, SPARK_3, SPARK_4, Spark};

use crate::service::Service;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn spark_3_reads_what_killed_executors_wrote() {
    run_application(SPARK_3, json!({"swap": "kill", "rdd": true}));
}

#[test]
fn spark_3_reads_what_idle_executors_wrote_and_removes_it() {
    run_application(SPARK_3, json!({"swap": "idle", "rdd": true, "remove": true}));
}

/// As Spark 2 fetches, and as anybody fails whose service is gone.
#[test]
fn spark_3_with_the_old_fetch_protocol() {
    let conf = json!({"spark.shuffle.useOldFetchProtocol": "true"});
    run_application(SPARK_3, json!({"swap": "kill", "control": true, "conf": conf}));
}

#[test]
fn spark_4_reads_what_killed_executors_wrote() {
    run_application(SPARK_4, json!({"swap": "kill", "rdd": true}));
}

#[test]
fn spark_4_reads_what_idle_executors_wrote_and_removes_it() {
    run_application(SPARK_4, json!({"swap": "idle", "rdd": true, "remove": true}));
}

/// Runs a job and holds what Spark says it has read against what the service says it has sent.
fn run_application(version: &str, job: Value) {
    let service = Service::start(version, &[("spark.shuffle.service.fetch.rdd.enabled", "true")]);
    let dir = service.root().join("cluster");
    fs::create_dir(&dir).expect("the test's own directory can be written");
    let control = job["control"] == true;
    let mut application = Spark::locate(version).application(service.shuffle(), &dir, job);

    application.wait_for("swapped");
    let before = service.sent();
    application.go_on();
    application.wait_for("read");
    let after = service.sent();
    if control {
        service.kill();
    }
    application.go_on();
    let result = application.result();

    println!("{result}");
    assert_eq!(result.wrong(), [""; 0], "{result}");
    if let (Some(before), Some(after)) = (before, after) {
        let bytes = after.bytes - before.bytes;
        let blocks = after.blocks - before.blocks;
        println!("the service has sent {blocks} blocks, {bytes} bytes");
        let read = result.number("/after_swap/remote_bytes") + result.number("/rdd_bytes");
        assert!(bytes >= read, "{result}");
        assert!(blocks >= result.number("/after_swap/remote_blocks"), "{result}");
    }
}

/// The service dies in the middle of a job, with the writers gone and blocks on their way, and is started
/// again: nothing that was written is lost, so no stage is tried twice.
#[test]
fn spark_27736_a_job_goes_on_over_a_restart_of_the_service() {
    let result = over_restarts(Service::start(SPARK_3, &[]));
    if Service::is_of_sparks() {
        assert!(!result.went_well(), "{result}");
    } else {
        assert_eq!(result.wrong(), [""; 0], "{result}");
    }
}

/// What the same does to Spark's own service, for comparison: it has forgotten every executor.
#[test]
fn spark_27736_sparks_own_service_forgets_what_was_written() {
    let result = over_restarts(Service::of_sparks());
    assert!(!result.went_well(), "{result}");
}

/// Runs a job, and kills the service and starts it again before the first block is read, and after it.
fn over_restarts(mut service: Service) -> JobResult {
    let dir = service.root().join("cluster");
    fs::create_dir(&dir).expect("the test's own directory can be written");
    let job = json!({"swap": "kill", "once": true});
    let mut application = Spark::locate(SPARK_3).application(service.shuffle(), &dir, job);
    application.wait_for("swapped");
    service.kill_and_restart();
    application.go_on();
    if service.sent().is_some() {
        wait_for("the first blocks to be sent", || {
            service.sent().is_some_and(|sent| sent.blocks > 0.0).then_some(())
        });
        service.kill_and_restart();
    }
    let result = application.finish();
    println!("{result}");
    result
}

/// As Spark 2.4: OpenBlocks with names.
#[test]
fn spark_3_executor_with_the_old_fetch_protocol() {
    run_executor(SPARK_3, &STEPS.replace("batch,", ""), true);
}

#[test]
fn spark_3_executor() {
    run_executor(SPARK_3, STEPS, false);
}

#[test]
fn spark_4_executor() {
    run_executor(SPARK_4, STEPS, false);
}

const STEPS: &str =
    "unregistered,write,register,fetch,batch,missing,rdd,dirs,diagnose,push,remove,big,file";

fn run_executor(version: &str, steps: &str, old_fetch_protocol: bool) {
    let service = Service::start(version, &[]);
    let checks = Spark::locate(version)
        .executor(service.shuffle(), APP, &service.root())
        .conf("spark.shuffle.useOldFetchProtocol", &old_fetch_protocol.to_string())
        .run(steps);
    let wrong: Vec<_> = checks.iter().filter(|check| !check.ok).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Tools look for these words in the logs of applications.
    let unknown = checks.iter().find(|check| check.name == "unknown executor");
    let words = format!("Executor is not registered (appId={APP}, execId=nobody)");
    assert!(unknown.is_some_and(|check| check.detail.contains(&words)), "{unknown:?}");
}

/// The driver lives as long as its heartbeats come, whatever its connections do.
#[test]
fn spark_12583_mesos_driver_lives_by_its_heartbeats_alone() {
    let service = Service::start(
        SPARK_3,
        &[("spark.shuffle.io.connectionTimeout", "2s"), ("spark.shuffle.cleaner.interval", "1s")],
    );
    let spark = Spark::locate(SPARK_3);
    let (app_dir, other_dir) = (service.root().join("app"), service.root().join("other"));
    let executor = |app, dir: &Path, steps| {
        let checks = spark.executor(service.shuffle(), app, dir).run(steps);
        assert!(checks.iter().all(|check| check.ok), "{checks:#?}");
    };
    executor(APP, &app_dir, "write,register,fetch");
    executor("without-a-driver", &other_dir, "write,register,fetch");

    // It sends one heartbeat and then nothing, so its connection is closed.
    let silent = Instant::now();
    let mut driver = spark.mesos_driver(service.shuffle(), APP, TIMEOUT, 100 * TIMEOUT).start();
    driver.wait_for("registered");
    driver.wait_for("connection closed");
    assert_eq!(left(&app_dir), 2, "after {:?}, with the driver's connection", silent.elapsed());

    // The driver on a new connection.
    let interval = SECOND / 2;
    let mut again = spark.mesos_driver(service.shuffle(), APP, TIMEOUT, interval).start();
    again.wait_for("registered");
    let registered = Instant::now();
    while registered.elapsed() < 2 * TIMEOUT {
        assert_eq!(left(&app_dir), 2, "after {:?} of heartbeats", registered.elapsed());
        thread::park_timeout(SECOND / 10);
    }
    drop(driver);
    executor(APP, &app_dir, "fetch");

    again.kill();
    let killed = Instant::now();
    wait_for("the directories to go", || (left(&app_dir) == 0).then_some(()));
    // The last heartbeat may be as old as the interval, and older where the driver got no core.
    let after = killed.elapsed();
    assert!(after > TIMEOUT / 2, "gone {after:?} after the driver was killed");
    executor(APP, &service.root().join("late"), "unregistered");
    executor("without-a-driver", &other_dir, "fetch");
}

const APP: &str = "app-20261201000000-0000";
const TIMEOUT: Duration = Duration::from_secs(8);

/// How many of its two directories are left to the bed's executor.
fn left(dir: &Path) -> usize {
    ["d0/blockmgr-aaaa", "d1/blockmgr-bbbb"].iter().filter(|name| dir.join(name).exists()).count()
}
