//! One subscription and the calls under it, over HTTP (`spec/mesos-http-api.md` §1–§3).

use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use shuffled_client::ServerAddr;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::conf::Credential;
use crate::link::{self, Answer};
use crate::mesos::recordio::RecordSplitter;

const PATH: &str = "/api/v1/scheduler";
const STREAM_ID: &str = "Mesos-Stream-Id";
/// Longer than any offer of a large cluster.
const MAX_RECORD: usize = 64 << 20;
/// Of a refusal.
const MAX_TEXT: usize = 16 << 10;
const CONNECT: Duration = Duration::from_secs(10);
/// For the answer to a call.
const PATIENCE: Duration = Duration::from_secs(75);
/// For the calls that are waiting still when all is over.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// What comes from a session.
#[derive(Debug)]
pub enum FromMaster {
    /// The answer to SUBSCRIBE.
    Answered(Answer),
    /// A record of the stream.
    Record(Bytes),
    /// A call was refused, and the subscription stands.
    Refused {
        /// Its type.
        call: &'static str,
        /// In the master's words.
        why: String,
    },
    /// It is over.
    Ended(String),
}

/// Dropping it closes everything; what was under way is not heard of.
#[derive(Debug)]
pub struct Session {
    events: mpsc::Receiver<FromMaster>,
    calls: mpsc::UnboundedSender<PendingCall>,
    caller: AbortOnDropHandle<()>,
    _subscription: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct PendingCall {
    name: &'static str,
    body: Bytes,
}

impl Session {
    /// Asks `master` for a subscription.
    pub fn open(master: &ServerAddr, credential: Option<&Credential>, body: Bytes) -> Self {
        let (out, events) = mpsc::channel(64);
        let (calls, pending) = mpsc::unbounded_channel();
        let (give_id, stream_id) = tokio::sync::oneshot::channel();
        let peer = Peer { master: master.clone(), authorization: credential.map(basic) };
        let subscription = subscribe(peer.clone(), body, give_id, out.clone());
        let caller = call_in_turn(peer, stream_id, pending, out);
        Self {
            events,
            calls,
            caller: AbortOnDropHandle::new(tokio::spawn(caller)),
            _subscription: AbortOnDropHandle::new(tokio::spawn(subscription)),
        }
    }

    /// The next thing that comes.
    pub async fn next(&mut self) -> FromMaster {
        // The tasks say how they end; without a word they panicked.
        self.events.recv().await.unwrap_or_else(|| FromMaster::Ended("a task panicked".to_owned()))
    }

    /// Calls after those before it; each waits for its answer.
    pub fn call(&self, name: &'static str, body: Bytes) {
        // Nobody takes it where the session is over, which `next` tells.
        let _ = self.calls.send(PendingCall { name, body });
    }

    /// Waits until the last call has been answered, for a while.
    pub async fn finish(self) {
        drop(self.calls);
        let mut caller = self.caller;
        let mut events = self.events;
        let drain = async { while events.recv().await.is_some() {} };
        tokio::select! {
            _ = timeout(LAST_CALLS, &mut caller) => {}
            () = drain => {}
        }
    }
}

#[derive(Debug, Clone)]
struct Peer {
    master: ServerAddr,
    authorization: Option<header::HeaderValue>,
}

fn basic(credential: &Credential) -> header::HeaderValue {
    let secret = credential.secret.as_deref().unwrap_or("");
    let text = format!("{}:{secret}", credential.principal);
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    let mut value = header::HeaderValue::from_str(&format!("Basic {encoded}"))
        .expect("Base64 is made of characters that a header may have");
    value.set_sensitive(true);
    value
}

impl Peer {
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let addr = (self.master.host(), self.master.port());
        let socket = timeout(CONNECT, TcpStream::connect(addr))
            .await
            .map_err(|_| format!("no connection within {} s", CONNECT.as_secs()))?
            .map_err(|error| error.to_string())?;
        // A call is small and waited for; that it cannot be sent at once is no reason not to send it.
        let _ = socket.set_nodelay(true);
        let (sender, connection) =
            http1::handshake(TokioIo::new(socket)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(
        &self,
        stream_id: Option<&header::HeaderValue>,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = hyper::Uri::from_static(PATH);
        let headers = request.headers_mut();
        let json = header::HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json.clone());
        headers.insert(header::ACCEPT, json);
        if let Ok(host) = self.master.to_string().parse() {
            headers.insert(header::HOST, host);
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        if let Some(id) = stream_id {
            headers.insert(STREAM_ID, id.clone());
        }
        request
    }
}

/// The text of a refusal.
async fn text(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), MAX_TEXT).collect().await;
    body.map_or_else(
        |error| format!("(its text was not readable: {error})"),
        |body| String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    )
}

