//! Why an application, executor or block is here, why it went, and why a fetch of it failed.

use shuffle_protocol::{AppId, ExecId};

use super::views::{Explanation, millis, rfc3339};
use super::{Admin, now};
use crate::apps::{AppInfo, Record};
use crate::state::{StoreStatus, lost};
use crate::store::row::DirState;

impl Admin {
    /// Answers the question about an application, one of its executors, and one of that one's blocks.
    pub(super) async fn explain(
        &self,
        app_id: &AppId,
        exec_id: Option<&str>,
        block: Option<&str>,
    ) -> Explanation {
        let registry = &self.env.shared.registry;
        let (app, gone) = (registry.app(app_id), registry.gone(app_id));
        let mut why = Explanation { verdict: String::new(), findings: Vec::new() };
        match (&app, &gone) {
            (Some(app), _) => {
                why.say("registered", registered(app, registry.rules().cleanup.as_str()));
                if let Some(gone) = &gone {
                    why.add(format!("It expired before and was registered again. {}", ended(gone)));
                }
            }
            (None, Some(gone)) => why.say("expired", ended(gone)),
            (None, None) => why.never_seen(app_id, &self.status),
        }
        for line in self.status.complaints() {
            why.add(format!("Mind: {line}."));
        }
        let (Some(app), Some(exec_id)) = (&app, exec_id) else {
            if let (Some(gone), Some(exec_id)) = (&gone, exec_id) {
                let had = gone.row.executors.contains_key(exec_id);
                why.add(format!(
                    "Executor {exec_id} {} then; a fetch from it fails with \"Executor is not \
                     registered\".",
                    if had { "was registered" } else { "was not registered" }
                ));
            }
            return why;
        };
        let Some(executor) = app.executors.get(exec_id) else {
            let known: Vec<_> = app.executors.keys().take(20).map(ExecId::as_str).collect();
            why.say(
                "not-registered",
                format!(
                    "Executor {exec_id} is not registered; a fetch from it fails with \"Executor is \
                     not registered\". {}",
                    if known.is_empty() {
                        "The application has no executor here.".to_owned()
                    } else {
                        format!("Registered are: {}.", known.join(", "))
                    }
                ),
            );
            return why;
        };
        let dirs: Vec<_> = executor.local_dirs.iter().map(ToString::to_string).collect();
        why.add(format!("Executor {exec_id} is registered, with {}.", dirs.join(", ")));
        for dir in &executor.local_dirs {
            if let Some(error) = app.dirs.get(dir).and_then(|facts| facts.unreadable.as_ref()) {
                why.say("permission", format!("This service cannot read it: {error}."));
            }
        }
        if let Some(block) = block {
            match self.env.blocks.examine(app_id, &ExecId::from(exec_id), block).await {
                Ok(found) => why.say(
                    "readable",
                    format!(
                        "Block {block} can be read: {} bytes from byte {} of {}.",
                        found.segment.length, found.segment.offset, found.path
                    ),
                ),
                Err(error) => {
                    let text = format!("A fetch of {block} fails: {}", error.failure);
                    why.say(error.kind.as_str(), text);
                }
            }
        }
        why
    }
}

impl Explanation {
    fn add(&mut self, finding: String) {
        self.findings.push(finding);
    }

    /// A finding that says more exactly what is the case.
    fn say(&mut self, verdict: &str, finding: String) {
        verdict.clone_into(&mut self.verdict);
        self.add(finding);
    }

