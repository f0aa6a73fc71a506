//! `shuffled app`: one application.

use anyhow::bail;
use clap::{Args, Subcommand};
use shuffled_service::admin::{AppDetail, AppView, ExecutorView, ExpiredView};

use crate::admin_client::{AdminArgs, segment};
use crate::apps::{self, DriverState};
use crate::output::print;
use crate::{human, table};

/// Look at one application
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
        admin: AdminArgs,

        /// The application's id; under Mesos the framework id
        #[arg(value_name = "ID")]
        id: String,

        /// Print it otherwise than for people
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Format>,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// JSON with exact numbers (milliseconds, bytes)
    Json,
}

impl App {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Command::Show { admin, id, output } = self.command;
        let path = format!("/v1/apps/{}", segment(&id));
        let Some(detail) = admin.admin.get::<AppDetail>(&path).await? else {
            bail!(
                "application {} is not registered with this service, and is not among the last \
                 that expired; `shuffled apps --all` lists both",
                human::name(&id)
            );
        };
        print(&match output {
            Some(Format::Json) => serde_json::to_string_pretty(&detail)? + "\n",
            None => page(&detail),
        })
    }
}

fn page(detail: &AppDetail) -> String {
    let mut page = format!("application  {}\n", human::name(&detail.id));
    match &detail.app {
        Some(app) => {
            page.push_str(&live(app));
            page.push_str(&executors(&detail.executors));
            if let Some(expired) = &detail.expired {
                page.push_str("\nIt expired before and was registered again. The earlier end:\n");
                page.push_str(&ended(expired));
            }
        }
        None => {
            page.push_str("state        expired; its blocks are not served any more\n");
            detail.expired.iter().for_each(|expired| page.push_str(&ended(expired)));
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
    line(
        "served",
        format!(
            "{} in {}, last used {} ago",
            human::bytes(app.bytes_served),
            human::count(app.chunks_served, "chunk"),
            human::millis(app.last_use_ms_ago),
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

fn ended(app: &ExpiredView) -> String {
    let why = match (app.reason.as_str(), app.silent_for_ms, app.heartbeat_timeout_ms) {
        ("heartbeat-timeout", Some(silent), Some(timeout)) => format!(
            "its driver was silent for {}, its own timeout is {}",
            human::millis(silent),
            human::millis(timeout),
        ),
        ("no-driver", ..) => {
            "no driver ever registered, and nothing was read for shuffled.orphan.ttl".to_owned()
        }
        _ => app.reason.clone(),
    };
    format!(
        "expired      {} ago, at {}\nwhy          {} ({why})\nexecutors    {}\n\
         directories  {}\nremoved      {}\n",
        human::millis(app.expired_ms_ago),
        app.expired_at,
        app.reason,
        app.executors,
        apps::directories(app),
        apps::removed(app),
    )
}
