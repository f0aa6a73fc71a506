//! Fetching blocks.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use shuffled_client::protocol::StreamId;
use shuffled_client::protocol::block_id::BlockId;
use shuffled_client::protocol::checksum::{Algorithm, Checksummer};
use shuffled_client::protocol::frame::{Frame, StreamChunkId};
use shuffled_client::protocol::message::{Message, OpenBlocks, StreamHandle};
use shuffled_client::{
    BlockError, BlockSink, Checksummed, ClientOptions, Discard, FetchRequest, Fetched, FileSink,
};
use test_support::peer::{Conversation, Peer};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::common::{block_bytes, in_memory, over_tcp, serve_blocks, settle, shuffle_block};

const SECOND: Duration = Duration::from_secs(1);

fn request(blocks: impl IntoIterator<Item = BlockId>) -> FetchRequest {
    FetchRequest {
        app_id: "app-1".into(),
        exec_id: "1".into(),
        blocks: blocks.into_iter().collect(),
    }
}

fn named(ids: &[&str]) -> FetchRequest {
    request(ids.iter().map(|id| id.parse().expect("a block id")))
}

fn chunk(stream: i64, chunk: i32) -> StreamChunkId {
    StreamChunkId { stream: StreamId(stream), chunk }
}

/// Answers the open message with a stream, and gives the message.
async fn open(peer: &mut Conversation, stream: i64, num_chunks: i32) -> Message {
    let asked = peer.expect_rpc().await;
    let message = asked.message().clone();
    asked.answer(StreamHandle { stream_id: StreamId(stream), num_chunks }).await;
    message
}

fn by_block<T>(fetched: Vec<Fetched<T>>) -> HashMap<String, Result<T, BlockError>> {
    let blocks = fetched.len();
    let by_block: HashMap<_, _> =
        fetched.into_iter().map(|fetched| (fetched.block.to_string(), fetched.result)).collect();
    assert_eq!(by_block.len(), blocks, "one result each");
    by_block
}

#[tokio::test]
async fn blocks_come_under_their_own_names_whatever_the_order_of_chunks() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let blocks = [(9, 1), (7, 0), (9, 0), (7, 70_000), (8, 3)]
        .map(|(map, reduce)| shuffle_block(map, reduce));
    let fetch = client.fetch(request(blocks.clone())).unwrap();
    tokio::spawn(serve_blocks(peer.accept().await.fragmented(1000)));
    let fetched = fetch.all().await;
    assert_eq!(fetched.len(), blocks.len());
    for Fetched { block, result } in fetched {
        let BlockId::Shuffle { map, reduce, .. } = block else { panic!() };
        assert_eq!(result.unwrap(), block_bytes(map.0, reduce.0));
    }
}

#[tokio::test]
async fn chunks_may_be_answered_in_any_order() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let fetch = client.fetch(named(&["rdd_0_0", "rdd_0_1", "rdd_0_2"])).unwrap();
    let mut peer = peer.accept().await;
    let expected = OpenBlocks {
        app_id: "app-1".into(),
        exec_id: "1".into(),
        block_ids: ["rdd_0_0", "rdd_0_1", "rdd_0_2"].iter().collect(),
    };
    assert_eq!(open(&mut peer, 5, 3).await, expected.into());
    for index in 0..3 {
        assert_eq!(peer.expect_chunk_request().await, chunk(5, index), "asked for in order");
    }
    let large = vec![2; 1 << 20]; // more than any buffer between
    let sending = async {
        peer.send_chunk(chunk(5, 2), &large).await;
        peer.send_chunk(chunk(5, 1), b"").await;
        peer.send_chunk(chunk(5, 0), b"0").await;
    };
    let (fetched, ()) = tokio::join!(fetch.all(), sending);
    let fetched = by_block(fetched);
    assert_eq!(fetched["rdd_0_0"].as_ref().unwrap(), &b"0"[..]);
    assert_eq!(fetched["rdd_0_1"].as_ref().unwrap(), &b""[..]);
    assert_eq!(fetched["rdd_0_2"].as_ref().unwrap(), &large);
}

