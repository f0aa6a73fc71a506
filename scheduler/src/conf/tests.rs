use proptest::prelude::*;
use serde_json::json;

use super::testing::{Around, conf, spark_conf};
use super::*;

fn check_around(entries: &[(&str, &str)], around: &Around) -> Result<CoarseConf, Vec<ConfError>> {
    CoarseConf::check(&spark_conf(entries), around)
}

fn check(entries: &[(&str, &str)]) -> Result<CoarseConf, Vec<ConfError>> {
    check_around(entries, &Around::default())
}

#[track_caller]
fn bad(entries: &[(&str, &str)], told: &str) {
    let errors = check(entries).expect_err(told);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with(told), "{texts:?} for {told}");
}

#[test]
fn defaults_are_spark_s_where_they_are_safe() {
    let checked = conf(&[]);
    assert_eq!((checked.cores_max, checked.executor.cores, checked.gpus_max), (None, None, 0));
    assert_eq!(checked.executor.memory_mib, 1024 + 384);
    assert_eq!((checked.refuse_unmet, checked.refuse_max_cores), (120 * SECOND, 120 * SECOND));
    assert_eq!((checked.shutdown_timeout, checked.locality_wait), (10 * SECOND, 3 * SECOND));
    assert_eq!(checked.shuffle, None);
    assert_eq!(checked.framework.role, "*");
    assert!(checked.framework.credential.is_none() && !checked.dynamic_allocation);
    // Where they are not:
    assert_eq!(checked.framework.failover_timeout, 60 * SECOND);
    assert!(checked.framework.checkpoint && checked.care.suppress);
    assert_eq!(checked.care.excluded_for, Some(3600 * SECOND));
    // And back again:
    let compat = conf(&[
        ("spark.mesos.driver.failoverTimeout", "0"),
        ("shuffled.mesos.checkpoint", "false"),
        ("shuffled.mesos.unreachableGrace", "0"),
        ("shuffled.mesos.exclusion.expiry", "off"),
        ("shuffled.mesos.exclusion.countAll", "true"),
        ("shuffled.mesos.launchBackoff", "0"),
        ("shuffled.mesos.stagingTimeout", "off"),
        ("shuffled.mesos.reconcileInterval", "off"),
        ("shuffled.mesos.suppress", "false"),
        ("shuffled.mesos.reviveInterval", "off"),
        ("shuffled.mesos.mergeOffers", "false"),
        ("shuffled.mesos.javaModuleOptions", "false"),
    ]);
    assert_eq!(compat.framework.failover_timeout, Duration::ZERO);
    assert_eq!(compat.executor.java_options, "");
    assert_eq!((compat.care.excluded_for, compat.care.revive_interval), (None, None));
    assert_eq!(compat.care.launch_backoff, Duration::ZERO);
}

#[test]
fn cores_are_rounded_down_to_whole_executors() {
    for (max, each, rounded) in [("4", "3", 3), ("4", "2", 4), ("10", "4", 8)] {
        let checked = conf(&[("spark.cores.max", max), ("spark.executor.cores", each)]);
        assert_eq!(checked.cores_max, Some(rounded));
    }
    assert_eq!(conf(&[("spark.cores.max", "10")]).cores_max, Some(10));
    let entries = [("spark.cores.max", "2"), ("spark.executor.cores", "3")];
    bad(&entries, "spark.cores.max = 2: less than spark.executor.cores (3)");
}

#[test]
fn memory_is_with_its_overhead() {
    let memory = |entries: &[(&str, &str)]| conf(entries).executor.memory_mib;
    let heap = "spark.executor.memory";
    assert_eq!(memory(&[(heap, "512m")]), 896);
    assert_eq!(memory(&[(heap, "512")]), 896);
    assert_eq!(memory(&[(heap, "4g")]), 4505);
    assert_eq!(memory(&[("spark.mesos.executor.memoryOverhead", "512")]), 1536);
    assert_eq!(memory(&[(heap, "10g"), ("spark.executor.memoryOverheadFactor", "0.2")]), 12288);
    bad(&[(heap, "much")], "spark.executor.memory = much: not a size");
    bad(&[(heap, "0")], "spark.executor.memory = 0: an executor needs");
}

