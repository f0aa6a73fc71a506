//! The oracle suite: the same bytes go to Spark's own shuffle service and to `shuffled`, and the
//! answers are compared.
//!
//! Every difference is an entry of `divergences.toml` with its reason. An unlisted difference fails,
//! and so does an entry whose difference is gone.

mod case;
mod cases;
mod ledger;
mod oracle;