#[tokio::test]
async fn a_refused_chunk_fails_itself_and_those_behind_it_without_retry() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let fetch = client.fetch(named(&["rdd_0_0", "rdd_0_1", "rdd_0_2", "rdd_0_3"])).unwrap();
    let all = tokio::spawn(fetch.all());
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 4).await;
    for _ in 0..4 {
        peer.expect_chunk_request().await;
    }
    let error = "java.lang.RuntimeException: Failed to open file: /x.index\n\tat here".to_owned();
    peer.send(&Frame::ChunkFetchFailure { chunk: chunk(5, 1), error }).await;
    peer.send_chunk(chunk(5, 2), &vec![2; 1 << 20]).await; // ignored, however large
    peer.send_chunk(chunk(5, 0), b"zero").await;
    peer.send_chunk(chunk(5, 3), b"").await;
    let fetched = by_block(all.await.unwrap());
    assert_eq!(fetched["rdd_0_0"].as_ref().unwrap(), &b"zero"[..]);
    for id in ["rdd_0_1", "rdd_0_2", "rdd_0_3"] {
        let error = fetched[id].as_ref().unwrap_err();
        assert!(!error.is_retryable());
        assert_eq!(
            error.to_string(),
            "agent-1:7337: Failure while fetching StreamChunkId[streamId=5,chunkIndex=1]: \
             java.lang.RuntimeException: Failed to open file: /x.index"
        );
    }
    // The connection goes on.
    let fetch = client.fetch(named(&["rdd_1_0"])).unwrap();
    open(&mut peer, 6, 1).await;
    peer.expect_chunk_request().await;
    peer.send_chunk(chunk(6, 0), b"again").await;
    assert_eq!(by_block(fetch.all().await)["rdd_1_0"].as_ref().unwrap(), &b"again"[..]);
}

#[tokio::test(start_paused = true)]
async fn a_break_is_retried_for_what_is_outstanding_only() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let fetch = client.fetch(named(&["rdd_0_0", "rdd_0_1", "rdd_0_2"])).unwrap();
    let mut first = peer.accept().await;
    open(&mut first, 5, 3).await;
    first.expect_chunk_request().await;
    first.send_chunk(chunk(5, 0), b"zero").await;
    // Half of the next one.
    first.send(&Frame::ChunkFetchSuccess { chunk: chunk(5, 1), length: 6 }).await;
    first.send_bytes(b"bro").await;
    settle().await;
    drop(first);
    let broken_at = Instant::now();
    let all = tokio::spawn(fetch.all());
    let mut second = peer.accept().await;
    assert_eq!(broken_at.elapsed().as_secs(), 5);
    let Message::OpenBlocks(again) = open(&mut second, 6, 2).await else { panic!() };
    assert_eq!(again.block_ids.iter().collect::<Vec<_>>(), ["rdd_0_1", "rdd_0_2"]);
    for index in 0..2 {
        assert_eq!(second.expect_chunk_request().await, chunk(6, index));
    }
    second.send_chunk(chunk(6, 0), b"one").await;
    second.send_chunk(chunk(6, 1), b"two").await;
    let fetched = by_block(all.await.unwrap());
    assert_eq!(fetched["rdd_0_0"].as_ref().unwrap(), &b"zero"[..]);
    assert_eq!(fetched["rdd_0_1"].as_ref().unwrap(), &b"one"[..]);
    assert_eq!(fetched["rdd_0_2"].as_ref().unwrap(), &b"two"[..]);
    assert_eq!(line.dialed(), 2);
}

