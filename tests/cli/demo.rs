use std::process::Command;

use tempfile::TempDir;

use crate::run::{Running, shuffled};

const STEPS: usize = 7;

/// The demo with a directory of its own for temporary files.
fn demo() -> (TempDir, Command) {
    let tmp = TempDir::with_prefix("shuffled-cli-").expect("a temporary directory");
    let mut command = shuffled(&["demo"]);
    command.env("TMPDIR", tmp.path());
    (tmp, command)
}

#[track_caller]
fn assert_empty(tmp: &TempDir) {
    let left: Vec<_> = tmp.path().read_dir().expect("it is still there").collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn shows_every_step_and_leaves_nothing_behind() {
    let (tmp, command) = demo();
    let ended = Running::start(command).end().expect(0);
    for step in 1..=STEPS {
        ended.line(&format!("[{step}/{STEPS}] "));
    }
    ended.line("demo-0001    alive   2 ");
    assert!(ended.line("[4/7]").contains("fetched 48 blocks"), "{ended}");
    let end = ended.out.lines().rfind(|line| line.starts_with("demo-0001")).unwrap();
    assert!(end.contains("heartbeat-timeout") && end.contains("4 of 4 gone"), "{ended}");
    assert_eq!(ended.err, "");
    assert_empty(&tmp);
}

#[test]
fn cleans_up_when_it_is_interrupted() {
    for (step, signal) in [(1, "INT"), (3, "TERM"), (6, "INT")] {
        let (tmp, command) = demo();
        let mut demo = Running::start(command);
        demo.line_with(&format!("[{step}/{STEPS}] "));
        demo.signal(signal);
        demo.end().expect(1).complains(&[&format!("interrupted by SIG{signal}")]);
        assert_empty(&tmp);
    }
}

#[test]
fn says_where_it_cannot_work() {
    let (tmp, mut command) = demo();
    command.env("TMPDIR", tmp.path().join("missing"));
    Running::start(command).end().expect(1).complains(&["TMPDIR", "missing"]);
}

#[test]
fn cleans_up_when_its_reader_goes_away() {
    let (tmp, command) = demo();
    assert_eq!(Running::start_unread(command).end().expect(0).err, "");
    assert_empty(&tmp);
}
