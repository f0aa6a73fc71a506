//! Those who speak something else, and what is counted: C43, C44, F11, and reading outside the root.

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use bytes::Bytes;
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::{Message, UploadBlock};
use shuffle_protocol::{RequestId, ShuffleId, StreamId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::hold::Hold;
use super::*;

/// What a scanner does: connects, sends, and waits for the end. Its own address, and what it was sent.
async fn scan(service: &ServiceProcess, bytes: &[u8], then_close: bool) -> (SocketAddr, Vec<u8>) {
    let mut socket = TcpStream::connect(service.shuffle).await.expect("the service listens");
    let me = socket.local_addr().expect("a connected socket has an address");
    socket.write_all(bytes).await.expect("a fresh connection takes a few bytes");
    if then_close {
        socket.shutdown().await.expect("the connection is open");
    }
    let mut answer = Vec::new();
    // A reset is an end, too.
    let end = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
    let _ = end.expect("the service closes the connection");
    (me, answer)
}

/// A frame's length field, type and content, whatever they are.
fn frame(length: i64, rest: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes(), rest].concat()
}

/// The beginning of a TLS handshake as OpenSSL sends it.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x00\xc4\x01\x00\x00\xc0\x03\x03\x5d\x1c\xe5\x0b\x81\x8e\
    \x27\x3f\xa4\x99\x1e\x42\x4e\x54\xf0\xb1\x6c\xda\x77\x55\x20\x3b\xe9\x60\x18\x05\x6a\x0d\x6e";

const HTTP_GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n\r\n";

/// Scanners and mixed-up clients: closed, one line each with their address and what was wrong, no line
/// for the same again, nobody else affected.
#[tokio::test]
async fn c43_spark_51023_other_protocols_are_one_line_each() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let open = client.open(executor.fetch(0, &[(0, &[0, 1, 2])])).await.unwrap();
    assert_eq!(client.chunk(chunk(&open, 0)).await, Ok(content(0)));

    let half = &frame(100, &[3, 0, 0])[..];
    let chunk_of_half = &frame(30, &[1, 0, 0])[..];
    let unknown = &frame(9, &[42])[..];
    let user = &frame(9, &[0xFF])[..];
    let over_limit = &frame((65 << 20) + 9, &[3])[..];
    let random = &hex(b"9b1f00c7a1d04e55b2e8a7e0c6f1d39a77")[..];
    let short_rpc = &frame(12, &[3, 0, 0, 0])[..];
    let nonsense = [
        ("TLS", CLIENT_HELLO, false, "this looks like TLS"),
        ("HTTP", HTTP_GET, false, "this looks like HTTP"),
        ("random bytes", random, false, "Frame length should be positive"),
        ("half a frame", half, true, "unexpected end of file"),
        ("a type nobody knows", unknown, false, "Unknown message type: 42"),
        ("over the limit", over_limit, false, "over the limit of 67108864 bytes"),
        ("fields that do not fit", short_rpc, false, "malformed frame of type 3"),
    ];
    for (what, bytes, then_close, why) in nonsense {
        let (peer, answer) = scan(&service, bytes, then_close).await;
        assert!(answer.is_empty(), "{what} gets no answer");
        let line = wait_for(&format!("the line about {what}"), || {
            service.log_lines(&peer.to_string()).first().cloned()
        });
        assert!(line.contains(why), "{what}: {line}");
        assert_eq!(service.log_lines(&peer.to_string()).len(), 1, "{what}");
    }
    let lines = service.log().lines().count();
    // Again and again, and variations.
    for _ in 0..20 {
        for (_, bytes, then_close, _) in nonsense {
            scan(&service, bytes, then_close).await;
        }
        scan(&service, user, false).await;
        scan(&service, chunk_of_half, true).await;
    }
    let kinds = wait_for("all of them to be counted", || {
        let kinds = errors(&service);
        (kinds.values().sum::<u64>() == 21 * 7 + 20 * 2).then_some(kinds)
    });
    assert_eq!(kinds.keys().collect::<Vec<_>>(), ["malformed-frame", "peer-closed"]);
    assert_eq!(service.log().lines().count(), lines, "{}", service.log());

    for number in 1..3 {
        assert_eq!(client.chunk(chunk(&open, number)).await, Ok(content(number)));
    }
    wait_for("the others to be gone", || {
        (service.metric("shuffleService_numActiveConnections") == 1.0).then_some(())
    });
}

