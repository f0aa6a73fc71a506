//! The removal of one directory, step by step: first its name, then its files.
//!
//! Decides and does no I/O: [`Removal::poll`] says what is to be done, a `handle_` method takes what
//! came of it. What has to survive is in the directory's row of the record, so a removal that a crash
//! cut off goes on where it was.
//!
//! The claims of live applications are asked before the directory is renamed, after it was, and in
//! one step with the decision to unlink. A registration that comes in between turns the removal
//! round; only one that comes after that decision finds its files going (complaint C14).

use std::time::{Duration, Instant};

use crate::apps::{AppRegistry, Claim};
use crate::dirs::{
    EntombError, Entombed, ExhumeError, LocalDir, Measured, RemoveError, Removed, Tombstone,
};
use crate::store::row::{DirState, Identity, RecordDir, RecordId};

/// Between two attempts on a directory that would not go, doubled each time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(300);

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Wait until everything that was recorded is on disk, then poll again.
    Sync,
    /// Rename the directory to its tombstone.
    Entomb(Option<Identity>),
    /// Rename the tombstone back.
    Exhume,
    /// Poll again then, or when a directory is registered: until then it can be brought back.
    WaitUntil(Instant),
    /// Count files and bytes: of the tombstone, or in place.
    Measure {
        /// Where it was.
        in_place: bool,
    },
    /// Remove the tombstone with everything in it.
    Unlink,
    /// Empty the directory where it is, as long as nobody claims it.
    EmptyInPlace,
    /// It did not work. Poll again then.
    RetryAt(Instant, String),
    /// Nothing, ever.
    Done(Outcome),
}

/// What became of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is gone.
    Removed,
    /// It stays, for this reason.
    Kept(String),
    /// It was brought back.
    Restored,
}

/// How far it is, and what is known of it in memory only.
#[derive(Debug)]
enum Phase {
    Start,
    Pending,
    /// Renamed, and not asked about since.
    Tombstoned,
    /// The files were counted.
    Measured(Measured),
    /// The decision is recorded and not yet on disk.
    Decided,
    Unlinking,
    /// Waiting for the next attempt, after which it goes on here.
    Failed(Instant, String, Box<Phase>),
    Done(Outcome),
}

/// The removal of one directory of a record.
#[derive(Debug)]
pub struct Removal {
    record: RecordId,
    index: usize,
    dir: LocalDir,
    tombstone: Tombstone,
    expected: Option<Identity>,
    in_place: bool,
    state: DirState,
    /// A crash may have come between the renaming and the row that says so.
    may_be_renamed: bool,
    not_before: Instant,
    retry: Duration,
    phase: Phase,
}

