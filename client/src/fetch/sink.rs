//! Where the bytes of blocks go.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use shuffle_protocol::checksum::{Algorithm, Checksummer};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

/// Takes the bytes of one block, piece by piece.
///
/// While a call is pending the connection that the bytes come from reads nothing, for anybody: that
/// is what keeps a slow disk from filling the memory. A sink that waits for another block of the same
/// server waits for ever.
///
/// An error fails this block alone; it is not tried again.
pub trait BlockSink: Send {
    /// What becomes of a whole block.
    type Output: Send;

    /// A block of `length` bytes begins. If anything was written before, the connection broke, and
    /// it is void: the block comes again from its start.
    fn begin(&mut self, length: u64) -> impl Future<Output = io::Result<()>> + Send;

    /// The next bytes; never empty.
    fn write(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// All bytes were written. A sink that is dropped without this call has not got its block.
    fn finish(self) -> impl Future<Output = io::Result<Self::Output>> + Send;
}

/// Collects a block in memory; how large that may be is limited by whoever makes it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    bytes: BytesMut,
}

impl BlockSink for Memory {
    type Output = Bytes;

    async fn begin(&mut self, _: u64) -> io::Result<()> {
        // No memory is set aside for the length: it is the peer's word until the bytes are here.
        self.bytes = BytesMut::new();
        Ok(())
    }

    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(self) -> io::Result<Bytes> {
        Ok(self.bytes.freeze())
    }
}

/// Writes a block to a file. The file appears under its name when it is whole; until then it has
/// `.part` behind it, and goes when the block fails.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    part: PathBuf,
    file: Option<File>,
    length: u64,
}

impl FileSink {
    /// Will write to `path`, replacing what is there. Nothing is created before the block begins.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let mut part = OsString::from(&path);
        part.push(".part");
        Self { path, part: part.into(), file: None, length: 0 }
    }

    /// Where the block will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl BlockSink for FileSink {
    /// The path and its length in bytes.
    type Output = (PathBuf, u64);

    async fn begin(&mut self, length: u64) -> io::Result<()> {
        self.length = length;
        // Creating truncates what a broken attempt left.
        self.file = Some(File::create(&self.part).await?);
        Ok(())
    }

    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(&bytes).await,
            None => Err(io::Error::other("written before it began")),
        }
    }

    async fn finish(mut self) -> io::Result<(PathBuf, u64)> {
        if let Some(file) = &mut self.file {
            file.flush().await?;
        }
        tokio::fs::rename(&self.part, &self.path).await?;
        self.file = None;
        Ok((self.path.clone(), self.length))
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // If it cannot be removed, its name says that it is not whole.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// Throws the bytes away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard {
    length: u64,
}

impl BlockSink for Discard {
    /// Bytes thrown away.
    type Output = u64;

    async fn begin(&mut self, length: u64) -> io::Result<()> {
        self.length = length;
        Ok(())
    }

    async fn write(&mut self, _: Bytes) -> io::Result<()> {
        Ok(())
    }

    async fn finish(self) -> io::Result<u64> {
        Ok(self.length)
    }
}

/// Computes the checksum of what goes into another sink, as Spark's writers and
/// [`diagnose_corruption`](crate::ShuffleServiceClient::diagnose_corruption) have it.
#[derive(Debug)]
pub struct Checksummed<S> {
    sink: S,
    algorithm: Algorithm,
    sum: Checksummer,
}

impl<S> Checksummed<S> {
    /// Sums up by `algorithm` what `sink` gets.
    #[must_use]
    pub fn new(sink: S, algorithm: Algorithm) -> Self {
        Self { sink, algorithm, sum: Checksummer::new(algorithm) }
    }
}

impl<S: BlockSink> BlockSink for Checksummed<S> {
    /// What the other sink gives, and the checksum.
    type Output = (S::Output, i64);

    async fn begin(&mut self, length: u64) -> io::Result<()> {
        self.sum = Checksummer::new(self.algorithm);
        self.sink.begin(length).await
    }

    async fn write(&mut self, bytes: Bytes) -> io::Result<()> {
        self.sum.update(&bytes);
        self.sink.write(bytes).await
    }

    async fn finish(self) -> io::Result<(S::Output, i64)> {
        let sum = self.sum.value();
        Ok((self.sink.finish().await?, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("block");
        let mut sink = Checksummed::new(FileSink::new(&path), Algorithm::Crc32);
        sink.begin(100).await.unwrap();
        sink.write(Bytes::from_static(b"a broken attempt, longer than the block")).await.unwrap();
        sink.begin(9).await.unwrap();
        sink.write(Bytes::from_static(b"12345")).await.unwrap();
        assert!(!path.exists());
        sink.write(Bytes::from_static(b"6789")).await.unwrap();
        let ((written, length), sum) = sink.finish().await.unwrap();
        assert_eq!((written.as_path(), length, sum), (path.as_path(), 9, 0xCBF4_3926));
        assert_eq!(std::fs::read(&path).unwrap(), b"123456789");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_failed_block_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut sink = FileSink::new(dir.path().join("block"));
        sink.begin(9).await.unwrap();
        sink.write(Bytes::from_static(b"12345")).await.unwrap();
        drop(sink);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
