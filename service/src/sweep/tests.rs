use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use proptest::prelude::*;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
const U1: &str = "0a1b2c3d-0000-4000-8000-000000000001";
const U2: &str = "0a1b2c3d-0000-4000-8000-000000000002";
const U3: &str = "0a1b2c3d-0000-4000-8000-000000000003";

struct Disk {
    dir: TempDir,
    /// `/proc` as it would be if there were only this process and those that a test adds: what else runs on
    /// the machine, and may not be looked at, is no business of the tests.
    proc: TempDir,
    roots: LocalRoots,
}

impl Disk {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        let roots = LocalRoots::open(&[dir.path().join("root")]).unwrap();
        let proc = TempDir::new().unwrap();
        fs::create_dir(proc.path().join("1")).unwrap();
        symlink(std::process::id().to_string(), proc.path().join("self")).unwrap();
        let disk = Self { dir, proc, roots };
        disk.show(std::process::id());
        disk
    }

    fn show(&self, pid: u32) {
        let pid = pid.to_string();
        symlink(Path::new("/proc").join(&pid), self.proc.path().join(&pid)).unwrap();
    }

    /// A process that does nothing, with what `command` gives it.
    fn sleep(&self, command: &mut Command) -> Process {
        let sleep = Process(command.arg("600").spawn().unwrap());
        self.show(sleep.0.id());
        sleep
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
        self.find_with(claim, Limits::default())
    }

    fn find_with(&self, claim: impl Fn(&LocalDir) -> Option<Claim>, limits: Limits) -> Found {
        let (proc, now) = (self.proc.path(), SystemTime::now());
        find_with(&self.roots, claim, |_| false, WEEK, now, || Processes::look(proc), limits)
            .unwrap()
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
    let cwd = disk.sleep(Command::new("sleep").current_dir(dir.join("00")).stdin(Stdio::null()));
    let held = |pid| Verdict::HeldOpen { pids: vec![pid] };
    assert_eq!(disk.verdicts(&[])[0].1, held(cwd.0.id()));
    drop(cwd);
    let open = File::open(dir.join("00/shuffle_0_0_0.data")).unwrap();
    let open = disk.sleep(Command::new("sleep").stdin(Stdio::from(open)));
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
    let found = find(&disk.roots, |_| None, ours, WEEK, SystemTime::now(), None).unwrap();
    let names: Vec<_> = found.candidates.iter().map(|candidate| candidate.dir.name()).collect();
    assert_eq!(names, [tombstones[1].as_str()]);
}

#[test]
fn without_roots_nothing_is_swept() {
    let roots = LocalRoots::unrestricted().unwrap();
    let found = find(&roots, |_| None, |_| false, WEEK, SystemTime::now(), None);
    assert!(matches!(found, Err(SweepError::NoRoots)));
}

#[test]
fn processes_that_cannot_be_looked_at_may_use_it() {
    let now = SystemTime::now();
    let old = now - 8 * DAY;
    let unknown = || Users::Unknown("w".to_owned());
    let cases = [
        (old, Users::Nobody, Verdict::Removable),
        // Young at any limit, also at none.
        (now + DAY, unknown(), Verdict::TooYoung { age: Duration::ZERO }),
        (old, Users::These(vec![7]), Verdict::HeldOpen { pids: vec![7] }),
        (old, unknown(), Verdict::CannotTell { why: "w".to_owned() }),
        (now - DAY, Users::Nobody, Verdict::TooYoung { age: DAY }),
        (now - DAY, Users::These(vec![7]), Verdict::HeldOpen { pids: vec![7] }),
        (now - DAY, unknown(), Verdict::TooYoung { age: DAY }),
        (now + DAY, Users::Nobody, Verdict::TooYoung { age: Duration::ZERO }),
    ];
    for (newest, users, verdict) in cases {
        assert_eq!(judge(newest, true, users.clone(), WEEK, now), verdict, "{users:?}");
    }
}

#[test]
fn what_changed_in_the_future_is_young_at_any_limit() {
    let now = SystemTime::now();
    let judged = |newest| judge(newest, true, Users::Nobody, Duration::ZERO, now);
    assert_eq!(judged(now), Verdict::Removable);
    assert_eq!(judged(now + DAY), Verdict::TooYoung { age: Duration::ZERO });
}

