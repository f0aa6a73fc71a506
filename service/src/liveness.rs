//! Who is due. Pure: the time is an argument (design, "What must always hold" 1 and 2).

use std::time::{Duration, Instant};

use shuffle_protocol::HeartbeatTimeout;

/// The signs of life of one application, and an operator's word about it.
#[derive(Debug, Clone)]
pub struct Liveness {
    driver: Option<DriverLife>,
    /// When anything of the application was last registered or read.
    last_use: Instant,
    /// When anything of it was last read.
    last_read: Option<Instant>,
    extended_until: Option<Instant>,
    held: bool,
}

/// What is known about a registered driver.
#[derive(Debug, Clone, Copy)]
pub struct DriverLife {
    /// Its own limit.
    pub timeout: HeartbeatTimeout,
    /// Its registration or last heartbeat.
    pub last_beat: Instant,
    /// Heartbeats since the service knows the application.
    pub beats: u64,
}

impl DriverLife {
    /// When the driver counts as dead unless it beats before; `None` for never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.timeout {
            HeartbeatTimeout::Never => None,
            // A deadline that the clock cannot hold is centuries away.
            HeartbeatTimeout::After(timeout) => self.last_beat.checked_add(timeout),
        }
    }
}

/// Why something left the registry, or a directory its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The driver was silent for longer than its own timeout.
    HeartbeatTimeout,
    /// No driver ever registered and nothing was read for `shuffled.orphan.ttl`.
    NoDriver,
    /// An operator said so.
    Operator,
    /// Nobody owned the directory.
    Sweep,
    /// All directories of the application were gone already.
    DirsVanished,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::HeartbeatTimeout, Self::NoDriver, Self::Operator, Self::Sweep, Self::DirsVanished];

    /// The word in logs, metrics, JSON and the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeartbeatTimeout => "heartbeat-timeout",
            Self::NoDriver => "no-driver",
            Self::Operator => "operator",
            Self::Sweep => "sweep",
            Self::DirsVanished => "dirs-vanished",
        }
    }
}

/// The service's own rules, which the operator sets.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Applications without a driver expire after this long without use; `None` keeps them for ever,
    /// as Spark does.
    pub orphan_ttl: Option<Duration>,
    /// How long after the time at which it is due an application is kept at most because it is read.
    pub max_deferral: Duration,
    /// What drivers' timeouts are raised to.
    pub min_timeout: Duration,
    /// What drivers' timeouts are cut to; `None` takes any.
    pub max_timeout: Option<Duration>,
    /// What becomes of those that are due.
    pub cleanup: Cleanup,
}

/// Whether applications that are due go (`shuffled.cleanup`). What an operator expires goes in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cleanup {
    /// They go.
    #[default]
    On,
    /// They stay, and a record says that they would have gone.
    Report,
    /// They stay.
    Off,
}

impl Cleanup {
    /// The word in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Report => "report",
            Self::Off => "off",
        }
    }
}

impl Default for Rules {
    /// Spark's: the driver's word alone counts.
    fn default() -> Self {
        Self {
            orphan_ttl: None,
            max_deferral: Duration::ZERO,
            min_timeout: Duration::ZERO,
            max_timeout: None,
            cleanup: Cleanup::On,
        }
    }
}

impl Rules {
    /// A driver's timeout within the operator's bounds.
    #[must_use]
    pub fn bound(&self, asked: HeartbeatTimeout) -> HeartbeatTimeout {
        let least = HeartbeatTimeout::from(self.min_timeout);
        let most = self.max_timeout.map_or(HeartbeatTimeout::Never, HeartbeatTimeout::from);
        asked.max(least).min(most)
    }
}

