//! The durable registry: what was acknowledged is on disk.

mod journal;
pub mod row;

pub use journal::{Batch, Durability, Journal, Position};
