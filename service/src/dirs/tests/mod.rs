mod tombstone;

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use rustix::fs::{CWD, FileType, RenameFlags, renameat_with};
use tempfile::TempDir;

use super::*;

const STRATEGIES: [Strategy; 2] = [Strategy::Openat2, Strategy::Walk];
const CANARY: &str = "canary";
const DATA: &str = "data of the application";

/// A root with one local dir, and a canary of the same shape outside of it.
struct House {
    _tmp: TempDir,
    /// Without links in it.
    base: PathBuf,
    root: PathBuf,
    outside: PathBuf,
}

impl House {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// In memory if there is such a file system, for what makes thousands of directories.
    fn in_memory() -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn at(tmp: TempDir) -> Self {
        let fd = File::open(tmp.path()).unwrap();
        let base = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
        let house =
            Self { root: base.join("root"), outside: base.join("outside"), base, _tmp: tmp };
        house.fill_app();
        house.fill(&house.outside, CANARY);
        house
    }

    fn fill_app(&self) {
        self.fill(&self.root.join("app"), DATA);
    }

    /// `blockmgr-1/0c/f` below `at`.
    fn fill(&self, at: &Path, content: &str) {
        let sub = at.join("blockmgr-1/0c");
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join("f"), content).unwrap();
    }

    fn dir(&self) -> PathBuf {
        self.root.join("app/blockmgr-1")
    }

    fn roots(&self, strategy: Strategy) -> LocalRoots {
        LocalRoots::open(&[&self.root]).unwrap().with_strategy(strategy)
    }

    /// The roots, and the local dir admitted below them.
    fn admitted(&self, strategy: Strategy) -> (LocalRoots, LocalDir) {
        let roots = self.roots(strategy);
        let dir = roots.admit(self.dir().to_str().unwrap()).unwrap();
        (roots, dir)
    }

    fn assert_canary(&self) {
        let canary = fs::read_to_string(self.outside.join("blockmgr-1/0c/f")).unwrap();
        assert_eq!(canary, CANARY);
    }

    /// Puts a link to what is outside in the place of `victim`.
    fn swap(&self, victim: &Path, target: &Path) {
        fs::rename(victim, self.base.join("moved")).unwrap();
        symlink(target, victim).unwrap();
    }

    /// The four places where a link can lie: the path, and what a hostile link points to.
    fn links(&self) -> [(PathBuf, PathBuf); 4] {
        let (dir, out) = (self.dir(), self.outside.join("blockmgr-1"));
        [
            (self.root.join("app"), self.outside.clone()),
            (dir.clone(), out.clone()),
            (dir.join("0c"), out.join("0c")),
            (dir.join("0c/f"), out.join("0c/f")),
        ]
    }
}

