//! Spark's shuffle service protocol: bytes to values and back, without any I/O.

mod ids;

pub use ids::{AppId, ExecId, MapId, ReduceId, RequestId, ShuffleId, ShuffleMergeId, StreamId};
