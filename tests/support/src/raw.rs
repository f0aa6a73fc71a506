//! A client that sends what a test tells it to, byte for byte if need be, and shows what comes back.

use std::net::SocketAddr;

use bytes::Bytes;
use shuffle_protocol::RequestId;
use shuffle_protocol::codec::{FrameCodec, ReadError};
use shuffle_protocol::frame::{Event, Frame, StreamChunkId};
use shuffle_protocol::message::{Message, StreamHandle};
use tokio::io::{AsyncWriteExt as _, Result};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tokio_util::codec::Framed;

/// Larger than any answer a test provokes.
const FRAME_LIMIT: usize = 64 << 20;

/// A frame with everything that came behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The frame.
    pub frame: Frame,
    /// Its streamed bytes.
    pub data: Vec<u8>,
}

/// One connection to a service. Methods panic where the service does not behave, as tests do.
#[derive(Debug)]
pub struct RawClient {
    framed: Framed<TcpStream, FrameCodec>,
    next_id: i64,
}

impl RawClient {
    /// Connects.
    pub async fn connect(service: SocketAddr) -> Self {
        let socket = TcpStream::connect(service).await.expect("the service listens");
        socket.set_nodelay(true).expect("a fresh socket takes options");
        Self { framed: Framed::new(socket, FrameCodec::new(FRAME_LIMIT)), next_id: 1 }
    }

    /// This side's address, which the service logs.
    pub fn local_addr(&self) -> SocketAddr {
        self.framed.get_ref().local_addr().expect("a connected socket has an address")
    }

    /// Writes bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.framed.get_mut().write_all(bytes).await
    }

    /// Writes a frame.
    pub async fn send(&mut self, frame: &Frame) {
        let mut bytes = bytes::BytesMut::new();
        frame.encode(&mut bytes);
        self.send_bytes(&bytes).await.expect("the service takes frames");
    }

    /// Closes this side's half; answers may still come.
    pub async fn finish(&mut self) {
        self.framed.get_mut().shutdown().await.expect("the connection is open");
    }

    /// The next frame and its bytes; `None` when the service closed the connection.
    pub async fn next(&mut self) -> Option<Answer> {
        match self.try_next().await {
            Ok(answer) => answer,
            Err(ReadError::Io(_)) => None,
            Err(error) => panic!("the service sent what is no frame: {error}"),
        }
    }

    /// The next frame, or the next of its streamed bytes as they come; `None` when the service closed
    /// the connection.
    pub async fn event(&mut self) -> Option<Event> {
        match self.framed.next().await? {
            Ok(event) => Some(event),
            Err(ReadError::Io(_)) => None,
            Err(error) => panic!("the service sent what is no frame: {error}"),
        }
    }

    /// The next frame and its bytes, for services that may send what is none.
    pub async fn try_next(&mut self) -> std::result::Result<Option<Answer>, ReadError> {
        let frame = match self.framed.next().await.transpose()? {
            None => return Ok(None),
            Some(Event::Frame(frame)) => frame,
            Some(Event::Data { .. }) => unreachable!("data is taken with its frame"),
        };
        let mut data = Vec::new();
        while (data.len() as u64) < frame.streamed() {
            match self.framed.next().await.transpose()? {
                Some(Event::Data { bytes, .. }) => data.extend_from_slice(&bytes),
                _ => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
            }
        }
        Ok(Some(Answer { frame, data }))
    }

    /// True once the service has closed the connection; anything it sends before is dropped.
    pub async fn closed(&mut self) -> bool {
        while let Some(_answer) = self.next().await {}
        true
    }

    /// Sends a payload as an RPC and waits for its answer: the body, or the text of the failure.
    pub async fn rpc_bytes(&mut self, body: Bytes) -> std::result::Result<Bytes, String> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.send(&Frame::RpcRequest { id, body }).await;
        match self.next().await.expect("the service answers an RPC").frame {
            Frame::RpcResponse { id: of, body } if of == id => Ok(body),
            Frame::RpcFailure { id: of, error } if of == id => Err(error),
            other => panic!("expected the answer to RPC {id}, got {other:?}"),
        }
    }

    /// Sends a message as an RPC and waits for its answer.
    pub async fn rpc(&mut self, message: impl Into<Message>) -> std::result::Result<Bytes, String> {
        self.rpc_bytes(message.into().encode()).await
    }

    /// Sends a message as an RPC and reads the message in its answer.
    pub async fn ask(
        &mut self,
        message: impl Into<Message>,
    ) -> std::result::Result<Message, String> {
        self.rpc(message).await.map(|body| Message::decode(body).expect("the answer is a message"))
    }

    /// Sends a message that nobody answers.
    pub async fn one_way(&mut self, message: impl Into<Message>) {
        self.send(&Frame::OneWayMessage { body: message.into().encode() }).await;
    }

    /// Opens a stream.
    pub async fn open(
        &mut self,
        message: impl Into<Message>,
    ) -> std::result::Result<StreamHandle, String> {
        match self.ask(message).await? {
            Message::StreamHandle(handle) => Ok(handle),
            other => panic!("expected a StreamHandle, got {other:?}"),
        }
    }

    /// Fetches one chunk in a frame: its bytes, or the text of the failure.
    pub async fn chunk(&mut self, chunk: StreamChunkId) -> std::result::Result<Vec<u8>, String> {
        self.send(&Frame::ChunkFetchRequest(chunk)).await;
        let Answer { frame, data } = self.next().await.expect("the service answers");
        match frame {
            Frame::ChunkFetchSuccess { chunk: of, .. } if of == chunk => Ok(data),
            Frame::ChunkFetchFailure { chunk: of, error } if of == chunk => Err(error),
            other => panic!("expected chunk {chunk:?}, got {other:?}"),
        }
    }

    /// Opens a stream and fetches all its chunks, one after the other.
    pub async fn fetch(
        &mut self,
        message: impl Into<Message>,
    ) -> std::result::Result<Vec<std::result::Result<Vec<u8>, String>>, String> {
        let handle = self.open(message).await?;
        let mut chunks = Vec::new();
        for chunk in 0..handle.num_chunks {
            chunks.push(self.chunk(StreamChunkId { stream: handle.stream_id, chunk }).await);
        }
        Ok(chunks)
    }

    /// Fetches a stream by name: its bytes, or the text of the failure.
    pub async fn stream(&mut self, name: &str) -> std::result::Result<Vec<u8>, String> {
        self.send(&Frame::StreamRequest { name: name.to_owned() }).await;
        let Answer { frame, data } = self.next().await.expect("the service answers");
        match frame {
            Frame::StreamResponse { name: of, .. } if of == name => Ok(data),
            Frame::StreamFailure { name: of, error } if of == name => Err(error),
            other => panic!("expected stream {name}, got {other:?}"),
        }
    }
}
