//! The v1 scheduler API as values (`spec/mesos-http-api.md`).

pub mod call;
pub mod event;
pub mod ids;
pub mod recordio;
pub mod resource;
pub mod task;
pub mod value;