async fn subscribe(
    peer: Peer,
    body: Bytes,
    give_id: tokio::sync::oneshot::Sender<header::HeaderValue>,
    out: mpsc::Sender<FromMaster>,
) {
    // Whoever does not listen any more has closed the session.
    let say = |what| async { drop(out.send(what).await) };
    let asked = async {
        let mut sender = peer.connect().await?;
        let request = peer.request(None, body);
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((sender, response))
    };
    let (_sender, response) = match asked.await {
        Ok(asked) => asked,
        Err(why) => return say(FromMaster::Answered(Answer::NotNow(why))).await,
    };
    let status = response.status().as_u16();
    let header = |name: &str| response.headers().get(name).cloned();
    let location = header("location").and_then(|value| value.to_str().map(str::to_owned).ok());
    let stream_id = header(STREAM_ID);
    if status != 200 {
        let body = text(response).await;
        let answer = link::answer(status, location.as_deref(), &body);
        return say(FromMaster::Answered(answer)).await;
    }
    let Some(stream_id) = stream_id else {
        let why = "it opens a stream without Mesos-Stream-Id; is it a Mesos master?".to_owned();
        return say(FromMaster::Answered(Answer::NotNow(why))).await;
    };
    // The caller is gone only with the session.
    let _ = give_id.send(stream_id);
    say(FromMaster::Answered(Answer::Open)).await;
    let why = read(response.into_body(), &out).await;
    say(FromMaster::Ended(why)).await;
}