/// Names come from peers, so they can hold anything; in the log they do not look like another line of it.
#[tokio::test]
async fn c43_a_name_from_a_peer_forges_no_line_of_the_log() {
    let forged = "x\n2026-01-01T00:00:00.000000Z ERROR shuffled_service: forged\r\x1b[31m";
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let mut executor = written(&service, "app", "1");
    executor.app_id = forged.into();
    executor.exec_id = forged.into();
    let mut registration = executor.registration();
    forged.clone_into(&mut registration.info.shuffle_manager);
    client.rpc(registration).await.unwrap();
    assert_served(&mut client, &executor).await;
    assert!(client.fetch(executor.fetch(0, &[(9, &[0])])).await.unwrap()[0].is_err());
    assert!(client.stream(forged).await.is_err());
    let mut refused = executor.clone();
    refused.local_dirs = vec![format!("/{forged}").into()];
    assert!(client.rpc(refused.registration()).await.is_err());
    let blocks = shuffle_protocol::message::RemoveBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: [forged].iter().collect(),
    };
    assert!(client.rpc(blocks).await.is_ok());
    let unknown = FixtureExecutor { app_id: format!("{forged}2").into(), ..executor.clone() };
    client.rpc(unknown.heartbeat()).await.unwrap();
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    client.rpc(executor.driver(seconds(2))).await.unwrap();
    wait_for("the removal", || (!executor.local_dirs[0].exists()).then_some(()));
    client.one_way(executor.heartbeat()).await;
    wait_for("the end of it", || service.log_lines("All directories of the").first().cloned());
    let log = service.log();
    assert!(log.contains("forged"));
    let started_at = log.split('T').next().unwrap();
    for line in log.lines() {
        assert!(line.starts_with(started_at) && !line.starts_with("2026-01-01T00"), "{line:?}");
        assert!(!line.contains(['\r', '\x1b']), "{line:?}");
    }
}

fn hex(digits: &[u8]) -> Vec<u8> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).expect("a digit");
    digits
        .chunks(2)
        .map(|d| u8::try_from(value(&d[0]) * 16 + value(&d[1])).expect("two digits"))
        .collect()
}

/// Lengths that cannot be: the connection ends at once, without waiting for what they announce.
#[tokio::test]
async fn f11_a_length_that_cannot_be_ends_the_connection_at_once() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let before = service.resident_bytes();
    for (counted, length) in (1_u32..).zip([
        0,
        7,
        8,
        -1,
        i64::MIN,
        i64::MAX,
        1 << 31,
        (1 << 31) + 7,
        1 << 32,
        // Within what Spark takes, but over what a request may be.
        (64 << 20) + 9,
        (1 << 31) - 1,
    ]) {
        // The length alone tells enough where no frame has it; else the type is needed, since chunks
        // may be longer than requests.
        let bytes = match length {
            9..0x8000_0007 => frame(length, &[3]),
            _ => frame(length, &[]),
        };
        // It ends without the scanner closing anything.
        let (_, answer) = scan(&service, &bytes, false).await;
        assert!(answer.is_empty(), "{length}");
        let malformed = r#"shuffled_errors_total{kind="malformed-frame"}"#;
        wait_for(&format!("{length} to be counted"), || {
            (service.metric(malformed) == f64::from(counted)).then_some(())
        });
    }
    let grown = service.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    assert_served(&mut client, &executor).await;
}

