//! `shuffled serve`: runs the service.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use clap::Args;
use shuffled_service::server::{Addresses, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::output::print;
use crate::settings::{self, ServiceArgs, Signals};

/// Run the shuffle service until SIGTERM or SIGINT
///
/// When it is ready it writes one line to standard output: `ready shuffle=ADDRESS admin=ADDRESS`.
/// Everything else goes to standard error. A signal stops it after the transfers that are under way,
/// for which it waits up to shuffled.drain.timeout; a second one stops it at once. SIGHUP stops it only
/// where standard error is a terminal, which closes.
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
        let mut hangups = Hangups::new()?;
        let server = Server::bind(config).await?;
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
            () = hangups.terminal_closed() => info!(signal = "SIGHUP", "Stopping"),
        }
        stop.cancel();
        tokio::select! {
            () = running => {}
            signal = signals.next() => warn!(signal, "Stopping at once"),
        }
        Ok(())
    }
}

/// SIGHUP, by which many a service reads its configuration anew, and which ends a process that does not
/// know it. With this one would go what is registered.
struct Hangups {
    signal: Signal,
    /// Asked before it closes: afterwards it is none.
    on_terminal: bool,
}

impl Hangups {
    fn new() -> anyhow::Result<Self> {
        let signal = signal(SignalKind::hangup()).context("cannot wait for signals")?;
        Ok(Self { signal, on_terminal: io::stderr().is_terminal() })
    }

    /// Returns when the terminal that it was started from closes; else goes on, and says so.
    async fn terminal_closed(&mut self) {
        while self.signal.recv().await.is_some() && !self.on_terminal {
            warn!("SIGHUP changes nothing: the configuration is read at the start");
        }
    }
}
