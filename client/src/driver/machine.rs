//! What a registration does next. Decides only: time and chance are arguments.

use std::time::{Duration, Instant};

use shuffle_protocol::HeartbeatTimeout;

/// The rules of one registration; every duration is positive.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) timeout: HeartbeatTimeout,
    /// Between two heartbeats.
    pub(super) interval: Duration,
    /// For connecting and the acknowledgement together, and for handing a heartbeat to the network.
    pub(super) patience: Duration,
    /// Between two acknowledged registrations.
    pub(super) confirm: Duration,
    /// The longest first wait after a failure.
    pub(super) first_wait: Duration,
    /// The longest wait ever.
    pub(super) longest_wait: Duration,
}

/// What the shell is to do. Each is answered by one of the `handle_*` methods, but
/// [`Action::GiveUp`], which is to be followed by [`Machine::handle_failed`] too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Send a registration, on the connection there is or a new one, and wait for the answer.
    Register,
    /// Send a heartbeat on the connection that was registered.
    Beat,
    /// What was asked for takes too long: drop it and the connection.
    GiveUp,
}

/// Where a registration stands; `E` says what went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State<E> {
    /// Connecting, or waiting for the acknowledgement.
    Registering {
        /// Counts from 1.
        attempt: u32,
        /// Sent at, once it was.
        asked: Option<Instant>,
    },
    /// Acknowledged and not broken since.
    Registered {
        since: Instant,
        /// Handed to the network since then.
        beats: u64,
    },
    /// Something broke, or the service refused.
    Waiting { attempt: u32, error: E, until: Instant },
}

/// One registration with one service.
///
/// Call [`Machine::poll`] until it gives `None`, then wait for [`Machine::poll_timeout`] or for
/// something to report by one of the `handle_*` methods, and begin again.
///
/// A connection that broke means that the service may have been restarted and forgotten everything,
/// so a heartbeat never follows a break: a registration does. The same after a heartbeat so late
/// that the service may have given the driver up. And every `confirm` a registration takes the place
/// of a heartbeat: heartbeats are never answered, so without it nobody would notice that they end in
/// a black hole, or at a service that does not know the application.
#[derive(Debug)]
pub(super) struct Machine<E> {
    rules: Rules,
    state: State<E>,
    /// Failures since it last stayed registered for an interval.
    failures: u32,
    /// What the shell was asked to do while registered and has not reported yet: what, and when.
    asked: Option<(Action, Instant)>,
    /// When the service last heard from this driver, at the earliest possible.
    last_sign: Instant,
    next_beat: Instant,
    next_confirm: Instant,
}

impl<E> Machine<E> {
    pub(super) fn new(rules: Rules, now: Instant) -> Self {
        Self {
            rules,
            state: State::Registering { attempt: 1, asked: None },
            failures: 0,
            asked: None,
            last_sign: now,
            next_beat: now,
            next_confirm: now,
        }
    }

    pub(super) fn state(&self) -> &State<E> {
        &self.state
    }

    /// What is to be done now, if anything.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Action> {
        match &mut self.state {
            State::Waiting { until, .. } if now < *until => None,
            State::Waiting { .. } => {
                self.state = State::Registering {
                    attempt: self.failures.saturating_add(1),
                    asked: Some(now),
                };
                Some(Action::Register)
            }
            State::Registering { asked: asked @ None, .. } => {
                *asked = Some(now);
                Some(Action::Register)
            }
            State::Registering { asked: Some(asked), .. } => {
                (now.saturating_duration_since(*asked) >= self.rules.patience)
                    .then_some(Action::GiveUp)
            }
            State::Registered { .. } => self.poll_registered(now),
        }
    }

    fn poll_registered(&mut self, now: Instant) -> Option<Action> {
        if let Some((_, since)) = self.asked {
            let late = now.saturating_duration_since(since) >= self.rules.patience;
            return late.then_some(Action::GiveUp);
        }
        if now < self.next_beat {
            return None;
        }
        if let HeartbeatTimeout::After(timeout) = self.rules.timeout
            && now.saturating_duration_since(self.last_sign) >= timeout
        {
            // This process was stopped for longer than the service waits.
            self.state = State::Registering { attempt: 1, asked: Some(now) };
            return Some(Action::Register);
        }
        // A fixed rate, but beats that were missed are not made up for.
        self.next_beat += self.rules.interval;
        if self.next_beat <= now {
            self.next_beat = now + self.rules.interval;
        }
        let action = if now >= self.next_confirm { Action::Register } else { Action::Beat };
        self.asked = Some((action, now));
        Some(action)
    }

    /// When to poll again at the latest.
    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.state {
            State::Waiting { until, .. } => *until,
            State::Registering { asked: Some(asked), .. } => *asked + self.rules.patience,
            State::Registering { asked: None, .. } => self.last_sign, // at once
            State::Registered { .. } => match self.asked {
                Some((_, since)) => since + self.rules.patience,
                None => self.next_beat,
            },
        }
    }

    /// The service acknowledged the registration that [`Action::Register`] asked for.
    pub(super) fn handle_acknowledged(&mut self, now: Instant) {
        match &self.state {
            State::Registering { asked, .. } => {
                self.last_sign = asked.unwrap_or(now);
                self.asked = None;
                self.next_beat = now; // at once, as Spark
                self.state = State::Registered { since: now, beats: 0 };
            }
            State::Registered { .. } => {
                if let Some((_, sent)) = self.asked.take() {
                    self.last_sign = sent;
                }
            }
            State::Waiting { .. } => return, // too late, it was given up
        }
        self.next_confirm = now + self.rules.confirm;
    }

    /// The heartbeat that [`Action::Beat`] asked for is with the network.
    pub(super) fn handle_beaten(&mut self) {
        if let State::Registered { beats, .. } = &mut self.state
            && let Some((Action::Beat, sent)) = self.asked
        {
            *beats += 1;
            self.last_sign = sent;
            self.asked = None;
        }
    }

    /// Connecting or sending failed, the service refused, the connection ended, or the shell was
    /// told to give up. `chance` is a random number in `0.0..1.0`, so that a thousand drivers do not
    /// come back to a restarted service at once.
    pub(super) fn handle_failed(&mut self, now: Instant, error: E, chance: f64) {
        if let State::Registered { since, .. } = self.state
            && now.saturating_duration_since(since) >= self.rules.interval
        {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let doubled = 1u32.checked_shl(self.failures - 1).unwrap_or(u32::MAX);
        let longest = self.rules.first_wait.saturating_mul(doubled).min(self.rules.longest_wait);
        let wait = longest.div_f64(2.0) + longest.div_f64(2.0).mul_f64(chance.clamp(0.0, 1.0));
        self.asked = None;
        self.state = State::Waiting { attempt: self.failures, error, until: now + wait };
    }
}

#[cfg(test)]
mod tests;
