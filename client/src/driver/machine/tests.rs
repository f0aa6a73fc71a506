use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn rules() -> Rules {
    Rules {
        timeout: HeartbeatTimeout::After(120 * SECOND),
        interval: 10 * SECOND,
        patience: 10 * SECOND,
        confirm: 60 * SECOND,
        first_wait: SECOND,
        longest_wait: 30 * SECOND,
    }
}

/// A machine and its clock.
struct Driven {
    machine: Machine<&'static str>,
    now: Instant,
}

impl Driven {
    fn new() -> Self {
        let now = Instant::now();
        Self { machine: Machine::new(rules(), now), now }
    }

    fn registered() -> Self {
        let mut driven = Self::new();
        assert_eq!(driven.poll(), Some(Action::Register));
        driven.machine.handle_acknowledged(driven.now);
        assert_eq!(driven.poll(), Some(Action::Beat), "the first beat follows at once");
        driven.machine.handle_beaten();
        driven
    }

    fn poll(&mut self) -> Option<Action> {
        self.machine.poll(self.now)
    }

    fn fail(&mut self) {
        self.machine.handle_failed(self.now, "broken", 1.0);
    }

    /// Waits as long as the machine wants to, and polls.
    fn wait(&mut self) -> Option<Action> {
        assert_eq!(self.poll(), None);
        self.now = self.machine.poll_timeout();
        self.poll()
    }

    fn is_registered(&self) -> bool {
        matches!(self.machine.state(), State::Registered { .. })
    }
}

#[test]
fn f7_not_registered_before_the_acknowledgement() {
    let mut driven = Driven::new();
    assert_eq!(driven.poll(), Some(Action::Register));
    assert_eq!(driven.poll(), None);
    assert!(!driven.is_registered());
    driven.machine.handle_beaten(); // of nothing that was asked for
    assert!(!driven.is_registered());
    driven.machine.handle_acknowledged(driven.now);
    assert!(driven.is_registered());
}

#[test]
fn f7_an_unanswered_registration_is_given_up_and_made_again() {
    let mut driven = Driven::new();
    let start = driven.now;
    assert_eq!(driven.poll(), Some(Action::Register));
    assert_eq!(driven.wait(), Some(Action::GiveUp));
    assert_eq!(driven.now, start + rules().patience);
    driven.fail();
    assert!(matches!(driven.machine.state(), State::Waiting { attempt: 1, .. }));
    assert_eq!(driven.wait(), Some(Action::Register));
    assert!(matches!(driven.machine.state(), State::Registering { attempt: 2, .. }));
}

#[test]
fn an_acknowledgement_that_comes_after_the_failure_counts_for_nothing() {
    let mut driven = Driven::new();
    driven.poll();
    driven.fail();
    driven.machine.handle_acknowledged(driven.now);
    assert!(!driven.is_registered());
}

#[test]
fn beats_come_at_a_fixed_rate() {
    let mut driven = Driven::registered();
    let start = driven.now;
    for beat in 1..=5 {
        assert_eq!(driven.wait(), Some(Action::Beat));
        assert_eq!(driven.now, start + beat * rules().interval);
        driven.now += SECOND; // the sending takes its time
        driven.machine.handle_beaten();
    }
    assert!(matches!(driven.machine.state(), State::Registered { beats: 6, .. }));
}

#[test]
fn missed_beats_are_not_made_up_for() {
    let mut driven = Driven::registered();
    driven.now += 35 * SECOND;
    assert_eq!(driven.poll(), Some(Action::Beat));
    driven.machine.handle_beaten();
    assert_eq!(driven.poll(), None);
    assert_eq!(driven.machine.poll_timeout(), driven.now + 10 * SECOND);
}

#[test]
fn every_so_often_a_registration_takes_the_place_of_a_beat() {
    let mut driven = Driven::registered();
    let mut sent = Vec::new();
    for _ in 0..13 {
        let action = driven.wait().unwrap();
        match action {
            Action::Beat => driven.machine.handle_beaten(),
            Action::Register => driven.machine.handle_acknowledged(driven.now),
            Action::GiveUp => panic!(),
        }
        assert!(driven.is_registered());
        sent.push(action);
    }
    let at: Vec<_> = (0..13).filter(|&i| sent[i] == Action::Register).collect();
    assert_eq!(at, [5, 11], "at 60 s and at 120 s");
}

