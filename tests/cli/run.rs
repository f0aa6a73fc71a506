//! The binary as a process, with a deadline over everything it does.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use shuffle_protocol::HeartbeatTimeout;
use test_support::fixture::FixtureExecutor;
use test_support::process::{ServiceCommand, ServiceProcess};
use test_support::raw::RawClient;

/// No process of these tests takes nearly as long.
const DEADLINE: Duration = Duration::from_secs(90);

/// Where the binary is.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_shuffled");

/// What a process said until its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        assert!(!self.err.contains("panicked"), "{self}");
        self
    }

    /// Checks that standard output contains these.
    #[track_caller]
    pub(crate) fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.out.contains(text), "no {text:?} in standard output\n{self}");
        }
        self
    }

    /// Checks that standard error contains these.
    #[track_caller]
    pub(crate) fn complains(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.err.contains(text), "no {text:?} in standard error\n{self}");
        }
        self
    }

    /// The line of standard output that begins with `start`.
    #[track_caller]
    pub(crate) fn line(&self, start: &str) -> &str {
        let line = self.out.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no line begins with {start:?}\n{self}"))
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, out, err } = self;
        write!(f, "exit code {code:?}\n--- out\n{out}--- err\n{err}---")
    }
}

/// The binary, without what the environment of the tests may have set for it.
pub(crate) fn shuffled(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let ours = name.to_str().is_some_and(|name| name.starts_with("SHUFFLED_"));
        if ours || name == "RUST_LOG" || name == "NO_COLOR" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Ended {
    Running::start(shuffled(args)).end()
}

/// A process whose lines are read as they come. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    out: String,
    err: Option<JoinHandle<String>>,
    deadline: Instant,
}

impl Running {
    /// Starts it.
    pub(crate) fn start(command: Command) -> Self {
        Self::start_read(command, true)
    }

    /// Starts it with a standard output whose reader is gone.
    pub(crate) fn start_unread(command: Command) -> Self {
        Self::start_read(command, false)
    }

    fn start_read(mut command: Command, read: bool) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("it is piped");
        let mut stderr = child.stderr.take().expect("it is piped");
        let (sender, lines) = channel();
        if read {
            spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // The test may have seen enough.
                    let _ = sender.send(line);
                }
            });
        } else {
            drop((stdout, sender));
        }
        let err = spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let deadline = Instant::now() + DEADLINE;
        Self { child, lines, out: String::new(), err: Some(err), deadline }
    }

    /// The next line of standard output that contains `text`.
    #[track_caller]
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            match self.next() {
                Some(line) if line.contains(text) => return line,
                Some(_) => {}
                None => panic!("it ended without {text:?}\n{}", self.finish()),
            }
        }
    }

    fn next(&mut self) -> Option<String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.out.push_str(&line);
                self.out.push('\n');
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                panic!("it has not ended by its deadline\n{}", self.finish());
            }
        }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success(), "the process is gone already");
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        while self.next().is_some() {}
        self.finish()
    }

    fn finish(&mut self) -> Ended {
        let code = self.child.wait().expect("it is our child").code();
        let err = self.err.take().map(|err| err.join().expect("reading does not panic"));
        Ended { code, out: std::mem::take(&mut self.out), err: err.unwrap_or_default() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address after `name=` in a ready line.
pub(crate) fn address(ready: &str, name: &str) -> SocketAddr {
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok());
    address.unwrap_or_else(|| panic!("no {name} in {ready:?}"))
}

/// A service that nobody has registered with yet.
pub(crate) fn service() -> ServiceProcess {
    ServiceCommand::new(BINARY).start()
}

/// A service that looks for expired applications every second, which is the least.
pub(crate) fn hasty_service() -> ServiceProcess {
    ServiceCommand::new(BINARY).conf("spark.shuffle.cleaner.interval", "1s").start()
}

/// An application with one executor and one map output (shuffle 0, map 3) of these partitions, whose
/// driver has this timeout.
pub(crate) async fn registered(
    service: &ServiceProcess,
    app: &str,
    partitions: &[Vec<u8>],
    timeout: HeartbeatTimeout,
) -> (RawClient, FixtureExecutor) {
    // An id may have what no directory's name may.
    let mut executor = FixtureExecutor::new(&app.replace('/', "_"), "1", &[&service.root()]);
    executor.app_id = app.into();
    executor.write_map_output(0, 3, partitions);
    let mut client = RawClient::connect(service.shuffle).await;
    client.rpc(executor.driver(timeout)).await.expect("the driver is registered");
    client.rpc(executor.registration()).await.expect("the executor is registered");
    (client, executor)
}