#[test]
fn what_is_wrong_is_told_with_its_key_and_value() {
    for (key, value) in [
        ("spark.mesos.constraints", "os;zone:us"),
        ("spark.mesos.constraints", "a:b;"),
        ("spark.mesos.task.labels", "a:b:c"),
        ("spark.mesos.network.labels", "k"),
        ("spark.mesos.executor.docker.volumes", "/a:/b:xx"),
        ("spark.mesos.executor.docker.portmaps", "80"),
        ("spark.mesos.executor.docker.parameters", "a"),
        ("spark.mesos.containerizer", "rkt"),
        ("spark.mesos.role", "a b"),
        ("spark.mesos.role", "a//b"),
        ("spark.executor.cores", "0"),
        ("spark.cores.max", "-1"),
        ("spark.mesos.gpus.max", "1.5"),
        ("spark.mesos.coarse.shutdownTimeout", "-1s"),
        ("spark.mesos.driver.failoverTimeout", "1.7976931348623157e308"),
        ("spark.mesos.driver.failoverTimeout", "-1"),
        ("spark.shuffle.service.enabled", "yes"),
        ("spark.shuffle.service.port", "65536"),
        ("spark.io.encryption.enabled", "true"),
        ("spark.authenticate", "true"),
        ("spark.mesos.executor.home", "/opt/$(reboot)"),
        ("shuffled.mesos.exclusion.failures", "0"),
    ] {
        bad(&[(key, value)], &format!("{key} = {value}: "));
    }
    let conf = SparkConf::default();
    let errors = CoarseConf::check(&conf, &Around::default()).unwrap_err();
    assert!(errors[0].to_string().starts_with("spark.mesos.executor.home: not set"), "{errors:?}");
    let two = check(&[("spark.cores.max", "x"), ("spark.executor.memory", "y")]).unwrap_err();
    assert_eq!(two.len(), 2, "all faults are told at once");
}

#[test]
fn refusals_fall_back_on_one_key() {
    let checked = conf(&[
        ("spark.mesos.rejectOfferDuration", "10"),
        ("spark.mesos.rejectOfferDurationForReachedMaxCores", "2min"),
    ]);
    assert_eq!((checked.refuse_unmet, checked.refuse_max_cores), (10 * SECOND, 120 * SECOND));
}

#[test]
fn the_shuffle_service_is_told_spark_s_timeouts() {
    let shuffle = |entries: &[(&str, &str)]| {
        let enabled = [("spark.shuffle.service.enabled", "true")];
        conf(&[&enabled[..], entries].concat()).shuffle.unwrap()
    };
    let after = |seconds| HeartbeatTimeout::After(seconds * SECOND);
    let default = shuffle(&[]);
    assert_eq!((default.port, default.timeout, default.interval), (7337, after(120), 10 * SECOND));
    assert_eq!(shuffle(&[("spark.network.timeout", "5min")]).timeout, after(300));
    let old = ("spark.storage.blockManagerSlaveTimeoutMs", "60000");
    assert_eq!(shuffle(&[old]).timeout, after(60));
    let new = ("spark.storage.blockManagerHeartbeatTimeoutMs", "90s");
    assert_eq!(shuffle(&[old, new]).timeout, after(90));
    let both = [("spark.shuffle.service.enabled", "true"), ("spark.network.timeout", "5s")];
    bad(&both, "spark.storage.blockManagerHeartbeatTimeoutMs: not more than");
}

