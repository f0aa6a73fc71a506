//! The durable registry: what was acknowledged is on disk.
//!
//! Whoever changes what is registered records the change in the [`Journal`]. One thread writes what was
//! recorded, all that has queued up meanwhile in one transaction, so that two thousand registrations at
//! once wait for a few syncs and not for two thousand. Whoever acknowledges a change waits until it is
//! [`settled`](Journal::settled).
//!
//! The file is a redb database of one table. Each value has a checksum over itself and its key, so that
//! a damaged row is never taken for a whole one. A file of which anything is wrong is set aside, and what
//! is whole in it is carried over into a new one.

mod db;
mod journal;
pub mod row;
mod rows;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

pub use db::{Damage, Opened, PastDamage, Store, StoreError};
pub use journal::{Batch, Durability, Journal, Position};
pub use writer::{StoreObserver, WriterHandle};

/// How long a change is waited for before its disk counts as one that cannot be written. Spark's executors
/// give up their registration after five seconds (`spark.shuffle.registration.timeout`).
pub const SETTLE: Duration = Duration::from_secs(3);
