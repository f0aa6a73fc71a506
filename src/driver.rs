//! `shuffled driver`: keeps an application registered, as a Mesos driver does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use shuffle_protocol::{AppId, HeartbeatTimeout};
use shuffled_client::{
    DriverOptions, DriverRegistration, DriverStatus, ServerAddr, ShuffleServiceClient,
};
use shuffled_service::config::keys;

use crate::human;
use crate::output::print;
use crate::settings::{self, ConfigArgs, Signals, WrongUsage};

/// Keep an application registered until interrupted
///
/// Registers the driver with each service, sends heartbeats, and registers again after any break.
/// When it ends, the services remove the application's directories after the timeout.
#[derive(Debug, Args)]
pub(crate) struct Driver {
    /// A shuffle service; give it once for each agent. Without a port it is that of
    /// spark.shuffle.service.port
    #[arg(long = "server", value_name = "HOST[:PORT]", required = true)]
    servers: Vec<String>,

    /// The application's id; under Mesos the framework id
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    app: String,

    /// Silence after which the services give the application up, e.g. 120s
    /// (spark.storage.blockManagerHeartbeatTimeoutMs)
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,

    /// Time between heartbeats, e.g. 10s (spark.executor.heartbeatInterval)
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,

    #[command(flatten)]
    config: ConfigArgs,
}

impl Driver {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut raw = self.config.read();
        if let Some(timeout) = self.timeout {
            raw.flag("--timeout", keys::HEARTBEAT_TIMEOUT, timeout);
        }
        if let Some(interval) = self.interval {
            raw.flag("--interval", keys::HEARTBEAT_INTERVAL, interval);
        }
        let settings = settings::client(&raw)?;
        let servers = self
            .servers
            .iter()
            .map(|text| settings::server("--server", text, &settings))
            .collect::<Result<BTreeSet<ServerAddr>, _>>()?;
        // What the client would log is what this command prints.
        let silent = "shuffled_client::driver=off";
        let filter = settings::log_filter(
            &raw,
            &match raw.setting(keys::LOG_FILTER) {
                Some(_) => settings.log_filter.clone(),
                None => format!("{},{silent}", settings.log_filter),
            },
        )?;
        settings::start_log(&raw, settings.log_format, filter);
        let mut signals = Signals::new()?;
        let options = DriverOptions {
            timeout: HeartbeatTimeout::After(settings.heartbeat_timeout),
            interval: settings.heartbeat_interval,
            ..DriverOptions::default()
        };
        let app_id = AppId::from(self.app);
        let mut registrations = BTreeMap::new();
        let (changed, mut changes) = tokio::sync::mpsc::unbounded_channel();
        for server in servers {
            let client =
                ShuffleServiceClient::new(server.clone(), settings::client_options(&settings));
            let registration = client
                .keep_registered(app_id.clone(), options.clone())
                .map_err(|error| WrongUsage(error.to_string()))?;
            let mut status = registration.watch();
            let (changed, name) = (changed.clone(), server.clone());
            tokio::spawn(async move {
                loop {
                    let now = status.borrow_and_update().clone();
                    if changed.send((name.clone(), now)).is_err() || status.changed().await.is_err()
                    {
                        return;
                    }
                }
            });
            registrations.insert(server, registration);
        }

        let mut told = BTreeMap::new();
        loop {
            tokio::select! {
                change = changes.recv() => {
                    let (server, status) = change.context("all registrations ended")?;
                    let line = line(&status);
                    // A heartbeat is a change of status and no news.
                    if told.insert(server.clone(), line.0) != Some(line.0) || line.0 == Told::Retrying {
                        print(&format!("{server}: {}\n", line.1))?;
                    }
                }
                signal = signals.next() => {
                    let beats: u64 = registrations.values().map(beats).sum();
                    for registration in registrations.into_values() {
                        registration.close().await;
                    }
                    return print(&format!(
                        "{signal}: stopped after {}; the directories of {} go when its timeout of \
                         {} has passed\n",
                        human::count(beats, "heartbeat"),
                        human::name(app_id.as_str()),
                        human::duration(settings.heartbeat_timeout),
                    ));
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Connecting,
    Registered,
    Retrying,
    Closed,
}

fn line(status: &DriverStatus) -> (Told, String) {
    match status {
        DriverStatus::Connecting { attempt: 1 } => (Told::Connecting, "connecting".to_owned()),
        DriverStatus::Connecting { attempt } => {
            (Told::Connecting, format!("connecting, attempt {attempt}"))
        }
        DriverStatus::Registered { .. } => {
            (Told::Registered, "registered, sending heartbeats".to_owned())
        }
        DriverStatus::Retrying { attempt, error, next } => {
            let wait = human::duration(next.saturating_duration_since(Instant::now()));
            (Told::Retrying, format!("not registered ({error}); attempt {} in {wait}", attempt + 1))
        }
        DriverStatus::Closed => (Told::Closed, "closed".to_owned()),
    }
}

fn beats(registration: &DriverRegistration) -> u64 {
    match registration.status() {
        DriverStatus::Registered { beats, .. } => beats,
        _ => 0,
    }
}
