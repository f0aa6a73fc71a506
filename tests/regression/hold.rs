//! Disks that fail or hang, without hardware: see `hold.py`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = include_str!("hold.py");

/// While it lives, files cannot be opened as usual. The test must not open them either.
#[derive(Debug)]
pub(crate) struct Hold(Child);

impl Hold {
    /// Opening `file` without waiting fails. `None` where that cannot be arranged.
    pub(crate) fn lease(file: &Path) -> Option<Self> {
        Self::start("lease", &[file])
    }

    /// Opening anything in these directories hangs. `None` where that cannot be arranged: it takes
    /// privileges.
    pub(crate) fn stuck(dirs: &[&Path]) -> Option<Self> {
        Self::start("stuck", dirs)
    }

    fn start(mode: &str, paths: &[&Path]) -> Option<Self> {
        let child = Command::new("python3")
            .args(["-c", SCRIPT, mode])
            .args(paths)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut hold = Self(child.ok()?);
        let stdout = hold.0.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("standard output is text");
        (line == "ready\n").then_some(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
