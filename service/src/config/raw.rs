//! The first step: texts and where they came from.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use shuffle_protocol::spark_conf::parse_properties;

use super::keys::{ENV_PREFIX, KEYS, KeyDef, Preset, Role};
use super::suggest::closest;
use super::{ConfigError, ConfigWarning};

/// Names the properties file where no flag does. It stands for no key.
pub const PROPERTIES_FILE_ENV: &str = "SHUFFLED_PROPERTIES_FILE";

/// Variables that begin so are for the tests of this project, and stand for no key.
const TEST_ENV_PREFIX: &str = "SHUFFLED_TEST_";

/// Where a value came from. The order is that of the layers, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: the default.
    Default,
    /// A properties file.
    File {
        /// The file, as it was named.
        path: Arc<Path>,
        /// The line on which the entry begins, from 1.
        line: u32,
    },
    /// The environment variable of this name.
    Env(String),
    /// `--conf key=value`.
    Conf,
    /// The flag of this name, with its dashes.
    Flag(&'static str),
}

impl Source {
    fn layer(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Env(_) => 2,
            Self::Conf => 3,
            Self::Flag(_) => 4,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Conf => f.write_str("--conf"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The text.
    pub value: String,
    /// Where it stood.
    pub source: Source,
}

/// What holds for a key: its own setting or default, or those of the key it falls back on.
#[derive(Debug)]
pub(super) struct Effective<'a> {
    /// The key whose value it is.
    pub(super) from: &'static KeyDef,
    /// The text; none where not being set is a value of its own.
    pub(super) text: Option<&'a str>,
    pub(super) source: Source,
}

/// All layers. What is wrong with them is kept until [`super::ServiceConfig::check`] reports it.
///
/// Only values of known keys are kept: a secret that stands in the same file is not.
#[derive(Debug, Clone, Default)]
pub struct RawConfig {
    set: BTreeMap<&'static str, Setting>,
    /// By their full names, since one entry of the table stands for many.
    ignored: BTreeMap<String, Setting>,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigWarning>,
}

impl RawConfig {
    /// Adds the properties file at `path`, which is read as UTF-8; what is not becomes U+FFFD, as
    /// in Spark.
    pub fn properties_file(&mut self, path: &Path) {
        match std::fs::read(path) {
            Ok(bytes) => self.properties(path, &String::from_utf8_lossy(&bytes)),
            Err(e) => self
                .errors
                .push(ConfigError::Unreadable { path: path.to_owned(), problem: e.to_string() }),
        }
    }

    /// Adds the text of a properties file; `path` is only for what is said about it.
    pub fn properties(&mut self, path: &Path, text: &str) {
        let shared: Arc<Path> = path.into();
        // Spark takes a byte order mark for part of the first key, which is then nobody's.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match parse_properties(text) {
            Ok(entries) => {
                for entry in entries {
                    let source = Source::File { path: Arc::clone(&shared), line: entry.line };
                    self.file_entry(entry.key, entry.value, source);
                }
            }
            Err(errors) => self.errors.extend(errors.into_iter().map(|e| ConfigError::Malformed {
                path: path.to_owned(),
                line: e.line,
                problem: e.to_string(),
            })),
        }
    }

    fn file_entry(&mut self, key: String, value: String, source: Source) {
        if let Some(def) = KeyDef::find(&key) {
            self.put(def, &key, value, source);
        } else if key.starts_with("spark.shuffle.") || key.starts_with("shuffled.") {
            let suggestion = similar_key(&key);
            self.warnings.push(ConfigWarning::UnknownKey { key, origin: source, suggestion });
        }
    }

    /// Adds the environment, of which only `SHUFFLED_*` is looked at ([`super::env_name`]).
    pub fn environment(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) {
        let ours = variables.into_iter().filter_map(|(name, value)| {
            name.into_string().ok().filter(|n| n.starts_with(ENV_PREFIX)).map(|n| (n, value))
        });
        // The environment has no order of its own, and reports should have one.
        let ours: BTreeMap<_, _> = ours.collect();
        let services: Vec<String> = ours
            .keys()
            .filter_map(|n| n.strip_suffix("_SERVICE_HOST"))
            .map(str::to_owned)
            .collect();
        for (name, value) in ours {
            if name != PROPERTIES_FILE_ENV && !name.starts_with(TEST_ENV_PREFIX) {
                self.variable(name, value, &services);
            }
        }
    }

