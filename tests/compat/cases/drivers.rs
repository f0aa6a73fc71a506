//! RegisterDriver and ShuffleServiceHeartbeat, which only the Mesos service knows.

use shuffle_protocol::message::{RegisterDriver, ShuffleServiceHeartbeat};

use crate::case::Reference::{Mesos, Standalone};
use crate::case::{Case, EXEC, case};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("driver").at(Mesos).driver(120_000).heartbeat().sweep().alive(),
        case("driver_again").at(Mesos).driver(120_000).driver(60_000).sweep().alive(),
        // The last timeout wins.
        case("driver_again_shorter").at(Mesos).driver(120_000).driver(1).sweep().alive(),
        case("driver_again_longer").at(Mesos).driver(300_000).driver(600_000).sweep().alive(),
        case("driver_expires").at(Mesos).driver(1).sweep().alive().heartbeat(),
        case("driver_before_executors").at(Mesos).unregistered().driver(120_000).alive(),
        case("driver_gone_heartbeat").at(Mesos).driver(1).sweep().heartbeat().sweep().alive(),
        case("driver_returns").at(Mesos).driver(1).sweep().driver(120_000).sweep().alive(),
        case("driver_with_bytes_behind").at(Mesos).rpc_and_trailing(120_000).sweep().alive(),
        case("driver_without_a_name")
            .at(Mesos)
            .rpc(RegisterDriver { app_id: "".into(), heartbeat_timeout_ms: 120_000 }),
        // Complaint F5: Spark's service leaves it without an answer.
        case("heartbeat_as_rpc").at(Mesos).driver(120_000).heartbeat_rpc().alive(),
        case("heartbeat_as_rpc_of_nobody").at(Mesos).heartbeat_rpc().alive(),
        case("heartbeat_of_nobody").at(Mesos).heartbeat().sweep().alive(),
        case("heartbeat_without_driver").at(Mesos).heartbeat().heartbeat().sweep().alive(),
        case("driver_as_one_way").at(Mesos).driver_one_way(1).sweep().alive(),
        case("driver_on_two_connections")
            .at(Mesos)
            .driver(120_000)
            .on(1)
            .driver(120_000)
            .heartbeat()
            .on(0)
            .heartbeat()
            .alive(),
        // Complaint C04: a service that knows no drivers names the message.
        case("driver_at_standalone").at(Standalone).driver(120_000).alive(),
        case("heartbeat_at_standalone").at(Standalone).heartbeat().alive(),
    ];
    for (name, timeout) in [
        ("zero", 0),
        ("minus_one", -1),
        ("min", i64::MIN),
        ("max", i64::MAX),
        ("over_nanoseconds", 9_223_372_036_855),
        ("at_nanoseconds", 9_223_372_036_854),
        ("two_to_53", 1 << 53),
    ] {
        cases.push(
            case(format!("driver_timeout_{name}"))
                .at(Mesos)
                .driver(timeout)
                .heartbeat()
                .sweep()
                .alive(),
        );
    }
    cases
}

impl Case {
    fn driver_message(&self, heartbeat_timeout_ms: i64) -> RegisterDriver {
        RegisterDriver { app_id: self.app(), heartbeat_timeout_ms }
    }

    fn driver(self, timeout: i64) -> Self {
        let message = self.driver_message(timeout);
        self.rpc(message)
    }

    fn driver_one_way(self, timeout: i64) -> Self {
        let message = self.driver_message(timeout);
        self.one_way(message)
    }

    fn rpc_and_trailing(self, timeout: i64) -> Self {
        let message = self.driver_message(timeout);
        self.rpc_and(message, &[0; 8])
    }

    fn heartbeat(self) -> Self {
        let message = ShuffleServiceHeartbeat { app_id: self.app() };
        self.one_way(message)
    }

    fn heartbeat_rpc(self) -> Self {
        let message = ShuffleServiceHeartbeat { app_id: self.app() };
        self.rpc(message)
    }

    /// Shows whether the application is known and its files are there.
    fn alive(self) -> Self {
        self.local_dirs(&[EXEC]).exists("rdd_1_0").exists("shuffle_0_0_0.data")
    }
}
