//! `shuffled demo`: the whole life of an application on one machine, in seconds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::Algorithm;
use shuffle_protocol::layout::Layout;
use shuffle_protocol::message::ExecutorShuffleInfo;
use shuffle_protocol::{AppId, ExecId, HeartbeatTimeout, MapId, ReduceId, ShuffleId, map_output};
use shuffled_client::{
    ClientOptions, DriverOptions, FetchRequest, ServerAddr, ShuffleServiceClient,
};
use shuffled_service::admin::RecordView;
use shuffled_service::server::{Addresses, Server};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::admin_client::AdminClient;
use crate::apps;
use crate::human;
use crate::output::print;
use crate::settings::Signals;

const APP: &str = "demo-0001";
const EXECUTORS: [&str; 2] = ["1", "2"];
const DISKS: [&str; 2] = ["disk-1", "disk-2"];
const SHUFFLE: ShuffleId = ShuffleId(0);
const MAPS: i64 = 3;
const REDUCES: i32 = 8;
const SUB_DIRS: i32 = 64;
const TIMEOUT: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(500);
/// How long the expiry may take before the demo gives up; it takes the timeout and one interval of the
/// cleaner.
const PATIENCE: Duration = Duration::from_secs(15);

/// Show the whole life of an application on this machine, in seconds
///
/// Starts a service in a temporary directory, registers a driver and two executors that wrote shuffle
/// files as Spark does, fetches and compares every block, lists the application, stops the heartbeats,
/// and shows the application expire and its directories go. Leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct Demo {}

impl Demo {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        // From here on nothing ends this without the cleaning up.
        let mut signals = Signals::new()?;
        let work = TempDir::with_prefix("shuffled-demo-")
            .context("cannot create a temporary directory; TMPDIR says where")?;
        let outcome = in_directory(work.path(), &mut signals).await;
        work.close().context("cannot remove the temporary directory")?;
        outcome?;
        step(7, "stopped the service and removed the temporary directory")?;
        print("\nThat was an application's whole life. Next: `shuffled serve --help`, README.md\n")
    }
}

/// One progress line.
fn step(number: u32, what: &str) -> anyhow::Result<()> {
    print(&format!("[{number}/7] {what}\n"))
}

/// All of it, or as much as the signals leave time for. Afterwards nobody uses the directory.
async fn in_directory(work: &Path, signals: &mut Signals) -> anyhow::Result<()> {
    let disks: Vec<PathBuf> = DISKS.iter().map(|disk| work.join(disk)).collect();
    for disk in &disks {
        std::fs::create_dir(disk)?;
    }
    let service = Service::start(&disks).await?;
    let outcome = tokio::select! {
        outcome = life_of_an_application(&disks, service.addresses) => outcome,
        signal = signals.next() => Err(anyhow::anyhow!("interrupted by {signal}")),
    };
    service.stop().await?;
    outcome
}

async fn life_of_an_application(disks: &[PathBuf], addresses: Addresses) -> anyhow::Result<()> {
    step(1, &format!("started a shuffle service on {}", addresses.shuffle))?;

    let executors: Vec<Executor> =
        EXECUTORS.iter().map(|id| Executor::write(id, disks)).collect::<anyhow::Result<_>>()?;
    let written: u64 = executors.iter().map(Executor::bytes).sum();
    step(
        2,
        &format!(
            "two executors wrote {} map outputs of {REDUCES} partitions on two disks, {}",
            MAPS * 2,
            human::bytes(written)
        ),
    )?;

    let client = ShuffleServiceClient::new(
        ServerAddr::from(addresses.shuffle),
        ClientOptions { retry_wait: Duration::from_millis(200), ..ClientOptions::default() },
    );
    let app_id = AppId::from(APP);
    let options = DriverOptions {
        timeout: HeartbeatTimeout::After(TIMEOUT),
        interval: INTERVAL,
        ..DriverOptions::default()
    };
    let driver = client.keep_registered(app_id.clone(), options)?;
    ensure!(driver.registered().await, "the driver was not registered");
    for executor in &executors {
        client.register_executor(&app_id, &executor.id, &executor.info).await?;
    }
    step(3, "registered them and their driver, which sends a heartbeat twice a second")?;

    let (blocks, bytes) = fetch_all(&client, &app_id, &executors).await?;
    ensure!(bytes == written, "fetched {bytes} bytes of {written}");
    step(4, &format!("fetched {blocks} blocks, {}: every byte is right", human::bytes(bytes)))?;

    let admin = admin_client(addresses)?;
    step(5, "this is what `shuffled apps` shows:")?;
    print(&format!("\n{}\n\n", apps::registered(&apps::list(&admin).await?.apps, false)))?;

    driver.close().await;
    step(
        6,
        &format!("stopped the heartbeats; the driver's timeout is {}", human::duration(TIMEOUT)),
    )?;
    let expired = wait_for_expiry(&admin).await?;
    for disk in disks {
        let left = std::fs::read_dir(disk)?.count();
        ensure!(left == 0, "{left} directories are left in {}", disk.display());
    }
    print(&format!("\n{}\n\n", apps::expired(&[expired])))
}

