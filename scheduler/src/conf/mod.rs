//! Spark's keys, checked before anything is launched (`spec/spark-mesos-coarse.md` part B).
//!
//! What Spark's own backend lacks has keys that begin with `shuffled.mesos.`; with the values that
//! `docs/mesos.md` lists as `compat` it behaves as Spark's.

mod container;
mod lists;
mod reader;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use shuffle_protocol::HeartbeatTimeout;
use shuffle_protocol::spark_conf::TimeUnit;

use crate::constraints::Constraints;
use crate::mesos::task::{ContainerInfo, Labels, Variable};

use self::reader::Reader;
pub use self::reader::{ConfError, SparkConf, Surroundings};

const SECOND: Duration = Duration::from_secs(1);

/// What the coarse-grained backend goes by.
#[derive(Debug, Clone)]
pub struct CoarseConf {
    /// What the framework says of itself.
    pub framework: FrameworkConf,
    /// What an executor is.
    pub executor: ExecutorConf,
    /// Cores of all executors together, a multiple of an executor's; none is no limit.
    pub cores_max: Option<u32>,
    /// GPUs of all executors together.
    pub gpus_max: u32,
    /// Which agents may run executors.
    pub constraints: Constraints,
    /// For how long an agent that may not is not offered again.
    pub refuse_unmet: Duration,
    /// For how long nothing is offered once all cores are there.
    pub refuse_max_cores: Duration,
    /// How long executors are given to end before all is torn down.
    pub shutdown_timeout: Duration,
    /// How long an executor waits for one of the hosts that the driver would like.
    pub locality_wait: Duration,
    /// The driver says how many executors it wants; until it has, none.
    pub dynamic_allocation: bool,
    /// The shuffle service of each agent, if executors use it.
    pub shuffle: Option<ShuffleConf>,
    /// Which part of `cores_max` has to have registered before a job starts.
    pub min_registered_ratio: f64,
    /// How long that is waited for.
    pub max_registered_wait: Duration,
    /// What Spark's own backend lacks.
    pub care: Care,
}

/// What the framework says of itself.
#[derive(Debug, Clone)]
pub struct FrameworkConf {
    /// The application's.
    pub name: String,
    /// The account that executors run as.
    pub user: String,
    /// Of whose offers.
    pub role: String,
    /// Of the driver, for people.
    pub hostname: Option<String>,
    /// For people.
    pub webui_url: Option<String>,
    /// How long the master keeps executors of a backend that is not connected.
    pub failover_timeout: Duration,
    /// Whether executors outlive their agent's process.
    pub checkpoint: bool,
    /// An id that was given before, by configuration.
    pub id: Option<String>,
    /// Who it is, and how that is proved.
    pub credential: Option<Credential>,
}

/// Principal and secret.
#[derive(Clone)]
pub struct Credential {
    /// Who.
    pub principal: String,
    /// Proof; without one the principal is only said.
    pub secret: Option<String>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({}, …)", self.principal)
    }
}

/// What an executor is.
#[derive(Debug, Clone)]
pub struct ExecutorConf {
    /// Its cores; none takes all of an offer.
    pub cores: Option<u32>,
    /// Added to the cores that it is told it has, not to those that are taken.
    pub extra_cores: u32,
    /// With its overhead, in MiB.
    pub memory_mib: u32,
    /// That its agent has to offer.
    pub ports: BTreeSet<u16>,
    /// Where Spark comes from.
    pub distribution: Distribution,
    /// Fetched besides.
    pub uris: Vec<String>,
    /// Whether agents keep what they fetch.
    pub fetcher_cache: bool,
    /// Before Spark's own classes.
    pub class_path: Option<String>,
    /// For its Java, with `{{APP_ID}}` and `{{EXECUTOR_ID}}`.
    pub java_options: String,
    /// For its native libraries.
    pub library_path: Option<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// Environment variables that hold secrets.
    pub secrets: Vec<Variable>,
    /// Of its task.
    pub labels: Labels,
    /// What it runs in.
    pub container: ContainerInfo,
    /// It has a network of its own, so that its agent's name is not its address.
    pub own_network: bool,
}

/// Where Spark comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distribution {
    /// A directory that is on each agent.
    Home(String),
    /// An archive that each executor fetches.
    Uri(String),
}

/// How executors' shuffle services are told of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShuffleConf {
    /// On each agent.
    pub port: u16,
    /// Silence after which they give the application up.
    pub timeout: HeartbeatTimeout,
    /// Between two heartbeats.
    pub interval: Duration,
}

