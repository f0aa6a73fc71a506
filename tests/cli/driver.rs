use serde_json::Value;
use test_support::process::{http_get, wait_for};

use crate::run::{Running, address, run, service, shuffled};

fn serve(listen: &str) -> (Running, String) {
    let mut serve =
        Running::start(shuffled(&["serve", "--listen", listen, "--admin", "127.0.0.1:0"]));
    let ready = serve.line_with("ready ");
    (serve, ready)
}

#[test]
fn keeps_an_application_registered_through_a_restart() {
    let (first, ready) = serve("127.0.0.1:0");
    let listen = address(&ready, "shuffle=").to_string();
    let mut driver = Running::start(shuffled(&[
        "driver",
        "--server",
        &listen,
        "--app",
        "app-1",
        "--timeout",
        "60s",
        "--interval",
        "100ms",
    ]));
    driver.line_with(&format!("{listen}: registered, sending heartbeats"));
    let admin = address(&ready, "admin=");
    wait_for("heartbeats", || {
        let page: Value = serde_json::from_str(&http_get(admin, "/v1/apps/app-1").1).unwrap();
        assert_eq!(page["app"]["driver"]["heartbeat_timeout_ms"], 60_000);
        (page["app"]["driver"]["heartbeats"].as_u64() >= Some(2)).then_some(())
    });

    first.signal("TERM");
    first.end().expect(0);
    driver.line_with(&format!("{listen}: not registered ("));
    let (_second, ready) = serve(&listen);
    driver.line_with(&format!("{listen}: registered, sending heartbeats"));
    let page = http_get(address(&ready, "admin="), "/v1/apps/app-1");
    assert_eq!(page.0, 200);

    driver.signal("TERM");
    let ended = driver.end().expect(0);
    assert!(
        ended.line("SIGTERM: stopped after ").contains("go when its timeout of 1m 00s"),
        "{ended}"
    );
    assert_eq!(ended.err, "", "what it says is not said twice");
}

#[test]
fn registers_with_every_server_once() {
    let (a, b) = (service(), service());
    let (one, two) = (a.shuffle.to_string(), b.shuffle.to_string());
    let mut driver = Running::start(shuffled(&[
        "driver", "--server", &one, "--server", &two, "--server", &one, "--app", "app-1",
    ]));
    let mut registered = [driver.line_with(": registered"), driver.line_with(": registered")];
    registered.sort();
    let mut expected =
        [&one, &two].map(|server| format!("{server}: registered, sending heartbeats"));
    expected.sort();
    assert_eq!(registered, expected);
    for service in [&a, &b] {
        assert_eq!(service.metric("shuffled_drivers"), 1.0);
        assert_eq!(service.metric("shuffleService_numActiveConnections"), 1.0);
    }
    driver.signal("INT");
    driver.end().expect(0).says(&["SIGINT: stopped after"]);
}

#[test]
fn the_port_is_sparks_where_none_is_given() {
    let service = service();
    let port = format!("spark.shuffle.service.port={}", service.shuffle.port());
    let mut driver = Running::start(shuffled(&[
        "driver",
        "--server",
        "127.0.0.1",
        "--app",
        "app-1",
        "--conf",
        &port,
    ]));
    driver.line_with(&format!("{}: registered", service.shuffle));
    driver.signal("TERM");
    driver.end().expect(0);
}

#[test]
fn wrong_options_are_2_and_name_what_to_change() {
    let driver = ["driver", "--server", "127.0.0.1:1", "--app", "app-1"];
    let cases: [(&[&str], &[&str]); 4] = [
        (
            &["--timeout", "10s", "--interval", "10s"],
            &[
                "--interval: spark.executor.heartbeatInterval = 10s: must be shorter than",
                "spark.storage.blockManagerHeartbeatTimeoutMs = 10s (--timeout)",
            ],
        ),
        (
            &["--timeout", "0"],
            &["--timeout: spark.storage.blockManagerHeartbeatTimeoutMs = \"0\": too short"],
        ),
        (&["--timeout", "tomorrow"], &["--timeout: ", "\"tomorrow\""]),
        (&["--server", "agent:port"], &["--server: \"agent:port\" is not host:port"]),
    ];
    for (args, texts) in cases {
        run(&[&driver, args].concat()).expect(2).complains(texts);
    }
    run(&["driver", "--server", "127.0.0.1:1", "--app", ""]).expect(2).complains(&["--app"]);
}
