//! `shuffled sweep`: directories that nobody owns.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use serde_json::json;
use shuffled_service::admin::{CandidateView, SweepView};

use crate::admin_client::AdminArgs;
use crate::output::print;
use crate::{human, settings, table};

/// Find directories of Spark's under the local dirs that no application has
///
/// Asks the running service, which knows who owns what. Only directories that are named as Spark names
/// them are ever listed. VERDICT is `removable`; `too-young` when something in it changed within
/// --older-than; `held-open` when a process uses it; `cannot-tell` when a process may use it that the
/// service may not look at. With --remove those that are removable go, in two steps like those of an
/// application (see `shuffled apps --all`).
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    #[command(flatten)]
    admin: AdminArgs,

    /// Remove those that are removable
    #[arg(long)]
    remove: bool,

    /// How long nothing in them may have changed, such as 12h or 7d [default: shuffled.sweep.olderThan]
    #[arg(long, value_name = "TIME", value_parser = settings::time)]
    older_than: Option<Duration>,

    /// Print it otherwise than for people
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// JSON with exact numbers (milliseconds, bytes)
    Json,
}

impl Sweep {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let age = self.older_than.map(|time| format!("?older_than_ms={}", time.as_millis()));
        let path = format!("/v1/sweep{}", age.unwrap_or_default());
        let admin = &self.admin.admin;
        let swept: SweepView = match self.remove {
            true => admin.post(&path, &json!({})).await?,
            false => admin.get_slow(&path).await?,
        };
        print(&match self.output {
            Some(Format::Json) => serde_json::to_string_pretty(&swept)? + "\n",
            None => page(&swept, self.remove),
        })?;
        // Whoever runs this from cron has to hear that not everything was looked at.
        if swept.problems.is_empty() {
            Ok(())
        } else {
            bail!("some directories cannot be looked at")
        }
    }
}

fn page(swept: &SweepView, remove: bool) -> String {
    let mut page = if swept.candidates.is_empty() {
        "no directory without an owner\n".to_owned()
    } else {
        directories(&swept.candidates) + "\n"
    };
    let removable = swept.candidates.iter().filter(|candidate| candidate.verdict == "removable");
    let (count, total) = removable.fold((0_u64, 0_u64), |(count, total), candidate| {
        (count + 1, total.saturating_add(candidate.bytes))
    });
    if count > 0 {
        let then = if remove { "being removed" } else { "go with --remove" };
        page.push_str(&format!("\nremovable: {count}, with {}; {then}\n", human::bytes(total)));
    }
    for problem in &swept.problems {
        page.push_str(&format!("cannot look: {}\n", human::name(problem)));
    }
    if swept.truncated {
        page.push_str("there was too much to look at all of it; sweep again\n");
    }
    page
}

fn directories(candidates: &[CandidateView]) -> String {
    let mut table = table::new(["DIRECTORY", "SIZE", "FILES", "AGE", "OWNER", "VERDICT", "WHY"]);
    for candidate in candidates {
        let about = if candidate.estimated { "~" } else { "" };
        table.add_row([
            human::name(&candidate.path),
            format!("{about}{}", human::bytes(candidate.bytes)),
            candidate.files.to_string(),
            human::millis(candidate.age_ms),
            candidate.owner.to_string(),
            candidate.verdict.clone(),
            candidate.why.as_deref().map_or_else(|| "-".to_owned(), human::name),
        ]);
    }
    table::text(&table)
}
