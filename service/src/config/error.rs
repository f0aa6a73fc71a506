//! What can be wrong with a configuration. Every text says where it was set, what is wrong, and
//! what would be right.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use shuffle_protocol::spark_conf::render_time;
use thiserror::Error;

use super::Source;

/// One thing that is wrong. All of them are wrong usage: exit code 2.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The properties file cannot be read.
    #[error("{}: cannot read the properties file: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// A properties file that Java refuses.
    #[error("{}:{line}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u32,
        /// What is wrong and would be right.
        problem: String,
    },
    /// `--conf` without `=`.
    #[error("--conf: {text:?} has no value; write --conf key=value")]
    NotKeyValue {
        /// What was given.
        text: String,
    },
    /// An environment variable that is not UTF-8.
    #[error("environment {name}: the value is not UTF-8")]
    NotUnicode {
        /// The variable.
        name: String,
    },
    /// A key that nobody knows, where one of ours was meant.
    #[error("{origin}: unknown key {key}{}", did_you_mean(suggestion.as_deref()))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it was set.
        origin: Source,
        /// The known key that is closest.
        suggestion: Option<String>,
    },
    /// A variable that begins with `SHUFFLED_` and stands for no key.
    #[error("environment {name}: stands for no key{}", did_you_mean(suggestion.as_deref()))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The variable that is closest.
        suggestion: Option<String>,
    },
    /// A value that is not one of its key.
    #[error("{origin}: {key} = {value:?}: {problem}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// Where it was set.
        origin: Source,
        /// What is wrong and would be right.
        problem: String,
    },
    /// A switch for something that cannot be done, and without which running would deceive.
    #[error(
        "{origin}: {key} = true: not supported yet; nothing would be protected, so set it to false"
    )]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Where it was set.
        origin: Source,
    },
    /// A driver that beats so seldom that it is dead in between.
    #[error(
        "{interval_origin}: {} = {}: must be shorter than {} = {} ({timeout_origin})",
        super::keys::HEARTBEAT_INTERVAL,
        render_time(*interval),
        super::keys::HEARTBEAT_TIMEOUT,
        render_time(*timeout)
    )]
    HeartbeatTooRare {
        /// Time between heartbeats.
        interval: Duration,
        /// Where that was set.
        interval_origin: Source,
        /// How long the driver may be silent.
        timeout: Duration,
        /// Where that was set.
        timeout_origin: Source,
    },
}

/// Everything that is wrong, one on a line; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigErrors {
    /// The errors: those of reading first, then by key.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Something that is probably not meant, but does no harm to others who share the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigWarning {
    /// A key below `spark.shuffle.` or `shuffled.` that nobody knows.
    UnknownKey {
        /// The key.
        key: String,
        /// Where it was set.
        origin: Source,
        /// The known key that is closest.
        suggestion: Option<String>,
    },
    /// Two ports, of which executors are told the one that is not used.
    PortOverridden {
        /// Where `spark.shuffle.service.port` was set.
        origin: Source,
        /// Its value.
        port: u16,
        /// Where `shuffled.listen` was set.
        listen_origin: Source,
        /// The port in it.
        listen_port: u16,
    },
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, origin, suggestion } => {
                write!(f, "{origin}: unknown key {key}{}", did_you_mean(suggestion.as_deref()))
            }
            Self::PortOverridden { origin, port, listen_origin, listen_port } => write!(
                f,
                "{origin}: {} = {port} is not used: {} has port {listen_port} ({listen_origin})",
                super::keys::SERVICE_PORT,
                super::keys::LISTEN,
            ),
        }
    }
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}
