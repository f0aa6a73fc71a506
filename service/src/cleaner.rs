//! The task that ticks: asks who is due and hands them to the reaper.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{info, warn};

use crate::apps::AppRegistry;
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
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let scheduled = ticks.tick().await.into_std();
            let now = Instant::now().into_std();
            if was_away(scheduled, now, period) {
                warn!(
                    late_ms = now.saturating_duration_since(scheduled).as_millis(),
                    "This service was stopped or starved; every application gets a full timeout again"
                );
                self.registry.handle_absence(now);
            }
            self.check(now);
        }
    }

    /// Expires everything that is due at `now`.
    pub fn check(&self, now: std::time::Instant) {
        let mut gone = HashSet::new();
        self.registry.expire_due(now, |expired| {
            gone.insert(expired.app_id.clone());
            let driver = expired.driver;
            info!(
                app = %expired.app_id,
                reason = expired.reason.as_str(),
                last_heartbeat_ms_ago = driver
                    .map(|d| now.saturating_duration_since(d.last_beat).as_millis()),
                heartbeat_timeout = driver.map(|d| d.timeout.to_string()),
                executors = expired.executors,
                dirs = ?expired.dirs,
                "Application timed out. Removing shuffle files."
            );
            self.metrics.expired(expired.reason);
            self.reaper.submit(expired);
        });
        if !gone.is_empty() {
            self.blocks.forget(&gone);
            self.expiries.send_replace(());
        }
    }
}