/// A connection that sends an answer where a question belongs, or an upload, disturbs only itself.
#[tokio::test]
async fn c43_answers_and_uploads_from_a_client_are_harmless() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let id = RequestId(7);
    let answers = [
        (Frame::RpcResponse { id, body: Bytes::from_static(b"x") }, &b""[..]),
        (Frame::RpcFailure { id, error: "x".into() }, b""),
        (Frame::StreamResponse { name: "1_0".into(), length: 3 }, b"abc"),
        (Frame::StreamFailure { name: "1_0".into(), error: "x".into() }, b""),
        (
            Frame::ChunkFetchSuccess {
                chunk: StreamChunkId { stream: StreamId(1), chunk: 0 },
                length: 3,
            },
            b"abc",
        ),
    ];
    for (frame, data) in answers {
        client.send(&frame).await;
        client.send_bytes(data).await.unwrap();
        assert_served(&mut client, &executor).await;
    }
    assert_eq!(service.log_lines("Ignoring an answer").len(), 1);

    // An upload is refused, and the answer arrives although nobody wants its bytes.
    let mut uploader = RawClient::connect(service.shuffle).await;
    let meta = Bytes::from_static(&[99]);
    uploader.send(&Frame::UploadStream { id, meta, length: 1 << 20 }).await;
    let _ = uploader.send_bytes(&vec![0; 1 << 20]).await;
    match uploader.next().await.expect("an answer").frame {
        Frame::RpcFailure { id: of, error } => {
            assert_eq!(of, id);
            assert!(error.contains("Unknown message type: 99"), "{error}");
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    drop(uploader);
    assert_served(&mut client, &executor).await;
}

/// Each kind of error that a test can cause, once: exactly its series moves. (`internal` takes a bug.)
#[tokio::test]
async fn c44_spark_27773_every_kind_of_error_has_its_series() {
    let service = command()
        .conf("spark.shuffle.maxChunksBeingTransferred", "1")
        .conf("spark.shuffle.io.connectionTimeout", "5s")
        .unprivileged()
        .start();
    let moved = |kind: &'static str, before: &BTreeMap<String, u64>| {
        let expected = |count: u64| count + 1;
        let mut after = before.clone();
        let count = after.entry(kind.to_owned()).or_default();
        *count = expected(*count);
        let seen = wait_for(&format!("{kind} to be counted"), || {
            let now = errors(&service);
            (now != *before).then_some(now)
        });
        assert_eq!(seen, after, "{kind}");
        after
    };
    // The connections here end by time, so each step has its own.
    let connect = || RawClient::connect(service.shuffle);
    let fetch = async |executor: &FixtureExecutor, map: i64| {
        let mut chunks = connect().await.fetch(executor.fetch(0, &[(map, &[0])])).await.unwrap();
        chunks.pop().expect("one chunk")
    };
    let executor = registered(&service, &mut connect().await, "app", "1").await;
    assert_eq!(fetch(&executor, 0).await, Ok(content(0)));
    let mut seen = errors(&service);
    assert_eq!(seen, BTreeMap::new());

    scan(&service, HTTP_GET, false).await;
    seen = moved("malformed-frame", &seen);
    scan(&service, &frame(100, &[3]), true).await;
    seen = moved("peer-closed", &seen);

    let registration = Message::from(executor.registration()).encode();
    let short = registration.slice(..registration.len() / 2);
    assert!(connect().await.rpc_bytes(short).await.is_err());
    seen = moved("malformed-message", &seen);
    assert!(connect().await.rpc_bytes(Bytes::from_static(&[99])).await.is_err());
    seen = moved("unknown-message", &seen);
    let upload = UploadBlock {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_id: "rdd_0_0".into(),
        metadata: Bytes::new(),
        data: Bytes::new(),
    };
    assert!(connect().await.rpc(upload).await.is_err());
    seen = moved("bad-request", &seen);
    assert!(connect().await.stream("0_0").await.is_err());
    seen = moved("bad-stream", &seen);

    let stranger = FixtureExecutor { exec_id: "2".into(), ..executor.clone() };
    assert!(fetch(&stranger, 0).await.is_err());
    seen = moved("not-registered", &seen);
    assert!(fetch(&executor, 1).await.is_err());
    seen = moved("file-missing", &seen);
    let block = |map| BlockId::ShuffleIndex { shuffle: ShuffleId(0), map: MapId(map) };
    executor.write_map_output(0, 2, &["x"]);
    fs::write(executor.block_path(&block(2)), b"short").unwrap();
    assert!(fetch(&executor, 2).await.is_err());
    seen = moved("bad-file", &seen);

    executor.write_map_output(0, 3, &["x"]);
    let index = executor.block_path(&block(3));
    fs::set_permissions(&index, fs::Permissions::from_mode(0o000)).unwrap();
    let text = fetch(&executor, 3).await.unwrap_err();
    seen = moved("permission", &seen);
    // Who could mend it learns how.
    let obstacle = format!("permission denied: {0}: {0} has owner", index.display());
    assert!(text.contains(&obstacle) && text.contains("mode 0000"), "{text}");

    executor.write_map_output(0, 4, &["x"]);
    match Hold::lease(&executor.block_path(&block(4))) {
        Some(_hold) => {
            assert!(fetch(&executor, 4).await.is_err());
            seen = moved("disk", &seen);
        }
        None => eprintln!("SKIPPED: a failing disk cannot be imitated here"),
    }

    // One peer does not read what it asked for. While that waits, the limit on chunks is reached.
    let large = vec![7; 64 << 20];
    executor.write_map_output(0, 5, &[large]);
    let mut slow = connect().await;
    let mut second = connect().await;
    let opened = second.open(executor.fetch(0, &[(0, &[0])])).await.unwrap();
    let stream = slow.open(executor.fetch(0, &[(5, &[0])])).await.unwrap();
    slow.send(&Frame::ChunkFetchRequest(chunk(&stream, 0))).await;
    assert!(slow.event().await.is_some(), "it is on its way");
    second.send(&Frame::ChunkFetchRequest(chunk(&opened, 0))).await;
    assert!(second.closed().await);
    seen = moved("overload", &seen);
    seen = moved("peer-stalled", &seen);
    drop(slow);
    assert_eq!(fetch(&executor, 0).await, Ok(content(0)));
    assert_eq!(errors(&service), seen, "good requests count as no error");
}

