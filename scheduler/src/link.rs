//! Keeping one subscription with the master that leads (`spec/mesos-http-api.md` §4, §8, §17).
//!
//! It decides whom to ask and when, when a stream has gone silent, and what an answer means; the I/O is
//! [`session`](crate::session)'s.

use std::time::{Duration, Instant};

use shuffled_client::ServerAddr;

use crate::masters::{self, Masters};

/// For an answer to SUBSCRIBE.
const PATIENCE: Duration = Duration::from_secs(15);
/// Wait after a first failure; doubled with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// Heartbeats that may stay away.
const MISSED_HEARTBEATS: u32 = 5;
/// Redirects that are followed in a row.
const HOPS: u32 = 5;
/// A subscription that stood for so long is no failure.
const STABLE: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Todo {
    /// Ask this master for a subscription.
    Subscribe(ServerAddr),
    /// Close the connection: nothing comes.
    Drop {
        /// For people.
        why: String,
    },
}

/// What a master answers to SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The stream is open.
    Open,
    /// Another one leads.
    Redirect(ServerAddr),
    /// Not now, or nobody is there.
    NotNow(String),
    /// No, and asking again will not change that.
    Refused(String),
}

/// Why there is no use in going on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// The framework may not subscribe. It never has.
    #[error("the master at {master} refuses the framework: {why}")]
    Refused {
        /// Which one.
        master: ServerAddr,
        /// In its words.
        why: String,
    },
    /// Another process subscribed with the same framework id.
    #[error("another process has subscribed as this framework")]
    Replaced,
    /// The framework was torn down, or not connected for longer than its failover timeout.
    #[error("the master has removed the framework: it was torn down, or away for too long")]
    Removed,
}

/// The state of the subscription.
#[derive(Debug)]
pub struct Link {
    masters: Masters,
    /// The one to ask next, of the list.
    at: usize,
    /// The last to be asked.
    master: ServerAddr,
    hops: u32,
    failures: u32,
    phase: Phase,
    /// A subscription stood once.
    established: bool,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum Phase {
    Waiting { until: Instant, leader: Option<ServerAddr> },
    Asking { until: Instant },
    Open { heard: Instant, silence: Option<Duration>, subscribed: Option<Instant> },
}

impl Link {
    /// Asks the first of them at once. `seed` spreads the waits of many schedulers.
    pub fn new(masters: Masters, seed: u64, now: Instant) -> Self {
        let master = masters.all()[0].clone();
        Self {
            masters,
            at: 0,
            master,
            hops: 0,
            failures: 0,
            phase: Phase::Waiting { until: now, leader: None },
            established: false,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The master that was asked last.
    pub fn master(&self) -> &ServerAddr {
        &self.master
    }

    /// Whether a subscription ever stood.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// What is due.
    pub fn poll(&mut self, now: Instant) -> Option<Todo> {
        if self.poll_timeout()? > now {
            return None;
        }
        match &mut self.phase {
            Phase::Waiting { leader, .. } => {
                let next = leader.take();
                self.master = next.unwrap_or_else(|| self.masters.all()[self.at].clone());
                self.phase = Phase::Asking { until: now + PATIENCE };
                Some(Todo::Subscribe(self.master.clone()))
            }
            Phase::Asking { .. } => {
                self.failed(now);
                Some(Todo::Drop { why: format!("no answer within {} s", PATIENCE.as_secs()) })
            }
            Phase::Open { silence, .. } => {
                let silence = silence.unwrap_or_default().as_secs_f64();
                self.handle_lost(now);
                Some(Todo::Drop { why: format!("not even a heartbeat for {silence:.0} s") })
            }
        }
    }

    /// When [`Link::poll`] has something.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting { until, .. } | Phase::Asking { until } => Some(until),
            Phase::Open { heard, silence, .. } => Some(heard + silence?),
        }
    }

    /// The answer to SUBSCRIBE.
    ///
    /// # Errors
    /// [`Fatal::Refused`], the first time; later whoever refuses may have second thoughts.
    pub fn handle_answer(&mut self, answer: Answer, now: Instant) -> Result<(), Fatal> {
        match answer {
            Answer::Open => {
                // The first record, SUBSCRIBED, comes at once.
                self.phase = Phase::Open { heard: now, silence: Some(PATIENCE), subscribed: None };
            }
            Answer::Redirect(leader) if self.hops < HOPS => {
                self.hops += 1;
                self.phase = Phase::Waiting { until: now, leader: Some(leader) };
            }
            Answer::Redirect(_) | Answer::NotNow(_) => self.failed(now),
            Answer::Refused(why) => return self.refused(why, now),
        }
        Ok(())
    }

