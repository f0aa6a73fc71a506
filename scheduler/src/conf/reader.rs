//! Texts to values: every fault is told, each with its key and its value.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use shuffle_protocol::spark_conf::{
    SizeUnit, SparkTime, TimeUnit, parse_bool, parse_count, parse_port, parse_size,
};

/// A Spark configuration: texts by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparkConf(BTreeMap<String, String>);

impl SparkConf {
    /// Sets a key, over what it had.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// What a key is set to.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The keys that begin so, without their beginning, in order.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.0.range(prefix.to_owned()..);
        all.map_while(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_str())))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for SparkConf {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

/// What a configuration refers to besides itself.
pub trait Surroundings {
    /// An environment variable of the driver; one that is empty is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// A file as text.
    ///
    /// # Errors
    /// What the system says, or that it is not UTF-8.
    fn file(&self, path: &str) -> io::Result<String>;
}

/// A key whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}{}: {why}", value.as_ref().map_or_else(String::new, |value| format!(" = {value}")))]
pub struct ConfError {
    /// Which key, or environment variable.
    pub key: String,
    /// What it was set to; none if it is not set, or secret.
    pub value: Option<String>,
    /// What is wrong, and what would be right.
    pub why: String,
}

/// Reads keys, and collects what is wrong with them.
pub(super) struct Reader<'a> {
    pub(super) conf: &'a SparkConf,
    pub(super) around: &'a dyn Surroundings,
    pub(super) errors: Vec<ConfError>,
}

impl<'a> Reader<'a> {
    /// A text that is set and not empty.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.conf.get(key).filter(|text| !text.is_empty())
    }

    /// As `parse` reads it, or `default`.
    pub(super) fn parsed<T, E: ToString>(
        &mut self,
        key: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> T {
        let Some(text) = self.conf.get(key) else { return default };
        parse(text).unwrap_or_else(|error| {
            self.wrong(key, error.to_string());
            default
        })
    }

    /// Notes a fault of a key.
    pub(super) fn wrong(&mut self, key: &str, why: impl Into<String>) {
        let secret = key.contains("secret");
        let value = self.conf.get(key).filter(|_| !secret).map(str::to_owned);
        self.errors.push(ConfError { key: key.to_owned(), value, why: why.into() });
    }

    pub(super) fn bool(&mut self, key: &str, default: bool) -> bool {
        self.parsed(key, default, parse_bool)
    }

    pub(super) fn port(&mut self, key: &str, default: u16) -> u16 {
        self.parsed(key, default, parse_port)
    }

    /// A whole number that is at least `least`.
    pub(super) fn count(&mut self, key: &str, least: u32) -> Option<u32> {
        self.parsed(key, None, |text| {
            let number = parse_count(text).map_err(|error| error.to_string())?;
            let number = u32::try_from(number).ok().filter(|number| *number >= least);
            number
                .map(Some)
                .ok_or_else(|| format!("use a whole number from {least} to {}", u32::MAX))
        })
    }

    /// A time; a number without a unit is one of `bare`, and what is less than one of these is cut off.
    pub(super) fn time(&mut self, key: &str, bare: TimeUnit, default: Duration) -> Duration {
        self.parsed(key, default, |text| SparkTime::parse(text, bare)?.cut_to(bare).to_duration())
    }

    /// A time that can be switched off by the word.
    pub(super) fn time_or_off(&mut self, key: &str, default: Duration) -> Option<Duration> {
        self.parsed(key, Some(default), |text| match text.trim() {
            "off" => Ok(None),
            text => SparkTime::parse(text, TimeUnit::Seconds)?.to_duration().map(Some),
        })
    }

    /// Memory in whole MiB.
    pub(super) fn mebibytes(&mut self, key: &str, default: u32) -> u32 {
        self.parsed(key, default, |text| {
            let bytes = parse_size(text, SizeUnit::Mebi).map_err(|error| error.to_string())?;
            u32::try_from(bytes >> 20).map_err(|_| "too large".to_owned())
        })
    }

    /// A number with a point, at least 0.
    pub(super) fn real(&mut self, key: &str, default: f64) -> f64 {
        self.parsed(key, default, |text| {
            let number = text.trim().parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
            number.ok_or("use a number from 0, such as 0.1")
        })
    }
}
