//! `shuffled serve`: runs the service.

use clap::Args;
use shuffled_service::server::{Addresses, Server};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::output::print;
use crate::settings::{self, ServiceArgs, Signals};

/// Run the shuffle service until SIGTERM or SIGINT
///
/// When it is ready it writes one line to standard output: `ready shuffle=ADDRESS admin=ADDRESS`.
/// Everything else goes to standard error. A signal stops it after the transfers that are under way,
/// for which it waits up to shuffled.drain.timeout; a second one stops it at once.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    service: ServiceArgs,
}

impl Serve {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let raw = self.service.read();
        let config = settings::service(&raw)?;
        let filter = settings::log_filter(&raw, &config.log_filter)?;
        settings::start_log(&raw, config.log_format, filter);

        // Before anything is bound, so that a signal that comes early is not lost.
        let mut signals = Signals::new()?;
        let server = Server::bind(config)?;
        let Addresses { shuffle, admin } = server.addresses();
        let admin = admin.map_or_else(|| "off".to_owned(), |address| address.to_string());
        if let Err(error) = print(&format!("ready shuffle={shuffle} admin={admin}\n")) {
            warn!(%error, "Nobody reads that it is ready");
        }

        let stop = CancellationToken::new();
        let running = server.run(stop.clone());
        tokio::pin!(running);
        tokio::select! {
            () = &mut running => return Ok(()),
            signal = signals.next() => info!(signal, "Stopping"),
        }
        stop.cancel();
        tokio::select! {
            () = running => {}
            signal = signals.next() => warn!(signal, "Stopping at once"),
        }
        Ok(())
    }
}
