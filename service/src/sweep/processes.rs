//! Which processes use a directory, as far as `/proc` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// What all processes have open, looked at once.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Paths by each of their components. Processes in containers see other paths to the same directory,
    /// but its name is a UUID.
    by_component: BTreeMap<String, BTreeSet<u32>>,
    /// Processes that may not be looked at, by their user id.
    closed: BTreeMap<u32, u32>,
    /// Other users' processes are not shown at all.
    hidden: bool,
    me: u32,
}

/// Who uses a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Users {
    Nobody,
    /// The ids of some processes.
    These(Vec<u32>),
    /// There are processes that could, and cannot be looked at.
    Unknown(String),
}

impl Processes {
    /// Looks at everything below `proc`. What ends meanwhile uses nothing any more.
    pub(super) fn look(proc: &Path) -> Self {
        let mut this = Self {
            hidden: !proc.join("1").exists(),
            me: rustix::process::geteuid().as_raw(),
            ..Self::default()
        };
        let own = std::process::id();
        let pids = fs::read_dir(proc).into_iter().flatten().flatten();
        for entry in pids {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = pid.filter(|pid| *pid != own) {
                this.look_at(pid, &entry.path());
            }
        }
        this
    }

    fn look_at(&mut self, pid: u32, process: &Path) {
        let open = match fs::read_dir(process.join("fd")) {
            Ok(open) => open,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                if let Ok(owner) = fs::metadata(process) {
                    self.closed.insert(owner.uid(), pid);
                }
                return;
            }
            Err(_) => return,
        };
        let links = open.flatten().map(|fd| fd.path());
        let links = links.chain(["cwd", "root", "exe"].map(|name| process.join(name)));
        for target in links.filter_map(|link| fs::read_link(link).ok()) {
            self.add(pid, &target);
        }
        // What is mapped may not be open any more.
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        for line in maps.split(|byte| *byte == b'\n') {
            if let Some(at) = line.iter().position(|byte| *byte == b'/') {
                self.add(pid, Path::new(String::from_utf8_lossy(&line[at..]).as_ref()));
            }
        }
    }

    fn add(&mut self, pid: u32, path: &Path) {
        for component in PathBuf::from(path).components() {
            if let Component::Normal(name) = component
                && let Some(name) = name.to_str()
                // Names without one are not looked for.
                && name.contains('-')
            {
                self.by_component.entry(name.to_owned()).or_default().insert(pid);
            }
        }
    }

    /// Who uses the directory with this name, which has a UUID in it or is a tombstone's.
    pub(super) fn of(&self, path: &str, name: &str, owner: u32) -> Users {
        if let Some(pids) = self.by_component.get(name) {
            return Users::These(pids.iter().copied().collect());
        }
        // The owner's processes could, and root's; whoever else would need the group.
        let closed = [owner, 0].into_iter().find_map(|uid| Some((uid, self.closed.get(&uid)?)));
        match closed {
            Some((uid, pid)) => Users::Unknown(format!(
                "process {pid} of user {uid} may use {path}, and this service may not look at it \
                 (CAP_SYS_PTRACE)"
            )),
            None if self.hidden && owner != self.me => Users::Unknown(format!(
                "processes of user {owner} may use {path}, and this service is not shown them \
                 (ProtectProc, hidepid)"
            )),
            None => Users::Nobody,
        }
    }
}
