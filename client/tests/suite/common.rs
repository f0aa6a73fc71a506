//! What the client's tests share.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use shuffled_client::protocol::StreamId;
use shuffled_client::protocol::block_id::BlockId;
use shuffled_client::protocol::frame::{Frame, StreamChunkId};
use shuffled_client::protocol::message::{FetchShuffleBlocks, Message, StreamHandle};
use shuffled_client::{ClientOptions, Dial, Dialing, ServerAddr, ShuffleServiceClient, Transport};
use test_support::peer::{Conversation, Line, Peer};

/// Connects over a [`Line`].
#[derive(Debug)]
struct MemoryDial(Line);

impl Dial for MemoryDial {
    fn dial<'a>(&'a self, _: &'a ServerAddr) -> Dialing<'a> {
        let connected = self.0.connect();
        Box::pin(async move { connected.map(|stream| Box::new(stream) as Box<dyn Transport>) })
    }
}

/// Never connects.
#[derive(Debug)]
pub(crate) struct NeverDial;

impl Dial for NeverDial {
    fn dial<'a>(&'a self, _: &'a ServerAddr) -> Dialing<'a> {
        Box::pin(std::future::pending::<io::Result<Box<dyn Transport>>>())
    }
}

pub(crate) fn server() -> ServerAddr {
    ServerAddr::new("agent-1", 7337)
}

/// A client, and the peer that it talks to in memory.
pub(crate) fn in_memory(options: ClientOptions) -> (ShuffleServiceClient, Peer, Line) {
    let (peer, line) = Peer::in_memory();
    let dial = Arc::new(MemoryDial(line.clone()));
    (ShuffleServiceClient::with_dial(server(), options, dial), peer, line)
}

pub(crate) fn over_tcp(peer: &Peer, options: ClientOptions) -> ShuffleServiceClient {
    ShuffleServiceClient::new(peer.addr().into(), options)
}

/// What a block holds in these tests: as many bytes as its reduce id says, of its map id.
pub(crate) fn block_bytes(map: i64, reduce: i32) -> Vec<u8> {
    vec![map.to_be_bytes()[7]; usize::try_from(reduce).expect("not negative")]
}

pub(crate) fn shuffle_block(map: i64, reduce: i32) -> BlockId {
    format!("shuffle_0_{map}_{reduce}").parse().expect("a block id")
}

/// The stream that an honest service opens for a message.
fn blocks_of(message: &FetchShuffleBlocks) -> Vec<(i64, i32)> {
    let reduces = message.reduce_ids.iter();
    let maps = message.map_ids.iter().zip(reduces);
    maps.flat_map(|(&map, reduces)| reduces.iter().map(move |&reduce| (map, reduce))).collect()
}

/// Answers fetches honestly until the client is gone.
pub(crate) async fn serve_blocks(mut conversation: Conversation) {
    let mut streams: HashMap<StreamId, Vec<(i64, i32)>> = HashMap::new();
    let mut next_stream = 1000;
    while let Some(frame) = conversation.next_frame().await {
        match frame {
            Frame::RpcRequest { id, body } => {
                let Ok(Message::FetchShuffleBlocks(message)) = Message::decode(body) else {
                    panic!("only fetches are served here")
                };
                let blocks = blocks_of(&message);
                let num_chunks = i32::try_from(blocks.len()).expect("few");
                next_stream += 1;
                streams.insert(StreamId(next_stream), blocks);
                let handle = StreamHandle { stream_id: StreamId(next_stream), num_chunks };
                let body = Message::from(handle).encode();
                conversation.send(&Frame::RpcResponse { id, body }).await;
            }
            Frame::ChunkFetchRequest(chunk) => {
                let bytes = chunk_bytes(&streams, chunk);
                conversation.send_chunk(chunk, &bytes).await;
            }
            Frame::StreamRequest { name } => {
                let (stream, chunk) = name.split_once('_').expect("a stream name");
                let stream = StreamId(stream.parse().expect("a number"));
                let chunk = chunk.parse().expect("a number");
                let bytes = chunk_bytes(&streams, StreamChunkId { stream, chunk });
                conversation.send_stream(&name, &bytes).await;
            }
            other => panic!("{other:?} is not served here"),
        }
    }
}

fn chunk_bytes(streams: &HashMap<StreamId, Vec<(i64, i32)>>, chunk: StreamChunkId) -> Vec<u8> {
    let blocks = &streams[&chunk.stream];
    let (map, reduce) = blocks[usize::try_from(chunk.chunk).expect("not negative")];
    block_bytes(map, reduce)
}

/// Lets every other task run until all wait. Works on a stopped clock.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_nanos(1)).await;
}
