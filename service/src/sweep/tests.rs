use std::fs::{self, File, FileTimes};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
const U1: &str = "0a1b2c3d-0000-4000-8000-000000000001";
const U2: &str = "0a1b2c3d-0000-4000-8000-000000000002";
const U3: &str = "0a1b2c3d-0000-4000-8000-000000000003";

struct Disk {
    dir: TempDir,
    roots: LocalRoots,
}

impl Disk {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let roots = LocalRoots::open(&[dir.path().join("root")]).unwrap();
        Self { dir, roots }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join("root").join(below)
    }

    /// A directory with a file in a sub-directory, of which nothing has changed for `age`.
    fn make(&self, below: &str, age: Duration) -> PathBuf {
        let dir = self.path(below);
        fs::create_dir_all(dir.join("00")).unwrap();
        fs::write(dir.join("00/shuffle_0_0_0.data"), [7; 100]).unwrap();
        for path in ["00/shuffle_0_0_0.data", "00", ""] {
            set_age(&dir.join(path), age);
        }
        dir
    }

    fn find(&self, claimed: &[&str]) -> Found {
        let paths: Vec<String> =
            claimed.iter().map(|below| self.path(below).to_str().unwrap().to_owned()).collect();
        let claim = |dir: &LocalDir| {
            let path = Path::new(dir.path());
            if paths.iter().any(|claimed| path.starts_with(claimed)) {
                return Some(Claim::Whole);
            }
            paths.iter().any(|claimed| Path::new(claimed).starts_with(path)).then_some(Claim::Part)
        };
        find(&self.roots, claim, |_| false, WEEK, SystemTime::now()).unwrap()
    }

    fn verdicts(&self, claimed: &[&str]) -> Vec<(String, Verdict)> {
        let found = self.find(claimed);
        assert!(found.problems.is_empty() && !found.truncated, "{found:?}");
        let root = self.path("");
        let below = |path: &str| path.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        found.candidates.into_iter().map(|c| (below(c.dir.path()), c.verdict)).collect()
    }
}

fn set_age(path: &Path, age: Duration) {
    let then = SystemTime::now() - age;
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
}

