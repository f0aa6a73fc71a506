//! `shuffled check-config`: prints every value and where it came from.

use std::collections::BTreeSet;

use clap::Args;
use shuffled_service::config::{ClientSettings, Role, Row, ServiceConfig, keys};

use crate::output::print;
use crate::settings::{self, ServiceArgs};
use crate::table;

/// Print every configuration value and where it came from, and check them
///
/// Takes the same options as `serve`. What only `driver` and `fetch` read is checked as well. Exit
/// code 2 when a value is wrong.
#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    #[command(flatten)]
    service: ServiceArgs,
}

impl CheckConfig {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let raw = self.service.read();
        print(&values(raw.rows()))?;
        for (key, def, setting) in raw.ignored() {
            print(&format!("ignored: {}: {key}: {}\n", setting.source, def.doc))?;
        }
        for warning in raw.warnings() {
            print(&format!("warning: {warning}\n"))?;
        }

        let mut seen = BTreeSet::new();
        let mut errors = Vec::new();
        let (service, client) = (ServiceConfig::check(&raw), ClientSettings::check(&raw));
        for error in service.as_ref().err().into_iter().chain(client.as_ref().err()).flatten() {
            let error = error.to_string();
            if seen.insert(error.clone()) {
                errors.push(error);
            }
        }
        if let Some(filter) = raw.setting(keys::LOG_FILTER)
            && let Err(error) = settings::log_filter(&raw, &filter.value)
        {
            errors.push(error.to_string());
        }
        if errors.is_empty() { Ok(()) } else { Err(settings::several(errors).into()) }
    }
}

/// The table of all keys that are read.
fn values(rows: Vec<Row>) -> String {
    let mut table = table::new(["KEY", "VALUE", "FROM"]);
    for row in rows.into_iter().filter(|row| row.role != Role::Ignored) {
        let from = match row.from {
            Some(other) => format!("{} of {other}", row.source),
            None => row.source.to_string(),
        };
        let wrong = if row.problem.is_some() { " (wrong)" } else { "" };
        table.add_row([row.key, row.value + wrong, from]);
    }
    table::text(&table) + "\n"
}