    /// Something came.
    pub fn handle_record(&mut self, now: Instant) {
        if let Phase::Open { heard, .. } = &mut self.phase {
            *heard = now;
        }
    }

    /// SUBSCRIBED came, with the master's interval of heartbeats.
    pub fn handle_subscribed(&mut self, heartbeat: Option<Duration>, now: Instant) {
        self.established = true;
        self.hops = 0;
        let silence = heartbeat.map(|interval| interval.saturating_mul(MISSED_HEARTBEATS));
        self.phase = Phase::Open { heard: now, silence, subscribed: Some(now) };
    }

    /// ERROR came: the stream is over.
    ///
    /// # Errors
    /// As the variants of [`Fatal`] say.
    pub fn handle_error(&mut self, message: &str, now: Instant) -> Result<(), Fatal> {
        if message.contains("Framework failed over") {
            return Err(Fatal::Replaced);
        }
        if message.contains("Framework has been removed") {
            return Err(Fatal::Removed);
        }
        self.refused(message.to_owned(), now)
    }

    /// The stream ended, or is to be given up.
    pub fn handle_lost(&mut self, now: Instant) {
        if let Phase::Open { subscribed: Some(since), .. } = self.phase
            && now.saturating_duration_since(since) >= STABLE
        {
            self.failures = 0;
        }
        self.failed(now);
    }

    /// Ask at once, as a framework that never was.
    pub fn start_over(&mut self, now: Instant) {
        self.phase = Phase::Waiting { until: now, leader: Some(self.master.clone()) };
    }

    fn refused(&mut self, why: String, now: Instant) -> Result<(), Fatal> {
        if !self.established {
            return Err(Fatal::Refused { master: self.master.clone(), why });
        }
        self.failures = u32::MAX;
        self.failed(now);
        Ok(())
    }

