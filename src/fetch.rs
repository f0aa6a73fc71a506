//! `shuffled fetch`: reads blocks from a service.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use shuffle_protocol::block_id::BlockId;
use shuffle_protocol::checksum::{Algorithm, CorruptionCause};
use shuffle_protocol::message::DiagnoseCorruption;
use shuffled_client::{
    Checksummed, Discard, FetchRequest, Fetched, FileSink, ServerAddr, ShuffleServiceClient,
};

use crate::apps::print;
use crate::human;
use crate::settings::{ConfigArgs, WrongUsage};

/// Read blocks of an executor from a service, to files or to check them
#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// The shuffle service
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7337")]
    server: ServerAddr,

    /// The application's id
    #[arg(long, value_name = "ID")]
    app: String,

    /// The executor that wrote the blocks
    #[arg(long, value_name = "ID")]
    exec: String,

    /// Write each block to a file of its name in DIR, which is created
    #[arg(long, value_name = "DIR", required_unless_present = "verify")]
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

/// What became of a block: where it was written if it was, its length and its checksum.
type Got = (Option<PathBuf>, u64, i64);

impl Fetch {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let settings = crate::settings::client(&self.config.read())?;
        let wrong = |error: String| anyhow::Error::from(WrongUsage(error));
        let algorithm: Algorithm = self.algorithm.parse().map_err(|_| {
            wrong(format!("--algorithm {}: use ADLER32, CRC32 or CRC32C", self.algorithm))
        })?;
        let blocks = self
            .blocks
            .iter()
            .map(|text| text.parse().map_err(|error| wrong(format!("{error}"))))
            .collect::<anyhow::Result<Vec<BlockId>>>()?;
        if let Some(out) = &self.out {
            tokio::fs::create_dir_all(out)
                .await
                .with_context(|| format!("cannot create {}", out.display()))?;
        }
        let client = ShuffleServiceClient::new(
            self.server.clone(),
            crate::settings::client_options(&settings),
        );
        let request = FetchRequest {
            app_id: self.app.as_str().into(),
            exec_id: self.exec.as_str().into(),
            blocks: blocks.clone(),
        };
        let results = fetch(&client, request, self.out.as_deref(), algorithm)
            .await
            .map_err(|error| wrong(error.to_string()))?;
        let mut failed = 0;
        for Fetched { block, result } in results {
            let verdict = match result {
                Ok((path, length, checksum)) => {
                    let checked = if self.verify {
                        self.check(&client, &block, algorithm, checksum).await
                    } else {
                        Ok(String::new())
                    };
                    let path = path.map(|p| format!(" to {}", p.display())).unwrap_or_default();
                    checked.map(|checked| format!("{}{path}{checked}", human::bytes(length)))
                }
                Err(error) => Err(error.to_string()),
            };
            let line = match verdict {
                Ok(good) => format!("ok      {block}  {good}\n"),
                Err(bad) => {
                    failed += 1;
                    format!("FAILED  {block}  {bad}\n")
                }
            };
            print(&line)?;
        }
        if failed > 0 {
            bail!("{failed} of {} blocks failed", blocks.len());
        }
        Ok(())
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

async fn fetch(
    client: &ShuffleServiceClient,
    request: FetchRequest,
    out: Option<&Path>,
    algorithm: Algorithm,
) -> Result<Vec<Fetched<Got>>, shuffled_client::InvalidFetch> {
    Ok(match out {
        Some(out) => {
            let out = out.to_owned();
            let file = move |block: &BlockId| {
                Checksummed::new(FileSink::new(out.join(block.to_string())), algorithm)
            };
            let all = client.fetch_to(request, file)?.all().await;
            all.into_iter()
                .map(|fetched| Fetched {
                    block: fetched.block,
                    result: fetched.result.map(|((path, length), sum)| (Some(path), length, sum)),
                })
                .collect()
        }
        None => {
            let sink = move |_: &BlockId| Checksummed::new(Discard::default(), algorithm);
            let all = client.fetch_to(request, sink)?.all().await;
            all.into_iter()
                .map(|fetched| Fetched {
                    block: fetched.block,
                    result: fetched.result.map(|(length, sum)| (None, length, sum)),
                })
                .collect()
        }
    })
}
