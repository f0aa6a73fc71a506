//! As much of a master as tests of the HTTP need: they say what it says.

use std::time::Duration;

use serde_json::Value;
use shuffled_client::ServerAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A test that waits for longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct FakeMaster {
    addr: ServerAddr,
    subscriptions: mpsc::UnboundedReceiver<(Value, Stream)>,
    calls: mpsc::UnboundedReceiver<Value>,
}

/// The stream of a subscription.
pub(crate) struct Stream(TcpStream);

impl FakeMaster {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().into();
        let (subscribed, subscriptions) = mpsc::unbounded_channel();
        let (called, calls) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, subscribed.clone(), called.clone()));
            }
        });
        Self { addr, subscriptions, calls }
    }

    pub(crate) fn addr(&self) -> &ServerAddr {
        &self.addr
    }

    /// The next SUBSCRIBE.
    pub(crate) async fn subscription(&mut self) -> (Value, Stream) {
        tokio::time::timeout(PATIENCE, self.subscriptions.recv()).await.unwrap().unwrap()
    }

    /// The next of all other calls.
    pub(crate) async fn call(&mut self) -> Value {
        tokio::time::timeout(PATIENCE, self.calls.recv()).await.unwrap().unwrap()
    }
}

impl Stream {
    pub(crate) async fn say(&mut self, event: &Value) {
        let event = event.to_string();
        let record = format!("{}\n{event}", event.len());
        let chunk = format!("{:x}\r\n{record}\r\n", record.len());
        self.0.write_all(chunk.as_bytes()).await.unwrap();
    }
}

async fn serve(
    mut socket: TcpStream,
    subscribed: mpsc::UnboundedSender<(Value, Stream)>,
    called: mpsc::UnboundedSender<Value>,
) {
    while let Some((_, body)) = request(&mut socket).await {
        let call: Value = serde_json::from_slice(&body).unwrap();
        if call["type"] == "SUBSCRIBE" {
            let open =
                "HTTP/1.1 200 OK\r\nMesos-Stream-Id: abc\r\nTransfer-Encoding: chunked\r\n\r\n";
            socket.write_all(open.as_bytes()).await.unwrap();
            subscribed.send((call, Stream(socket))).unwrap();
            return;
        }
        let accepted = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        socket.write_all(accepted.as_bytes()).await.unwrap();
        // A test that has seen enough.
        let _ = called.send(call);
    }
}

/// Reads one request whole: its head in small letters, and its body. None at the end.
pub(crate) async fn request(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut seen = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let count = socket.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        seen.extend_from_slice(&piece[..count]);
        let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.lines().next().unwrap().parse().unwrap();
        if seen.len() >= end + 4 + length {
            return Some((head, seen.split_off(end + 4)));
        }
    }
}
