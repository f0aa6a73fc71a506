//! What an operator sees of a removal, and can do about it: C02, C07–C11, C14, F3, F4.

use shuffled_service::admin::{Done, Explanation, SweepView};

use super::*;

fn post(service: &ServiceProcess, path: &str, body: &str) -> (u16, String) {
    service.admin_post(path, body)
}

fn done(service: &ServiceProcess, path: &str, body: &str) -> Done {
    let (status, text) = post(service, path, body);
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).expect("the answer of the admin HTTP")
}

fn explain(service: &ServiceProcess, path: &str) -> Explanation {
    let body = service.admin_get(&format!("/v1/explain/{path}"));
    serde_json::from_str(&body).expect("the answer of the admin HTTP")
}

/// `report` says what `on` would do, and does nothing.
#[tokio::test]
async fn c02_with_report_nothing_is_removed_and_the_record_says_what_would_be() {
    let service = command().conf("shuffled.cleanup", "report").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    let would = wait_for("the report", || expired(&service, "app"));
    assert!(would.report_only);
    assert_eq!((would.dirs, would.reason.as_str()), (1, "heartbeat-timeout"));
    canary_expires(&service, "canary", seconds(1)).await;
    assert_served(&mut client, &executor).await;
    assert_eq!(service.metric("shuffled_apps_would_expire_total"), 2.0, "each once");
    // A sign of life, and another silence, are another report.
    client.rpc(executor.heartbeat()).await.unwrap();
    wait_for("another report", || {
        (service.metric("shuffled_apps_would_expire_total") >= 3.0).then_some(())
    });
    expire(&service, "app");
    wait_for("an operator's word", || (!executor.local_dirs[0].exists()).then_some(()));
}

#[tokio::test]
async fn c02_with_off_nothing_expires_by_itself() {
    let service = command().conf("shuffled.cleanup", "off").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    wait_for("its time to be over", || {
        (app(&service, "app").app.unwrap().expires_in_ms == Some(0)).then_some(())
    });
    // Two looks of the cleaner, which leave no trace.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_served(&mut client, &executor).await;
}

#[tokio::test]
async fn c02_what_is_held_or_extended_stays_also_over_a_restart() {
    let mut service = command().durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let held = registered(&service, &mut client, "held", "1").await;
    let extended = registered(&service, &mut client, "extended", "1").await;
    let said = done(&service, "/v1/apps/held/hold", r#"{"note":"ticket 7"}"#);
    assert!(said.durable);
    done(&service, "/v1/apps/extended/extend", r#"{"by_ms":600000}"#);
    for executor in [&held, &extended] {
        client.rpc(executor.driver(seconds(1))).await.unwrap();
    }
    canary_expires(&service, "canary", seconds(2)).await;
    service.kill_and_restart();
    canary_expires(&service, "canary-2", seconds(2)).await;
    let mut client = RawClient::connect(service.shuffle).await;
    assert_served(&mut client, &held).await;
    assert_served(&mut client, &extended).await;
    let view = app(&service, "held").app.unwrap();
    assert_eq!((view.hold.as_deref(), view.expires_in_ms), (Some("ticket 7"), None));
    assert!(app(&service, "extended").app.unwrap().extended_until.is_some());
    let (status, text) = post(&service, "/v1/apps/held/expire", "{}");
    assert_eq!(status, 409, "{text}");
    assert!(text.contains("release it first"), "{text}");

    done(&service, "/v1/apps/held/release", "{}");
    done(&service, "/v1/apps/extended/release", "{}");
    assert_eq!(wait_removed(&service, "held").dirs_removed, 1);
    assert_eq!(wait_removed(&service, "extended").dirs_removed, 1);
}

#[tokio::test]
async fn c02_an_expired_application_comes_back_within_the_grace() {
    let mut service = command().durable().conf("shuffled.cleanup.grace", "10min").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    wait_for("the first step", || (!executor.local_dirs[0].exists()).then_some(()));
    let gone = expired(&service, "app").unwrap();
    assert_eq!((gone.dirs_removed, gone.dirs_restorable), (0, 1));
    let chunk = client.fetch(executor.fetch(0, &[(0, &[0])])).await.unwrap().remove(0);
    assert!(chunk.unwrap_err().contains("is not registered"));
    // Also after a restart.
    service.kill_and_restart();
    let said = done(&service, "/v1/apps/app/restore", "{}");
    assert!(said.done.contains("1 directories are brought back"), "{said:?}");
    wait_for("the way back", || executor.local_dirs[0].exists().then_some(()));
    let mut client = RawClient::connect(service.shuffle).await;
    assert_served(&mut client, &executor).await;
    let view = app(&service, "app").app.unwrap();
    assert!(view.hold.is_some() && view.driver.is_some(), "{view:?}");
    assert_eq!(post(&service, "/v1/apps/app/restore", "{}").0, 409, "once");
    assert_eq!(post(&service, "/v1/apps/other/restore", "{}").0, 404);
}

/// An executor that was taken for dead, and names the directory that is going.
#[tokio::test]
async fn c14_a_registration_of_a_directory_that_is_going_brings_it_back() {
    let service = command().conf("shuffled.cleanup.grace", "10min").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    wait_for("the first step", || (!executor.local_dirs[0].exists()).then_some(()));
    client.rpc(executor.registration()).await.unwrap();
    wait_for("the way back", || executor.local_dirs[0].exists().then_some(()));
    assert_served(&mut client, &executor).await;
    assert_eq!(service.log_lines("Registered a directory that was being removed").len(), 1);
    assert_eq!(expired(&service, "app").unwrap().dirs_restored, 1);
}

#[tokio::test]
async fn f3_nobody_shortens_the_timeout_of_a_live_application() {
    let service = command().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(600))).await.unwrap();
    let mut other = RawClient::connect(service.shuffle).await;
    other.rpc(executor.driver(Duration::from_millis(1).into())).await.unwrap();
    canary_expires(&service, "canary", seconds(1)).await;
    assert_served(&mut client, &executor).await;
    let driver = app(&service, "app").app.unwrap().driver.unwrap();
    assert_eq!(driver.heartbeat_timeout_ms, Some(600_000));
    assert_eq!(service.metric("shuffled_timeouts_kept_total"), 1.0);
    assert_eq!(service.log_lines("Keeping the longer timeout of a live app").len(), 1);
}

