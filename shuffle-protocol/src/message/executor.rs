//! Where executors keep their files (`spec/block-transfer.md` §3.5 and §3.7).

use bytes::{BufMut, BytesMut};

use super::{Fields, Layout};
use crate::ids::{AppId, ExecId};
use crate::wire::{Reader, StringArray, WireError, WriteWire};

/// Registers an executor: `string appId, string execId, ExecutorShuffleInfo`. Answered by an empty
/// response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterExecutor {
    /// The application.
    pub app_id: AppId,
    /// The executor.
    pub exec_id: ExecId,
    /// Where it keeps its files.
    pub info: ExecutorShuffleInfo,
}

/// `string[] localDirs, i32 subDirsPerLocalDir, string shuffleManager`; part of
/// [`RegisterExecutor`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorShuffleInfo {
    /// Absolute paths of the executor's `blockmgr-*` directories. Their order decides where a file
    /// lies.
    pub local_dirs: StringArray,
    /// Sub-directories a local directory; Spark's default is 64.
    pub sub_dirs_per_local_dir: i32,
    /// Class name of the shuffle manager, with `:{json}` behind it when push shuffle is on.
    pub shuffle_manager: String,
}

impl Fields for RegisterExecutor {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self {
            app_id: reader.string("appId")?.into(),
            exec_id: reader.string("execId")?.into(),
            info: ExecutorShuffleInfo {
                local_dirs: reader.strings("localDirs")?,
                sub_dirs_per_local_dir: reader.i32("subDirsPerLocalDir")?,
                shuffle_manager: reader.string("shuffleManager")?,
            },
        })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_string(self.exec_id.as_str());
        out.put_strings(&self.info.local_dirs);
        out.put_i32(self.info.sub_dirs_per_local_dir);
        out.put_string(&self.info.shuffle_manager);
    }
}

/// Asks for directories: `string appId, string[] execIds`. Answered by [`LocalDirsForExecutors`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetLocalDirsForExecutors {
    /// The application.
    pub app_id: AppId,
    /// The executors.
    pub exec_ids: StringArray,
}

impl Fields for GetLocalDirsForExecutors {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        Ok(Self { app_id: reader.string("appId")?.into(), exec_ids: reader.strings("execIds")? })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_string(self.app_id.as_str());
        out.put_strings(&self.exec_ids);
    }
}

/// Directories by executor: `string[] execIds, i32[] numLocalDirsByExec, string[] allLocalDirs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDirsForExecutors {
    exec_ids: StringArray,
    dirs_by_exec: Vec<i32>,
    dirs: StringArray,
}

impl LocalDirsForExecutors {
    /// The executors in the answer's order, each with its directories.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let mut dirs = self.dirs.iter();
        self.exec_ids.iter().zip(&self.dirs_by_exec).map(move |(exec, &count)| {
            let count = usize::try_from(count).unwrap_or(0);
            (exec, dirs.by_ref().take(count).collect())
        })
    }
}

impl<E: AsRef<str>, D: AsRef<str>> FromIterator<(E, Vec<D>)> for LocalDirsForExecutors {
    fn from_iter<I: IntoIterator<Item = (E, Vec<D>)>>(executors: I) -> Self {
        let executors: Vec<_> = executors.into_iter().collect();
        let count = |dirs: &Vec<D>| i32::try_from(dirs.len()).expect("fewer than 2^31 directories");
        Self {
            exec_ids: executors.iter().map(|(exec, _)| exec).collect(),
            dirs_by_exec: executors.iter().map(|(_, dirs)| count(dirs)).collect(),
            dirs: executors.iter().flat_map(|(_, dirs)| dirs).collect(),
        }
    }
}

impl Fields for LocalDirsForExecutors {
    fn read(reader: &mut Reader, _: Layout) -> Result<Self, WireError> {
        let exec_ids = reader.strings("execIds")?;
        let dirs_by_exec = reader.i32s("numLocalDirsByExec")?;
        let dirs = reader.strings("allLocalDirs")?;
        if exec_ids.len() != dirs_by_exec.len() {
            return Err(WireError::Mismatch {
                what: "execIds and numLocalDirsByExec",
                left: exec_ids.len() as u64,
                right: dirs_by_exec.len() as u64,
            });
        }
        let mut announced = 0;
        for &count in &dirs_by_exec {
            announced += u64::try_from(count).map_err(|_| WireError::NegativeLength {
                what: "numLocalDirsByExec",
                length: count,
            })?;
        }
        if announced != dirs.len() as u64 {
            return Err(WireError::Mismatch {
                what: "numLocalDirsByExec and allLocalDirs",
                left: announced,
                right: dirs.len() as u64,
            });
        }
        Ok(Self { exec_ids, dirs_by_exec, dirs })
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_strings(&self.exec_ids);
        out.put_i32s(&self.dirs_by_exec);
        out.put_strings(&self.dirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two executors, `dirs_by_exec` and as many directories as `dirs`.
    fn read(dirs_by_exec: &[i32], dirs: usize) -> Result<LocalDirsForExecutors, WireError> {
        let mut out = BytesMut::new();
        out.put_strings(&["1", "2"].into_iter().collect());
        out.put_i32s(dirs_by_exec);
        out.put_strings(&std::iter::repeat_n("/d", dirs).collect());
        LocalDirsForExecutors::read(&mut Reader::new(out.freeze()), Layout::default())
    }

    #[test]
    fn every_directory_belongs_to_an_executor() {
        let answer = read(&[0, 2], 2).unwrap();
        let read_back: Vec<(&str, Vec<&str>)> = answer.iter().collect();
        assert_eq!(read_back, [("1", vec![]), ("2", vec!["/d", "/d"])]);

        let mismatch = |what, left, right| Err(WireError::Mismatch { what, left, right });
        let executors = "execIds and numLocalDirsByExec";
        assert_eq!(read(&[2], 2), mismatch(executors, 2, 1));
        assert_eq!(read(&[2, 0, 0], 2), mismatch(executors, 2, 3));
        let dirs = "numLocalDirsByExec and allLocalDirs";
        assert_eq!(read(&[1, 2], 2), mismatch(dirs, 3, 2));
        assert_eq!(read(&[1, 0], 2), mismatch(dirs, 1, 2));
        let most = u64::from(i32::MAX.unsigned_abs());
        assert_eq!(read(&[i32::MAX; 2], 2), mismatch(dirs, 2 * most, 2));
    }

    #[test]
    fn no_executor_has_fewer_than_no_directories() {
        for count in [-1, i32::MIN] {
            let what = "numLocalDirsByExec";
            let negative = Err(WireError::NegativeLength { what, length: count });
            assert_eq!(read(&[count, 3], 2), negative);
            assert_eq!(read(&[3, count], 2), negative);
        }
    }
}
