//! What the subcommands share of configuration, logging and signals.

use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use shuffled_client::ClientOptions;
use shuffled_service::config::{
    ClientSettings, ConfigErrors, LogFormat, PROPERTIES_FILE_ENV, RawConfig, ServiceConfig,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// An error that exits with 2: of the command line or the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUsage(pub String);

/// Where configuration comes from, lowest to highest: defaults, the properties file, the environment
/// (SHUFFLED_*), --conf, other flags.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// A file of Java properties, such as Spark's spark-defaults.conf
    #[arg(long, value_name = "FILE")]
    properties_file: Option<PathBuf>,

    /// One setting, over the file's and the environment's
    #[arg(long, value_name = "KEY=VALUE")]
    conf: Vec<String>,
}

impl ConfigArgs {
    /// Reads all layers but the flags.
    pub(crate) fn read(&self) -> RawConfig {
        let mut raw = RawConfig::default();
        let from_env = || std::env::var_os(PROPERTIES_FILE_ENV).map(PathBuf::from);
        if let Some(path) = self.properties_file.clone().or_else(from_env) {
            raw.properties_file(&path);
        }
        raw.environment(std::env::vars_os());
        for setting in &self.conf {
            raw.conf(setting);
        }
        raw
    }
}

/// The checked configuration of a service.
pub(crate) fn service(raw: &RawConfig) -> Result<ServiceConfig, WrongUsage> {
    ServiceConfig::check(raw).map_err(|errors| wrong(&errors))
}

/// The checked configuration of a driver or reader.
pub(crate) fn client(raw: &RawConfig) -> Result<ClientSettings, WrongUsage> {
    ClientSettings::check(raw).map_err(|errors| wrong(&errors))
}

fn wrong(errors: &ConfigErrors) -> WrongUsage {
    WrongUsage(errors.to_string().replace('\n', "\nshuffled: "))
}

/// What the client crate goes by.
pub(crate) fn client_options(settings: &ClientSettings) -> ClientOptions {
    ClientOptions {
        connection_timeout: settings.connection_timeout.unwrap_or_default(),
        connect_timeout: settings.connection_creation_timeout.unwrap_or_default(),
        max_retries: settings.max_retries,
        retry_wait: settings.retry_wait,
        use_old_fetch_protocol: settings.use_old_fetch_protocol,
        connections_per_server: NonZeroUsize::new(settings.connections_per_peer)
            .unwrap_or(NonZeroUsize::MIN),
        max_block_in_memory: settings.max_block_to_mem,
        ..ClientOptions::default()
    }
}

/// Sends the log to standard error.
pub(crate) fn start_log(format: LogFormat, filter: &str) -> Result<(), WrongUsage> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| WrongUsage(format!("shuffled.log.filter = {filter}: {error}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).finish().init(),
        LogFormat::Json => log.json().flatten_event(true).finish().init(),
    }
    Ok(())
}

/// Logs what is probably not meant in the configuration.
pub(crate) fn warn_of(raw: &RawConfig) {
    for warning in raw.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Waits for SIGTERM or SIGINT and gives its name.
pub(crate) async fn interrupted() -> io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
