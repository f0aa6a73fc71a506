//! One multiplexed connection: matching, silence, breaks.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{NeverDial, in_memory, over_tcp, server, settle};
use shuffled_client::protocol::frame::Frame;
use shuffled_client::protocol::message::{
    BlocksRemoved, CorruptionCause, DiagnoseCorruption, ExecutorShuffleInfo,
    GetLocalDirsForExecutors, LocalDirsForExecutors, Message, RegisterDriver, RegisterExecutor,
    RemoveBlocks, ShuffleServiceHeartbeat,
};
use shuffled_client::protocol::{AppId, HeartbeatTimeout, MapId, ReduceId, ShuffleId};
use shuffled_client::{
    ClientOptions, ConnectionError, Misbehaviour, RegistrationPolicy, RequestError,
    ShuffleServiceClient,
};
use test_support::peer::Peer;
use test_support::proxy::{Toxic, ToxicProxy};

const TIMEOUT: Duration = Duration::from_secs(120);

fn app() -> AppId {
    "app-1".into()
}

fn remove(ids: &[&str]) -> RemoveBlocks {
    RemoveBlocks { app_id: app(), exec_id: "1".into(), block_ids: ids.iter().collect() }
}

fn removed(num_removed_blocks: i32) -> BlocksRemoved {
    BlocksRemoved { num_removed_blocks }
}

fn info() -> ExecutorShuffleInfo {
    ExecutorShuffleInfo {
        local_dirs: ["/data/blockmgr-1"].iter().collect(),
        sub_dirs_per_local_dir: 64,
        shuffle_manager: "org.apache.spark.shuffle.sort.SortShuffleManager".into(),
    }
}

/// A client asking to remove one block, as a task of its own.
fn remove_one(
    client: &ShuffleServiceClient,
    id: &'static str,
) -> tokio::task::JoinHandle<Result<u32, RequestError>> {
    let client = client.clone();
    tokio::spawn(async move { client.remove_blocks(&app(), &"1".into(), [id]).await })
}

#[tokio::test]
async fn every_request_as_spark_writes_it() {
    let mut peer = Peer::bind().await;
    let client = over_tcp(&peer, ClientOptions::default());
    let script = async {
        let mut control = peer.accept().await.fragmented(3);
        let register = RegisterDriver { app_id: app(), heartbeat_timeout_ms: 120_000 };
        control.expect(register).await.acknowledge().await;
        control.expect_one_way(ShuffleServiceHeartbeat { app_id: app() }).await;
        let register = RegisterExecutor { app_id: app(), exec_id: "1".into(), info: info() };
        control.expect(register).await.acknowledge().await;

        let mut data = peer.accept().await.fragmented(3);
        data.expect(remove(&["rdd_1_2", "rdd_1_3"])).await.answer(removed(1)).await;
        let get = GetLocalDirsForExecutors { app_id: app(), exec_ids: ["1"].iter().collect() };
        let dirs: LocalDirsForExecutors = [("1", vec!["/a", "/b"])].into_iter().collect();
        data.expect(get).await.answer(dirs).await;
        let asked = data.expect_rpc().await;
        assert_eq!(asked.message().name(), "DiagnoseCorruption");
        asked.answer(CorruptionCause::DiskIssue).await;
        (control, data)
    };
    let use_it = async {
        client.register_driver(&app(), HeartbeatTimeout::After(TIMEOUT)).await.unwrap();
        client.heartbeat(&app()).await.unwrap();
        client.register_executor(&app(), &"1".into(), &info()).await.unwrap();
        let count = client.remove_blocks(&app(), &"1".into(), ["rdd_1_2", "rdd_1_3"]).await;
        assert_eq!(count.unwrap(), 1);
        let dirs = client.local_dirs(&app(), &["1".into()]).await.unwrap();
        assert_eq!(dirs, [("1".into(), vec!["/a".to_owned(), "/b".to_owned()])]);
        let block = DiagnoseCorruption {
            app_id: app(),
            exec_id: "1".into(),
            shuffle_id: ShuffleId(0),
            map_id: MapId(1),
            reduce_id: ReduceId(2),
            checksum: 3,
            algorithm: "ADLER32".into(),
        };
        assert_eq!(client.diagnose_corruption(block).await.unwrap(), CorruptionCause::DiskIssue);
    };
    let (conversations, ()) = tokio::join!(script, use_it);
    drop(conversations);
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test]
async fn many_callers_share_one_connection_and_answers_come_in_any_order() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let asking: Vec<_> = ["rdd_0_0", "rdd_0_1", "rdd_0_2", "rdd_0_3"]
        .into_iter()
        .map(|id| remove_one(&client, id))
        .collect();
    let mut conversation = peer.accept().await;
    let mut asked = Vec::new();
    for _ in 0..4 {
        let rpc = conversation.expect_rpc().await;
        let Message::RemoveBlocks(message) = rpc.message() else { panic!() };
        let id = message.block_ids.iter().next().unwrap().to_owned();
        asked.push((rpc.id(), id));
    }
    assert!(asked.iter().all(|(id, _)| id.0 >= 0));
    for (id, block) in asked.iter().rev() {
        let number = block.rsplit('_').next().unwrap().parse().unwrap();
        let body = Message::from(removed(number)).encode();
        conversation.send(&Frame::RpcResponse { id: *id, body }).await;
    }
    for (number, asking) in (0..).zip(asking) {
        assert_eq!(asking.await.unwrap().unwrap(), number);
    }
    assert_eq!(line.dialed(), 1);
}

