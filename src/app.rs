//! `shuffled app`: one application.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::json;
use shuffled_service::admin::{
    AppDetail, AppView, DirView, Done, ExecutorView, RecordDirView, RecordView,
};

use crate::admin_client::{AdminArgs, segment};
use crate::apps::{self, DriverState};
use crate::output::print;
use crate::{human, settings, table};

/// Look at one application, keep it, end it, bring it back
#[derive(Debug, Args)]
pub(crate) struct App {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what is known of an application: its driver, executors, directories, or its end
    Show {
        #[command(flatten)]
        which: Which,

        /// Print it otherwise than for people
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Format>,
    },
    /// Keep an application, whatever its driver does, until it is released
    Hold {
        #[command(flatten)]
        which: Which,

        /// Why, for those who find it held
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Let an application that is held or extended go its way again, with a full timeout
    Release {
        #[command(flatten)]
        which: Which,
    },
    /// Keep an application for this long at least, whatever its driver does
    Extend {
        #[command(flatten)]
        which: Which,

        /// How long from now, such as 90min, 6h, 2d
        #[arg(value_name = "TIME", value_parser = some_time)]
        time: Duration,
    },
    /// Expire an application now, whatever shuffled.cleanup says: its directories are removed
    Expire {
        #[command(flatten)]
        which: Which,

        /// Why, for those who look for it later
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// Bring an expired application back, as long as shuffled.cleanup.grace has kept its files
    ///
    /// It is registered again as it was, and held until it is released, since its driver is probably
    /// dead.
    Restore {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, Args)]
struct Which {
    #[command(flatten)]
    admin: AdminArgs,

    /// The application's id; under Mesos the framework id
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// JSON with exact numbers (milliseconds, bytes)
    Json,
}

impl App {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Show { which, output } => which.show(output).await,
            Command::Hold { which, note } => which.say("hold", json!({ "note": note })).await,
            Command::Release { which } => which.say("release", json!({})).await,
            Command::Extend { which, time } => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                which.say("extend", json!({ "by_ms": millis })).await
            }
            Command::Expire { which, note } => which.say("expire", json!({ "note": note })).await,
            Command::Restore { which } => which.say("restore", json!({})).await,
        }
    }
}

impl Which {
    async fn show(self, output: Option<Format>) -> anyhow::Result<()> {
        let Self { admin, id } = self;
        let path = format!("/v1/apps/{}", segment(&id));
        let Some(detail) = admin.admin.get::<AppDetail>(&path).await? else {
            bail!(
                "application {} is not registered with this service, and is not among the last \
                 that expired; `shuffled apps --all` lists both, `shuffled explain` says more",
                human::name(&id)
            );
        };
        print(&match output {
            Some(Format::Json) => serde_json::to_string_pretty(&detail)? + "\n",
            None => page(&detail),
        })
    }

