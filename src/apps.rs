//! `shuffled apps`: lists registered applications.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use comfy_table::{Cell, Color};
use shuffled_service::admin::{AppList, AppView, DriverView, RecordView};

use crate::admin_client::{AdminArgs, AdminClient};
use crate::output::print;
use crate::settings::Signals;
use crate::{human, table};

/// List registered applications
///
/// DRIVER is `alive`; `late` when it has been silent for half of its timeout; `overdue` when the time
/// is over and the application goes with the cleaner's next look; `none` when no driver registered.
#[derive(Debug, Args)]
pub(crate) struct Apps {
    #[command(flatten)]
    admin: AdminArgs,

    /// Print them otherwise than as a short table
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,

    /// Also list the last applications that expired, and what became of their directories
    #[arg(long)]
    all: bool,

    /// Print again every SECONDS until interrupted [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

/// The ways of printing besides a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table with every column
    Wide,
    /// JSON with exact numbers (milliseconds, bytes) and what `--all` adds
    Json,
}

impl Apps {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Some(seconds) = self.watch else {
            return print(&self.page().await?);
        };
        let mut signals = Signals::new()?;
        let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
        let mut rounds = 0_u64;
        let watch = async {
            loop {
                ticks.tick().await;
                let page = match self.page().await {
                    // A service that is restarted while somebody watches will be back.
                    Err(error) if rounds > 0 => format!("{error:#}\n"),
                    page => page?,
                };
                print(&if stdout().is_terminal() {
                    // Home, then clear to the end: no flicker, as there would be the other way round.
                    format!("\x1b[H\x1b[J{page}")
                } else if rounds > 0 && self.output != Some(Format::Json) {
                    format!("\n{page}")
                } else {
                    page
                })?;
                rounds += 1;
            }
        };
        tokio::select! {
            outcome = watch => outcome,
            _ = signals.next() => Ok(()),
        }
    }

    async fn page(&self) -> anyhow::Result<String> {
        let list = list(&self.admin.admin).await?;
        Ok(match self.output {
            Some(Format::Json) => serde_json::to_string_pretty(&list)? + "\n",
            format => self.tables(&list, format == Some(Format::Wide)),
        })
    }

    fn tables(&self, list: &AppList, wide: bool) -> String {
        let mut page = if list.apps.is_empty() {
            "no registered applications\n".to_owned()
        } else {
            registered(&list.apps, wide) + "\n"
        };
        if self.all {
            page.push('\n');
            page.push_str(&if list.expired.is_empty() {
                "no application expired as far as remembered\n".to_owned()
            } else {
                expired(&list.expired) + "\n"
            });
            if !list.swept.is_empty() {
                page.push_str(&format!("\n{}\n", swept(&list.swept)));
            }
        }
        if list.cleanup != "on" {
            page.push_str(&format!(
                "\nshuffled.cleanup is {}: applications that are due stay\n",
                list.cleanup
            ));
        }
        for complaint in &list.complaints {
            page.push_str(&format!("\nmind: {complaint}\n"));
        }
        page
    }
}

/// Asks a service for its applications.
pub(crate) async fn list(admin: &AdminClient) -> anyhow::Result<AppList> {
    admin.get("/v1/apps").await?.context("the service has no /v1/apps; is it an older one?")
}

/// How a driver does, to be seen at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverState {
    /// None ever registered.
    None,
    /// Heard of within half of its timeout.
    Alive,
    /// Silent for half of its timeout or more; that is several heartbeats.
    Late,
    /// Silent for all of its timeout; the cleaner's next look ends the application.
    Overdue,
}

impl DriverState {
    pub(crate) fn of(app: &AppView) -> Self {
        let Some(driver) = &app.driver else { return Self::None };
        match (app.expires_in_ms, driver.heartbeat_timeout_ms) {
            (Some(0), _) => Self::Overdue,
            (_, Some(timeout)) if driver.last_heartbeat_ms_ago >= timeout.div_ceil(2) => Self::Late,
            _ => Self::Alive,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alive => "alive",
            Self::Late => "late",
            Self::Overdue => "overdue",
        }
    }

    fn cell(self) -> Cell {
        let cell = Cell::new(self.as_str());
        match self {
            Self::None | Self::Alive => cell,
            Self::Late => table::coloured(cell, Color::Yellow),
            Self::Overdue => table::coloured(cell, Color::Red),
        }
    }
}

/// Until it expires, if nothing happens before.
pub(crate) fn expires_in(app: &AppView) -> String {
    match app.expires_in_ms {
        Some(0) => "now".to_owned(),
        Some(time) => human::millis(time),
        None if app.hold.is_some() => "held".to_owned(),
        None => "never".to_owned(),
    }
}

/// A driver's own limit.
pub(crate) fn timeout(driver: &DriverView) -> String {
    driver.heartbeat_timeout_ms.map_or_else(|| "never".to_owned(), human::millis)
}

