//! The service put together: sockets, connections, background tasks, and their end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::admin::Admin;
use crate::apps::{AppRegistry, LoadReport};
use crate::blocks::Blocks;
use crate::cleaner::Cleaner;
use crate::config::ServiceConfig;
use crate::connection::{Environment, Unauthenticated};
use crate::dirs::{LocalRoots, RootError};
use crate::disk::{CALLS_PER_DISK, Disks};
use crate::inspector::Inspector;
use crate::liveness::Rules;
use crate::log_limit::LogLimit;
use crate::metrics::Metrics;
use crate::reaper::{self, Reaper, ReaperTask};
use crate::session::Shared;
use crate::state::{self, State};
use crate::store::StoreError;
use crate::streams::{StreamIds, StreamLimits};
use crate::supervise::supervise;
use crate::sweeper::{Schedule, Sweeper};

/// Memory for what the open streams of one connection ask for.
const STREAM_BYTES: usize = 64 << 20;

/// What the system is asked for where `spark.shuffle.io.backLog` leaves it to the system, which caps it
/// by `net.core.somaxconn`.
const DEFAULT_BACKLOG: u32 = 4096;

/// Descriptors of one connection: its socket, and the file that it is sending.
const DESCRIPTORS_PER_CONNECTION: u64 = 2;
/// One more while a block is being looked up, for its index file. So many look-ups go on at once as
/// there are connections, and as the disks allow.
const DESCRIPTORS_PER_LOOKUP: u64 = 1;
/// Descriptors for everything else: admin HTTP (`admin::MAX_CONNECTIONS`), listeners, roots, the
/// removal of one directory a disk.
const DESCRIPTORS_RESERVED: u64 = 80;

/// Why the service does not start. All of them are the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory of `shuffled.local.dirs` cannot be used.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A port cannot be had.
    #[error("cannot listen on {address} for {what}: {source}{}", advice(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// `shuffle clients` or `admin HTTP`.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The limit on open files leaves no room for a connection.
    #[error("the limit on open files is {limit}, and at least {needed} are needed (ulimit -n)")]
    Descriptors {
        /// `RLIMIT_NOFILE`, after raising it as far as allowed.
        limit: u64,
        /// Room for one connection.
        needed: u64,
    },
}

/// What to do about a port that cannot be had.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there (`ss -ltnp` names it), perhaps Spark's own shuffle service"
        }
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

/// A service that listens, and serves when it is [`run`](Server::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    admin: Option<TcpListener>,
    addresses: Addresses,
    env: Arc<Environment>,
    cleaner: Arc<Cleaner>,
    reaper_task: Arc<ReaperTask>,
    sweeper: Arc<Sweeper>,
    state: State,
    max_connections: usize,
    config: ServiceConfig,
}

/// Where a service listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// For shuffle clients.
    pub shuffle: SocketAddr,
    /// For admin HTTP.
    pub admin: Option<SocketAddr>,
}

