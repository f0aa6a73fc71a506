//! Runs Spark's executors on Mesos, on its v1 HTTP API and without its native library.
//!
//! What decides is apart from what does I/O: [`conf`] checks Spark's keys, [`constraints`] and [`resources`] are
//! the rules of offers, and all of [`mesos`] that is here is bytes to values and back.

pub mod backend;
pub mod coarse;
pub mod command;
pub mod conf;
pub mod constraints;
#[cfg(test)]
mod fake_master;
pub mod framework;
pub mod link;
pub mod masters;
pub mod mesos;
pub mod resources;
pub mod session;
pub mod state_file;