impl Removal {
    /// Begins, or goes on, with what `row` says. Files go at `not_before` at the earliest. `None` when
    /// there is nothing to do.
    #[must_use]
    pub fn new(
        record: RecordId,
        index: usize,
        dir: LocalDir,
        row: &RecordDir,
        not_before: Instant,
    ) -> Option<Self> {
        if row.state.is_final() {
            return None;
        }
        Some(Self {
            record,
            index,
            dir,
            tombstone: Tombstone::parse(&row.tombstone)?,
            expected: row.dir.identity,
            in_place: row.in_place,
            state: row.state,
            may_be_renamed: true,
            not_before,
            retry: RETRY_FIRST,
            phase: Phase::Start,
        })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &LocalDir {
        &self.dir
    }

    /// Its name while it goes.
    #[must_use]
    pub fn tombstone(&self) -> &Tombstone {
        &self.tombstone
    }

    /// What is to be done at `now`.
    pub fn poll(&mut self, registry: &AppRegistry, now: Instant) -> Action {
        loop {
            match &self.phase {
                Phase::Start => {
                    // The record comes before everything that it is about.
                    self.phase = match self.state {
                        DirState::Tombstoned => Phase::Tombstoned,
                        DirState::Unlinking => Phase::Unlinking,
                        _ => Phase::Pending,
                    };
                    return Action::Sync;
                }
                Phase::Pending => match registry.claim(&self.dir) {
                    Some(_) if self.may_be_renamed => return Action::Exhume,
                    Some(Claim::Whole) => self.keep(registry, CLAIMED.to_owned()),
                    Some(Claim::Part) => self.fail(registry, now, CLAIMED_IN_PART.to_owned()),
                    None if registry.has_removal_in(&self.dir) => {
                        self.fail(registry, now, REMOVAL_WITHIN.to_owned());
                    }
                    None if self.in_place => return Action::Measure { in_place: true },
                    None => return Action::Entomb(self.expected),
                },
                Phase::Tombstoned if registry.claim(&self.dir).is_some() => return Action::Exhume,
                Phase::Tombstoned if now < self.not_before => {
                    return Action::WaitUntil(self.not_before);
                }
                Phase::Tombstoned => return Action::Measure { in_place: false },
                Phase::Measured(measured) => {
                    let (files, bytes, in_place) = (measured.files, measured.bytes, self.in_place);
                    let begun = registry.begin_unlink(self.record, self.index, |row| {
                        (row.files, row.bytes, row.in_place) = (files, bytes, in_place);
                        row.error = None;
                    });
                    match begun {
                        Ok(_) => self.phase = Phase::Decided,
                        Err(_) if self.in_place => self.phase = Phase::Pending,
                        Err(_) => return Action::Exhume,
                    }
                }
                Phase::Decided => {
                    self.phase = Phase::Unlinking;
                    return Action::Sync;
                }
                Phase::Unlinking if self.in_place => return Action::EmptyInPlace,
                Phase::Unlinking => return Action::Unlink,
                Phase::Failed(at, error, _) if now < *at => {
                    return Action::RetryAt(*at, error.clone());
                }
                Phase::Failed(..) => self.go_on(),
                Phase::Done(outcome) => return Action::Done(outcome.clone()),
            }
        }
    }

    /// The directory was renamed, or not.
    pub fn handle_entombed(
        &mut self,
        registry: &AppRegistry,
        result: Result<Entombed, EntombError>,
        now: Instant,
    ) {
        match result {
            // It may have been renamed before a crash that came before the row was written.
            Ok(Entombed::Done | Entombed::WasGone) => {
                self.set(registry, DirState::Tombstoned);
                self.phase = Phase::Tombstoned;
            }
            Err(error @ EntombError::NotTheSame { .. }) => self.keep(registry, error.to_string()),
            Err(EntombError::CannotRename { .. }) => self.in_place = true,
            Err(error) => self.fail(registry, now, error.to_string()),
        }
    }

    /// The tombstone was renamed back, or not.
    pub fn handle_exhumed(
        &mut self,
        registry: &AppRegistry,
        result: Result<(), ExhumeError>,
        now: Instant,
    ) {
        match result {
            Ok(()) if registry.claim(&self.dir) == Some(Claim::Part) => {
                // It was in the way of a live directory in it, and still belongs to nobody itself.
                self.may_be_renamed = false;
                self.set(registry, DirState::Pending);
                self.phase = Phase::Pending;
            }
            Ok(()) => {
                self.set(registry, DirState::Restored);
                self.phase = Phase::Done(Outcome::Restored);
            }
            // The one that is there was never renamed, or is a new one; then what was is nobody's.
            Err(ExhumeError::AlreadyThere { .. }) => {
                registry.update_dir(self.record, self.index, |row| {
                    row.state = DirState::Unlinking;
                });
                self.phase = Phase::Decided;
            }
            Err(ExhumeError::NotFound { .. }) => {
                self.may_be_renamed = false;
                self.phase = Phase::Pending;
            }
            Err(error) => self.fail(registry, now, error.to_string()),
        }
    }

    /// The files were counted, or could not be: then the attempt to remove them will say why.
    pub fn handle_measured(&mut self, measured: Measured) {
        self.phase = Phase::Measured(measured);
    }

    /// The files are gone, or some are not.
    pub fn handle_removed(
        &mut self,
        registry: &AppRegistry,
        result: Result<Removed, RemoveError>,
        now: Instant,
    ) {
        match result {
            Ok(removed) => {
                registry.update_dir(self.record, self.index, |row| {
                    // A removal that went on after a crash finds less than had been counted.
                    row.files = row.files.max(removed.files);
                    row.state = DirState::Removed;
                    row.error = None;
                });
                self.phase = Phase::Done(Outcome::Removed);
            }
            // Only what is emptied in place is stopped, by a claim.
            Err(RemoveError::Stopped { .. }) => match registry.claim(&self.dir) {
                Some(Claim::Whole) => self.keep(registry, CLAIMED.to_owned()),
                _ => self.fail(registry, now, CLAIMED_IN_PART.to_owned()),
            },
            Err(error) => self.fail(registry, now, error.to_string()),
        }
    }

    /// What was to be done failed otherwise.
    pub fn handle_failure(&mut self, registry: &AppRegistry, error: String, now: Instant) {
        self.fail(registry, now, error);
    }

    fn keep(&mut self, registry: &AppRegistry, why: String) {
        registry.update_dir(self.record, self.index, |row| {
            row.state = DirState::Kept;
            row.error = Some(why.clone());
        });
        self.phase = Phase::Done(Outcome::Kept(why));
    }

    fn set(&mut self, registry: &AppRegistry, state: DirState) {
        registry.update_dir(self.record, self.index, |row| {
            row.state = state;
            row.error = None;
        });
    }

    fn fail(&mut self, registry: &AppRegistry, now: Instant, error: String) {
        registry.update_dir(self.record, self.index, |row| row.error = Some(error.clone()));
        let goes_on = std::mem::replace(&mut self.phase, Phase::Start);
        self.phase = Phase::Failed(now + self.retry, error, Box::new(goes_on));
        self.retry = (self.retry * 2).min(RETRY_LAST);
    }

    fn go_on(&mut self) {
        if let Phase::Failed(_, _, phase) = std::mem::replace(&mut self.phase, Phase::Start) {
            self.phase = *phase;
        }
    }
}

const CLAIMED: &str = "a live application registered it too";
const REMOVAL_WITHIN: &str = "a directory in it is still being removed";
const CLAIMED_IN_PART: &str = "a live application registered a directory in it";
