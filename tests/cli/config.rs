use std::fs;

use tempfile::TempDir;

use crate::run::{Running, run, shuffled};

struct Properties {
    _dir: TempDir,
    path: String,
}

fn properties(text: &str) -> Properties {
    let dir = TempDir::with_prefix("shuffled-cli-").expect("a temporary directory");
    let path = dir.path().join("shuffled.properties");
    fs::write(&path, text).expect("it can be written");
    Properties { path: path.to_str().expect("temporary paths are UTF-8").to_owned(), _dir: dir }
}

#[test]
fn prints_every_value_and_where_it_came_from() {
    let file = properties("# Spark's own\nspark.network.timeout  300s\nspark.ui.port 4040\n");
    let mut command = shuffled(&[
        "check-config",
        "--properties-file",
        &file.path,
        "--conf",
        "shuffled.drain.timeout=1min",
        "--listen",
        "127.0.0.1:7400",
    ]);
    command.env("SHUFFLED_LOG_FORMAT", "json");
    let ended = Running::start(command).end().expect(0);
    let row = |key: &str| -> Vec<&str> { ended.line(key).split_whitespace().collect() };
    let from_file = format!("{}:2", file.path);
    assert_eq!(row("KEY"), ["KEY", "VALUE", "FROM"]);
    assert_eq!(row("shuffled.listen"), ["shuffled.listen", "127.0.0.1:7400", "--listen"]);
    assert_eq!(row("shuffled.drain.timeout"), ["shuffled.drain.timeout", "1min", "--conf"]);
    assert_eq!(
        row("shuffled.log.format"),
        ["shuffled.log.format", "json", "environment", "SHUFFLED_LOG_FORMAT"]
    );
    assert_eq!(row("spark.network.timeout"), ["spark.network.timeout", "5min", &from_file]);
    assert_eq!(
        row("spark.shuffle.io.connectionTimeout")[1..],
        ["5min", &from_file, "of", "spark.network.timeout"]
    );
    assert_eq!(row("spark.shuffle.service.port")[1..], ["7337", "default"]);
    assert!(!ended.out.contains("spark.ui.port"), "not a key of shuffles\n{ended}");
    assert_eq!(ended.err, "");
}

#[test]
fn takes_the_same_options_as_serve() {
    let options = |command: &str| -> Vec<String> {
        let help = run(&[command, "-h"]).expect(0).out;
        let options = help.lines().map(str::trim).filter(|line| line.starts_with('-'));
        options.map(str::to_owned).collect()
    };
    assert_eq!(options("serve"), options("check-config"));
}

#[test]
fn lists_everything_that_is_wrong_at_once() {
    let file = properties(
        "spark.shuffle.cleaner.interval soon\n\
         spark.shuffle.servce.port 7338\n\
         spark.executor.heartbeatInterval 0\n",
    );
    let mut command = shuffled(&[
        "check-config",
        "--properties-file",
        &file.path,
        "--conf",
        "shuffled.log.filter=a=b=c",
        "--admin",
        "localhost",
    ]);
    command.env("SHUFFLED_DRAIN_TIMEOUT", "-1s");
    let at = |line: u32| format!("shuffled: {}:{line}: ", file.path);
    let ended = Running::start(command).end().expect(2).complains(&[
        &format!("{}spark.shuffle.cleaner.interval = \"soon\"", at(1)),
        &format!("{}spark.executor.heartbeatInterval = \"0\"", at(3)),
        "shuffled: --conf: shuffled.log.filter = \"a=b=c\"",
        "shuffled: --admin: shuffled.admin.listen = \"localhost\"",
        "shuffled: environment SHUFFLED_DRAIN_TIMEOUT: shuffled.drain.timeout = \"-1s\"",
    ]);
    assert!(ended.line("spark.shuffle.cleaner.interval").contains("soon (wrong)"), "{ended}");
    // The warning is no error, and stands with the table.
    let warning = ended.line("warning: ");
    assert!(warning.ends_with(
        ":2: unknown key spark.shuffle.servce.port; did you mean spark.shuffle.service.port?"
    ));
}

#[test]
fn says_why_a_key_of_sparks_is_ignored() {
    let file = properties("spark.shuffle.service.db.enabled true\n");
    let ended = run(&["check-config", "--properties-file", &file.path]).expect(0);
    assert!(ended.line("ignored: ").contains(":1: spark.shuffle.service.db.enabled: "), "{ended}");
}

#[test]
fn the_environment_may_name_the_properties_file() {
    let file = properties("spark.shuffle.service.port 7400\n");
    let mut command = shuffled(&["check-config"]);
    command.env("SHUFFLED_PROPERTIES_FILE", &file.path);
    let ended = Running::start(command).end().expect(0);
    assert!(ended.line("spark.shuffle.service.port").contains("7400"), "{ended}");

    let missing = run(&["check-config", "--properties-file", "/nonexistent/file"]).expect(2);
    missing.complains(&["/nonexistent/file: cannot read the properties file"]);
}