/// The table of registered applications.
pub(crate) fn registered(apps: &[AppView], wide: bool) -> String {
    const NARROW: [&str; 6] =
        ["APPLICATION", "DRIVER", "EXECUTORS", "LAST BEAT", "EXPIRES IN", "SERVED"];
    const WIDE: [&str; 13] = [
        "APPLICATION",
        "DRIVER",
        "EXECUTORS",
        "LAST BEAT",
        "EXPIRES IN",
        "SERVED",
        "AGE",
        "TIMEOUT",
        "BEATS",
        "DIRS",
        "CHUNKS",
        "LAST USE",
        "DRIVER ADDRESS",
    ];
    let mut table = if wide { table::new(WIDE) } else { table::new(NARROW) };
    for app in apps {
        let driver = app.driver.as_ref();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let ago = |time: u64| format!("{} ago", human::millis(time));
        let mut row = vec![
            Cell::new(human::name(&app.id)),
            DriverState::of(app).cell(),
            Cell::new(app.executors),
            Cell::new(or_dash(driver.map(|driver| ago(driver.last_heartbeat_ms_ago)))),
            Cell::new(expires_in(app)),
            Cell::new(human::bytes(app.bytes_served)),
        ];
        if wide {
            row.extend(
                [
                    human::millis(app.age_ms),
                    or_dash(driver.map(timeout)),
                    or_dash(driver.map(|driver| driver.heartbeats.to_string())),
                    match app.unreadable_dirs {
                        0 => app.dirs.to_string(),
                        unreadable => format!("{} ({unreadable} unreadable)", app.dirs),
                    },
                    app.chunks_served.to_string(),
                    ago(app.last_use_ms_ago),
                    or_dash(driver.and_then(|driver| driver.address.clone())),
                ]
                .map(Cell::new),
            );
        }
        table.add_row(row);
    }
    table::text(&table)
}

/// The table of applications that expired.
pub(crate) fn expired(apps: &[RecordView]) -> String {
    let mut table =
        table::new(["EXPIRED", "WHEN", "REASON", "SILENT FOR", "DIRECTORIES", "REMOVED"]);
    for app in apps {
        table.add_row([
            human::name(app.id.as_deref().unwrap_or("-")),
            format!("{} ago", human::millis(app.expired_ms_ago)),
            if app.report_only {
                format!("{} (report only)", app.reason)
            } else {
                app.reason.clone()
            },
            app.silent_for_ms.map_or_else(|| "-".to_owned(), human::millis),
            directories(app),
            removed(app),
        ]);
    }
    table::text(&table)
}

/// What became of the directories of an application that expired.
pub(crate) fn directories(app: &RecordView) -> String {
    if app.report_only {
        return format!("{} would go", app.dirs);
    }
    let mut text = format!("{} of {} gone", app.dirs_removed, app.dirs);
    for (count, what) in [
        (app.dirs_kept, "kept (see `shuffled app show`)"),
        (app.dirs_restored, "brought back"),
        (app.dirs_failing, "failing (see `shuffled app show`; tried again)"),
        (app.dirs_restorable, if app.id.is_some() { "can be brought back" } else { "waiting" }),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

/// The table of directories that nobody owned.
fn swept(records: &[RecordView]) -> String {
    let mut table = table::new(["SWEPT", "WHEN", "DIRECTORIES", "REMOVED"]);
    for record in records {
        table.add_row([
            record.record.to_string(),
            format!("{} ago", human::millis(record.expired_ms_ago)),
            directories(record),
            removed(record),
        ]);
    }
    table::text(&table)
}

/// What was removed of them.
pub(crate) fn removed(app: &RecordView) -> String {
    format!("{}, {}", human::count(app.files_removed, "file"), human::bytes(app.bytes_removed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(silent: u64, timeout: Option<u64>) -> AppView {
        AppView {
            id: "a".to_owned(),
            age_ms: 1_000_000,
            driver: Some(DriverView {
                address: None,
                heartbeat_timeout_ms: timeout,
                last_heartbeat_ms_ago: silent,
                heartbeats: 3,
            }),
            expires_in_ms: timeout.map(|timeout| timeout.saturating_sub(silent)),
            last_use_ms_ago: 0,
            hold: None,
            extended_until: None,
            executors: 1,
            dirs: 1,
            unreadable_dirs: 0,
            open_streams: 0,
            chunks_served: 0,
            bytes_served: 0,
        }
    }

    #[test]
    fn a_driver_is_late_from_half_of_its_timeout_on() {
        let cases = [
            (0, Some(1000), DriverState::Alive),
            (499, Some(1000), DriverState::Alive),
            (500, Some(1000), DriverState::Late),
            (999, Some(1000), DriverState::Late),
            (1000, Some(1000), DriverState::Overdue),
            (1, Some(3), DriverState::Alive),
            (2, Some(3), DriverState::Late),
            (u64::MAX, None, DriverState::Alive),
        ];
        for (silent, timeout, state) in cases {
            assert_eq!(DriverState::of(&app(silent, timeout)), state, "{silent} of {timeout:?}");
        }
        assert_eq!(DriverState::of(&AppView { driver: None, ..app(0, None) }), DriverState::None);
    }
}
