use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use serde_json::Value;
use shuffle_protocol::HeartbeatTimeout;
use test_support::process::{ServiceCommand, wait_for};

use crate::run::{BINARY, Running, hasty_service, registered, run, service, shuffled};

const MINUTE: HeartbeatTimeout = HeartbeatTimeout::After(Duration::from_secs(60));
const SOON: HeartbeatTimeout = HeartbeatTimeout::After(Duration::from_millis(500));

/// An id that a URL, a file name and a column each would spoil.
const ODD: &str = "2024/ä b?#%20";

#[tokio::test]
async fn lists_who_is_registered() {
    let service = service();
    let admin = service.admin.to_string();
    let partitions = [vec![1; 1500], vec![2; 36]];
    let (mut client, executor) = registered(&service, "app-1", &partitions, MINUTE).await;
    let (_other, _) = registered(&service, "app-2", &partitions, HeartbeatTimeout::Never).await;
    let chunks = client.fetch(executor.fetch(0, &[(3, &[0, 1])])).await.unwrap();
    assert_eq!(chunks.len(), 2);

    let narrow = run(&["apps", "--admin", &admin]).expect(0);
    let columns = |line: &str| -> Vec<String> {
        line.split("  ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let head = ["APPLICATION", "DRIVER", "EXECUTORS", "LAST BEAT", "EXPIRES IN", "SERVED"];
    assert_eq!(columns(narrow.line("APPLICATION")), head);
    let app = columns(narrow.line("app-1"));
    assert_eq!((&app[1][..], &app[2][..], &app[5][..]), ("alive", "1", "1.5 KiB"), "{narrow}");
    let other = columns(narrow.line("app-2"));
    assert_eq!(
        (&other[1][..], &other[4][..], &other[5][..]),
        ("alive", "never", "0 B"),
        "{narrow}"
    );
    assert!(!narrow.out.contains('\x1b'), "no colours in a pipe");
    assert!(
        narrow.out.lines().all(|line| line.trim() == line),
        "plain columns in a pipe\n{narrow}"
    );

    let wide = run(&["apps", "-o", "wide", "--admin", &admin]).expect(0);
    let head = columns(wide.line("APPLICATION"));
    assert_eq!(
        head[6..],
        ["AGE", "TIMEOUT", "BEATS", "DIRS", "CHUNKS", "LAST USE", "DRIVER ADDRESS"]
    );
    let app = columns(wide.line("app-1"));
    assert_eq!(app[7..11], ["1m 00s", "0", "1", "2"], "{wide}");
    assert!(app[12].starts_with("127.0.0.1:"), "{wide}");

    let json = run(&["apps", "-o", "json", "--admin", &admin]).expect(0);
    let list: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(list["apps"][0]["id"], "app-1");
    assert_eq!(list["apps"][0]["driver"]["heartbeat_timeout_ms"], 60_000);
    assert_eq!(list["apps"][0]["bytes_served"], 1536);
    assert_eq!(list["apps"][1]["expires_in_ms"], Value::Null);
    assert_eq!(list["expired"], Value::Array(vec![]));

    // A URL may be short, and may have a slash at its end.
    run(&["apps", "--admin", &format!("http://{admin}/")]).expect(0).says(&["app-1"]);
}

#[tokio::test]
async fn a_driver_that_is_overdue_is_seen_before_the_cleaner_looks() {
    let service = ServiceCommand::new(BINARY).conf("spark.shuffle.cleaner.interval", "1h").start();
    let (_client, _) = registered(&service, "app-1", &[vec![1; 10]], SOON).await;
    let admin = service.admin.to_string();
    let line = wait_for("the driver to be overdue", || {
        let ended = run(&["apps", "--admin", &admin]).expect(0);
        ended.out.contains("overdue").then(|| ended.line("app-1").to_owned())
    });
    assert!(line.contains(" now "), "{line}");
    run(&["app", "show", "app-1", "--admin", &admin])
        .expect(0)
        .says(&["driver       overdue, registered from 127.0.0.1:", "expires in   now"]);
}

#[tokio::test]
async fn shows_an_expired_application_and_what_became_of_it() {
    let service = hasty_service();
    let admin = service.admin.to_string();
    let (_client, executor) = registered(&service, ODD, &[vec![1; 2048]], SOON).await;
    wait_for("the application to expire", || {
        let ended = run(&["apps", "--all", "--admin", &admin]).expect(0);
        ended.out.contains("1 of 1 gone").then(|| {
            ended.says(&[
                "no registered applications",
                "EXPIRED",
                ODD,
                "heartbeat-timeout",
                "3 files",
            ])
        })
    });
    assert!(!executor.local_dirs[0].exists());
    run(&["apps", "--admin", &admin]).expect(0).says(&["no registered applications\n"]);

    let show = run(&["app", "show", ODD, "--admin", &admin]).expect(0).says(&[
        &format!("application  {ODD}\n"),
        "state        expired",
        "its own timeout is 500ms",
        "directories  1 of 1 gone",
    ]);
    assert!(!show.out.contains("EXECUTOR "), "{show}");
    let json = run(&["app", "show", ODD, "-o", "json", "--admin", &admin]).expect(0);
    let detail: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&detail["id"], &detail["app"]), (&Value::from(ODD), &Value::Null));
    assert_eq!(detail["expired"]["dirs_removed"], 1);
}