#[test]
fn credentials_come_from_eight_places() {
    let around = Around {
        variables: [
            ("SPARK_MESOS_PRINCIPAL", "variable"),
            ("SPARK_MESOS_SECRET_FILE", "/variable/secret"),
        ]
        .into(),
        files: [("/key/principal", "file\n"), ("/key/secret", "s"), ("/variable/secret", "v\r\n")]
            .into(),
    };
    let found = |entries: &[(&str, &str)], around: &Around| {
        let credential = check_around(entries, around).unwrap().framework.credential;
        credential.map(|c| (c.principal, c.secret))
    };
    let pair = |principal: &str, secret: Option<&str>| {
        Some((principal.to_owned(), secret.map(str::to_owned)))
    };
    let none = Around { files: around.files.clone(), ..Around::default() };
    assert_eq!(found(&[("spark.mesos.principal", "key")], &none), pair("key", None));
    assert_eq!(
        found(&[("spark.mesos.principal", "key"), ("spark.mesos.secret", "k")], &around),
        pair("key", Some("k")),
        "a key wins over the environment"
    );
    assert_eq!(found(&[], &around), pair("variable", Some("v")));
    assert_eq!(
        found(
            &[
                ("spark.mesos.principal.file", "/key/principal"),
                ("spark.mesos.secret.file", "/key/secret")
            ],
            &none
        ),
        pair("file", Some("s"))
    );
    let variables = |variables: &[(&'static str, &'static str)]| Around {
        variables: variables.iter().copied().collect(),
        files: around.files.clone(),
    };
    let more = variables(&[
        ("SPARK_MESOS_PRINCIPAL_FILE", "/key/principal"),
        ("SPARK_MESOS_SECRET", "plain"),
    ]);
    assert_eq!(found(&[], &more), pair("file", Some("plain")));

    bad(&[("spark.mesos.secret", "hush")], "spark.mesos.principal: there is a secret");
    bad(&[("spark.mesos.principal", "a:b")], "spark.mesos.principal = a:b: ");
    bad(
        &[("spark.mesos.principal.file", "/no")],
        "spark.mesos.principal.file = /no: cannot be read",
    );
    let missing = variables(&[("SPARK_MESOS_PRINCIPAL_FILE", "/no")]);
    let errors = check_around(&[], &missing).unwrap_err();
    assert!(errors[0].to_string().starts_with("SPARK_MESOS_PRINCIPAL_FILE = /no: "), "{errors:?}");
    let shown =
        format!("{:?}", conf(&[("spark.mesos.principal", "p"), ("spark.mesos.secret", "hush")]));
    assert!(!shown.contains("hush"));
}

fn container(entries: &[(&str, &str)]) -> serde_json::Value {
    serde_json::to_value(conf(entries).executor.container).unwrap()
}

#[test]
fn a_container_is_of_the_kind_that_was_asked_for() {
    const IMAGE: (&str, &str) = ("spark.mesos.executor.docker.image", "spark:3");
    assert_eq!(container(&[]), json!({"type": "MESOS"}));
    assert_eq!(
        container(&[IMAGE]),
        json!({"type": "DOCKER", "docker": {"image": "spark:3", "force_pull_image": false}})
    );
    assert_eq!(
        container(&[
            IMAGE,
            ("spark.mesos.executor.docker.forcePullImage", "true"),
            ("spark.mesos.executor.docker.volumes", "/host_vol:/container_vol:ro"),
            ("spark.mesos.executor.docker.portmaps", "8080:80:tcp"),
            ("spark.mesos.executor.docker.parameters", "a=1,b=2"),
            ("spark.mesos.network.name", "net"),
            ("spark.mesos.network.labels", "key1:val1,key2:val2"),
        ]),
        json!({
            "type": "DOCKER",
            "docker": {
                "image": "spark:3", "force_pull_image": true, "network": "USER",
                "port_mappings": [{"host_port": 8080, "container_port": 80, "protocol": "tcp"}],
                "parameters": [
                    {"key": "a", "value": "1"}, {"key": "b", "value": "2"},
                    {"key": "net", "value": "net"}
                ]
            },
            "volumes": [
                {"container_path": "/container_vol", "host_path": "/host_vol", "mode": "RO"}
            ],
            "network_infos": [{"name": "net", "labels": {"labels": [
                {"key": "key1", "value": "val1"}, {"key": "key2", "value": "val2"}
            ]}}]
        })
    );
    assert_eq!(
        container(&[
            IMAGE,
            ("spark.mesos.containerizer", "mesos"),
            ("spark.mesos.network.name", "n")
        ]),
        json!({
            "type": "MESOS",
            "mesos": {"image": {"type": "DOCKER", "docker": {"name": "spark:3"}, "cached": true}},
            "network_infos": [{"name": "n", "labels": {"labels": []}}]
        })
    );
}

