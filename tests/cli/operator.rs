//! `app hold` and its like, `explain` and `sweep`: what they print, and how they end.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use shuffle_protocol::HeartbeatTimeout;
use test_support::process::ServiceCommand;

use crate::run::{BINARY, registered, run, service};

const MINUTE: HeartbeatTimeout = HeartbeatTimeout::After(Duration::from_secs(60));

#[tokio::test]
async fn an_application_is_held_released_extended_and_expired() {
    let service = service();
    let admin = service.admin.to_string();
    let (_client, executor) = registered(&service, "app-1", &[vec![1; 100]], MINUTE).await;
    let app = |args: &[&str]| run(&[&["app"], args, &["--admin", &admin]].concat());

    app(&["hold", "app-1", "--note", "ticket\u{1b}[31m 7"]).expect(0).says(&[
        "application app-1 is held until it is released",
        "until the service restarts", // it has no state directory
    ]);
    let page = app(&["show", "app-1"]).expect(0);
    assert_eq!(page.line("held"), "held         ticket\\u{1b}[31m 7");
    run(&["apps", "--admin", &admin]).expect(0).says(&["held"]);
    app(&["expire", "app-1"]).expect(1).complains(&["app-1 is held; release it first"]);
    app(&["release", "app-1"]).expect(0).says(&["released, with a full timeout"]);
    app(&["extend", "app-1", "6h"]).expect(0).says(&["is kept for 6h at least"]);
    assert!(app(&["show", "app-1"]).expect(0).line("kept until").contains("T"));
    app(&["expire", "app-1", "--note", "done"]).expect(0).says(&["1 directories go"]);
    test_support::process::wait_for("the removal", || {
        (!executor.local_dirs[0].exists()).then_some(())
    });
    app(&["show", "app-1"]).expect(0).says(&["operator (an operator said so: done)"]);
    app(&["restore", "app-1"]).expect(1).complains(&["cannot be brought back"]);

    for what in ["hold", "release", "expire"] {
        app(&[what, "nobody"]).expect(1).complains(&["application nobody is not registered"]);
    }
    app(&["restore", "nobody"]).expect(1).complains(&["no record of application nobody"]);
    app(&["extend", "app-1", "soon"]).expect(2);
    app(&["extend", "app-1", "0"]).expect(2).complains(&["no time at all"]);
}

#[tokio::test]
async fn explain_answers_and_an_unknown_application_is_an_answer_too() {
    let service = service();
    let admin = service.admin.to_string();
    let (_client, _) = registered(&service, "2024/ä b?#%20", &[vec![1; 100]], MINUTE).await;
    let explain = |args: &[&str]| run(&[&["explain"], args, &["--admin", &admin]].concat());
    let answer = explain(&["2024/ä b?#%20", "1", "shuffle_0_3_0"]).expect(0);
    assert_eq!(answer.out.lines().next(), Some("readable"));
    answer.says(&["Block shuffle_0_3_0 can be read: 100 bytes"]);
    let json = explain(&["2024/ä b?#%20", "nobody", "-o", "json"]).expect(0);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["verdict"], "not-registered");
    let unknown = explain(&["unknown"]).expect(0);
    assert_eq!(unknown.out.lines().next(), Some("maybe-lost"));
    explain(&[]).expect(2);
}

#[test]
fn a_sweep_lists_and_removes() {
    let service = ServiceCommand::new(BINARY).alone().start();
    let admin = service.admin.to_string();
    let dir = service.root().join("blockmgr-0a1b2c3d-0000-4000-8000-000000000001");
    let sweep = |args: &[&str]| run(&[&["sweep"], args, &["--admin", &admin]].concat());
    sweep(&[]).expect(0).says(&["no directory without an owner"]);
    fs::create_dir_all(dir.join("00")).unwrap();
    fs::write(dir.join("00/shuffle_0_0_0.data"), [7; 2048]).unwrap();
    sweep(&[]).expect(0).says(&[dir.to_str().unwrap(), "2.0 KiB", "too-young"]);
    sweep(&["--older-than", "0"]).expect(0).says(&["removable: 1, with 2.0 KiB; go with --remove"]);
    let json = sweep(&["--older-than", "0", "-o", "json"]).expect(0);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["candidates"][0]["bytes"], 2048);
    assert!(dir.exists());
    sweep(&["--older-than", "0", "--remove"]).expect(0).says(&["being removed"]);
    let page = test_support::process::wait_for("the removal", || {
        let page = run(&["apps", "--all", "--admin", &admin]).expect(0);
        page.out.contains("1 of 1 gone").then_some(page)
    });
    page.says(&["SWEPT"]);
    assert!(!dir.exists());
    sweep(&["--older-than", "yesterday"]).expect(2);
}
