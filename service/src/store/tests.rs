use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use redb::{Builder, ReadableTable as _, StorageBackend};
use shuffle_protocol::{AppId, ExecId};
use tempfile::TempDir;

use super::row::{AppRow, Change, DirRow, DirState, ExecutorRow, RecordDir, RecordId, RecordRow};
use super::*;
use crate::apps::Left;

fn app(id: &str) -> Change {
    Change::App(AppId::from(id), Some(AppRow { since: 7, ..AppRow::default() }))
}

fn executor(app: &str, exec: &str) -> Change {
    let row = ExecutorRow {
        local_dirs: vec![format!("/d0/blockmgr-{app}-{exec}")],
        sub_dirs_per_local_dir: 64,
        shuffle_manager: "sort".to_owned(),
    };
    Change::Executor(AppId::from(app), ExecId::from(exec), Some(row))
}

fn dir(app: &str, path: &str) -> Change {
    let row = DirRow { named: path.to_owned(), identity: None };
    Change::Dir(AppId::from(app), path.to_owned(), Some(row))
}

fn record(id: u64, dirs: u32) -> Vec<Change> {
    let row = RecordRow {
        app_id: Some("a".to_owned()),
        reason: "heartbeat-timeout".to_owned(),
        report_only: false,
        note: None,
        at: 5,
        silent_for_ms: Some(1),
        app: AppRow::default(),
        executors: Default::default(),
    };
    let dir = |index| RecordDir {
        path: format!("/d/{index}"),
        dir: DirRow::default(),
        tombstone: "t".to_owned(),
        state: DirState::Pending,
        in_place: false,
        error: None,
        files: 0,
        bytes: 0,
    };
    let dirs = (0..dirs).map(|index| Change::RecordDir(RecordId(id), index, Some(dir(index))));
    std::iter::once(Change::Record(RecordId(id), Some(row))).chain(dirs).collect()
}

/// Every row as a text, to compare what was read with what was written.
fn texts(left: &Left) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    all.extend(left.apps.iter().map(|row| format!("app {row:?}")));
    all.extend(left.executors.iter().map(|row| format!("executor {row:?}")));
    all.extend(left.dirs.iter().map(|row| format!("dir {row:?}")));
    all.extend(left.records.iter().map(|row| format!("record {row:?}")));
    all.extend(left.record_dirs.iter().map(|row| format!("record dir {row:?}")));
    all
}

struct Silent;

impl StoreObserver for Silent {
    fn failing(&self, _: &StoreError) {}
    fn recovered(&self) {}
    fn committed(&self, _: usize, _: Duration) {}
}

/// Writes all of it and closes the store.
fn write(store: Store, changes: impl IntoIterator<Item = Change>) {
    let journal = Journal::new();
    journal.record(changes);
    journal.close();
    store.write_all(&journal, &Silent);
}

fn open(dir: &Path) -> Opened {
    Store::open(dir).unwrap()
}

fn sample() -> Vec<Change> {
    let mut changes = vec![app("a"), executor("a", "1"), executor("a", "2"), dir("a", "/d0/x")];
    changes.extend([app("\u{fc}/\"\0"), executor("\u{fc}/\"\0", "driver"), dir("", "/")]);
    changes.extend(record(3, 12));
    changes.extend(record(20, 1));
    changes
}

#[test]
fn c19_what_was_written_is_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let first = open(dir.path());
    assert!(first.damage.is_none());
    assert_eq!(texts(&first.loaded), BTreeSet::new());
    write(first.store, sample());
    let second = open(dir.path());
    assert_eq!(texts(&second.loaded).len(), sample().len());
    let numbers: Vec<_> = second.loaded.record_dirs.iter().map(|(id, n, _)| (id.0, *n)).collect();
    assert_eq!(numbers, (0..12).map(|n| (3, n)).chain([(20, 0)]).collect::<Vec<_>>());
    write(second.store, [Change::App(AppId::from("a"), None)]);
    assert_eq!(texts(&open(dir.path()).loaded).len(), sample().len() - 1);
}

#[test]
fn the_last_change_of_a_row_counts() {
    let dir = TempDir::new().unwrap();
    let gone = Change::App(AppId::from("a"), None);
    write(open(dir.path()).store, [app("a"), gone.clone(), app("b"), gone, app("a")]);
    assert_eq!(open(dir.path()).loaded.apps.len(), 2);
}