/// What a client puts in place of its files after the registration is not served: nothing outside the
/// root is read.
#[tokio::test]
async fn f2_nothing_outside_the_root_is_read() {
    let service = command().start();
    let canary = canary_tree(&service);
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    executor.write("rdd_0_0", &content(0));
    copy_files(&executor, &canary);
    let secret = canary.join("secret");
    fs::write(&secret, "secret").unwrap();
    let root = service.root();
    let rdd = || shuffle_protocol::message::OpenBlocks {
        app_id: executor.app_id.clone(),
        exec_id: executor.exec_id.clone(),
        block_ids: ["rdd_0_0"].iter().collect(),
    };
    let assert_refused = async |client: &mut RawClient, what: &str| {
        let mut chunks = client.fetch(executor.fetch(0, &[(0, &[0, 2])])).await.unwrap();
        chunks.extend(client.fetch(rdd()).await.unwrap());
        for chunk in chunks {
            let text = chunk.expect_err(what);
            assert!(text.contains("a symbolic link lies in the path"), "{what}: {text}");
        }
    };
    let dir = &executor.local_dirs[0];
    let files = files_below(dir);

    // The files themselves.
    for file in &files {
        fs::rename(file, file.with_extension("aside")).unwrap();
        symlink(&secret, file).unwrap();
    }
    assert_refused(&mut client, "links for files").await;
    for file in &files {
        fs::rename(file.with_extension("aside"), file).unwrap();
    }
    assert_served(&mut client, &executor).await;

    // The directories they lie in.
    let subs: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let aside =
        |sub: &Path| root.join(format!("aside-{}", sub.file_name().unwrap().to_str().unwrap()));
    for sub in &subs {
        fs::rename(sub, aside(sub)).unwrap();
        symlink(canary.join(sub.file_name().unwrap()), sub).unwrap();
    }
    assert_refused(&mut client, "links for sub-directories").await;
    for sub in &subs {
        fs::remove_file(sub).unwrap();
        fs::rename(aside(sub), sub).unwrap();
    }
    assert_served(&mut client, &executor).await;

    // The local directory; also where the link stays within the root.
    for target in [canary.clone(), root.join("blockmgr-moved")] {
        fs::rename(dir, root.join("blockmgr-moved")).unwrap();
        symlink(&target, dir).unwrap();
        assert_refused(&mut client, "a link for the directory").await;
        fs::remove_file(dir).unwrap();
        fs::rename(root.join("blockmgr-moved"), dir).unwrap();
        assert_served(&mut client, &executor).await;
    }
}

/// What is registered is kept, logged and listed, so it has a size.
#[tokio::test]
async fn c50_names_without_end_are_not_kept() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let long = "x".repeat(1 << 20);
    let disk = service.root();
    let executor = FixtureExecutor::new("app", "1", &[&disk]);

    let mut long_app = executor.registration();
    long_app.app_id = long.as_str().into();
    let mut long_exec = executor.registration();
    long_exec.exec_id = long.as_str().into();
    let mut long_manager = executor.registration();
    long_manager.info.shuffle_manager = long.clone();
    let mut many_dirs = executor.registration();
    let dir = executor.local_dirs[0].to_string_lossy();
    many_dirs.info.local_dirs = std::iter::repeat_n(dir, 100_000).collect();
    for registration in [long_app, long_exec, long_manager, many_dirs] {
        let refused = client.rpc(registration).await.unwrap_err();
        assert!(refused.contains("may have up to"), "{refused}");
    }
    let mut driver = executor.driver(seconds(60));
    driver.app_id = long.as_str().into();
    assert!(client.rpc(driver).await.unwrap_err().contains("may have up to"));
    for _ in 0..100 {
        let mut beat = executor.heartbeat();
        beat.app_id = long.as_str().into();
        client.one_way(beat).await;
    }
    client.rpc(executor.registration()).await.expect("the connection goes on");
    assert!(service.log().len() < long.len(), "none of them is in the log");
    assert_eq!(service.metric("shuffled_apps"), 1.0);
}
