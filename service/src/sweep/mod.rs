//! Directories of Spark's that nobody owns: left by drivers that were killed, by a service that forgot
//! what was registered, by a job whose executors never registered (complaints C10 and C11).
//!
//! Only what is shaped as Spark shapes it is ever looked at, and never by its name alone: nothing in it
//! may have changed for a while, no process may use it, and no application may have it.

mod processes;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::apps::Claim;
use crate::dirs::{
    LocalDir, LocalRoots, MAX_CHILDREN, MeasureLimits, Measured, OpenError, Tombstone,
};
use crate::store::row::Identity;

use self::processes::{Processes, Users};

/// How deep below a root a directory of Spark's may lie: `spark-U/executor-U/blockmgr-U`.
const MAX_DEPTH: usize = 4;
/// How much is looked at.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Directories below each root.
    dirs: usize,
    /// What is in one of them.
    measure: MeasureLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self { dirs: MAX_CHILDREN, measure: MeasureLimits::default() }
    }
}

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Found {
    /// Directories of Spark's that no application has.
    pub candidates: Vec<Candidate>,
    /// What could not be looked at.
    pub problems: Vec<String>,
    /// There was too much to look at all of it.
    pub truncated: bool,
}

/// A directory of Spark's that no application has.
#[derive(Debug)]
pub struct Candidate {
    /// Which one.
    pub dir: LocalDir,
    /// What tells it from another one with its path.
    pub identity: Identity,
    /// Its owner's user id.
    pub owner: u32,
    /// Files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// The bytes were estimated from some of the files.
    pub estimated: bool,
    /// When anything in it last changed.
    pub newest: SystemTime,
    /// Whether it may go.
    pub verdict: Verdict,
}

/// Whether a directory that nobody owns may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Removable,
    /// Something in it changed too recently, or in the future.
    TooYoung {
        /// This long ago.
        age: Duration,
    },
    /// Processes use it.
    HeldOpen {
        /// These.
        pids: Vec<u32>,
    },
    /// Processes may use it.
    CannotTell {
        /// Why that cannot be seen.
        why: String,
    },
}

/// Why nothing was looked for.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The operator is at fault.
    #[error("nothing can be swept without shuffled.local.dirs: the roots to search are not known")]
    NoRoots,
    /// A bug; the panic itself was reported by the panic hook.
    #[error("internal error: the sweep panicked")]
    Panicked,
}

/// Looks for directories of Spark's below the roots that are claimed by nobody and not `ours`, which are
/// the tombstones of removals that are under way. Blocking, and long for large disks.
///
/// # Errors
/// [`SweepError::NoRoots`].
pub fn find(
    roots: &LocalRoots,
    claim: impl Fn(&LocalDir) -> Option<Claim>,
    ours: impl Fn(&LocalDir) -> bool,
    older_than: Duration,
    now: SystemTime,
    procfs: Option<&Path>,
) -> Result<Found, SweepError> {
    let look = || procfs.map_or_else(Processes::look_here, Processes::look);
    find_with(roots, claim, ours, older_than, now, look, Limits::default())
}