/// Without the right to see other users' processes, not even one's own directories can be judged: root's may
/// use them.
#[test]
fn processes_that_are_not_shown_may_use_it() {
    let proc = TempDir::new().unwrap();
    symlink("7", proc.path().join("self")).unwrap();
    let processes = Processes::look(proc.path());
    let me = rustix::process::geteuid().as_raw();
    for owner in [me, me + 1] {
        let users = processes.of("/d/blockmgr-1", "blockmgr-1", owner);
        assert!(matches!(users, Users::Unknown(why) if why.contains("hidepid")));
    }
}

/// No `/proc`, no process: that is not the same as nobody.
#[test]
fn without_proc_anybody_may_use_it() {
    let empty = TempDir::new().unwrap();
    let me = rustix::process::geteuid().as_raw();
    for proc in [empty.path(), &empty.path().join("proc")] {
        let users = Processes::look(proc).of("/d/blockmgr-1", "blockmgr-1", me);
        assert!(matches!(users, Users::Unknown(why) if why.contains("cannot be read")));
    }
}

/// The links of a process that has more capabilities can be listed and not read.
#[test]
fn c11_a_process_that_shows_only_how_much_it_has_open_may_use_it() {
    let mut rights = capabilities(None).unwrap();
    if !rights.effective.contains(CapabilitySet::SYS_PTRACE) {
        println!("skipped, there is no right to go without");
        return;
    }
    let disk = Disk::new();
    let dir = disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    let open = File::open(dir.join("00/shuffle_0_0_0.data")).unwrap();
    let _open = disk.sleep(Command::new("sleep").stdin(Stdio::from(open)));
    rights.effective.remove(CapabilitySet::SYS_PTRACE);
    // Of this thread, which ends with the test.
    set_capabilities(None, rights).unwrap();
    let verdicts = disk.verdicts(&[]);
    assert!(
        matches!(&verdicts[0].1, Verdict::CannotTell { why } if why.contains("CAP_SYS_PTRACE")),
        "{verdicts:?}"
    );
}

#[test]
fn c11_what_the_service_itself_has_open_stays() {
    let disk = Disk::new();
    let dir = disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    let open = File::open(dir.join("00/shuffle_0_0_0.data")).unwrap();
    assert_eq!(disk.verdicts(&[])[0].1, Verdict::HeldOpen { pids: vec![std::process::id()] });
    drop(open);
    assert_eq!(disk.verdicts(&[])[0].1, Verdict::Removable);
}

/// Processes as `/proc` shows them, made up.
struct FakeProc(TempDir);

impl FakeProc {
    fn new() -> Self {
        let proc = TempDir::new().unwrap();
        symlink("1", proc.path().join("self")).unwrap();
        Self(proc)
    }

