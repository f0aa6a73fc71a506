//! Standard output, which may be a pipe whose reader has seen enough.

use std::io::{ErrorKind, Write as _, stdout};

/// The reader of standard output is gone (`| head`). No failure; but the command has to end, and
/// by the way that cleans up.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub(crate) struct ReaderGone;

/// Writes to standard output, at once.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match stdout().write_all(text.as_bytes()).and_then(|()| stdout().flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => Ok(other?),
    }
}
