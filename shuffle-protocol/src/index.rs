//! Shuffle index files: where each reduce partition lies within the data file.
//!
//! Source: `spec/on-disk.md` §3. The file is R+1 big-endian i64 offsets for R reduce partitions.

use crate::ReduceId;

/// The offsets of one index file, 8 bytes each.
///
/// Only the length is checked on reading. The offsets are checked where they are used, so that
/// a damaged entry costs the blocks that it bounds and not the whole map output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexFile {
    offsets: Box<[i64]>,
}

/// A part of a data file, in bytes. `offset + length` fits an i64; the length may be 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
}

impl Segment {
    /// Where it ends, exclusive: the least length the data file must have.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

impl IndexFile {
    /// Reads the content of an index file. Bytes after the last whole offset are ignored, as
    /// Spark does.
    ///
    /// # Errors
    /// [`IndexError::TooShort`] if there is not a single offset. The file is at fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, IndexError> {
        let (offsets, _rest) = bytes.as_chunks::<8>();
        if offsets.is_empty() {
            return Err(IndexError::TooShort(bytes.len()));
        }
        Ok(Self { offsets: offsets.iter().map(|o| i64::from_be_bytes(*o)).collect() })
    }

    /// The number of reduce partitions, R.
    #[must_use]
    pub fn partitions(&self) -> usize {
        // `parse` refuses a file without offsets.
        self.offsets.len() - 1
    }

    /// The weight of this index in a cache, in bytes: 8 per offset and a constant for the entry
    /// (`spec/on-disk.md` §7).
    #[must_use]
    pub fn weight(&self) -> usize {
        self.offsets.len() * 8 + 176
    }

    /// The bytes of partition `reduce`.
    ///
    /// # Errors
    /// As [`IndexFile::segment_range`].
    pub fn segment(&self, reduce: ReduceId) -> Result<Segment, IndexError> {
        match reduce.0.checked_add(1) {
            Some(end) => self.segment_range(reduce, ReduceId(end)),
            None => Err(self.out_of_range(reduce, reduce)),
        }
    }

    /// The bytes of the partitions from `start` up to and without `end`; empty if they are equal.
    ///
    /// # Errors
    /// [`IndexError::OutOfRange`] unless 0 <= start <= end <= R: the reader is at fault, or the
    /// index belongs to another attempt. [`IndexError::NegativeOffset`] and
    /// [`IndexError::NotMonotone`]: the file is damaged.
    pub fn segment_range(&self, start: ReduceId, end: ReduceId) -> Result<Segment, IndexError> {
        let (first, last) = Self::positions(self.partitions(), start, end)?;
        Self::between((first, self.offsets[first]), (last, self.offsets[last]))
    }

    /// Where in an index of so many `partitions` the two offsets stand that bound the partitions from
    /// `start` up to and without `end`. For an index that is too large to be read as a whole.
    ///
    /// # Errors
    /// [`IndexError::OutOfRange`] as with [`IndexFile::segment_range`].
    pub fn positions(
        partitions: usize,
        start: ReduceId,
        end: ReduceId,
    ) -> Result<(usize, usize), IndexError> {
        let at = |reduce: ReduceId| usize::try_from(reduce.0).ok().filter(|at| *at <= partitions);
        match (at(start), at(end)) {
            (Some(first), Some(last)) if first <= last => Ok((first, last)),
            _ => Err(IndexError::OutOfRange { start: start.0, end: end.0, partitions }),
        }
    }

    /// The bytes between two offsets, each with its position.
    ///
    /// # Errors
    /// [`IndexError::NegativeOffset`] and [`IndexError::NotMonotone`]: the file is damaged.
    pub fn between(
        (first, offset): (usize, i64),
        (last, limit): (usize, i64),
    ) -> Result<Segment, IndexError> {
        let from =
            u64::try_from(offset).map_err(|_| IndexError::NegativeOffset { at: first, offset })?;
        let to = u64::try_from(limit)
            .map_err(|_| IndexError::NegativeOffset { at: last, offset: limit })?;
        match to.checked_sub(from) {
            Some(length) => Ok(Segment { offset: from, length }),
            None => Err(IndexError::NotMonotone { start: first, offset, end: last, limit }),
        }
    }

    fn out_of_range(&self, start: ReduceId, end: ReduceId) -> IndexError {
        IndexError::OutOfRange { start: start.0, end: end.0, partitions: self.partitions() }
    }
}

