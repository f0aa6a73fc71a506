//! The second step: what the texts mean, checked.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::keys::{self, KEYS, KeyDef, Kind, Role};
use super::raw::Effective;
use crate::liveness::Cleanup;

use super::{ConfigError, ConfigErrors, ConfigWarning, RawConfig, Source, Value};

/// What `serve` goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Where the shuffle service listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// Where the admin HTTP listens; none switches it off.
    pub admin_listen: Option<SocketAddr>,
    /// Roots of what may be served and removed. Empty: any directory whose last component begins
    /// with
    /// `blockmgr-`.
    pub local_dirs: Vec<PathBuf>,
    /// Where registrations survive a restart; none keeps nothing.
    pub state_dir: Option<PathBuf>,
    /// Whether applications that are due go.
    pub cleanup: Cleanup,
    /// How long directories of expired applications can be brought back.
    pub cleanup_grace: Duration,
    /// How long reads keep an application that is due, at most.
    pub cleanup_max_deferral: Duration,
    /// What drivers' timeouts are raised to.
    pub min_timeout: Duration,
    /// What drivers' timeouts are cut to; none takes any.
    pub max_timeout: Option<Duration>,
    /// Time between two sweeps; none does not sweep by itself.
    pub sweep_interval: Option<Duration>,
    /// Whether the start sweeps.
    pub sweep_at_start: bool,
    /// What is younger is left alone by sweeps.
    pub sweep_older_than: Duration,
    /// Whether what the service finds by itself is removed.
    pub sweep_remove: bool,
    /// Where sweeps see the machine's processes; none is `/proc`, where that shows all of them.
    pub sweep_procfs: Option<PathBuf>,
    /// Time between two looks for expired applications; at least a second.
    pub cleaner_interval: Duration,
    /// How long an application without a driver is kept after its last use; none is for ever.
    pub orphan_ttl: Option<Duration>,
    /// Memory for index files, in bytes; 0 keeps none.
    pub index_cache_size: u64,
    /// Chunks on their way at once before a connection that asks for more is closed; none is
    /// unlimited.
    pub max_chunks_being_transferred: Option<u64>,
    /// How long a connection may be idle; none is for ever.
    pub connection_timeout: Option<Duration>,
    /// Connections that may wait to be accepted; none leaves it to the system.
    pub back_log: Option<u32>,
    /// `SO_RCVBUF` in bytes; none leaves it to the system.
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF` in bytes; none leaves it to the system.
    pub send_buffer: Option<u32>,
    /// `SO_KEEPALIVE`.
    pub tcp_keep_alive: bool,
    /// Open streams of one connection, at least 1.
    pub max_streams: usize,
    /// How long a stream stays open that nobody reads from; at least a second.
    pub stream_idle_timeout: Duration,
    /// The largest frame that is accepted, in bytes.
    pub frame_max_size: usize,
    /// How long transfers may go on after SIGTERM; zero is not at all.
    pub drain_timeout: Duration,
    /// What log lines look like.
    pub log_format: LogFormat,
    /// Which log lines there are, as `tracing_subscriber::EnvFilter` reads it. Not checked here.
    pub log_filter: String,
}

/// What log lines look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// What `driver` and `fetch` go by: Spark's own client-side keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Port of the shuffle service on every machine.
    pub service_port: u16,
    /// How long a connection with requests on it may be idle; none is for ever.
    pub connection_timeout: Option<Duration>,
    /// How long connecting may take; none is for ever.
    pub connection_creation_timeout: Option<Duration>,
    /// Attempts to fetch after the first.
    pub max_retries: u32,
    /// Time between two attempts to fetch.
    pub retry_wait: Duration,
    /// Connections to one service, at least 1.
    pub connections_per_peer: usize,
    /// Whether blocks are asked for by `OpenBlocks`.
    pub use_old_fetch_protocol: bool,
    /// The largest block that is held in memory, in bytes.
    pub max_block_to_mem: u64,
    /// How long the registration of an executor may take; at least a millisecond.
    pub registration_timeout: Duration,
    /// Attempts to register an executor, the first one among them; at least 1.
    pub registration_attempts: u32,
    /// How long the driver may be silent; at least a millisecond. `Long.MAX_VALUE` ms is never.
    pub heartbeat_timeout: Duration,
    /// Time between two heartbeats; at least a millisecond, and less than the timeout.
    pub heartbeat_interval: Duration,
    /// What log lines look like.
    pub log_format: LogFormat,
    /// Which log lines there are. Not checked here.
    pub log_filter: String,
}

/// What `check-config` says about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: String,
    /// What holds, for people; the text itself if it is wrong or ignored.
    pub value: String,
    /// Where that came from.
    pub source: Source,
    /// The key that it fell back on.
    pub from: Option<&'static str>,
    /// Who reads it.
    pub role: Role,
    /// What it does, or why it is ignored.
    pub doc: &'static str,
    /// What is wrong with it and would be right.
    pub problem: Option<String>,
}

impl ServiceConfig {
    /// Checks everything that `serve` reads, and reports all that is wrong, here and in the layers.
    pub fn check(raw: &RawConfig) -> Result<Self, ConfigErrors> {
        let mut check = Checker::new(raw);
        check.refuse_unsupported();
        let port = check.port(keys::SERVICE_PORT);
        let config = Self {
            listen: check
                .address(keys::LISTEN)
                .unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, port).into()),
            admin_listen: check.address(keys::ADMIN_LISTEN),
            local_dirs: check.paths(keys::LOCAL_DIRS),
            state_dir: check.path(keys::STATE_DIR),
            cleanup: check.cleanup(),
            cleanup_grace: check.duration(keys::CLEANUP_GRACE),
            cleanup_max_deferral: check.duration(keys::CLEANUP_MAX_DEFERRAL),
            min_timeout: check.duration(keys::MIN_TIMEOUT),
            max_timeout: check.time(keys::MAX_TIMEOUT),
            sweep_interval: check.time(keys::SWEEP_INTERVAL),
            sweep_at_start: check.bool(keys::SWEEP_AT_START),
            sweep_older_than: check.duration(keys::SWEEP_OLDER_THAN),
            sweep_remove: check.bool(keys::SWEEP_REMOVE),
            sweep_procfs: check.path(keys::SWEEP_PROCFS),
            cleaner_interval: check.duration(keys::CLEANER_INTERVAL),
            orphan_ttl: check.time(keys::ORPHAN_TTL),
            index_cache_size: check.size(keys::INDEX_CACHE_SIZE),
            max_chunks_being_transferred: check.count(keys::MAX_CHUNKS),
            connection_timeout: check.time(keys::CONNECTION_TIMEOUT),
            back_log: check.count(keys::BACK_LOG),
            receive_buffer: check.count(keys::RECEIVE_BUFFER),
            send_buffer: check.count(keys::SEND_BUFFER),
            tcp_keep_alive: check.bool(keys::TCP_KEEP_ALIVE),
            max_streams: check.count(keys::MAX_STREAMS).unwrap_or_default(),
            stream_idle_timeout: check.duration(keys::STREAM_IDLE_TIMEOUT),
            frame_max_size: usize::try_from(check.size(keys::FRAME_MAX_SIZE)).unwrap_or(usize::MAX),
            drain_timeout: check.duration(keys::DRAIN_TIMEOUT),
            log_format: check.log_format(),
            log_filter: check.text(keys::LOG_FILTER),
        };
        check.timeouts(config.min_timeout, config.max_timeout);
        check.sweeps(&config);
        check.finish(config)
    }
}

impl Default for ServiceConfig {
    /// What holds where nothing was set.
    fn default() -> Self {
        Self::check(&RawConfig::default()).expect("the defaults of the table are valid")
    }
}

impl ClientSettings {
    /// Checks everything that `driver` and `fetch` read, and reports all that is wrong, here and in
    /// the layers.
    pub fn check(raw: &RawConfig) -> Result<Self, ConfigErrors> {
        let mut check = Checker::new(raw);
        check.refuse_unsupported();
        let settings = Self {
            service_port: check.port(keys::SERVICE_PORT),
            connection_timeout: check.time(keys::CONNECTION_TIMEOUT),
            connection_creation_timeout: check.time(keys::CONNECTION_CREATION_TIMEOUT),
            max_retries: check.count(keys::MAX_RETRIES).unwrap_or_default(),
            retry_wait: check.duration(keys::RETRY_WAIT),
            connections_per_peer: check.count(keys::CONNECTIONS_PER_PEER).unwrap_or_default(),
            use_old_fetch_protocol: check.bool(keys::OLD_FETCH_PROTOCOL),
            max_block_to_mem: check.size(keys::MAX_BLOCK_TO_MEM),
            registration_timeout: check.duration(keys::REGISTRATION_TIMEOUT),
            registration_attempts: check.count(keys::REGISTRATION_ATTEMPTS).unwrap_or_default(),
            heartbeat_timeout: check.duration(keys::HEARTBEAT_TIMEOUT),
            heartbeat_interval: check.duration(keys::HEARTBEAT_INTERVAL),
            log_format: check.log_format(),
            log_filter: check.text(keys::LOG_FILTER),
        };
        check.heartbeats(settings.heartbeat_interval, settings.heartbeat_timeout);
        check.finish(settings)
    }
}

impl Default for ClientSettings {
    /// What holds where nothing was set.
    fn default() -> Self {
        Self::check(&RawConfig::default()).expect("the defaults of the table are valid")
    }
}

impl RawConfig {
    /// Every key that is read, in the order of the table, then those that were set and are ignored.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let read = KEYS.iter().filter(|def| def.role != Role::Ignored).map(|def| {
            let Effective { from, text, source } = self.effective(def);
            let (value, problem) = match text.map(|text| (text, Value::parse(from.kind, text))) {
                None => (from.preset.to_string(), None),
                Some((text, Ok(Value::Bool(true)))) if from.kind == Kind::Unsupported => {
                    (text.to_owned(), Some("not supported yet; set it to false".to_owned()))
                }
                Some((_, Ok(value))) => (value.to_string(), None),
                Some((text, Err(problem))) => (text.to_owned(), Some(problem)),
            };
            Row {
                key: def.name.to_owned(),
                value,
                source,
                from: (from.name != def.name).then_some(from.name),
                role: def.role,
                doc: def.doc,
                problem,
            }
        });
        let ignored = self.ignored().map(|(key, def, setting)| Row {
            key: key.to_owned(),
            value: setting.value.clone(),
            source: setting.source.clone(),
            from: None,
            role: Role::Ignored,
            doc: def.doc,
            problem: None,
        });
        read.chain(ignored).collect()
    }

    /// What is probably not meant.
    #[must_use]
    pub fn warnings(&self) -> Vec<ConfigWarning> {
        let mut warnings = self.unknown_keys().to_vec();
        if let (Some(port), Some(listen)) =
            (self.setting(keys::SERVICE_PORT), self.setting(keys::LISTEN))
            && let Ok(Value::Port(port_value)) = Value::parse(Kind::Port, &port.value)
            && let Ok(Value::Address(Some(address))) =
                Value::parse(Kind::Address { off: false }, &listen.value)
            && port_value != address.port()
        {
            warnings.push(ConfigWarning::PortOverridden {
                origin: port.source.clone(),
                port: port_value,
                listen_origin: listen.source.clone(),
                listen_port: address.port(),
            });
        }
        warnings
    }
}

/// Reads values and gathers what is wrong with them. Where one is wrong, something stands in for it
/// that [`Checker::finish`] never lets out.
struct Checker<'a> {
    raw: &'a RawConfig,
    errors: Vec<ConfigError>,
}

impl<'a> Checker<'a> {
    fn new(raw: &'a RawConfig) -> Self {
        Self { raw, errors: raw.errors().to_vec() }
    }

    fn finish<T>(self, checked: T) -> Result<T, ConfigErrors> {
        if self.errors.is_empty() { Ok(checked) } else { Err(ConfigErrors(self.errors)) }
    }

    fn effective(&self, key: &str) -> Effective<'a> {
        self.raw.effective(KeyDef::find(key).expect("a key of the table"))
    }

    /// None where the value is wrong, or not being set is a value of its own.
    fn value(&mut self, key: &str) -> Option<Value> {
        let effective = self.effective(key);
        match Value::parse(effective.from.kind, effective.text?) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.invalid(&effective, problem);
                None
            }
        }
    }

    /// Once for each text, also if several keys fall back on it.
    fn invalid(&mut self, effective: &Effective<'_>, problem: String) {
        let error = ConfigError::Invalid {
            key: effective.from.name,
            value: effective.text.unwrap_or_default().to_owned(),
            origin: effective.source.clone(),
            problem,
        };
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Nobody shall believe that something is protected which is not.
    fn refuse_unsupported(&mut self) {
        for def in KEYS.iter().filter(|def| def.kind == Kind::Unsupported) {
            if self.bool(def.name) {
                let origin = self.raw.effective(def).source;
                self.errors.push(ConfigError::Unsupported { key: def.name, origin });
            }
        }
    }

    /// A driver must be heard in time. Spark holds its executors to the same.
    fn heartbeats(&mut self, interval: Duration, timeout: Duration) {
        if self.errors.is_empty() && interval >= timeout {
            self.errors.push(ConfigError::HeartbeatTooRare {
                interval,
                interval_origin: self.effective(keys::HEARTBEAT_INTERVAL).source,
                timeout,
                timeout_origin: self.effective(keys::HEARTBEAT_TIMEOUT).source,
            });
        }
    }

    /// A floor above the cap would leave no timeout at all.
    fn timeouts(&mut self, least: Duration, most: Option<Duration>) {
        if most.is_some_and(|most| least > most) {
            let effective = self.effective(keys::MIN_TIMEOUT);
            let problem = format!("longer than {}", keys::MAX_TIMEOUT);
            self.invalid(&effective, problem);
        }
    }

    /// Who owns a directory is known only below roots of which all services are ours.
    fn sweeps(&mut self, config: &ServiceConfig) {
        let sweeps = config.sweep_interval.is_some() || config.sweep_at_start;
        if sweeps && config.local_dirs.is_empty() {
            let by =
                if config.sweep_at_start { keys::SWEEP_AT_START } else { keys::SWEEP_INTERVAL };
            let effective = self.effective(by);
            let problem =
                format!("needs {}: without roots nothing can be searched", keys::LOCAL_DIRS);
            self.invalid(&effective, problem);
        }
    }

    fn bool(&mut self, key: &str) -> bool {
        match self.value(key) {
            Some(Value::Bool(value)) => value,
            None => false,
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn port(&mut self, key: &str) -> u16 {
        match self.value(key) {
            Some(Value::Port(port)) => port,
            None => 0,
            Some(other) => wrong_kind(key, &other),
        }
    }

    /// The bounds in the table are such that every count fits.
    fn count<T: TryFrom<i64>>(&mut self, key: &str) -> Option<T> {
        match self.value(key) {
            Some(Value::Count(count)) => T::try_from(count?).ok(),
            None => None,
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn time(&mut self, key: &str) -> Option<Duration> {
        match self.value(key) {
            Some(Value::Time(time)) => time,
            None => None,
            Some(other) => wrong_kind(key, &other),
        }
    }

    /// A time that cannot be off, though the one that it falls back on can.
    fn duration(&mut self, key: &str) -> Duration {
        match self.value(key) {
            Some(Value::Time(Some(time))) => time,
            Some(Value::Time(None)) => {
                let effective = self.effective(key);
                let problem =
                    format!("counts for {key} as well, which cannot be off; set that too");
                self.invalid(&effective, problem);
                Duration::ZERO
            }
            None => Duration::ZERO,
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn size(&mut self, key: &str) -> u64 {
        match self.value(key) {
            Some(Value::Size(bytes)) => bytes,
            None => 0,
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn address(&mut self, key: &str) -> Option<SocketAddr> {
        match self.value(key) {
            Some(Value::Address(address)) => address,
            None => None,
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn paths(&mut self, key: &str) -> Vec<PathBuf> {
        match self.value(key) {
            Some(Value::Paths(paths)) => paths,
            None => Vec::new(),
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn path(&mut self, key: &str) -> Option<PathBuf> {
        match self.value(key) {
            Some(Value::Path(path)) => Some(path),
            None => None,
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn cleanup(&mut self) -> Cleanup {
        match self.text(keys::CLEANUP).as_str() {
            "off" => Cleanup::Off,
            "report" => Cleanup::Report,
            _ => Cleanup::On,
        }
    }

    fn text(&mut self, key: &str) -> String {
        match self.value(key) {
            Some(Value::Text(text)) => text,
            None => String::new(),
            Some(other) => wrong_kind(key, &other),
        }
    }

    fn log_format(&mut self) -> LogFormat {
        match self.text(keys::LOG_FORMAT).as_str() {
            "json" => LogFormat::Json,
            _ => LogFormat::Text,
        }
    }
}

/// The table and this file disagree; every check of the defaults would find it.
fn wrong_kind(key: &str, value: &Value) -> ! {
    unreachable!("{key} is read as another kind than {value:?}")
}
