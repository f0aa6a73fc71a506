//! Spark's shuffle service protocol: bytes to values and back, without any I/O.
//!
//! From the wire inwards: [`frame`] finds frames in a stream of bytes ([`codec`] is the same for
//! tokio), [`message`] reads what is in them, [`block_id`] reads the ids in those, [`layout`] says in
//! which file a block lies and [`index`] where in that file. [`checksum`] finds out who damaged a
//! block, [`failure`] is the text of every refusal, [`spark_conf`] reads Spark's configuration files.
//!
//! Nothing here has a socket, a file, a clock or a random source.

pub mod block_id;
pub mod checksum;
pub mod codec;
pub mod failure;
pub mod frame;
mod ids;
pub mod index;
pub mod layout;
pub mod map_output;
pub mod message;
pub mod spark_conf;
mod timeout;
pub mod wire;

pub use ids::{AppId, ExecId, MapId, ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId};
pub use timeout::{HeartbeatTimeout, TimeoutNotPositive};
