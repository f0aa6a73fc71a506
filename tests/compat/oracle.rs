//! Holds conversations with the services, and compares.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::Algorithm;
use shuffle_protocol::codec::ReadError;
use shuffle_protocol::frame::{Frame, StreamChunkId};
use shuffle_protocol::message::RegisterDriver;
use shuffle_protocol::{MapId, ReduceId, RequestId, ShuffleId, map_output};
use test_support::fixture::{FixtureExecutor, partition};
use test_support::process::ServiceProcess;
use test_support::raw::{Answer, RawClient};
use test_support::spark::{JvmService, SPARK_3, SPARK_4};
use tokio::time::{sleep, timeout};

use crate::case::{Case, EXEC, Fields, Reference, Step, encode};
use crate::cases;
use crate::ledger::{CLOSED, Ledger, Transcript, differences};
use crate::recorded::is_recorded;
use crate::words::{Words, answers_probe, probe};

/// Longer than any answer takes. Nothing waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a service may take to close a connection by itself before it counts as one that waits
/// for more bytes.
const CLOSING: Duration = Duration::from_secs(5);

/// Cases in which nothing may fail: were the files not where they belong, all services would agree
/// on that in most cases.
const SERVED: [&str; 7] =
    ["register", "fetch", "fetch_batch", "open_shuffle", "open_rdd", "stream", "diagnose_pass"];

#[derive(Debug, Clone)]
struct Service {
    addr: SocketAddr,
    root: PathBuf,
}

/// Holds every case with all of them, and the differences against the ledger.
pub(crate) async fn compare_all(
    mesos_service: JvmService,
    standalone_service: JvmService,
    ours: ServiceProcess,
) {
    let services = Arc::new([
        Service { addr: mesos_service.shuffle, root: mesos_service.root() },
        Service { addr: standalone_service.shuffle, root: standalone_service.root() },
        Service { addr: ours.shuffle, root: ours.root() },
    ]);

    let mut ledger = Ledger::read(|case| !is_recorded(case));
    let mut ran = Vec::new();
    // For a look at cases whose names contain this: what they did is printed, and nothing judged.
    let only = std::env::var("COMPAT_CASE").ok();
    // Those that wait for something wait together.
    let (waiting, others): (Vec<_>, Vec<_>) = cases::all()
        .into_iter()
        .filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only)))
        .partition(|case| case.steps.iter().any(Step::waits));
    let mut results = Vec::new();
    for case in others {
        let transcripts = compare(&services, &case).await;
        results.push((case, transcripts));
    }
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|case| {
            let services = services.clone();
            tokio::spawn(async move {
                let transcripts = compare(&services, &case).await;
                (case, transcripts)
            })
        })
        .collect();
    for case in waiting {
        results.push(case.await.expect("no case panics"));
    }
    for (case, transcripts) in results {
        let [mesos, standalone, ours] = transcripts;
        let mut references = Vec::new();
        for (name, reference) in [(SPARK_3, mesos), (SPARK_4, standalone)] {
            let Some(reference) = reference else { continue };
            references.push(name.to_owned());
            let ours = ours.as_ref().expect("ours takes part in every case");
            if SERVED.contains(&case.name.as_str()) {
                let failed = |(_, outcomes): &(_, Vec<String>)| {
                    outcomes.iter().any(|outcome| outcome.contains("Failure"))
                };
                assert!(!reference.iter().any(failed), "{}: {reference:#?}", case.name);
            }
            if only.is_some() {
                eprintln!("{}\n  {name}: {reference:#?}\n  ours: {ours:#?}", case.name);
            }
            for difference in differences(&reference, ours) {
                ledger.note(&case.name, name, &difference);
            }
        }
        ran.push((case.name.clone(), references));
    }
    // Before anything fails, so that their logs are not shown: they are full of what was provoked.
    drop((mesos_service, standalone_service, ours));
    if only.is_none() {
        ledger.settle(&ran);
    }
}

/// What each of the services does; `None` for those that are no reference for the case.
async fn compare(services: &[Service; 3], case: &Case) -> [Option<Transcript>; 3] {
    let wanted = match case.reference {
        Reference::Both => [true, true, true],
        Reference::Mesos => [true, false, true],
        Reference::Standalone => [false, true, true],
    };
    let talk = |at: usize| async move {
        match wanted[at] {
            true => Some(Talk::new(&services[at], case).await.run(case).await),
            false => None,
        }
    };
    let (a, b, c) = tokio::join!(talk(0), talk(1), talk(2));
    [a, b, c]
}

