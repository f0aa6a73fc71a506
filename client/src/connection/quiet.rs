//! When a quiet connection is dead or unused (`spec/wire-framing.md` §8). Decides only: time is an
//! argument.

use std::time::{Duration, Instant};

/// Watches one connection.
///
/// Two rules. With answers owed, the connection is dead when no byte was *received* for the
/// timeout, counted from the last request at the earliest. (Spark also counts bytes it wrote; then
/// heartbeats into a black hole keep a dead connection alive for ever.) Without, the connection is
/// unused when no byte went either way.
///
/// While a reader of a body here is slower than the network, nothing is received on purpose, so
/// nothing is counted.
#[derive(Debug)]
pub(super) struct Quiet {
    timeout: Option<Duration>,
    last_received: Instant,
    last_sent: Instant,
    last_request: Instant,
    held_up_here: bool,
}

/// Why a quiet connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Answers are owed and nothing came for this long.
    Dead(Duration),
    /// Nobody used it.
    Unused,
}

impl Quiet {
    /// A zero `timeout` means never.
    pub(super) fn new(timeout: Duration, now: Instant) -> Self {
        Self {
            timeout: (!timeout.is_zero()).then_some(timeout),
            last_received: now,
            last_sent: now,
            last_request: now,
            held_up_here: false,
        }
    }

    /// Some bytes arrived.
    pub(super) fn handle_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// Some bytes of anything were taken by the socket.
    pub(super) fn handle_sent(&mut self, now: Instant) {
        self.last_sent = now;
    }

    /// A request that will be answered was queued, or some bytes of one were taken by the socket.
    pub(super) fn handle_request(&mut self, now: Instant) {
        self.last_request = now;
    }

    /// A reader here does not keep up, from now on (`true`) or until now (`false`).
    pub(super) fn handle_held_up(&mut self, held_up: bool, now: Instant) {
        self.held_up_here = held_up;
        self.last_received = now;
    }

    /// When to ask [`Quiet::handle_timeout`] next. It never moves to an earlier time than one
    /// already given, so a sleeper needs no waking.
    pub(super) fn poll_timeout(&self, owed: bool, now: Instant) -> Option<Instant> {
        let timeout = self.timeout?;
        let since = if self.held_up_here { now } else { self.since(owed) };
        since.checked_add(timeout)
    }

    /// Whether the connection is to be closed now.
    pub(super) fn handle_timeout(&self, owed: bool, now: Instant) -> Option<Verdict> {
        let timeout = self.timeout?;
        let quiet = now.saturating_duration_since(self.since(owed));
        if self.held_up_here || quiet < timeout {
            None
        } else if owed {
            Some(Verdict::Dead(quiet))
        } else {
            Some(Verdict::Unused)
        }
    }

    fn since(&self, owed: bool) -> Instant {
        let since = self.last_received.max(self.last_request);
        if owed { since } else { since.max(self.last_sent) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(120);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_request_without_any_byte_is_dead_after_the_timeout_and_not_before() {
        let start = Instant::now();
        let mut quiet = Quiet::new(T, start);
        let asked = start + 100 * SECOND;
        quiet.handle_request(asked);
        assert_eq!(quiet.poll_timeout(true, asked), Some(asked + T));
        assert_eq!(quiet.handle_timeout(true, asked + T - SECOND), None);
        assert_eq!(quiet.handle_timeout(true, asked + T), Some(Verdict::Dead(T)));
    }

    #[test]
    fn every_byte_received_counts() {
        let start = Instant::now();
        let mut quiet = Quiet::new(T, start);
        quiet.handle_request(start);
        for beat in 1..100 {
            let now = start + beat * (T - SECOND);
            assert_eq!(quiet.handle_timeout(true, now), None);
            quiet.handle_received(now);
        }
    }

    /// Heartbeats written into a black hole are no sign of life of the peer.
    #[test]
    fn bytes_sent_do_not_hide_a_dead_peer_but_count_as_use() {
        let start = Instant::now();
        let mut quiet = Quiet::new(T, start);
        quiet.handle_request(start);
        quiet.handle_sent(start + T - SECOND);
        assert_eq!(quiet.handle_timeout(true, start + T), Some(Verdict::Dead(T)));
        assert_eq!(quiet.handle_timeout(false, start + T), None);
        assert_eq!(quiet.handle_timeout(false, start + 2 * T), Some(Verdict::Unused));
    }

    #[test]
    fn a_slow_reader_here_is_not_the_peers_fault() {
        let start = Instant::now();
        let mut quiet = Quiet::new(T, start);
        quiet.handle_request(start);
        quiet.handle_held_up(true, start);
        assert_eq!(quiet.handle_timeout(true, start + 10 * T), None);
        quiet.handle_held_up(false, start + 10 * T);
        assert_eq!(quiet.handle_timeout(true, start + 11 * T - SECOND), None);
        assert_eq!(quiet.handle_timeout(true, start + 11 * T), Some(Verdict::Dead(T)));
    }

    #[test]
    fn zero_means_never() {
        let start = Instant::now();
        let quiet = Quiet::new(Duration::ZERO, start);
        assert_eq!(quiet.poll_timeout(true, start), None);
        assert_eq!(quiet.handle_timeout(true, start + 1000 * T), None);
    }

    /// The watching task sleeps until a time once given; whatever happens meanwhile may only move
    /// it later.
    #[test]
    fn the_time_to_look_again_never_moves_earlier() {
        let mut random = fastrand::Rng::with_seed(45);
        for _ in 0..200 {
            let mut now = Instant::now();
            let mut quiet = Quiet::new(T, now);
            let (mut owed, mut given) = (false, now);
            for _ in 0..200 {
                now += Duration::from_millis(random.u64(0..200_000));
                match random.u8(0..6) {
                    0 => {
                        owed = true;
                        quiet.handle_request(now);
                    }
                    1 => {
                        quiet.handle_received(now);
                        owed = false;
                    }
                    2 => quiet.handle_received(now),
                    3 => quiet.handle_sent(now),
                    4 if owed => quiet.handle_held_up(true, now),
                    _ => {
                        if quiet.held_up_here {
                            quiet.handle_held_up(false, now);
                        }
                    }
                }
                let next = quiet.poll_timeout(owed, now).unwrap();
                assert!(next >= given.min(now + T));
                given = next;
            }
        }
    }
}