fn find_with(
    roots: &LocalRoots,
    claim: impl Fn(&LocalDir) -> Option<Claim>,
    ours: impl Fn(&LocalDir) -> bool,
    older_than: Duration,
    now: SystemTime,
    look: impl FnOnce() -> Processes,
    limits: Limits,
) -> Result<Found, SweepError> {
    if !roots.is_restricted() {
        return Err(SweepError::NoRoots);
    }
    let mut found = Found::default();
    let mut unowned = Vec::new();
    for (root, listed) in roots.list_roots() {
        // Depth first, with what is still to be looked at.
        let mut stack: Vec<(usize, LocalDir)> = Vec::new();
        let mut looked_at = 0;
        found.take(listed, &root, 1, &mut stack);
        while let Some((depth, dir)) = stack.pop() {
            looked_at += 1;
            if looked_at > limits.dirs {
                found.truncated = true;
                break;
            }
            if !is_sparks(dir.name()) || ours(&dir) {
                continue;
            }
            match claim(&dir) {
                Some(Claim::Whole) => {}
                // What lies beside the directories that somebody has.
                Some(Claim::Part) => {
                    if depth < MAX_DEPTH {
                        found.take(roots.list(&dir), dir.path(), depth + 1, &mut stack);
                    }
                }
                None if holds_a_root(roots, &dir) => {}
                None => unowned.push(dir),
            }
        }
    }
    unowned.sort();
    // One root may lie below another.
    unowned.dedup();
    // After the directories: a process that opened one since has been counted, one that ended has not.
    let processes = look();
    for dir in unowned {
        match facts(roots, &dir, limits.measure) {
            Ok(Facts { identity, owner, measured }) => {
                let Measured { files, bytes, newest, estimated, whole } = measured;
                let newest = newest.unwrap_or(now);
                let users = processes.of(dir.path(), dir.name(), owner);
                let verdict = judge(newest, whole, users, older_than, now);
                found.candidates.push(Candidate {
                    dir,
                    identity,
                    owner,
                    files,
                    bytes,
                    estimated,
                    newest,
                    verdict,
                });
            }
            // It went meanwhile.
            Err(OpenError::NotFound { .. }) => {}
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    Ok(found)
}

impl Found {
    fn take(
        &mut self,
        listed: Result<Vec<LocalDir>, OpenError>,
        path: &str,
        depth: usize,
        stack: &mut Vec<(usize, LocalDir)>,
    ) {
        match listed {
            Ok(dirs) => {
                self.truncated |= dirs.len() == MAX_CHILDREN;
                stack.extend(dirs.into_iter().map(|dir| (depth, dir)));
            }
            Err(OpenError::NotFound { .. }) => {}
            Err(error) => self.problems.push(format!("{path}: {error}")),
        }
    }
}

struct Facts {
    identity: Identity,
    owner: u32,
    measured: Measured,
}

fn facts(roots: &LocalRoots, dir: &LocalDir, limits: MeasureLimits) -> Result<Facts, OpenError> {
    let probe = roots.probe(dir)?;
    probe.readable?;
    let measured = roots.measure(dir, None, limits, || ControlFlow::Continue(()))?;
    Ok(Facts { identity: probe.identity, owner: probe.owner, measured })
}

/// Whether a root lies in `dir`. That one is the operator's, with all that it is in.
fn holds_a_root(roots: &LocalRoots, dir: &LocalDir) -> bool {
    roots.paths().any(|root| root.starts_with(dir.path()))
}

/// Whether a directory with this name is one of Spark's, or a leftover of ours.
fn is_sparks(name: &str) -> bool {
    let of_sparks = ["blockmgr-", "spark-", "executor-"]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(is_uuid));
    of_sparks || Tombstone::parse(name).is_some()
}

/// 8-4-4-4-12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    parts.len() == lengths.len()
        && parts.iter().zip(lengths).all(|(part, length)| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

fn judge(
    newest: SystemTime,
    whole: bool,
    users: Users,
    older_than: Duration,
    now: SystemTime,
) -> Verdict {
    // Nothing if the clock was set back, or the file's was ahead: that says nothing about its age.
    let age = now.duration_since(newest).ok();
    match (users, age) {
        (Users::These(pids), _) => Verdict::HeldOpen { pids },
        (_, None) => Verdict::TooYoung { age: Duration::ZERO },
        (_, Some(age)) if age < older_than => Verdict::TooYoung { age },
        (Users::Unknown(why), _) => Verdict::CannotTell { why },
        (Users::Nobody, _) if !whole => Verdict::CannotTell {
            why: "not all of it could be looked at to see whether anything changed".to_owned(),
        },
        (Users::Nobody, _) => Verdict::Removable,
    }
}