fn read(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

fn go_on(_: &Removed) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn roots_that_cannot_be_used() {
    let house = House::new();
    let file = house.dir().join("0c/f");
    let missing = house.base.join("missing");
    for (root, text) in [
        (Path::new("relative"), "it is not absolute"),
        (Path::new("/"), "it is the root of the file system"),
        (&file, "Not a directory"),
        (&missing, "No such file or directory"),
    ] {
        let error = LocalRoots::open(&[&house.root, root]).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        assert!(error.contains(root.to_str().unwrap()), "{error}");
    }
    assert!(matches!(LocalRoots::open(&[] as &[&str]), Err(RootError::None)));
}

#[test]
fn admission_is_lexical() {
    let house = House::new();
    let roots = house.roots(Strategy::Openat2);
    let root = house.root.to_str().unwrap();
    for (dir, path) in [
        (format!("{root}/app/blockmgr-1"), "app/blockmgr-1"),
        (format!("//{root}///app//blockmgr-1//"), "app/blockmgr-1"),
        (format!("{root}/not there"), "not there"),
        (format!("{root}/..."), "..."),
    ] {
        let admitted = roots.admit(&dir).unwrap();
        assert_eq!(admitted.path(), format!("{root}/{path}"));
        assert_eq!(admitted.root(), root);
        assert_eq!(roots.admit(admitted.path()).unwrap(), admitted);
    }
    let long_name = format!("{root}/{}", "x".repeat(256));
    let long_path = format!("{root}{}", "/x".repeat(2048));
    for (dir, text) in [
        ("", "localDirs entries must be non-null and non-empty"),
        ("app", "could not be canonicalized: app (it is not absolute)"),
        (&format!("{root}/a\0b"), "(it contains a NUL)"),
        (&format!("{root}/../outside"), "(it contains . or ..)"),
        (&format!("{root}/app/."), "(it contains . or ..)"),
        (&format!("{root}/app/.."), "(it contains . or ..)"),
        (&long_name, "(it is too long)"),
        (&long_path, "(it is too long)"),
        (root, "is not under any of the service's local directories"),
        (&format!("{root}/"), "is not under any of the service's local directories"),
        (&format!("{root}2/app"), "is not under any of the service's local directories"),
        ("/etc", "localDirs entry is not under any of the service's local directories: /etc"),
        ("/", "is not under any of the service's local directories"),
    ] {
        let error = roots.admit(dir).unwrap_err().to_string();
        assert!(error.contains(text), "{dir}: {error}");
    }
}

#[test]
fn a_root_may_be_spelt_as_configured_or_as_resolved() {
    let house = House::new();
    let alias = house.base.join("alias");
    symlink(&house.root, &alias).unwrap();
    let roots = LocalRoots::open(&[&alias]).unwrap();
    let by_alias = roots.admit(alias.join("app/blockmgr-1").to_str().unwrap()).unwrap();
    let by_path = roots.admit(house.dir().to_str().unwrap()).unwrap();
    assert_eq!(by_alias, by_path);
    assert_eq!(HashSet::from([by_alias.clone(), by_path]).len(), 1);
    assert_eq!(by_alias.path(), house.dir().to_str().unwrap());
    assert_eq!(Path::new(by_alias.named()), alias.join("app/blockmgr-1"));
    assert_eq!(read(roots.open_file(&by_alias, "0c", "f").unwrap()), DATA);

    // The operator swaps the link after the start: the root stays what it was.
    fs::remove_file(&alias).unwrap();
    symlink(&house.outside, &alias).unwrap();
    assert_eq!(read(roots.open_file(&by_alias, "0c", "f").unwrap()), DATA);
}

#[test]
fn the_innermost_root_decides() {
    let house = House::new();
    let link = house.root.join("link");
    symlink(&house.outside, &link).unwrap();
    let roots = LocalRoots::open(&[&house.root, &link]).unwrap();
    let dir = roots.admit(link.join("blockmgr-1").to_str().unwrap()).unwrap();
    assert_eq!(dir.path(), house.outside.join("blockmgr-1").to_str().unwrap());
    assert_eq!(read(roots.open_file(&dir, "0c", "f").unwrap()), CANARY, "it is a root now");
    let paths: Vec<_> = roots.paths().collect();
    assert_eq!(paths, [&house.root, &house.outside]);
}

#[test]
fn without_roots_only_block_managers_directories() {
    let house = House::new();
    for strategy in STRATEGIES {
        let roots = LocalRoots::unrestricted().unwrap().with_strategy(strategy);
        assert!(!roots.is_restricted());
        assert_eq!(roots.paths().count(), 0);
        for dir in ["/", "/etc", "/blockmgr-1/etc", "/tmp/xblockmgr-1"] {
            let error = roots.admit(dir).unwrap_err();
            assert_eq!(error, AdmitError::NotABlockManagers(dir.into()));
        }
        let dir = roots.admit(house.dir().to_str().unwrap()).unwrap();
        assert_eq!(dir.root(), "/");
        assert_eq!(dir.path(), house.dir().to_str().unwrap());
        assert_eq!(read(roots.open_file(&dir, "0c", "f").unwrap()), DATA);
        assert_eq!(roots.admit("/blockmgr-1").unwrap().parent_and_name(), (None, "blockmgr-1"));
    }
}

#[test]
fn names_are_single_components() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        for name in ["", ".", "..", "/etc/passwd", "../0c/f", "0c/f", "a\0b"] {
            let errors = [
                roots.open_file(&dir, name, "f").unwrap_err(),
                roots.open_file(&dir, "0c", name).unwrap_err(),
                roots.remove_file(&dir, name, "f").unwrap_err(),
                roots.remove_file(&dir, "0c", name).unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(error, OpenError::NotAName { .. }), "{error}");
            }
        }
        assert!(roots.open_file(&dir, "0c", &"x".repeat(256)).is_err());
    }
}

