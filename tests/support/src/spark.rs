//! Real Spark: its own shuffle services, its own clients, and whole applications.
//!
//! All of it comes from PyPI's pyspark, which `tests/run` puts into the tests' cache, and from the
//! programs in `tests/spark`. Every process started here is on 127.0.0.1 (but for the JVM services,
//! which know only all addresses) and ends when its value is dropped.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shuffle_protocol::HeartbeatTimeout;
use tempfile::TempDir;

use crate::fixture::FixtureExecutor;
use crate::process::wait_for;
use crate::raw::RawClient;

/// The last Spark that runs on Mesos.
pub const SPARK_3: &str = "3.5.9";
/// The newest Spark.
pub const SPARK_4: &str = "4.3.0";

/// How long a program may say nothing: Spark's longest pause is the start of a cluster, and all cores
/// may be busy.
const PATIENCE: Duration = Duration::from_secs(300);
/// Starts of a Mesos service until one has a cleaner.
const STARTS: usize = 8;
/// What is due is removed by then, if ever: many cleaner intervals of a second.
const CANARY_LIFE: Duration = Duration::from_secs(8);

/// One version of Spark in the cache.
#[derive(Debug, Clone)]
pub struct Spark {
    home: PathBuf,
    classes: PathBuf,
}

impl Spark {
    /// Finds that version.
    ///
    /// # Panics
    /// When it is not in the cache.
    #[must_use]
    pub fn locate(version: &str) -> Self {
        Self {
            home: path_said_by(&tests().join("pyspark-home"), &[version]),
            classes: path_said_by(&tests().join("java/build"), &[]),
        }
    }

    /// An executor of application `app` at a service, whose files are below `dir`.
    #[must_use]
    pub fn executor(&self, service: SocketAddr, app: &str, dir: &Path) -> ClientProgram {
        self.program("ExecutorBed", service, app).option("dir", &dir.to_string_lossy())
    }

    /// A Mesos driver of application `app` at a service.
    #[must_use]
    pub fn mesos_driver(
        &self,
        service: SocketAddr,
        app: &str,
        timeout: Duration,
        interval: Duration,
    ) -> ClientProgram {
        self.program("MesosDriverBed", service, app)
            .option("timeoutMs", &timeout.as_millis().to_string())
            .option("intervalMs", &interval.as_millis().to_string())
    }

    /// Starts an application on a cluster of its own, with its executors' directories below `dir`,
    /// which must be empty. `job` is what `tests/spark/bed.py` takes.
    #[must_use]
    pub fn application(&self, service: SocketAddr, dir: &Path, mut job: Value) -> Application {
        job["home"] = json!(self.home);
        job["dir"] = json!(dir);
        job["port"] = json!(service.port());
        let mut command = Command::new("python3");
        command.arg(tests().join("bed.py")).arg(job.to_string());
        Application { program: Program::start(command) }
    }

    fn program(&self, class: &str, service: SocketAddr, app: &str) -> ClientProgram {
        let mut command = self.java();
        command.arg(class);
        ClientProgram { command }
            .option("host", &service.ip().to_string())
            .option("port", &service.port().to_string())
            .option("app", app)
    }

    /// A JVM with this Spark and the bed's own classes, for seconds rather than hours.
    fn java(&self) -> Command {
        let mut command = Command::new("java");
        let path = format!("{}:{}/jars/*", self.classes.display(), self.home.display());
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g", "-cp", &path]);
        command.env("SPARK_LOCAL_IP", Ipv4Addr::LOCALHOST.to_string());
        command
    }
}

/// A Java program around one of Spark's own clients.
#[derive(Debug)]
pub struct ClientProgram {
    command: Command,
}

impl ClientProgram {
    /// One more option of the program.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.command.arg(format!("{name}={value}"));
        self
    }

    /// One setting of Spark's.
    #[must_use]
    pub fn conf(self, key: &str, value: &str) -> Self {
        self.option(&format!("conf.{key}"), value)
    }

    /// Runs these steps of an executor, separated by commas, and returns what was checked.
    #[must_use]
    pub fn run(self, steps: &str) -> Vec<Check> {
        let mut program = Program::start(self.option("steps", steps).command);
        let mut checks = Vec::new();
        loop {
            let line = program.next();
            if line["event"] == "done" {
                return checks;
            }
            checks.push(Check {
                name: text(&line["check"]),
                ok: line["ok"] == true,
                detail: text(&line["detail"]),
            });
        }
    }

    /// Starts a driver, which goes on until it is dropped.
    #[must_use]
    pub fn start(self) -> MesosDriver {
        MesosDriver { program: Program::start(self.command) }
    }
}

