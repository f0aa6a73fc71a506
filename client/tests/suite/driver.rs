//! Keeping an application registered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shuffled_client::protocol::message::{RegisterDriver, ShuffleServiceHeartbeat};
use shuffled_client::protocol::{AppId, HeartbeatTimeout};
use shuffled_client::{
    ClientOptions, DriverError, DriverOptions, DriverStatus, InvalidDriverOptions,
    ShuffleServiceClient,
};
use test_support::peer::{Conversation, Peer};
use test_support::proxy::ToxicProxy;
use tokio::time::{Instant, sleep};

use crate::common::{in_memory, settle};

const SECOND: Duration = Duration::from_secs(1);

fn app() -> AppId {
    "app-1".into()
}

fn register() -> RegisterDriver {
    RegisterDriver { app_id: app(), heartbeat_timeout_ms: 120_000 }
}

fn beat() -> ShuffleServiceHeartbeat {
    ShuffleServiceHeartbeat { app_id: app() }
}

/// Waits as long as they may.
fn options() -> DriverOptions {
    DriverOptions { chance: Arc::new(|| 1.0), ..DriverOptions::default() }
}

/// Answers registrations and counts beats until the client closes the connection.
async fn serve(mut conversation: Conversation) -> usize {
    use shuffled_client::protocol::frame::Frame;
    let mut beats = 0;
    while let Some(frame) = conversation.next_frame().await {
        match frame {
            Frame::RpcRequest { id, .. } => {
                let body = bytes::Bytes::new();
                conversation.send(&Frame::RpcResponse { id, body }).await;
            }
            Frame::OneWayMessage { .. } => beats += 1,
            other => panic!("{other:?}"),
        }
    }
    beats
}

#[tokio::test(start_paused = true)]
async fn beats_follow_the_acknowledgement_at_once_and_at_the_interval() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let mut conversation = peer.accept().await;
    let asked = conversation.expect(register()).await;
    settle().await;
    assert!(!driver.status().is_registered(), "F7: not before the service has answered");
    asked.acknowledge().await;
    assert!(driver.registered().await);
    let start = Instant::now();
    for number in 0..6 {
        conversation.expect_one_way(beat()).await;
        assert_eq!(start.elapsed().as_secs(), number * 10);
    }
    conversation.expect(register()).await.acknowledge().await;
    assert_eq!(start.elapsed().as_secs(), 60, "in place of a beat");
    settle().await;
    let DriverStatus::Registered { beats, .. } = driver.status() else { panic!() };
    assert_eq!(beats, 6);
    driver.close().await;
    drop(client);
    conversation.expect_close().await;
}

/// SPARK-12583: the driver's side of it. A connection that is gone does not end the heartbeats.
#[tokio::test(start_paused = true)]
async fn c01_f6_after_a_break_it_connects_and_registers_again() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    for round in 1..=5 {
        let mut conversation = peer.accept().await;
        conversation.expect(register()).await.acknowledge().await;
        conversation.expect_one_way(beat()).await;
        conversation.expect_one_way(beat()).await;
        assert!(driver.status().is_registered());
        drop(conversation);
        settle().await;
        let DriverStatus::Retrying { attempt, error, .. } = driver.status() else { panic!() };
        assert_eq!(attempt, 1);
        assert!(error.is_retryable());
        assert_eq!(line.dialed(), round);
    }
    assert_eq!(driver.restarts(), 0);
}

#[tokio::test(start_paused = true)]
async fn f6_a_service_that_is_down_for_a_while_is_found_again() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let mut conversation = peer.accept().await;
    conversation.expect(register()).await.acknowledge().await;
    conversation.expect_one_way(beat()).await;
    line.set_down(true);
    drop(conversation);
    let start = Instant::now();
    sleep(300 * SECOND).await;
    // 0.5, 1, 2, 4, 8, 16, and then 30 s apart.
    assert!((10..20).contains(&line.dialed()), "{} attempts in 300 s", line.dialed());
    let DriverStatus::Retrying { attempt, .. } = driver.status() else { panic!() };
    assert!(attempt > 6);
    line.set_down(false);
    peer.accept().await.expect(register()).await.acknowledge().await;
    assert!(start.elapsed() <= 331 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn f7_the_first_answer_is_lost() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let mut first = peer.accept().await;
    first.expect(register()).await; // and never answers
    let start = Instant::now();
    first.expect_close().await;
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(!driver.status().is_registered());
    let mut second = peer.accept().await;
    second.expect(register()).await.acknowledge().await;
    second.expect_one_way(beat()).await;
    assert!(driver.status().is_registered());
}

