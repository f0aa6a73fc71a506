//! What the design says of the house, held against the files: which crate may know which, what lies
//! where, and what no file may name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate, and the crates of the house that it may depend on.
const ARROWS: [(&str, &[&str]); 6] = [
    ("shuffle-protocol", &[]),
    ("shuffled-service", &["shuffle-protocol"]),
    ("shuffled-client", &["shuffle-protocol"]),
    ("shuffled-scheduler", &["shuffle-protocol", "shuffled-client"]),
    ("shuffled", &["shuffle-protocol", "shuffled-service", "shuffled-client"]),
    ("test-support", &["shuffle-protocol"]),
];

/// Crates that do I/O, tell the time or throw dice: nothing for a protocol that is bytes and values.
const IMPURE: [&str; 17] = [
    "async-std",
    "axum",
    "fastrand",
    "getrandom",
    "hyper",
    "hyper-util",
    "libc",
    "mio",
    "nix",
    "rand",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tracing",
];

/// What lies at the top, and nothing else does.
const TOP: [&str; 23] = [
    ".ci",
    ".config",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "client",
    "clippy.toml",
    "deny.toml",
    "docs",
    "fuzz",
    "packaging",
    "rustfmt.toml",
    "scheduler",
    "service",
    "shuffle-protocol",
    "src",
    "tests",
];

/// Tests that are not run by themselves, and why that hides nothing.
const IGNORED: [(&str, &str); 2] = [
    // Another test of the file runs it, in a mount namespace of its own.
    ("service/src/dirs/tests/mod.rs", "needs what mounts_are_left_alone prepares"),
    // No test but a tool: the test beside it reads what it writes.
    ("shuffle-protocol/tests/corpus.rs", "writes the corpus"),
];

/// Hosts that a file may name. Where packages come from is the affair of whoever builds.
const HOSTS: [&str; 8] = [
    "docs.rs",
    "doc.rust-lang.org",
    "github.com",
    "issues.apache.org",
    "keepachangelog.com",
    "no-color.org",
    "spark.apache.org",
    "www.apache.org",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a program in the root and gives what it prints.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The packages of the workspace.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = output(&cargo, &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("there are packages").clone()
}

/// What a package depends on, by name; `kind` is none for normal dependencies.
fn dependencies<'a>(package: &'a Value, kinds: &[Option<&str>]) -> BTreeSet<&'a str> {
    let all = package["dependencies"].as_array().expect("a list");
    let chosen = all.iter().filter(|dependency| kinds.contains(&dependency["kind"].as_str()));
    chosen.map(|dependency| dependency["name"].as_str().expect("a name")).collect()
}

/// Files under version control.
fn files() -> Vec<PathBuf> {
    let list = output("git", &["ls-files", "-z"]);
    let paths = list.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from);
    // A file may be gone and its removal not recorded yet.
    paths.filter(|path| root().join(path).is_file()).collect()
}

/// The lines of all files that are text, with where they stand.
fn lines() -> impl Iterator<Item = (String, String)> {
    let texts = files().into_iter().filter_map(|path| {
        let text = fs::read_to_string(root().join(&path)).ok()?;
        Some((path, text))
    });
    texts.flat_map(|(path, text)| {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines
            .into_iter()
            .enumerate()
            .map(move |(i, line)| (format!("{}:{}", path.display(), i + 1), line))
    })
}

#[test]
fn arrows_point_one_way_only() {
    let arrows: BTreeMap<_, _> = ARROWS.into();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = arrows.get(name) else { panic!("{name}: say here whom it may know") };
        for other in dependencies(&package, &[None, Some("build")]) {
            assert!(
                !arrows.contains_key(other) || allowed.contains(&other),
                "{name} must not depend on {other}"
            );
        }
        let tests = dependencies(&package, &[Some("dev")]);
        for (one, other) in
            [("shuffled-service", "shuffled-client"), ("shuffled-client", "shuffled-service")]
        {
            assert!(name != one || !tests.contains(other), "{one} and {other} meet in tests/ only");
        }
    }
}

#[test]
fn the_protocol_does_no_io() {
    let packages = packages();
    let protocol = packages.iter().find(|package| package["name"] == "shuffle-protocol").unwrap();
    let normal = dependencies(protocol, &[None, Some("build")]);
    assert!(IMPURE.iter().all(|name| !normal.contains(name)), "{normal:?}");

    let source = |place: &str| place.starts_with("shuffle-protocol/src/");
    for (place, line) in lines().filter(|(place, _)| source(place)) {
        for name in ["std::fs", "std::net", "std::thread", "std::env", "Instant", "SystemTime"] {
            assert!(!line.contains(name), "{place}: {name} is for whoever uses the protocol");
        }
    }
}