/// What Spark's own backend lacks; each can be switched off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Care {
    /// How long an executor whose agent cannot be reached is waited for; zero gives it up at once.
    pub unreachable_grace: Duration,
    /// Failures of executors on an agent after which it gets no more; none never does.
    pub excluded_after: Option<u32>,
    /// For how long they count; none is for ever.
    pub excluded_for: Option<Duration>,
    /// Whether failures count that say nothing against the agent.
    pub count_all_failures: bool,
    /// After a failure an agent waits for this long, twice as long after each further one.
    pub launch_backoff: Duration,
    /// And at most so long.
    pub launch_backoff_max: Duration,
    /// How long a launch may go without an answer before it is asked for, and given up.
    pub staging_timeout: Option<Duration>,
    /// Between two looks for tasks that nobody knows; none never looks.
    pub reconcile_interval: Option<Duration>,
    /// Whether offers are stopped while nothing is wanted.
    pub suppress: bool,
    /// While something is wanted, offers are asked for again after this long without any.
    pub revive_interval: Option<Duration>,
    /// Whether several offers of one agent are used as one.
    pub merge_offers: bool,
    /// Executors on one agent at most.
    pub max_per_agent: Option<u32>,
}

/// Spark's list of what an executor has to open on Java 17, which a driver of 3.3 or later adds for the cluster
/// managers it knows. Java 8 skips what it does not know.
pub const JAVA_MODULE_OPTIONS: &str = "-XX:+IgnoreUnrecognizedVMOptions \
    --add-opens=java.base/java.lang=ALL-UNNAMED \
    --add-opens=java.base/java.lang.invoke=ALL-UNNAMED \
    --add-opens=java.base/java.lang.reflect=ALL-UNNAMED \
    --add-opens=java.base/java.io=ALL-UNNAMED \
    --add-opens=java.base/java.net=ALL-UNNAMED \
    --add-opens=java.base/java.nio=ALL-UNNAMED \
    --add-opens=java.base/java.util=ALL-UNNAMED \
    --add-opens=java.base/java.util.concurrent=ALL-UNNAMED \
    --add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED \
    --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED \
    --add-opens=java.base/sun.nio.ch=ALL-UNNAMED \
    --add-opens=java.base/sun.nio.cs=ALL-UNNAMED \
    --add-opens=java.base/sun.security.action=ALL-UNNAMED \
    --add-opens=java.base/sun.util.calendar=ALL-UNNAMED \
    --add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED \
    -Djdk.reflect.useDirectMethodHandle=false";

impl CoarseConf {
    /// Checks all keys that the backend reads.
    ///
    /// # Errors
    /// All that is wrong, each with its key.
    pub fn check(conf: &SparkConf, around: &dyn Surroundings) -> Result<Self, Vec<ConfError>> {
        let mut read = Reader { conf, around, errors: Vec::new() };
        let this = Self::read(&mut read);
        if read.errors.is_empty() { Ok(this) } else { Err(read.errors) }
    }

    fn read(read: &mut Reader<'_>) -> Self {
        for (key, why) in [
            ("spark.io.encryption.enabled", "I/O encryption is not supported on Mesos"),
            ("spark.authenticate", "authentication is not supported yet"),
        ] {
            if read.bool(key, false) {
                read.wrong(key, why);
            }
        }
        let executor = executor(read);
        let refuse = read.time("spark.mesos.rejectOfferDuration", TimeUnit::Seconds, 120 * SECOND);
        let mut refuse_for = |key: &str| read.time(key, TimeUnit::Seconds, refuse);
        let refuse_unmet = refuse_for("spark.mesos.rejectOfferDurationForUnmetConstraints");
        let refuse_max_cores = refuse_for("spark.mesos.rejectOfferDurationForReachedMaxCores");
        let ratio = read.real("spark.scheduler.minRegisteredResourcesRatio", 0.0).min(1.0);
        Self {
            framework: framework(read),
            cores_max: cores_max(read, executor.cores),
            executor,
            gpus_max: read.count("spark.mesos.gpus.max", 0).unwrap_or(0),
            constraints: read.parsed(
                "spark.mesos.constraints",
                Constraints::default(),
                Constraints::parse,
            ),
            refuse_unmet,
            refuse_max_cores,
            shutdown_timeout: read.time(
                "spark.mesos.coarse.shutdownTimeout",
                TimeUnit::Millis,
                10 * SECOND,
            ),
            locality_wait: read.time("spark.locality.wait", TimeUnit::Millis, 3 * SECOND),
            dynamic_allocation: read.bool("spark.dynamicAllocation.enabled", false),
            shuffle: shuffle(read),
            min_registered_ratio: ratio,
            max_registered_wait: read.time(
                "spark.scheduler.maxRegisteredResourcesWaitingTime",
                TimeUnit::Millis,
                30 * SECOND,
            ),
            care: care(read),
        }
    }
}

