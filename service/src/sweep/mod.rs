#![allow(missing_docs, clippy::all, unused, unreachable_pub)]
use crate::apps::Claim;
use crate::dirs::*;
use crate::store::row::Identity;
use std::time::*;
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Removable,
    TooYoung { age: Duration },
    HeldOpen { pids: Vec<u32> },
    CannotTell { why: String },
}
#[derive(Debug)]
pub struct Candidate {
    pub dir: LocalDir,
    pub owner: u32,
    pub files: u64,
    pub bytes: u64,
    pub estimated: bool,
    pub newest: SystemTime,
    pub verdict: Verdict,
    pub identity: Identity,
}
#[derive(Debug)]
pub struct Found {
    pub candidates: Vec<Candidate>,
    pub problems: Vec<String>,
    pub truncated: bool,
}
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("")]
    Panicked,
}
pub fn find(
    r: &LocalRoots,
    c: impl Fn(&LocalDir) -> Option<Claim>,
    o: impl Fn(&LocalDir) -> bool,
    d: Duration,
    n: SystemTime,
) -> Result<Found, SweepError> {
    panic!()
}
