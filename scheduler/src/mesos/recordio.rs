//! RecordIO: how events lie in the stream (`spec/mesos-http-api.md` §3).

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};

/// Decimal digits of the longest length there is.
const LENGTH_DIGITS: usize = 20;

/// Splits a stream into records, however it is cut into pieces.
#[derive(Debug)]
pub struct RecordSplitter {
    buffer: BytesMut,
    records: VecDeque<Bytes>,
    limit: usize,
}

/// What is not RecordIO, or too much. Nothing can follow it but another stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A length that is not a number.
    #[error("the stream is not RecordIO: a length reads {0:?}")]
    Length(String),
    /// A record that is longer than this side takes.
    #[error("a record of {length} bytes is more than the {limit} that are taken")]
    TooLong {
        /// As the master says.
        length: u64,
        /// As the scheduler was told.
        limit: usize,
    },
}

impl RecordSplitter {
    /// With the longest record that is taken, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), records: VecDeque::new(), limit }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// As the variants of [`RecordError`] say. Records before the fault can be taken still.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), RecordError> {
        self.buffer.extend_from_slice(piece);
        while let Some((skip, length)) = self.length()? {
            if self.buffer.len() - skip < length {
                break;
            }
            self.buffer.advance(skip);
            let record = self.buffer.split_to(length).freeze();
            // None is ever sent; a reader that is lenient skips it.
            if !record.is_empty() {
                self.records.push_back(record);
            }
        }
        Ok(())
    }

    /// The next record that is complete.
    pub fn next_record(&mut self) -> Option<Bytes> {
        self.records.pop_front()
    }

    /// Bytes of the line and the length in it, once the line is complete.
    fn length(&self) -> Result<Option<(usize, usize)>, RecordError> {
        let line = self.buffer.iter().take(LENGTH_DIGITS + 1);
        let digits = line.take_while(|byte| byte.is_ascii_digit()).count();
        let not_a_number = || {
            let shown = &self.buffer[..self.buffer.len().min(LENGTH_DIGITS)];
            RecordError::Length(String::from_utf8_lossy(shown).into_owned())
        };
        match self.buffer.get(digits) {
            Some(b'\n') if digits > 0 => {}
            None if digits <= LENGTH_DIGITS => return Ok(None),
            _ => return Err(not_a_number()),
        }
        let text = std::str::from_utf8(&self.buffer[..digits]).map_err(|_| not_a_number())?;
        let length: u64 = text.parse().map_err(|_| not_a_number())?;
        match usize::try_from(length) {
            Ok(bytes) if bytes <= self.limit => Ok(Some((digits + 1, bytes))),
            _ => Err(RecordError::TooLong { length, limit: self.limit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO: &[u8] = b"20\n{\"type\":\"HEARTBEAT\"}20\n{\"type\":\"HEARTBEAT\"}";

    fn all(splitter: &mut RecordSplitter) -> Vec<Bytes> {
        std::iter::from_fn(|| splitter.next_record()).collect()
    }

    #[test]
    fn records_are_found_wherever_the_stream_is_cut() {
        for first in 0..=TWO.len() {
            for second in first..=TWO.len() {
                let mut splitter = RecordSplitter::new(100);
                for piece in [&TWO[..first], &TWO[first..second], &TWO[second..]] {
                    splitter.push(piece).unwrap();
                }
                assert_eq!(all(&mut splitter), [&b"{\"type\":\"HEARTBEAT\"}"[..]; 2]);
            }
        }
    }

    #[test]
    fn what_is_not_recordio_is_told() {
        for text in ["<html>", "\n", "-1\n", "+1\n", " 1\n", "1 \n", "1\r\nx", "0x10\n"] {
            let error = RecordSplitter::new(100).push(text.as_bytes()).unwrap_err();
            assert!(matches!(error, RecordError::Length(_)), "{text:?}: {error}");
        }
        let long = "1".repeat(21);
        assert!(RecordSplitter::new(100).push(long.as_bytes()).is_err());
        assert!(matches!(
            RecordSplitter::new(100).push(b"99999999999999999999\n"),
            Err(RecordError::Length(_))
        ));
        assert_eq!(
            RecordSplitter::new(100).push(b"101\n"),
            Err(RecordError::TooLong { length: 101, limit: 100 })
        );
        let mut splitter = RecordSplitter::new(100);
        splitter.push(b"1\na").unwrap();
        splitter.push(b"0\n2\nbc!").unwrap_err();
        assert_eq!(all(&mut splitter), [&b"a"[..], b"bc"], "what came before the fault is there");
    }

    proptest! {
        #[test]
        fn any_records_in_any_pieces(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..10),
            piece in 1..20_usize,
        ) {
            let mut stream = Vec::new();
            for record in &records {
                stream.extend_from_slice(format!("{}\n", record.len()).as_bytes());
                stream.extend_from_slice(record);
            }
            let mut splitter = RecordSplitter::new(50);
            for piece in stream.chunks(piece) {
                splitter.push(piece).unwrap();
            }
            prop_assert_eq!(all(&mut splitter), records);
        }

        #[test]
        fn no_bytes_make_it_panic_or_keep_more_than_they_are(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut splitter = RecordSplitter::new(64);
            let _ = splitter.push(&bytes);
            let records: usize = all(&mut splitter).iter().map(Bytes::len).sum();
            prop_assert!(records <= bytes.len());
        }
    }
}