fn framework(read: &mut Reader<'_>) -> FrameworkConf {
    let timeout = "spark.mesos.driver.failoverTimeout";
    let seconds = read.real(timeout, 60.0);
    // The master reckons in nanoseconds of an i64.
    let failover_timeout = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|timeout| i64::try_from(timeout.as_nanos()).is_ok())
        .unwrap_or_else(|| {
            read.wrong(timeout, "more than 292 years is more than Mesos takes");
            Duration::ZERO
        });
    let text = |read: &Reader<'_>, key| read.text(key).map(str::to_owned);
    FrameworkConf {
        name: text(read, "spark.app.name").unwrap_or_else(|| "Spark".to_owned()),
        user: read
            .around
            .variable("SPARK_USER")
            .or_else(|| read.around.variable("USER"))
            .unwrap_or_else(|| "root".to_owned()),
        role: read.parsed("spark.mesos.role", "*".to_owned(), role),
        hostname: read
            .around
            .variable("SPARK_PUBLIC_DNS")
            .or_else(|| text(read, "spark.driver.host")),
        webui_url: text(read, "spark.mesos.driver.webui.url"),
        failover_timeout,
        checkpoint: read.bool("shuffled.mesos.checkpoint", true),
        id: text(read, "spark.mesos.driver.frameworkId"),
        credential: credential(read),
    }
}

/// `spec/mesos-http-api.md` §12.
fn role(text: &str) -> Result<String, &'static str> {
    let part = |part: &str| {
        !matches!(part, "" | "." | ".." | "*")
            && !part.starts_with('-')
            && !part.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if text == "*" || text.split('/').all(part) {
        return Ok(text.to_owned());
    }
    Err("not a role; use * or names between slashes, without space, not beginning with -")
}

fn credential(read: &mut Reader<'_>) -> Option<Credential> {
    let principal = credential_part(read, "principal", "PRINCIPAL");
    let secret = credential_part(read, "secret", "SECRET");
    match (principal, secret) {
        (Some(principal), _) if principal.contains(':') => {
            read.wrong("spark.mesos.principal", "HTTP Basic has no way to send a ':' in it");
            None
        }
        (Some(principal), secret) => Some(Credential { principal, secret }),
        (None, Some(_)) => {
            read.wrong("spark.mesos.principal", "there is a secret, but nobody whose it is");
            None
        }
        (None, None) => None,
    }
}

/// The first of: the key, the variable, the file that the key names, the file that the variable names.
fn credential_part(read: &mut Reader<'_>, key: &str, variable: &str) -> Option<String> {
    let (key, variable) = (format!("spark.mesos.{key}"), format!("SPARK_MESOS_{variable}"));
    let said = read.text(&key).map(str::to_owned).or_else(|| read.around.variable(&variable));
    if said.is_some() {
        return said;
    }
    let (file_key, file_variable) = (format!("{key}.file"), format!("{variable}_FILE"));
    let (named_by, path) = match read.text(&file_key) {
        Some(path) => (file_key, path.to_owned()),
        None => (file_variable.clone(), read.around.variable(&file_variable)?),
    };
    match read.around.file(&path) {
        // Spark takes the end of the last line along, which nobody means.
        Ok(text) => Some(text.trim_end_matches(['\r', '\n']).to_owned()),
        Err(error) => {
            read.errors.push(ConfError {
                key: named_by,
                value: Some(path),
                why: format!("cannot be read: {error}"),
            });
            None
        }
    }
}

fn executor(read: &mut Reader<'_>) -> ExecutorConf {
    let text = |read: &Reader<'_>, key| read.text(key).map(str::to_owned);
    let (secrets, secret_files) = container::secrets(read);
    let pinned = read.port("spark.blockManager.port", 0);
    let module_options = read.bool("shuffled.mesos.javaModuleOptions", true);
    let java_options = [
        module_options.then_some(JAVA_MODULE_OPTIONS),
        read.text("spark.executor.extraJavaOptions"),
    ];
    ExecutorConf {
        cores: read.count("spark.executor.cores", 1),
        extra_cores: read.count("spark.mesos.extra.cores", 0).unwrap_or(0),
        memory_mib: memory(read),
        ports: (pinned != 0).then_some(pinned).into_iter().collect(),
        distribution: distribution(read),
        uris: read
            .text("spark.mesos.uris")
            .map_or_else(Vec::new, |text| lists::items(text).map(str::to_owned).collect()),
        fetcher_cache: read.bool("spark.mesos.fetcherCache.enable", false),
        class_path: text(read, "spark.executor.extraClassPath"),
        java_options: java_options.into_iter().flatten().collect::<Vec<_>>().join(" "),
        library_path: text(read, "spark.executor.extraLibraryPath"),
        environment: read
            .conf
            .below("spark.executorEnv.")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        secrets,
        labels: read.parsed("spark.mesos.task.labels", Labels::default(), lists::labels),
        own_network: container::has_network(read),
        container: container::container(read, secret_files),
    }
}