    fn failed(&mut self, now: Instant) {
        self.hops = 0;
        self.at = (self.at + 1) % self.masters.all().len();
        let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let wait = doubled.min(LONGEST_WAIT).mul_f64(0.5 + self.random.f64() / 2.0);
        self.phase = Phase::Waiting { until: now + wait, leader: None };
    }
}

/// What an HTTP answer to SUBSCRIBE means.
pub(crate) fn answer(status: u16, location: Option<&str>, body: &str) -> Answer {
    let said = || {
        let text = body.trim();
        if text.is_empty() { format!("HTTP {status}") } else { format!("HTTP {status}: {text}") }
    };
    match (status, location.and_then(masters::leader)) {
        (200, _) => Answer::Open,
        (307, Some(leader)) => Answer::Redirect(leader),
        // 404 is somebody who is no master, or one whose routes are not there yet.
        (307 | 404 | 500..=599, _) => Answer::NotNow(said()),
        _ => Answer::Refused(said()),
    }
}

/// Whether a refused call says that the subscription is not the current one.
pub(crate) fn is_subscription_over(status: u16, body: &str) -> bool {
    match status {
        // Not the leader any more, or one that has just begun to be it.
        307 | 503 => true,
        403 => body.contains("not subscribed") || body.contains("not connected"),
        400 => body.contains("cannot be found") || body.contains("stream ID"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn link(masters: &str) -> (Link, Instant) {
        let now = Instant::now();
        (Link::new(masters.parse().unwrap(), 7, now), now)
    }

    fn subscribe(link: &mut Link, now: Instant) -> String {
        match link.poll(now) {
            Some(Todo::Subscribe(to)) => to.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// The time at which the next one is asked, and which it is.
    fn next(link: &mut Link) -> (Instant, String) {
        let at = link.poll_timeout().unwrap();
        (at, subscribe(link, at))
    }

    #[test]
    fn masters_are_asked_in_turn_ever_more_slowly() {
        let (mut link, mut now) = link("a:1,b:2");
        assert_eq!(subscribe(&mut link, now), "a:1");
        assert_eq!(link.poll(now), None);
        let mut longest = Duration::ZERO;
        for turn in 0..12_u32 {
            link.handle_answer(Answer::NotNow("HTTP 503".to_owned()), now).unwrap();
            let (at, to) = next(&mut link);
            assert_eq!(to, ["b:2", "a:1"][turn as usize % 2]);
            let most = (FIRST_WAIT * 2_u32.pow(turn)).min(LONGEST_WAIT);
            assert!((most / 2..=most).contains(&(at - now)), "{turn}: {:?}", at - now);
            longest = longest.max(at - now);
            now = at;
        }
        assert!(longest > LONGEST_WAIT / 2);
    }

    #[test]
    fn a_redirect_is_followed_at_once_and_not_for_ever() {
        let (mut link, now) = link("a:1");
        assert_eq!(subscribe(&mut link, now), "a:1");
        for _ in 0..HOPS {
            let to = "b:2".parse().unwrap();
            link.handle_answer(Answer::Redirect(to), now).unwrap();
            assert_eq!(subscribe(&mut link, now), "b:2");
        }
        link.handle_answer(Answer::Redirect("b:2".parse().unwrap()), now).unwrap();
        let (at, to) = next(&mut link);
        assert_eq!(to, "a:1");
        assert!(at > now);
    }

    #[test]
    fn silence_is_a_broken_connection() {
        let (mut link, now) = link("a:1");
        subscribe(&mut link, now);
        assert_eq!(
            link.poll(now + PATIENCE),
            Some(Todo::Drop { why: "no answer within 15 s".to_owned() })
        );
        let (now, _) = next(&mut link);
        link.handle_answer(Answer::Open, now).unwrap();
        link.handle_subscribed(Some(15 * SECOND), now);
        link.handle_record(now + 60 * SECOND);
        assert_eq!(link.poll(now + 134 * SECOND), None);
        let dropped = link.poll(now + 135 * SECOND);
        assert_eq!(dropped, Some(Todo::Drop { why: "not even a heartbeat for 75 s".to_owned() }));
        let (at, _) = next(&mut link);
        assert!(at - (now + 135 * SECOND) <= FIRST_WAIT, "it had been stable");
        link.handle_answer(Answer::Open, at).unwrap();
        link.handle_subscribed(None, at);
        assert_eq!(link.poll_timeout(), None, "a master without heartbeats may be silent");
    }

    #[test]
    fn what_is_refused_at_first_is_fatal_and_later_is_tried_again() {
        let (mut link, now) = link("a:1");
        subscribe(&mut link, now);
        let refused = Answer::Refused("HTTP 401".to_owned());
        let fatal = link.handle_answer(refused.clone(), now).unwrap_err();
        assert_eq!(fatal.to_string(), "the master at a:1 refuses the framework: HTTP 401");
        link.handle_answer(Answer::Open, now).unwrap();
        assert!(matches!(link.handle_error("Roles {x}", now), Err(Fatal::Refused { .. })));
        link.handle_subscribed(None, now);
        link.handle_answer(refused, now).unwrap();
        assert!(link.poll_timeout().unwrap() - now >= LONGEST_WAIT / 2, "but not in a hurry");
        assert_eq!(link.handle_error("Framework failed over", now), Err(Fatal::Replaced));
        assert_eq!(link.handle_error("Framework has been removed", now), Err(Fatal::Removed));
    }

    #[test]
    fn answers_mean_what_the_master_means_by_them() {
        let refused = |text: &str| Answer::Refused(text.to_owned());
        let not_now = |text: &str| Answer::NotNow(text.to_owned());
        for (status, location, body, meant) in [
            (200, None, "", Answer::Open),
            (307, Some("//b:2/api"), "", Answer::Redirect("b:2".parse().unwrap())),
            (307, None, "", not_now("HTTP 307")),
            (503, None, "No leader elected\n", not_now("HTTP 503: No leader elected")),
            (404, None, "", not_now("HTTP 404")),
            (401, None, "Incorrect credentials", refused("HTTP 401: Incorrect credentials")),
            (403, None, "", refused("HTTP 403")),
            (400, None, "no user", refused("HTTP 400: no user")),
        ] {
            assert_eq!(answer(status, location, body), meant);
        }
        assert!(is_subscription_over(400, "Framework cannot be found"));
        assert!(is_subscription_over(403, "Framework is not subscribed"));
        assert!(!is_subscription_over(400, "Expecting 'type' to be present"));
        assert!(!is_subscription_over(403, ""));
    }
}
