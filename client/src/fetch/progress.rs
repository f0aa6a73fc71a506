//! What is still to be fetched, and whether to try again (`spec/ess-service.md` §9.3). Decides only.

use std::time::Duration;

/// The blocks of one call. Retries are counted for the call, not for a block, and progress does not
/// give any back.
#[derive(Debug)]
pub(super) struct Progress {
    settled: Vec<bool>,
    retries: u32,
    max_retries: u32,
    wait: Duration,
}

/// What follows when an attempt ended early.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask again for what is not settled, after this long.
    RetryAfter(Duration),
    /// Fail what is not settled.
    GiveUp,
}

impl Progress {
    pub(super) fn new(blocks: usize, max_retries: u32, wait: Duration) -> Self {
        Self { settled: vec![false; blocks], retries: 0, max_retries, wait }
    }

    /// A block was delivered or failed for good. False if it had been before.
    pub(super) fn handle_settled(&mut self, block: usize) -> bool {
        !std::mem::replace(&mut self.settled[block], true)
    }

    pub(super) fn is_settled(&self, block: usize) -> bool {
        self.settled[block]
    }

    /// An attempt ended with blocks not settled; `retryable` if that was an I/O error.
    pub(super) fn handle_failed(&mut self, retryable: bool) -> Verdict {
        if retryable && self.retries < self.max_retries {
            self.retries += 1;
            Verdict::RetryAfter(self.wait)
        } else {
            Verdict::GiveUp
        }
    }

    /// Retries begun.
    pub(super) fn retries(&self) -> u32 {
        self.retries
    }

    /// The blocks that are not settled, in the caller's order.
    pub(super) fn unsettled(&self) -> Vec<usize> {
        let unsettled = self.settled.iter().enumerate().filter(|(_, settled)| !**settled);
        unsettled.map(|(block, _)| block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(5);

    #[test]
    fn io_errors_are_retried_so_often_and_others_never() {
        let mut progress = Progress::new(1, 3, WAIT);
        for _ in 0..3 {
            assert_eq!(progress.handle_failed(true), Verdict::RetryAfter(WAIT));
        }
        assert_eq!(progress.handle_failed(true), Verdict::GiveUp);
        assert_eq!(Progress::new(1, 3, WAIT).handle_failed(false), Verdict::GiveUp);
        assert_eq!(Progress::new(1, 0, WAIT).handle_failed(true), Verdict::GiveUp);
    }

    #[test]
    fn progress_gives_no_retries_back_and_is_kept() {
        let mut progress = Progress::new(4, 1, WAIT);
        assert!(progress.handle_settled(2));
        assert!(!progress.handle_settled(2));
        assert_eq!(progress.handle_failed(true), Verdict::RetryAfter(WAIT));
        assert!(progress.handle_settled(0));
        assert_eq!(progress.handle_failed(true), Verdict::GiveUp);
        assert_eq!(progress.unsettled(), [1, 3]);
    }
}
