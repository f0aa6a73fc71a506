//! Which live application has which directory, and which directories are on their way out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use super::Generation;

/// What live applications have of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// All of it: one registered it, or a directory that it is in, which goes with that application.
    Whole,
    /// Something in it. When that is gone, the rest is nobody's.
    Part,
}

/// Paths are in the order of their components, so what lies below a directory follows it.
#[derive(Debug, Default)]
pub(super) struct Claims {
    owners: BTreeMap<PathBuf, BTreeSet<Generation>>,
    /// Directories that a removal has renamed; a registration that names one is told from others.
    tombstoned: BTreeSet<PathBuf>,
    /// Directories that removals are not done with, and of how many each.
    going: BTreeMap<PathBuf, usize>,
}

impl Claims {
    /// Whether it had been renamed by a removal.
    pub(super) fn add(&mut self, dir: &Path, owner: Generation) -> bool {
        self.owners.entry(dir.to_owned()).or_default().insert(owner);
        self.tombstoned.contains(dir)
    }

    pub(super) fn release(&mut self, dir: &Path, owner: Generation) {
        if let Some(owners) = self.owners.get_mut(dir) {
            owners.remove(&owner);
            if owners.is_empty() {
                self.owners.remove(dir);
            }
        }
    }

    pub(super) fn claim(&self, dir: &Path) -> Option<Claim> {
        if dir.ancestors().any(|above| self.owners.contains_key(above)) {
            return Some(Claim::Whole);
        }
        let below = (Bound::Excluded(dir), Bound::Unbounded);
        let (next, _) = self.owners.range::<Path, _>(below).next()?;
        next.starts_with(dir).then_some(Claim::Part)
    }

    pub(super) fn set_tombstoned(&mut self, dir: &Path, tombstoned: bool) {
        if tombstoned {
            self.tombstoned.insert(dir.to_owned());
        } else {
            self.tombstoned.remove(dir);
        }
    }

    pub(super) fn add_removal(&mut self, dir: &Path) {
        *self.going.entry(dir.to_owned()).or_default() += 1;
    }

    pub(super) fn end_removal(&mut self, dir: &Path) {
        if let Some(removals) = self.going.get_mut(dir) {
            *removals -= 1;
            if *removals == 0 {
                self.going.remove(dir);
            }
        }
    }

    /// Whether a directory in `dir` is on its way out, under another name perhaps: renaming `dir` would
    /// take it out of its removal's sight.
    pub(super) fn has_removal_in(&self, dir: &Path) -> bool {
        let below = (Bound::Excluded(dir), Bound::Unbounded);
        self.going.range::<Path, _>(below).next().is_some_and(|(next, _)| next.starts_with(dir))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.tombstoned.is_empty() && self.going.is_empty()
    }
}
