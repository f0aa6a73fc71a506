//! Applications as executors leave them behind: directories with map outputs whose every byte is
//! known.

use std::fs;
use std::path::{Path, PathBuf};

use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::Algorithm;
use shuffle_protocol::layout::Layout;
use shuffle_protocol::message::{
    ExecutorShuffleInfo, FetchShuffleBlocks, RegisterDriver, RegisterExecutor,
    ShuffleServiceHeartbeat,
};
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout, MapId, ReduceId, ShuffleId, map_output};

/// Spark's default.
const SUB_DIRS: i32 = 64;

/// One executor: its directories, as it would register them.
#[derive(Debug, Clone)]
pub struct FixtureExecutor {
    /// The application.
    pub app_id: AppId,
    /// The executor.
    pub exec_id: ExecId,
    /// `blockmgr-*` directories, in order.
    pub local_dirs: Vec<PathBuf>,
}

impl FixtureExecutor {
    /// An executor with one directory below each of `disks`, which are made.
    #[must_use]
    pub fn new(app: &str, exec: &str, disks: &[&Path]) -> Self {
        let local_dirs: Vec<_> =
            disks.iter().map(|disk| disk.join(format!("blockmgr-{app}-{exec}"))).collect();
        for dir in &local_dirs {
            fs::create_dir_all(dir).expect("the test's own directory can be written");
        }
        Self { app_id: app.into(), exec_id: exec.into(), local_dirs }
    }

    /// The message that registers it.
    #[must_use]
    pub fn registration(&self) -> RegisterExecutor {
        RegisterExecutor {
            app_id: self.app_id.clone(),
            exec_id: self.exec_id.clone(),
            info: ExecutorShuffleInfo {
                local_dirs: self.local_dirs.iter().map(|dir| dir.to_string_lossy()).collect(),
                sub_dirs_per_local_dir: SUB_DIRS,
                shuffle_manager: "org.apache.spark.shuffle.sort.SortShuffleManager".to_owned(),
            },
        }
    }

    /// Where the file `name` lies.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        let layout = Layout::new(self.local_dirs.len(), SUB_DIRS).expect("there are directories");
        let place = layout.place(name);
        self.local_dirs[place.dir].join(place.sub.to_string()).join(name)
    }

    /// Where the file of `block` lies.
    #[must_use]
    pub fn block_path(&self, block: &BlockId) -> PathBuf {
        self.path(&block.file_name().expect("the block is a file"))
    }

    /// Where the data file of a map output lies.
    #[must_use]
    pub fn data_path(&self, shuffle: i32, map: i64) -> PathBuf {
        let (shuffle, map) = (ShuffleId(shuffle), MapId(map));
        self.block_path(&BlockId::ShuffleData { shuffle, map })
    }

    /// Where the index file of a map output lies.
    #[must_use]
    pub fn index_path(&self, shuffle: i32, map: i64) -> PathBuf {
        let (shuffle, map) = (ShuffleId(shuffle), MapId(map));
        self.block_path(&BlockId::ShuffleIndex { shuffle, map })
    }

    /// Writes a file where it belongs.
    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        let dir = path.parent().expect("a file lies in a directory");
        fs::create_dir_all(dir).expect("the test's own directory can be written");
        fs::write(path, content).expect("the test's own file can be written");
    }

    /// Writes a map output with these partitions: data, index and checksums.
    pub fn write_map_output(&self, shuffle: i32, map: i64, partitions: &[impl AsRef<[u8]>]) {
        let files =
            map_output::files(ShuffleId(shuffle), MapId(map), partitions, Algorithm::Adler32);
        for (block, content) in files {
            self.write(&block.file_name().expect("these are files"), &content);
        }
    }

    /// The message that opens a stream over these partitions of map outputs.
    #[must_use]
    pub fn fetch(&self, shuffle: i32, maps: &[(i64, &[i32])]) -> FetchShuffleBlocks {
        FetchShuffleBlocks {
            app_id: self.app_id.clone(),
            exec_id: self.exec_id.clone(),
            shuffle_id: ShuffleId(shuffle),
            map_ids: maps.iter().map(|map| map.0).collect(),
            reduce_ids: maps.iter().map(|map| map.1).collect(),
            batch_fetch: false,
        }
    }

    /// The message that registers the driver of its application.
    #[must_use]
    pub fn driver(&self, timeout: HeartbeatTimeout) -> RegisterDriver {
        RegisterDriver { app_id: self.app_id.clone(), heartbeat_timeout_ms: timeout.to_wire() }
    }

    /// The message by which that driver lives on.
    #[must_use]
    pub fn heartbeat(&self) -> ShuffleServiceHeartbeat {
        ShuffleServiceHeartbeat { app_id: self.app_id.clone() }
    }
}

/// Bytes that tell where they came from: no two partitions of a test have the same.
#[must_use]
pub fn partition(map: MapId, reduce: ReduceId, length: usize) -> Vec<u8> {
    let mut state = (map.0.cast_unsigned() << 32) ^ u64::from(reduce.0.cast_unsigned()) ^ 0x9E37;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // SplitMix64, so that a shifted or swapped byte shows.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
