//! `shuffled apps`: lists registered applications.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use shuffled_service::admin::{AppList, AppView, ExpiredView};

use crate::admin_client::{AdminArgs, AdminClient};
use crate::{human, table};

/// List registered applications
#[derive(Debug, Args)]
pub(crate) struct Apps {
    #[command(flatten)]
    admin: AdminArgs,

    /// How to print them: more columns, or JSON with exact numbers (milliseconds, bytes)
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,

    /// Also list the last applications that expired, and what became of their directories
    #[arg(long)]
    all: bool,

    /// Print again every SECONDS until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

/// The ways of printing besides a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table with every column
    Wide,
    /// JSON
    Json,
}

impl Apps {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Some(seconds) = self.watch else {
            return print(&self.page().await?);
        };
        let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = &mut interrupted => return Ok(()),
            }
            let page = self.page().await?;
            // Home, then clear to the end: the screen does not flicker as it would when cleared first.
            let page = if stdout().is_terminal() { format!("\x1b[H\x1b[J{page}") } else { page };
            print(&page)?;
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
                "no application expired since the service started\n".to_owned()
            } else {
                expired(&list.expired) + "\n"
            });
        }
        page
    }
}

/// Asks a service for its applications.
pub(crate) async fn list(admin: &AdminClient) -> anyhow::Result<AppList> {
    admin.get("/v1/apps").await?.context("the service has no /v1/apps; is it another program?")
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
            app.id.clone(),
            if driver.is_some() { "alive" } else { "none" }.to_owned(),
            app.executors.to_string(),
            or_dash(driver.map(|driver| ago(driver.last_heartbeat_ms_ago))),
            app.expires_in_ms.map_or_else(|| "never".to_owned(), human::millis),
            human::bytes(app.bytes_served),
        ];
        if wide {
            row.extend([
                human::millis(app.age_ms),
                or_dash(driver.map(|driver| {
                    driver.heartbeat_timeout_ms.map_or_else(|| "never".to_owned(), human::millis)
                })),
                or_dash(driver.map(|driver| driver.heartbeats.to_string())),
                app.dirs.to_string(),
                app.chunks_served.to_string(),
                ago(app.last_use_ms_ago),
                or_dash(driver.and_then(|driver| driver.address.clone())),
            ]);
        }
        table.add_row(row);
    }
    table::text(&table)
}

/// The table of applications that expired.
pub(crate) fn expired(apps: &[ExpiredView]) -> String {
    let mut table =
        table::new(["EXPIRED", "WHEN", "REASON", "SILENT FOR", "DIRECTORIES", "REMOVED"]);
    for app in apps {
        table.add_row([
            app.id.clone(),
            format!("{} ago", human::millis(app.expired_ms_ago)),
            app.reason.clone(),
            app.silent_for_ms.map_or_else(|| "-".to_owned(), human::millis),
            directories(app),
            removed(app),
        ]);
    }
    table::text(&table)
}

/// What became of the directories of an application that expired.
pub(crate) fn directories(app: &ExpiredView) -> String {
    let ExpiredView { dirs, dirs_removed, dirs_kept, dirs_failing, .. } = app;
    let mut text = format!("{dirs_removed} of {dirs} gone");
    if *dirs_kept > 0 {
        text.push_str(&format!(", {dirs_kept} kept (another application has them)"));
    }
    if *dirs_failing > 0 {
        text.push_str(&format!(", {dirs_failing} failing (see the log; tried again)"));
    }
    text
}

/// What was removed of them.
pub(crate) fn removed(app: &ExpiredView) -> String {
    format!("{}, {}", human::count(app.files_removed, "file"), human::bytes(app.bytes_removed))
}

/// Writes to standard output; a reader that has seen enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}
