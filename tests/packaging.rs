//! What is packaged beside the binary does what it says.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

use shuffled_service::config::{KEYS, Preset, Role};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_shuffled");
const INSTALLED: &str = "/usr/local/bin/shuffled";

fn packaged(name: &str) -> (PathBuf, String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name);
    let text = fs::read_to_string(&path).expect("it is packaged");
    (path, text)
}

fn example() -> (PathBuf, String) {
    packaged("shuffled.properties")
}

/// The entries of the example: key, value, and whether it is in force. One that is not begins with
/// `#` and its key, without a blank.
fn entries(text: &str) -> Vec<(&str, &str, bool)> {
    let lines = text.lines().map(|line| (line.trim_start_matches('#'), !line.starts_with('#')));
    let entries = lines.filter(|(line, _)| line.starts_with(|c: char| !c.is_whitespace()));
    entries
        .map(|(line, on)| {
            let (key, value) = line.split_once(' ').expect("a key and its value");
            (key, value.trim(), on)
        })
        .collect()
}

fn check_config(file: &std::path::Path) -> Output {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("SHUFFLED_")) {
            command.env_remove(name);
        }
    }
    command.arg("check-config").arg("--properties-file").arg(file).output().expect("it starts")
}

/// Runs `systemd-analyze`; `None` where there is none.
fn systemd_analyze(args: &[&str]) -> Option<Output> {
    match Command::new("systemd-analyze").args(args).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("cannot run systemd-analyze: {error}"),
    }
}

#[test]
fn the_example_configuration_is_accepted() {
    let output = check_config(&example().0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("warning: ") && !text.contains("ignored: "), "{text}");
}

#[test]
fn what_stands_behind_a_hash_in_the_example_is_accepted_too() {
    let dir = TempDir::with_prefix("shuffled-packaging-").unwrap();
    let file = dir.path().join("all.properties");
    let text = example().1;
    let all: String =
        entries(&text).iter().map(|(key, value, _)| format!("{key} {value}\n")).collect();
    fs::write(&file, all).unwrap();
    let output = check_config(&file);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("warning: "));
}

#[test]
fn the_example_has_every_key_of_the_service_with_its_default() {
    let text = example().1;
    let entries = entries(&text);
    let keys: BTreeSet<&str> = entries.iter().map(|entry| entry.0).collect();
    assert_eq!(keys.len(), entries.len(), "each once");
    for def in KEYS.iter().filter(|def| matches!(def.role, Role::Service | Role::Both)) {
        let entry = entries.iter().find(|entry| entry.0 == def.name);
        let (_, value, on) = *entry.unwrap_or_else(|| panic!("{} is missing", def.name));
        if let Preset::Value(default) = def.preset {
            assert_eq!((value, on), (default, false), "{}", def.name);
        }
    }
}

#[test]
fn unit_and_example_name_the_same_directories() {
    let (text, unit) = (example().1, packaged("systemd/shuffled.service").1);
    let entries = entries(&text);
    let (_, roots, _) = entries.iter().find(|(key, ..)| *key == "shuffled.local.dirs").unwrap();
    let writable = unit.lines().find_map(|line| line.strip_prefix("ReadWritePaths=")).unwrap();
    let set = |list: &str, by: char| list.split(by).map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(set(roots, ','), set(writable, ' '));
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = packaged("systemd/shuffled.service").1;
    assert!(unit.contains(INSTALLED));
    let dir = TempDir::with_prefix("shuffled-packaging-").unwrap();
    let file = dir.path().join("shuffled.service");
    let file = file.to_str().unwrap();
    // It looks at the program as well, which is not installed here. And what stands behind `#` as
    // an alternative has to be right, too.
    let alternatives: String = unit
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(char::is_uppercase) => setting,
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect();
    for text in [unit, alternatives] {
        fs::write(file, text.replace(INSTALLED, BINARY)).unwrap();
        let Some(verified) = systemd_analyze(&["verify", "--man=no", file]) else {
            eprintln!("not verified: there is no systemd-analyze here (Debian package systemd)");
            return;
        };
        let complaints = String::from_utf8_lossy(&verified.stderr);
        // An unknown key is a complaint and no failure.
        let complaints: Vec<_> = complaints.lines().filter(|line| line.contains(file)).collect();
        assert!(verified.status.success() && complaints.is_empty(), "{complaints:#?}");
    }
}

#[test]
fn the_unit_stays_hardened() {
    let unit = packaged("systemd/shuffled.service").0;
    // 100 is a service that may do anything; 20 is what is left of it here, and a bit.
    let unit = unit.to_str().unwrap();
    let args = ["security", "--no-pager", "--offline=yes", "--threshold=20", unit];
    let Some(judged) = systemd_analyze(&args) else {
        eprintln!("not judged: there is no systemd-analyze here (Debian package systemd)");
        return;
    };
    let verdict = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{verdict}{}", String::from_utf8_lossy(&judged.stderr));
}
