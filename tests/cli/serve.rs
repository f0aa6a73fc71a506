use std::fs;
use std::net::{TcpListener, TcpStream};

use shuffle_protocol::HeartbeatTimeout;
use shuffle_protocol::frame::{Frame, StreamChunkId};
use tempfile::TempDir;
use test_support::fixture::FixtureExecutor;
use test_support::process::{http_get, wait_for};
use test_support::raw::RawClient;

use crate::run::{Ended, Running, address, registered, run, service, shuffled};

const FREE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

/// Runs `serve` on free ports until it is ready, and stops it.
fn started_and_stopped(more: &[&str]) -> Ended {
    let mut serve = Running::start(shuffled(&[&FREE, more].concat()));
    serve.line_with("ready ");
    serve.signal("TERM");
    serve.end().expect(0)
}

#[test]
fn is_ready_when_it_says_so_and_ends_with_0_when_told() {
    for signal in ["TERM", "INT"] {
        let mut serve = Running::start(shuffled(&FREE));
        let ready = serve.line_with("ready ");
        TcpStream::connect(address(&ready, "shuffle=")).unwrap();
        assert_eq!(http_get(address(&ready, "admin="), "/healthz"), (200, "ok\n".to_owned()));
        assert_eq!(http_get(address(&ready, "admin="), "/readyz"), (200, "ok\n".to_owned()));
        serve.signal(signal);
        let ended = serve.end().expect(0);
        assert_eq!(ended.out, format!("{ready}\n"), "nothing else on standard output");
    }
}

/// As `kill -HUP` and a rotation of logs do, which must not cost what is registered.
#[test]
fn a_hangup_is_no_reason_to_stop() {
    let service = service();
    let pid = service.pid().to_string();
    let kill = std::process::Command::new("kill").args(["-HUP", &pid]).status();
    assert!(kill.expect("kill is there").success());
    wait_for("what is said about it", || service.log_lines("SIGHUP changes nothing").pop());
    assert_eq!(http_get(service.admin, "/readyz").0, 200);
    assert!(service.stop().success());
}

#[test]
fn serves_also_when_nobody_reads_that_it_is_ready() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = held.local_addr().unwrap();
    drop(held);
    let admin_text = admin.to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin", &admin_text];
    let serve = Running::start_unread(shuffled(&args));
    wait_for("the service", || TcpStream::connect(admin).ok());
    assert_eq!(http_get(admin, "/readyz").0, 200);
    serve.signal("TERM");
    serve.end().expect(0).complains(&["Nobody reads that it is ready"]);
}

/// Where the log is a file on a full disk, or a terminal that is gone.
#[tokio::test]
async fn serves_also_when_no_line_of_the_log_can_be_written() {
    let program = shuffled(&[]).get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>/dev/full"]).arg(program).args(FREE);
    let mut serve = Running::start(shell);
    let ready = serve.line_with("ready ");
    let mut client = RawClient::connect(address(&ready, "shuffle=")).await;
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let executor = FixtureExecutor::new("app", "1", &[dir.path()]);
    client.rpc(executor.registration()).await.expect("a registration");
    assert!(http_get(address(&ready, "admin="), "/v1/apps").1.contains("\"app\""));
    serve.signal("TERM");
    serve.end().expect(0);
}

#[test]
fn admin_http_can_be_off() {
    let mut serve =
        Running::start(shuffled(&["serve", "--listen", "127.0.0.1:0", "--admin", "off"]));
    assert!(serve.line_with("ready ").ends_with(" admin=off"));
    serve.signal("TERM");
    serve.end().expect(0);
}

