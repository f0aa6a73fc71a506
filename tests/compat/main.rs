//! The oracle suite: the same bytes go to Spark's own shuffle service and to `shuffled`, and the
//! answers are compared.
//!
//! Every difference is an entry of `divergences.toml` with its reason. An unlisted difference fails,
//! and so does an entry whose difference is gone.

mod case;
mod cases;
#[cfg(test)] // always; it marks helpers that unwrap as parts of tests
mod client;
mod ledger;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod recorded;
mod words;

use test_support::process::ServiceCommand;
use test_support::spark::{JvmService, Kind, SPARK_3, SPARK_4};

async fn start(version: &'static str, kind: Kind) -> JvmService {
    // Elsewhere, as it runs a client to its end.
    let service = tokio::task::spawn_blocking(move || JvmService::start(version, kind, &[]));
    service.await.expect("it starts")
}

#[tokio::test]
async fn jvm_services_and_ours_answer_alike() {
    // One after the other: with all cores busy the Mesos service often starts without a cleaner.
    let mesos = start(SPARK_3, Kind::Mesos).await;
    let standalone = start(SPARK_4, Kind::Standalone).await;
    let ours = ServiceCommand::new(env!("CARGO_BIN_EXE_shuffled"))
        .conf("spark.shuffle.cleaner.interval", "1s")
        .start();
    oracle::compare_all(mesos, standalone, ours).await;
}

#[tokio::test]
async fn jvm_service_understands_our_client() {
    let service = start(SPARK_3, Kind::Mesos).await;
    tokio::join!(client::requests(&service), client::drivers(&service));
}

#[tokio::test]
async fn recorded_services_and_ours_answer_alike() {
    recorded::replay_all().await;
}
