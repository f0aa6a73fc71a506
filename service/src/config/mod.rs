//! Configuration in two steps: what was written, and where ([`RawConfig`]), then what it means,
//! checked ([`ServiceConfig`], [`ClientSettings`]).
//!
//! The layers, each above the one before: defaults, a properties file ([`RawConfig::properties`]),
//! the environment ([`RawConfig::environment`]), `--conf key=value` ([`RawConfig::conf`]), flags
//! ([`RawConfig::flag`]). They may be added in any order. Of the same layer the last one wins.
//!
//! One table, [`KEYS`], says which keys there are. A properties file may be shared with Spark
//! itself: what belongs to executors and drivers alone is passed over there, and a key below
//! `spark.shuffle.` or `shuffled.` that nobody knows is a warning with its line. Anywhere else it
//! was meant for us, and is an error.
//!
//! An environment variable is named after its key by [`env_name`]:
//!
//! | key | variable |
//! |---|---|
//! | `shuffled.local.dirs` | `SHUFFLED_LOCAL_DIRS` |
//! | `shuffled.frame.maxSize` | `SHUFFLED_FRAME_MAX_SIZE` |
//! | `spark.shuffle.service.port` | `SHUFFLED_SPARK_SHUFFLE_SERVICE_PORT` |
//!
//! No step stops at its first error: [`ConfigErrors`] has them all.
//!
//! ```
//! use std::path::Path;
//! use shuffled_service::config::{RawConfig, ServiceConfig, keys};
//!
//! let mut raw = RawConfig::default();
//! raw.properties(Path::new("spark-defaults.conf"), "spark.shuffle.cleaner.interval  10s\n");
//! raw.conf("spark.shuffle.service.port=7447");
//! raw.flag("--admin", keys::ADMIN_LISTEN, "off");
//! let config = ServiceConfig::check(&raw).unwrap();
//! assert_eq!(config.listen.port(), 7447);
//! assert_eq!(config.admin_listen, None);
//! ```

mod check;
mod error;
pub mod keys;
mod raw;
mod suggest;
#[cfg(test)]
mod tests;
mod value;

pub use check::{ClientSettings, LogFormat, Row, ServiceConfig};
pub use error::{ConfigError, ConfigErrors, ConfigWarning};
pub use keys::{KEYS, KeyDef, Kind, Preset, Role, env_name};
pub use raw::{PROPERTIES_FILE_ENV, RawConfig, Setting, Source};
pub use value::Value;
