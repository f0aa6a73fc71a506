//! The task that ticks: asks who is due and hands them to the reaper.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{info, warn};

use crate::apps::{AppRegistry, Expired};
use crate::blocks::Blocks;
use crate::liveness::was_away;
use crate::metrics::Metrics;
use crate::reaper::Reaper;

/// What a check needs.
#[derive(Debug)]
pub struct Cleaner {
    /// Who is registered.
    pub registry: Arc<AppRegistry>,
    /// Where cached things of an application are.
    pub blocks: Arc<Blocks>,
    /// Who removes directories.
    pub reaper: Arc<Reaper>,
    /// Told after every check that expired something.
    pub expiries: watch::Sender<()>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Cleaner {
    /// Checks every `period` for ever; the first time after one period.
    pub async fn run(&self, period: Duration) {
        /// Ticks in between find out how long this process was stopped, which may well have ended just
        /// before a check.
        const PULSE: Duration = Duration::from_secs(1);
        let pulse = PULSE.min(period);
        let mut ticks = interval_at(Instant::now() + pulse, pulse);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_check = Instant::now().into_std().checked_add(period);
        let mut held_up = false;
        loop {
            let scheduled = ticks.tick().await.into_std();
            let now = Instant::now().into_std();
            let late = now.saturating_duration_since(scheduled);
            if was_away(scheduled, now, period) {
                warn!(
                    late_ms = late.as_millis(),
                    "This service was stopped or starved; every application gets a full timeout again"
                );
                self.registry.handle_absence(now);
            }
            // Heartbeats that came while this process was held up wait in their sockets, and are to be
            // read first. Once: on a machine that is always late, nothing would ever go.
            held_up = late >= pulse && !held_up;
            if held_up {
                continue;
            }
            if next_check.is_some_and(|at| now >= at) {
                next_check = now.checked_add(period);
                self.check(now);
            }
        }
    }

    /// Expires everything that is due at `now`.
    pub fn check(&self, now: std::time::Instant) {
        let mut all = Vec::new();
        self.registry.expire_due(now, |expired| all.push(expired));
        self.handle_expired(all, now);
    }

    /// Sees to the directories of what left the registry, and to what else is kept of it.
    pub fn handle_expired(&self, all: impl IntoIterator<Item = Expired>, now: std::time::Instant) {
        let mut gone = HashSet::new();
        for expired in all {
            let driver = expired.driver;
            info!(
                app = %expired.app_id,
                record = expired.record.0,
                reason = expired.reason.as_str(),
                last_heartbeat_ms_ago = driver
                    .map(|d| now.saturating_duration_since(d.last_beat).as_millis()),
                heartbeat_timeout = driver.map(|d| d.timeout.to_string()),
                executors = expired.executors,
                dirs = ?expired.dirs,
                "{}",
                if expired.report_only {
                    "Application timed out. Its shuffle files stay: shuffled.cleanup is report"
                } else {
                    "Application timed out. Removing shuffle files."
                }
            );
            if expired.report_only {
                self.metrics.would_expire.inc();
                continue;
            }
            self.metrics.expired(expired.reason);
            gone.insert(expired.app_id);
            self.reaper.submit(expired.record);
        }
        if !gone.is_empty() {
            self.blocks.forget(&gone);
            self.expiries.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use shuffle_protocol::frame::Frame;
    use shuffle_protocol::message::Message;
    use shuffle_protocol::{HeartbeatTimeout, RequestId};
    use tempfile::TempDir;
    use test_support::fixture::FixtureExecutor;
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::dirs::LocalRoots;
    use crate::disk::Disks;
    use crate::inspector::Inspector;
    use crate::log_limit::LogLimit;
    use crate::reaper::Work;
    use crate::session::{Answer, Session, Shared, Step};
    use crate::streams::{StreamIds, StreamLimits};
    use crate::supervise::supervise;

    const TIMEOUT: Duration = Duration::from_secs(120);
    const PERIOD: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    /// A service without sockets, whose clock is the test's.
    struct Service {
        shared: Arc<Shared>,
        cleaner: Arc<Cleaner>,
        root: TempDir,
        reaper: JoinHandle<()>,
    }

    impl Service {
        fn new() -> Self {
            let root = TempDir::new().unwrap();
            let roots = Arc::new(LocalRoots::open(&[root.path()]).unwrap());
            let metrics = Arc::new(Metrics::default());
            let registry = Arc::new(AppRegistry::default());
            let disks = Arc::new(Disks::default());
            let blocks = Arc::new(Blocks::new(
                registry.clone(),
                roots.clone(),
                disks.clone(),
                metrics.clone(),
                1 << 20,
            ));
            let (reaper, task) = Reaper::new(Work {
                registry: registry.clone(),
                roots: roots.clone(),
                disks,
                metrics: metrics.clone(),
                grace: Duration::ZERO,
            });
            let reaper_task = tokio::spawn(async move { task.run().await });
            let (expiries, _) = watch::channel(());
            let shared = Arc::new(Shared {
                registry: registry.clone(),
                roots,
                metrics: metrics.clone(),
                stream_ids: Arc::new(StreamIds::new(7)),
                stream_limits: StreamLimits { streams: 10, bytes: 1 << 20, idle: TIMEOUT },
                max_chunks_in_transfer: i64::MAX,
                peer_log: LogLimit::new(Shared::LOG_EVERY),
                app_log: LogLimit::new(Shared::LOG_EVERY),
            });
            let cleaner = Arc::new(Cleaner { registry, blocks, reaper, expiries, metrics });
            Self { shared, cleaner, root, reaper: reaper_task }
        }

        /// A connection that sends one message and is gone.
        fn send(&self, message: impl Into<Message>) {
            let mut session = Session::new("127.0.0.1:4000".parse().unwrap(), self.shared.clone());
            let body = message.into().encode();
            let request = Frame::RpcRequest { id: RequestId(1), body };
            let step = session.handle_frame(request, Instant::now().into_std());
            let answered = match &step {
                Step::Answer(Answer::Frame(frame) | Answer::Registered { frame, .. }) => frame,
                other => panic!("{other:?}"),
            };
            assert!(matches!(answered, Frame::RpcResponse { .. }), "{answered:?}");
        }

        /// An application with a driver and a file, and its directory.
        fn register(&self, app: &str) -> (FixtureExecutor, PathBuf) {
            self.register_for(app, TIMEOUT)
        }

        /// The same with another timeout.
        fn register_for(&self, app: &str, timeout: Duration) -> (FixtureExecutor, PathBuf) {
            let executor = FixtureExecutor::new(app, "1", &[self.root.path()]);
            executor.write("rdd_0_0", b"x");
            self.send(executor.registration());
            self.send(executor.driver(HeartbeatTimeout::from(timeout)));
            let dir = executor.local_dirs[0].clone();
            (executor, dir)
        }
    }

    impl Drop for Service {
        fn drop(&mut self) {
            self.reaper.abort();
        }
    }

    /// The directory goes within the time that a removal takes by the test's clock: none, but for
    /// attempts that are repeated.
    async fn goes(dir: &PathBuf) {
        for _ in 0..100 {
            if !fs::exists(dir).unwrap() {
                return;
            }
            sleep(SECOND).await;
        }
        panic!("{} stays", dir.display());
    }

    #[tokio::test(start_paused = true)]
    async fn c01_heartbeats_over_any_connection_keep_an_application_and_nothing_else_does() {
        let service = Service::new();
        let cleaner = service.cleaner.clone();
        let cleaning = tokio::spawn(async move { cleaner.run(PERIOD).await });
        let (beating, dir) = service.register("beating");
        let (_, silent) = service.register("silent");
        for minute in 1..=10 {
            sleep(60 * SECOND).await;
            assert!(fs::exists(&dir).unwrap(), "minute {minute}");
            service.send(beating.heartbeat());
        }
        assert!(!fs::exists(&silent).unwrap());

        sleep(TIMEOUT).await;
        assert!(service.shared.registry.contains(&beating.app_id), "not before its timeout");
        assert!(fs::exists(&dir).unwrap());
        sleep(PERIOD + SECOND).await;
        assert!(!service.shared.registry.contains(&beating.app_id), "within one check after it");
        goes(&dir).await;
        cleaning.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn c17_a_stop_that_ends_before_a_check_does_not_count() {
        let service = Service::new();
        let cleaner = service.cleaner.clone();
        let cleaning = tokio::spawn(async move { cleaner.run(PERIOD).await });
        let (app, _) = service.register_for("app", 20 * SECOND);
        sleep(2 * SECOND).await;
        advance(26 * SECOND).await; // what the driver sent meanwhile waits in the socket
        sleep(4 * SECOND).await;
        assert!(service.shared.registry.contains(&app.app_id));
        service.send(app.heartbeat());
        sleep(20 * SECOND + PERIOD + SECOND).await;
        assert!(!service.shared.registry.contains(&app.app_id));
        cleaning.abort();
    }

    /// Too short a stop for `was_away`, but longer than the driver's timeout.
    #[tokio::test(start_paused = true)]
    async fn c17_heartbeats_that_wait_after_a_short_stop_are_read_before_a_check() {
        let service = Service::new();
        let cleaner = service.cleaner.clone();
        let cleaning = tokio::spawn(async move { cleaner.run(PERIOD).await });
        sleep(PERIOD - 3 * SECOND).await;
        let (app, _) = service.register_for("app", 3 * SECOND);
        advance(9 * SECOND).await;
        sleep(SECOND / 2).await;
        service.send(app.heartbeat());
        sleep(2 * SECOND).await;
        assert!(service.shared.registry.contains(&app.app_id));
        sleep(PERIOD + 2 * SECOND).await;
        assert!(!service.shared.registry.contains(&app.app_id));
        cleaning.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_period_without_end_is_no_panic() {
        let service = Service::new();
        let cleaner = service.cleaner.clone();
        let cleaning = tokio::spawn(async move { cleaner.run(Duration::MAX).await });
        sleep(PERIOD).await;
        assert!(!cleaning.is_finished());
        cleaning.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn f8_cleaning_goes_on_after_a_panic() {
        let service = Service::new();
        let (cleaner, panicked) = (service.cleaner.clone(), Arc::new(AtomicBool::new(false)));
        let task = move || {
            let (cleaner, first) = (cleaner.clone(), !panicked.swap(true, Ordering::Relaxed));
            async move {
                if first {
                    sleep(SECOND).await;
                    panic!("injected");
                }
                cleaner.run(PERIOD).await;
            }
        };
        let supervisor = supervise("cleaner", service.shared.metrics.clone(), task);
        let (_, dir) = service.register("app");
        sleep(TIMEOUT).await;
        assert!(fs::exists(&dir).unwrap());
        goes(&dir).await;
        let page = service.shared.metrics.page(service.shared.registry.counts());
        assert!(page.contains("shuffled_task_restarts_total{task=\"cleaner\"} 1"), "{page}");
        supervisor.abort();
    }

    /// Without a driver nobody else would ever end them, whatever the policy.
    #[tokio::test]
    async fn f4_what_belongs_to_vanished_directories_is_forgotten() {
        let service = Service::new();
        let inspector = Inspector {
            registry: service.shared.registry.clone(),
            roots: service.shared.roots.clone(),
            disks: Arc::new(Disks::default()),
            metrics: service.shared.metrics.clone(),
        };
        let executor = |app, exec| {
            let executor = FixtureExecutor::new(app, exec, &[service.root.path()]);
            executor.write("rdd_0_0", b"x");
            service.send(executor.registration());
            executor
        };
        let (vanished, kept) = (executor("orphan", "1"), executor("orphan", "2"));
        let with_driver = executor("app", "1");
        service.send(with_driver.driver(HeartbeatTimeout::Never));
        let move_away = |executor: &FixtureExecutor| {
            fs::rename(&executor.local_dirs[0], executor.local_dirs[0].with_extension("moved"))
                .unwrap();
        };
        [&vanished, &with_driver].into_iter().for_each(move_away);
        inspector.drop_vanished(&service.cleaner).await;
        let registry = &service.shared.registry;
        let there = |e: &FixtureExecutor| registry.peek_executor(&e.app_id, &e.exec_id).is_some();
        assert!(!there(&vanished) && there(&kept));
        assert!(there(&with_driver), "its driver will end it");
        move_away(&kept);
        inspector.drop_vanished(&service.cleaner).await;
        assert!(!registry.contains(&kept.app_id));
        let gone = registry.gone(&kept.app_id).unwrap();
        assert_eq!(gone.reason, crate::liveness::Reason::DirsVanished);
    }
}