/// One thing that a client program looked at.
#[derive(Debug)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it was as it must be.
    pub ok: bool,
    /// What it was.
    pub detail: String,
}

/// A running Mesos driver.
#[derive(Debug)]
pub struct MesosDriver {
    program: Program,
}

impl MesosDriver {
    /// Waits until it says that this has happened: `registered`, or `connection closed`.
    pub fn wait_for(&mut self, event: &str) {
        let line = self.program.next();
        assert_eq!(line["event"], event, "{line}");
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.program.kill();
    }
}

/// A running application with its cluster.
#[derive(Debug)]
pub struct Application {
    program: Program,
}

impl Application {
    /// Waits until it pauses for this reason: `swapped`, when the executors that wrote the map outputs
    /// are gone, or `read`, when all has been read that they wrote.
    pub fn wait_for(&mut self, pause: &str) {
        let line = self.program.next();
        assert_eq!(line["event"], pause, "{line}");
    }

    /// Ends a pause.
    pub fn go_on(&mut self) {
        self.program.say("go");
    }

    /// Waits for its end.
    #[must_use]
    pub fn result(&mut self) -> JobResult {
        let line = self.program.next();
        assert_eq!(line["event"], "result", "{line}");
        self.program.wait();
        JobResult(line)
    }
}

impl Application {
    /// Waits for its end, whatever it pauses for.
    #[must_use]
    pub fn finish(&mut self) -> JobResult {
        loop {
            let line = self.program.next();
            if line["event"] == "result" {
                self.program.wait();
                return JobResult(line);
            }
            self.go_on();
        }
    }
}

/// How an application ended.
#[derive(Debug)]
pub struct JobResult(Value);

impl fmt::Display for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl JobResult {
    /// The checks that were not as they must be.
    ///
    /// # Panics
    /// When the job failed, or checked nothing.
    #[must_use]
    pub fn wrong(&self) -> Vec<&str> {
        let checks = self.0["checks"].as_object();
        let checks = checks.unwrap_or_else(|| panic!("the job failed: {self}"));
        assert!(!checks.is_empty(), "{self}");
        checks.iter().filter(|(_, ok)| **ok != true).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether it came to its end, with all checks as they must be.
    #[must_use]
    pub fn went_well(&self) -> bool {
        self.0["checks"].is_object() && self.wrong().is_empty()
    }

    /// A figure, such as `/after_swap/remote_bytes`.
    #[must_use]
    pub fn number(&self, pointer: &str) -> f64 {
        let number = self.0.pointer(pointer).and_then(Value::as_f64);
        number.unwrap_or_else(|| panic!("no {pointer} in {self}"))
    }
}

/// Which of Spark's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one that listens to drivers' heartbeats; 3.5 is the last that has it.
    Mesos,
    /// The one that workers run.
    Standalone,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Mesos => "org.apache.spark.deploy.mesos.MesosExternalShuffleService",
            Self::Standalone => "org.apache.spark.deploy.ExternalShuffleService",
        }
    }
}

/// Spark's own shuffle service as a process. Killed when dropped.
#[derive(Debug)]
pub struct JvmService {
    child: Child,
    /// Where it serves shuffle clients.
    pub shuffle: SocketAddr,
    work: TempDir,
}

impl JvmService {
    /// Starts that version's service and waits until it can be used.
    ///
    /// A Mesos service has a cleaner that works, every second: Spark's may run before the table that it
    /// goes through is there, and then never again.
    #[must_use]
    pub fn start(version: &str, kind: Kind, conf: &[(&str, &str)]) -> Self {
        let spark = Spark::locate(version);
        for _ in 0..STARTS {
            let service = Self::start_once(&spark, kind, conf);
            if kind == Kind::Standalone || service.cleans() {
                return service;
            }
        }
        panic!("{STARTS} Mesos services in a row had no cleaner");
    }