#[tokio::test]
async fn f3_timeouts_are_kept_within_the_operators_bounds() {
    let service = command()
        .conf("shuffled.heartbeat.minTimeout", "5min")
        .conf("shuffled.heartbeat.maxTimeout", "1h")
        .start();
    let mut client = RawClient::connect(service.shuffle).await;
    for (name, timeout, kept) in [
        ("short", seconds(1), 300_000),
        ("long", HeartbeatTimeout::Never, 3_600_000),
        ("right", seconds(600), 600_000),
    ] {
        let executor = registered(&service, &mut client, name, "1").await;
        client.rpc(executor.driver(timeout)).await.unwrap();
        let driver = app(&service, name).app.unwrap().driver.unwrap();
        assert_eq!(driver.heartbeat_timeout_ms, Some(kept), "{name}");
    }
}

/// Readers keep an application whose driver is silent, for a while.
#[tokio::test]
async fn reads_defer_the_end_up_to_the_stated_cap() {
    let service = command().conf("shuffled.cleanup.maxDeferral", "4s").start();
    let mut client = RawClient::connect(service.shuffle).await;
    let read = registered(&service, &mut client, "read", "1").await;
    client.rpc(read.driver(seconds(2))).await.unwrap();
    let start = Instant::now();
    let gone = until("the end, for all the reading", async || {
        let _ = client.fetch(read.fetch(0, &[(0, &[0])])).await;
        expired(&service, "read")
    })
    .await;
    assert!(start.elapsed() >= Duration::from_secs(6), "{gone:?}");
    assert!(gone.silent_for_ms.unwrap() >= 6000, "{gone:?}");
}

/// Why is it here, why did it go, why did this fetch fail.
#[tokio::test]
async fn c20_explain_answers_each_question() {
    let service = command().durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(600))).await.unwrap();
    for (path, verdict, text) in [
        ("app", "registered", "expires in"),
        ("app?exec=1", "registered", "Executor 1 is registered"),
        ("app?exec=2", "not-registered", "Registered are: 1."),
        ("app?exec=1&block=shuffle_0_0_0", "readable", "1000 bytes from byte 0"),
        ("app?exec=1&block=shuffle_0_9_0", "file-missing", "shuffle_0_9_0.index"),
        ("app?exec=1&block=rdd_1_2", "file-missing", "fails"),
        ("app?exec=1&block=../../etc/passwd", "bad-request", "fails"),
        ("other", "never-seen", "nothing is remembered of it"),
    ] {
        let why = explain(&service, path);
        assert_eq!(why.verdict, verdict, "{path}: {why:?}");
        assert!(why.findings.iter().any(|line| line.contains(text)), "{path}: {why:?}");
    }
    let (_, text) = post(&service, "/v1/apps/app/expire", r#"{"note":"ticket 9"}"#);
    assert!(text.contains("expired"), "{text}");
    wait_removed(&service, "app");
    let why = explain(&service, "app?exec=1");
    assert_eq!(why.verdict, "expired");
    let text = why.findings.join(" ");
    assert!(text.contains("an operator said so (ticket 9)"), "{text}");
    assert!(text.contains("Of its 1 directories 1 are gone (3 files, "), "{text}");
}