#[test]
fn c22_only_the_owner_can_read_it_whatever_the_umask() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    // Of the whole process, but every other file of the tests is for anybody anyway.
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    let opened = Store::open(&state);
    rustix::process::umask(before);
    write(opened.unwrap().store, sample());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&state), 0o700);
    for entry in fs::read_dir(&state).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn two_services_cannot_have_the_same_store() {
    let dir = TempDir::new().unwrap();
    let first = open(dir.path());
    let second = Store::open(dir.path()).unwrap_err().to_string();
    assert!(second.contains("is in use") && second.contains("shuffled.state.dir"), "{second}");
    drop(first);
    open(dir.path());
}

#[test]
fn what_is_no_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains("must be a directory"), "{error}");
    }
    fs::create_dir(dir.path().join("registry.redb")).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Dir { .. })));
}

#[test]
fn a_file_of_a_later_release_is_left_alone() {
    let dir = TempDir::new().unwrap();
    write(open(dir.path()).store, sample());
    let file = dir.path().join("registry.redb");
    let database = redb::Database::open(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    transaction.open_table(meta).unwrap().insert("version", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        let error = Store::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("later release") && error.contains("format 2"), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "it is not set aside");
}

#[test]
fn c21_garbage_is_set_aside_and_remembered() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("registry.redb");
    for round in 1..=12 {
        fs::write(&file, vec![0xA5; 10_000]).unwrap();
        let opened = open(dir.path());
        let damage = opened.damage.expect("garbage");
        assert_eq!(fs::read(&damage.set_aside).unwrap().len(), 10_000);
        assert_eq!(damage.lost_rows, None);
        assert_eq!(texts(&opened.loaded), BTreeSet::new());
        write(opened.store, sample());
        let again = open(dir.path());
        assert!(again.damage.is_none());
        assert_eq!(texts(&again.loaded).len(), sample().len());
        assert_eq!(
            again.past.len(),
            1,
            "round {round}: garbage holds no memory of earlier garbage"
        );
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 13, "nothing is overwritten");
}

#[test]
fn an_empty_file_is_one_that_was_just_made() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("registry.redb"), "").unwrap();
    assert!(open(dir.path()).damage.is_none());
}