impl Server {
    /// Opens the roots and the state directory, registers again what an earlier run left, and opens the
    /// ports. A port of 0 is any free one.
    pub async fn bind(config: ServiceConfig) -> Result<Self, StartError> {
        let roots = Arc::new(if config.local_dirs.is_empty() {
            warn!(
                "No shuffled.local.dirs configured: only directories named blockmgr-* are served and \
                 removed, wherever they are; set it to the spark.local.dir of this machine's executors"
            );
            LocalRoots::unrestricted()?
        } else {
            LocalRoots::open(&config.local_dirs)?
        });
        let disks = if roots.is_restricted() { Some(roots.paths().count()) } else { None };
        let max_connections = max_connections(raise_descriptor_limit(), disks)?;

        let metrics = Arc::new(Metrics::default());
        let disks = Arc::new(Disks::default());
        let (state, left) = State::open(config.state_dir.as_deref(), metrics.clone())?;
        let registry = Arc::new(AppRegistry::new(rules(&config), state.journal().clone()));
        let inspector = Arc::new(Inspector {
            registry: registry.clone(),
            roots: roots.clone(),
            disks: disks.clone(),
            metrics: metrics.clone(),
        });
        // Before the port is open: whoever gets an answer gets it from all that is known.
        let lost = inspector.find_lost(&left).await;
        let now = tokio::time::Instant::now().into_std();
        let loaded = registry.load(left, &lost, &roots, now, state::wall_now());
        if loaded != LoadReport::default() {
            info!(
                apps = loaded.apps,
                executors = loaded.executors,
                dropped = loaded.dropped,
                removals = loaded.removals,
                "Reloading registered executors; every application has a full timeout again"
            );
        }

        let listener = listen(&config, config.listen, "shuffle clients")?;
        let admin = config
            .admin_listen
            .map(|address| listen(&config, address, "admin HTTP"))
            .transpose()?;
        let local = |listener: &TcpListener, address, what| {
            listener.local_addr().map_err(|source| StartError::Listen { address, what, source })
        };
        let addresses = Addresses {
            shuffle: local(&listener, config.listen, "shuffle clients")?,
            admin: match (&admin, config.admin_listen) {
                (Some(admin), Some(address)) => Some(local(admin, address, "admin HTTP")?),
                _ => None,
            },
        };

        let blocks = Arc::new(Blocks::new(
            registry.clone(),
            roots.clone(),
            disks.clone(),
            metrics.clone(),
            config.index_cache_size,
        ));
        let (reaper, reaper_task) = Reaper::new(reaper::Work {
            registry: registry.clone(),
            roots: roots.clone(),
            disks: disks.clone(),
            metrics: metrics.clone(),
            grace: config.cleanup_grace,
        });
        let sweeper = Arc::new(Sweeper {
            registry: registry.clone(),
            roots: roots.clone(),
            reaper: reaper.clone(),
            older_than: config.sweep_older_than,
            procfs: config.sweep_procfs.clone(),
            one_at_a_time: tokio::sync::Mutex::new(()),
        });
        let (expired, expiries) = watch::channel(());
        let shared = Arc::new(Shared {
            registry: registry.clone(),
            roots,
            metrics: metrics.clone(),
            stream_ids: Arc::new(StreamIds::new(fastrand::u64(..))),
            stream_limits: StreamLimits {
                streams: config.max_streams,
                bytes: STREAM_BYTES,
                idle: config.stream_idle_timeout,
            },
            max_chunks_in_transfer: config
                .max_chunks_being_transferred
                .map_or(i64::MAX, |chunks| i64::try_from(chunks).unwrap_or(i64::MAX)),
            peer_log: LogLimit::new(Shared::LOG_EVERY),
            app_log: LogLimit::new(Shared::LOG_EVERY),
        });
        let env = Arc::new(Environment {
            shared,
            blocks: blocks.clone(),
            journal: state.journal().clone(),
            inspector,
            frame_limit: config.frame_max_size,
            idle: config.connection_timeout,
            expiries,
            draining: CancellationToken::new(),
        });
        let cleaner = Arc::new(Cleaner { registry, blocks, reaper, expiries: expired, metrics });
        Ok(Self {
            listener,
            admin,
            addresses,
            env,
            cleaner,
            reaper_task,
            sweeper,
            state,
            max_connections,
            config,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `stop`; then takes no more connections, sends what was asked for, for as long as
    /// `shuffled.drain.timeout` allows, and returns. Files are left alone: another start finds them.
    pub async fn run(self, stop: CancellationToken) {
        let metrics = self.env.shared.metrics.clone();
        let (cleaner, period) = (self.cleaner.clone(), self.config.cleaner_interval);
        let cleaning = supervise("cleaner", metrics.clone(), move || {
            let cleaner = cleaner.clone();
            async move { cleaner.run(period).await }
        });
        let mut background = Vec::new();
        let reaper = self.reaper_task.clone();
        background.push(supervise("reaper", metrics.clone(), move || {
            let reaper = reaper.clone();
            async move { reaper.run().await }
        }));
        let (inspector, cleaner) = (self.env.inspector.clone(), self.cleaner.clone());
        background.push(supervise("inspector", metrics.clone(), move || {
            let (inspector, cleaner) = (inspector.clone(), cleaner.clone());
            async move { inspector.run(&cleaner).await }
        }));
        let schedule = Schedule {
            at_start: self.config.sweep_at_start,
            every: self.config.sweep_interval,
            remove: self.config.sweep_remove,
        };
        let sweeper = self.sweeper.clone();
        background.push(supervise("sweeper", metrics.clone(), move || {
            let sweeper = sweeper.clone();
            async move { sweeper.run(schedule).await }
        }));
        if let Some(listener) = self.admin {
            let admin = Admin {
                env: self.env.clone(),
                cleaner: self.cleaner.clone(),
                sweeper: self.sweeper.clone(),
                status: self.state.status().clone(),
            };
            let shared = Arc::new((admin, listener));
            background.push(supervise("admin", metrics.clone(), move || {
                let shared = shared.clone();
                async move { shared.0.serve(&shared.1).await }
            }));
        }
        info!(
            address = %self.addresses.shuffle,
            admin = self.addresses.admin.map(tracing::field::display),
            max_connections = self.max_connections,
            version = env!("CARGO_PKG_VERSION"),
            local_dirs = ?self.env.shared.roots.paths().collect::<Vec<_>>(),
            state_dir = self.config.state_dir.as_deref().map(|dir| tracing::field::display(dir.display())),
            cleanup = self.config.cleanup.as_str(),
            "Starting shuffle service (auth enabled = false)"
        );

        let connections = TaskTracker::new();
        let cut = CancellationToken::new();
        let cut_at_the_end = cut.clone().drop_guard();
        tokio::select! {
            () = accept(&self.listener, &self.env, &connections, &cut, self.max_connections) => {}
            () = stop.cancelled() => {}
        }
        info!("Shutting down shuffle service.");
        // Heartbeats are not heard from now on, so their absence says nothing.
        cleaning.abort();
        drop(self.listener);
        self.env.draining.cancel();
        connections.close();
        if tokio::time::timeout(self.config.drain_timeout, connections.wait()).await.is_err() {
            warn!(
                connections = connections.len(),
                "Closing connections that are still busy after shuffled.drain.timeout"
            );
        }
        for task in background {
            task.abort();
        }
        drop(cut_at_the_end);
        self.state.close().await;
    }
}

/// The rules of the registry as configured.
fn rules(config: &ServiceConfig) -> Rules {
    Rules {
        orphan_ttl: config.orphan_ttl,
        max_deferral: config.cleanup_max_deferral,
        min_timeout: config.min_timeout,
        max_timeout: config.max_timeout,
        cleanup: config.cleanup,
    }
}

/// Accepts for ever. At the limit, connections wait in the listener's backlog. They end with `cut`.
async fn accept(
    listener: &TcpListener,
    env: &Arc<Environment>,
    connections: &TaskTracker,
    cut: &CancellationToken,
    limit: usize,
) {
    let room = Arc::new(Semaphore::new(limit));
    let full_log = LogLimit::new(Shared::LOG_EVERY);
    loop {
        let permit = match room.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if let Some(silenced) = full_log.allow((), tokio::time::Instant::now().into_std()) {
                    warn!(
                        limit,
                        silenced,
                        "As many connections as the limit on open files allows; others wait"
                    );
                }
                room.clone().acquire_owned().await.expect("the semaphore is never closed")
            }
        };
        match listener.accept().await {
            Ok((socket, peer)) => {
                let connection = Unauthenticated::new(socket, peer).admit_anyone();
                let (env, cut) = (env.clone(), cut.clone());
                connections.spawn(async move {
                    cut.run_until_cancelled(connection.serve(env)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Of the system (no memory, no descriptor) or of a connection that is gone again;
                // either passes, and a pause keeps the log readable until it does.
                warn!(%error, "Cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn listen(
    config: &ServiceConfig,
    address: SocketAddr,
    what: &'static str,
) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        // Accepted sockets have what the listener has.
        socket.set_keepalive(config.tcp_keep_alive)?;
        if let Some(bytes) = config.receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = config.send_buffer {
            socket.set_send_buffer_size(bytes)?;
        }
        socket.bind(address)?;
        socket.listen(config.back_log.unwrap_or(DEFAULT_BACKLOG))
    };
    open().map_err(|source| StartError::Listen { address, what, source })
}

/// Raises the limit on open files as far as this process may, and returns it.
fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "Cannot raise the limit on open files");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many connections `limit` open files are good for, with this many disks if that is known. A
/// connection in excess waits to be accepted; one that is accepted never lacks a descriptor for its
/// next block.
fn max_connections(limit: u64, disks: Option<usize>) -> Result<usize, StartError> {
    let each = DESCRIPTORS_PER_CONNECTION + DESCRIPTORS_PER_LOOKUP;
    let free = limit.saturating_sub(DESCRIPTORS_RESERVED);
    let all_look_up = free / each;
    let disks_are_busy = disks.map_or(0, |disks| {
        let lookups = (disks as u64).saturating_mul(CALLS_PER_DISK as u64);
        let busy = lookups.saturating_mul(DESCRIPTORS_PER_LOOKUP);
        free.saturating_sub(busy) / DESCRIPTORS_PER_CONNECTION
    });
    match all_look_up.max(disks_are_busy) {
        0 => Err(StartError::Descriptors { limit, needed: DESCRIPTORS_RESERVED + each }),
        connections => {
            Ok(usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shuffle_protocol::frame::{Frame, StreamChunkId};
    use shuffle_protocol::message::OpenBlocks;
    use tempfile::TempDir;
    use test_support::fixture::FixtureExecutor;
    use test_support::raw::RawClient;

    use super::*;
    use crate::config::RawConfig;

    #[test]
    fn c26_few_descriptors_are_good_for_as_many_connections_as_can_be() {
        let connections = |limit, disks| max_connections(limit, disks).ok();
        assert_eq!(connections(256, Some(1)), Some(72));
        assert_eq!(connections(256, Some(10)), Some(58), "more look-ups than connections");
        assert_eq!(connections(256, None), Some(58));
        assert_eq!(connections(1 << 20, Some(4)), Some(524_184));
        assert_eq!(connections(83, Some(1)), Some(1));
        assert_eq!(connections(82, Some(1)), None);
        assert!(connections(u64::MAX, None).is_some());
    }

    /// A driver whose heartbeats are not heard any more, because the service stops, is not silent.
    #[tokio::test(start_paused = true)]
    async fn c17_nothing_expires_while_the_service_drains() {
        let disk = TempDir::new().unwrap();
        let mut raw = RawConfig::default();
        for setting in [
            "shuffled.listen=127.0.0.1:0",
            "shuffled.admin.listen=off",
            &format!("shuffled.local.dirs={}", disk.path().display()),
            "spark.shuffle.cleaner.interval=1s",
            "spark.shuffle.io.connectionTimeout=0",
            "shuffled.drain.timeout=10min",
        ] {
            raw.conf(setting);
        }
        let server = Server::bind(ServiceConfig::check(&raw).unwrap()).await.unwrap();
        let (registry, stop) = (server.env.shared.registry.clone(), CancellationToken::new());
        let address = server.addresses().shuffle;
        let running = tokio::spawn(server.run(stop.clone()));

        // A transfer that never ends keeps it draining.
        let executor = FixtureExecutor::new("app", "1", &[disk.path()]);
        executor.write("rdd_0_0", &vec![7; 64 << 20]);
        let mut stalled = RawClient::connect(address).await;
        stalled.rpc(executor.registration()).await.unwrap();
        let open = OpenBlocks {
            app_id: executor.app_id.clone(),
            exec_id: executor.exec_id.clone(),
            block_ids: ["rdd_0_0"].into_iter().collect(),
        };
        let stream = stalled.open(open).await.unwrap().stream_id;
        stalled.send(&Frame::ChunkFetchRequest(StreamChunkId { stream, chunk: 0 })).await;
        assert!(stalled.event().await.is_some());

        let now = tokio::time::Instant::now();
        let timeout = Duration::from_secs(60).into();
        registry.register_driver(&executor.app_id, timeout, address, now.into_std());
        stop.cancel();
        running.await.unwrap();
        assert!(now.elapsed() >= Duration::from_secs(600), "it drained to the end");
        assert!(registry.contains(&executor.app_id));
        drop(stalled);
    }
}
