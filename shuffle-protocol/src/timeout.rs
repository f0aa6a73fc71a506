//! The time a driver gives itself (`spec/ess-service.md` §7).

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// How long a driver may be silent before it counts as dead.
///
/// The wire carries milliseconds in an `i64`; this is the one place where they become a time.
/// Spark's largest value, `Long.MAX_VALUE`, means that the driver never expires. (Spark's own
/// service lets that value wrap around and expires the driver at once.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeartbeatTimeout {
    /// Dead after this long without a heartbeat; never zero.
    After(Duration),
    /// Never dead by silence.
    Never,
}

/// A timeout of zero or less, under which a driver would be dead before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("heartbeat timeout must be positive, got {0} ms")]
pub struct TimeoutNotPositive(pub i64);

impl HeartbeatTimeout {
    /// From the wire's milliseconds.
    pub fn from_wire(millis: i64) -> Result<Self, TimeoutNotPositive> {
        match u64::try_from(millis) {
            Ok(0) | Err(_) => Err(TimeoutNotPositive(millis)),
            Ok(_) if millis == i64::MAX => Ok(Self::Never),
            Ok(millis) => Ok(Self::After(Duration::from_millis(millis))),
        }
    }

    /// The time, if it ever ends.
    #[must_use]
    pub fn as_duration(self) -> Option<Duration> {
        match self {
            Self::After(time) => Some(time),
            Self::Never => None,
        }
    }

    /// To the wire's milliseconds: rounded up, at least 1, and what does not fit means never.
    #[must_use]
    pub fn to_wire(self) -> i64 {
        match self {
            Self::Never => i64::MAX,
            Self::After(time) => {
                let millis = time.as_nanos().div_ceil(1_000_000).max(1);
                i64::try_from(millis).unwrap_or(i64::MAX)
            }
        }
    }
}

/// No time at all becomes the shortest that the wire can say, a millisecond.
impl From<Duration> for HeartbeatTimeout {
    fn from(time: Duration) -> Self {
        Self::After(if time.is_zero() { Duration::from_millis(1) } else { time })
    }
}

impl fmt::Display for HeartbeatTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(_) => write!(f, "{} ms", self.to_wire()),
            Self::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_timeout_means_never() {
        assert_eq!(HeartbeatTimeout::from_wire(i64::MAX), Ok(HeartbeatTimeout::Never));
        assert_eq!(HeartbeatTimeout::Never.to_wire(), i64::MAX);
        assert_eq!(HeartbeatTimeout::After(Duration::MAX).to_wire(), i64::MAX);
    }

    #[test]
    fn zero_and_negative_timeouts_are_refused() {
        for millis in [0, -1, i64::MIN] {
            assert_eq!(HeartbeatTimeout::from_wire(millis), Err(TimeoutNotPositive(millis)));
        }
    }

    #[test]
    fn what_fits_survives_the_wire() {
        for millis in [1, 120_000, 1 << 53, i64::MAX - 1] {
            assert_eq!(HeartbeatTimeout::from_wire(millis).unwrap().to_wire(), millis);
        }
        assert_eq!(HeartbeatTimeout::After(Duration::from_micros(1)).to_wire(), 1);
    }

    #[test]
    fn no_timeout_is_zero_or_says_so() {
        assert_eq!(HeartbeatTimeout::from(Duration::ZERO).to_wire(), 1);
        let short = HeartbeatTimeout::from(Duration::from_micros(1));
        assert_eq!(short, HeartbeatTimeout::After(Duration::from_micros(1)));
        assert_eq!(short.to_string(), "1 ms");
        assert_eq!(HeartbeatTimeout::from(Duration::from_secs(120)).to_string(), "120000 ms");
        assert_eq!(HeartbeatTimeout::Never.to_string(), "never");
    }
}
