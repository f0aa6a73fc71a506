//! `shuffled fetch`: reads blocks from a service.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::{Algorithm, CorruptionCause};
use shuffle_protocol::message::DiagnoseCorruption;
use shuffled_client::{
    BlockError, Checksummed, Discard, FetchRequest, Fetched, FileSink, InvalidFetch,
    ShuffleServiceClient,
};

use crate::human;
use crate::output::print;
use crate::settings::{self, ConfigArgs, WrongUsage};

/// Read blocks of an executor from a service, to files or to check them
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what for").args(["out", "verify"]).required(true).multiple(true)))]
pub(crate) struct Fetch {
    /// The shuffle service; without a port it is that of spark.shuffle.service.port
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1")]
    server: String,

    /// The application's id
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    app: String,

    /// The executor that wrote the blocks
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    exec: String,

    /// Write each block to a file of its name in DIR, which is created
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Compute the checksum of each shuffle block and compare it with the file its executor wrote
    #[arg(long)]
    verify: bool,

    /// The checksum algorithm of the executors (spark.shuffle.checksum.algorithm): ADLER32, CRC32 or
    /// CRC32C
    #[arg(long, value_name = "NAME", default_value = "ADLER32")]
    algorithm: String,

    /// Blocks: shuffle_SHUFFLE_MAP_REDUCE, shuffle_SHUFFLE_MAP_START_END or rdd_RDD_PARTITION
    #[arg(value_name = "BLOCK", required = true)]
    blocks: Vec<String>,

    #[command(flatten)]
    config: ConfigArgs,
}

/// A block that arrived.
struct Got {
    /// Where it was written, if it was.
    path: Option<PathBuf>,
    length: u64,
    checksum: i64,
}

/// Blocks that were printed.
#[derive(Default)]
struct Tally {
    all: u64,
    failed: u64,
}

impl Fetch {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let raw = self.config.read();
        let settings = settings::client(&raw)?;
        let wrong = |error: String| anyhow::Error::from(WrongUsage(error));
        let server = settings::server("--server", &self.server, &settings)?;
        let algorithm: Algorithm = self.algorithm.parse().map_err(|_| {
            wrong(format!("--algorithm {}: use ADLER32, CRC32 or CRC32C", self.algorithm))
        })?;
        let blocks = self
            .blocks
            .iter()
            .map(|text| text.parse().map_err(|error| wrong(format!("{error}"))))
            .collect::<anyhow::Result<Vec<BlockId>>>()?;
        let filter = settings::log_filter(&raw, &settings.log_filter)?;
        settings::start_log(&raw, settings.log_format, filter);
        let client = ShuffleServiceClient::new(server, settings::client_options(&settings));
        if let Some(out) = &self.out {
            tokio::fs::create_dir_all(out)
                .await
                .with_context(|| format!("cannot create {}", out.display()))?;
        }

        let mut tally = Tally::default();
        let refused = self.round(&client, blocks, algorithm, &mut tally).await?;
        // With a block that is refused, those behind it are: one by one shows which is the bad one.
        for block in refused {
            self.round(&client, vec![block], algorithm, &mut tally).await?;
        }
        if tally.failed > 0 {
            bail!("{} of {} failed", tally.failed, human::count(tally.all, "block"));
        }
        Ok(())
    }

    /// Fetches blocks and prints a line for each, but for those that may be good and were refused
    /// because of another one.
    async fn round(
        &self,
        client: &ShuffleServiceClient,
        blocks: Vec<BlockId>,
        algorithm: Algorithm,
        tally: &mut Tally,
    ) -> anyhow::Result<Vec<BlockId>> {
        let several = blocks.len() > 1;
        let request = FetchRequest {
            app_id: self.app.as_str().into(),
            exec_id: self.exec.as_str().into(),
            blocks,
        };
        let invalid = |error: InvalidFetch| WrongUsage(error.to_string());
        let mut refused = Vec::new();
        let mut report = async |block: BlockId, result: Result<Got, BlockError>| match result {
            Err(BlockError::Refused { .. }) if several => {
                refused.push(block);
                Ok(())
            }
            result => self.report(client, &block, result, algorithm, tally).await,
        };
        match &self.out {
            Some(out) => {
                let out = out.clone();
                let file = move |block: &BlockId| {
                    Checksummed::new(FileSink::new(out.join(block.to_string())), algorithm)
                };
                let mut fetching = client.fetch_to(request, file).map_err(invalid)?;
                while let Some(Fetched { block, result }) = fetching.next().await {
                    let got =
                        |((path, length), checksum)| Got { path: Some(path), length, checksum };
                    report(block, result.map(got)).await?;
                }
            }
            None => {
                let sink = move |_: &BlockId| Checksummed::new(Discard::default(), algorithm);
                let mut fetching = client.fetch_to(request, sink).map_err(invalid)?;
                while let Some(Fetched { block, result }) = fetching.next().await {
                    let got = |(length, checksum)| Got { path: None, length, checksum };
                    report(block, result.map(got)).await?;
                }
            }
        }
        Ok(refused)
    }

    /// One line for a block.
    async fn report(
        &self,
        client: &ShuffleServiceClient,
        block: &BlockId,
        result: Result<Got, BlockError>,
        algorithm: Algorithm,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let verdict = match result {
            Ok(Got { path, length, checksum }) => {
                let checked = if self.verify {
                    self.check(client, block, algorithm, checksum).await
                } else {
                    Ok(String::new())
                };
                let path = path.map(|p| format!(" to {}", p.display())).unwrap_or_default();
                checked.map(|checked| format!("{}{path}{checked}", human::bytes(length)))
            }
            Err(error) => Err(error.to_string()),
        };
        tally.all += 1;
        print(&match verdict {
            Ok(good) => format!("ok      {block}  {good}\n"),
            Err(bad) => {
                tally.failed += 1;
                format!("FAILED  {block}  {}\n", human::name(&bad))
            }
        })
    }

    /// Compares the checksum of what arrived with what the executor wrote.
    async fn check(
        &self,
        client: &ShuffleServiceClient,
        block: &BlockId,
        algorithm: Algorithm,
        checksum: i64,
    ) -> Result<String, String> {
        let BlockId::Shuffle { shuffle, map, reduce } = *block else {
            return Ok(", no checksum is kept of this kind of block".to_owned());
        };
        let asked = DiagnoseCorruption {
            app_id: self.app.as_str().into(),
            exec_id: self.exec.as_str().into(),
            shuffle_id: shuffle,
            map_id: map,
            reduce_id: reduce,
            checksum,
            algorithm: algorithm.name().to_owned(),
        };
        match client.diagnose_corruption(asked).await.map_err(|error| error.to_string())? {
            CorruptionCause::ChecksumVerifyPass => Ok(format!(", {algorithm} matches")),
            CorruptionCause::DiskIssue => {
                Err("damaged on disk: its bytes are not those that were written".to_owned())
            }
            CorruptionCause::NetworkIssue => {
                Err("damaged on the way: the file is right, the bytes that came are not".to_owned())
            }
            CorruptionCause::UnknownIssue => Err(format!(
                "not verified: the service found no {algorithm} checksum file of its map output"
            )),
            CorruptionCause::UnsupportedChecksumAlgorithm => {
                Err(format!("not verified: the service does not know {algorithm}"))
            }
        }
    }
}
