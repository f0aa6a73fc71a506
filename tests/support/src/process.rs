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
    /// How it was started, for starting it again.
    command: Box<Command>,
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
        command.arg("serve").env_remove("RUST_LOG");
        let this = Self { command, work };
        let root = this.root();
        // A flag is over them, for starting it again where it was.
        this.conf("shuffled.listen", "127.0.0.1:0")
            .conf("shuffled.admin.listen", "127.0.0.1:0")
            .conf("shuffled.local.dirs", root.to_str().expect("temporary paths are UTF-8"))
    }

    /// One more `--conf key=value`.
    #[must_use]
    pub fn conf(mut self, key: &str, value: &str) -> Self {
        self.command.arg("--conf").arg(format!("{key}={value}"));
        self
    }

    /// With a state directory of its own.
    #[must_use]
    pub fn durable(self) -> Self {
        let state = self.work.path().join("state");
        self.conf("shuffled.state.dir", state.to_str().expect("temporary paths are UTF-8"))
    }

    /// Sweeps see no process at all, and are told that these are all: what the machine of the tests runs
    /// besides may be closed to the service.
    #[must_use]
    pub fn alone(self) -> Self {
        let proc = self.work.path().join("proc");
        fs::create_dir_all(proc.join("1")).expect("a temporary directory takes others");
        std::os::unix::fs::symlink("1", proc.join("self")).expect("and links");
        self.conf("shuffled.sweep.procfs", proc.to_str().expect("temporary paths are UTF-8"))
    }

    /// Run under a limit on open files.
    #[must_use]
    pub fn descriptor_limit(self, limit: u32) -> Self {
        let limited = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        self.wrapped("sh", &["-c", &limited])
    }

    /// Run as a user for whom file permissions count: `nobody` when the tests run as root.
    #[must_use]
    pub fn unprivileged(mut self) -> Self {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let me = fs::metadata("/proc/self").expect("there is /proc").uid();
        if me != 0 {
            return self;
        }
        // Where the build keeps the binary may be closed to that user.
        let binary = self.work.path().join("shuffled");
        fs::copy(self.command.get_program(), &binary).expect("the binary can be copied");
        for (path, mode) in [(self.work.path(), 0o755), (&self.root(), 0o777)] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, mode).expect("the directory is ours");
        }
        let mut command = Command::new(binary);
        command.args(self.command.get_args()).env_remove("RUST_LOG");
        self.command = command;
        self.wrapped("setpriv", &["--reuid=65534", "--regid=65534", "--clear-groups"])
    }

    /// The only directory below which it will serve and remove, unless configured otherwise.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.work.path().join("disk")
    }

    /// The same command as the last arguments of another one.
    fn wrapped(mut self, program: &str, args: &[&str]) -> Self {
        let mut outer = Command::new(program);
        outer.args(args).arg(self.command.get_program()).args(self.command.get_args());
        outer.env_remove("RUST_LOG");
        self.command = outer;
        self
    }

    /// Starts it and waits until it says that it is ready.
    #[must_use]
    pub fn start(mut self) -> ServiceProcess {
        let (child, shuffle, admin) = spawn(&mut self.command, self.work.path());
        ServiceProcess { child, shuffle, admin, work: self.work, command: Box::new(self.command) }
    }
}

fn spawn(command: &mut Command, work: &Path) -> (Child, SocketAddr, SocketAddr) {
    let log = File::options().create(true).append(true).open(work.join("log"));
    let log = log.expect("a log file");
    let mut child = command
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
        let log = fs::read_to_string(work.join("log")).unwrap_or_default();
        panic!("the service did not start: {line:?}\n{log}");
    };
    (child, shuffle, admin)
}

impl ServiceProcess {
    /// The only directory below which it serves and removes.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.work.path().join("disk")
    }

    /// Where its state survives a restart, if it was started with [`ServiceCommand::durable`].
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.work.path().join("state")
    }

    /// Kills it with SIGKILL, and starts it again as it was, on the same ports. The log goes on.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is our child");
        self.child.wait().expect("it is our child");
    }

    /// Asks it to stop and waits for its end, to be started again.
    pub fn stop_and_keep(&mut self) {
        self.ask_to_stop();
        self.child.wait().expect("it is our child");
    }

    /// Starts it again as it was, on the same ports, after its end. The log goes on.
    pub fn start_again(&mut self) {
        if !self.command.get_args().any(|arg| arg == "--listen") {
            let (listen, admin) = (self.shuffle.to_string(), self.admin.to_string());
            self.command.args(["--listen", &listen, "--admin", &admin]);
        }
        let (child, shuffle, admin) = spawn(&mut self.command, self.work.path());
        (self.child, self.shuffle, self.admin) = (child, shuffle, admin);
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

    /// Posts JSON to a path of its admin HTTP; status and body.
    #[must_use]
    pub fn admin_post(&self, path: &str, body: &str) -> (u16, String) {
        http(self.admin, "POST", path, body)
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
    http(server, "GET", path, "")
}

fn http(server: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(server).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
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