/// C51: whichever component becomes a link to what lies outside, nothing outside is touched.
#[test]
fn c51_links_are_not_followed() {
    for strategy in STRATEGIES {
        for level in 0..4 {
            let house = House::new();
            let (roots, dir) = house.admitted(strategy);
            let (victim, target) = &house.links()[level];
            house.swap(victim, target);

            let error = roots.open_file(&dir, "0c", "f").unwrap_err();
            assert!(matches!(error, OpenError::SymbolicLink { .. }), "{level}: {error}");

            let removed = roots.remove_file(&dir, "0c", "f");
            if level == 3 {
                assert!(removed.unwrap(), "the link itself");
                assert!(fs::symlink_metadata(victim).is_err());
                symlink(target, victim).unwrap();
            } else {
                let error = removed.unwrap_err();
                assert!(matches!(error, OpenError::SymbolicLink { .. }), "{level}: {error}");
            }

            let removed = roots.remove_tree(&dir, go_on);
            if level < 2 {
                let error = removed.unwrap_err();
                let refused = matches!(error, RemoveError::Refused(OpenError::SymbolicLink { .. }));
                assert!(refused, "{level}: {error}");
            } else {
                removed.unwrap();
                assert!(!house.dir().exists());
            }
            house.assert_canary();
        }
    }
}

#[test]
fn what_is_no_regular_file() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        let sub = house.dir().join("0c");
        rustix::fs::mknodat(CWD, sub.join("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = UnixListener::bind(sub.join("socket")).unwrap();
        fs::create_dir(sub.join("directory")).unwrap();
        for name in ["fifo", "socket", "directory"] {
            let error = roots.open_file(&dir, "0c", name).unwrap_err();
            assert!(matches!(error, OpenError::NotARegularFile { .. }), "{name}: {error}");
        }
        fs::write(house.dir().join("0d"), "").unwrap();
        let error = roots.open_file(&dir, "0d", "f").unwrap_err();
        assert!(matches!(error, OpenError::NotADirectory { .. }), "{error}");
        let error = roots.remove_file(&dir, "0c", "directory").unwrap_err();
        assert!(matches!(error, OpenError::NotARegularFile { .. }), "{error}");

        let removed = roots.remove_tree(&dir, go_on).unwrap();
        assert_eq!((removed.files, removed.dirs), (4, 3));
    }
}

/// Gives up root's right to pass over permissions, for this thread, if it has it.
fn heed_permissions() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    let passing = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    if sets.effective.intersects(passing) {
        sets.effective.remove(passing);
        set_capabilities(None, sets).unwrap();
    }
}