#[test]
fn every_crate_keeps_the_rules_of_the_workspace() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        assert_eq!(package["license"], "Apache-2.0", "{name}");
        assert_eq!(package["publish"], Value::Array(vec![]), "{name} is published by nobody");
        for key in ["edition", "rust_version", "description"] {
            assert!(package[key].is_string(), "{name}: {key}");
        }
        let manifest = fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(manifest.contains("\n[lints]\nworkspace = true\n"), "{name}: the lints");
        // One version of everything, named in one place.
        let inherited = |key: &str| manifest.contains(&format!("\n{key}.workspace = true\n"));
        for key in ["version", "edition", "rust-version", "license"] {
            assert!(inherited(key), "{name}: {key} is the workspace's");
        }
        for dependency in dependencies(&package, &[None, Some("dev"), Some("build")]) {
            let own = format!("\n{dependency} = {{ workspace = true");
            assert!(
                inherited(dependency) || manifest.contains(&own),
                "{name}: the version of {dependency} belongs into the workspace"
            );
        }
    }
}

#[test]
fn everything_is_where_the_design_says() {
    let tops: BTreeSet<String> = files()
        .iter()
        .filter_map(|path| Some(path.components().next()?.as_os_str().to_str()?.to_owned()))
        .collect();
    for top in &tops {
        assert!(TOP.contains(&top.as_str()), "{top} has no place in the design");
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains(
            "members = [\"shuffle-protocol\", \"service\", \"client\", \"scheduler\", \"tests/support\"]"
        ),
        "a new member has a place in the design, and in this test"
    );
}

#[test]
fn every_subcommand_is_a_file() {
    let help = output(env!("CARGO_BIN_EXE_shuffled"), &["--help"]);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .collect();
    assert!(names.len() >= 7, "{help}");
    for name in names {
        let file = root().join("src").join(name.replace('-', "_") + ".rs");
        assert!(file.is_file(), "{name} is not in {}", file.display());
    }
}

#[test]
fn no_test_is_ignored_without_an_issue() {
    let attribute = concat!("#[", "ignore");
    for (place, line) in lines().filter(|(place, _)| place.contains(".rs:")) {
        let Some((_, rest)) = line.split_once(attribute) else { continue };
        let reason = rest.strip_prefix(" = \"").and_then(|rest| rest.strip_suffix("\"]"));
        let reason = reason.unwrap_or_else(|| panic!("{place}: say why, on one line"));
        let listed = IGNORED.iter().any(|(file, why)| place.starts_with(file) && reason == *why);
        let issue = reason.strip_prefix("issue ").and_then(|rest| rest.split(':').next());
        let issue = issue.is_some_and(|number| number.parse::<u32>().is_ok());
        assert!(listed || issue, "{place}: write `issue NUMBER: REASON`");
    }
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    let paths = ["work", "root", "home", "Users"].map(|dir| format!("/{dir}/"));
    let settings =
        [concat!("index", "-url"), concat!("replace", "-with"), concat!("PIP_", "INDEX")];
    for (place, line) in lines() {
        // Cargo writes it, with the public registry's name for the public registry.
        if place.starts_with("Cargo.lock:") || place.starts_with("fuzz/Cargo.lock:") {
            continue;
        }
        for path in &paths {
            // Only at the beginning of a path: `a/work/b` is somewhere in a tree.
            let begins = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}$~*".contains(c))
            };
            let named = line.match_indices(path.as_str()).any(|(at, _)| begins(at));
            assert!(!named, "{place}: a path of one machine: {line}");
        }
        for setting in settings {
            assert!(!line.contains(setting), "{place}: where packages come from: {line}");
        }
        for (at, _) in line.match_indices("://") {
            let rest = &line[at + 3..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".-".contains(c)));
            let host = &rest[..end.unwrap_or(rest.len())];
            let name =
                host.rsplit('.').next().is_some_and(|top| top.starts_with(char::is_alphabetic));
            assert!(
                !host.contains('.') || !name || HOSTS.contains(&host),
                "{place}: {host} is not among the hosts that may be named"
            );
        }
    }
}