    /// Kills it with SIGKILL and starts another one in its place: with its directories, and on its port.
    pub fn kill_and_restart(&mut self, version: &str, kind: Kind, conf: &[(&str, &str)]) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
        let port = self.shuffle.port().to_string();
        let conf: Vec<_> =
            conf.iter().copied().chain([("spark.shuffle.service.port", port.as_str())]).collect();
        (self.child, self.shuffle) =
            Self::spawn(&Spark::locate(version), kind, &conf, self.work.path());
    }

    fn start_once(spark: &Spark, kind: Kind, conf: &[(&str, &str)]) -> Self {
        let work = TempDir::with_prefix("jvm-service-").expect("a temporary directory");
        fs::create_dir(work.path().join("disk")).expect("the temporary directory can be written");
        let (child, shuffle) = Self::spawn(spark, kind, conf, work.path());
        Self { child, shuffle, work }
    }

    fn spawn(spark: &Spark, kind: Kind, conf: &[(&str, &str)], work: &Path) -> (Child, SocketAddr) {
        let defaults = [
            ("spark.shuffle.service.enabled", "true"),
            ("spark.shuffle.service.port", "0"),
            ("spark.shuffle.cleaner.interval", "1s"),
        ];
        let mut command = spark.java();
        for (key, value) in defaults.iter().chain(conf) {
            command.arg(format!("-D{key}={value}")); // the last one counts
        }
        let log = work.join("log");
        let mut child = command
            .arg(kind.class())
            .env("SPARK_LOCAL_DIRS", work.join("disk"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .expect("java starts");
        let port: u16 = wait_for("the JVM service to listen", || {
            let ended = child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "the JVM service ended: {ended:?}");
            let log = fs::read_to_string(&log).expect("the log is text");
            let (_, said) = log.split_once("Shuffle server started on ")?;
            said.split_once('\n')?.0.trim_end().rsplit(' ').next()?.parse().ok()
        });
        (child, (Ipv4Addr::LOCALHOST, port).into())
    }

    /// A directory of its own. In 4.x it takes no executor that has directories elsewhere.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.work.path().join("disk")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.work.path().join("log")).expect("the log is text")
    }

    /// Whether an application whose driver is overdue gets removed.
    fn cleans(&self) -> bool {
        let at_once = HeartbeatTimeout::After(Duration::from_millis(1));
        let canary = FixtureExecutor::new("canary", "0", &[&self.root()]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut client = RawClient::connect(self.shuffle).await;
            client.rpc(canary.registration()).await.expect("an executor may register");
            client.rpc(canary.driver(at_once)).await.expect("a driver may register");
        });
        let start = Instant::now();
        while canary.local_dirs.iter().any(|dir| dir.exists()) {
            if start.elapsed() > CANARY_LIFE {
                return false;
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        true
    }
}

impl Drop for JvmService {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let mut output = std::io::stderr();
            let _ = writeln!(output, "--- log of the JVM service ---\n{}", self.log());
        }
    }
}

/// A program that says one JSON object a line. Killed when dropped, and when this process dies, which
/// ends its standard input.
#[derive(Debug)]
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    log: PathBuf,
    _work: TempDir,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let work = TempDir::with_prefix("spark-program-").expect("a temporary directory");
        let log = work.path().join("log");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a log file"))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Ok(value) = serde_json::from_str(&line) else { continue };
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Self { input: child.stdin.take(), child, lines, log, _work: work }
    }

    fn next(&mut self) -> Value {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(value) => value,
            Err(RecvTimeoutError::Timeout) => panic!("the program says nothing"),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the program ended: {:?}", self.child.wait())
            }
        }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open until the end");
        writeln!(input, "{line}").expect("the program reads");
    }

    /// Until it has cleared up, if it does.
    fn wait(&mut self) {
        wait_for("the program to end", || self.child.try_wait().expect("it is our child"));
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        self.kill();
        if thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "--- log of the program ---\n{log}");
        }
    }
}

/// `tests/spark`.
fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("spark")
}

fn path_said_by(script: &Path, args: &[&str]) -> PathBuf {
    let output = Command::new(script).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", script.display());
    String::from_utf8(output.stdout).expect("a path is text").trim_end().into()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}
