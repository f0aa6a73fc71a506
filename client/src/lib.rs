//! The driver's and executor's side of Spark's external shuffle service.
//!
//! [`ShuffleServiceClient`] is the handle to one service. A driver keeps its application registered
//! with [`keep_registered`](ShuffleServiceClient::keep_registered): as long as the
//! [`DriverRegistration`] lives, the service keeps the application's files. An executor says where
//! its files are with
//! [`register_executor_with_retries`](ShuffleServiceClient::register_executor_with_retries). Readers
//! [`fetch`](ShuffleServiceClient::fetch) blocks into memory, or
//! [`fetch_to`](ShuffleServiceClient::fetch_to) files and other [`BlockSink`]s.
//!
//! It speaks to Spark's own service as well as to `shuffled`. Driver registration is there under Mesos
//! only, up to Spark 3.5.
//!
//! ```no_run
//! use shuffled_client::protocol::HeartbeatTimeout;
//! use shuffled_client::{ClientOptions, DriverOptions, FetchRequest, ShuffleServiceClient};
//! use std::time::Duration;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = ShuffleServiceClient::new("agent-1:7337".parse()?, ClientOptions::default());
//!
//! // The driver: from now on the service hears of the application every ten seconds, through
//! // restarts and breaks, and removes its files two minutes after this ends.
//! let options = DriverOptions {
//!     timeout: HeartbeatTimeout::After(Duration::from_secs(120)),
//!     interval: Duration::from_secs(10),
//!     ..DriverOptions::default()
//! };
//! let driver = client.keep_registered("app-1".into(), options)?;
//! driver.registered().await;
//! println!("{:?}", driver.status());
//!
//! // A reader: every block gets exactly one result.
//! let mut fetch = client.fetch(FetchRequest {
//!     app_id: "app-1".into(),
//!     exec_id: "0".into(),
//!     blocks: vec!["shuffle_0_12_3".parse()?, "shuffle_0_13_3".parse()?],
//! })?;
//! while let Some(fetched) = fetch.next().await {
//!     match fetched.result {
//!         Ok(bytes) => println!("{}: {} bytes", fetched.block, bytes.len()),
//!         Err(error) => println!("{}: {error}", fetched.block),
//!     }
//! }
//!
//! driver.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Connections
//!
//! A service gets one connection for blocks and one for control, made when they are needed, shared by
//! all clones of the client, and closed when unused. A connection counts as dead when answers are owed
//! and no byte has come for [`connection_timeout`](ClientOptions::connection_timeout); a slow one
//! does not. When it breaks, everything outstanding fails with an error that
//! [is retryable](RequestError::is_retryable).
//!
//! Blocks share their connection, and the protocol has no flow control but the connection's: a slow
//! [`BlockSink`] holds up everything behind it. Results that the caller does not take hold up nobody.

mod client;
mod connection;
mod dial;
mod driver;
mod error;
mod executor;
mod fetch;
mod options;
mod server;

pub use client::ShuffleServiceClient;
pub use dial::{Dial, Dialing, TcpDial, Transport};
pub use driver::{
    DriverError, DriverOptions, DriverRegistration, DriverStatus, InvalidDriverOptions,
};
pub use error::{ConnectionError, Misbehaviour, RequestError};
pub use executor::{RegistrationError, RegistrationPolicy};
pub use fetch::{
    BlockError, BlockSink, Checksummed, Discard, Fetch, FetchRequest, Fetched, FileSink,
    InvalidFetch,
};
pub use options::ClientOptions;
pub use server::{InvalidServerAddr, ServerAddr};
/// The values that requests and answers are made of.
pub use shuffle_protocol as protocol;
