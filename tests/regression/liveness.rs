//! Who lives and who does not: C01, C09, F1, F5, F13.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use shuffle_protocol::message::{RegisterDriver, ShuffleServiceHeartbeat};

use super::*;

/// Closed, idle and reset connections are no evidence of death, missing heartbeats are.
#[tokio::test]
async fn c01_spark_12583_idle_socket_is_not_death() {
    // The service closes idle connections itself, as Spark 1.6 did.
    let service = command().conf("spark.shuffle.io.connectionTimeout", "1s").start();
    let mut idle = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut idle, "app", "1").await;
    let mut driver = RawClient::connect(service.shuffle).await;
    driver.rpc(executor.driver(seconds(2))).await.unwrap();
    drop(driver);
    assert!(idle.closed().await, "an idle connection is closed");

    let mut canaries = RawClient::connect(service.shuffle).await;
    for round in ["first", "second"] {
        // As long as the application's own timeout, and a check more.
        let canary = RegisterDriver { app_id: round.into(), heartbeat_timeout_ms: 2000 };
        canaries.rpc(canary).await.unwrap();
        until("a canary's expiry", async || {
            // A connection of its own for every beat.
            RawClient::connect(service.shuffle).await.one_way(executor.heartbeat()).await;
            expired(&service, round)
        })
        .await;
        canaries = RawClient::connect(service.shuffle).await;
        assert_served(&mut canaries, &executor).await;
    }

    let gone = wait_removed(&service, "app");
    assert_eq!(gone.reason, "heartbeat-timeout");
    assert!(gone.silent_for_ms > Some(2000), "not before its timeout: {gone:?}");
    assert!(!executor.local_dirs[0].exists());
}

/// SPARK-13159: a connection that stays open keeps nobody alive, whatever else is sent over it.
#[tokio::test]
async fn c01_spark_13159_an_open_connection_is_not_life() {
    // Reads would keep it for a while.
    let service = command().conf("shuffled.cleanup.maxDeferral", "0").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    until("the expiry of an application that is being read", async || {
        let _ = client.fetch(executor.fetch(0, &[(0, &[0])])).await.expect("a stream");
        expired(&service, "app")
    })
    .await;
    wait_removed(&service, "app");
    assert!(!executor.local_dirs[0].exists());
}

/// Executors whose driver never registers: kept for ever as in Spark, unless a time is configured.
#[tokio::test]
async fn c09_without_a_driver_the_orphan_ttl_counts() {
    let service = command().conf("shuffled.orphan.ttl", "2s").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let used = registered(&service, &mut client, "used", "1").await;
    let unused = registered(&service, &mut client, "unused", "1").await;
    until("the expiry of the one that nobody reads", async || {
        assert_served(&mut client, &used).await;
        expired(&service, "unused")
    })
    .await;
    assert_served(&mut client, &used).await;
    assert_eq!(wait_removed(&service, "unused").reason, "no-driver");
    assert!(!unused.local_dirs[0].exists());

    assert_eq!(wait_removed(&service, "used").reason, "no-driver");
    assert!(!used.local_dirs[0].exists());
}

#[tokio::test]
async fn c09_without_that_time_they_are_kept() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    canary_expires(&service, "canary", seconds(2)).await;
    assert_served(&mut client, &executor).await;
    assert_eq!(app(&service, "app").app.unwrap().expires_in_ms, None);
}

/// Spark's service multiplies milliseconds until they wrap around, and deletes everything at once.
#[tokio::test]
async fn f1_the_largest_timeouts_do_not_wrap_around() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let timeouts = [i64::MAX, i64::MAX - 1, i64::MAX / 1_000_000 + 1, 1 << 53];
    let mut executors = Vec::new();
    for (number, millis) in timeouts.into_iter().enumerate() {
        let executor = registered(&service, &mut client, &format!("app-{number}"), "1").await;
        let app_id = executor.app_id.clone();
        client.rpc(RegisterDriver { app_id, heartbeat_timeout_ms: millis }).await.unwrap();
        executors.push(executor);
    }
    for millis in [0, -1, i64::MIN] {
        // Refused: neither dead at once nor immortal.
        let app_id = "refused".into();
        let refused = client.rpc(RegisterDriver { app_id, heartbeat_timeout_ms: millis }).await;
        let text = refused.unwrap_err();
        assert!(text.contains(&format!("must be positive, got {millis} ms")), "{text}");
        // A live application is not touched by such a message.
        let app_id = executors[0].app_id.clone();
        assert!(client.rpc(RegisterDriver { app_id, heartbeat_timeout_ms: millis }).await.is_err());
    }
    canary_expires(&service, "canary", seconds(1)).await;
    canary_expires(&service, "canary-2", seconds(1)).await;
    for executor in &executors {
        assert_served(&mut client, executor).await;
    }
    assert_eq!(app(&service, "app-0").app.unwrap().expires_in_ms, None, "never");
    assert_eq!(service.metric("shuffled_drivers"), 4.0);
}

/// Spark's service leaves a heartbeat that is sent as an RPC without an answer.
#[tokio::test]
async fn f5_a_heartbeat_counts_in_both_forms() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = written(&service, "app", "1");
    client.rpc(executor.driver(HeartbeatTimeout::Never)).await.unwrap();
    let heartbeats = || app(&service, "app").app.unwrap().driver.unwrap().heartbeats;

    let answer = client.rpc(executor.heartbeat()).await;
    assert_eq!(answer, Ok(bytes::Bytes::new()));
    assert_eq!(heartbeats(), 1);
    client.one_way(executor.heartbeat()).await;
    wait_for("the one-way heartbeat", || (heartbeats() == 2).then_some(()));

    // So does one of an application that is not known, which learns nothing by it, as in Spark.
    let unknown = ShuffleServiceHeartbeat { app_id: "unknown".into() };
    assert_eq!(client.rpc(unknown.clone()).await, Ok(bytes::Bytes::new()));
    client.one_way(unknown).await;
    let unknown = r#"shuffled_heartbeats_total{result="unknown"}"#;
    wait_for("the other one", || (service.metric(unknown) == 2.0).then_some(()));
}

/// Spark's service may start its cleaner before the table that it looks at exists; it then throws once,
/// and no driver ever times out. Seen on busy processors.
#[test]
fn f13_every_start_under_load_expires_a_driver() {
    const BATCHES: usize = 5;
    const AT_ONCE: usize = 20;
    let done = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let _finally = Finally(&done);
        for _ in 0..2 * cores {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for _ in 0..BATCHES {
            let batch: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(start_and_expire)).collect();
            batch.into_iter().for_each(|start| start.join().expect("a driver that expires"));
        }
    });
}

fn start_and_expire() {
    let service = command().start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let short = RegisterDriver { app_id: "app".into(), heartbeat_timeout_ms: 1 };
        let mut client = RawClient::connect(service.shuffle).await;
        client.rpc(short).await.expect("a registration");
    });
    wait_for("the expiry", || expired(&service, "app"));
}

/// Ends the load also when the test fails.
struct Finally<'a>(&'a AtomicBool);

impl Drop for Finally<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