#[tokio::test]
async fn a_refusal_is_final_and_the_connection_stays() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    let text = "java.lang.RuntimeException: Executor is not registered (appId=app-1, execId=1)";
    conversation.expect_rpc().await.refuse(&format!("{text}\n\tat somewhere")).await;
    let error = asking.await.unwrap().unwrap_err();
    assert!(!error.is_retryable());
    assert_eq!(error.to_string(), format!("agent-1:7337 refused: {text}"));
    let asking = remove_one(&client, "rdd_0_1");
    conversation.expect_rpc().await.answer(removed(0)).await;
    asking.await.unwrap().unwrap();
    assert_eq!(line.dialed(), 1);
}

#[tokio::test]
async fn a_break_fails_everything_outstanding_and_the_next_request_connects_anew() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking: Vec<_> = (0..3).map(|_| remove_one(&client, "rdd_0_0")).collect();
    let mut conversation = peer.accept().await;
    for _ in 0..3 {
        conversation.expect_rpc().await;
    }
    drop(conversation);
    for asking in asking {
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.is_retryable());
        assert_eq!(error.to_string(), "Connection from agent-1:7337 closed");
    }
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await.answer(removed(1)).await;
    assert_eq!(asking.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_connection_that_ends_within_a_frame_is_broken() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await;
    conversation.send_bytes(&[0, 0, 0]).await;
    drop(conversation);
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Connection(ConnectionError::Broken { .. })), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn c45_silence_with_a_request_outstanding_is_an_error_after_the_timeout() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await;
    let asked_at = tokio::time::Instant::now();
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(asked_at.elapsed().as_secs(), TIMEOUT.as_secs());
    assert!(error.is_retryable());
    assert_eq!(
        error.to_string(),
        "Connection to agent-1:7337 has been quiet for 120000 ms while there are outstanding \
         requests. Assuming connection is dead; please adjust spark.shuffle.io.connectionTimeout if \
         this is wrong."
    );
    conversation.expect_close().await;
}

#[tokio::test(start_paused = true)]
async fn c45_a_slow_trickle_is_no_error() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    let id = conversation.expect_rpc().await.id();
    let mut bytes = bytes::BytesMut::new();
    let body = Message::from(removed(1)).encode();
    Frame::RpcResponse { id, body }.encode(&mut bytes);
    let asked_at = tokio::time::Instant::now();
    conversation.trickle(&bytes, TIMEOUT - Duration::from_secs(1)).await;
    assert_eq!(asking.await.unwrap().unwrap(), 1);
    assert!(asked_at.elapsed() > 20 * TIMEOUT);
}