/// The files of every case's executor.
fn write_fixture(executor: &FixtureExecutor) {
    let outputs: [(i64, &[usize]); 4] =
        [(0, &[100, 0, 37, 5]), (1, &[10, 20, 30, 40]), (5, &[11, 12]), (3_000_000_000, &[7, 8])];
    for (map, lengths) in outputs {
        let partitions: Vec<_> = (0..)
            .zip(lengths)
            .map(|(reduce, length)| partition(MapId(map), ReduceId(reduce), *length))
            .collect();
        executor.write_map_output(0, map, &partitions);
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c].into_iter().filter(|_| map == 1) {
            for (block, content) in
                map_output::files(ShuffleId(0), MapId(map), &partitions, algorithm)
            {
                if matches!(block, BlockId::ShuffleChecksum { .. }) {
                    executor.write(&block.file_name().expect("it is a file"), &content);
                }
            }
        }
    }
    executor.write("rdd_1_0", &partition(MapId(100), ReduceId(0), 64));
    executor.write("rdd_1_1", b"");
    executor.write("rdd_1_2", b"x");
}

/// One case with one service.
struct Talk<'a> {
    service: &'a Service,
    executor: FixtureExecutor,
    connections: BTreeMap<usize, Option<RawClient>>,
    on: usize,
    words: Words,
    next_id: i64,
}

impl<'a> Talk<'a> {
    async fn new(service: &'a Service, case: &Case) -> Self {
        let disks = ["d0", "d1"].map(|disk| service.root.join(&case.name).join(disk));
        let executor = FixtureExecutor::new(&case.name, EXEC, &[&disks[0], &disks[1]]);
        write_fixture(&executor);
        if case.registered {
            let mut client = RawClient::connect(service.addr).await;
            assert_eq!(client.rpc(executor.registration()).await, Ok(Bytes::new()));
        }
        let connections = BTreeMap::new();
        Self {
            service,
            executor,
            connections,
            on: 0,
            words: Words::of(&service.root),
            next_id: 1000,
        }
    }

    async fn run(mut self, case: &Case) -> Transcript {
        let mut transcript = Vec::new();
        for (number, step) in case.steps.iter().enumerate() {
            let (name, outcomes) = self.step(step).await;
            transcript.push((format!("step {number} ({name})"), outcomes));
        }
        transcript
    }

    async fn step(&mut self, step: &Step) -> (&'static str, Vec<String>) {
        match step {
            Step::Rpc(payload) => ("RPC", self.rpc(payload.clone()).await),
            Step::Register { exec, dirs, sub_dirs, manager, extra } => {
                let payload = self.registration(exec, dirs, *sub_dirs, manager, extra);
                ("registration", self.rpc(payload).await)
            }
            Step::OneWay(payload) => {
                let frame = Frame::OneWayMessage { body: payload.clone() };
                ("one-way", self.exchange(&encode(&frame)).await)
            }
            Step::Bytes(bytes) => ("bytes", self.exchange(bytes).await),
            Step::Chunks { stream, chunks } => {
                let Some(&stream) = self.words.streams.get(*stream) else {
                    return ("chunks", vec!["no stream".to_owned()]);
                };
                let requests: Vec<u8> = chunks
                    .clone()
                    .map(|chunk| Frame::ChunkFetchRequest(StreamChunkId { stream, chunk }))
                    .flat_map(|frame| encode(&frame))
                    .collect();
                ("chunks", self.exchange(&requests).await)
            }
            Step::Stream(name) => {
                let mut name = name.clone();
                for (number, stream) in self.words.streams.iter().enumerate() {
                    name = name.replace(&format!("{{{number}}}"), &stream.0.to_string());
                }
                ("stream", self.exchange(&encode(&Frame::StreamRequest { name })).await)
            }
            Step::Truncated(payload) => ("truncated", self.truncated(payload).await),
            Step::On(connection) => {
                self.on = *connection;
                ("connection", Vec::new())
            }
            Step::Last(bytes) => ("last bytes", self.last(bytes).await),
            Step::AwaitClose(bytes) => ("closes?", self.await_close(bytes).await),
            Step::Write { name, content } => {
                self.executor.write(name, content);
                ("write", Vec::new())
            }
            Step::Delete(name) => {
                std::fs::remove_file(self.executor.path(name)).expect("the fixture has the file");
                ("delete", Vec::new())
            }
            Step::Exists(name) => {
                let exists = self.executor.path(name).exists();
                ("exists", vec![if exists { "there" } else { "gone" }.to_owned()])
            }
            Step::Sweep => {
                self.sweep().await;
                ("sweep", Vec::new())
            }
        }
    }