    fn variable(&mut self, name: String, value: OsString, services: &[String]) {
        let single = || KEYS.iter().filter(|key| !key.is_family());
        if let Some(def) = single().find(|key| key.env() == name) {
            match value.into_string() {
                Ok(value) => self.put(def, def.name, value, Source::Env(name)),
                Err(_) => self.errors.push(ConfigError::NotUnicode { name }),
            }
        } else if !is_service_link(&name, services) {
            let names: Vec<String> = single().map(KeyDef::env).collect();
            let suggestion = closest(&name, names.iter().map(String::as_str)).map(str::to_owned);
            self.errors.push(ConfigError::UnknownVariable { name, suggestion });
        }
    }

    /// Adds the `key=value` of a `--conf`. Keys of Spark's that have nothing to do with shuffles
    /// are passed over, so that the same ones can be given as to `spark-submit`.
    pub fn conf(&mut self, text: &str) {
        let Some((key, value)) = text.split_once('=').filter(|(key, _)| !key.trim().is_empty())
        else {
            self.errors.push(ConfigError::NotKeyValue { text: text.to_owned() });
            return;
        };
        let (key, value) = (key.trim(), value.trim());
        if let Some(def) = KeyDef::find(key) {
            self.put(def, key, value.to_owned(), Source::Conf);
        } else if key.starts_with("spark.shuffle.") || !key.starts_with("spark.") {
            self.unknown(key, Source::Conf);
        }
    }

    /// Adds what the flag (`--listen`) says about a key ([`super::keys`]).
    pub fn flag(&mut self, flag: &'static str, key: &str, value: impl Into<String>) {
        match KeyDef::find(key) {
            Some(def) => self.put(def, key, value.into(), Source::Flag(flag)),
            None => self.unknown(key, Source::Flag(flag)),
        }
    }

    fn unknown(&mut self, key: &str, origin: Source) {
        let suggestion = similar_key(key);
        self.errors.push(ConfigError::UnknownKey { key: key.to_owned(), origin, suggestion });
    }

    fn put(&mut self, def: &'static KeyDef, key: &str, value: String, source: Source) {
        let setting = Setting { value, source };
        let below = |old: &Setting| old.source.layer() <= setting.source.layer();
        if def.role == Role::Ignored {
            if self.ignored.get(key).is_none_or(below) {
                self.ignored.insert(key.to_owned(), setting);
            }
        } else if self.set.get(def.name).is_none_or(below) {
            self.set.insert(def.name, setting);
        }
    }

    /// What was set for a key that is read, by its name; not its default.
    #[must_use]
    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.set.get(key)
    }

    /// What was set for keys that Spark knows and nobody here reads, in their order.
    pub fn ignored(&self) -> impl Iterator<Item = (&str, &'static KeyDef, &Setting)> {
        self.ignored
            .iter()
            .filter_map(|(key, setting)| Some((key.as_str(), KeyDef::find(key)?, setting)))
    }

    /// What went wrong with the layers themselves.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    pub(super) fn unknown_keys(&self) -> &[ConfigWarning] {
        &self.warnings
    }

    pub(super) fn effective(&self, def: &'static KeyDef) -> Effective<'_> {
        let mut from = def;
        // No key falls back on itself in the end; a test of the table holds that.
        loop {
            if let Some(Setting { value, source }) = self.set.get(from.name) {
                return Effective { from, text: Some(value), source: source.clone() };
            }
            let (text, other) = match from.preset {
                Preset::Value(text) => (Some(text), None),
                Preset::Unset(_) => (None, None),
                Preset::SameAs(other) => (None, KeyDef::find(other)),
            };
            match other {
                Some(other) => from = other,
                None => return Effective { from, text, source: Source::Default },
            }
        }
    }
}

fn similar_key(key: &str) -> Option<String> {
    let names = KEYS.iter().filter(|def| !def.is_family()).map(|def| def.name);
    closest(key, names).map(str::to_owned)
}

/// Kubernetes tells every container about the services beside it. If one of those is called
/// `shuffled`, that is `SHUFFLED_SERVICE_HOST`, `SHUFFLED_PORT_7337_TCP_ADDR` and the like: not
/// meant for us, and no reason not to start. `services` are the names before `_SERVICE_HOST`.
fn is_service_link(name: &str, services: &[String]) -> bool {
    services.iter().filter_map(|service| name.strip_prefix(service.as_str())).any(|rest| {
        matches!(rest, "_SERVICE_HOST" | "_SERVICE_PORT" | "_PORT")
            || rest.starts_with("_SERVICE_PORT_")
            || rest.starts_with("_PORT_")
    })
}
