//! What survives the service's own end: C07, C08, C10, C17, C19–C21, F6.

use std::collections::BTreeSet;
use std::io::Write as _;

use super::*;

fn durable() -> ServiceCommand {
    command().durable()
}

/// Spark's own service of Mesos forgets everybody: running jobs fail, and their files are never removed.
#[tokio::test]
async fn c19_c20_what_was_acknowledged_is_served_after_a_kill_and_a_restart() {
    let mut service = durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executors = [
        registered(&service, &mut client, "app", "1").await,
        registered(&service, &mut client, "app", "2").await,
        registered(&service, &mut client, "orphan", "1").await,
    ];
    client.rpc(executors[0].driver(seconds(120))).await.unwrap();
    service.kill_and_restart();
    let mut client = RawClient::connect(service.shuffle).await;
    for executor in &executors {
        assert_served(&mut client, executor).await;
    }
    let driver = app(&service, "app").app.unwrap().driver.unwrap();
    assert_eq!(driver.heartbeat_timeout_ms, Some(120_000));
    assert!(app(&service, "orphan").app.unwrap().driver.is_none());
    assert!(service.admin_get("/readyz").starts_with("ok\n"));
}

/// Spark's driver beats on a connection that it never renews; another one may, and does not register.
#[tokio::test]
async fn f6_a_driver_that_only_beats_is_known_after_a_restart_and_its_directories_go_in_the_end() {
    let mut service = durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(3))).await.unwrap();
    service.kill_and_restart();
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(executor.heartbeat()).await.unwrap();
    let driver = app(&service, "app").app.unwrap().driver.unwrap();
    assert_eq!((driver.heartbeats, driver.heartbeat_timeout_ms), (1, Some(3000)));
    let gone = wait_removed(&service, "app");
    assert_eq!((gone.reason.as_str(), gone.dirs_removed), ("heartbeat-timeout", 1));
    assert!(gone.silent_for_ms.unwrap() >= 3000, "a full timeout after the start");
    assert!(!executor.local_dirs[0].exists());
}

