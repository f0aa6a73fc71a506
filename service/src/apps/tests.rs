use super::records::REMEMBERED;
use super::*;
use crate::dirs::LocalRoots;

const TIMEOUT: Duration = Duration::from_secs(120);
const LATER: Duration = Duration::from_secs(121);

fn addr() -> SocketAddr {
    "127.0.0.1:4000".parse().unwrap()
}

fn executor(dirs: &[&str]) -> Executor {
    let roots = LocalRoots::unrestricted().unwrap();
    let local_dirs: Vec<_> = dirs.iter().map(|dir| roots.admit(dir).unwrap()).collect();
    Executor::new(local_dirs, 64, "sort".into())
}

fn expire(registry: &AppRegistry, now: Instant) -> Vec<Expired> {
    let mut all = Vec::new();
    registry.expire_due(now, |expired| all.push(expired));
    all
}

fn paths(expired: &Expired) -> Vec<&str> {
    expired.dirs.iter().map(LocalDir::path).collect()
}

#[test]
fn c03_all_directories_go_also_of_late_and_of_replaced_executors() {
    let registry = AppRegistry::default();
    let (app, start) = (AppId::from("a"), Instant::now());
    registry.register_driver(&app, TIMEOUT.into(), addr(), start);
    let register = |exec: &str, dirs: &[&str], at| {
        registry.register_executor(&app, exec.into(), executor(dirs), at)
    };
    register("1", &["/d0/blockmgr-1", "/d1/blockmgr-1"], start);
    register("1", &["/d0/blockmgr-2"], start);
    register("2", &["/d1/blockmgr-3"], start + TIMEOUT);
    let gone = expire(&registry, start + LATER);
    assert_eq!(gone.len(), 1);
    assert_eq!(
        paths(&gone[0]),
        ["/d0/blockmgr-1", "/d0/blockmgr-2", "/d1/blockmgr-1", "/d1/blockmgr-3"]
    );
    assert_eq!(registry.counts(), Counts::default());
    assert!(expire(&registry, start + LATER).is_empty(), "once");
}

#[test]
fn c15_a_heartbeat_before_the_check_keeps_the_application_and_one_after_it_is_told() {
    let registry = AppRegistry::default();
    let (app, start) = (AppId::from("a"), Instant::now());
    assert_eq!(registry.heartbeat(&app, start), Beat::Unknown);
    registry.register_driver(&app, TIMEOUT.into(), addr(), start);
    assert_eq!(registry.heartbeat(&app, start + LATER), Beat::Counted);
    assert!(expire(&registry, start + LATER).is_empty());
    assert_eq!(expire(&registry, start + LATER + LATER).len(), 1);
    assert_eq!(registry.heartbeat(&app, start + LATER + LATER), Beat::Expired);
    assert!(!registry.contains(&app), "a late heartbeat registers nothing");
}

#[test]
fn a_registration_that_changes_nothing_is_told_from_one_that_does() {
    let registry = AppRegistry::default();
    let (app, now) = (AppId::from("a"), Instant::now());
    let elsewhere: SocketAddr = "127.0.0.2:4000".parse().unwrap();
    let other_port: SocketAddr = "127.0.0.1:4001".parse().unwrap();
    let timeout = HeartbeatTimeout::from(TIMEOUT);
    let register = |timeout, from| registry.register_driver(&app, timeout, from, now).0;
    assert_eq!(register(timeout, addr()), DriverRegistered::New);
    assert_eq!(register(timeout, other_port), DriverRegistered::Repeated);
    assert_eq!(register(timeout, elsewhere), DriverRegistered::Replaced(timeout));
    assert_eq!(register(LATER.into(), elsewhere), DriverRegistered::Replaced(timeout));
}

#[test]
fn c13_a_directory_that_a_live_application_has_too_is_claimed() {
    let registry = AppRegistry::default();
    let start = Instant::now();
    let (a, b) = (AppId::from("a"), AppId::from("b"));
    registry.register_driver(&a, TIMEOUT.into(), addr(), start);
    registry.register_driver(&b, HeartbeatTimeout::Never, addr(), start);
    registry.register_executor(&a, "1".into(), executor(&["/d/blockmgr-x"]), start);
    registry.register_executor(&b, "1".into(), executor(&["/d/blockmgr-x"]), start);
    let gone = expire(&registry, start + LATER);
    assert_eq!(registry.claim(&gone[0].dirs[0]), Some(Claim::Whole));
    let gone = registry.expire(&b, None, start + LATER).unwrap();
    assert_eq!(registry.claim(&gone.dirs[0]), None);
}