/// With the overhead: what is set, or a part of it, or 384 MiB if that is more.
fn memory(read: &mut Reader<'_>) -> u32 {
    const KEY: &str = "spark.executor.memory";
    let heap = read.mebibytes(KEY, 1024);
    let factor = read.real("spark.executor.memoryOverheadFactor", 0.1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates; a factor is not negative"
    )]
    let part = (f64::from(heap) * factor) as u32;
    let overhead =
        read.count("spark.mesos.executor.memoryOverhead", 0).unwrap_or_else(|| part.max(384));
    if heap == 0 {
        read.wrong(KEY, "an executor needs at least 1m");
    }
    heap.saturating_add(overhead)
}

fn distribution(read: &mut Reader<'_>) -> Distribution {
    let uri = read
        .text("spark.executor.uri")
        .map(str::to_owned)
        .or_else(|| read.around.variable("SPARK_EXECUTOR_URI"));
    if let Some(uri) = uri {
        return Distribution::Uri(uri);
    }
    const HOME: &str = "spark.mesos.executor.home";
    let home = read
        .text(HOME)
        .map(str::to_owned)
        .or_else(|| read.around.variable("SPARK_HOME"))
        .unwrap_or_else(|| {
            read.wrong(
                HOME,
                "not set; say where Spark is on the agents, or set spark.executor.uri",
            );
            String::new()
        });
    if home.contains(['"', '$', '`', '\\']) {
        read.wrong(HOME, "a shell would read it as something else");
    }
    Distribution::Home(home)
}

fn cores_max(read: &mut Reader<'_>, executor_cores: Option<u32>) -> Option<u32> {
    const KEY: &str = "spark.cores.max";
    let all = read.count(KEY, 1)?;
    let each = executor_cores.unwrap_or(1);
    if all < each {
        read.wrong(
            KEY,
            format!("less than spark.executor.cores ({each}): no executor could start"),
        );
    }
    Some(all - all % each)
}

fn shuffle(read: &mut Reader<'_>) -> Option<ShuffleConf> {
    let enabled = read.bool("spark.shuffle.service.enabled", false);
    let port = read.port("spark.shuffle.service.port", 7337);
    let network = read.time("spark.network.timeout", TimeUnit::Seconds, 120 * SECOND);
    // The name that it had before 3.0.
    let old = read.time("spark.storage.blockManagerSlaveTimeoutMs", TimeUnit::Millis, network);
    let timeout = read.time("spark.storage.blockManagerHeartbeatTimeoutMs", TimeUnit::Millis, old);
    let interval = read.time("spark.executor.heartbeatInterval", TimeUnit::Millis, 10 * SECOND);
    if enabled && interval.is_zero() {
        read.wrong("spark.executor.heartbeatInterval", "must be more than 0");
    }
    if enabled && timeout <= interval {
        let why = "not more than spark.executor.heartbeatInterval: the services would give the application up between two heartbeats";
        read.wrong("spark.storage.blockManagerHeartbeatTimeoutMs", why);
    }
    enabled.then_some(ShuffleConf { port, timeout: HeartbeatTimeout::After(timeout), interval })
}

fn care(read: &mut Reader<'_>) -> Care {
    let seconds = TimeUnit::Seconds;
    let off = |read: &mut Reader<'_>, key: &str, default: u32| match read.conf.get(key) {
        Some("off") => None,
        Some(_) => read.count(key, 1),
        None => Some(default),
    };
    Care {
        unreachable_grace: read.time("shuffled.mesos.unreachableGrace", seconds, 60 * SECOND),
        excluded_after: off(read, "shuffled.mesos.exclusion.failures", 2),
        excluded_for: read.time_or_off("shuffled.mesos.exclusion.expiry", 3600 * SECOND),
        count_all_failures: read.bool("shuffled.mesos.exclusion.countAll", false),
        launch_backoff: read.time("shuffled.mesos.launchBackoff", seconds, SECOND),
        launch_backoff_max: read.time("shuffled.mesos.launchBackoff.max", seconds, 60 * SECOND),
        staging_timeout: read.time_or_off("shuffled.mesos.stagingTimeout", 300 * SECOND),
        reconcile_interval: read.time_or_off("shuffled.mesos.reconcileInterval", 900 * SECOND),
        suppress: read.bool("shuffled.mesos.suppress", true),
        revive_interval: read.time_or_off("shuffled.mesos.reviveInterval", 30 * SECOND),
        merge_offers: read.bool("shuffled.mesos.mergeOffers", true),
        max_per_agent: read.count("shuffled.mesos.maxExecutorsPerAgent", 1),
    }
}
