//! Keeps a peer that repeats itself from filling the log.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets each key speak once in a while, and tells how often it was silenced.
#[derive(Debug)]
pub struct LogLimit<K> {
    every: Duration,
    state: Mutex<State>,
    keys: PhantomData<fn(&K)>,
}

#[derive(Debug, Default)]
struct State {
    hasher: RandomState,
    /// By the hash of the key, which may be as long as a peer likes. Two keys that share a hash share
    /// their lines; that is rare, and nobody can bring it about.
    spoken: HashMap<u64, Spoken>,
    /// When those that may speak again were last forgotten to make room.
    purged: Option<Instant>,
}

#[derive(Debug)]
struct Spoken {
    at: Instant,
    silenced: u64,
}

impl<K: Hash> LogLimit<K> {
    /// Keys remembered at most. When there is no room, a new key does not speak.
    const MAX_KEYS: usize = 10_000;

    /// One line a key in `every`.
    #[must_use]
    pub fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default(), keys: PhantomData }
    }

    /// `Some` when `key` may speak at `now`, with the number of times it was silenced since it last
    /// did.
    pub fn allow(&self, key: K, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { hasher, spoken, purged } = &mut *state;
        let key = hasher.hash_one(&key);
        let is_over = |at: Instant| now.saturating_duration_since(at) >= self.every;
        if let Some(last) = spoken.get_mut(&key) {
            if !is_over(last.at) {
                last.silenced += 1;
                return None;
            }
            let silenced = last.silenced;
            *last = Spoken { at: now, silenced: 0 };
            return Some(silenced);
        }
        if spoken.len() >= Self::MAX_KEYS && purged.is_none_or(is_over) {
            // Looking through all of them is dear, so not for every key that finds no room.
            spoken.retain(|_, last| !is_over(last.at));
            *purged = Some(now);
        }
        if spoken.len() >= Self::MAX_KEYS {
            return None;
        }
        spoken.insert(key, Spoken { at: now, silenced: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_speaks_once_in_a_while_and_tells_what_it_kept_back() {
        let start = Instant::now();
        let minute = Duration::from_secs(60);
        let limit = LogLimit::new(minute);
        assert_eq!(limit.allow("a", start), Some(0));
        assert_eq!(limit.allow("a", start), None);
        assert_eq!(limit.allow("b", start), Some(0), "each key for itself");
        assert_eq!(limit.allow("a", start + minute), Some(1));
        assert_eq!(limit.allow("a", start + minute), None);
    }

    #[test]
    fn its_memory_is_bounded() {
        let start = Instant::now();
        let limit = LogLimit::new(Duration::from_secs(60));
        let allowed = (0..20_000).filter(|key| limit.allow(*key, start).is_some()).count();
        assert_eq!(allowed, LogLimit::<i32>::MAX_KEYS);
    }
}
