//! Who is due. Pure: the time is an argument (design, "What must always hold" 1 and 2).

use std::time::{Duration, Instant};

use shuffle_protocol::HeartbeatTimeout;

/// The signs of life of one application.
#[derive(Debug, Clone)]
pub struct Liveness {
    driver: Option<DriverLife>,
    /// When anything of the application was last registered or read.
    last_use: Instant,
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

/// Why an application expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The driver was silent for longer than its own timeout.
    HeartbeatTimeout,
    /// No driver ever registered and nothing was read for `shuffled.orphan.ttl`.
    NoDriver,
}

impl Reason {
    /// The word in logs, metrics and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeartbeatTimeout => "heartbeat-timeout",
            Self::NoDriver => "no-driver",
        }
    }
}

/// The service's own rule for applications without a driver.
#[derive(Debug, Clone, Copy, Default)]
pub struct OrphanPolicy {
    /// Expire them after this long without use; `None` keeps them for ever, as Spark does.
    pub ttl: Option<Duration>,
}

impl Liveness {
    /// An application that shows up at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { driver: None, last_use: now }
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

    /// An executor registers or a block is read.
    pub fn handle_use(&mut self, now: Instant) {
        self.last_use = self.last_use.max(now);
    }

    /// The service was away and may have missed signs of life: every clock begins anew.
    pub fn handle_absence(&mut self, now: Instant) {
        if let Some(driver) = &mut self.driver {
            driver.last_beat = driver.last_beat.max(now);
        }
        self.handle_use(now);
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

    /// When the application is due unless something happens before; `None` for never.
    #[must_use]
    pub fn deadline(&self, orphans: OrphanPolicy) -> Option<Instant> {
        match &self.driver {
            Some(driver) => driver.deadline(),
            None => orphans.ttl.and_then(|ttl| self.last_use.checked_add(ttl)),
        }
    }

    /// Whether the application has to go at `now`, and why. Like Spark, not at the deadline itself
    /// but only after it.
    #[must_use]
    pub fn due(&self, orphans: OrphanPolicy, now: Instant) -> Option<Reason> {
        let reason = match self.driver {
            Some(_) => Reason::HeartbeatTimeout,
            None => Reason::NoDriver,
        };
        (now > self.deadline(orphans)?).then_some(reason)
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
    const KEEP: OrphanPolicy = OrphanPolicy { ttl: None };

    fn driver(timeout: HeartbeatTimeout, now: Instant) -> Liveness {
        let mut life = Liveness::new(now);
        life.handle_driver(timeout, now);
        life
    }

    #[test]
    fn a_driver_is_due_after_its_own_timeout_and_not_before() {
        let start = Instant::now();
        let life = driver(TIMEOUT.into(), start);
        assert_eq!(life.due(KEEP, start + TIMEOUT), None);
        assert_eq!(life.due(KEEP, start + TIMEOUT + TICK), Some(Reason::HeartbeatTimeout));
    }

    #[test]
    fn each_heartbeat_buys_a_full_timeout() {
        let start = Instant::now();
        let mut life = driver(TIMEOUT.into(), start);
        for minute in 1..60 {
            let now = start + Duration::from_secs(60 * minute);
            assert_eq!(life.due(KEEP, now), None);
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
        assert_eq!(life.due(KEEP, start + TIMEOUT + TIMEOUT), None);
    }

    #[test]
    fn f1_the_largest_timeouts_never_wrap_around() {
        let start = Instant::now();
        let century = Duration::from_secs(100 * 365 * 86_400);
        for millis in [i64::MAX, i64::MAX - 1, 1 << 53] {
            let life = driver(HeartbeatTimeout::from_wire(millis).unwrap(), start);
            assert_eq!(life.due(KEEP, start + century), None, "{millis} ms");
        }
    }

    #[test]
    fn c09_without_a_driver_only_the_policy_makes_an_application_due() {
        let start = Instant::now();
        let mut life = Liveness::new(start);
        let ttl = Duration::from_secs(3600);
        let policy = OrphanPolicy { ttl: Some(ttl) };
        assert_eq!(life.due(KEEP, start + 1000 * ttl), None);
        assert_eq!(life.due(policy, start + ttl), None);
        assert_eq!(life.due(policy, start + ttl + TICK), Some(Reason::NoDriver));
        life.handle_use(start + ttl);
        assert_eq!(life.due(policy, start + ttl + TICK), None);
        life.handle_driver(HeartbeatTimeout::Never, start);
        assert_eq!(life.due(policy, start + 1000 * ttl), None, "now it has a driver");
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
        assert_eq!(life.due(KEEP, back + TIMEOUT), None, "a full timeout again");
        assert_eq!(life.due(KEEP, back + TIMEOUT + TICK), Some(Reason::HeartbeatTimeout));
        assert!(!was_away(start + period, start + period + Duration::from_secs(5), period));
    }
}
