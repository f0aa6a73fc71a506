//! Keeps an application registered for a minute: `driver HOST:PORT APP-ID`.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::time::Duration;

use shuffled_client::{ClientOptions, DriverOptions, DriverStatus, ShuffleServiceClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(app_id)) = (args.next(), args.next()) else {
        return Err("usage: driver HOST:PORT APP-ID".into());
    };
    let client = ShuffleServiceClient::new(server.parse()?, ClientOptions::default());
    let driver = client.keep_registered(app_id.as_str().into(), DriverOptions::default())?;
    let mut status = driver.watch();
    let watching = async {
        while status.changed().await.is_ok() {
            match &*status.borrow_and_update() {
                DriverStatus::Retrying { attempt, error, .. } => {
                    println!("attempt {attempt} failed: {error}");
                }
                other => println!("{other:?}"),
            }
        }
    };
    // The end of the minute is what this waits for.
    let _ = tokio::time::timeout(Duration::from_secs(60), watching).await;
    driver.close().await;
    Ok(())
}
