//! The `shuffled` binary.
fn main() {}