#[tokio::test]
async fn shows_a_live_application() {
    let service = service();
    let admin = service.admin.to_string();
    let (_client, executor) = registered(&service, ODD, &[vec![1; 10]], MINUTE).await;
    run(&["app", "show", ODD, "--admin", &admin]).expect(0).says(&[
        &format!("application  {ODD}\n"),
        "driver       alive, registered from 127.0.0.1:",
        "timeout      1m 00s",
        executor.local_dirs[0].to_str().unwrap(),
        "SortShuffleManager",
    ]);
    let json = run(&["app", "show", ODD, "-o", "json", "--admin", &admin]).expect(0);
    let detail: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(detail["executors"][0]["sub_dirs_per_local_dir"], 64);
    assert_eq!(detail["expired"], Value::Null);
}

#[test]
fn an_unknown_application_is_1_and_says_where_to_look() {
    let service = service();
    let admin = service.admin.to_string();
    for id in ["nobody", ODD, "..", "", "a\x1b[2Jb"] {
        let ended = run(&["app", "show", id, "--admin", &admin]).expect(1);
        assert!(!ended.err.contains('\x1b'), "{ended}");
        ended.complains(&["is not registered with this service", "`shuffled apps --all`"]);
    }
}

#[tokio::test]
async fn an_id_cannot_give_orders_to_a_terminal() {
    let service = service();
    let (_client, _) = registered(&service, "a\x1b[2J\nb", &[vec![1; 10]], MINUTE).await;
    let ended = run(&["apps", "--admin", &service.admin.to_string()]).expect(0);
    assert!(ended.line("a\\u{1b}[2J\\u{a}b").contains("alive"), "{ended}");
}

#[test]
fn watches_until_interrupted_and_through_a_restart() {
    let mut serve =
        Running::start(shuffled(&["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]));
    let admin = crate::run::address(&serve.line_with("ready "), "admin=").to_string();
    let mut watch = Running::start(shuffled(&["apps", "--watch", "1", "--admin", &admin]));
    watch.line_with("no registered applications");
    watch.line_with("no registered applications");
    serve.signal("TERM");
    serve.end().expect(0);
    watch.line_with(&format!("cannot ask the service at http://{admin}"));
    let mut serve =
        Running::start(shuffled(&["serve", "--listen", "127.0.0.1:0", "--admin", &admin]));
    serve.line_with("ready ");
    watch.line_with("no registered applications");
    watch.signal("INT");
    assert_eq!(watch.end().expect(0).err, "");
}

#[test]
fn nobody_to_ask_is_1_and_says_what_to_look_at() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for command in [&["apps"][..], &["apps", "--watch"], &["app", "show", "a"]] {
        run(&[command, &["--admin", &free]].concat()).expect(1).complains(&[
            &format!("shuffled: cannot ask the service at http://{free}; is it running"),
            "shuffled.admin.listen",
            "Connection refused",
        ]);
    }
}

#[test]
fn another_program_at_the_address_is_recognised() {
    let service = service();
    let shuffle_port = service.shuffle.to_string();
    run(&["apps", "--admin", &shuffle_port]).expect(1).complains(&["cannot ask the service at"]);

    for (status, text) in [("200 OK", "is not of a shuffled service"), ("404 Not Found", "404")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = listener.local_addr().unwrap().to_string();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\n<html/>");
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1024]).unwrap();
            socket.write_all(answer.as_bytes()).unwrap();
        });
        run(&["app", "show", "a", "--admin", &other])
            .expect(1)
            .complains(&["is not of a shuffled service", text]);
        server.join().unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let service = service();
    let (_client, _) = registered(&service, "app-1", &[vec![1; 10]], MINUTE).await;
    let admin = service.admin.to_string();
    for command in
        [&["apps"][..], &["apps", "--watch"], &["app", "show", "app-1"], &["check-config"]]
    {
        let asks = command[0] != "check-config";
        let args = if asks { [command, &["--admin", &admin]].concat() } else { command.to_vec() };
        assert_eq!(Running::start_unread(shuffled(&args)).end().expect(0).err, "");
    }
}
