//! Recorded conversations between Spark's own clients and services (`tests/golden/captures`), with
//! ours in the place of the service: it answers as the recorded one did.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use serde_json::Value;
use shuffle_protocol::checksum::Algorithm;
use shuffle_protocol::frame::{Event, Frame, Splitter, StreamChunkId};
use shuffle_protocol::message::{Message, RegisterExecutor};
use shuffle_protocol::{MapId, ShuffleId, StreamId, map_output};
use test_support::fixture::FixtureExecutor;
use test_support::process::ServiceCommand;
use test_support::raw::{Answer, RawClient};

use crate::ledger::{Ledger, Transcript, differences};
use crate::words::{Words, answers_probe, probe};

/// Where the recorded executor had its directories.
const RECORDED_ROOT: &str = "/tmp/bed";

/// What the names of these cases begin with in the ledger.
const PREFIX: &str = "recorded_";

pub(crate) fn is_recorded(case: &str) -> bool {
    case.starts_with(PREFIX)
}

/// Replays all of them.
pub(crate) async fn replay_all() {
    let mut ledger = Ledger::read(is_recorded);
    let mut ran = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/captures");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let (_, version) = name.rsplit_once('-').expect("a version ends the name");
        let case = format!("{PREFIX}{name}");
        let recording = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let (recorded, ours) = replay(&recording).await;
        for difference in differences(&recorded, &ours) {
            ledger.note(&case, version, &difference);
        }
        ran.push((case, vec![version.to_owned()]));
    }
    assert!(ran.len() >= 6, "{ran:?}");
    ledger.settle(&ran);
}

/// What the recorded service answered, and what ours does.
async fn replay(recording: &Value) -> (Transcript, Transcript) {
    let service = ServiceCommand::new(env!("CARGO_BIN_EXE_shuffled")).start();
    let root = service.root();
    let executor = FixtureExecutor {
        app_id: "app-bed-1".into(),
        exec_id: "7".into(),
        local_dirs: vec![root.join("d0/blockmgr-aaaa"), root.join("d1/blockmgr-bbbb")],
    };
    write_files(&executor);
    let mut recorded_words = Words::of(Path::new(RECORDED_ROOT));
    let mut words = Words::of(&root);
    let (mut recorded, mut ours) = (Vec::new(), Vec::new());
    for (number, connection) in recording["connections"].as_array().unwrap().iter().enumerate() {
        let requests = split(&connection["c2s"]);
        let answers = split(&connection["s2c"]);
        assert!(!requests.is_empty());
        let step = format!("connection {number}");
        let described = answers.into_iter().map(|answer| recorded_words.describe(answer)).collect();
        recorded.push((step.clone(), described));

        let mut client = RawClient::connect(service.shuffle).await;
        let mut described = Vec::new();
        for Answer { frame: request, .. } in requests {
            let damage = Damage::before(&request, &executor);
            let to_ours = |stream: StreamId| {
                let at = recorded_words.streams.iter().position(|recorded| *recorded == stream);
                words.streams[at.expect("a stream that was opened")]
            };
            client.send(&translated(request, &executor.local_dirs, to_ours)).await;
            client.send(&probe()).await;
            loop {
                let answer = client.next().await.expect("the connection goes on");
                if answers_probe(&answer.frame) {
                    break;
                }
                described.push(words.describe(answer));
            }
            drop(damage);
        }
        ours.push((step, described));
    }
    (recorded, ours)
}

/// A recorded request as it would be here: with our directories and streams.
fn translated(
    request: Frame,
    local_dirs: &[PathBuf],
    stream: impl Fn(StreamId) -> StreamId,
) -> Frame {
    match request {
        Frame::RpcRequest { id, body } => match Message::decode(body.clone()).unwrap() {
            Message::RegisterExecutor(RegisterExecutor { app_id, exec_id, mut info }) => {
                info.local_dirs = local_dirs.iter().map(|dir| dir.to_string_lossy()).collect();
                let message = Message::from(RegisterExecutor { app_id, exec_id, info });
                Frame::RpcRequest { id, body: message.encode() }
            }
            _ => Frame::RpcRequest { id, body },
        },
        Frame::ChunkFetchRequest(chunk) => {
            Frame::ChunkFetchRequest(StreamChunkId { stream: stream(chunk.stream), ..chunk })
        }
        other @ Frame::OneWayMessage { .. } => other,
        other => panic!("no recorded client sent this: {other:?}"),
    }
}

/// A flipped byte in the data of map 2, as the recorded executor had it for as long as it asked for
/// a diagnosis of that block.
struct Damage(PathBuf);

impl Damage {
    fn before(request: &Frame, executor: &FixtureExecutor) -> Option<Self> {
        let Frame::RpcRequest { body, .. } = request else { return None };
        match Message::decode(body.clone()) {
            Ok(Message::DiagnoseCorruption(asked)) if asked.map_id == MapId(2) => {
                let damage = Self(executor.data_path(3, 2));
                damage.flip();
                Some(damage)
            }
            _ => None,
        }
    }

    fn flip(&self) {
        let mut bytes = fs::read(&self.0).unwrap();
        bytes[1] ^= 1;
        fs::write(&self.0, bytes).unwrap();
    }
}

impl Drop for Damage {
    fn drop(&mut self) {
        self.flip();
    }
}

/// The frames of one direction.
fn split(hex: &Value) -> Vec<Answer> {
    let hex = hex.as_str().unwrap();
    let mut bytes: BytesMut = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    let mut splitter = Splitter::new(16 << 20);
    let mut frames: Vec<Answer> = Vec::new();
    while let Some(event) = splitter.next(&mut bytes).unwrap() {
        match event {
            Event::Frame(frame) => frames.push(Answer { frame, data: Vec::new() }),
            Event::Data { bytes, .. } => frames.last_mut().unwrap().data.extend_from_slice(&bytes),
        }
    }
    assert!(bytes.is_empty());
    frames
}

/// The files that the recorded executor wrote.
fn write_files(executor: &FixtureExecutor) {
    let mut random = JavaRandom::new(42);
    for map in 0..3 {
        let partitions: Vec<Vec<u8>> = (0..5)
            .map(|reduce| {
                let empty = map == 1 && reduce == 2;
                let length = if empty { 0 } else { 100 + random.below(200) };
                random.bytes(usize::try_from(length).unwrap())
            })
            .collect();
        let files = map_output::files(ShuffleId(3), MapId(map), &partitions, Algorithm::Adler32);
        for (block, content) in files {
            executor.write(&block.file_name().unwrap(), &content);
        }
    }
    executor.write("rdd_8_0", &random.bytes(3333));
    executor.write("rdd_8_1", &[0]);
}

/// `java.util.Random`, which made those files.
struct JavaRandom(u64);

impl JavaRandom {
    fn new(seed: u64) -> Self {
        Self(seed ^ 0x5_DEEC_E66D)
    }

    fn next(&mut self, bits: u32) -> u32 {
        self.0 = self.0.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
        u32::try_from(self.0 >> (48 - bits)).unwrap()
    }

    /// `nextInt(bound)`, for a bound that is no power of two.
    fn below(&mut self, bound: i32) -> i32 {
        loop {
            let bits = i32::try_from(self.next(31)).unwrap();
            let value = bits % bound;
            if (bits - value).checked_add(bound - 1).is_some() {
                return value;
            }
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 3);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next(32).to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