#[tokio::test(start_paused = true)]
async fn f7_a_refusal_is_reported_and_tried_again() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let mut conversation = peer.accept().await;
    let text = "java.lang.UnsupportedOperationException: Unexpected message: RegisterDriver";
    conversation.expect(register()).await.refuse(text).await;
    let mut watch = driver.watch();
    let retrying = |status: &DriverStatus| matches!(status, DriverStatus::Retrying { .. });
    let status = watch.wait_for(retrying).await.unwrap().clone();
    let DriverStatus::Retrying { error, .. } = status else { panic!() };
    assert!(!error.is_retryable());
    assert_eq!(error.to_string(), format!("agent-1:7337 refused: {text}"));
    conversation.expect(register()).await.acknowledge().await;
    assert!(driver.registered().await);
}

/// The connection stays open, but nothing comes through any more. Heartbeats are never answered, so
/// only the confirmation can notice.
#[tokio::test(start_paused = true)]
async fn a_black_hole_is_noticed_before_the_service_gives_up() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let mut hole = peer.accept().await;
    hole.expect(register()).await.acknowledge().await;
    let start = Instant::now();
    let mut second = peer.accept().await;
    second.expect(register()).await.acknowledge().await;
    assert!(start.elapsed() < 120 * SECOND);
    assert!(driver.registered().await);
    drop(hole);
}

/// Tencent/Firestorm 75: heartbeats began only after all registrations had finished.
#[tokio::test(start_paused = true)]
async fn c16_a_stalled_service_does_not_hold_up_another() {
    let (fast, mut fast_peer, _line) = in_memory(ClientOptions::default());
    let (stalled, mut stalled_peer, _line) = in_memory(ClientOptions::default());
    let stalled = stalled.keep_registered(app(), options()).unwrap();
    let fast = fast.keep_registered(app(), options()).unwrap();
    let mut stalling = stalled_peer.accept().await;
    stalling.expect(register()).await;
    let mut conversation = fast_peer.accept().await;
    conversation.expect(register()).await.acknowledge().await;
    let start = Instant::now();
    for number in 0..6 {
        conversation.expect_one_way(beat()).await;
        assert_eq!(start.elapsed().as_secs(), number * 10);
        assert!(fast.status().is_registered());
        assert!(!stalled.status().is_registered());
    }
}

/// `scheduleAtFixedRate` ends silently with the first exception.
#[tokio::test(start_paused = true)]
async fn f8_a_panic_is_counted_and_the_task_started_anew() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let calls = AtomicU32::new(0);
    let chance = Arc::new(move || {
        assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "injected");
        1.0
    });
    let driver = client.keep_registered(app(), DriverOptions { chance, ..options() }).unwrap();
    let mut conversation = peer.accept().await;
    conversation.expect(register()).await.acknowledge().await;
    conversation.expect_one_way(beat()).await;
    drop(conversation); // the wait after a break asks for a random number
    let mut conversation = peer.accept().await;
    conversation.expect(register()).await.acknowledge().await;
    conversation.expect_one_way(beat()).await;
    assert_eq!(driver.restarts(), 1);
    assert!(driver.status().is_registered());
}

