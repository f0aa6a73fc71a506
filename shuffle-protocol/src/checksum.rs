//! Shuffle checksums: the algorithms, the checksum file, and who is to blame for a corrupt block.
//!
//! Source: `spec/on-disk.md` §5.

use std::fmt;
use std::str::FromStr;

use adler2::Adler32;

use crate::ReduceId;

/// A checksum algorithm that Spark's writers use. Names are case-sensitive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Algorithm {
    /// `ADLER32`, the default from 3.2 on.
    Adler32,
    /// `CRC32`.
    Crc32,
    /// `CRC32C`, from 4.0 on.
    Crc32c,
}

impl Algorithm {
    /// Every algorithm there is.
    pub const ALL: [Self; 3] = [Self::Adler32, Self::Crc32, Self::Crc32c];

    /// The name on the wire and in file names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "ADLER32",
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnsupportedAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnsupportedAlgorithm> {
        Self::ALL.into_iter().find(|a| a.name() == name).ok_or(UnsupportedAlgorithm)
    }
}

/// The reader named an algorithm that is not known here; the answer is
/// [`CorruptionCause::UnsupportedChecksumAlgorithm`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unsupported checksum algorithm")]
pub struct UnsupportedAlgorithm;

/// A checksum in the making: push the bytes, then take the value.
#[derive(Clone)]
pub struct Checksummer(State);

#[derive(Clone)]
enum State {
    Adler32(Adler32),
    Crc32(crc32fast::Hasher),
    Crc32c(u32),
}

impl Checksummer {
    /// The checksum over no bytes yet.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Adler32 => State::Adler32(Adler32::new()),
            Algorithm::Crc32 => State::Crc32(crc32fast::Hasher::new()),
            Algorithm::Crc32c => State::Crc32c(0),
        })
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Adler32(adler) => adler.write_slice(bytes),
            State::Crc32(crc) => crc.update(bytes),
            State::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, bytes),
        }
    }

    /// The value over all bytes so far, as Java's `Checksum.getValue` gives it: the unsigned
    /// 32-bit value, zero-extended.
    #[must_use]
    pub fn value(&self) -> i64 {
        i64::from(match &self.0 {
            State::Adler32(adler) => adler.checksum(),
            State::Crc32(crc) => crc.clone().finalize(),
            State::Crc32c(crc) => *crc,
        })
    }
}

impl fmt::Debug for Checksummer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = match self.0 {
            State::Adler32(_) => Algorithm::Adler32,
            State::Crc32(_) => Algorithm::Crc32,
            State::Crc32c(_) => Algorithm::Crc32c,
        };
        write!(f, "Checksummer({algorithm}, {:#010x})", self.value())
    }
}

/// Where the value of partition `reduce` lies in a checksum file, in bytes from its start; it is
/// one big-endian i64. `None` for a negative partition.
#[must_use]
pub fn entry_offset(reduce: ReduceId) -> Option<u64> {
    u64::try_from(reduce.0).ok().map(|reduce| reduce * 8)
}

/// The stored value of partition `reduce`, out of a whole checksum file.
///
/// # Errors
/// [`NoEntry`] if the file ends before it or the partition is negative; the answer is
/// [`CorruptionCause::UnknownIssue`].
pub fn stored_checksum(file: &[u8], reduce: ReduceId) -> Result<i64, NoEntry> {
    let entry = usize::try_from(reduce.0).ok().and_then(|r| file.as_chunks::<8>().0.get(r));
    match entry {
        Some(bytes) => Ok(i64::from_be_bytes(*bytes)),
        None => Err(NoEntry { reduce: reduce.0, length: file.len() }),
    }
}

/// The checksum file has no value for the partition: it is damaged, or the reader is mistaken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no checksum of reduce partition {reduce} in a checksum file of {length} bytes")]
pub struct NoEntry {
    /// The partition that was asked for.
    pub reduce: i32,
    /// The length of the file in bytes.
    pub length: usize,
}

/// What corrupted a block: `i8 cause`, the content of the message of this name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CorruptionCause {
    /// The bytes on the disk are not those that were written.
    DiskIssue,
    /// The bytes on the disk are right, and the reader got others.
    NetworkIssue,
    /// There is not enough to tell.
    UnknownIssue,
    /// All three checksums agree: the block was corrupt before it was written, or is not corrupt.
    ChecksumVerifyPass,
    /// The reader's algorithm is not known here.
    UnsupportedChecksumAlgorithm,
}

impl CorruptionCause {
    /// Every cause, at the index of its code.
    pub const ALL: [Self; 5] = [
        Self::DiskIssue,
        Self::NetworkIssue,
        Self::UnknownIssue,
        Self::ChecksumVerifyPass,
        Self::UnsupportedChecksumAlgorithm,
    ];