#[tokio::test]
async fn sends_what_was_asked_for_before_it_ends() {
    // More than all buffers between the service and this client hold.
    let partition = vec![7; 64 << 20];
    let service = service();
    let (mut client, executor) =
        registered(&service, "app-1", &[partition], HeartbeatTimeout::Never).await;
    let handle = client.open(executor.fetch(0, &[(3, &[0])])).await.unwrap();
    let chunk = StreamChunkId { stream: handle.stream_id, chunk: 0 };
    client.send(&Frame::ChunkFetchRequest(chunk)).await;
    wait_for("the transfer to begin", || {
        (service.metric("shuffleService_blockTransferRateBytes_total") > 0.0).then_some(())
    });

    service.ask_to_stop();
    wait_for("a refusal to be ready", || {
        let (status, body) = http_get(service.admin, "/readyz");
        (status == 503).then(|| assert_eq!(body, "stopping\n"))
    });
    assert!(TcpStream::connect(service.shuffle).is_err(), "no more connections are taken");
    // What comes now is not answered, but must not reset the connection under the rest of the answer.
    client.one_way(executor.heartbeat()).await;

    let answer = client.next().await.expect("the transfer goes on");
    assert!(matches!(answer.frame, Frame::ChunkFetchSuccess { chunk: of, .. } if of == chunk));
    assert!(answer.data.len() == 64 << 20 && answer.data.iter().all(|&byte| byte == 7));
    assert!(client.closed().await);
    assert_eq!(service.wait().code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_a_stalled_reader() {
    let root = TempDir::with_prefix("shuffled-cli-").unwrap();
    let conf = format!("shuffled.local.dirs={}", root.path().display());
    let args = ["--conf", &conf, "--conf", "shuffled.drain.timeout=1h"];
    let mut serve = Running::start(shuffled(&[&FREE, &args[..]].concat()));
    let ready = serve.line_with("ready ");
    let executor = FixtureExecutor::new("app-1", "1", &[root.path()]);
    executor.write_map_output(0, 3, &[vec![7; 64 << 20]]);
    let mut client = RawClient::connect(address(&ready, "shuffle=")).await;
    client.rpc(executor.registration()).await.unwrap();
    let handle = client.open(executor.fetch(0, &[(3, &[0])])).await.unwrap();
    let chunk = StreamChunkId { stream: handle.stream_id, chunk: 0 };
    client.send(&Frame::ChunkFetchRequest(chunk)).await;
    let admin = address(&ready, "admin=");
    wait_for("the transfer to begin", || {
        let page = http_get(admin, "/metrics").1;
        page.contains("\nshuffled_chunks_in_transfer 1\n").then_some(())
    });
    serve.signal("TERM");
    wait_for("the drain to begin", || (http_get(admin, "/readyz").0 == 503).then_some(()));
    serve.signal("TERM");
    serve.end().expect(0).complains(&["Stopping at once"]);
}

#[test]
fn a_port_in_use_is_said_plainly() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    for (args, what) in [
        (["serve", "--listen", &taken, "--admin", "off"], "shuffle clients"),
        (["serve", "--listen", "127.0.0.1:0", "--admin", &taken], "admin HTTP"),
    ] {
        let ended = run(&args).expect(1).complains(&[
            &format!("shuffled: cannot listen on {taken} for {what}: Address already in use"),
            "another process listens there",
        ]);
        assert_eq!(ended.err.matches("Address already in use").count(), 1, "{ended}");
        assert_eq!(ended.out, "", "it was never ready");
    }
}

#[test]
fn a_root_that_cannot_be_opened_is_named() {
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let (missing, file) = (dir.path().join("missing"), dir.path().join("file"));
    fs::write(&file, "").unwrap();
    for root in [missing, file] {
        let conf = format!("shuffled.local.dirs={}", root.display());
        run(&[&FREE, &["--conf", &conf][..]].concat())
            .expect(1)
            .complains(&[&format!("shuffled: local directory {} cannot be", root.display())]);
    }
}

#[test]
fn a_wrong_setting_says_where_it_was_made_and_what_would_be_right() {
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let file = dir.path().join("spark-defaults.conf");
    let file = file.to_str().unwrap();
    fs::write(file, "\nspark.shuffle.service.port  eighty\n").unwrap();
    let at_line = format!("shuffled: {file}:2: spark.shuffle.service.port = \"eighty\": ");
    /// Flags, environment, and what is said.
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 8] = [
        (&["--properties-file", file], &[], &[&at_line, "use"]),
        (
            &["--conf", "shuffled.frame.maxSize=1"],
            &[],
            &["shuffled: --conf: shuffled.frame.maxSize = \"1\": ", "at least 64k"],
        ),
        (&["--conf", "shuffled.port=1"], &[], &["shuffled: --conf: unknown key shuffled.port"]),
        (&["--conf", "shuffled.listen"], &[], &["--conf", "write --conf key=value"]),
        (
            &[],
            &[("SHUFFLED_ORPHAN_TTL", "never")],
            &["environment SHUFFLED_ORPHAN_TTL: shuffled.orphan.ttl = \"never\": "],
        ),
        (
            &[],
            &[("SHUFFLED_LISTN", "127.0.0.1:1")],
            &["environment SHUFFLED_LISTN", "did you mean SHUFFLED_LISTEN?"],
        ),
        (
            &["--conf", "shuffled.log.filter=shuffled=loud"],
            &[],
            &["--conf: shuffled.log.filter = \"shuffled=loud\": ", "debug"],
        ),
        (
            &["--conf", "shuffled.log.filter=inof"],
            &[],
            &["--conf: shuffled.log.filter = \"inof\": \"inof\" is no level; use a level"],
        ),
    ];
    for (args, env, texts) in cases {
        let mut command = shuffled(&[&FREE, args].concat());
        command.envs(env.iter().copied());
        let ended = Running::start(command).end().expect(2).complains(texts);
        assert_eq!(ended.out, "", "it was never ready");
    }
    run(&["serve", "--listen", "localhost:7337"])
        .expect(2)
        .complains(&["--listen: shuffled.listen = \"localhost:7337\": ", "0.0.0.0:7337"]);
}

#[test]
fn authentication_is_refused_rather_than_left_out() {
    for key in ["spark.authenticate", "spark.ssl.rpc.enabled"] {
        run(&[&FREE, &["--conf", &format!("{key}=true")][..]].concat())
            .expect(2)
            .complains(&[&format!("--conf: {key} = true: not supported yet"), "set it to false"]);
    }
}

#[test]
fn an_unknown_key_in_the_file_is_a_warning_with_its_line() {
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let file = dir.path().join("spark-defaults.conf");
    fs::write(&file, "spark.app.name x\nspark.shuffle.servce.port 1\n").unwrap();
    let file = file.to_str().unwrap();
    started_and_stopped(&["--properties-file", file]).complains(&[
        "WARN",
        &format!("{file}:2: unknown key spark.shuffle.servce.port"),
        "did you mean spark.shuffle.service.port?",
    ]);
}

#[test]
fn warns_when_no_roots_are_configured() {
    let warning = "No shuffled.local.dirs configured";
    started_and_stopped(&[]).complains(&["WARN", warning, "blockmgr-*"]);
    let dir = TempDir::with_prefix("shuffled-cli-").unwrap();
    let conf = format!("shuffled.local.dirs={}", dir.path().display());
    let ended = started_and_stopped(&["--conf", &conf]);
    assert!(!ended.err.contains(warning), "{ended}");
}

#[test]
fn the_log_can_be_json() {
    let ended = started_and_stopped(&["--conf", "shuffled.log.format=json"]);
    for line in ended.err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("each line is an object");
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
    }
}