/// Killed at any moment while clients register, beat and read: nothing that was acknowledged is lost,
/// nothing that lives is removed, and what was being removed is finished.
#[tokio::test]
async fn c19_killed_again_and_again_it_loses_nothing_and_finishes_what_it_began() {
    const ROUNDS: u64 = 12;
    let mut service = durable().start();
    let mut acknowledged: Vec<FixtureExecutor> = Vec::new();
    let mut dying: Vec<FixtureExecutor> = Vec::new();
    for round in 0..ROUNDS {
        let mut client = RawClient::connect(service.shuffle).await;
        // Everybody who was acknowledged is there, whenever the end came.
        for executor in &acknowledged {
            assert_served(&mut client, executor).await;
        }
        let kill_after = Duration::from_millis(3 + 11 * (round % 7));
        let deadline = tokio::time::Instant::now() + kill_after;
        let root = service.root();
        let work = async {
            for number in 0.. {
                let name = format!("{round}-{number}");
                let executor = FixtureExecutor::new(&name, "1", &[&root]);
                executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
                if client.rpc(executor.driver(seconds(600))).await.is_err() {
                    return;
                }
                if client.rpc(executor.registration()).await.is_err() {
                    return;
                }
                client.one_way(executor.heartbeat()).await;
                acknowledged.push(executor);
                let doomed = FixtureExecutor::new(&format!("doomed-{name}"), "1", &[&root]);
                doomed.write_map_output(0, 0, &[content(0), content(1), content(2)]);
                dying.push(doomed.clone());
                let _ = client.rpc(doomed.registration()).await;
                if client.rpc(doomed.driver(seconds(1))).await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout_at(deadline, work).await;
        service.kill();
        service.start_again();
    }
    assert!(acknowledged.len() as u64 > ROUNDS, "{} acknowledged", acknowledged.len());
    // A registration whose answer never came may be known or not; those that are known go.
    let known = |executor: &FixtureExecutor| {
        serde_json::from_str::<AppDetail>(
            &service.admin_get(&format!("/v1/apps/{}", executor.app_id)),
        )
        .is_ok()
    };
    let dying: Vec<_> = dying.into_iter().filter(known).collect();
    assert!(!dying.is_empty());
    for executor in &dying {
        let has_driver =
            app(&service, executor.app_id.as_str()).app.is_none_or(|app| app.driver.is_some());
        if has_driver {
            wait_for("a removal that a kill cut off", || {
                (!executor.local_dirs[0].exists()).then_some(())
            });
        }
    }
    let mut client = RawClient::connect(service.shuffle).await;
    for executor in &acknowledged {
        assert_served(&mut client, executor).await;
    }
    let live: BTreeSet<_> = acknowledged.iter().map(|e| e.local_dirs[0].clone()).collect();
    let left = wait_for("the tombstones to go", || {
        let left: Vec<_> =
            fs::read_dir(service.root()).unwrap().map(|e| e.unwrap().path()).collect();
        let tombs = left.iter().any(|path| path.to_str().unwrap().contains("tombstone"));
        (!tombs).then_some(left)
    });
    assert!(live.iter().all(|dir| left.contains(dir)));
}

/// The time that the service was not there does not count.
#[tokio::test]
async fn c17_every_application_has_a_full_timeout_after_a_restart() {
    let mut service = durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    client.rpc(executor.driver(seconds(2))).await.unwrap();
    service.kill();
    tokio::time::sleep(Duration::from_secs(4)).await;
    service.start_again();
    let started = Instant::now();
    let gone = wait_removed(&service, "app");
    assert!(started.elapsed() >= Duration::from_secs(2), "{gone:?}");
}

#[tokio::test]
async fn c19_what_vanished_or_was_replaced_meanwhile_is_dropped() {
    let mut service = durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let vanished = registered(&service, &mut client, "vanished", "1").await;
    let replaced = registered(&service, &mut client, "replaced", "1").await;
    let there = registered(&service, &mut client, "there", "1").await;
    wait_for("the look at the directory", || {
        // What tells it from another one is written after the answer.
        let commits = service.metric("shuffled_store_commits_total");
        (commits >= 2.0).then_some(())
    });
    service.stop_and_keep();
    fs::rename(&vanished.local_dirs[0], service.root().join("gone")).unwrap();
    fs::rename(&replaced.local_dirs[0], service.root().join("elsewhere")).unwrap();
    replaced.write_map_output(0, 0, &[content(0), content(1), content(2)]);
    service.start_again();
    let mut client = RawClient::connect(service.shuffle).await;
    assert_served(&mut client, &there).await;
    for lost in [&vanished, &replaced] {
        let chunk = client.fetch(lost.fetch(0, &[(0, &[0])])).await.unwrap().remove(0);
        assert!(chunk.unwrap_err().contains("is not registered"), "{lost:?}");
    }
    assert!(replaced.data_path(0, 0).exists(), "nobody asked for it to go");
}

#[tokio::test]
async fn c21_a_damaged_store_is_set_aside_and_said_so() {
    let mut service = durable().start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = registered(&service, &mut client, "app", "1").await;
    service.kill();
    let file = service.state_dir().join("registry.redb");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    service.start_again();
    let ready = service.admin_get("/readyz");
    assert!(ready.contains("degraded: the store was damaged and set aside as "), "{ready}");
    assert!(service.metric("shuffled_store_damaged") >= 1.0);
    assert_eq!(service.log_lines("The store was damaged and set aside").len(), 1);
    let why = service.admin_get("/v1/explain/app");
    assert!(why.contains("maybe-lost") && why.contains("the store was found damaged"), "{why}");
    // It works all the same.
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(executor.registration()).await.unwrap();
    service.kill_and_restart();
    let mut client = RawClient::connect(service.shuffle).await;
    assert_served(&mut client, &executor).await;
    assert_eq!(service.admin_get("/readyz"), "ok\n");
    let why = service.admin_get("/v1/explain/another");
    assert!(why.contains("maybe-lost"), "it is remembered: {why}");
}

/// Without a state directory, `explain` says that a restart forgets.
#[tokio::test]
async fn c20_without_a_state_directory_explain_says_what_is_forgotten() {
    let service = command().start();
    let why = service.admin_get("/v1/explain/app");
    assert!(why.contains("maybe-lost") && why.contains("no shuffled.state.dir"), "{why}");
    let service = durable().start();
    let why = service.admin_get("/v1/explain/app");
    assert!(why.contains("never-seen"), "{why}");
}

/// Two thousand at once do not wait for two thousand syncs.
#[tokio::test]
async fn registrations_at_once_share_their_syncs() {
    const EACH: usize = 100;
    let service = durable().start();
    let root = service.root();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (shuffle, root) = (service.shuffle, root.clone());
        running.spawn(async move {
            let mut client = RawClient::connect(shuffle).await;
            for exec in 0..EACH {
                let executor = FixtureExecutor {
                    app_id: format!("app-{number}").into(),
                    exec_id: exec.to_string().into(),
                    local_dirs: vec![root.join(format!("blockmgr-{number}-{exec}"))],
                };
                client.rpc(executor.registration()).await.unwrap();
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    let commits = service.metric("shuffled_store_commits_total");
    assert!(commits < 1900.0, "{commits} commits for 2000 registrations");
}

/// A state directory on a full disk: jobs go on, and everybody is told.
#[tokio::test]
async fn c18_a_full_disk_under_the_store_stops_nothing() {
    let mount = tempfile::TempDir::new().unwrap();
    let Some(_mounted) = Mounted::tmpfs(mount.path(), "size=4m") else { return };
    let service =
        command().conf("shuffled.state.dir", mount.path().join("state").to_str().unwrap()).start();
    let mut client = RawClient::connect(service.shuffle).await;
    fill(&mount.path().join("ballast"));
    let mut executors = Vec::new();
    wait_for_some(async || {
        let number = executors.len();
        let executor = registered(&service, &mut client, &format!("app-{number}"), "1").await;
        executors.push(executor);
        service.metric("shuffled_store_writable") == 0.0
    })
    .await;
    let ready = service.admin_get("/readyz");
    assert!(ready.contains("degraded: the store cannot be written"), "{ready}");
    for executor in &executors {
        assert_served(&mut client, executor).await;
    }
    // A dead application goes although its record cannot be written.
    client.rpc(executors[0].driver(seconds(1))).await.unwrap();
    assert_eq!(wait_removed(&service, "app-0").dirs_removed, 1);

    fs::remove_file(mount.path().join("ballast")).unwrap();
    wait_for("the store to be written again", || {
        (service.metric("shuffled_store_writable") == 1.0).then_some(())
    });
    assert_eq!(service.admin_get("/readyz"), "ok\n");
}

/// One disk that is full or read-only keeps no other one from being cleaned.
#[tokio::test]
async fn c18_a_disk_that_cannot_be_written_stops_nothing_elsewhere_and_is_tried_again() {
    let mount = tempfile::TempDir::new().unwrap();
    let Some(mounted) = Mounted::tmpfs(mount.path(), "size=8m") else { return };
    let good = tempfile::TempDir::new().unwrap();
    let roots = format!("{},{}", mount.path().display(), good.path().display());
    let service = durable().conf("shuffled.local.dirs", &roots).start();
    let mut client = RawClient::connect(service.shuffle).await;
    let executor = FixtureExecutor::new("app", "1", &[mount.path(), good.path()]);
    executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
    client.rpc(executor.registration()).await.unwrap();
    mounted.remount("ro");
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    wait_for("the good disk's to go, and the failure to be told", || {
        expired(&service, "app").filter(|gone| (gone.dirs_removed, gone.dirs_failing) == (1, 1))
    });
    assert!(executor.local_dirs[0].exists() && !executor.local_dirs[1].exists());
    let why = service.admin_get("/v1/explain/app");
    assert!(why.contains("Read-only file system"), "{why}");
    mounted.remount("rw");
    // Full, on top: deleting takes no room.
    fill(&mount.path().join("ballast"));
    assert_eq!(wait_removed(&service, "app").dirs_removed, 2);
    assert!(!executor.local_dirs[0].exists());
}

/// Where not even a new name has room, what the directory holds still goes.
#[tokio::test]
async fn c18_a_disk_without_room_for_a_tombstone_s_name_is_cleaned_all_the_same() {
    let mount = tempfile::TempDir::new().unwrap();
    let Some(_mounted) = Mounted::ext2(mount.path()) else { return };
    let service = durable().conf("shuffled.local.dirs", mount.path().to_str().unwrap()).start();
    let mut client = RawClient::connect(service.shuffle).await;
    let crowded = |name: &str| {
        let root = mount.path().join(name);
        let executor = FixtureExecutor::new("app", "1", &[&root]);
        executor.write_map_output(0, 0, &[content(0), content(1), content(2)]);
        (root, executor)
    };
    // As many names as a block of the directory takes are found by trying, in another one.
    let (measure, _) = crowded("measure");
    let (root, executor) = crowded("full");
    let one_block = fs::metadata(&measure).unwrap().len();
    for number in 1000.. {
        fs::write(measure.join(number.to_string()), "").unwrap();
        if fs::metadata(&measure).unwrap().len() > one_block {
            break;
        }
        fs::write(root.join(number.to_string()), "").unwrap();
    }
    fill(&mount.path().join("ballast"));
    let to = root.join(".shuffled-tombstone-0000000000000000-00000000");
    let error = fs::rename(&executor.local_dirs[0], to).expect_err("there is no room for it");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);

    client.rpc(executor.registration()).await.unwrap();
    client.rpc(executor.driver(seconds(1))).await.unwrap();
    assert_eq!(wait_removed(&service, "app").dirs_removed, 1);
    assert!(!executor.local_dirs[0].exists());
}

/// With few descriptors and as many connections as they allow, everything that is due still goes.
#[tokio::test]
async fn c18_few_descriptors_are_enough_to_remove() {
    let service = durable().descriptor_limit(256).start();
    let mut clients = Vec::new();
    for _ in 0..60 {
        clients.push(RawClient::connect(service.shuffle).await);
    }
    let mut executors = Vec::new();
    for number in 0..120 {
        let client = &mut clients[number % 60];
        let executor = registered(&service, client, &format!("app-{number}"), "1").await;
        client.rpc(executor.driver(seconds(1))).await.unwrap();
        executors.push(executor);
    }
    for executor in &executors {
        wait_for("all of them to go", || (!executor.local_dirs[0].exists()).then_some(()));
    }
    wait_gauges_zero(&service, &["shuffled_removals_pending"]);
    assert_eq!(service.metric("shuffled_dirs_removed_total"), 120.0);
}

fn fill(ballast: &Path) {
    let mut file = fs::File::create(ballast).expect("the file system can be written");
    for piece in [4096, 1] {
        while file.write_all(&vec![7; piece]).is_ok() {}
    }
}

async fn wait_for_some(mut check: impl AsyncFnMut() -> bool) {
    until("it", async || check().await.then_some(())).await;
}

/// A small file system of its own, while it lives.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where that takes more privileges than there are.
    fn tmpfs(at: &Path, options: &str) -> Option<Self> {
        Self::mount(at, &["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// Of 2 MiB, where directories take room like files, and nothing is kept for the superuser.
    fn ext2(at: &Path) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        image.as_file().set_len(2 << 20).expect("a sparse file");
        let path = image.path().to_str().expect("temporary paths are UTF-8");
        let made = std::process::Command::new("mkfs.ext2")
            .args(["-q", "-F", "-m", "0", "-b", "1024", path])
            .status();
        assert!(made.expect("mkfs.ext2 (e2fsprogs) runs").success());
        // The loop device keeps the file, also when it has no name any more.
        Self::mount(at, &["-o", "loop", path])
    }

    fn mount(at: &Path, args: &[&str]) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(args)
            .arg(at)
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            let _ = writeln!(std::io::stderr(), "SKIPPED: nothing can be mounted here");
        }
        mounted.then(|| Self(at.to_owned()))
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let status =
            std::process::Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(status.expect("mount runs").success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
