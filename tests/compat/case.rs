//! One conversation of the table: what is sent, on which connection, after what happened to the
//! files. Nothing here says what comes back; that is the reference's to say.

use std::fmt;
use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};
use shuffle_protocol::frame::Frame;
use shuffle_protocol::message::{
    DiagnoseCorruption, FetchShuffleBlocks, GetLocalDirsForExecutors, Message, OpenBlocks,
    RemoveBlocks,
};
use shuffle_protocol::{AppId, MapId, ReduceId, RequestId, ShuffleId};

/// The executor that every case has, with files, and registered unless the case says otherwise.
pub(crate) const EXEC: &str = "1";

/// The class that Spark's executors name.
pub(crate) const SORT: &str = "org.apache.spark.shuffle.sort.SortShuffleManager";

/// Whose answers are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    /// Both services.
    Both,
    /// The Mesos service of 3.5.9: the only one that knows drivers.
    Mesos,
    /// The standalone service of 4.3.0, where the versions differ and ours follows the newer.
    Standalone,
}

/// What is done in one step. Every step that sends something takes all that comes back.
pub(crate) enum Step {
    /// An RPC with this payload.
    Rpc(Bytes),
    /// A registration; `{dir}` is the executor's first directory and `{root}` the service's root.
    Register { exec: String, dirs: Vec<Vec<u8>>, sub_dirs: i32, manager: Vec<u8>, extra: Vec<u8> },
    /// The payload of a one-way message.
    OneWay(Bytes),
    /// Bytes; `{0}` in them is the first stream that was opened, as eight bytes.
    Bytes(Vec<u8>),
    /// Chunks of the case's n-th stream, all asked for at once.
    Chunks { stream: usize, chunks: Range<i32> },
    /// A StreamRequest; `{0}` is the first stream that was opened.
    Stream(String),
    /// A payload cut at every length, each an RPC.
    Truncated(Bytes),
    /// From here on, another connection: the n-th of the case.
    On(usize),
    /// These bytes, and nothing after them: the client closes its half.
    Last(Vec<u8>),
    /// These bytes, and wait for the service to close.
    AwaitClose(Vec<u8>),
    /// Writes a file of the executor's, as it stands in its directories.
    Write { name: String, content: Vec<u8> },
    /// Deletes one.
    Delete(String),
    /// Looks whether one is there.
    Exists(String),
    /// Waits until the service has looked for expired applications, and has removed what it found.
    Sweep,
}

impl Step {
    /// It takes time without being work.
    pub(crate) fn waits(&self) -> bool {
        matches!(self, Self::Sweep | Self::AwaitClose(_))
    }
}

/// A conversation with a name.
pub(crate) struct Case {
    /// Also the application's id.
    pub(crate) name: String,
    pub(crate) reference: Reference,
    /// The executor is registered first.
    pub(crate) registered: bool,
    pub(crate) steps: Vec<Step>,
}

pub(crate) fn case(name: impl Into<String>) -> Case {
    Case { name: name.into(), reference: Reference::Both, registered: true, steps: Vec::new() }
}

impl Case {
    pub(crate) fn app(&self) -> AppId {
        self.name.as_str().into()
    }

    pub(crate) fn at(mut self, reference: Reference) -> Self {
        self.reference = reference;
        self
    }

    pub(crate) fn unregistered(mut self) -> Self {
        self.registered = false;
        self
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) fn rpc(self, message: impl Into<Message>) -> Self {
        self.step(Step::Rpc(message.into().encode()))
    }

    pub(crate) fn payload(self, payload: impl Into<Bytes>) -> Self {
        self.step(Step::Rpc(payload.into()))
    }

    /// An RPC with bytes behind the message that it does not have.
    pub(crate) fn rpc_and(self, message: impl Into<Message>, extra: &[u8]) -> Self {
        let payload = [&message.into().encode()[..], extra].concat();
        self.payload(payload)
    }

    pub(crate) fn one_way(self, message: impl Into<Message>) -> Self {
        self.step(Step::OneWay(message.into().encode()))
    }

    pub(crate) fn frame(self, frame: &Frame) -> Self {
        self.step(Step::Bytes(encode(frame)))
    }

    pub(crate) fn frames(self, frames: &[Frame]) -> Self {
        self.step(Step::Bytes(frames.iter().flat_map(encode).collect()))
    }