#[tokio::test(start_paused = true)]
async fn close_and_drop_end_the_heartbeats() {
    for drop_it in [false, true] {
        let (client, mut peer, _line) = in_memory(ClientOptions::default());
        let driver = client.keep_registered(app(), options()).unwrap();
        let watch = driver.watch();
        let serving = tokio::spawn(serve(peer.accept().await));
        assert!(driver.registered().await);
        sleep(25 * SECOND).await;
        if drop_it {
            drop(driver);
        } else {
            driver.close().await;
        }
        sleep(60 * SECOND).await;
        assert!(matches!(*watch.borrow(), DriverStatus::Closed));
        drop(client);
        assert_eq!(serving.await.unwrap(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_client_ends_its_registrations() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let serving = tokio::spawn(serve(peer.accept().await));
    assert!(driver.registered().await);
    client.close();
    serving.await.unwrap();
    sleep(300 * SECOND).await;
    assert!(matches!(driver.status(), DriverStatus::Closed));
    assert!(!driver.registered().await);
    assert_eq!(line.dialed(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_cannot_work_is_refused_and_one_that_lets_connections_idle_is_cut() {
    let (client, _peer, _line) = in_memory(ClientOptions::default());
    let with = |interval, timeout| DriverOptions { interval, timeout, ..options() };
    for interval in [120, 121, 1000] {
        let timeout = HeartbeatTimeout::After(120 * SECOND);
        let error = client.keep_registered(app(), with(interval * SECOND, timeout)).unwrap_err();
        let InvalidDriverOptions::IntervalNotBelowTimeout { .. } = error else { panic!() };
        let text = error.to_string();
        assert!(text.contains("spark.executor.heartbeatInterval"), "{text}");
        assert!(text.contains("120000 ms"), "{text}");
    }
    let error = client.keep_registered(app(), with(Duration::ZERO, 120.seconds())).unwrap_err();
    assert_eq!(error.to_string(), "the heartbeat interval cannot be zero");
    let driver = client.keep_registered(app(), with(90 * SECOND, 120.seconds())).unwrap();
    assert_eq!(driver.interval(), 60 * SECOND, "half of the connection timeout");
    let driver =
        client.keep_registered(app(), with(Duration::MAX, HeartbeatTimeout::Never)).unwrap();
    assert_eq!(driver.interval(), 60 * SECOND);
    let forever = HeartbeatTimeout::After(Duration::MAX);
    client.keep_registered(app(), with(10 * SECOND, forever)).unwrap();
}

trait Seconds {
    fn seconds(self) -> HeartbeatTimeout;
}

impl Seconds for u32 {
    fn seconds(self) -> HeartbeatTimeout {
        HeartbeatTimeout::After(self * SECOND)
    }
}

#[tokio::test(start_paused = true)]
async fn a_beat_before_every_idle_timeout_keeps_one_connection() {
    let connection_timeout = 20 * SECOND;
    let (client, mut peer, line) =
        in_memory(ClientOptions { connection_timeout, ..Default::default() });
    let interval = 50 * SECOND;
    let driver = client.keep_registered(app(), DriverOptions { interval, ..options() }).unwrap();
    let serving = tokio::spawn(serve(peer.accept().await));
    sleep(600 * SECOND).await;
    assert!(driver.status().is_registered());
    assert_eq!(line.dialed(), 1);
    drop((driver, client));
    assert!(serving.await.unwrap() >= 50);
}

/// Nothing that is acknowledged too late is taken for an acknowledgement of the next attempt.
#[tokio::test(start_paused = true)]
async fn not_acknowledged_is_what_the_status_says() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let driver = client.keep_registered(app(), options()).unwrap();
    let mut conversation = peer.accept().await;
    conversation.expect(register()).await;
    conversation.expect_close().await;
    settle().await;
    let DriverStatus::Retrying { error, .. } = driver.status() else { panic!() };
    assert!(matches!(error, DriverError::NotAcknowledged { .. }));
    assert_eq!(error.to_string(), "no acknowledgement within 10000 ms");
}

#[tokio::test]
async fn over_tcp_through_a_proxy_that_cuts() {
    let mut peer = Peer::bind().await;
    let proxy = ToxicProxy::to(peer.addr()).await;
    let client = ShuffleServiceClient::new(proxy.addr().into(), ClientOptions::default());
    let first_wait = Duration::from_millis(10);
    let driver = client.keep_registered(app(), DriverOptions { first_wait, ..options() }).unwrap();
    for _ in 0..3 {
        let mut conversation = peer.accept().await;
        conversation.expect(register()).await.acknowledge().await;
        conversation.expect_one_way(beat()).await;
        proxy.cut();
        conversation.expect_close().await;
    }
    peer.accept().await.expect(register()).await.acknowledge().await;
    assert_eq!(proxy.connections(), 4);
    driver.close().await;
}