#[test]
fn a_confirmation_that_is_not_acknowledged_ends_the_registration() {
    let mut driven = Driven::registered();
    loop {
        match driven.wait().unwrap() {
            Action::Beat => driven.machine.handle_beaten(),
            Action::Register => break,
            Action::GiveUp => panic!(),
        }
    }
    assert!(driven.is_registered());
    assert_eq!(driven.wait(), Some(Action::GiveUp));
    driven.fail();
    assert!(!driven.is_registered());
    assert_eq!(driven.wait(), Some(Action::Register));
}

#[test]
fn a_beat_that_cannot_be_sent_ends_the_registration() {
    let mut driven = Driven::registered();
    assert_eq!(driven.wait(), Some(Action::Beat));
    assert_eq!(driven.wait(), Some(Action::GiveUp));
}

#[test]
fn c01_after_a_break_a_registration_follows_and_no_beat() {
    let mut driven = Driven::registered();
    driven.now += 3 * SECOND;
    driven.fail();
    assert_eq!(driven.wait(), Some(Action::Register));
    driven.machine.handle_acknowledged(driven.now);
    assert_eq!(driven.poll(), Some(Action::Beat));
}

/// The process was stopped for longer than the service waits: it may have removed the application.
#[test]
fn after_a_long_pause_a_registration_comes_first() {
    let mut driven = Driven::registered();
    driven.now += 119 * SECOND;
    assert_eq!(driven.poll(), Some(Action::Register), "a confirmation was due in any case");
    assert!(driven.is_registered());
    driven.machine.handle_acknowledged(driven.now);
    driven.now += 121 * SECOND;
    assert_eq!(driven.poll(), Some(Action::Register));
    assert!(!driven.is_registered(), "until the service has answered, nobody knows");
}

#[test]
fn waits_double_up_to_the_longest_and_chance_takes_up_to_half() {
    let mut driven = Driven::new();
    let mut waits = Vec::new();
    for _ in 0..8 {
        driven.poll();
        driven.fail();
        waits.push((driven.machine.poll_timeout() - driven.now).as_secs());
        driven.now = driven.machine.poll_timeout();
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);

    let mut driven = Driven::new();
    driven.poll();
    driven.machine.handle_failed(driven.now, "broken", 0.0);
    assert_eq!(driven.machine.poll_timeout() - driven.now, SECOND / 2);
}

#[test]
fn a_service_that_acknowledges_and_breaks_is_not_hammered() {
    let mut driven = Driven::new();
    let start = driven.now;
    for _ in 0..10 {
        assert_eq!(driven.poll(), Some(Action::Register));
        driven.machine.handle_acknowledged(driven.now);
        driven.fail();
        driven.now = driven.machine.poll_timeout();
    }
    assert!(driven.now - start > 120 * SECOND, "waits grow although every attempt is answered");
    // After it stayed for an interval, waits are short again.
    assert_eq!(driven.poll(), Some(Action::Register));
    driven.machine.handle_acknowledged(driven.now);
    driven.now += rules().interval;
    driven.fail();
    assert_eq!(driven.machine.poll_timeout(), driven.now + SECOND);
}

#[test]
fn failures_without_end_do_not_overflow() {
    let mut driven = Driven::new();
    driven.machine.failures = u32::MAX - 1;
    for _ in 0..3 {
        driven.poll();
        driven.fail();
        assert_eq!(driven.machine.poll_timeout() - driven.now, rules().longest_wait);
        driven.now = driven.machine.poll_timeout();
    }
}

/// The service at the other end of the simulation, with what the network does to it.
struct World {
    random: fastrand::Rng,
    /// It runs and can be reached.
    up: bool,
    /// Bytes vanish, but connections stay.
    black_hole: bool,
    /// The connection that the driver has; gone with a break.
    connected: bool,
    /// Whether that connection carried an acknowledged registration.
    acknowledged: bool,
    /// When the service last heard from the application; `None` if it does not know it.
    known_since: Option<Instant>,
}

