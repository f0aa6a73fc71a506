//! `shuffled serve`: runs the service.

use anyhow::Context as _;
use clap::Args;
use shuffled_service::server::{Addresses, Server};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::apps::print;
use crate::settings::ConfigArgs;

/// Run the shuffle service until SIGTERM or SIGINT
///
/// When it is ready it writes one line to standard output: `ready shuffle=ADDRESS admin=ADDRESS`.
/// Everything else goes to standard error.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    config: ConfigArgs,

    /// Address for shuffle clients (shuffled.listen); port 0 is any free one
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,

    /// Address for admin HTTP, or `off` (shuffled.admin.listen)
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
}

impl Serve {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut raw = self.config.read();
        let mut flag = |name, key, value: Option<String>| {
            if let Some(value) = value {
                raw.flag(name, key, value);
            }
        };
        flag("--listen", "shuffled.listen", self.listen);
        flag("--admin", "shuffled.admin.listen", self.admin);
        let config = crate::settings::service(&raw)?;
        crate::settings::start_log(config.log_format, &config.log_filter)?;
        crate::settings::warn_of(&raw);

        // Before anything is bound, so that a signal that comes early is not lost.
        let interrupted = tokio::spawn(crate::settings::interrupted());
        let server = Server::bind(config)?;
        let Addresses { shuffle, admin } = server.addresses();
        let admin = admin.map_or_else(|| "off".to_owned(), |address| address.to_string());
        print(&format!("ready shuffle={shuffle} admin={admin}\n"))
            .context("cannot write to standard output")?;

        let stop = CancellationToken::new();
        let stopper = stop.clone();
        tokio::spawn(async move {
            if let Ok(Ok(signal)) = interrupted.await {
                info!(signal, "Stopping");
            }
            stopper.cancel();
        });
        server.run(stop).await;
        Ok(())
    }
}
