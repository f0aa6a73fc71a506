//! `shuffled check-config`: prints every value and where it came from.

use clap::Args;
use shuffled_service::config::Role;

use crate::apps::print;
use crate::settings::ConfigArgs;
use crate::table;

/// Print every configuration value and where it came from, and check them
///
/// Takes the same options as `serve`. Exit code 2 when a value is wrong.
#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    #[command(flatten)]
    config: ConfigArgs,
}

impl CheckConfig {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let raw = self.config.read();
        let mut table = table::new(["KEY", "VALUE", "FROM", ""]);
        for row in raw.rows().into_iter().filter(|row| row.role != Role::Ignored) {
            let from = match row.from {
                Some(other) => format!("{} of {other}", row.source),
                None => row.source.to_string(),
            };
            table.add_row([row.key, row.value, from, row.problem.unwrap_or_default()]);
        }
        print(&(table::text(&table) + "\n"))?;
        for (key, def, setting) in raw.ignored() {
            print(&format!("ignored: {}: {key}: {}\n", setting.source, def.doc))?;
        }
        for warning in raw.warnings() {
            print(&format!("warning: {warning}\n"))?;
        }
        crate::settings::service(&raw)?;
        Ok(())
    }
}
