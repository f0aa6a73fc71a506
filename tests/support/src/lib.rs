//! What several test suites share: a raw client, fixture applications, the JVM services.

pub mod fixture;
pub mod peer;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod spark;
