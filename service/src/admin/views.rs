//! What the JSON pages show. Every duration is in milliseconds.

use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::apps::{AppInfo, DirFacts, Executor, Record, RecordedDir};
use crate::dirs::LocalDir;
use crate::store::row::{DirState, WallMillis};
use crate::sweep::{Candidate, Verdict};
use crate::sweeper::Swept;

/// The answer of `/v1/apps`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppList {
    /// `shuffled.cleanup`: `on`, `report` or `off`.
    pub cleanup: String,
    /// What an operator should know about the service itself, a line each.
    pub complaints: Vec<String>,
    /// Registered applications, by id.
    pub apps: Vec<AppView>,
    /// Those that expired, or would have, latest first, as far as remembered.
    pub expired: Vec<RecordView>,
    /// Directories that nobody owned and that were removed, latest first, as far as remembered.
    pub swept: Vec<RecordView>,
}

/// The answer of `/v1/apps/ID`: an application may be registered again after it expired.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppDetail {
    /// Its id.
    pub id: String,
    /// It, if it is registered.
    pub app: Option<AppView>,
    /// Its executors, by id; empty when it is not registered.
    pub executors: Vec<ExecutorView>,
    /// Its directories; empty when it is not registered.
    pub dirs: Vec<DirView>,
    /// Its latest expiry, if that is still remembered.
    pub expired: Option<RecordView>,
    /// What became of the directories that it had then.
    pub expired_dirs: Vec<RecordDirView>,
}

/// One registered application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppView {
    /// Its id.
    pub id: String,
    /// Since its first registration.
    pub age_ms: u64,
    /// Its driver, if one registered.
    pub driver: Option<DriverView>,
    /// Until it expires unless something happens before; nothing for never.
    pub expires_in_ms: Option<u64>,
    /// Why an operator holds it.
    pub hold: Option<String>,
    /// Until when an operator keeps it in any case, RFC 3339.
    pub extended_until: Option<String>,
    /// Since anything of it was last registered or read.
    pub last_use_ms_ago: u64,
    /// Registered executors.
    pub executors: usize,
    /// Directories that go with it.
    pub dirs: usize,
    /// Those that this service cannot read.
    pub unreadable_dirs: usize,
    /// Open streams of its blocks.
    pub open_streams: u64,
    /// Chunks read of it.
    pub chunks_served: u64,
    /// Bytes in them.
    pub bytes_served: u64,
}

/// A registered driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DriverView {
    /// Where it registered from.
    pub address: Option<String>,
    /// Its own limit; nothing for never.
    pub heartbeat_timeout_ms: Option<u64>,
    /// Since its last sign of life.
    pub last_heartbeat_ms_ago: u64,
    /// Heartbeats since the service knows the application.
    pub heartbeats: u64,
}

/// One registered executor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutorView {
    /// Its id.
    pub id: String,
    /// Where it keeps its files.
    pub local_dirs: Vec<String>,
    /// Sub-directories each.
    pub sub_dirs_per_local_dir: i32,
    /// As registered.
    pub shuffle_manager: String,
}

/// One registered directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DirView {
    /// Its path.
    pub path: String,
    /// Why this service cannot read it.
    pub unreadable: Option<String>,
}

/// Why something left the registry, and what became of its directories.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordView {
    /// Its number.
    pub record: u64,
    /// The application; nothing for a directory that nobody owned.
    pub id: Option<String>,
    /// `heartbeat-timeout`, `no-driver`, `operator`, `sweep`, `dirs-vanished`.
    pub reason: String,
    /// Nothing was done, because `shuffled.cleanup` is `report`.
    pub report_only: bool,
    /// What the operator said.
    pub note: Option<String>,
    /// Since then.
    pub expired_ms_ago: u64,
    /// The same as a date, RFC 3339.
    pub expired_at: String,
    /// How long its driver had been silent.
    pub silent_for_ms: Option<u64>,
    /// Its driver's own limit; nothing for never, or without a driver.
    pub heartbeat_timeout_ms: Option<u64>,
    /// Where its driver had registered from.
    pub driver_address: Option<String>,
    /// Executors it had.
    pub executors: usize,
    /// Directories it had.
    pub dirs: usize,
    /// Of those, gone.
    pub dirs_removed: usize,
    /// Of those, left alone: a live application has them, or they were others than had been registered.
    pub dirs_kept: usize,
    /// Of those, brought back.
    pub dirs_restored: usize,
    /// Of those, not removable so far; tried again.
    pub dirs_failing: usize,
    /// Of those, can still be brought back.
    pub dirs_restorable: usize,
    /// Files unlinked, or counted before the first of them was.
    pub files_removed: u64,
    /// Bytes in them.
    pub bytes_removed: u64,
}

/// A directory of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordDirView {
    /// Where it was.
    pub path: String,
    /// `pending`, `tombstoned`, `unlinking`, `removed`, `kept`, `restored`.
    pub state: DirState,
    /// Its name while it goes, in the directory where it was.
    pub tombstone: String,
    /// What the last attempt failed with, or why it is kept.
    pub error: Option<String>,
    /// Files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// The answer of what an operator said about an application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Done {
    /// What was done, in a sentence.
    pub done: String,
    /// Whether it survives a restart of the service.
    pub durable: bool,
}

/// The answer of `/v1/explain/ID`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explanation {
    /// One of: `registered`, `not-registered`, `never-seen`, `expired`, `maybe-lost`, `readable`,
    /// `file-missing`, `permission`, `bad-file`, `disk`, `bad-request`.
    pub verdict: String,
    /// The same for people, a sentence each, the most general first.
    pub findings: Vec<String>,
}