    pub(crate) fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Bytes(bytes.into()))
    }

    pub(crate) fn last(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Last(bytes.into()))
    }

    pub(crate) fn await_close(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::AwaitClose(bytes.into()))
    }

    pub(crate) fn truncated(self, message: impl Into<Message>) -> Self {
        self.step(Step::Truncated(message.into().encode()))
    }

    pub(crate) fn on(self, connection: usize) -> Self {
        self.step(Step::On(connection))
    }

    pub(crate) fn write(self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Write { name: name.into(), content: content.into() })
    }

    /// Replaces an index file.
    pub(crate) fn index(self, map: i64, offsets: &[i64]) -> Self {
        let content: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_be_bytes()).collect();
        self.write(&format!("shuffle_0_{map}_0.index"), content)
    }

    pub(crate) fn delete(self, name: &str) -> Self {
        self.step(Step::Delete(name.into()))
    }

    pub(crate) fn exists(self, name: &str) -> Self {
        self.step(Step::Exists(name.into()))
    }

    pub(crate) fn sweep(self) -> Self {
        self.step(Step::Sweep)
    }

    pub(crate) fn register(self, dirs: &[&str], sub_dirs: i32, manager: &str) -> Self {
        let dirs: Vec<&[u8]> = dirs.iter().map(|dir| dir.as_bytes()).collect();
        self.register_bytes(EXEC, &dirs, sub_dirs, manager.as_bytes(), b"")
    }

    pub(crate) fn register_bytes(
        self,
        exec: &str,
        dirs: &[&[u8]],
        sub_dirs: i32,
        manager: &[u8],
        extra: &[u8],
    ) -> Self {
        self.step(Step::Register {
            exec: exec.into(),
            dirs: dirs.iter().map(|dir| dir.to_vec()).collect(),
            sub_dirs,
            manager: manager.into(),
            extra: extra.into(),
        })
    }

    pub(crate) fn open(self, ids: &[&str]) -> Self {
        self.open_of(EXEC, ids)
    }

    pub(crate) fn open_of(self, exec: &str, ids: &[&str]) -> Self {
        let message = OpenBlocks {
            app_id: self.app(),
            exec_id: exec.into(),
            block_ids: ids.iter().collect(),
        };
        self.rpc(message)
    }

    /// Asks for partitions of map outputs of shuffle 0.
    pub(crate) fn fetch(self, maps: &[i64], reduces: &[&[i32]], batch: bool) -> Self {
        let message = self.fetching(maps, reduces, batch);
        self.rpc(message)
    }

    pub(crate) fn fetching(
        &self,
        maps: &[i64],
        reduces: &[&[i32]],
        batch: bool,
    ) -> FetchShuffleBlocks {
        FetchShuffleBlocks {
            app_id: self.app(),
            exec_id: EXEC.into(),
            shuffle_id: ShuffleId(0),
            map_ids: maps.to_vec(),
            reduce_ids: reduces.iter().copied().collect(),
            batch_fetch: batch,
        }
    }

    /// The chunks of the first stream.
    pub(crate) fn chunks(self, chunks: Range<i32>) -> Self {
        self.chunks_of(0, chunks)
    }

    pub(crate) fn chunk(self, chunk: i32) -> Self {
        self.chunks_of(0, chunk..chunk.saturating_add(1))
    }

    pub(crate) fn chunks_of(self, stream: usize, chunks: Range<i32>) -> Self {
        self.step(Step::Chunks { stream, chunks })
    }

    pub(crate) fn stream(self, name: &str) -> Self {
        self.step(Step::Stream(name.into()))
    }

    pub(crate) fn local_dirs(self, execs: &[&str]) -> Self {
        let message =
            GetLocalDirsForExecutors { app_id: self.app(), exec_ids: execs.iter().collect() };
        self.rpc(message)
    }

    pub(crate) fn remove(self, names: &[&str]) -> Self {
        self.remove_of(EXEC, names)
    }

    pub(crate) fn remove_of(self, exec: &str, names: &[&str]) -> Self {
        let message = RemoveBlocks {
            app_id: self.app(),
            exec_id: exec.into(),
            block_ids: names.iter().collect(),
        };
        self.rpc(message)
    }

    /// Asks who damaged a block of shuffle 0.
    pub(crate) fn diagnose(self, map: i64, reduce: i32, checksum: i64, algorithm: &str) -> Self {
        self.diagnose_of(EXEC, map, reduce, checksum, algorithm)
    }

    pub(crate) fn diagnose_of(
        self,
        exec: &str,
        map: i64,
        reduce: i32,
        checksum: i64,
        algorithm: &str,
    ) -> Self {
        let message = DiagnoseCorruption {
            app_id: self.app(),
            exec_id: exec.into(),
            shuffle_id: ShuffleId(0),
            map_id: MapId(map),
            reduce_id: ReduceId(reduce),
            checksum,
            algorithm: algorithm.into(),
        };
        self.rpc(message)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A frame's bytes.
pub(crate) fn encode(frame: &Frame) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes);
    bytes.to_vec()
}

/// An RPC frame with an id of the case's choice.
pub(crate) fn rpc_frame(id: i64, message: impl Into<Message>) -> Frame {
    Frame::RpcRequest { id: RequestId(id), body: message.into().encode() }
}

/// A frame of any bytes: the length in front of them is right.
pub(crate) fn framed(content: &[u8]) -> Vec<u8> {
    let length = i64::try_from(content.len()).expect("a short frame") + 8;
    [&length.to_be_bytes()[..], content].concat()
}

/// The length field of a frame, which counts itself.
pub(crate) fn length(length: i64) -> Vec<u8> {
    length.to_be_bytes().to_vec()
}

/// Writes fields one by one, as no encoder would.
#[derive(Default)]
pub(crate) struct Fields(BytesMut);

impl Fields {
    pub(crate) fn of(type_id: i8) -> Self {
        let mut fields = Self::default();
        fields.0.put_i8(type_id);
        fields
    }

    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.put_i32(value);
        self
    }

    pub(crate) fn i64(mut self, value: i64) -> Self {
        self.0.put_i64(value);
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.put_slice(bytes);
        self
    }

    /// A text or a byte array: its length, and it.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let length = i32::try_from(bytes.len()).expect("a short field");
        self.i32(length).raw(bytes)
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn done(self) -> Bytes {
        self.0.freeze()
    }
}