#[test]
fn c21_a_row_that_was_changed_behind_its_checksum_is_not_used_and_the_others_are() {
    let dir = TempDir::new().unwrap();
    write(open(dir.path()).store, sample());
    // What a disk cannot do: the pages' checksums are right.
    let database = redb::Database::open(dir.path().join("registry.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let rows = redb::TableDefinition::<&[u8], &[u8]>::new("rows");
        let mut rows = transaction.open_table(rows).unwrap();
        let key = br#"{"Executor":["a","1"]}"#.as_slice();
        let mut value = rows.get(key).unwrap().unwrap().value().to_vec();
        let at = value.iter().position(|byte| *byte == b'/').unwrap();
        value[at + 1] = b'e';
        rows.insert(key, value.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let opened = open(dir.path());
    assert_eq!(opened.damage.unwrap().lost_rows, Some(1));
    assert_eq!(texts(&opened.loaded).len(), sample().len() - 1);
    drop(opened.store);
    let again = open(dir.path());
    assert!(again.damage.is_none());
    assert_eq!(texts(&again.loaded).len(), sample().len() - 1, "carried over");
    assert_eq!(again.past[0].lost_rows, Some(1));
}

/// Bytes of a store with the sample in it, and its rows.
fn good_file() -> (Vec<u8>, BTreeSet<String>) {
    let dir = TempDir::new().unwrap();
    write(open(dir.path()).store, sample());
    let rows = texts(&open(dir.path()).loaded);
    (fs::read(dir.path().join("registry.redb")).unwrap(), rows)
}

/// Whatever was done to the file, it opens, and gives nothing that was not written.
fn check_damaged(bytes: &[u8], written: &BTreeSet<String>) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("registry.redb"), bytes).unwrap();
    match Store::open(dir.path()) {
        Ok(Opened { loaded, damage, .. }) => {
            let read = texts(&loaded);
            assert!(read.is_subset(written), "{:?}", read.difference(written));
            assert!(damage.is_some() || bytes.is_empty() || read == *written, "lost in silence");
        }
        // The version itself may be what was hit.
        Err(StoreError::Newer { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// How many offsets are tried: all of them take minutes.
fn tries() -> usize {
    let many = std::env::var("PROPTEST_CASES")
        .is_ok_and(|cases| cases.parse().is_ok_and(|cases: u64| cases >= 4096));
    if many { usize::MAX } else { 400 }
}

#[test]
fn c21_a_byte_flipped_anywhere_is_no_panic_and_no_wrong_directory() {
    let (bytes, written) = good_file();
    // Pages that were never used hold zeros; of those a few are enough.
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let step = (used.len() / tries()).max(1);
    for at in used.iter().step_by(step).copied().chain((0..bytes.len()).step_by(bytes.len() / 20)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        check_damaged(&damaged, &written);
    }
}

#[test]
fn c21_a_file_cut_anywhere_is_no_panic_and_no_wrong_directory() {
    let (bytes, written) = good_file();
    let step = (bytes.len() / tries()).max(1);
    for length in (0..bytes.len()).step_by(step).chain(bytes.len() - 20..bytes.len()) {
        check_damaged(&bytes[..length], &written);
    }
}

/// A disk that forgets what was not synced, and can be full.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<DiskState>);

#[derive(Debug, Default)]
struct DiskState {
    volatile: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
    full: AtomicBool,
    /// Calls until the power fails.
    left: AtomicUsize,
}

impl Disk {
    fn call(&self) -> Result<(), io::Error> {
        let left = self.0.left.fetch_sub(1, Ordering::Relaxed);
        if left == 0 {
            self.0.left.store(0, Ordering::Relaxed);
            return Err(io::Error::other("the power is gone"));
        }
        match self.0.full.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn power_fails(&self) {
        let durable = self.0.durable.lock().unwrap().clone();
        *self.0.volatile.lock().unwrap() = durable;
        self.0.left.store(usize::MAX, Ordering::Relaxed);
    }

    fn store(&self) -> Store {
        let disk = self.clone();
        Store::over(Box::new(move || Builder::new().create_with_backend(disk.clone())))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.volatile.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let (start, length) = (usize::try_from(offset).unwrap(), out.len());
        out.copy_from_slice(&self.0.volatile.lock().unwrap()[start..start + length]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<(), io::Error> {
        self.call()?;
        self.0.volatile.lock().unwrap().resize(usize::try_from(length).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.call()?;
        let volatile = self.0.volatile.lock().unwrap().clone();
        *self.0.durable.lock().unwrap() = volatile;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.call()?;
        let start = usize::try_from(offset).unwrap();
        self.0.volatile.lock().unwrap()[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn apps_on(disk: &Disk) -> usize {
    let mut store = disk.store();
    store.read_all().unwrap().apps.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn c19_power_that_fails_at_any_moment_takes_nothing_that_was_announced(calls in 1_usize..400) {
        let disk = Disk::default();
        disk.0.left.store(usize::MAX, Ordering::Relaxed);
        disk.store().write(&Default::default()).unwrap();
        disk.0.left.store(calls, Ordering::Relaxed);
        let mut store = disk.store();
        let mut announced = 0;
        for number in 0..20 {
            let mut rows = Default::default();
            rows::seal_change(&mut rows, app(&number.to_string()));
            if store.write(&rows).is_err() {
                break;
            }
            announced += 1;
        }
        drop(store);
        disk.power_fails();
        let there = apps_on(&disk);
        prop_assert!(there >= announced && there <= announced + 1, "{there} of {announced}");
    }
}

#[tokio::test]
async fn c18_while_the_disk_is_full_nobody_waits_and_afterwards_all_is_written() {
    let disk = Disk::default();
    disk.0.left.store(usize::MAX, Ordering::Relaxed);
    let journal = Arc::new(Journal::new());
    let writer = disk.store().spawn_writer(journal.clone(), Silent);
    let first = journal.record([app("a")]);
    assert_eq!(journal.settled(first).await, Durability::Durable);
    disk.0.full.store(true, Ordering::Relaxed);
    for number in 0..100 {
        let position = journal.record([app(&format!("full-{number}"))]);
        assert_eq!(journal.settled(position).await, Durability::MemoryOnly);
    }
    disk.0.full.store(false, Ordering::Relaxed);
    let mut last = journal.record([app("b")]);
    while journal.settled(last).await == Durability::MemoryOnly {
        tokio::time::sleep(Duration::from_millis(10)).await;
        last = journal.recorded();
    }
    journal.close();
    tokio::task::spawn_blocking(move || writer.join()).await.unwrap();
    disk.power_fails();
    assert_eq!(apps_on(&disk), 102);
}

#[test]
fn the_end_of_the_service_does_not_wait_for_a_full_disk() {
    let disk = Disk::default();
    disk.0.left.store(usize::MAX, Ordering::Relaxed);
    disk.0.full.store(true, Ordering::Relaxed);
    let journal = Arc::new(Journal::new());
    journal.record([app("a")]);
    journal.close();
    disk.store().write_all(&journal, &Silent);
}