#[test]
fn c13_so_is_one_that_lies_in_a_live_applications_directory_or_around_it() {
    let registry = AppRegistry::default();
    let roots = LocalRoots::unrestricted().unwrap();
    let app = AppId::from("a");
    let claimed = executor(&["/d/blockmgr-a/blockmgr-b"]);
    registry.register_executor(&app, "1".into(), claimed, Instant::now());
    let claim = |dir: &str| registry.claim(&roots.admit(dir).unwrap());
    assert_eq!(claim("/d/blockmgr-a/blockmgr-b"), Some(Claim::Whole));
    assert_eq!(claim("/d/blockmgr-a"), Some(Claim::Part), "around it");
    assert_eq!(claim("/d/blockmgr-a/blockmgr-b/x/blockmgr-c"), Some(Claim::Whole), "in it");
    assert_eq!(claim("/d/blockmgr-a/blockmgr-b0"), None);
    assert_eq!(claim("/d/blockmgr-a-b"), None);
    assert_eq!(claim("/blockmgr-d"), None);
}

#[test]
fn c14_who_watches_a_directory_sees_it_registered() {
    let registry = AppRegistry::default();
    let dir = executor(&["/d/blockmgr-a"]).local_dirs.remove(0);
    let mut claim = registry.watch_claim(&dir);
    let register = |dir| {
        registry.register_executor(&"a".into(), "1".into(), executor(&[dir]), Instant::now());
    };
    assert_eq!(claim(), None);
    register("/d/blockmgr-b");
    assert_eq!(claim(), None);
    register("/d/blockmgr-a");
    assert_eq!(claim(), Some(Claim::Whole));
    assert_eq!(claim(), Some(Claim::Whole));
}

#[test]
fn an_application_that_comes_back_is_another_one() {
    let registry = AppRegistry::default();
    let (app, start) = (AppId::from("a"), Instant::now());
    registry.register_driver(&app, TIMEOUT.into(), addr(), start);
    registry.register_executor(&app, "1".into(), executor(&["/d/blockmgr-x"]), start);
    let first = expire(&registry, start + LATER).remove(0);
    registry.register_executor(&app, "2".into(), executor(&["/d/blockmgr-x"]), start + LATER);
    assert_eq!(registry.claim(&first.dirs[0]), Some(Claim::Whole), "it is in use again");
    registry.update_dir(first.record, 0, |row| row.state = DirState::Kept);
    assert_eq!(registry.gone(&app).unwrap().removal().kept, 1);
    let exec = ExecId::from("1");
    assert!(registry.use_executor(&app, &exec, start + LATER).is_none());
}

#[test]
fn c05_what_is_remembered_of_the_gone_is_bounded() {
    let registry = AppRegistry::default();
    let start = Instant::now();
    for number in 0..REMEMBERED + 500 {
        let app = AppId::from(format!("app-{number}"));
        registry.register_driver(&app, TIMEOUT.into(), addr(), start);
    }
    assert_eq!(expire(&registry, start + LATER).len(), REMEMBERED + 500);
    assert_eq!(registry.records().len(), REMEMBERED);
    assert!(lock(&registry.claims).is_empty());
}

/// C15 with real threads: whoever heard that a heartbeat counted finds the application alive
/// until its timeout has passed once more.
#[test]
fn c15_no_counted_heartbeat_is_lost_to_a_check() {
    let registry = AppRegistry::default();
    let (app, start) = (AppId::from("a"), Instant::now());
    for round in 0..2000u32 {
        let due = start + LATER * (2 * round + 1);
        registry.register_driver(&app, TIMEOUT.into(), addr(), due - LATER);
        let (beat, expired) = std::thread::scope(|scope| {
            let beat = scope.spawn(|| registry.heartbeat(&app, due));
            let check = scope.spawn(|| expire(&registry, due).len());
            (beat.join().unwrap(), check.join().unwrap())
        });
        match beat {
            Beat::Counted => assert_eq!(expired, 0, "round {round}"),
            Beat::Expired => assert_eq!(expired, 1, "round {round}"),
            Beat::Unknown => panic!("round {round}: it was registered"),
        }
    }
}
