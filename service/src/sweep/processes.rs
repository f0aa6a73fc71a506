//! Which processes use a directory, as far as `/proc` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// What all processes have open, looked at once.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Paths by each of their components. Processes in containers see other paths to the same directory,
    /// but its name is a UUID.
    by_component: BTreeMap<String, BTreeSet<u32>>,
    /// Processes that could not be looked at, or not at all of what they have, by their user id.
    closed: BTreeMap<u32, Closed>,
    /// Mount namespaces whose mounts are known.
    namespaces: BTreeSet<PathBuf>,
    /// Other users' processes are not shown at all, nor root's if this is not root's.
    hidden: bool,
    /// Why no process is shown, or not each one.
    blind: Option<String>,
}

/// A process that could not be looked at.
#[derive(Debug)]
struct Closed {
    pid: u32,
    why: io::Error,
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
    /// Looks at `/proc`, which has to show all processes of the machine: those of other PID namespaces are
    /// only seen from the initial one.
    pub(super) fn look_here() -> Self {
        let proc = Path::new("/proc");
        let mut this = Self::look(proc);
        if let Some(why) = only_its_own(fs::read_link(proc.join("self/ns/pid"))) {
            this.blind.get_or_insert(why);
        }
        this
    }

    /// Looks at everything below `proc`. What ends meanwhile uses nothing any more.
    pub(super) fn look(proc: &Path) -> Self {
        let mut this = Self { hidden: !proc.join("1").exists(), ..Self::default() };
        // Where nothing is mounted on it, there are no processes to see, and each would be missed.
        if let Err(error) = this.look_at_all(proc) {
            this.blind = Some(format!("{} cannot be read: {error}", proc.display()));
        }
        this
    }

    fn look_at_all(&mut self, proc: &Path) -> io::Result<()> {
        fs::read_link(proc.join("self"))?;
        for entry in fs::read_dir(proc)? {
            let entry = entry?;
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                self.look_at(pid, &entry.path());
            }
        }
        Ok(())
    }

    fn look_at(&mut self, pid: u32, process: &Path) {
        // Whose a process is that cannot even be asked for it is not known, which root's may stand for.
        let uid = match fs::metadata(process) {
            Ok(metadata) => metadata.uid(),
            Err(error) if has_ended(&error) => return,
            Err(_) => 0,
        };
        let seen = self.look_into(pid, process);
        self.note(pid, uid, seen);
    }

    fn look_into(&mut self, pid: u32, process: &Path) -> io::Result<()> {
        for fd in fs::read_dir(process.join("fd"))? {
            self.add_link(pid, &fd?.path())?;
        }
        for name in ["cwd", "root", "exe"] {
            self.add_link(pid, &process.join(name))?;
        }
        // What is mapped may not be open any more.
        for line in fs::read(process.join("maps"))?.split(|byte| *byte == b'\n') {
            if let Some(at) = line.iter().position(|byte| *byte == b'/') {
                self.add(pid, Path::new(OsStr::from_bytes(&line[at..])));
            }
        }
        self.look_at_mounts(pid, process)
    }

    fn add_link(&mut self, pid: u32, link: &Path) -> io::Result<()> {
        match fs::read_link(link) {
            Ok(target) => self.add(pid, &target),
            // It was closed meanwhile, or there is none: the kernel's own processes have no `exe`.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // To list the descriptors takes the same user, to read them all its capabilities, too.
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A container may have the directory itself under a name of its own, which its processes' links then
    /// show. It is in use as long as it is mounted; one process of the namespace is named for it.
    fn look_at_mounts(&mut self, pid: u32, process: &Path) -> io::Result<()> {
        let namespace = fs::read_link(process.join("ns/mnt"))?;
        if self.namespaces.contains(&namespace) {
            return Ok(());
        }
        let mounts = match fs::read(process.join("mountinfo")) {
            // It ended and was not waited for, so it has none.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
            mounts => mounts?,
        };
        for line in mounts.split(|byte| *byte == b'\n') {
            if let Some(mounted) = mounted(line) {
                self.add(pid, mounted);
            }
        }
        self.namespaces.insert(namespace);
        Ok(())
    }

    pub(super) fn note(&mut self, pid: u32, uid: u32, seen: io::Result<()>) {
        match seen {
            Ok(()) => {}
            Err(error) if has_ended(&error) => {}
            Err(why) => {
                self.closed.entry(uid).or_insert(Closed { pid, why });
            }
        }
    }

    fn add(&mut self, pid: u32, path: &Path) {
        for component in path.components() {
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
        if let Some(why) = &self.blind {
            return Users::Unknown(format!("processes may use {path}: {why}"));
        }
        // The owner's processes could, and root's; whoever else would need the group.
        let closed = [owner, 0].into_iter().find_map(|uid| Some((uid, self.closed.get(&uid)?)));
        match closed {
            Some((uid, Closed { pid, why })) => Users::Unknown(format!(
                "process {pid} of user {uid} may use {path}, and this service cannot look at it: {why}{}",
                if why.kind() == ErrorKind::PermissionDenied { " (CAP_SYS_PTRACE)" } else { "" }
            )),
            None if self.hidden => Users::Unknown(format!(
                "other users' processes may use {path}, and this service is not shown them \
                 (ProtectProc, hidepid)"
            )),
            None => Users::Nobody,
        }
    }
}

/// Whether a process ended while it was looked at.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

/// What of its file system a line of `mountinfo` mounts: the fourth field.
fn mounted(line: &[u8]) -> Option<&Path> {
    let field = line.split(|byte| *byte == b' ').nth(3)?;
    Some(Path::new(OsStr::from_bytes(field)))
}

/// Why processes are missing, if the service's own PID namespace is not the initial one.
pub(super) fn only_its_own(namespace: io::Result<PathBuf>) -> Option<String> {
    /// `PROC_PID_INIT_INO` of Linux, the same on each machine.
    const INITIAL: &str = "pid:[4026531836]";
    match namespace {
        Ok(namespace) if namespace == Path::new(INITIAL) => None,
        Ok(_) => Some(
            "the service sees only the processes of its own container; set shuffled.sweep.procfs to where \
             the host's /proc is mounted"
                .to_owned(),
        ),
        Err(error) => Some(format!("the service cannot tell its PID namespace: {error}")),
    }
}