    /// The byte on the wire, 0 to 4.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::DiskIssue => 0,
            Self::NetworkIssue => 1,
            Self::UnknownIssue => 2,
            Self::ChecksumVerifyPass => 3,
            Self::UnsupportedChecksumAlgorithm => 4,
        }
    }

    /// The cause with this byte on the wire, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Spark's name, e.g. `DISK_ISSUE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DiskIssue => "DISK_ISSUE",
            Self::NetworkIssue => "NETWORK_ISSUE",
            Self::UnknownIssue => "UNKNOWN_ISSUE",
            Self::ChecksumVerifyPass => "CHECKSUM_VERIFY_PASS",
            Self::UnsupportedChecksumAlgorithm => "UNSUPPORTED_CHECKSUM_ALGORITHM",
        }
    }
}

impl fmt::Display for CorruptionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who corrupted the block, given the checksum that the `reader` computed over what it received,
/// the one that the writer `stored`, and the one `computed` now over what lies on the disk.
///
/// Steps 5 to 7 of the algorithm: the disk is judged before the network, since a damaged disk
/// explains a wrong value at the reader as well.
#[must_use]
pub fn diagnose(reader: i64, stored: i64, computed: i64) -> CorruptionCause {
    if stored != computed {
        CorruptionCause::DiskIssue
    } else if reader != computed {
        CorruptionCause::NetworkIssue
    } else {
        CorruptionCause::ChecksumVerifyPass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checksum(algorithm: Algorithm, bytes: &[u8]) -> i64 {
        let mut sum = Checksummer::new(algorithm);
        sum.update(bytes);
        sum.value()
    }

    /// The customary check values of the three algorithms.
    #[test]
    fn check_values() {
        let check = b"123456789";
        assert_eq!(checksum(Algorithm::Adler32, check), 0x091E_01DE);
        assert_eq!(checksum(Algorithm::Crc32, check), 0xCBF4_3926);
        assert_eq!(checksum(Algorithm::Crc32c, check), 0xE306_9283);
        let empty = Algorithm::ALL.map(|a| checksum(a, b""));
        assert_eq!(empty, [1, 0, 0], "Java's Adler32 begins with 1");
    }

    #[test]
    fn names_are_case_sensitive() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        for name in ["", "adler32", "Crc32", "CRC32 ", "CRC64", "MD5"] {
            assert_eq!(name.parse::<Algorithm>(), Err(UnsupportedAlgorithm), "{name:?}");
        }
    }

    #[test]
    fn checksum_file_entries() {
        let file: Vec<u8> = [7i64, 0xFFFF_FFFF].iter().flat_map(|v| v.to_be_bytes()).collect();
        assert_eq!(stored_checksum(&file, ReduceId(0)), Ok(7));
        assert_eq!(stored_checksum(&file, ReduceId(1)), Ok(0xFFFF_FFFF));
        let missing = NoEntry { reduce: 2, length: 16 };
        assert_eq!(stored_checksum(&file, ReduceId(2)), Err(missing));
        assert_eq!(stored_checksum(&file[..15], ReduceId(1)).unwrap_err().length, 15);
        assert_eq!(stored_checksum(&file, ReduceId(-1)).unwrap_err().reduce, -1);
        assert_eq!(entry_offset(ReduceId(3)), Some(24));
        assert_eq!(entry_offset(ReduceId(i32::MAX)), Some(8 * 0x7FFF_FFFF));
        assert_eq!(entry_offset(ReduceId(-1)), None);
    }

    #[test]
    fn codes_on_the_wire() {
        for (code, cause) in (0u8..).zip(CorruptionCause::ALL) {
            assert_eq!(cause.code(), code);
            assert_eq!(CorruptionCause::from_code(code), Some(cause));
        }
        assert_eq!(CorruptionCause::from_code(5), None);
        assert_eq!(CorruptionCause::from_code(255), None);
    }

    /// SPARK-36206: disk, then network, then neither.
    #[test]
    fn c42_diagnosis() {
        assert_eq!(diagnose(1, 1, 1), CorruptionCause::ChecksumVerifyPass);
        assert_eq!(diagnose(2, 1, 1), CorruptionCause::NetworkIssue);
        assert_eq!(diagnose(1, 1, 2), CorruptionCause::DiskIssue);
        assert_eq!(
            diagnose(2, 1, 2),
            CorruptionCause::DiskIssue,
            "the reader got what the disk holds"
        );
        assert_eq!(diagnose(3, 1, 2), CorruptionCause::DiskIssue);
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(pieces in proptest::collection::vec(any::<Vec<u8>>(), 0..5)) {
            for algorithm in Algorithm::ALL {
                let mut sum = Checksummer::new(algorithm);
                for piece in &pieces {
                    sum.update(piece);
                }
                prop_assert_eq!(sum.value(), checksum(algorithm, &pieces.concat()));
                prop_assert!((0..=i64::from(u32::MAX)).contains(&sum.value()));
            }
        }

        #[test]
        fn any_file_any_entry(file in any::<Vec<u8>>(), reduce in any::<i32>()) {
            let whole = i32::try_from(file.len() / 8).unwrap();
            let found = stored_checksum(&file, ReduceId(reduce)).is_ok();
            prop_assert_eq!(found, (0..whole).contains(&reduce));
        }
    }
}