impl Liveness {
    /// An application that shows up at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { driver: None, last_use: now, last_read: None, extended_until: None, held: false }
    }

    /// The driver registers, or registers again: the timeout is the new one and begins anew.
    pub fn handle_driver(&mut self, timeout: HeartbeatTimeout, now: Instant) {
        let beats = self.driver.map_or(0, |driver| driver.beats);
        self.driver = Some(DriverLife { timeout, last_beat: now, beats });
    }

    /// The driver beats. False when no driver ever registered, which leaves everything as it was.
    pub fn handle_heartbeat(&mut self, now: Instant) -> bool {
        let Some(driver) = &mut self.driver else { return false };
        // Beats come from several connections; a late one must not turn the clock back.
        driver.last_beat = driver.last_beat.max(now);
        driver.beats += 1;
        true
    }

    /// An executor registers.
    pub fn handle_use(&mut self, now: Instant) {
        self.last_use = self.last_use.max(now);
    }

    /// A block is read.
    pub fn handle_read(&mut self, now: Instant) {
        self.handle_use(now);
        self.last_read = self.last_read.max(Some(now));
    }

    /// The service was away and may have missed signs of life: every clock begins anew.
    pub fn handle_absence(&mut self, now: Instant) {
        if let Some(driver) = &mut self.driver {
            driver.last_beat = driver.last_beat.max(now);
        }
        self.handle_use(now);
    }

    /// An operator keeps the application until then at least.
    pub fn extend(&mut self, until: Instant) {
        self.extended_until = self.extended_until.max(Some(until));
    }

    /// An operator keeps the application until it is released.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// An operator lets the application go its way again. It has a full timeout, since nobody watched
    /// its clock.
    pub fn release(&mut self, now: Instant) {
        self.held = false;
        self.extended_until = None;
        self.handle_absence(now);
    }

    /// Whether an operator keeps it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// The driver, if one registered.
    #[must_use]
    pub fn driver(&self) -> Option<&DriverLife> {
        self.driver.as_ref()
    }

    /// When anything of the application was last registered or read.
    #[must_use]
    pub fn last_use(&self) -> Instant {
        self.last_use
    }

    /// When the application is due unless something happens before; `None` for never. `being_read` is
    /// whether streams of its blocks are open.
    #[must_use]
    pub fn deadline(&self, rules: &Rules, being_read: bool) -> Option<Instant> {
        if self.held {
            return None;
        }
        let (base, grace) = match &self.driver {
            Some(driver) => (driver.deadline()?, driver.timeout.as_duration()?),
            None => {
                let ttl = rules.orphan_ttl?;
                (self.last_use.checked_add(ttl)?, ttl)
            }
        };
        let at_most = base.checked_add(rules.max_deferral)?;
        let read = if being_read {
            Some(at_most)
        } else {
            self.last_read.map(|read| read.checked_add(grace).unwrap_or(at_most))
        };
        let deferred = base.max(read.map_or(base, |read| read.min(at_most)));
        Some(deferred.max(self.extended_until.unwrap_or(deferred)))
    }

    /// Whether the application has to go at `now`, and why. Like Spark, not at the deadline itself
    /// but only after it.
    #[must_use]
    pub fn due(&self, rules: &Rules, being_read: bool, now: Instant) -> Option<Reason> {
        let reason = match self.driver {
            Some(_) => Reason::HeartbeatTimeout,
            None => Reason::NoDriver,
        };
        (now > self.deadline(rules, being_read)?).then_some(reason)
    }
}

