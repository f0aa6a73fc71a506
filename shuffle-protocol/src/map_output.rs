//! The files of a map output, as Spark's sort shuffle writes them (`spec/on-disk.md` §3 and §5).
//!
//! The service only reads such files. This is for those who play an executor: the demo and tests.

use crate::block_id::BlockId;
use crate::checksum::{Algorithm, Checksummer};
use crate::{MapId, ShuffleId};

/// Data, index and checksum file of a map output with these `partitions`: name and content each.
#[must_use]
pub fn files(
    shuffle: ShuffleId,
    map: MapId,
    partitions: &[impl AsRef<[u8]>],
    algorithm: Algorithm,
) -> [(BlockId, Vec<u8>); 3] {
    let mut data = Vec::new();
    let mut index = 0u64.to_be_bytes().to_vec();
    let mut checksums = Vec::new();
    for partition in partitions {
        let partition = partition.as_ref();
        data.extend_from_slice(partition);
        index.extend_from_slice(&(data.len() as u64).to_be_bytes());
        let mut sum = Checksummer::new(algorithm);
        sum.update(partition);
        checksums.extend_from_slice(&sum.value().to_be_bytes());
    }
    [
        (BlockId::ShuffleData { shuffle, map }, data),
        (BlockId::ShuffleIndex { shuffle, map }, index),
        (BlockId::ShuffleChecksum { shuffle, map, algorithm }, checksums),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReduceId;
    use crate::checksum::stored_checksum;
    use crate::index::{IndexFile, Segment};

    #[test]
    fn what_is_written_is_what_is_read() {
        let partitions: [&[u8]; 3] = [b"abc", b"", b"123456789"];
        let [(_, data), (_, index), (name, checksums)] =
            files(ShuffleId(7), MapId(5_000_000_000), &partitions, Algorithm::Crc32);
        assert_eq!(data, b"abc123456789");
        let index = IndexFile::parse(&index).unwrap();
        assert_eq!(index.partitions(), 3);
        assert_eq!(index.segment(ReduceId(2)), Ok(Segment { offset: 3, length: 9 }));
        assert_eq!(stored_checksum(&checksums, ReduceId(2)), Ok(0xCBF4_3926));
        assert_eq!(name.file_name().unwrap(), "shuffle_7_5000000000_0.checksum.CRC32");
    }
}