/// Heartbeats that vanish in the hole are no sign of life of the peer.
#[tokio::test(start_paused = true)]
async fn c45_one_way_messages_do_not_hide_a_dead_peer() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = {
        let client = client.clone();
        tokio::spawn(async move {
            client.register_driver(&app(), HeartbeatTimeout::After(TIMEOUT)).await
        })
    };
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await;
    let asked_at = tokio::time::Instant::now();
    for _ in 0..11 {
        tokio::time::sleep(TIMEOUT / 12).await;
        client.heartbeat(&app()).await.unwrap();
    }
    settle().await;
    assert!(!asking.is_finished());
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Connection(ConnectionError::Quiet { .. })), "{error}");
    assert_eq!(asked_at.elapsed().as_secs(), TIMEOUT.as_secs());
}

#[tokio::test]
async fn c45_over_tcp_with_a_black_hole_between() {
    let peer = Peer::bind().await;
    let proxy = ToxicProxy::to(peer.addr()).await;
    proxy.set(Toxic::BlackHole);
    let options =
        ClientOptions { connection_timeout: Duration::from_millis(100), ..Default::default() };
    let client = ShuffleServiceClient::new(proxy.addr().into(), options);
    let error = remove_one(&client, "rdd_0_0").await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Connection(ConnectionError::Quiet { .. })), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed_and_made_anew_when_needed() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await.answer(removed(0)).await;
    asking.await.unwrap().unwrap();
    let idle_from = tokio::time::Instant::now();
    conversation.expect_close().await;
    assert_eq!(idle_from.elapsed().as_secs(), TIMEOUT.as_secs());
    let asking = remove_one(&client, "rdd_0_0");
    peer.accept().await.expect_rpc().await.answer(removed(0)).await;
    asking.await.unwrap().unwrap();
    assert_eq!(line.dialed(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_way_messages_keep_a_connection_in_use() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let beating = async {
        for _ in 0..20 {
            client.heartbeat(&app()).await.unwrap();
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        }
    };
    let listening = async {
        let mut conversation = peer.accept().await;
        for _ in 0..20 {
            conversation.expect_one_way(ShuffleServiceHeartbeat { app_id: app() }).await;
        }
        conversation
    };
    tokio::join!(beating, listening);
    assert_eq!(line.dialed(), 1);
}

#[tokio::test]
async fn the_last_handle_closes_the_connection() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await.answer(removed(0)).await;
    asking.await.unwrap().unwrap();
    drop(client);
    conversation.expect_close().await;
}

#[tokio::test]
async fn a_closed_client_closes_its_connections_and_makes_no_more() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await;
    client.clone().close();
    let error = asking.await.unwrap().unwrap_err();
    assert!(!error.is_retryable());
    conversation.expect_close().await;
    let error = remove_one(&client, "rdd_0_0").await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the client of agent-1:7337 is closed");
    assert_eq!(line.dialed(), 1);
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_is_left() {
    let options = ClientOptions { frame_limit: 1000, ..Default::default() };
    for (bytes, text) in [
        (&b"HTTP/1.1"[..], "Too large frame"),
        (&[0, 0, 0, 0, 0, 0, 16, 0, 4], "over the limit of 1000 bytes"),
        (&[0, 0, 0, 0, 0, 0, 0, 9, 99], "Unknown message type: 99"),
        (&[0, 0, 0, 0, 0, 0, 0, 13, 9, 0, 0, 0, 0], "a shuffle service sends no OneWayMessage"),
    ] {
        let (client, mut peer, _line) = in_memory(options.clone());
        let asking = remove_one(&client, "rdd_0_0");
        let mut conversation = peer.accept().await;
        conversation.expect_rpc().await;
        conversation.send_bytes(bytes).await;
        let error = asking.await.unwrap().unwrap_err();
        assert!(!error.is_retryable());
        let text_got = error.to_string();
        assert!(text_got.contains(text), "{text_got}");
        assert!(text_got.starts_with("agent-1:7337 broke the protocol"), "{text_got}");
        conversation.expect_close().await;
    }
}