#[tokio::test(start_paused = true)]
async fn retries_are_counted_for_the_call_and_then_everything_outstanding_fails() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let fetch = client.fetch(named(&["rdd_0_0", "rdd_0_1", "rdd_0_2", "rdd_0_3", "rdd_0_4"]));
    let all = tokio::spawn(fetch.unwrap().all());
    let start = Instant::now();
    // Each attempt gets one block further, which gives no retry back.
    for attempt in 0..4 {
        let mut peer = peer.accept().await;
        open(&mut peer, 5, 5 - attempt).await;
        peer.expect_chunk_request().await;
        peer.send_chunk(chunk(5, 0), b"x").await;
        settle().await;
    }
    let fetched = by_block(all.await.unwrap());
    assert_eq!(line.dialed(), 4);
    assert_eq!(start.elapsed().as_secs(), 15);
    for id in ["rdd_0_0", "rdd_0_1", "rdd_0_2", "rdd_0_3"] {
        assert!(fetched[id].is_ok(), "{id}");
    }
    let error = fetched["rdd_0_4"].as_ref().unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(error.to_string(), "Connection from agent-1:7337 closed");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_down_is_retried_and_a_refusal_to_open_is_not() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    line.set_down(true);
    let fetched = by_block(client.fetch(named(&["rdd_0_0", "rdd_0_1"])).unwrap().all().await);
    assert_eq!(line.dialed(), 4);
    assert!(fetched.values().all(|result| result.as_ref().unwrap_err().is_retryable()));

    line.set_down(false);
    sleep(5 * SECOND).await; // out of reach of the failure a moment ago
    let fetch = client.fetch(named(&["rdd_0_0", "rdd_0_1"])).unwrap();
    let mut peer = peer.accept().await;
    peer.expect_rpc().await.refuse("java.lang.IllegalArgumentException: no").await;
    for result in by_block(fetch.all().await).values() {
        let error = result.as_ref().unwrap_err();
        assert!(!error.is_retryable());
        let text = "agent-1:7337 refused: java.lang.IllegalArgumentException: no";
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(line.dialed(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_failed_a_moment_ago_is_not_tried_for_every_fetch() {
    let (client, _peer, line) = in_memory(ClientOptions::default());
    line.set_down(true);
    let fetching: Vec<_> =
        (0..50).map(|_| tokio::spawn(client.fetch(named(&["rdd_0_0"])).unwrap().all())).collect();
    for fetching in fetching {
        fetching.await.unwrap();
    }
    assert_eq!(line.dialed(), 4, "one for each round of retries");
}

#[tokio::test]
async fn a_stream_with_too_few_or_too_many_chunks_is_not_read() {
    for num_chunks in [0, 1, 3, -1] {
        let (client, mut peer, _line) = in_memory(ClientOptions::default());
        let fetch = client.fetch(named(&["rdd_0_0", "rdd_0_1"])).unwrap();
        let mut peer = peer.accept().await;
        open(&mut peer, 5, num_chunks).await;
        for result in by_block(fetch.all().await).values() {
            let error = result.as_ref().unwrap_err();
            assert!(matches!(error, BlockError::WrongChunkCount { .. }));
            assert!(!error.is_retryable());
        }
    }
}

#[tokio::test]
async fn the_old_protocol_asks_by_name() {
    let options = ClientOptions { use_old_fetch_protocol: true, ..Default::default() };
    let (client, mut peer, _line) = in_memory(options);
    let fetch = client.fetch(named(&["shuffle_0_1_2", "shuffle_0_0_0"])).unwrap();
    let mut peer = peer.accept().await;
    assert_eq!(open(&mut peer, 5, 2).await.name(), "OpenBlocks");
    for index in 0..2 {
        peer.expect_chunk_request().await;
        peer.send_chunk(chunk(5, index), b"x").await;
    }
    assert!(by_block(fetch.all().await).values().all(Result::is_ok));
}

#[tokio::test]
async fn a_block_too_large_for_memory_fails_alone() {
    let options = ClientOptions { max_block_in_memory: 1000, ..Default::default() };
    let (client, mut peer, _line) = in_memory(options);
    let blocks = [10, 1001, 1000].map(|reduce| shuffle_block(1, reduce));
    let fetch = client.fetch(request(blocks)).unwrap();
    tokio::spawn(serve_blocks(peer.accept().await));
    let fetched = by_block(fetch.all().await);
    assert_eq!(fetched["shuffle_0_1_10"].as_ref().unwrap(), &block_bytes(1, 10));
    assert_eq!(fetched["shuffle_0_1_1000"].as_ref().unwrap(), &block_bytes(1, 1000));
    let error = fetched["shuffle_0_1_1001"].as_ref().unwrap_err();
    assert!(matches!(error, BlockError::TooLargeForMemory { length: 1001, limit: 1000 }));
}

#[tokio::test]
async fn a_block_named_twice_is_fetched_once_and_no_blocks_are_refused() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let fetch = client.fetch(request([shuffle_block(1, 2), shuffle_block(1, 2)])).unwrap();
    tokio::spawn(serve_blocks(peer.accept().await));
    assert_eq!(fetch.all().await.len(), 1);
    let error = client.fetch(request([])).unwrap_err();
    assert_eq!(error.to_string(), "Zero-sized blockIds array");
}

#[tokio::test]
async fn blocks_go_to_files_with_their_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let blocks = [0, 1, 300_000].map(|reduce| shuffle_block(7, reduce));
    let root = dir.path().to_owned();
    let fetch = client
        .fetch_to(request(blocks), move |block| {
            Checksummed::new(FileSink::new(root.join(block.to_string())), Algorithm::Crc32c)
        })
        .unwrap();
    tokio::spawn(serve_blocks(peer.accept().await.fragmented(4096)));
    for Fetched { block, result } in fetch.all().await {
        let BlockId::Shuffle { reduce, .. } = block else { panic!() };
        let ((path, length), sum) = result.unwrap();
        let expected = block_bytes(7, reduce.0);
        assert_eq!(path, dir.path().join(block.to_string()));
        assert_eq!(length, expected.len() as u64);
        let mut expected_sum = Checksummer::new(Algorithm::Crc32c);
        expected_sum.update(&expected);
        assert_eq!(sum, expected_sum.value());
        assert_eq!(std::fs::read(path).unwrap(), expected);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_break_within_a_block_starts_its_file_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("block");
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let opened = Arc::new(AtomicUsize::new(0));
    let fetch = {
        let (path, opened) = (path.clone(), opened.clone());
        client.fetch_to(named(&["shuffle_0_0_0"]), move |_| {
            opened.fetch_add(1, Ordering::SeqCst);
            FileSink::new(&path)
        })
    };
    let mut first = peer.accept().await;
    open(&mut first, 5, 1).await;
    assert_eq!(first.expect_stream_request().await, "5_0");
    first.send(&Frame::StreamResponse { name: "5_0".into(), length: 1 << 40 }).await;
    first.send_bytes(&[7; 10_000]).await;
    settle().await;
    drop(first);
    let mut second = peer.accept().await;
    open(&mut second, 6, 1).await;
    second.expect_stream_request().await;
    second.send_stream("6_0", b"the block").await;
    let fetched = by_block(fetch.unwrap().all().await);
    let (written, length) = fetched["shuffle_0_0_0"].as_ref().unwrap();
    assert_eq!((written, *length), (&path, 9));
    assert_eq!(std::fs::read(&path).unwrap(), b"the block");
    assert_eq!(opened.load(Ordering::SeqCst), 1, "the sink is told to begin again");
}

/// SPARK-27876: a block of more than 2 GiB travels as a stream.
#[tokio::test]
async fn c38_a_stream_of_any_size_is_taken() {
    const LENGTH: u64 = (3 << 30) + 5;
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let fetch = client.fetch_to(named(&["shuffle_0_0_0"]), |_| Discard::default()).unwrap();
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 1).await;
    peer.expect_stream_request().await;
    let sending = async {
        peer.send(&Frame::StreamResponse { name: "5_0".into(), length: LENGTH }).await;
        let piece = vec![1; 1 << 20];
        let mut left = LENGTH;
        while left > 0 {
            let now = usize::try_from(left).unwrap().min(piece.len());
            peer.send_bytes(&piece[..now]).await;
            left -= now as u64;
        }
    };
    let (fetched, ()) = tokio::join!(fetch.all(), sending);
    assert_eq!(*by_block(fetched)["shuffle_0_0_0"].as_ref().unwrap(), LENGTH);
}

#[tokio::test]
async fn a_refused_stream_fails_those_behind_it() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let fetch = client.fetch_to(named(&["rdd_0_0", "rdd_0_1"]), |_| Discard::default()).unwrap();
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 2).await;
    for _ in 0..2 {
        peer.expect_stream_request().await;
    }
    let error = "java.lang.IllegalStateException: Unknown stream ID.".to_owned();
    peer.send(&Frame::StreamFailure { name: "5_0".into(), error }).await;
    for result in by_block(fetch.all().await).values() {
        assert!(result.as_ref().unwrap_err().to_string().ends_with("Unknown stream ID."));
    }
}

