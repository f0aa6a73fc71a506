//! Directories of Spark's that nobody owns: left by drivers that were killed, by a service that forgot
//! what was registered, by a job whose executors never registered (complaints C10 and C11).
//!
//! Only what is shaped as Spark shapes it is ever looked at, and never by its name alone: nothing in it
//! may have changed for a while, no process may use it, and no application may have it.

mod processes;
#[cfg(test)]
mod tests;

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
/// Directories that are looked at in one sweep.
const MAX_DIRS: usize = 100_000;

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
) -> Result<Found, SweepError> {
    find_with(roots, claim, ours, older_than, now, Path::new("/proc"))
}

fn find_with(
    roots: &LocalRoots,
    claim: impl Fn(&LocalDir) -> Option<Claim>,
    ours: impl Fn(&LocalDir) -> bool,
    older_than: Duration,
    now: SystemTime,
    proc: &Path,
) -> Result<Found, SweepError> {
    if !roots.is_restricted() {
        return Err(SweepError::NoRoots);
    }
    let mut found = Found::default();
    let mut unowned = Vec::new();
    // Depth first, with what is still to be looked at.
    let mut stack: Vec<(usize, LocalDir)> = Vec::new();
    for (root, listed) in roots.list_roots() {
        found.take(listed.map(|dirs| stack.extend(dirs.into_iter().map(|dir| (1, dir)))), &root);
    }
    let mut looked_at = 0;
    while let Some((depth, dir)) = stack.pop() {
        looked_at += 1;
        if looked_at > MAX_DIRS {
            found.truncated = true;
            break;
        }
        if !is_sparks(dir.name()) || ours(&dir) {
            continue;
        }
        match claim(&dir) {
            Some(Claim::Whole) => {}
            // What lies beside the directories that somebody has.
            Some(Claim::Part) if depth < MAX_DEPTH => {
                let listed = roots.list(&dir).map(|dirs| {
                    found.truncated |= dirs.len() == MAX_CHILDREN;
                    stack.extend(dirs.into_iter().map(|dir| (depth + 1, dir)));
                });
                found.take(listed, dir.path());
            }
            Some(Claim::Part) => {}
            None => unowned.push(dir),
        }
    }
    unowned.sort();
    // After the directories: a process that opened one since has been counted, one that ended has not.
    let processes = Processes::look(proc);
    for dir in unowned {
        match facts(roots, &dir) {
            Ok((identity, owner, measured)) => {
                let Measured { files, bytes, newest, estimated } = measured;
                let newest = newest.unwrap_or(now);
                let users = processes.of(dir.path(), dir.name(), owner);
                let verdict = judge(newest, users, older_than, now);
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
    fn take(&mut self, listed: Result<(), OpenError>, path: &str) {
        match listed {
            Ok(()) | Err(OpenError::NotFound { .. }) => {}
            Err(error) => self.problems.push(format!("{path}: {error}")),
        }
    }
}

fn facts(roots: &LocalRoots, dir: &LocalDir) -> Result<(Identity, u32, Measured), OpenError> {
    let probe = roots.probe(dir)?;
    probe.readable?;
    let go_on = || std::ops::ControlFlow::Continue(());
    let measured = roots.measure(dir, None, MeasureLimits::default(), go_on)?;
    Ok((probe.identity, probe.owner, measured))
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

fn judge(newest: SystemTime, users: Users, older_than: Duration, now: SystemTime) -> Verdict {
    let age = now.duration_since(newest).unwrap_or_default();
    match users {
        Users::These(pids) => Verdict::HeldOpen { pids },
        _ if age < older_than => Verdict::TooYoung { age },
        Users::Unknown(why) => Verdict::CannotTell { why },
        Users::Nobody => Verdict::Removable,
    }
}