/// C07: a refusal says whose permissions are in the way.
#[test]
fn c07_permission_errors_name_the_obstacle() {
    // In a thread, since its rights do not come back.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            heed_permissions();
            for strategy in STRATEGIES {
                let house = House::new();
                let (roots, dir) = house.admitted(strategy);
                let chmod = |path: &Path, mode| {
                    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
                };
                let sub = house.dir().join("0c");
                let owner = fs::metadata(&sub).unwrap().uid();
                for (obstacle, mode) in [(sub.join("f"), 0o000), (sub.clone(), 0o600)] {
                    chmod(&obstacle, mode);
                    let error = roots.open_file(&dir, "0c", "f").unwrap_err().to_string();
                    let expected = format!(
                        "permission denied: {}: {} has owner {owner}, group {} and mode {mode:04o}",
                        sub.join("f").display(),
                        obstacle.display(),
                        fs::metadata(&obstacle).unwrap().gid(),
                    );
                    assert!(error.starts_with(&expected), "{error}\n{expected}");
                }
                chmod(&sub, 0o500);
                let error = roots.remove_file(&dir, "0c", "f").unwrap_err();
                let OpenError::Permission { obstacle, mode: 0o500, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!(Path::new(obstacle), sub);

                // The rest goes, and what stays is reported once.
                fs::write(house.dir().join("g"), "12345").unwrap();
                let error = roots.remove_tree(&dir, go_on).unwrap_err();
                let RemoveError::Incomplete { removed, failures: 1, texts } = &error else {
                    panic!("{error}");
                };
                assert_eq!(*removed, Removed { files: 1, dirs: 0 });
                let file = sub.join("f");
                assert!(texts[0].starts_with(file.to_str().unwrap()), "{error}");
                chmod(&sub, 0o700);
                roots.remove_tree(&dir, go_on).unwrap();
            }
        });
    });
}

#[test]
fn a_tree_is_removed_and_counted() {
    for strategy in STRATEGIES {
        let house = House::new();
        let (roots, dir) = house.admitted(strategy);
        let top = house.dir();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/x"), vec![7; 1000]).unwrap();
        fs::hard_link(top.join("a/b/x"), house.base.join("second name")).unwrap();
        symlink(&house.outside, top.join("a/link")).unwrap();
        symlink("/nowhere", top.join("dangling")).unwrap();
        let mut seen = Vec::new();
        let removed = roots.remove_tree(&dir, |so_far| {
            seen.push(*so_far);
            ControlFlow::Continue(())
        });
        let expected = Removed { files: 4, dirs: 4 };
        assert_eq!(removed.unwrap(), expected);
        assert_eq!(seen.last(), Some(&expected));
        assert!(!top.exists());
        assert!(house.root.join("app").exists(), "parents stay, as Spark leaves them");
        assert_eq!(fs::read(house.base.join("second name")).unwrap().len(), 1000);
        house.assert_canary();

        assert_eq!(roots.remove_tree(&dir, go_on).unwrap(), Removed::default(), "again");
        fs::remove_dir(house.root.join("app")).unwrap();
        assert_eq!(roots.remove_tree(&dir, go_on).unwrap(), Removed::default(), "no parent");
    }
}

#[test]
fn a_removal_can_be_stopped() {
    let house = House::new();
    let (roots, dir) = house.admitted(Strategy::Openat2);
    let stop = |so_far: &Removed| match so_far.files {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let error = roots.remove_tree(&dir, stop).unwrap_err();
    let RemoveError::Stopped { removed } = error else { panic!("{error}") };
    assert_eq!(removed.files, 1);
    assert!(house.dir().join("0c").exists());
    assert_eq!(roots.remove_tree(&dir, go_on).unwrap().dirs, 2);
}

#[test]
fn a_directory_directly_below_the_root() {
    for strategy in STRATEGIES {
        let house = House::new();
        let roots = house.roots(strategy);
        let dir = roots.admit(house.root.join("app").to_str().unwrap()).unwrap();
        assert_eq!(roots.remove_tree(&dir, go_on).unwrap().dirs, 3);
        assert!(house.root.exists());
    }
}

#[test]
fn a_file_is_no_local_dir() {
    for strategy in STRATEGIES {
        let house = House::new();
        let roots = house.roots(strategy);
        let file = house.dir().join("0c/f");
        let dir = roots.admit(file.to_str().unwrap()).unwrap();
        let error = roots.remove_tree(&dir, go_on).unwrap_err();
        assert!(matches!(error, RemoveError::Refused(OpenError::NotADirectory { .. })), "{error}");
        assert!(file.exists());
    }
}

/// A chain of `depth` directories below `top`, with a file in the last.
fn dig(top: &Path, depth: usize) {
    let mut at = File::open(top).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, "d", 0o700.into()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, "d", flags, Mode::empty()).unwrap().into();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::openat(&at, "f", flags, 0o600.into()).unwrap();
}