/// Why an index file gives no segment. The path is added by who read the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IndexError {
    /// The file holds not one offset.
    #[error("the index file is too short: {0} bytes")]
    TooShort(usize),
    /// The requested partitions are not those of this map output.
    #[error("reduce partitions {start}..{end} are out of range: the index has {partitions}")]
    OutOfRange {
        /// The first requested partition.
        start: i32,
        /// The end of the request, exclusive.
        end: i32,
        /// The number of partitions, R.
        partitions: usize,
    },
    /// An offset is below 0.
    #[error("the index file is damaged: offset {at} is {offset}")]
    NegativeOffset {
        /// Which offset of the file, from 0.
        at: usize,
        /// Its value.
        offset: i64,
    },
    /// A partition ends before it begins.
    #[error("the index file is damaged: offset {start} is {offset}, but offset {end} is {limit}")]
    NotMonotone {
        /// Which offset of the file begins the segment.
        start: usize,
        /// Its value.
        offset: i64,
        /// Which offset of the file ends the segment.
        end: usize,
        /// Its value.
        limit: i64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index(offsets: &[i64]) -> IndexFile {
        let bytes: Vec<u8> = offsets.iter().flat_map(|o| o.to_be_bytes()).collect();
        IndexFile::parse(&bytes).unwrap()
    }

    fn segment(offset: u64, length: u64) -> Segment {
        Segment { offset, length }
    }

    #[test]
    fn segments_and_ranges() {
        let index = index(&[0, 10, 10, 35]);
        assert_eq!(index.partitions(), 3);
        assert_eq!(index.weight(), 4 * 8 + 176);
        assert_eq!(index.segment(ReduceId(0)), Ok(segment(0, 10)));
        assert_eq!(index.segment(ReduceId(1)), Ok(segment(10, 0)), "an empty partition is valid");
        assert_eq!(index.segment(ReduceId(2)), Ok(segment(10, 25)));
        assert_eq!(index.segment_range(ReduceId(0), ReduceId(3)), Ok(segment(0, 35)));
        assert_eq!(index.segment_range(ReduceId(3), ReduceId(3)), Ok(segment(35, 0)));
    }

    #[test]
    fn out_of_range() {
        let index = index(&[0, 10]);
        for reduce in [-1, 1, i32::MIN, i32::MAX] {
            let error = index.segment(ReduceId(reduce)).unwrap_err();
            assert!(matches!(error, IndexError::OutOfRange { partitions: 1, .. }), "{error}");
        }
        for (start, end) in [(1, 0), (-1, 1), (0, 2), (0, -1)] {
            let error = index.segment_range(ReduceId(start), ReduceId(end)).unwrap_err();
            assert_eq!(error, IndexError::OutOfRange { start, end, partitions: 1 });
        }
    }

    #[test]
    fn damage_costs_only_its_neighbours() {
        let index = index(&[0, 10, -5, 30, 20, 40]);
        assert_eq!(index.segment(ReduceId(0)), Ok(segment(0, 10)));
        let negative = IndexError::NegativeOffset { at: 2, offset: -5 };
        assert_eq!(index.segment(ReduceId(1)), Err(negative));
        assert_eq!(index.segment(ReduceId(2)), Err(negative));
        let backwards = IndexError::NotMonotone { start: 3, offset: 30, end: 4, limit: 20 };
        assert_eq!(index.segment(ReduceId(3)), Err(backwards));
        assert_eq!(index.segment(ReduceId(4)), Ok(segment(20, 20)));
    }

    #[test]
    fn odd_lengths() {
        assert_eq!(IndexFile::parse(&[]), Err(IndexError::TooShort(0)));
        assert_eq!(IndexFile::parse(&[0; 7]), Err(IndexError::TooShort(7)));
        assert_eq!(IndexFile::parse(&[0; 8]).unwrap().partitions(), 0);
        assert_eq!(IndexFile::parse(&[0; 23]).unwrap().partitions(), 1);
    }

    proptest! {
        #[test]
        fn never_panics_and_every_segment_is_sane(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            start in -2i32..14,
            end in -2i32..14,
        ) {
            if let Ok(index) = IndexFile::parse(&bytes)
                && let Ok(segment) = index.segment_range(ReduceId(start), ReduceId(end))
            {
                prop_assert!(0 <= start && start <= end);
                prop_assert!(i64::try_from(segment.end()).is_ok());
            }
        }

        #[test]
        fn partitions_tile_the_data_file(lengths in proptest::collection::vec(0i64..1 << 40, 0..50)) {
            let mut offsets = vec![0];
            for length in &lengths {
                offsets.push(offsets[offsets.len() - 1] + length);
            }
            let index = index(&offsets);
            let mut next = 0;
            for reduce in 0..i32::try_from(lengths.len()).unwrap() {
                let segment = index.segment(ReduceId(reduce)).unwrap();
                prop_assert_eq!(segment.offset, next);
                next = segment.end();
            }
            prop_assert_eq!(i64::try_from(next).unwrap(), offsets[lengths.len()]);
        }
    }
}
