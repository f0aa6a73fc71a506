//! The driver's and executor's side of the shuffle service protocol.

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
pub use shuffle_protocol as protocol;