/// The record comes before the first file goes, with all that is asked later.
#[tokio::test]
async fn c02_the_record_has_what_whose_why_and_how_much() {
    let service = command().durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    let bytes: u64 = files_below(&executor.local_dirs[0])
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    let gone = wait_removed(&service, "app");
    assert_eq!((gone.files_removed, gone.bytes_removed), (3, bytes));
    assert_eq!(gone.heartbeat_timeout_ms, Some(1000));
    // In whole milliseconds.
    assert!(gone.silent_for_ms.unwrap() >= 1000);
    let detail = app(&service, "app");
    assert_eq!(detail.expired_dirs[0].path, executor.local_dirs[0].to_str().unwrap());
}

/// A directory that the service may not read is told at once, not with the first fetch.
#[tokio::test]
async fn c07_c08_spark_9645_an_unreadable_directory_is_told_at_the_registration() {
    use std::os::unix::fs::PermissionsExt as _;
    let service = command().unprivileged().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = written(&service, "app", "1");
    fs::set_permissions(&executor.local_dirs[0], fs::Permissions::from_mode(0o700)).unwrap();
    client.rpc(executor.registration()).await.expect("the registration succeeds, as in Spark");
    let me = rustix::process::geteuid().as_raw();
    if me != 0 {
        return; // the service runs as this user, who may read it
    }
    wait_for("the look at the directory", || {
        (service.metric("shuffled_unreadable_dirs_total") >= 1.0).then_some(())
    });
    assert_eq!(app(&service, "app").app.unwrap().unreadable_dirs, 1);
    let why = explain(&service, "app?exec=1&block=shuffle_0_0_0");
    assert_eq!(why.verdict, "permission");
    let text = why.findings.join(" ");
    assert!(text.contains("mode 0700") && text.contains("runs as user 65534"), "{text}");
    let chunk = client.fetch(executor.fetch(0, &[(0, &[0])])).await.unwrap().remove(0);
    assert!(chunk.unwrap_err().contains("permission denied"));
    assert_eq!(errors(&service).get("permission"), Some(&1));
}

fn sweep(service: &ServiceProcess, older_than: &str) -> SweepView {
    let path = format!("/v1/sweep?older_than_ms={older_than}");
    serde_json::from_str(&service.admin_get(&path)).expect("the answer of the admin HTTP")
}

#[tokio::test]
async fn c10_c11_a_sweep_lists_what_nobody_owns_and_removes_it_only_when_told() {
    let service = command().durable().alone().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let uuid = |n: u32| format!("blockmgr-0a1b2c3d-0000-4000-8000-{n:012}");
    let at = |n: u32| FixtureExecutor {
        app_id: "app".into(),
        exec_id: n.to_string().into(),
        local_dirs: vec![service.root().join(uuid(n))],
    };
    for executor in [at(1), at(2)] {
        executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
    }
    client.rpc(at(1).registration()).await.unwrap();
    fs::create_dir_all(service.root().join("home/data")).unwrap();
    assert_eq!(sweep(&service, "3600000").candidates[0].verdict, "too-young");
    let view = sweep(&service, "0");
    assert_eq!(view.candidates.len(), 1, "{view:?}");
    assert_eq!(view.candidates[0].verdict, "removable", "{view:?}");
    assert!(at(2).local_dirs[0].exists(), "it was only looked for");

    let (status, text) = post(&service, "/v1/sweep?older_than_ms=0", "{}");
    assert_eq!(status, 200, "{text}");
    wait_for("the removal", || (!at(2).local_dirs[0].exists()).then_some(()));
    assert_served(&mut client, &at(1)).await;
    assert!(service.root().join("home/data").exists());
    let list: AppList = serde_json::from_str(&service.admin_get("/v1/apps")).unwrap();
    assert_eq!((list.swept.len(), list.swept[0].reason.as_str()), (1, "sweep"));
}

/// At the start, when configured: what an earlier, forgetful service left.
#[tokio::test]
async fn c10_the_start_sweeps_when_it_is_told_to() {
    let service = command()
        .alone()
        .conf("shuffled.sweep.atStart", "true")
        .conf("shuffled.sweep.olderThan", "0")
        .conf("shuffled.sweep.remove", "true");
    let left = service.root().join("blockmgr-0a1b2c3d-0000-4000-8000-000000000001");
    fs::create_dir_all(left.join("00")).unwrap();
    let service = service.start();
    wait_for("the sweep", || (!left.exists()).then_some(()));
    assert!(!service.log_lines("Swept the local dirs").is_empty());
}

/// No web page can make a browser do it: a form cannot send JSON.
#[test]
fn what_changes_something_takes_json() {
    let service = command().start();
    let (status, _) = post(&service, "/v1/apps/app/expire", "note=x");
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(test_support::process::http_get(service.admin, "/v1/apps/app/expire").0, 405);
}