/// Reads the stream to its end, and says why that came.
async fn read(mut body: Incoming, out: &mpsc::Sender<FromMaster>) -> String {
    let mut splitter = RecordSplitter::new(MAX_RECORD);
    loop {
        let piece = match body.frame().await {
            None => return "the master closed the stream".to_owned(),
            Some(Err(error)) => return format!("the stream broke: {error}"),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let pushed = splitter.push(&piece);
        while let Some(record) = splitter.next_record() {
            if out.send(FromMaster::Record(record)).await.is_err() {
                return String::new();
            }
        }
        if let Err(error) = pushed {
            return error.to_string();
        }
    }
}

/// One call after the other, so that the master hears them in their order.
async fn call_in_turn(
    peer: Peer,
    stream_id: tokio::sync::oneshot::Receiver<header::HeaderValue>,
    mut pending: mpsc::UnboundedReceiver<PendingCall>,
    out: mpsc::Sender<FromMaster>,
) {
    let Ok(stream_id) = stream_id.await else { return };
    let mut sender: Option<SendRequest<Full<Bytes>>> = None;
    while let Some(PendingCall { name, body }) = pending.recv().await {
        let request = peer.request(Some(&stream_id), body);
        let answered = timeout(PATIENCE, async {
            let mut open = match sender.take().filter(|open| !open.is_closed()) {
                Some(open) => open,
                None => peer.connect().await?,
            };
            let response = open.send_request(request).await.map_err(|error| error.to_string())?;
            let status = response.status().as_u16();
            let body = text(response).await;
            open.ready().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((open, status, body))
        });
        let why = match answered.await {
            Ok(Ok((open, 200..=299, _))) => {
                sender = Some(open);
                continue;
            }
            Ok(Ok((open, status, body))) => {
                let why = format!("HTTP {status}: {}", body.trim());
                if !link::is_subscription_over(status, &body) {
                    sender = Some(open);
                    // Whoever does not listen any more has closed the session.
                    let _ = out.send(FromMaster::Refused { call: name, why }).await;
                    continue;
                }
                why
            }
            // Whether it arrived is not known; a new subscription finds out.
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        let _ = out.send(FromMaster::Ended(format!("{name} failed: {why}"))).await;
        return;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;
    use crate::fake_master;

    /// The head of the next request.
    async fn request(socket: &mut TcpStream) -> String {
        fake_master::request(socket).await.unwrap().0
    }

    async fn answer(socket: &mut TcpStream, text: &str) {
        socket.write_all(text.as_bytes()).await.unwrap();
    }

    async fn open(listener: &TcpListener) -> (Session, TcpStream, String) {
        let master = listener.local_addr().unwrap().into();
        let credential = Credential { principal: "p".to_owned(), secret: Some("s".to_owned()) };
        let session = Session::open(&master, Some(&credential), Bytes::from_static(b"{}"));
        let (mut socket, _) = listener.accept().await.unwrap();
        let head = request(&mut socket).await;
        (session, socket, head)
    }

    const OPEN: &str =
        "HTTP/1.1 200 OK\r\nMesos-Stream-Id: abc\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[tokio::test]
    async fn calls_go_under_the_stream_s_id_one_after_the_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut session, mut stream, head) = open(&listener).await;
        assert!(head.starts_with("post /api/v1/scheduler http/1.1"), "{head}");
        assert!(head.contains("authorization: basic cdpz"), "{head}");
        assert!(!head.contains("mesos-stream-id"), "{head}");
        // Calls that are made before the stream is open wait for it.
        session.call("REVIVE", Bytes::from_static(b"{}"));
        session.call("SUPPRESS", Bytes::from_static(b"{}"));
        answer(&mut stream, OPEN).await;
        assert!(matches!(session.next().await, FromMaster::Answered(Answer::Open)));
        // A record in two chunks.
        answer(&mut stream, "4\r\n20\n{\r\n13\r\n\"type\":\"HEARTBEAT\"}\r\n").await;
        match session.next().await {
            FromMaster::Record(record) => assert_eq!(&record[..], b"{\"type\":\"HEARTBEAT\"}"),
            other => panic!("{other:?}"),
        }
        let (mut calls, _) = listener.accept().await.unwrap();
        for status in ["202 Accepted", "400 Bad Request"] {
            let head = request(&mut calls).await;
            assert!(head.contains("mesos-stream-id: abc"), "{head}");
            answer(&mut calls, &format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nbad")).await;
        }
        match session.next().await {
            FromMaster::Refused { call: "SUPPRESS", why } => assert_eq!(why, "HTTP 400: bad"),
            other => panic!("{other:?}"),
        }
        drop(stream);
        assert!(matches!(session.next().await, FromMaster::Ended(_)));
    }

    #[tokio::test]
    async fn a_call_that_finds_another_subscription_ends_this_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut session, mut stream, _) = open(&listener).await;
        answer(&mut stream, OPEN).await;
        assert!(matches!(session.next().await, FromMaster::Answered(Answer::Open)));
        session.call("REVIVE", Bytes::from_static(b"{}"));
        let (mut calls, _) = listener.accept().await.unwrap();
        request(&mut calls).await;
        let body = "The stream ID 'abc' did not match";
        let length = body.len();
        let text = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {length}\r\n\r\n{body}");
        answer(&mut calls, &text).await;
        match session.next().await {
            FromMaster::Ended(why) => assert_eq!(why, format!("REVIVE failed: HTTP 400: {body}")),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_no_master_is_not_taken_for_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (text, answered) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "without Mesos-Stream-Id"),
            ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", "HTTP 503: no"),
            ("SSH-2.0-x\r\n\r\n", ""),
        ] {
            let (mut session, mut stream, _) = open(&listener).await;
            answer(&mut stream, text).await;
            match session.next().await {
                FromMaster::Answered(Answer::NotNow(why)) => {
                    assert!(why.contains(answered), "{why}")
                }
                other => panic!("{other:?}"),
            }
        }
        let (mut session, mut stream, _) = open(&listener).await;
        answer(&mut stream, OPEN).await;
        answer(&mut stream, "5\r\nhello\r\n").await;
        assert!(matches!(session.next().await, FromMaster::Answered(Answer::Open)));
        match session.next().await {
            FromMaster::Ended(why) => assert!(why.contains("not RecordIO"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}