/// The service within this process.
struct Service {
    addresses: Addresses,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    async fn start(disks: &[PathBuf]) -> anyhow::Result<Self> {
        let mut raw = shuffled_service::config::RawConfig::default();
        let roots: Vec<_> = disks.iter().map(|disk| disk.to_string_lossy()).collect();
        raw.conf("shuffled.listen=127.0.0.1:0");
        raw.conf("shuffled.admin.listen=127.0.0.1:0");
        raw.conf(&format!("shuffled.local.dirs={}", roots.join(",")));
        raw.conf("spark.shuffle.cleaner.interval=1s");
        let server = Server::bind(crate::settings::service(&raw)?).await?;
        let addresses = server.addresses();
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.run(stop.clone()));
        Ok(Self { addresses, stop, task })
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        Ok(self.task.await?)
    }
}

/// An executor that wrote its map outputs and is gone.
struct Executor {
    id: ExecId,
    info: ExecutorShuffleInfo,
    /// By map and partition.
    partitions: Vec<Vec<Vec<u8>>>,
}

impl Executor {
    fn write(id: &str, disks: &[PathBuf]) -> anyhow::Result<Self> {
        let dirs: Vec<PathBuf> =
            disks.iter().map(|disk| disk.join(format!("blockmgr-{APP}-{id}"))).collect();
        let layout = Layout::new(dirs.len(), SUB_DIRS)?;
        let mut partitions = Vec::new();
        for map in 0..MAPS {
            // Lengths differ, and one partition is empty, as happens.
            let output: Vec<Vec<u8>> =
                (0..REDUCES).map(|reduce| random_bytes(usize::from(reduce != 5))).collect();
            for (block, content) in
                map_output::files(SHUFFLE, MapId(map), &output, Algorithm::Adler32)
            {
                let name = block.file_name().context("a map output is made of files")?;
                let place = layout.place(&name);
                let dir = dirs[place.dir].join(place.sub.to_string());
                std::fs::create_dir_all(&dir)?;
                std::fs::write(dir.join(name), content)?;
            }
            partitions.push(output);
        }
        let info = ExecutorShuffleInfo {
            local_dirs: dirs.iter().map(|dir| dir.to_string_lossy()).collect(),
            sub_dirs_per_local_dir: SUB_DIRS,
            shuffle_manager: "org.apache.spark.shuffle.sort.SortShuffleManager".to_owned(),
        };
        Ok(Self { id: id.into(), info, partitions })
    }

    fn bytes(&self) -> u64 {
        self.partitions.iter().flatten().map(|partition| partition.len() as u64).sum()
    }

    fn partition(&self, map: MapId, reduce: ReduceId) -> Option<&[u8]> {
        let output = self.partitions.get(usize::try_from(map.0).ok()?)?;
        Some(output.get(usize::try_from(reduce.0).ok()?)?)
    }
}

/// `scale` times 20 to 60 KiB of noise.
fn random_bytes(scale: usize) -> Vec<u8> {
    let mut bytes = vec![0; scale * fastrand::usize(20 << 10..60 << 10)];
    fastrand::fill(&mut bytes);
    bytes
}

/// Fetches every partition of every map output and compares it with what was written.
async fn fetch_all(
    client: &ShuffleServiceClient,
    app_id: &AppId,
    executors: &[Executor],
) -> anyhow::Result<(usize, u64)> {
    let (mut count, mut total) = (0, 0);
    for executor in executors {
        let blocks = (0..MAPS).flat_map(|map| {
            (0..REDUCES).map(move |reduce| BlockId::Shuffle {
                shuffle: SHUFFLE,
                map: MapId(map),
                reduce: ReduceId(reduce),
            })
        });
        let request = FetchRequest {
            app_id: app_id.clone(),
            exec_id: executor.id.clone(),
            blocks: blocks.collect(),
        };
        let mut fetch = client.fetch(request)?;
        while let Some(fetched) = fetch.next().await {
            let BlockId::Shuffle { map, reduce, .. } = fetched.block else {
                bail!("{} was not asked for", fetched.block);
            };
            let bytes =
                fetched.result.with_context(|| format!("cannot fetch {}", fetched.block))?;
            ensure!(
                executor.partition(map, reduce) == Some(&bytes[..]),
                "{} is not what executor {} wrote",
                fetched.block,
                executor.id
            );
            count += 1;
            total += bytes.len() as u64;
        }
    }
    Ok((count, total))
}

fn admin_client(addresses: Addresses) -> anyhow::Result<AdminClient> {
    addresses.admin.context("the service has no admin HTTP")?.to_string().parse()
}

/// Waits until the application has expired and nothing of it is left to remove.
async fn wait_for_expiry(admin: &AdminClient) -> anyhow::Result<RecordView> {
    let start = Instant::now();
    loop {
        let list = apps::list(admin).await?;
        if let Some(expired) = list.expired.into_iter().find(|app| app.dirs_removed == app.dirs) {
            return Ok(expired);
        }
        if start.elapsed() > PATIENCE {
            bail!("the application has not expired after {}", human::duration(PATIENCE));
        }
        sleep(Duration::from_millis(100)).await;
    }
}
