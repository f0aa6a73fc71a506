//! What can be set, with Spark's defaults (`spec/ess-service.md` §10).

use std::num::NonZeroUsize;
use std::time::Duration;

/// Settings of a [`ShuffleServiceClient`](crate::ShuffleServiceClient). Each names Spark's key
/// where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// How long a connection may be quiet: with requests outstanding it then counts as dead,
    /// without any it is closed as unused. `spark.shuffle.io.connectionTimeout`, 120 s. Zero:
    /// never.
    pub connection_timeout: Duration,
    /// How long connecting may take. `spark.shuffle.io.connectionCreationTimeout`, 120 s. Zero: as
    /// long as the system tries.
    pub connect_timeout: Duration,
    /// How often a fetch is begun again after I/O errors. `spark.shuffle.io.maxRetries`, 3.
    pub max_retries: u32,
    /// How long a fetch waits before it begins again. `spark.shuffle.io.retryWait`, 5 s.
    pub retry_wait: Duration,
    /// Ask for blocks the way of Spark 2, which every service understands.
    /// `spark.shuffle.useOldFetchProtocol`, off.
    pub use_old_fetch_protocol: bool,
    /// Connections for data to one server. `spark.shuffle.io.numConnectionsPerPeer`, 1. Driver and
    /// executor registration and heartbeats have one more of their own, opened when first used, so
    /// that they never wait behind blocks.
    pub connections_per_server: NonZeroUsize,
    /// Bytes of the largest inbound frame that has to be taken in one piece (chunks and streams do
    /// not). Spark has no such limit below 2 GiB; 16 MiB.
    pub frame_limit: usize,
    /// Bytes of the largest block that [`fetch`](crate::ShuffleServiceClient::fetch) collects in
    /// memory. `spark.network.maxRemoteBlockSizeFetchToMem`, 200 MiB.
    pub max_block_in_memory: u64,
    /// Requests for blocks that one connection has sent and that were not answered whole; further
    /// ones wait. 256. (Spark asks for all at once.)
    pub max_requests_in_flight: NonZeroUsize,
    /// Blocks that one fetch asks for ahead of the results that its caller has taken, so how many
    /// it holds in memory at most. 64.
    pub max_blocks_ahead: NonZeroUsize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        const fn count(count: usize) -> NonZeroUsize {
            NonZeroUsize::new(count).expect("not zero")
        }
        Self {
            connection_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(120),
            max_retries: 3,
            retry_wait: Duration::from_secs(5),
            use_old_fetch_protocol: false,
            connections_per_server: count(1),
            frame_limit: 16 << 20,
            max_block_in_memory: 200 << 20,
            max_requests_in_flight: count(256),
            max_blocks_ahead: count(64),
        }
    }
}
