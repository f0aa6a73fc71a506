//! The `shuffled` binary: one file per subcommand.

mod admin_client;
mod app;
mod apps;
mod check_config;
mod demo;
mod driver;
mod explain;
mod fetch;
mod human;
mod log;
mod output;
mod serve;
mod settings;
mod sweep;
mod table;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::output::ReaderGone;
use crate::settings::WrongUsage;

/// External shuffle service for Apache Spark, on Mesos and anywhere else.
///
/// Runs beside every agent, serves the shuffle files of executors that are gone, and removes an
/// application's directories when its driver's heartbeats stop, and only then.
#[derive(Debug, Parser)]
#[command(name = "shuffled", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Apps(apps::Apps),
    App(app::App),
    Explain(explain::Explain),
    Sweep(sweep::Sweep),
    Driver(driver::Driver),
    Fetch(fetch::Fetch),
    CheckConfig(check_config::CheckConfig),
    Demo(demo::Demo),
}

fn main() -> ExitCode {
    let cli = parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&anyhow::Error::from(error).context("cannot start threads")),
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Serve(command) => command.run().await,
            Command::Apps(command) => command.run().await,
            Command::App(command) => command.run().await,
            Command::Explain(command) => command.run().await,
            Command::Sweep(command) => command.run().await,
            Command::Driver(command) => command.run().await,
            Command::Fetch(command) => command.run().await,
            Command::CheckConfig(command) => command.run(),
            Command::Demo(command) => command.run().await,
        }
    });
    // A thread that is stuck on a disk must not keep the process from ending.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

/// Reads the command line; where that is wrong, or asks for help, the process ends here.
fn parse() -> Cli {
    let matches = with_exit_codes(Cli::command()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The help of every command ends with them.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    command.after_help(EXIT_CODES).mut_subcommands(with_exit_codes)
}

/// One line for an error and its causes, and the exit code that goes with it.
fn report(error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many an error has its cause in its own text.
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    #[expect(clippy::print_stderr, reason = "this is where errors of a command line tool go")]
    {
        eprintln!("shuffled: {text}");
    }
    if error.is::<WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}
