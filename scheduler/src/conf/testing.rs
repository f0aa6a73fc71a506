//! What tests of several modules need of a configuration.

use std::collections::BTreeMap;
use std::io;

use super::{CoarseConf, SparkConf, Surroundings};

/// An environment that a test makes up.
#[derive(Debug, Default)]
pub(crate) struct Around {
    pub(super) variables: BTreeMap<&'static str, &'static str>,
    pub(super) files: BTreeMap<&'static str, &'static str>,
}

impl Surroundings for Around {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| (*value).to_owned())
    }

    fn file(&self, path: &str) -> io::Result<String> {
        let text = self.files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok((*text).to_owned())
    }
}

/// With Spark in `/opt/spark`, where the entries do not say otherwise.
pub(crate) fn spark_conf(entries: &[(&str, &str)]) -> SparkConf {
    [("spark.mesos.executor.home", "/opt/spark")].iter().chain(entries).copied().collect()
}

/// The checked configuration of these entries.
#[track_caller]
pub(crate) fn conf(entries: &[(&str, &str)]) -> CoarseConf {
    let checked = CoarseConf::check(&spark_conf(entries), &Around::default());
    checked.unwrap_or_else(|errors| panic!("{errors:?}"))
}