#[test]
fn a_deep_tree_needs_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = Rlimit { current: Some(256), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    // A stack on which recursion of that depth would not fit.
    std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(|| {
            for (strategy, depth) in [(Strategy::Openat2, 5000), (Strategy::Walk, 500)] {
                let house = House::in_memory();
                let (roots, dir) = house.admitted(strategy);
                dig(&house.dir(), depth);
                // Deep and wide.
                for n in 0..40 {
                    let at = house.dir().join("x/".repeat(15)).join(n.to_string());
                    fs::create_dir_all(&at).unwrap();
                    dig(&at, 40);
                }
                let removed = roots.remove_tree(&dir, go_on).unwrap();
                assert_eq!(removed.files, 1 + 1 + 40);
                assert_eq!(removed.dirs, 2 + u64::try_from(depth).unwrap() + 15 + 40 * 41);
                assert!(!house.dir().exists());
            }
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn many_entries() {
    let house = House::in_memory();
    let (roots, dir) = house.admitted(Strategy::Openat2);
    for n in 0..3000 {
        fs::write(house.dir().join(format!("0c/shuffle_0_{n}_0.data")), "x").unwrap();
    }
    assert_eq!(roots.remove_tree(&dir, go_on).unwrap().files, 3001);
}

/// Mounts something below a local dir, in a mount namespace of its own, and runs the next test.
#[test]
fn mounts_are_left_alone() {
    for mount in ["mount --bind $1 $2", "mount -t tmpfs none $2"] {
        let house = House::new();
        let at = house.dir().join("mounted");
        fs::create_dir(&at).unwrap();
        let script = format!(
            "{mount} || exit 77; mkdir -p $2/0c; echo -n canary > $2/0c/f; \
             $3 --exact dirs::tests::below_a_mount --ignored --nocapture && cat $2/0c/f"
        );
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, "sh"])
            .args([&house.outside.join("blockmgr-1"), &at, &std::env::current_exe().unwrap()])
            .env("TEST_ROOT", &house.root)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8(output.stdout).unwrap();
                assert!(text.contains("1 passed") && text.ends_with(CANARY), "{text}");
            }
            Ok(output) if output.status.code() == Some(77) || output.stdout.is_empty() => {
                println!("skipped, mounting is not allowed here: {output:?}");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[ignore = "needs what mounts_are_left_alone prepares"]
fn below_a_mount() {
    let root = std::env::var("TEST_ROOT").unwrap();
    for strategy in STRATEGIES {
        let roots = LocalRoots::open(&[&root]).unwrap().with_strategy(strategy);
        let dir = roots.admit(&format!("{root}/app/blockmgr-1")).unwrap();
        let error = roots.remove_tree(&dir, go_on).unwrap_err();
        let RemoveError::Incomplete { failures: 1, texts, .. } = &error else { panic!("{error}") };
        assert_eq!(texts[0], format!("{dir}/mounted: it is on another file system"));
    }
}

/// Calls `work` while another thread exchanges two paths as fast as it can.
fn while_swapping(a: &Path, b: &Path, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let started = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            started.wait();
            while !done.load(Relaxed) {
                // Fails while one of the two is removed.
                let _ = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
            }
        });
        started.wait();
        let _stop = Stop(&done);
        work();
    });
}