#[tokio::test]
async fn a_stream_that_nobody_asked_for_is_fatal_and_a_stray_answer_is_not() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    let id = conversation.expect_rpc().await.id();
    let stray = id.0.wrapping_sub(1) & i64::MAX;
    let stray =
        Frame::RpcFailure { id: shuffled_client::protocol::RequestId(stray), error: "x".into() };
    conversation.send(&stray).await;
    let body = Message::from(removed(1)).encode();
    conversation.send(&Frame::RpcResponse { id, body }).await;
    assert_eq!(asking.await.unwrap().unwrap(), 1);

    let asking = remove_one(&client, "rdd_0_0");
    conversation.expect_rpc().await;
    conversation.send_stream("1_0", b"abc").await;
    let error = asking.await.unwrap().unwrap_err();
    let RequestError::Connection(ConnectionError::Misbehaved { error, .. }) = error else {
        panic!("{error}")
    };
    assert!(matches!(error, Misbehaviour::StreamOutOfOrder { .. }));
}

#[tokio::test]
async fn a_wrong_or_unreadable_answer_names_itself() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let asking = remove_one(&client, "rdd_0_0");
    let mut conversation = peer.accept().await;
    conversation.expect_rpc().await.answer(CorruptionCause::DiskIssue).await;
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "agent-1:7337 answered with CorruptionCause where BlocksRemoved belongs"
    );
    let asking = remove_one(&client, "rdd_0_0");
    conversation.expect_rpc().await.acknowledge().await;
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::Undecodable { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connecting_has_a_time_limit_that_all_who_wait_share() {
    let options = ClientOptions::default();
    let client = ShuffleServiceClient::with_dial(server(), options, Arc::new(NeverDial));
    let start = tokio::time::Instant::now();
    let asking: Vec<_> = (0..100).map(|_| remove_one(&client, "rdd_0_0")).collect();
    for asking in asking {
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.is_retryable());
        assert_eq!(error.to_string(), "Connecting to agent-1:7337 timed out (120000 ms)");
    }
    assert_eq!(start.elapsed().as_secs(), TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_retryable_and_names_the_peer() {
    let (client, _peer, line) = in_memory(ClientOptions::default());
    line.set_down(true);
    let error = remove_one(&client, "rdd_0_0").await.unwrap().unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(error.to_string(), "Failed to connect to agent-1:7337: connection refused");
}

#[tokio::test(start_paused = true)]
async fn an_executor_tries_three_times_five_seconds_apart() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    line.set_down(true);
    let start = tokio::time::Instant::now();
    let policy = RegistrationPolicy::default();
    let error = client
        .register_executor_with_retries(&app(), &"1".into(), &info(), &policy)
        .await
        .unwrap_err();
    assert_eq!((error.attempts, line.dialed()), (3, 3));
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(
        error.to_string().starts_with("Unable to register with external shuffle server due to")
    );

    // Refused, not answered, answered.
    line.set_down(false);
    let start = tokio::time::Instant::now();
    let script = async {
        let register = RegisterExecutor { app_id: app(), exec_id: "1".into(), info: info() };
        let mut first = peer.accept().await;
        first.expect(register.clone()).await.refuse("java.lang.RuntimeException: busy").await;
        first.expect(register.clone()).await;
        first.expect_close().await; // given up, so that the next attempt has a chance
        peer.accept().await.expect(register).await.acknowledge().await;
    };
    let exec = "1".into();
    let (app, info) = (app(), info());
    let registering = client.register_executor_with_retries(&app, &exec, &info, &policy);
    let ((), registered) = tokio::join!(script, registering);
    registered.unwrap();
    assert_eq!(start.elapsed().as_secs(), 5 + 5 + 5);
}