/// Whether a check that was to happen at `scheduled`, every `period`, comes so late at `now` that the
/// service itself was away in between: stopped, suspended, or starved of its processor.
#[must_use]
pub fn was_away(scheduled: Instant, now: Instant, period: Duration) -> bool {
    /// What a busy machine may well take to wake a task.
    const TOLERATED: Duration = Duration::from_secs(10);
    now.saturating_duration_since(scheduled) > period.min(TOLERATED)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(120);
    const TICK: Duration = Duration::from_millis(1);
    const KEEP: Rules = Rules {
        orphan_ttl: None,
        max_deferral: Duration::ZERO,
        min_timeout: Duration::ZERO,
        max_timeout: None,
        cleanup: Cleanup::On,
    };

    fn driver(timeout: HeartbeatTimeout, now: Instant) -> Liveness {
        let mut life = Liveness::new(now);
        life.handle_driver(timeout, now);
        life
    }

    #[test]
    fn a_driver_is_due_after_its_own_timeout_and_not_before() {
        let start = Instant::now();
        let life = driver(TIMEOUT.into(), start);
        assert_eq!(life.due(&KEEP, false, start + TIMEOUT), None);
        assert_eq!(life.due(&KEEP, false, start + TIMEOUT + TICK), Some(Reason::HeartbeatTimeout));
    }

    #[test]
    fn each_heartbeat_buys_a_full_timeout() {
        let start = Instant::now();
        let mut life = driver(TIMEOUT.into(), start);
        for minute in 1..60 {
            let now = start + Duration::from_secs(60 * minute);
            assert_eq!(life.due(&KEEP, false, now), None);
            assert!(life.handle_heartbeat(now));
        }
        assert_eq!(life.driver().unwrap().beats, 59);
    }

    #[test]
    fn a_heartbeat_that_was_overtaken_does_not_turn_the_clock_back() {
        let start = Instant::now();
        let mut life = driver(TIMEOUT.into(), start);
        life.handle_heartbeat(start + TIMEOUT);
        life.handle_heartbeat(start + TICK);
        assert_eq!(life.due(&KEEP, false, start + TIMEOUT + TIMEOUT), None);
    }

    #[test]
    fn f1_the_largest_timeouts_never_wrap_around() {
        let start = Instant::now();
        let century = Duration::from_secs(100 * 365 * 86_400);
        for millis in [i64::MAX, i64::MAX - 1, 1 << 53] {
            let life = driver(HeartbeatTimeout::from_wire(millis).unwrap(), start);
            assert_eq!(life.due(&KEEP, false, start + century), None, "{millis} ms");
        }
    }

    #[test]
    fn c09_without_a_driver_only_the_policy_makes_an_application_due() {
        let start = Instant::now();
        let mut life = Liveness::new(start);
        let ttl = Duration::from_secs(3600);
        let policy = Rules { orphan_ttl: Some(ttl), ..KEEP };
        assert_eq!(life.due(&KEEP, false, start + 1000 * ttl), None);
        assert_eq!(life.due(&policy, false, start + ttl), None);
        assert_eq!(life.due(&policy, false, start + ttl + TICK), Some(Reason::NoDriver));
        life.handle_use(start + ttl);
        assert_eq!(life.due(&policy, false, start + ttl + TICK), None);
        life.handle_driver(HeartbeatTimeout::Never, start);
        assert_eq!(life.due(&policy, false, start + 1000 * ttl), None, "now it has a driver");
    }

    #[test]
    fn a_heartbeat_without_a_driver_changes_nothing() {
        let start = Instant::now();
        let mut life = Liveness::new(start);
        assert!(!life.handle_heartbeat(start));
        assert!(life.driver().is_none());
    }

    #[test]
    fn c17_the_services_own_absence_does_not_count() {
        let start = Instant::now();
        let period = Duration::from_secs(30);
        let mut life = driver(TIMEOUT.into(), start);
        let back = start + Duration::from_secs(600);
        assert!(was_away(start + period, back, period));
        life.handle_absence(back);
        assert_eq!(life.due(&KEEP, false, back + TIMEOUT), None, "a full timeout again");
        assert_eq!(life.due(&KEEP, false, back + TIMEOUT + TICK), Some(Reason::HeartbeatTimeout));
        assert!(!was_away(start + period, start + period + Duration::from_secs(5), period));
    }

    #[test]
    fn reads_defer_the_end_for_a_while_and_not_for_ever() {
        let start = Instant::now();
        let rules = Rules { max_deferral: 3 * TIMEOUT, ..KEEP };
        let mut life = driver(TIMEOUT.into(), start);
        life.handle_read(start + TIMEOUT / 2);
        assert_eq!(life.deadline(&KEEP, false), Some(start + TIMEOUT), "Spark's rule");
        assert_eq!(life.deadline(&rules, false), Some(start + TIMEOUT + TIMEOUT / 2));
        assert_eq!(life.deadline(&rules, true), Some(start + 4 * TIMEOUT), "a stream is open");
        for minute in 0..60 {
            life.handle_read(start + Duration::from_secs(60 * minute));
        }
        assert_eq!(life.deadline(&rules, false), Some(start + 4 * TIMEOUT));
    }

    #[test]
    fn reads_before_the_last_heartbeat_change_nothing() {
        let start = Instant::now();
        let rules = Rules { max_deferral: 3 * TIMEOUT, ..KEEP };
        let mut life = driver(TIMEOUT.into(), start);
        life.handle_read(start);
        life.handle_heartbeat(start + TICK);
        assert_eq!(life.deadline(&rules, false), Some(start + TICK + TIMEOUT));
    }

    #[test]
    fn c02_what_an_operator_holds_is_never_due_and_has_a_full_timeout_afterwards() {
        let start = Instant::now();
        let mut life = driver(TIMEOUT.into(), start);
        life.hold();
        assert_eq!(life.due(&KEEP, false, start + 1000 * TIMEOUT), None);
        life.release(start + 1000 * TIMEOUT);
        assert_eq!(life.due(&KEEP, false, start + 1001 * TIMEOUT), None);
        assert!(life.due(&KEEP, false, start + 1001 * TIMEOUT + TICK).is_some());
    }

    #[test]
    fn c02_an_extension_never_shortens() {
        let start = Instant::now();
        let mut life = driver(TIMEOUT.into(), start);
        life.extend(start + 5 * TIMEOUT);
        life.extend(start + TICK);
        assert_eq!(life.deadline(&KEEP, false), Some(start + 5 * TIMEOUT));
        life.handle_heartbeat(start + 10 * TIMEOUT);
        assert_eq!(life.deadline(&KEEP, false), Some(start + 11 * TIMEOUT));
    }

    #[test]
    fn f3_timeouts_are_kept_within_the_operators_bounds() {
        let second = Duration::from_secs(1);
        let rules = Rules { min_timeout: second, max_timeout: Some(TIMEOUT), ..KEEP };
        assert_eq!(rules.bound(TICK.into()), second.into());
        assert_eq!(rules.bound(HeartbeatTimeout::Never), TIMEOUT.into());
        assert_eq!(rules.bound((2 * second).into()), (2 * second).into());
        assert_eq!(KEEP.bound(HeartbeatTimeout::Never), HeartbeatTimeout::Never);
    }
}