    /// A process with its links, each by its name below `fd` or besides, in a mount namespace.
    fn add(&self, pid: u32, links: &[(&str, &[u8])], namespace: u32, mounts: &str) -> PathBuf {
        let dir = self.0.path().join(pid.to_string());
        for sub in ["fd", "ns"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        for (name, target) in links {
            symlink(OsStr::from_bytes(target), dir.join(name)).unwrap();
        }
        symlink(format!("mnt:[{namespace}]"), dir.join("ns/mnt")).unwrap();
        fs::write(dir.join("maps"), "").unwrap();
        fs::write(dir.join("mountinfo"), mounts).unwrap();
        dir
    }

    fn users(&self, name: &str) -> Users {
        Processes::look(self.0.path()).of(&format!("/data/{name}"), name, 1000)
    }
}

#[test]
fn c11_containers_are_seen_by_the_directory_s_name_or_by_what_is_mounted() {
    let proc = FakeProc::new();
    let [one, two, three, four] =
        [U1, U2, U3, "0a1b2c3d-0000-4000-8000-000000000004"].map(|uuid| format!("blockmgr-{uuid}"));
    proc.add(1, &[("cwd", b"/")], 1, "22 1 254:0 / / rw - ext4 /dev/vda rw\n");
    let fd = format!("/mnt/disk/{one}/0c/f\n");
    proc.add(7, &[("fd/0", fd.as_bytes()), ("fd/1", b"/\xff\xfe/x")], 1, "");
    let mapped = proc.add(8, &[("root", b"/")], 1, "");
    let maps = format!(
        "7f-80 r--p 00000000 fe:00 12 /lib/x-y.so\n80-81 r--s 00 fe:00 9  /d/{two}/0c/f (deleted)\n\
         81-82 rw-p 00000000 00:00 0\n"
    );
    fs::write(mapped.join("maps"), maps).unwrap();
    // What is mounted, and not where: in the service's own namespace that would be all there is.
    let mounts = format!(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n66 22 254:0 /data/{three}/0c /job rw - ext4 /dev/vda rw\n\
         67 22 0:5 / /data/{four} rw - tmpfs none rw\nshort line\n"
    );
    proc.add(9, &[("fd/0", b"/job/f")], 2, &mounts);
    proc.add(10, &[("fd/0", b"/job/g")], 2, &mounts);
    let by = |pid| Users::These(vec![pid]);
    assert_eq!([proc.users(&one), proc.users(&two)], [by(7), by(8)]);
    assert!(
        matches!(proc.users(&three), Users::These(pids) if [vec![9], vec![10]].contains(&pids))
    );
    assert_eq!(proc.users(&four), Users::Nobody);
}

#[test]
fn who_cannot_be_looked_at_counts_for_his_own_and_root_for_all() {
    let error = |errno: i32| Err(io::Error::from_raw_os_error(errno));
    let (eperm, esrch, enoent, eacces, emfile) = (1, 3, 2, 13, 24);
    let users = |uid, errno, owner| {
        let mut processes = Processes::default();
        processes.note(7, uid, error(errno));
        processes.of("/d/blockmgr-1", "blockmgr-1", owner)
    };
    for errno in [eperm, eacces, emfile] {
        assert!(matches!(users(1000, errno, 1000), Users::Unknown(_)), "{errno}");
        assert!(matches!(users(0, errno, 1000), Users::Unknown(_)), "{errno}");
        assert_eq!(users(1001, errno, 1000), Users::Nobody, "{errno}");
    }
    for ended in [esrch, enoent] {
        assert_eq!(users(1000, ended, 1000), Users::Nobody, "{ended}");
    }
}

#[test]
fn what_is_too_large_to_look_at_stays() {
    let disk = Disk::new();
    disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    let verdict = |entries| {
        let measure = MeasureLimits { entries, ..MeasureLimits::default() };
        let limits = Limits { measure, ..Limits::default() };
        disk.find_with(|_| None, limits).candidates.remove(0).verdict
    };
    // `00` and the file in it.
    assert!(matches!(verdict(1), Verdict::CannotTell { why } if why.contains("not all of it")));
    assert_eq!(verdict(2), Verdict::Removable);
}

/// Each root is looked at as far as the limit goes, whatever is in the others.
#[test]
fn a_full_root_does_not_hide_another() {
    for full in [0, 1] {
        let disk = Disk::new();
        let dirs = ["a", "b"].map(|root| disk.path(root));
        dirs.iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        for n in 0..5 {
            fs::create_dir(dirs[full].join(format!("zz{n}"))).unwrap();
        }
        let left = disk.make(&format!("{}/blockmgr-{U1}", ["a", "b"][1 - full]), 8 * DAY);
        let roots = LocalRoots::open(&dirs).unwrap();
        let limits = Limits { dirs: 3, ..Limits::default() };
        let (proc, now) = (Path::new("/proc"), SystemTime::now());
        let found =
            find_with(&roots, |_| None, |_| false, WEEK, now, || Processes::look(proc), limits)
                .unwrap();
        let paths: Vec<_> = found.candidates.iter().map(|c| PathBuf::from(c.dir.path())).collect();
        assert_eq!((paths, found.truncated), (vec![left], true));
    }
}

#[test]
fn roots_in_roots_stay_and_are_told_once() {
    let disk = Disk::new();
    let inner = format!("spark-{U1}/executor-{U1}");
    disk.make(&format!("{inner}/blockmgr-{U1}"), 8 * DAY);
    let roots = LocalRoots::open(&[disk.path(""), disk.path(&inner)]).unwrap();
    let names = |claim: &dyn Fn(&LocalDir) -> Option<Claim>| {
        let found = find(&roots, claim, |_| false, WEEK, SystemTime::now(), None).unwrap();
        found.candidates.iter().map(|c| c.dir.name().to_owned()).collect::<Vec<_>>()
    };
    let left = format!("blockmgr-{U1}");
    assert_eq!(names(&|_| None), [left.as_str()]);
    let part = |dir: &LocalDir| (dir.name() != left).then_some(Claim::Part);
    assert_eq!(names(&part), [left.as_str()]);
}

/// Between the list and the look at what is in it.
#[test]
fn what_vanishes_or_becomes_a_link_meanwhile_is_none() {
    let disk = Disk::new();
    let canary = disk.dir.path().join("canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("f"), "canary").unwrap();
    let [gone, link, file] = [U1, U2, U3].map(|uuid| disk.make(&format!("spark-{uuid}"), 8 * DAY));
    let claim = |dir: &LocalDir| {
        let path = Path::new(dir.path());
        if path.exists() {
            fs::rename(path, disk.dir.path().join(dir.name())).unwrap();
        }
        if path == link {
            symlink(&canary, path).unwrap();
        } else if path == file {
            fs::write(path, "a file").unwrap();
        }
        None
    };
    let found = disk.find_with(claim, Limits::default());
    assert_eq!(found.candidates.len(), 0, "{found:?}");
    assert_eq!(found.problems.len(), 2, "{found:?}");
    assert!(!found.problems.iter().any(|text| text.contains(gone.to_str().unwrap())), "{found:?}");
    assert_eq!(fs::read(canary.join("f")).unwrap(), b"canary");
}

/// The same where the list of a directory that is somebody's in part is next.
#[test]
fn what_becomes_a_link_before_it_is_listed_leads_nowhere() {
    let disk = Disk::new();
    let canary = disk.dir.path().join("canary");
    fs::create_dir_all(canary.join(format!("blockmgr-{U1}"))).unwrap();
    let spark = disk.make(&format!("spark-{U1}"), 8 * DAY);
    let claim = |dir: &LocalDir| {
        fs::rename(dir.path(), disk.dir.path().join("away")).unwrap();
        symlink(&canary, dir.path()).unwrap();
        Some(Claim::Part)
    };
    let found = disk.find_with(claim, Limits::default());
    assert_eq!((found.candidates.len(), found.problems.len()), (0, 1), "{found:?}");
    assert!(found.problems[0].starts_with(spark.to_str().unwrap()), "{found:?}");
}

#[test]
fn names_that_are_not_utf_8_are_nobody_s_and_count_inside() {
    let disk = Disk::new();
    let odd = |text: &[u8]| OsStr::from_bytes(text).to_owned();
    let name = [b"blockmgr-", U2.as_bytes(), b"\xff"].concat();
    fs::create_dir(disk.path("").join(odd(&name))).unwrap();
    let dir = disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    fs::create_dir(dir.join(odd(b"\xff"))).unwrap();
    fs::write(dir.join(odd(b"\xff")).join(odd(b"\xfe")), [7; 11]).unwrap();
    let [old, young] = [8 * DAY, DAY];
    for (inside, age) in [(old, old), (young, young)] {
        set_age(&dir.join(odd(b"\xff")).join(odd(b"\xfe")), inside);
        set_age(&dir.join(odd(b"\xff")), old);
        set_age(&dir, old);
        let found = disk.find(&[]);
        let [candidate] = &found.candidates[..] else { panic!("{found:?}") };
        assert_eq!((candidate.files, candidate.bytes), (2, 111));
        assert_eq!(matches!(candidate.verdict, Verdict::TooYoung { .. }), age == young);
    }
}

/// Mounts something fresh in an old directory, in a mount namespace of its own, and runs itself in there.
#[test]
fn what_is_mounted_in_it_is_not_looked_at() {
    if let Some(root) = std::env::var_os("SWEPT_ROOT") {
        let roots = LocalRoots::open(&[root]).unwrap();
        let found = find(&roots, |_| None, |_| false, WEEK, SystemTime::now(), None).unwrap();
        let [candidate] = &found.candidates[..] else { panic!("{found:?}") };
        assert_eq!((candidate.files, candidate.bytes), (0, 0));
        return;
    }
    let disk = Disk::new();
    let dir = disk.make(&format!("blockmgr-{U1}"), 8 * DAY);
    let script = "mount -t tmpfs none $1/00 || exit 77; echo canary > $1/00/f; \
                  $2 --exact sweep::tests::what_is_mounted_in_it_is_not_looked_at && cat $1/00/f";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .args([&dir, &std::env::current_exe().unwrap()])
        .env("SWEPT_ROOT", disk.path(""))
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("1 passed") && text.ends_with("canary\n"), "{text}");
        }
        Ok(output) if output.status.code() == Some(77) || output.stdout.is_empty() => {
            println!("skipped, mounting is not allowed here: {output:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Names at one level of a made-up tree: some of Spark's, some not.
fn level() -> impl Strategy<Value = usize> {
    0..NAMES.len()
}

const NAMES: [&str; 6] = [
    "spark-0a1b2c3d-0000-4000-8000-00000000000a",
    "executor-0A1B2C3D-0000-4000-8000-00000000000B",
    "blockmgr-0a1b2c3d-0000-4000-8000-00000000000c",
    "userFiles-0a1b2c3d-0000-4000-8000-00000000000d",
    "blockmgr-foo",
    "home",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The outermost of Spark's directories that nobody has, all the way down from a root.
    #[test]
    fn any_tree_and_any_claims(
        paths in prop::collection::vec(prop::collection::vec(level(), 1..6), 0..8),
        claimed in prop::collection::vec(prop::collection::vec(level(), 1..6), 0..3),
    ) {
        let disk = Disk::new();
        let text = |path: &Vec<usize>| {
            path.iter().map(|name| NAMES[*name]).collect::<Vec<_>>().join("/")
        };
        let mut all = BTreeSet::new();
        for path in &paths {
            fs::create_dir_all(disk.path(&text(path))).unwrap();
            all.extend((1..=path.len()).map(|depth| path[..depth].to_vec()));
        }
        let is_whole = |path: &[usize]| claimed.iter().any(|claimed| path.starts_with(claimed));
        let is_part = |path: &[usize]| claimed.iter().any(|claimed| claimed.starts_with(path));
        let expected: BTreeSet<String> = all
            .iter()
            .filter(|path| {
                let above = (1..path.len()).all(|depth| is_part(&path[..depth]) && !is_whole(&path[..depth]));
                let sparks = path.iter().all(|name| *name < 3);
                sparks && path.len() <= 4 && above && !is_whole(path) && !is_part(path)
            })
            .map(text)
            .collect();
        let texts: Vec<String> = claimed.iter().map(text).collect();
        let claims: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found: Vec<String> = disk.verdicts(&claims).into_iter().map(|(path, _)| path).collect();
        prop_assert_eq!(found.len(), expected.len());
        prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    /// 36 characters of the right kind in the right places, and nothing else.
    #[test]
    fn only_uuids_are_uuids(text in "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", at in 0..36_usize, other in "[-g/é 0]") {
        prop_assert!(is_uuid(&text));
        let longer = format!("{text}0");
        prop_assert!(!is_uuid(&text[1..]) && !is_uuid(&longer));
        let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
        let same_kind = match text.as_bytes()[at] {
            b'-' => other == "-",
            _ => other == "0",
        };
        prop_assert_eq!(is_uuid(&changed), same_kind);
        for prefix in ["blockmgr-", "spark-", "executor-"] {
            let name = format!("{prefix}{changed}");
            prop_assert_eq!(is_sparks(&name), same_kind);
            let near = format!("x{prefix}{text}");
            prop_assert!(!is_sparks(&near));
        }
        let near = format!("userFiles-{text}");
        prop_assert!(!is_sparks(&near) && !is_sparks(&text));
    }
}

#[test]
fn only_the_initial_pid_namespace_shows_all_processes() {
    let shown = |namespace: &str| processes::only_its_own(Ok(namespace.into()));
    assert_eq!(shown("pid:[4026531836]"), None);
    assert!(shown("pid:[4026532200]").is_some_and(|why| why.contains("shuffled.sweep.procfs")));
    assert!(processes::only_its_own(Err(io::ErrorKind::PermissionDenied.into())).is_some());
}
