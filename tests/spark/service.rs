//! The service under test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use test_support::process::{ServiceCommand, ServiceProcess};
use test_support::spark::{JvmService, Kind, SPARK_3};

/// Ours, or Spark's own of the same version when `SHUFFLED_TEST_ORACLE=jvm`, which shows whether it
/// is the test that is wrong.
pub(crate) enum Service {
    Ours(ServiceProcess),
    Jvm(JvmService),
}

/// What a service has sent so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) blocks: f64,
    pub(crate) bytes: f64,
}

/// It also serves blocks of RDDs.
const RDD: &[(&str, &str)] = &[("spark.shuffle.service.fetch.rdd.enabled", "true")];

impl Service {
    pub(crate) fn start(version: &str, conf: &[(&str, &str)]) -> Self {
        match std::env::var("SHUFFLED_TEST_ORACLE").as_deref() {
            Ok("jvm") => {
                let kind = if version == SPARK_3 { Kind::Mesos } else { Kind::Standalone };
                Self::Jvm(JvmService::start(version, kind, conf))
            }
            Ok(other) => panic!("SHUFFLED_TEST_ORACLE may be jvm, not {other}"),
            Err(_) => {
                let command = ServiceCommand::new(env!("CARGO_BIN_EXE_shuffled")).durable();
                let command =
                    conf.iter().fold(command, |command, (key, value)| command.conf(key, value));
                Self::Ours(command.start())
            }
        }
    }

    pub(crate) fn shuffle(&self) -> SocketAddr {
        match self {
            Self::Ours(service) => service.shuffle,
            Self::Jvm(service) => service.shuffle,
        }
    }

    /// Where executors may have their directories.
    pub(crate) fn root(&self) -> PathBuf {
        match self {
            Self::Ours(service) => service.root(),
            Self::Jvm(service) => service.root(),
        }
    }

    /// Kills it with SIGKILL and starts it again, on the same port and with the same directories.
    pub(crate) fn kill_and_restart(&mut self) {
        match self {
            Self::Ours(service) => service.kill_and_restart(),
            Self::Jvm(service) => service.kill_and_restart(SPARK_3, Kind::Mesos, RDD),
        }
    }

    /// Whether [`start`](Self::start) starts Spark's own.
    pub(crate) fn is_of_sparks() -> bool {
        std::env::var_os("SHUFFLED_TEST_ORACLE").is_some()
    }

    /// Spark's own service for Mesos.
    pub(crate) fn of_sparks() -> Self {
        Self::Jvm(JvmService::start(SPARK_3, Kind::Mesos, RDD))
    }

    /// Kills it, and leaves its directories.
    pub(crate) fn kill(&self) {
        let pid = match self {
            Self::Ours(service) => service.pid(),
            Self::Jvm(service) => service.pid(),
        };
        let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()), "the service was gone already");
    }

    /// Spark's own service shows its figures to nobody.
    pub(crate) fn sent(&self) -> Option<Sent> {
        match self {
            Self::Ours(service) => Some(Sent {
                blocks: service.metric("shuffleService_blockTransferRate_total"),
                bytes: service.metric("shuffleService_blockTransferRateBytes_total"),
            }),
            Self::Jvm(_) => None,
        }
    }
}
