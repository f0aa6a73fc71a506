//! When offers are wanted: SUPPRESS and REVIVE (`spec/mesos-http-api.md` §11).
//!
//! Neither is answered, and one that is lost leaves the framework without offers. So REVIVE is repeated while
//! something is wanted and nothing is offered.

use std::time::{Duration, Instant};

use crate::conf::Care;
use crate::mesos::call::Call;

/// Between two REVIVEs at least: each makes the master think about all agents again.
const SPACING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Flow {
    suppressed: bool,
    /// Something became free.
    wish: bool,
    /// When REVIVE was last said.
    revived: Option<Instant>,
    /// Since when nothing was offered.
    quiet_since: Instant,
}

impl Flow {
    pub(super) fn new(now: Instant) -> Self {
        Self { suppressed: false, wish: false, revived: None, quiet_since: now }
    }

    pub(super) fn is_suppressed(&self) -> bool {
        self.suppressed
    }

    /// A subscription begins without filters, and suppressed as it says itself.
    pub(super) fn subscribed(&mut self, now: Instant) {
        self.wish = false;
        self.quiet_since = now;
    }

    pub(super) fn offered(&mut self, now: Instant) {
        self.quiet_since = now;
    }

    pub(super) fn want_revive(&mut self) {
        self.wish = true;
    }

    /// When [`Flow::poll`] has something to say, if nothing else happens.
    pub(super) fn timeout(&self, care: &Care, wants_more: bool) -> Option<Instant> {
        if !wants_more {
            return None;
        }
        let allowed = self.revived.map(|revived| revived + SPACING);
        if self.wish || self.suppressed {
            // None has been said yet: it is due since whatever made it so.
            return Some(allowed.unwrap_or(self.quiet_since));
        }
        let silence_ends = self.quiet_since + care.revive_interval?;
        Some(allowed.map_or(silence_ends, |allowed| allowed.max(silence_ends)))
    }

    pub(super) fn poll(&mut self, care: &Care, wants_more: bool, now: Instant) -> Option<Call> {
        if !wants_more {
            let first = care.suppress && !self.suppressed;
            self.suppressed |= first;
            return first.then_some(Call::Suppress);
        }
        if self.timeout(care, wants_more)? > now {
            return None;
        }
        *self = Self { suppressed: false, wish: false, revived: Some(now), quiet_since: now };
        Some(Call::Revive)
    }
}
