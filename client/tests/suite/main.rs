//! The client against a scripted service.

mod common;
mod connection;
mod driver;
mod fetch;
