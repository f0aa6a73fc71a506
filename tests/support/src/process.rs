//! The `shuffled` binary as a process of its own.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A test that waits longer for anything has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `shuffled serve`. Killed when dropped.
#[derive(Debug)]
pub struct ServiceProcess {
    child: Child,
    /// Where it serves shuffle clients.
    pub shuffle: SocketAddr,
    /// Its admin HTTP.
    pub admin: SocketAddr,
    work: TempDir,
}

/// How to start one.
#[derive(Debug)]
pub struct ServiceCommand {
    command: Command,
    work: TempDir,
}

impl ServiceCommand {
    /// `binary serve` on free ports of 127.0.0.1, with a directory of its own as its only root.
    #[must_use]
    pub fn new(binary: impl AsRef<Path>) -> Self {
        let work = TempDir::with_prefix("shuffled-test-").expect("a temporary directory");
        fs::create_dir(work.path().join("disk")).expect("the temporary directory can be written");
        let mut command = Command::new(binary.as_ref());
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .env_remove("RUST_LOG");
        let this = Self { command, work };
        let root = this.work.path().join("disk");
        this.conf("shuffled.local.dirs", root.to_str().expect("temporary paths are UTF-8"))
    }

    /// One more `--conf key=value`.
    #[must_use]
    pub fn conf(mut self, key: &str, value: &str) -> Self {
        self.command.arg("--conf").arg(format!("{key}={value}"));
        self
    }

    /// Run under a limit on open files.
    #[must_use]
    pub fn descriptor_limit(mut self, limit: u32) -> Self {
        let binary = self.command.get_program().to_owned();
        let args: Vec<_> = self.command.get_args().map(ToOwned::to_owned).collect();
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\"")).arg(binary);
        limited.args(args);
        self.command = limited;
        self
    }

    /// Starts it and waits until it says that it is ready.
    #[must_use]
    pub fn start(mut self) -> ServiceProcess {
        let log = File::create(self.work.path().join("log")).expect("a log file");
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("standard output is text");
        let address = |name: &str| -> Option<SocketAddr> {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok())
        };
        let (Some(shuffle), Some(admin)) = (address("shuffle="), address("admin=")) else {
            let _ = child.kill();
            let log = fs::read_to_string(self.work.path().join("log")).unwrap_or_default();
            panic!("the service did not start: {line:?}\n{log}");
        };
        ServiceProcess { child, shuffle, admin, work: self.work }
    }
}

impl ServiceProcess {
    /// The only directory below which it serves and removes.
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

    /// The lines of its log that contain `text`.
    #[must_use]
    pub fn log_lines(&self, text: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    /// The body at `path` of its admin HTTP.
    #[must_use]
    pub fn admin_get(&self, path: &str) -> String {
        http_get(self.admin, path).1
    }

    /// The value of a series on its `/metrics`, labels and all; 0 when there is none yet.
    #[must_use]
    pub fn metric(&self, series: &str) -> f64 {
        let page = self.admin_get("/metrics");
        page.lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
            .unwrap_or(0.0)
    }

    /// Its resident memory in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("has a size");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    /// Asks it to stop and waits for its end.
    pub fn stop(self) -> std::process::ExitStatus {
        self.ask_to_stop();
        self.wait()
    }

    /// Asks it to stop.
    pub fn ask_to_stop(&self) {
        let pid = self.pid().to_string();
        let killed = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(killed.success(), "the service was gone already");
    }

    /// Waits for its end.
    pub fn wait(mut self) -> std::process::ExitStatus {
        self.child.wait().expect("it is our child")
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut output = std::io::stderr();
            let _ = writeln!(output, "--- log of the service ---\n{}", self.log());
        }
    }
}

/// Status and body at `path` of an HTTP server.
#[must_use]
pub fn http_get(server: SocketAddr, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(server).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n")
        .expect("the server takes a request");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("the server answers with text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer has a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// Waits until `check` gives something.
///
/// # Panics
/// When it gives nothing for a minute; says what it waited for.
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        #[expect(clippy::disallowed_methods, reason = "between two looks at another process")]
        std::thread::sleep(Duration::from_millis(20));
    }
}