    async fn say(self, what: &str, body: serde_json::Value) -> anyhow::Result<()> {
        let path = format!("/v1/apps/{}/{what}", segment(&self.id));
        let Done { done, durable } = self.admin.admin.post(&path, &body).await?;
        let mind = match durable {
            true => "",
            false => " (until the service restarts: it has no state directory that can be written)",
        };
        print(&format!("{}{mind}\n", human::name(&done)))
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match settings::time(text)? {
        Duration::ZERO => Err("no time at all; use `shuffled app release`".to_owned()),
        time => Ok(time),
    }
}

fn page(detail: &AppDetail) -> String {
    let mut page = format!("application  {}\n", human::name(&detail.id));
    match &detail.app {
        Some(app) => {
            page.push_str(&live(app));
            page.push_str(&executors(&detail.executors));
            page.push_str(&unreadable(&detail.dirs));
            if let Some(expired) = &detail.expired {
                page.push_str("\nIt expired before and was registered again. The earlier end:\n");
                page.push_str(&ended(expired, &detail.expired_dirs));
            }
        }
        None => {
            page.push_str("state        expired; its blocks are not served any more\n");
            let expired = detail.expired.iter();
            expired.for_each(|expired| page.push_str(&ended(expired, &detail.expired_dirs)));
        }
    }
    page
}

fn live(app: &AppView) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: String| page.push_str(&format!("{name:<12} {value}\n"));
    line("registered", format!("{} ago", human::millis(app.age_ms)));
    match &app.driver {
        Some(driver) => {
            let from = driver.address.as_deref().unwrap_or("unknown");
            let state = DriverState::of(app).as_str();
            line("driver", format!("{state}, registered from {from}"));
            line(
                "last beat",
                format!(
                    "{} ago, {} so far",
                    human::millis(driver.last_heartbeat_ms_ago),
                    human::count(driver.heartbeats, "heartbeat"),
                ),
            );
            line("timeout", apps::timeout(driver));
        }
        None => line("driver", "none registered, so no heartbeat is waited for".to_owned()),
    }
    line("expires in", apps::expires_in(app));
    if let Some(why) = &app.hold {
        line("held", human::name(why));
    }
    if let Some(until) = &app.extended_until {
        line("kept until", until.clone());
    }
    line(
        "served",
        format!(
            "{} in {}, last used {} ago, {} open",
            human::bytes(app.bytes_served),
            human::count(app.chunks_served, "chunk"),
            human::millis(app.last_use_ms_ago),
            human::count(app.open_streams, "stream"),
        ),
    );
    page
}

fn executors(executors: &[ExecutorView]) -> String {
    if executors.is_empty() {
        return "executors    none\n".to_owned();
    }
    let mut table = table::new(["EXECUTOR", "DIRECTORY", "SUB-DIRS", "SHUFFLE MANAGER"]);
    for executor in executors {
        table.add_row([
            human::name(&executor.id),
            executor.local_dirs.iter().map(|dir| human::name(dir)).collect::<Vec<_>>().join("\n"),
            executor.sub_dirs_per_local_dir.to_string(),
            human::name(&executor.shuffle_manager),
        ]);
    }
    format!("\n{}\n", table::text(&table))
}

/// Directories that the service cannot read, a line each.
fn unreadable(dirs: &[DirView]) -> String {
    let why = dirs.iter().filter_map(|dir| dir.unreadable.as_deref());
    why.map(|why| format!("unreadable   {}\n", human::name(why))).collect()
}

fn ended(app: &RecordView, dirs: &[RecordDirView]) -> String {
    let why = match (app.reason.as_str(), app.silent_for_ms, app.heartbeat_timeout_ms) {
        ("heartbeat-timeout", Some(silent), Some(timeout)) => format!(
            "its driver was silent for {}, its own timeout is {}",
            human::millis(silent),
            human::millis(timeout),
        ),
        ("no-driver", ..) => {
            "no driver ever registered, and nothing was read for shuffled.orphan.ttl".to_owned()
        }
        ("operator", ..) => match &app.note {
            Some(note) => format!("an operator said so: {}", human::name(note)),
            None => "an operator said so".to_owned(),
        },
        ("dirs-vanished", ..) => {
            "its directories were gone, and no driver had registered".to_owned()
        }
        _ => app.reason.clone(),
    };
    let mut page = format!(
        "expired      {} ago, at {}\nwhy          {} ({why})\nexecutors    {}\n\
         directories  {}\nremoved      {}\n",
        human::millis(app.expired_ms_ago),
        app.expired_at,
        app.reason,
        app.executors,
        apps::directories(app),
        apps::removed(app),
    );
    for dir in dirs {
        if let Some(error) = &dir.error {
            page.push_str(&format!("{:<12} {}\n", state(dir), human::name(error)));
            page.push_str(&format!("{:<12} {}\n", "", human::name(&dir.path)));
        }
    }
    page
}

fn state(dir: &RecordDirView) -> &'static str {
    if dir.state.is_final() { "kept" } else { "failing" }
}