    fn never_seen(&mut self, app_id: &AppId, status: &StoreStatus) {
        let mut maybe_lost = Vec::new();
        if let Some(damage) = &status.damage
            && damage.lost_rows != Some(0)
        {
            maybe_lost.push(format!(
                "It may have been lost: the store was found damaged at the start of {}; {}.",
                rfc3339(status.started),
                lost(damage.lost_rows)
            ));
        }
        for past in &status.past {
            maybe_lost.push(format!(
                "It may have been lost: the store was found damaged at {} ({}); {}.",
                rfc3339(past.at),
                past.why,
                lost(past.lost_rows)
            ));
        }
        if status.dir.is_none() {
            maybe_lost.push(format!(
                "This service keeps nothing over a restart (no shuffled.state.dir), and it started at \
                 {}; what was registered before that is forgotten.",
                rfc3339(status.started)
            ));
        }
        let verdict = if maybe_lost.is_empty() { "never-seen" } else { "maybe-lost" };
        self.say(
            verdict,
            format!(
                "Application {app_id} is not registered, and nothing is remembered of it. Did its \
                 executors register with another agent's service?"
            ),
        );
        maybe_lost.into_iter().for_each(|line| self.add(line));
    }
}

fn registered(app: &AppInfo, cleanup: &str) -> String {
    let now = now();
    let time = |ms| humantime::format_duration(std::time::Duration::from_millis(ms)).to_string();
    let mut text =
        format!("Application {} is registered since {}.", app.app_id, rfc3339(app.since));
    match &app.driver {
        Some(driver) => {
            let silent = millis(now.saturating_duration_since(driver.last_beat));
            text.push_str(&format!(
                " Its driver gave its last sign of life {} ago; its own timeout is {}.",
                time(silent),
                driver.timeout
            ));
        }
        None => text.push_str(" No driver ever registered, so no heartbeat is waited for."),
    }
    match (&app.hold, app.deadline) {
        (Some(why), _) => text.push_str(&format!(" An operator holds it: {why}.")),
        (None, None) => text.push_str(" It never expires by itself."),
        (None, Some(at)) => {
            let left = millis(at.saturating_duration_since(now));
            text.push_str(&match left {
                0 => " It is due.".to_owned(),
                left => format!(" It expires in {} unless something happens.", time(left)),
            });
            if cleanup != "on" {
                text.push_str(&format!(" But shuffled.cleanup is {cleanup}: it stays."));
            }
        }
    }
    if app.open_streams > 0 {
        text.push_str(&format!(" {} streams of its blocks are open.", app.open_streams));
    }
    text
}

fn ended(record: &Record) -> String {
    let row = &record.row;
    let id = row.app_id.as_deref().unwrap_or("-");
    let time = |ms| humantime::format_duration(std::time::Duration::from_millis(ms)).to_string();
    let why = match (row.reason.as_str(), row.silent_for_ms) {
        ("heartbeat-timeout", Some(silent)) => format!(
            "its driver had been silent for {}, and its own timeout was {}",
            time(silent),
            row.app
                .driver
                .as_ref()
                .and_then(|driver| driver.timeout_ms)
                .map_or_else(|| "never".to_owned(), time),
        ),
        ("no-driver", _) => "no driver ever registered, and nothing was read for \
                             shuffled.orphan.ttl"
            .to_owned(),
        ("operator", _) => match &row.note {
            Some(note) => format!("an operator said so ({note})"),
            None => "an operator said so".to_owned(),
        },
        ("dirs-vanished", _) => {
            "its directories were gone, and no driver had registered".to_owned()
        }
        (other, _) => other.to_owned(),
    };
    let removal = record.removal();
    let mut text = format!(
        "Application {id} expired at {} ({}): {why}. Of its {} directories {} are gone ({} files, {} \
         bytes)",
        rfc3339(row.at),
        row.reason,
        record.dirs.len(),
        removal.removed,
        removal.files,
        removal.bytes,
    );
    for (count, what) in [
        (removal.kept, "were left alone"),
        (removal.restored, "were brought back"),
        (removal.failing, "could not be removed so far"),
        (removal.restorable, "can still be brought back"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text.push('.');
    let failing = record
        .dirs
        .iter()
        .find(|dir| dir.row.error.is_some() && dir.row.state != DirState::Removed);
    if let Some(dir) = failing {
        let error = dir.row.error.as_deref().unwrap_or_default();
        text.push_str(&format!(" {}: {error}.", dir.row.path));
    }
    text
}
