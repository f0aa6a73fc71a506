use std::collections::HashSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::keys::Off;
use super::*;
use crate::liveness::Cleanup;

const SECOND: Duration = Duration::from_secs(1);

fn file(text: &str) -> RawConfig {
    let mut raw = RawConfig::default();
    raw.properties(Path::new("/etc/x.conf"), text);
    raw
}

fn conf(texts: &[&str]) -> RawConfig {
    let mut raw = RawConfig::default();
    for text in texts {
        raw.conf(text);
    }
    raw
}

fn env(variables: &[(&str, &str)]) -> RawConfig {
    let mut raw = RawConfig::default();
    raw.environment(variables.iter().map(|(name, value)| (name.into(), value.into())));
    raw
}

fn service(raw: &RawConfig) -> ServiceConfig {
    ServiceConfig::check(raw).unwrap()
}

/// The texts of everything that is wrong with it for `serve`.
fn refusals(raw: &RawConfig) -> Vec<String> {
    match ServiceConfig::check(raw) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn warnings(raw: &RawConfig) -> Vec<String> {
    raw.warnings().iter().map(ToString::to_string).collect()
}

fn row(raw: &RawConfig, key: &str) -> Row {
    raw.rows().into_iter().find(|row| row.key == key).unwrap()
}

#[test]
fn the_defaults_are_sparks_and_ours() {
    let minutes = |m: u64| Duration::from_secs(60 * m);
    assert_eq!(
        ServiceConfig::default(),
        ServiceConfig {
            listen: "0.0.0.0:7337".parse().unwrap(),
            admin_listen: Some("127.0.0.1:7338".parse().unwrap()),
            local_dirs: vec![],
            state_dir: None,
            cleanup: Cleanup::On,
            cleanup_grace: Duration::ZERO,
            cleanup_max_deferral: minutes(10),
            min_timeout: Duration::ZERO,
            max_timeout: None,
            sweep_interval: None,
            sweep_at_start: false,
            sweep_older_than: minutes(7 * 24 * 60),
            sweep_remove: false,
            sweep_procfs: None,
            cleaner_interval: 30 * SECOND,
            orphan_ttl: None,
            index_cache_size: 100 << 20,
            max_chunks_being_transferred: None,
            connection_timeout: Some(minutes(2)),
            back_log: None,
            receive_buffer: None,
            send_buffer: None,
            tcp_keep_alive: false,
            max_streams: 65536,
            stream_idle_timeout: minutes(10),
            frame_max_size: 64 << 20,
            drain_timeout: 30 * SECOND,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
        }
    );
    assert_eq!(
        ClientSettings::default(),
        ClientSettings {
            service_port: 7337,
            connection_timeout: Some(minutes(2)),
            connection_creation_timeout: Some(minutes(2)),
            max_retries: 3,
            retry_wait: 5 * SECOND,
            connections_per_peer: 1,
            use_old_fetch_protocol: false,
            max_block_to_mem: 200 << 20,
            registration_timeout: 5 * SECOND,
            registration_attempts: 3,
            heartbeat_timeout: minutes(2),
            heartbeat_interval: 10 * SECOND,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
        }
    );
}

#[test]
fn the_table_is_sound() {
    let mut names = HashSet::new();
    let mut variables = HashSet::new();
    for def in KEYS {
        assert!(names.insert(def.name), "{} is there twice", def.name);
        assert!(variables.insert(def.env()), "{} is there twice", def.env());
        assert!(def.env().starts_with("SHUFFLED_"));
        assert!(def.doc.ends_with('.') && def.doc.len() < 120, "{}", def.doc);
        assert!(!def.is_family() || def.role == Role::Ignored);
        assert_eq!(KeyDef::find(def.name).map(|found| found.name), Some(def.name));
        match def.preset {
            Preset::Value(text) => assert!(Value::parse(def.kind, text).is_ok(), "{}", def.name),
            Preset::SameAs(other) => {
                let other = KeyDef::find(other).unwrap();
                let is_time = |kind| matches!(kind, Kind::Time { .. });
                assert!(is_time(def.kind) && is_time(other.kind), "{}", def.name);
            }
            Preset::Unset(_) => {}
        }
        // Ends if no key falls back on itself.
        RawConfig::default().effective(def);
    }
}

#[test]
fn each_layer_is_above_the_one_before() {
    let key = keys::SERVICE_PORT;
    let adders: [&dyn Fn(&mut RawConfig); 4] = [
        &|raw| raw.properties(Path::new("f"), "\nspark.shuffle.service.port 1\n"),
        &|raw| {
            raw.environment([("SHUFFLED_SPARK_SHUFFLE_SERVICE_PORT".into(), "2".into())]);
        },
        &|raw| raw.conf("spark.shuffle.service.port=3"),
        &|raw| raw.flag("--port", key, "4"),
    ];
    let sources = [
        Source::File { path: Path::new("f").into(), line: 2 },
        Source::Env("SHUFFLED_SPARK_SHUFFLE_SERVICE_PORT".to_owned()),
        Source::Conf,
        Source::Flag("--port"),
    ];
    for (top, source) in sources.iter().enumerate() {
        for backwards in [false, true] {
            let mut raw = RawConfig::default();
            let mut layers: Vec<usize> = (0..=top).collect();
            if backwards {
                layers.reverse();
            }
            for layer in layers {
                adders[layer](&mut raw);
            }
            let expected = Setting { value: (top + 1).to_string(), source: source.clone() };
            assert_eq!(raw.setting(key), Some(&expected));
        }
    }
    assert_eq!(row(&RawConfig::default(), key).source, Source::Default);
}

#[test]
fn the_last_of_the_same_layer_wins() {
    let raw = conf(&["spark.shuffle.service.port=1", "spark.shuffle.service.port=2"]);
    assert_eq!(service(&raw).listen.port(), 2);
    let raw = file("shuffled.listen 127.0.0.1:1\nshuffled.listen 127.0.0.1:2\n");
    assert_eq!(row(&raw, keys::LISTEN).source.to_string(), "/etc/x.conf:2");
}

#[test]
fn every_key_can_be_set_everywhere() {
    let text = "shuffled.listen 127.0.0.1:1\n\
                shuffled.admin.listen OFF\n\
                shuffled.local.dirs /data/1/, /data/2,/data/1\n\
                shuffled.state.dir /var/lib/shuffled/\n\
                shuffled.cleanup REPORT\n\
                shuffled.cleanup.grace 1h\n\
                shuffled.cleanup.maxDeferral 0\n\
                shuffled.heartbeat.minTimeout 10s\n\
                shuffled.heartbeat.maxTimeout 1d\n\
                shuffled.sweep.interval 6h\n\
                shuffled.sweep.atStart true\n\
                shuffled.sweep.olderThan 3d\n\
                shuffled.sweep.remove true\n\
                shuffled.sweep.procfs /host/proc\n\
                shuffled.orphan.ttl 2h\n\
                shuffled.connection.maxStreams 10\n\
                shuffled.stream.idleTimeout 90\n\
                shuffled.frame.maxSize 2147483646\n\
                shuffled.drain.timeout 0\n\
                shuffled.log.format JSON\n\
                shuffled.log.filter warn,shuffled_service=debug\n\
                spark.shuffle.cleaner.interval 1500ms\n\
                spark.shuffle.service.index.cache.size 0\n\
                spark.shuffle.maxChunksBeingTransferred 9223372036854775807\n\
                spark.shuffle.io.connectionTimeout 999ms\n\
                spark.shuffle.io.backLog 128\n\
                spark.shuffle.io.receiveBuffer 65536\n\
                spark.shuffle.io.sendBuffer 0\n\
                spark.shuffle.io.enableTcpKeepAlive true\n\
                spark.network.timeout 5min\n\
                spark.authenticate false\n";
    let expected = ServiceConfig {
        listen: "127.0.0.1:1".parse().unwrap(),
        admin_listen: None,
        local_dirs: vec!["/data/1".into(), "/data/2".into()],
        state_dir: Some("/var/lib/shuffled".into()),
        cleanup: Cleanup::Report,
        cleanup_grace: 3600 * SECOND,
        cleanup_max_deferral: Duration::ZERO,
        min_timeout: 10 * SECOND,
        max_timeout: Some(86_400 * SECOND),
        sweep_interval: Some(6 * 3600 * SECOND),
        sweep_at_start: true,
        sweep_older_than: 3 * 86_400 * SECOND,
        sweep_remove: true,
        sweep_procfs: Some("/host/proc".into()),
        cleaner_interval: SECOND,
        orphan_ttl: Some(7200 * SECOND),
        index_cache_size: 0,
        max_chunks_being_transferred: Some(i64::MAX as u64),
        connection_timeout: None,
        back_log: Some(128),
        receive_buffer: Some(65536),
        send_buffer: None,
        tcp_keep_alive: true,
        max_streams: 10,
        stream_idle_timeout: 90 * SECOND,
        frame_max_size: 2_147_483_646,
        drain_timeout: Duration::ZERO,
        log_format: LogFormat::Json,
        log_filter: "warn,shuffled_service=debug".to_owned(),
    };
    assert_eq!(service(&file(text)), expected);

    let (mut confs, mut flags, mut variables) =
        (RawConfig::default(), RawConfig::default(), Vec::new());
    for (key, value) in text.lines().map(|line| line.split_once(' ').unwrap()) {
        confs.conf(&format!(" {key} = {value} "));
        flags.flag("--flag", key, value);
        variables.push((OsString::from(env_name(key)), OsString::from(value)));
    }
    let mut environment = RawConfig::default();
    environment.environment(variables);
    for raw in [confs, flags, environment] {
        assert_eq!(service(&raw), expected);
    }
}

#[test]
fn variables_are_named_after_keys() {
    for (key, name) in [
        ("shuffled.local.dirs", "SHUFFLED_LOCAL_DIRS"),
        ("shuffled.connection.maxStreams", "SHUFFLED_CONNECTION_MAX_STREAMS"),
        ("spark.shuffle.io.lazyFD", "SHUFFLED_SPARK_SHUFFLE_IO_LAZY_FD"),
        ("spark.network.timeout", "SHUFFLED_SPARK_NETWORK_TIMEOUT"),
    ] {
        assert_eq!(env_name(key), name);
    }
}

#[test]
fn the_port_of_listen_wins_and_a_different_one_is_pointed_out() {
    let text = "spark.shuffle.service.port 7447\n";
    assert_eq!(service(&file(text)).listen, SocketAddr::from(([0, 0, 0, 0], 7447)));
    assert!(warnings(&file(text)).is_empty());

    let mut raw = file(text);
    raw.flag("--listen", keys::LISTEN, "[::1]:7337");
    assert_eq!(service(&raw).listen, "[::1]:7337".parse().unwrap());
    assert_eq!(
        warnings(&raw),
        ["/etc/x.conf:1: spark.shuffle.service.port = 7447 is not used: \
          shuffled.listen has port 7337 (--listen)"]
    );
    raw.flag("--listen", keys::LISTEN, "127.0.0.1:7447");
    assert!(warnings(&raw).is_empty());
}

#[test]
fn timeouts_fall_back_on_the_network_timeout() {
    let raw = file("spark.network.timeout 300\n");
    assert_eq!(service(&raw).connection_timeout, Some(300 * SECOND));
    let client = ClientSettings::check(&raw).unwrap();
    assert_eq!(client.connection_creation_timeout, Some(300 * SECOND));
    assert_eq!(client.heartbeat_timeout, 300 * SECOND);
    let shown = row(&raw, keys::CONNECTION_CREATION_TIMEOUT);
    assert_eq!((shown.value.as_str(), shown.from), ("5min", Some(keys::NETWORK_TIMEOUT)));
    assert_eq!(shown.source.to_string(), "/etc/x.conf:1");

    let raw = conf(&["spark.storage.blockManagerSlaveTimeoutMs=45000"]);
    assert_eq!(ClientSettings::check(&raw).unwrap().heartbeat_timeout, 45 * SECOND);
    let raw = conf(&["spark.shuffle.io.connectionTimeout=60s"]);
    let client = ClientSettings::check(&raw).unwrap();
    assert_eq!(client.connection_creation_timeout, Some(60 * SECOND));
    assert_eq!(client.heartbeat_timeout, 120 * SECOND);
}

#[test]
fn connections_are_never_idle_too_long_below_a_second() {
    for off in ["0", "-1", "999ms", "-5min"] {
        let raw = conf(&[&format!("spark.shuffle.io.connectionTimeout={off}")]);
        assert_eq!(service(&raw).connection_timeout, None, "{off}");
        assert_eq!(row(&raw, keys::CONNECTION_TIMEOUT).value, "off");
    }
}

#[test]
fn f1_the_longest_heartbeat_timeout_is_no_short_one() {
    let raw = conf(&["spark.storage.blockManagerHeartbeatTimeoutMs=9223372036854775807"]);
    let timeout = ClientSettings::check(&raw).unwrap().heartbeat_timeout;
    let on_the_wire = shuffle_protocol::HeartbeatTimeout::from(timeout).to_wire();
    assert_eq!(on_the_wire, i64::MAX);
}

#[test]
fn a_driver_must_beat_within_its_timeout() {
    let client = |raw: &RawConfig| ClientSettings::check(raw).unwrap_err().to_string();
    assert_eq!(
        client(&conf(&["spark.network.timeout=10s"])),
        "default: spark.executor.heartbeatInterval = 10s: must be shorter than \
         spark.storage.blockManagerHeartbeatTimeoutMs = 10s (--conf)"
    );
    assert_eq!(
        client(&conf(&["spark.network.timeout=0"])),
        "--conf: spark.network.timeout = \"0\": counts for \
         spark.storage.blockManagerHeartbeatTimeoutMs as well, which cannot be off; set that too"
    );
    assert!(client(&conf(&["spark.executor.heartbeatInterval=0"])).contains("too short"));
}

#[test]
fn a_wrong_value_says_where_and_what_would_be_right() {
    for (setting, problem) in [
        ("spark.shuffle.service.port=http", "not a port; use a number from 0 to 65535"),
        ("spark.shuffle.cleaner.interval=0", "too short; use a time, at least 1s; read in whole s"),
        (
            "spark.shuffle.cleaner.interval=999ms",
            "too short; use a time, at least 1s; read in whole s",
        ),
        ("spark.shuffle.cleaner.interval=-1s", "must not be negative"),
        (
            "spark.shuffle.cleaner.interval=30 s",
            "not a time; use us, ms, s, m or min, h or d, such as 50s, 100ms or 2min",
        ),
        (
            "spark.shuffle.service.index.cache.size=0.5g",
            "fractional values are not supported; use b, k, m, g, t or p, such as 50b, 100k or 250m",
        ),
        ("spark.shuffle.maxChunksBeingTransferred=0", "out of range; use a whole number from 1"),
        ("spark.shuffle.io.receiveBuffer=64k", "not a whole number; use digits only, such as 3"),
        (
            "spark.shuffle.io.backLog=2147483648",
            "too large; use a whole number; 0 and below: what the operating system has",
        ),
        (
            "shuffled.listen=localhost:7337",
            "not an IP address and a port; use one such as 0.0.0.0:7337 or [::]:7337 \
             (names are not looked up)",
        ),
        (
            "shuffled.listen=off",
            "not an IP address and a port; use one such as 0.0.0.0:7337 or [::]:7337 \
             (names are not looked up)",
        ),
        (
            "shuffled.admin.listen=7338",
            "not an IP address and a port; use one such as 0.0.0.0:7337 or [::]:7337, or off \
             (names are not looked up)",
        ),
        ("shuffled.local.dirs=/a,b", "\"b\" is not an absolute path; begin it with /"),
        ("shuffled.local.dirs=/a,,/b", "has an empty path; take the comma too many away"),
        ("shuffled.local.dirs=/a/../b", "\"/a/../b\" has .. in it; write the path without"),
        ("shuffled.local.dirs=/", "/ would allow every directory; name narrower roots"),
        (
            "shuffled.local.dirs=",
            "has no value; leave it out or use: absolute paths between commas",
        ),
        (
            "shuffled.orphan.ttl=0",
            "too short; use a time, at least 1s, or off; a number alone is s",
        ),
        ("shuffled.connection.maxStreams=0", "out of range; use a whole number, 1 to 2147483647"),
        (
            "shuffled.frame.maxSize=2g",
            "out of range; use a size, at least 64k, at most 2147483646b",
        ),
        ("shuffled.log.format=xml", "not a choice; use text or json"),
    ] {
        let (key, value) = setting.split_once('=').unwrap();
        assert_eq!(
            refusals(&file(&format!("\n{key} = {value}"))),
            [format!("/etc/x.conf:2: {key} = {value:?}: {problem}")]
        );
        assert_eq!(refusals(&conf(&[setting])).len(), 1);
        let shown = row(&conf(&[setting]), key);
        assert_eq!((shown.value.as_str(), shown.problem.as_deref()), (value, Some(problem)));
    }
    assert_eq!(
        refusals(&env(&[("SHUFFLED_DRAIN_TIMEOUT", "soon")])),
        [
            "environment SHUFFLED_DRAIN_TIMEOUT: shuffled.drain.timeout = \"soon\": not a time; use us, \
          ms, s, m or min, h or d, such as 50s, 100ms or 2min"
        ]
    );
}

#[test]
fn authentication_that_there_is_not_is_refused() {
    for key in ["spark.authenticate", "spark.ssl.rpc.enabled"] {
        let raw = file(&format!("{key} true\nspark.authenticate.secret s3cr3t\n"));
        let text = format!(
            "/etc/x.conf:1: {key} = true: not supported yet; nothing would be protected, so set it to \
             false"
        );
        assert_eq!(refusals(&raw), [text.as_str()]);
        assert_eq!(ClientSettings::check(&raw).unwrap_err().to_string(), text);
        assert!(row(&raw, key).problem.is_some());
        assert!(!format!("{raw:?}").contains("s3cr3t"));
    }
}

#[test]
fn everything_that_is_wrong_is_reported_at_once() {
    let mut raw = file("spark.network.timeout x\nspark.shuffle.service.port y\n");
    raw.properties(Path::new("/etc/y.conf"), "a=1\nb=\\u12\nc=\\u\n");
    raw.environment([
        ("SHUFFLED_LISTNE".into(), "z".into()),
        ("SHUFFLED_LOCAL_DIRS".into(), OsString::from_vec(vec![b'/', 0xff])),
    ]);
    raw.conf("nothing");
    raw.conf("=x");
    raw.conf("shuffled.drain.timout=1s");
    raw.conf("shufled.listen=x");
    raw.flag("--admin", keys::ADMIN_LISTEN, "w");
    raw.properties_file(Path::new("/nowhere/at/all.conf"));
    let escape = "malformed \\uXXXX escape; write four hexadecimal digits after \\u, or \\\\u for a \
                  backslash";
    let time = "not a time; use us, ms, s, m or min, h or d, such as 50s, 100ms or 2min";
    let expected = [
        &format!("/etc/y.conf:2: {escape}"),
        &format!("/etc/y.conf:3: {escape}"),
        "environment SHUFFLED_LISTNE: stands for no key; did you mean SHUFFLED_LISTEN?",
        "environment SHUFFLED_LOCAL_DIRS: the value is not UTF-8",
        "--conf: \"nothing\" has no value; write --conf key=value",
        "--conf: \"=x\" has no value; write --conf key=value",
        "--conf: unknown key shuffled.drain.timout; did you mean shuffled.drain.timeout?",
        "--conf: unknown key shufled.listen; did you mean shuffled.listen?",
        "/nowhere/at/all.conf: cannot read the properties file: No such file or directory (os error 2)",
        "/etc/x.conf:2: spark.shuffle.service.port = \"y\": not a port; use a number from 0 to 65535",
        "--admin: shuffled.admin.listen = \"w\": not an IP address and a port; use one such as \
         0.0.0.0:7337 or [::]:7337, or off (names are not looked up)",
        &format!("/etc/x.conf:1: spark.network.timeout = \"x\": {time}"),
    ];
    assert_eq!(refusals(&raw), expected);
    assert_eq!(ServiceConfig::check(&raw).unwrap_err().to_string(), expected.join("\n"));
}

#[test]
fn an_unknown_key_is_a_warning_in_a_file_and_an_error_elsewhere() {
    let raw = file(
        "spark.shuffle.clenaer.interval 5s\nshuffled.admin 1\nspark.executor.memory 4g\n\
         shuffle.x 1\nspark.shuffled 1\n",
    );
    assert_eq!(
        warnings(&raw),
        [
            "/etc/x.conf:1: unknown key spark.shuffle.clenaer.interval; did you mean \
             spark.shuffle.cleaner.interval?",
            "/etc/x.conf:2: unknown key shuffled.admin",
        ]
    );
    assert_eq!(service(&raw), ServiceConfig::default());

    assert_eq!(
        refusals(&conf(&["spark.shuffle.cleaner.intervall=5s"])),
        ["--conf: unknown key spark.shuffle.cleaner.intervall; did you mean \
          spark.shuffle.cleaner.interval?"]
    );
    assert_eq!(refusals(&conf(&["shuffled.push.on=1"])), ["--conf: unknown key shuffled.push.on"]);
    assert_eq!(service(&conf(&["spark.executor.memory=4g"])), ServiceConfig::default());

    let mut raw = RawConfig::default();
    raw.flag("--listen", "shuffled.lisen", "x");
    assert_eq!(
        refusals(&raw),
        ["--listen: unknown key shuffled.lisen; did you mean shuffled.listen?"]
    );
}

#[test]
fn keys_of_spark_that_mean_nothing_here_are_known() {
    let raw = file(
        "spark.shuffle.io.serverThreads 64\nspark.shuffle.push.server.mergedIndexCacheSize x\n\
         spark.shuffle.service.enabled true\nspark.shuffle.sort.bypassMergeThreshold 200\n",
    );
    assert_eq!(service(&raw), ServiceConfig::default());
    assert!(warnings(&raw).is_empty());
    let ignored: Vec<Row> =
        raw.rows().into_iter().filter(|row| row.role == Role::Ignored).collect();
    assert_eq!(ignored.len(), 4);
    let threads = &ignored[0];
    assert_eq!(
        (threads.key.as_str(), threads.value.as_str()),
        ("spark.shuffle.io.serverThreads", "64")
    );
    assert_eq!(threads.source.to_string(), "/etc/x.conf:1");
}

#[test]
fn variables_that_are_not_ours_are_passed_over() {
    let raw = env(&[
        ("PATH", "/bin"),
        ("SHUFFLED", "1"),
        ("SHUFFLED_PROPERTIES_FILE", "/etc/x.conf"),
        ("SHUFFLED_TEST_CACHE", "/tmp"),
        // What Kubernetes sets where a service is called shuffled, or shuffled-admin.
        ("SHUFFLED_SERVICE_HOST", "10.0.0.1"),
        ("SHUFFLED_SERVICE_PORT", "7337"),
        ("SHUFFLED_SERVICE_PORT_SHUFFLE", "7337"),
        ("SHUFFLED_PORT", "tcp://10.0.0.1:7337"),
        ("SHUFFLED_PORT_7337_TCP", "tcp://10.0.0.1:7337"),
        ("SHUFFLED_PORT_7337_TCP_PROTO", "tcp"),
        ("SHUFFLED_PORT_7337_TCP_PORT", "7337"),
        ("SHUFFLED_PORT_7337_TCP_ADDR", "10.0.0.1"),
        ("SHUFFLED_ADMIN_SERVICE_HOST", "10.0.0.2"),
        ("SHUFFLED_ADMIN_PORT_7338_TCP", "tcp://10.0.0.2:7338"),
    ]);
    assert_eq!(service(&raw), ServiceConfig::default());

    // Without such a service it is somebody's guess.
    let refused = refusals(&env(&[("SHUFFLED_PORT", "7447"), ("SHUFFLED_SERVICE_PORT", "7447")]));
    assert_eq!(refused.len(), 2);
    assert!(refused[0].starts_with("environment SHUFFLED_PORT: stands for no key"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_key() {
    let raw = file("\u{feff}spark.shuffle.service.port 1\n");
    assert_eq!(service(&raw).listen.port(), 1);
}

#[test]
fn rows_have_every_key_with_its_value_for_people() {
    let raw = file("spark.shuffle.cleaner.interval 120\nshuffled.frame.maxSize 1048576\n");
    let rows = raw.rows();
    assert_eq!(rows.len(), KEYS.iter().filter(|def| def.role != Role::Ignored).count());
    for (key, value, source) in [
        (keys::CLEANER_INTERVAL, "2min", "/etc/x.conf:1"),
        (keys::FRAME_MAX_SIZE, "1m", "/etc/x.conf:2"),
        (keys::LISTEN, "0.0.0.0 and spark.shuffle.service.port", "default"),
        (keys::MAX_CHUNKS, "unlimited", "default"),
        (keys::CONNECTION_TIMEOUT, "2min", "default"),
        (keys::BACK_LOG, "-1", "default"),
        (keys::ORPHAN_TTL, "off", "default"),
    ] {
        let shown = row(&raw, key);
        assert_eq!((shown.value.as_str(), shown.source.to_string().as_str()), (value, source));
    }
}

#[test]
fn a_file_is_read_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("spark-defaults.conf");
    // Latin-1 in a comment is no reason to refuse the file.
    std::fs::write(&path, b"# caf\xe9\nspark.shuffle.service.port  1234\n").unwrap();
    let mut raw = RawConfig::default();
    raw.properties_file(&path);
    assert_eq!(service(&raw).listen.port(), 1234);
    assert_eq!(
        raw.setting(keys::SERVICE_PORT).map(|setting| &setting.source),
        Some(&Source::File { path: path.into(), line: 2 })
    );
}

fn any_key() -> impl Strategy<Value = &'static KeyDef> {
    (0..KEYS.len()).prop_map(|i| &KEYS[i])
}

proptest! {
    #[test]
    fn no_text_makes_a_key_panic(def in any_key(), text in any::<String>()) {
        let raw = conf(&[&format!("{}={text}", def.name), &text]);
        let _ = (ServiceConfig::check(&raw), ClientSettings::check(&raw), raw.rows(), raw.warnings());
    }

    #[test]
    fn no_number_with_a_unit_does(def in any_key(), text in "-?[0-9]{0,20}[a-z]{0,3}") {
        let raw = conf(&[&format!("{}={text}", def.name)]);
        let _ = (ServiceConfig::check(&raw), ClientSettings::check(&raw), raw.rows());
    }

    #[test]
    fn what_is_shown_can_be_set_again(
        def in any_key(),
        text in "(-?[0-9]{1,12}(us|ms|s|m|h|d|k|g)?)|true|off|/[a-z]/[b-d.]?|127.0.0.1:[0-9]{1,4}",
    ) {
        if let Ok(value) = Value::parse(def.kind, &text) {
            let shown = value.to_string();
            let off_by_number = matches!(def.kind, Kind::Time { off: Off::NotPositive, .. });
            if !(off_by_number && shown == "off") {
                prop_assert_eq!(Value::parse(def.kind, &shown), Ok(value));
            }
        }
    }

    #[test]
    fn paths_are_absolute_and_plain(text in "(/?(\\.{0,2}|[a-c]|,)){0,8}") {
        if let Ok(Value::Paths(paths)) = Value::parse(Kind::Paths, &text) {
            prop_assert!(!paths.is_empty());
            for path in paths {
                prop_assert!(path.is_absolute() && path != Path::new("/"));
                let plain: PathBuf = path.components().collect();
                prop_assert_eq!(path.as_os_str(), plain.as_os_str());
                prop_assert!(!path.to_string_lossy().contains("//"));
            }
        }
    }
}
