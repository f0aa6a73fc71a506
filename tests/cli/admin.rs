use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use shuffle_protocol::HeartbeatTimeout;
use test_support::process::http_get;

use crate::openmetrics::Page;
use crate::run::{registered, service};

fn json(server: SocketAddr, path: &str) -> (u16, Value) {
    let (status, body) = http_get(server, path);
    (status, serde_json::from_str(&body).expect("the page is JSON"))
}

/// What comes back for these bytes until the server closes.
fn raw(server: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(server).expect("the service listens");
    // The server may answer and close before it has read everything.
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn every_page_answers() {
    let service = service();
    let (_client, _) = registered(&service, "a/b c", &[vec![1; 10]], HeartbeatTimeout::Never).await;
    for page in ["/healthz", "/readyz"] {
        assert_eq!(http_get(service.admin, page), (200, "ok\n".to_owned()));
    }
    let (status, index) = http_get(service.admin, "/");
    assert_eq!(status, 200);
    for page in ["/healthz", "/readyz", "/v1/apps", "/v1/apps/ID", "/metrics"] {
        assert!(index.contains(page), "{index}");
    }
    assert_eq!(json(service.admin, "/v1/apps").1["apps"][0]["id"], "a/b c");
    assert_eq!(json(service.admin, "/v1/apps/a%2Fb%20c").1["app"]["executors"], 1);
    for missing in ["/v1/apps/other", "/v1/apps/%00%ff", "/nothing", "/metrics/x", "/v1"] {
        let (status, body) = http_get(service.admin, missing);
        // An id that is not UTF-8 is a bad request; nothing of it is found in any case.
        assert!(status == 404 || status == 400, "{missing}: {status} {body}");
        if status == 404 {
            let body: Value = serde_json::from_str(&body).unwrap();
            assert!(body["error"].is_string(), "{missing}: {body}");
        }
    }
    assert!(
        raw(service.admin, b"POST /v1/apps HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 405 ")
    );
}

#[tokio::test]
async fn metrics_have_sparks_names_and_right_values() {
    let service = service();
    let partitions = [vec![1; 1000], vec![2; 24], vec![3; 300]];
    let (mut client, executor) =
        registered(&service, "app-1", &partitions, HeartbeatTimeout::Never).await;
    client.fetch(executor.fetch(0, &[(3, &[0, 1, 2])])).await.unwrap();
    client.one_way(executor.heartbeat()).await;
    // Messages are handled in their order, so an answer to a later one says that it was counted.
    client.rpc(executor.registration()).await.unwrap();

    let page = Page::parse(&service.admin_get("/metrics"));
    let expected = [
        ("shuffleService_blockTransferRate_total", 3.0),
        ("shuffleService_blockTransferMessageRate_total", 3.0),
        ("shuffleService_blockTransferRateBytes_total", 1324.0),
        ("shuffleService_openBlockRequestLatencyMillis_count", 1.0),
        ("shuffleService_registerExecutorRequestLatencyMillis_count", 2.0),
        ("shuffleService_registeredExecutorsSize", 1.0),
        ("shuffleService_numActiveConnections", 1.0),
        ("shuffleService_numRegisteredConnections_total", 1.0),
        ("shuffleService_numCaughtExceptions_total", 0.0),
        ("shuffled_apps", 1.0),
        ("shuffled_drivers", 1.0),
        ("shuffled_heartbeats_total{result=\"counted\"}", 1.0),
        ("shuffled_apps_expired_total{reason=\"heartbeat-timeout\"}", 0.0),
        ("shuffled_errors_total{kind=\"bad-file\"}", 0.0),
        ("shuffled_chunks_in_transfer", 0.0),
        (concat!("shuffled_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ];
    for (series, value) in expected {
        assert_eq!(page.samples.get(series), Some(&value), "{series} of {page:#?}");
    }
    assert!(page.of_type("counter").iter().all(|name| !name.ends_with("_total")));
    assert_eq!(page.of_type("histogram").len(), 3);
}

#[test]
fn the_type_of_the_metrics_page_is_openmetrics() {
    let service = service();
    let answer = raw(
        service.admin,
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\nConnection: close\r\n\r\n",
    );
    let head = answer.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
}

#[test]
fn a_hostile_request_is_refused_and_hurts_nobody_else() {
    let service = service();
    let huge = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(1 << 20));
    for request in [&huge, &many, &long] {
        let answer = raw(service.admin, request.as_bytes());
        // The rest of the request may still be on its way when the server closes: then there is no
        // answer to read.
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{}", answer.lines().next().unwrap_or_default());
    }
    for garbage in
        [&b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..], b"\r\n\r\n\r\n", b"GET\r\n\r\n"]
    {
        let mut socket = TcpStream::connect(service.admin).unwrap();
        socket.write_all(garbage).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert_eq!(http_get(service.admin, "/healthz").0, 200);
}

#[test]
fn slow_clients_do_not_block_others() {
    let service = service();
    let slow: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut socket = TcpStream::connect(service.admin).unwrap();
            socket.write_all(b"GET /metr").unwrap();
            socket
        })
        .collect();
    assert_eq!(http_get(service.admin, "/metrics").0, 200);
    drop(slow);
}

#[test]
fn more_slow_clients_than_there_is_room_for_are_thrown_out() {
    let service = service();
    let slow: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(service.admin).unwrap()).collect();
    // Waits in the backlog until the first of them have used up their time.
    assert_eq!(http_get(service.admin, "/healthz").0, 200);
    drop(slow);
}