/// Ends the other thread, also if this one panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// C51: a directory swapped for a link and back, while files in it are opened.
#[test]
fn c51_opening_while_links_are_swapped() {
    for strategy in STRATEGIES {
        for level in 0..4 {
            let house = House::new();
            let (roots, dir) = house.admitted(strategy);
            let (victim, target) = &house.links()[level];
            let link = house.base.join("link");
            symlink(target, &link).unwrap();
            let mut opened = 0;
            while_swapping(victim, &link, || {
                for _ in 0..2000 {
                    match roots.open_file(&dir, "0c", "f") {
                        Ok(file) => {
                            assert_eq!(read(file), DATA);
                            opened += 1;
                        }
                        Err(
                            OpenError::SymbolicLink { .. }
                            | OpenError::NotADirectory { .. }
                            | OpenError::Moved { .. },
                        ) => {}
                        Err(e) => panic!("{strategy:?} {level}: {e}"),
                    }
                }
            });
            println!("{strategy:?}, level {level}: {opened} of 2000 opened");
            house.assert_canary();
        }
    }
}

/// C51: the same, while everything is removed.
#[test]
fn c51_removing_while_links_are_swapped() {
    for strategy in STRATEGIES {
        for level in 0..4 {
            let house = House::in_memory();
            let (roots, dir) = house.admitted(strategy);
            let (victim, target) = &house.links()[level];
            for round in 0..25 {
                let link = house.base.join(format!("link{round}"));
                symlink(target, &link).unwrap();
                while_swapping(victim, &link, || {
                    let _ = roots.remove_file(&dir, "0c", "f");
                    let _ = roots.remove_tree(&dir, go_on);
                });
                house.assert_canary();
                // A clean start: whatever is in the place now goes.
                let _ = fs::remove_file(victim);
                let app = roots.admit(house.root.join("app").to_str().unwrap()).unwrap();
                let _ = fs::remove_file(app.path());
                roots.remove_tree(&app, go_on).unwrap();
                house.fill_app();
            }
            house.assert_canary();
        }
    }
}

/// Files appear as fast as they go: an end is reached, and nothing outside is touched.
#[test]
fn removing_while_it_is_being_filled() {
    let house = House::new();
    let (roots, dir) = house.admitted(Strategy::Openat2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0u32.. {
                if done.load(Relaxed) {
                    break;
                }
                let _ = fs::create_dir_all(house.dir().join("0c"));
                let _ = fs::write(house.dir().join(format!("0c/{n}")), "x");
            }
        });
        let _stop = Stop(&done);
        for _ in 0..100 {
            match roots.remove_tree(&dir, go_on) {
                Ok(_) => {}
                Err(RemoveError::Incomplete { texts, .. }) => {
                    assert!(texts[0].ends_with("it is being filled"), "{texts:?}");
                }
                Err(e) => panic!("{e}"),
            }
        }
    });
    roots.remove_tree(&dir, go_on).unwrap();
    assert!(!house.dir().exists());
}

#[test]
fn probing_finds_a_strategy() {
    let root = File::open("/").unwrap();
    // Either is right: which one depends on the kernel and on the sandbox of the test.
    println!("{:?}", Strategy::probe(root.as_fd()));
}

proptest! {
    /// What is admitted lies below the root and is its own normal form.
    #[test]
    fn admission_never_panics(path in "[/a.\0é]{0,12}", below_root in any::<bool>()) {
        let house = tempfile::tempdir().unwrap();
        let roots = LocalRoots::open(&[house.path()]).unwrap();
        let root = roots.paths().next().unwrap().to_str().unwrap().to_owned();
        let text = if below_root { format!("{root}{path}") } else { path };
        if let Ok(dir) = roots.admit(&text) {
            prop_assert!(below_root);
            prop_assert!(below(dir.path(), &root).is_some());
            prop_assert!(dir.relative().split('/').all(|c| !matches!(c, "" | "." | "..")));
            prop_assert_eq!(roots.admit(dir.path()), Ok(dir));
        }
    }
}