/// Fails for the blocks of map 1, writes nothing anywhere otherwise.
struct Failing(bool);

impl BlockSink for Failing {
    type Output = ();

    async fn begin(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    async fn write(&mut self, _: Bytes) -> io::Result<()> {
        if self.0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    async fn finish(self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_sink_that_fails_fails_its_block_alone() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let blocks = [(0, 10), (1, 500_000), (2, 10)].map(|(map, reduce)| shuffle_block(map, reduce));
    let is_bad = |block: &BlockId| block.to_string().starts_with("shuffle_0_1_");
    let fetch = client.fetch_to(request(blocks), move |block| Failing(is_bad(block))).unwrap();
    tokio::spawn(serve_blocks(peer.accept().await));
    for Fetched { block, result } in fetch.all().await {
        match result {
            Ok(()) => assert!(!is_bad(&block)),
            Err(error) => {
                assert!(is_bad(&block));
                assert!(matches!(error, BlockError::Sink(_)) && !error.is_retryable());
            }
        }
    }
    assert_eq!(line.dialed(), 1);
}

#[tokio::test]
async fn a_sink_that_panics_leaves_no_block_without_a_result() {
    let (client, mut peer, _line) = in_memory(ClientOptions::default());
    let blocks = (0..5).map(|reduce| shuffle_block(0, reduce));
    let fetch = client
        .fetch_to(request(blocks), |block| {
            assert!(!block.to_string().ends_with("_2"), "injected");
            Discard::default()
        })
        .unwrap();
    tokio::spawn(serve_blocks(peer.accept().await));
    let fetched = by_block(fetch.all().await);
    assert_eq!(fetched.len(), 5);
    assert!(fetched["shuffle_0_0_0"].is_ok());
    assert!(matches!(fetched["shuffle_0_0_4"], Err(BlockError::Abandoned)));
}

/// Takes bytes only as the test allows.
struct Slow(Arc<Semaphore>);

impl BlockSink for Slow {
    type Output = ();

    async fn begin(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    async fn write(&mut self, _: Bytes) -> io::Result<()> {
        let permit = self.0.acquire().await.expect("never closed");
        permit.forget();
        Ok(())
    }

    async fn finish(self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_the_sender_up_and_is_no_dead_connection() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let allowed = Arc::new(Semaphore::new(0));
    let fetch = {
        let allowed = allowed.clone();
        client.fetch_to(named(&["shuffle_0_0_0"]), move |_| Slow(allowed.clone())).unwrap()
    };
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 1).await;
    peer.expect_stream_request().await;
    let sent = Arc::new(AtomicUsize::new(0));
    let sending = {
        let sent = sent.clone();
        tokio::spawn(async move {
            peer.send(&Frame::StreamResponse { name: "5_0".into(), length: 64 << 20 }).await;
            for _ in 0..64 {
                peer.send_bytes(&[0; 1 << 20]).await;
                sent.fetch_add(1, Ordering::SeqCst);
            }
            peer
        })
    };
    sleep(600 * SECOND).await;
    let held_at = sent.load(Ordering::SeqCst);
    assert!(held_at < 8, "{held_at} MiB were taken from the network for a reader that reads none");
    allowed.add_permits(1 << 20);
    assert!(by_block(fetch.all().await)["shuffle_0_0_0"].is_ok());
    assert_eq!(line.dialed(), 1, "quiet for ten minutes, but not by the peer's fault");
    sending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_fetch_does_not_hold_up_the_connection() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let never = Arc::new(Semaphore::new(0));
    let fetch = client.fetch_to(named(&["shuffle_0_0_0"]), move |_| Slow(never.clone())).unwrap();
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 1).await;
    peer.expect_stream_request().await;
    let sending = tokio::spawn(async move {
        peer.send_stream("5_0", &vec![0; 16 << 20]).await;
        peer
    });
    settle().await;
    drop(fetch);
    let mut peer = sending.await.unwrap();
    let fetch = client.fetch(named(&["rdd_0_0"])).unwrap();
    open(&mut peer, 6, 1).await;
    peer.expect_chunk_request().await;
    peer.send_chunk(chunk(6, 0), b"x").await;
    assert!(by_block(fetch.all().await)["rdd_0_0"].is_ok());
    assert_eq!(line.dialed(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_blocks_are_asked_for_than_may_be_in_flight() {
    let max_requests_in_flight = 3.try_into().unwrap();
    let (client, mut peer, _line) =
        in_memory(ClientOptions { max_requests_in_flight, ..Default::default() });
    let fetch = client.fetch(request((0..10).map(|reduce| shuffle_block(0, reduce)))).unwrap();
    let all = tokio::spawn(fetch.all());
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 10).await;
    for index in 0..3 {
        assert_eq!(peer.expect_chunk_request().await, chunk(5, index));
    }
    for index in 0..10 {
        tokio::select! {
            frame = peer.next_frame() => panic!("{frame:?} while three blocks are in flight"),
            () = settle() => {}
        }
        peer.send_chunk(chunk(5, index), b"x").await;
        if index + 3 < 10 {
            assert_eq!(peer.expect_chunk_request().await, chunk(5, index + 3));
        }
    }
    assert_eq!(all.await.unwrap().len(), 10);
}

/// A caller that takes the results of one fetch after the other, in the wrong order.
#[tokio::test(start_paused = true)]
async fn a_fetch_whose_results_are_not_taken_holds_up_nobody() {
    let max_blocks_ahead = 2.try_into().unwrap();
    let options = ClientOptions { max_blocks_ahead, ..Default::default() };
    let (client, mut peer, line) = in_memory(options);
    let blocks = || request((0..10).map(|block| shuffle_block(block, 300_000)));
    let fetches: Vec<_> = (0..300).map(|_| client.fetch(blocks()).unwrap()).collect();
    tokio::spawn(serve_blocks(peer.accept().await));
    for fetch in fetches.into_iter().rev() {
        let fetched = fetch.all().await;
        assert_eq!(fetched.len(), 10);
        assert!(fetched.iter().all(|fetched| fetched.result.is_ok()));
    }
    assert_eq!(line.dialed(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_blocks_are_asked_for_than_the_caller_takes() {
    let max_blocks_ahead = 2.try_into().unwrap();
    let options = ClientOptions { max_blocks_ahead, ..Default::default() };
    let (client, mut peer, _line) = in_memory(options);
    let mut fetch = client.fetch(request((0..10).map(|reduce| shuffle_block(0, reduce)))).unwrap();
    let mut peer = peer.accept().await;
    open(&mut peer, 5, 10).await;
    for index in 0..2 {
        assert_eq!(peer.expect_chunk_request().await, chunk(5, index));
        peer.send_chunk(chunk(5, index), b"x").await;
    }
    for index in 2..10 {
        tokio::select! {
            frame = peer.next_frame() => panic!("{frame:?} before a result was taken"),
            () = settle() => {}
        }
        assert!(fetch.next().await.unwrap().result.is_ok());
        assert_eq!(peer.expect_chunk_request().await, chunk(5, index));
        peer.send_chunk(chunk(5, index), b"x").await;
    }
    assert_eq!(fetch.all().await.len(), 2);
}

/// What a broken attempt held of the room ahead is given back.
#[tokio::test(start_paused = true)]
async fn a_retry_has_all_the_room_again() {
    let max_blocks_ahead = 2.try_into().unwrap();
    let options = ClientOptions { max_blocks_ahead, ..Default::default() };
    let (client, mut peer, _line) = in_memory(options);
    let fetch = client.fetch(request((0..4).map(|reduce| shuffle_block(0, reduce)))).unwrap();
    let mut first = peer.accept().await;
    open(&mut first, 5, 4).await;
    for index in 0..2 {
        assert_eq!(first.expect_chunk_request().await, chunk(5, index));
    }
    drop(first);
    let all = tokio::spawn(fetch.all());
    serve_blocks(peer.accept().await).await;
    assert!(all.await.unwrap().iter().all(|fetched| fetched.result.is_ok()));
}

/// Ballista 1943: a connection for each fetch exhausts the ports.
#[tokio::test]
async fn c46_twenty_thousand_fetches_take_one_socket() {
    const FETCHES: usize = 20_000;
    let mut peer = Peer::bind().await;
    let client = over_tcp(&peer, ClientOptions::default());
    let serving = tokio::spawn(async move {
        loop {
            tokio::spawn(serve_blocks(peer.accept().await));
            assert_eq!(peer.accepted(), 1);
        }
    });
    let mut fetching = tokio::task::JoinSet::new();
    for number in 0..FETCHES {
        let client = client.clone();
        fetching.spawn(async move {
            let map = i64::try_from(number).unwrap();
            let fetch = client.fetch(request([shuffle_block(map, 10)])).unwrap();
            let fetched = fetch.all().await;
            assert_eq!(fetched[0].result.as_ref().unwrap(), &block_bytes(map, 10));
        });
    }
    while let Some(fetched) = fetching.join_next().await {
        fetched.unwrap();
    }
    assert!(!serving.is_finished(), "a second socket was opened");
    serving.abort();
}

#[tokio::test]
async fn c46_one_fetch_of_twenty_thousand_blocks() {
    let (client, mut peer, line) = in_memory(ClientOptions::default());
    let blocks = (0..200).flat_map(|map| (0..100).map(move |reduce| shuffle_block(map, reduce)));
    let fetch = client.fetch(request(blocks)).unwrap();
    tokio::spawn(serve_blocks(peer.accept().await));
    let fetched = fetch.all().await;
    assert_eq!(fetched.len(), 20_000);
    assert!(fetched.iter().all(|fetched| fetched.result.is_ok()));
    assert_eq!(line.dialed(), 1);
}
