//! What the subcommands share of configuration, logging and signals.

use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use shuffle_protocol::spark_conf::{SparkTime, TimeUnit};
use shuffled_client::{ClientOptions, InvalidServerAddr, ServerAddr};
use shuffled_service::config::{
    ClientSettings, ConfigErrors, LogFormat, PROPERTIES_FILE_ENV, RawConfig, ServiceConfig, Source,
    keys,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log::OneLine;

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

/// The options of `serve`, and so of `check-config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServiceArgs {
    #[command(flatten)]
    config: ConfigArgs,

    /// Address for shuffle clients (shuffled.listen); port 0 is any free one
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,

    /// Address for admin HTTP, or `off` (shuffled.admin.listen)
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<String>,

    /// Where registrations survive a restart (shuffled.state.dir)
    #[arg(long, value_name = "DIR")]
    state_dir: Option<String>,
}

impl ServiceArgs {
    /// Reads all layers.
    pub(crate) fn read(&self) -> RawConfig {
        let mut raw = self.config.read();
        for (flag, key, value) in [
            ("--listen", keys::LISTEN, &self.listen),
            ("--admin", keys::ADMIN_LISTEN, &self.admin),
            ("--state-dir", keys::STATE_DIR, &self.state_dir),
        ] {
            if let Some(value) = value {
                raw.flag(flag, key, value);
            }
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
    several(errors.iter())
}

/// One line for each of them; `main` begins the first.
pub(crate) fn several(errors: impl IntoIterator<Item = impl ToString>) -> WrongUsage {
    let lines: Vec<String> = errors.into_iter().map(|error| error.to_string()).collect();
    WrongUsage(lines.join("\nshuffled: "))
}

/// A time on the command line, as Spark writes it; a bare number is seconds.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = SparkTime::parse(text, TimeUnit::Seconds).map_err(|error| error.to_string())?;
    time.to_duration().map_err(|error| error.to_string())
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

/// The server that `text` names, on Spark's port of the service where it names none.
pub(crate) fn server(
    flag: &str,
    text: &str,
    settings: &ClientSettings,
) -> Result<ServerAddr, WrongUsage> {
    let with_port = || format!("{text}:{}", settings.service_port).parse();
    text.parse::<ServerAddr>()
        .or_else(|error| with_port().map_err(|_: InvalidServerAddr| error))
        .map_err(|error| WrongUsage(format!("{flag}: {error}")))
}

/// Which log lines there are. The text is not looked at before this.
pub(crate) fn log_filter(raw: &RawConfig, filter: &str) -> Result<EnvFilter, WrongUsage> {
    // A word alone would be taken for a target, and a misspelt level would switch off every line but
    // that target's.
    let no_level = |word: &&str| {
        !word.is_empty() && !word.contains(['=', '[']) && word.parse::<LevelFilter>().is_err()
    };
    let parsed = match filter.split(',').map(str::trim).find(no_level) {
        Some(word) => Err(format!("{word:?} is no level")),
        None => EnvFilter::try_new(filter).map_err(|error| error.to_string()),
    };
    parsed.map_err(|error| {
        let key = keys::LOG_FILTER;
        let origin = raw.setting(key).map_or(Source::Default, |setting| setting.source.clone());
        WrongUsage(format!(
            "{origin}: {key} = {filter:?}: {error}; use a level (error, warn, info, debug, trace, \
             off) or levels by target, such as info,shuffled_service=debug"
        ))
    })
}

/// Sends the log to standard error, and begins it with what is probably not meant in the
/// configuration.
pub(crate) fn start_log(raw: &RawConfig, format: LogFormat, filter: EnvFilter) {
    let colours = io::stderr().is_terminal() && format == LogFormat::Text;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(OneLine { colours, format })
        // They would go to standard error, of all places, and panic when that cannot be written. A full
        // disk costs lines of the log, not the service.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(colours).finish().init(),
        LogFormat::Json => log.json().flatten_event(true).finish().init(),
    }
    for warning in raw.warnings() {
        tracing::warn!("{warning}");
    }
}

/// SIGTERM and SIGINT, which do not end the process by themselves while this lives.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on, not from the first [`next`](Self::next), no signal is lost.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot wait for signals");
        let terminate = listen(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next one and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
