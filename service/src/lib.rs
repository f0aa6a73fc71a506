//! The shuffle service: registry, liveness, block serving, cleanup, admin HTTP.
//!
//! A connection's bytes become frames, a [`session::Session`] decides what follows from each, and
//! [`connection`] works that off. Registrations and heartbeats end in [`apps::AppRegistry`]; blocks
//! are found by [`blocks`] below the directories that [`dirs`] confines; [`cleaner`] asks
//! [`liveness`] who is due and hands them to [`reaper`], which does what [`removal`] says. What has to
//! survive goes to [`store`]. [`server`] puts it together.

pub mod admin;
pub mod apps;
pub mod blocks;
pub mod cleaner;
pub mod config;
pub mod connection;
pub mod dirs;
pub mod disk;
pub mod inspector;
pub mod liveness;
mod log_limit;
pub mod metrics;
pub mod reaper;
pub mod removal;
pub mod send;
pub mod server;
pub mod session;
#[cfg(test)]
mod sim;
pub mod state;
pub mod store;
pub mod streams;
mod supervise;
pub mod sweep;
pub mod sweeper;