impl World {
    fn change(&mut self) {
        match self.random.u8(0..8) {
            0 => {
                // Killed, with everything it knew.
                self.up = false;
                self.known_since = None;
                self.connected = false;
            }
            1 => self.connected = false,
            2 => self.black_hole = true,
            _ => {
                self.up = true;
                self.black_hole = false;
            }
        }
    }

    fn is_well(&self) -> bool {
        self.up && !self.black_hole
    }
}

/// Any schedule of restarts, breaks and black holes. `SHUFFLED_SEED` replays one.
#[test]
fn simulation() {
    let seeds = match std::env::var("SHUFFLED_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("SHUFFLED_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..2000,
    };
    for seed in seeds {
        println!("SHUFFLED_SEED={seed}");
        simulate(seed);
    }
}

fn simulate(seed: u64) {
    let start = Instant::now();
    let timeout = 120 * SECOND;
    let mut now = start;
    let mut machine = Machine::new(rules(), now);
    let mut world = World {
        random: fastrand::Rng::with_seed(seed),
        up: true,
        black_hole: false,
        connected: false,
        acknowledged: false,
        known_since: None,
    };
    let mut change_at = now;
    let mut well_since = Some(now);
    let mut doing: Option<(Action, Instant)> = None; // what, and when it is done
    let mut steps = 0;
    while now < start + 3600 * SECOND {
        steps += 1;
        assert!(steps < 20_000, "the machine spins");

        while let Some(action) = machine.poll(now) {
            match action {
                Action::GiveUp => {
                    doing = None;
                    world.connected = false;
                    world.acknowledged = false;
                    machine.handle_failed(now, "given up", world.random.f64());
                }
                Action::Register | Action::Beat => {
                    assert!(doing.is_none(), "one thing at a time");
                    if action == Action::Beat {
                        assert!(world.acknowledged, "a beat where nothing was registered");
                    }
                    let takes = Duration::from_millis(world.random.u64(0..9_000));
                    doing = Some((action, now + takes));
                }
            }
        }
        if let State::Registered { .. } = machine.state() {
            assert!(world.acknowledged, "counted as registered without acknowledgement");
        }

        // What happens next: the driver's timer, the end of what it does, or the world.
        let done_at = doing.map(|(_, at)| at);
        let next = [Some(machine.poll_timeout()), done_at, Some(change_at)];
        let next = next.into_iter().flatten().min().expect("a timer at least");
        now = now.max(next);

        if now >= change_at {
            let was_connected = world.connected;
            world.change();
            change_at = now + Duration::from_millis(world.random.u64(1_000..200_000));
            match (world.is_well(), well_since) {
                (true, None) => well_since = Some(now),
                (false, Some(_)) => well_since = None,
                _ => {}
            }
            if was_connected && !world.connected {
                well_since = well_since.map(|_| now);
                world.acknowledged = false;
                doing = None;
                machine.handle_failed(now, "broken", world.random.f64());
                continue;
            }
        }
        if let Some((action, at)) = doing
            && now >= at
        {
            match action {
                Action::Register if world.black_hole => doing = None, // never answered
                Action::Register if world.up => {
                    doing = None;
                    world.connected = true;
                    world.acknowledged = true;
                    world.known_since = Some(now);
                    machine.handle_acknowledged(now);
                }
                Action::Register => {
                    doing = None;
                    machine.handle_failed(now, "refused", world.random.f64());
                }
                // A beat into a black hole looks like any other.
                _ => {
                    doing = None;
                    if !world.black_hole {
                        world.known_since = world.known_since.map(|_| now);
                    }
                    machine.handle_beaten();
                }
            }
        }
        if let Some(heard) = world.known_since
            && now.saturating_duration_since(heard) > timeout
        {
            assert!(
                well_since.is_none_or(|since| now < since + timeout),
                "the application expired although all was well"
            );
            world.known_since = None;
        }
        // A confirmation, an unanswered one, the longest wait, and a registration.
        let settled = 60 * SECOND + 10 * SECOND + 30 * SECOND + 10 * SECOND;
        if well_since.is_some_and(|since| now > since + 2 * settled) {
            assert!(world.known_since.is_some(), "all is well, and the service does not know it");
        }
    }
}