/// The answer of `/v1/sweep`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SweepView {
    /// Directories that nobody owns.
    pub candidates: Vec<CandidateView>,
    /// What could not be looked at.
    pub problems: Vec<String>,
    /// There was too much to look at all of it.
    pub truncated: bool,
}

/// A directory that nobody owns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CandidateView {
    /// Where it is.
    pub path: String,
    /// Its owner's user id.
    pub owner: u32,
    /// Files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// The bytes were estimated from some of the files.
    pub estimated: bool,
    /// Since anything in it changed.
    pub age_ms: u64,
    /// `removable`, `too-young`, `held-open`, `cannot-tell`.
    pub verdict: String,
    /// Why, unless it is removable.
    pub why: Option<String>,
    /// The record of its removal, if it goes.
    pub record: Option<u64>,
}

impl AppView {
    pub(super) fn of(app: &AppInfo, now: Instant, wall: WallMillis) -> Self {
        Self {
            id: app.app_id.to_string(),
            age_ms: wall.saturating_sub(app.since),
            driver: app.driver.map(|driver| DriverView {
                address: app.driver_addr.map(|addr| addr.to_string()),
                heartbeat_timeout_ms: driver.timeout.as_duration().map(millis),
                last_heartbeat_ms_ago: ago(driver.last_beat, now),
                heartbeats: driver.beats,
            }),
            expires_in_ms: app.deadline.map(|at| millis(at.saturating_duration_since(now))),
            hold: app.hold.clone(),
            extended_until: app.extended_until.map(rfc3339),
            last_use_ms_ago: ago(app.last_use, now),
            executors: app.executors.len(),
            dirs: app.dirs.len(),
            unreadable_dirs: app.dirs.values().filter(|dir| dir.unreadable.is_some()).count(),
            open_streams: app.open_streams,
            chunks_served: app.chunks,
            bytes_served: app.bytes,
        }
    }
}

impl ExecutorView {
    pub(super) fn of((id, executor): (impl ToString, &Executor)) -> Self {
        Self {
            id: id.to_string(),
            local_dirs: executor.local_dirs.iter().map(ToString::to_string).collect(),
            sub_dirs_per_local_dir: executor.sub_dirs_per_local_dir,
            shuffle_manager: executor.shuffle_manager.clone(),
        }
    }
}

impl DirView {
    pub(super) fn of((dir, facts): (&LocalDir, &DirFacts)) -> Self {
        Self { path: dir.to_string(), unreadable: facts.unreadable.clone() }
    }
}

impl RecordView {
    pub(super) fn of(record: &Record, wall: WallMillis) -> Self {
        let (row, removal) = (&record.row, record.removal());
        let driver = row.app.driver.as_ref();
        Self {
            record: record.id.0,
            id: row.app_id.clone(),
            reason: row.reason.clone(),
            report_only: row.report_only,
            note: row.note.clone(),
            expired_ms_ago: wall.saturating_sub(row.at),
            expired_at: rfc3339(row.at),
            silent_for_ms: row.silent_for_ms,
            heartbeat_timeout_ms: driver.and_then(|driver| driver.timeout_ms),
            driver_address: driver.and_then(|driver| driver.address.clone()),
            executors: row.executors.len(),
            dirs: record.dirs.len(),
            dirs_removed: removal.removed,
            dirs_kept: removal.kept,
            dirs_restored: removal.restored,
            dirs_failing: removal.failing,
            dirs_restorable: removal.restorable,
            files_removed: removal.files,
            bytes_removed: removal.bytes,
        }
    }
}

impl RecordDirView {
    pub(super) fn of(RecordedDir { row, .. }: &RecordedDir) -> Self {
        Self {
            path: row.path.clone(),
            state: row.state,
            tombstone: row.tombstone.clone(),
            error: row.error.clone(),
            files: row.files,
            bytes: row.bytes,
        }
    }
}

impl SweepView {
    pub(super) fn of(swept: &Swept, now: SystemTime) -> Self {
        let view = |(number, candidate): (usize, &Candidate)| {
            let of = swept.removed.iter().find(|(of, _)| *of == number);
            CandidateView::of(candidate, of.map(|(_, record)| record.0), now)
        };
        Self {
            candidates: swept.found.candidates.iter().enumerate().map(view).collect(),
            problems: swept.found.problems.clone(),
            truncated: swept.found.truncated,
        }
    }
}

impl CandidateView {
    fn of(candidate: &Candidate, record: Option<u64>, now: SystemTime) -> Self {
        let (verdict, why) = match &candidate.verdict {
            Verdict::Removable => ("removable", None),
            Verdict::TooYoung { .. } => ("too-young", Some("it changed too recently".to_owned())),
            Verdict::HeldOpen { pids } => {
                let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
                ("held-open", Some(format!("process {} uses it", pids.join(", "))))
            }
            Verdict::CannotTell { why } => ("cannot-tell", Some(why.clone())),
        };
        Self {
            path: candidate.dir.to_string(),
            owner: candidate.owner,
            files: candidate.files,
            bytes: candidate.bytes,
            estimated: candidate.estimated,
            age_ms: now.duration_since(candidate.newest).map_or(0, millis),
            verdict: verdict.to_owned(),
            why,
            record,
        }
    }
}

fn ago(then: Instant, now: Instant) -> u64 {
    millis(now.saturating_duration_since(then))
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A date for people.
pub(super) fn rfc3339(at: WallMillis) -> String {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at));
    // The formatter knows the years up to 9999.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_seconds(at.map_or(last, |at| at.min(last))).to_string()
}