#[test]
fn secrets_go_where_they_were_sent() {
    let keys = |names: (&'static str, &'static str), places: (&'static str, &'static str)| {
        let key = |end: &str| format!("spark.mesos.executor.secret.{end}");
        let entries = [(key(names.0), names.1), (key(places.0), places.1)];
        let entries: Vec<(&str, &str)> = entries.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        let executor = conf(&entries).executor;
        let json = |value| serde_json::to_value(value).unwrap();
        (json(&executor.secrets), executor.container)
    };
    let (variables, _) =
        keys(("names", "/path/to/secret, /anothersecret"), ("envkeys", "SECRET_ENV_KEY,PASSWORD"));
    let reference = |name: &str| json!({"type": "REFERENCE", "reference": {"name": name}});
    assert_eq!(
        variables,
        json!([
            {"type": "SECRET", "name": "SECRET_ENV_KEY", "secret": reference("/path/to/secret")},
            {"type": "SECRET", "name": "PASSWORD", "secret": reference("/anothersecret")}
        ])
    );
    let (variables, _) = keys(("values", "user,password"), ("envkeys", "USER,PASSWORD"));
    let value = |data: &str| json!({"type": "VALUE", "value": {"data": data}});
    assert_eq!(
        variables[1],
        json!({"type": "SECRET", "name": "PASSWORD", "secret": value("cGFzc3dvcmQ=")})
    );
    let (variables, files) =
        keys(("values", "user,password"), ("filenames", "/whoami,/mypassword"));
    assert_eq!(variables, json!([]));
    let files = serde_json::to_value(&files).unwrap();
    assert_eq!(
        files["volumes"][0],
        json!({"container_path": "/whoami", "mode": "RO",
            "source": {"type": "SECRET", "secret": value("dXNlcg==")}})
    );
    let (_, files) = keys(("names", "a,b"), ("filenames", "/topsecret,/mypassword"));
    let files = serde_json::to_value(&files).unwrap();
    assert_eq!(files["volumes"][1]["source"]["secret"], reference("b"));

    let secret = |end: &'static str| format!("spark.mesos.executor.secret.{end}");
    let (names, values, places) = (secret("names"), secret("values"), secret("envkeys"));
    bad(&[(&names, "a"), (&values, "hush")], &format!("{values}: use either"));
    bad(&[(&names, "a,b"), (&places, "ONE")], &format!("{places}: there are 1 of these and 2"));
    let shown = format!("{:?}", conf(&[(&values, "hush"), (&places, "X")]));
    assert!(!shown.contains("hush") && !shown.contains("aHVzaA"), "{shown}");
}

proptest! {
    #[test]
    fn no_value_of_any_key_makes_it_panic(
        key in proptest::sample::select(vec![
            "spark.mesos.constraints", "spark.mesos.task.labels", "spark.executor.memory", "spark.cores.max",
            "spark.mesos.executor.docker.volumes", "spark.mesos.driver.failoverTimeout", "spark.mesos.role",
            "spark.executor.memoryOverheadFactor", "shuffled.mesos.launchBackoff", "spark.mesos.uris",
        ]),
        value in ".*",
    ) {
        let _ = check(&[(key, &value)]);
    }
}