    async fn rpc(&mut self, body: Bytes) -> Vec<String> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.exchange(&encode(&Frame::RpcRequest { id, body })).await
    }

    fn registration(
        &self,
        exec: &str,
        dirs: &[Vec<u8>],
        sub_dirs: i32,
        manager: &[u8],
        extra: &[u8],
    ) -> Bytes {
        let count = i32::try_from(dirs.len()).expect("a few directories");
        let mut fields = Fields::of(2).text(self.executor.app_id.as_str()).text(exec).i32(count);
        for dir in dirs {
            // Only templates are text, and only they hold a brace.
            let dir = match std::str::from_utf8(dir) {
                Ok(text) => self.filled_in(text).into_bytes(),
                Err(_) => dir.clone(),
            };
            fields = fields.bytes(&dir);
        }
        fields.i32(sub_dirs).bytes(manager).raw(extra).done()
    }

    fn filled_in(&self, template: &str) -> String {
        template
            .replace("{dir}", &self.executor.local_dirs[0].to_string_lossy())
            .replace("{dir1}", &self.executor.local_dirs[1].to_string_lossy())
            .replace("{root}", &self.service.root.to_string_lossy())
    }

    /// The current connection, unless the service closed it.
    async fn connection(&mut self) -> Option<RawClient> {
        if !self.connections.contains_key(&self.on) {
            let client = RawClient::connect(self.service.addr).await;
            self.connections.insert(self.on, Some(client));
        }
        self.connections.get_mut(&self.on)?.take()
    }

    /// Sends bytes and takes what comes back: everything until the answer to a probe behind them.
    async fn exchange(&mut self, bytes: &[u8]) -> Vec<String> {
        let Some(mut client) = self.connection().await else { return vec![CLOSED.to_owned()] };
        // The service may close while this is written; what it sent before is read all the same.
        let _ = client.send_bytes(&[bytes, &encode(&probe())].concat()).await;
        let (outcomes, open) = self.take(&mut client).await;
        if open {
            self.connections.insert(self.on, Some(client));
        }
        outcomes
    }

    /// Sends bytes, closes this side, and takes what comes back to the end.
    async fn last(&mut self, bytes: &[u8]) -> Vec<String> {
        let Some(mut client) = self.connection().await else { return vec![CLOSED.to_owned()] };
        let _ = client.send_bytes(bytes).await;
        client.finish().await;
        self.take(&mut client).await.0
    }

    /// Everything until the answer to a probe, or to the end, and whether it was the probe's.
    async fn take(&mut self, client: &mut RawClient) -> (Vec<String>, bool) {
        let mut outcomes = Vec::new();
        loop {
            match timeout(PATIENCE, client.try_next()).await {
                Err(_) => outcomes.push("silence".to_owned()),
                Ok(Ok(None) | Err(ReadError::Io(_))) => outcomes.push(CLOSED.to_owned()),
                Ok(Err(ReadError::Frame(error))) => outcomes.push(format!("garbage: {error}")),
                Ok(Ok(Some(Answer { frame, data }))) => {
                    if answers_probe(&frame) {
                        return (outcomes, true);
                    }
                    outcomes.push(self.words.describe(Answer { frame, data }));
                    continue;
                }
            }
            return (outcomes, false);
        }
    }

    async fn await_close(&mut self, bytes: &[u8]) -> Vec<String> {
        let Some(mut client) = self.connection().await else { return vec![CLOSED.to_owned()] };
        let _ = client.send_bytes(bytes).await;
        let closed = timeout(CLOSING, client.closed()).await.is_ok();
        vec![if closed { CLOSED } else { "waits" }.to_owned()]
    }

    /// The kinds of answer to every prefix of a payload, the payload whole being the last.
    async fn truncated(&mut self, payload: &Bytes) -> Vec<String> {
        let mut kinds: Vec<(usize, String)> = Vec::new();
        for length in 0..=payload.len() {
            let outcomes = self.rpc(payload.slice(..length)).await.join("; ");
            // The class of a refusal; the text may tell where reading ended.
            let kind = match outcomes.split(": ").collect::<Vec<_>>()[..] {
                [kind, class, ..] if kind.starts_with("RpcFailure") => class.to_owned(),
                _ if outcomes.is_empty() => "nothing".to_owned(),
                _ => outcomes.split(' ').next().unwrap_or_default().to_owned(),
            };
            if kinds.last().is_none_or(|(_, last)| *last != kind) {
                kinds.push((length, kind));
            }
        }
        kinds.iter().map(|(length, kind)| format!("{length} bytes: {kind}")).collect()
    }

    async fn sweep(&mut self) {
        // The first goes in a look that began after what was before this step. The second goes in
        // a later one, by when everything the first one found has been removed: removal is in order.
        for number in 0..2 {
            let app = format!("{}-canary-{number}", self.executor.app_id);
            let dir = canary(self.service.addr, &self.service.root, &app).await;
            timeout(PATIENCE, gone(&dir)).await.expect("the service removes expired applications");
        }
    }
}

/// Registers an application that expires at once; its directory.
async fn canary(service: SocketAddr, root: &Path, app: &str) -> PathBuf {
    let executor = FixtureExecutor::new(app, EXEC, &[root]);
    let mut client = RawClient::connect(service).await;
    assert_eq!(client.rpc(executor.registration()).await, Ok(Bytes::new()));
    let driver = RegisterDriver { app_id: app.into(), heartbeat_timeout_ms: 1 };
    assert_eq!(client.rpc(driver).await, Ok(Bytes::new()));
    executor.local_dirs.into_iter().next().expect("one was given")
}

async fn gone(dir: &Path) {
    while dir.exists() {
        sleep(Duration::from_millis(20)).await;
    }
}