fn removable(below: &str) -> (String, Verdict) {
    (below.to_owned(), Verdict::Removable)
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn c10_only_what_is_old_and_unowned_and_shaped_as_sparks_may_go() {
    let disk = Disk::new();
    disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    disk.make(&format!("blockmgr-{U2}"), DAY);
    disk.make(&format!("blockmgr-{U3}"), 8 * DAY);
    for other in ["home", "blockmgr-x", "spark-events", "blockmgr-", &format!("data-{U1}")] {
        disk.make(other, 100 * DAY);
        disk.make(&format!("{other}/blockmgr-{U1}"), 100 * DAY);
    }
    fs::write(disk.path(&format!("spark-{U1}")), "a file").unwrap();
    let known = format!("blockmgr-{U1}");
    let verdicts = disk.verdicts(&[&known]);
    assert_eq!(verdicts.len(), 2, "{verdicts:?}");
    assert!(matches!(verdicts[0].1, Verdict::TooYoung { age } if age >= DAY && age < 2 * DAY));
    assert_eq!(verdicts[1], removable(&format!("blockmgr-{U3}")));
}

#[test]
fn size_and_owner_are_told() {
    let disk = Disk::new();
    disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    let found = disk.find(&[]);
    let [candidate] = &found.candidates[..] else { panic!("{found:?}") };
    assert_eq!((candidate.files, candidate.bytes, candidate.estimated), (1, 100, false));
    assert_eq!(candidate.owner, rustix::process::geteuid().as_raw());
}

#[test]
fn what_lies_around_a_directory_that_somebody_has_is_looked_at_more_closely() {
    let disk = Disk::new();
    let (executor, other) =
        (format!("spark-{U1}/executor-{U1}"), format!("spark-{U1}/executor-{U2}"));
    disk.make(&format!("{executor}/blockmgr-{U1}"), 8 * DAY);
    disk.make(&format!("{other}/blockmgr-{U2}"), 8 * DAY);
    set_age(&disk.path(&other), 8 * DAY);
    disk.make(&format!("spark-{U1}/home"), 8 * DAY);
    let claimed = format!("{executor}/blockmgr-{U1}");
    assert_eq!(disk.verdicts(&[&claimed]), [removable(&other)]);
    set_age(&disk.path(&executor), 8 * DAY);
    set_age(&disk.path(&format!("spark-{U1}")), 8 * DAY);
    assert_eq!(disk.verdicts(&[]), [removable(&format!("spark-{U1}"))], "the outermost");
}

#[test]
fn c11_what_changed_deep_inside_is_young() {
    let disk = Disk::new();
    let dir = disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    for path in ["00", "00/shuffle_0_0_0.data"] {
        let before = fs::metadata(dir.join(path)).unwrap().modified().unwrap();
        set_age(&dir.join(path), DAY);
        assert!(matches!(disk.verdicts(&[])[0].1, Verdict::TooYoung { .. }), "{path}");
        File::open(dir.join(path))
            .unwrap()
            .set_times(FileTimes::new().set_modified(before))
            .unwrap();
    }
    assert_eq!(disk.verdicts(&[]), [removable(&format!("blockmgr-{U1}"))]);
}

#[test]
fn c11_what_a_process_uses_stays() {
    let disk = Disk::new();
    let dir = disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    let sleep =
        |command: &mut Command| Process(command.arg("600").stdin(Stdio::null()).spawn().unwrap());
    let cwd = sleep(Command::new("sleep").current_dir(dir.join("00")));
    let held = |pid| Verdict::HeldOpen { pids: vec![pid] };
    assert_eq!(disk.verdicts(&[])[0].1, held(cwd.0.id()));
    drop(cwd);
    let open = File::open(dir.join("00/shuffle_0_0_0.data")).unwrap();
    let open = Process(Command::new("sleep").arg("600").stdin(Stdio::from(open)).spawn().unwrap());
    assert_eq!(disk.verdicts(&[])[0].1, held(open.0.id()));
    drop(open);
    assert_eq!(disk.verdicts(&[])[0].1, Verdict::Removable);
}

#[test]
fn links_lead_nowhere() {
    let disk = Disk::new();
    let canary = disk.dir.path().join(format!("blockmgr-{U1}"));
    fs::create_dir_all(canary.join("00")).unwrap();
    symlink(&canary, disk.path(&format!("blockmgr-{U2}"))).unwrap();
    symlink(disk.dir.path(), disk.path(&format!("spark-{U2}"))).unwrap();
    assert_eq!(disk.verdicts(&[]), []);
}

#[test]
fn leftovers_of_removals_are_found_unless_they_are_under_way() {
    let disk = Disk::new();
    let tombstones = [Tombstone::new(1, 0), Tombstone::new(2, 0)];
    for tombstone in &tombstones {
        disk.make(tombstone.as_str(), 8 * DAY);
    }
    let ours = |dir: &LocalDir| dir.name() == tombstones[0].as_str();
    let found = find(&disk.roots, |_| None, ours, WEEK, SystemTime::now()).unwrap();
    let names: Vec<_> = found.candidates.iter().map(|candidate| candidate.dir.name()).collect();
    assert_eq!(names, [tombstones[1].as_str()]);
}

#[test]
fn without_roots_nothing_is_swept() {
    let roots = LocalRoots::unrestricted().unwrap();
    let found = find(&roots, |_| None, |_| false, WEEK, SystemTime::now());
    assert!(matches!(found, Err(SweepError::NoRoots)));
}

#[test]
fn processes_that_cannot_be_looked_at_may_use_it() {
    let now = SystemTime::now();
    let old = now - 8 * DAY;
    let unknown = || Users::Unknown("w".to_owned());
    let cases = [
        (old, Users::Nobody, Verdict::Removable),
        (old, Users::These(vec![7]), Verdict::HeldOpen { pids: vec![7] }),
        (old, unknown(), Verdict::CannotTell { why: "w".to_owned() }),
        (now - DAY, Users::Nobody, Verdict::TooYoung { age: DAY }),
        (now - DAY, Users::These(vec![7]), Verdict::HeldOpen { pids: vec![7] }),
        (now - DAY, unknown(), Verdict::TooYoung { age: DAY }),
        (now + DAY, Users::Nobody, Verdict::TooYoung { age: Duration::ZERO }),
    ];
    for (newest, users, verdict) in cases {
        assert_eq!(judge(newest, users.clone(), WEEK, now), verdict, "{users:?}");
    }
}

/// Without the right to see other users' processes, only one's own directories can be judged.
#[test]
fn processes_that_are_not_shown_may_use_it() {
    let empty = TempDir::new().unwrap();
    let processes = Processes::look(empty.path());
    let me = rustix::process::geteuid().as_raw();
    assert_eq!(processes.of("/d/blockmgr-1", "blockmgr-1", me), Users::Nobody);
    let other = processes.of("/d/blockmgr-1", "blockmgr-1", me + 1);
    assert!(matches!(other, Users::Unknown(why) if why.contains("hidepid")));
}
