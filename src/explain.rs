//! `shuffled explain`: why is it here, why did it go, why did this fetch fail.

use clap::{Args, ValueEnum};
use shuffled_service::admin::Explanation;

use crate::admin_client::{AdminArgs, segment};
use crate::human;
use crate::output::print;

/// Explain why an application is here, why it went, why a fetch fails
///
/// Ask the service of the agent on which the executor ran. The first word is the verdict: registered,
/// not-registered, never-seen, expired, maybe-lost (the store was damaged, or there is none), readable,
/// or what is wrong with the block: file-missing, permission, bad-file, disk, bad-request.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    admin: AdminArgs,

    /// The application's id; under Mesos the framework id
    #[arg(value_name = "APP")]
    app: String,

    /// One of its executors
    #[arg(value_name = "EXEC")]
    exec: Option<String>,

    /// One of that one's blocks, such as shuffle_0_5_3 or rdd_1_2
    #[arg(value_name = "BLOCK", requires = "exec")]
    block: Option<String>,

    /// Print it otherwise than for people
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// JSON
    Json,
}

impl Explain {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let mut path = format!("/v1/explain/{}", segment(&self.app));
        for (sign, name, value) in [('?', "exec", &self.exec), ('&', "block", &self.block)] {
            if let Some(value) = value {
                path.push_str(&format!("{sign}{name}={}", segment(value)));
            }
        }
        let why: Explanation = self.admin.admin.get_slow(&path).await?;
        print(&match self.output {
            Some(Format::Json) => serde_json::to_string_pretty(&why)? + "\n",
            None => {
                let findings = why.findings.iter().map(|line| human::name(line) + "\n");
                format!("{}\n{}", why.verdict, findings.collect::<String>())
            }
        })
    }
}
