//! Admin HTTP, on a port of its own: health, applications, metrics.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the pages, as text |
//! | `/healthz` | 200 while the process answers at all |
//! | `/readyz` | 200 while the service takes connections, 503 with the reason otherwise |
//! | `/v1/apps` | [`AppList`]: registered applications, and the last ones that expired |
//! | `/v1/apps/ID` | [`AppDetail`]; 404 for an id never seen |
//! | `/metrics` | OpenMetrics text, see [`crate::metrics`] |
//!
//! Errors are `{"error": TEXT}`. Whoever can connect may ask; a peer that is slow, by accident or on
//! purpose, costs others nothing (`HEAD_TIMEOUT` and what stands beside it).

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use shuffle_protocol::{AppId, HeartbeatTimeout};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::apps::{AppInfo, AppRegistry, Gone};
use crate::metrics::Metrics;

/// Open connections; more wait in the backlog. Scrapers, probes and a few people need no more.
pub(crate) const MAX_CONNECTIONS: usize = 32;
/// How long a peer may take to send the head of a request, and be idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last in all, which bounds how slowly an answer may be read. A client
/// that is cut off between two requests connects again.
const CONNECTION_LIMIT: Duration = Duration::from_secs(300);
/// The largest head of a request.
const MAX_HEAD: usize = 64 << 10;

const INDEX: &str = concat!(
    "shuffled ",
    env!("CARGO_PKG_VERSION"),
    ", external shuffle service for Apache Spark\n\n\
     /healthz      200 while the process answers\n\
     /readyz       200 while the service takes connections, 503 otherwise\n\
     /v1/apps      registered applications, and the last ones that expired\n\
     /v1/apps/ID   one of them\n\
     /metrics      OpenMetrics\n",
);

/// What the pages show.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Who is registered.
    pub registry: Arc<AppRegistry>,
    /// What was counted.
    pub metrics: Arc<Metrics>,
    /// The service is stopping.
    pub draining: CancellationToken,
}

/// The answer of `/v1/apps`. Every duration is in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppList {
    /// Registered applications, by id.
    pub apps: Vec<AppView>,
    /// The last applications that expired, latest first.
    pub expired: Vec<ExpiredView>,
}

/// The answer of `/v1/apps/ID`: an application may be registered again after it expired.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppDetail {
    /// Its id.
    pub id: String,
    /// It, if it is registered.
    pub app: Option<AppView>,
    /// Its executors, by id; empty when it is not registered.
    pub executors: Vec<ExecutorView>,
    /// Its latest expiry, if that is still remembered.
    pub expired: Option<ExpiredView>,
}

/// One registered application.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AppView {
    /// Its id.
    pub id: String,
    /// Since its first registration.
    pub age_ms: u64,
    /// Its driver, if one registered.
    pub driver: Option<DriverView>,
    /// Until it expires unless something happens before; nothing for never.
    pub expires_in_ms: Option<u64>,
    /// Since anything of it was last registered or read.
    pub last_use_ms_ago: u64,
    /// Registered executors.
    pub executors: usize,
    /// Directories that go with it.
    pub dirs: usize,
    /// Chunks read of it.
    pub chunks_served: u64,
    /// Bytes in them.
    pub bytes_served: u64,
}

/// A registered driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DriverView {
    /// Where it registered from.
    pub address: Option<String>,
    /// Its own limit; nothing for never.
    pub heartbeat_timeout_ms: Option<u64>,
    /// Since its last sign of life.
    pub last_heartbeat_ms_ago: u64,
    /// Heartbeats since the service knows the application.
    pub heartbeats: u64,
}

/// One registered executor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecutorView {
    /// Its id.
    pub id: String,
    /// Where it keeps its files.
    pub local_dirs: Vec<String>,
    /// Sub-directories each.
    pub sub_dirs_per_local_dir: i32,
    /// As registered.
    pub shuffle_manager: String,
}

/// One application that expired.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExpiredView {
    /// Its id.
    pub id: String,
    /// `heartbeat-timeout` or `no-driver`.
    pub reason: String,
    /// Since then.
    pub expired_ms_ago: u64,
    /// The same as a date, RFC 3339.
    pub expired_at: String,
    /// How long its driver had been silent.
    pub silent_for_ms: Option<u64>,
    /// Its driver's own limit.
    pub heartbeat_timeout_ms: Option<u64>,
    /// Executors it had.
    pub executors: usize,
    /// Directories it had.
    pub dirs: usize,
    /// Of those, gone.
    pub dirs_removed: usize,
    /// Of those, kept because a live application registered them too.
    pub dirs_kept: usize,
    /// Of those, not removable so far; tried again.
    pub dirs_failing: usize,
    /// Files unlinked.
    pub files_removed: u64,
    /// Bytes in them.
    pub bytes_removed: u64,
}

impl Admin {
    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/", get(|| async { INDEX }))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/v1/apps", get(apps))
            .route("/v1/apps/{id}", get(app))
            .fallback(|| async { not_found("no such page; / lists them") })
            .with_state(self)
    }

    /// Answers on `listener` until dropped.
    pub async fn serve(&self, listener: &TcpListener) {
        let service = TowerToHyperService::new(self.clone().router());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((socket, _)) => {
                    let connection = http.serve_connection(TokioIo::new(socket), service.clone());
                    connections.spawn(async move {
                        // What is wrong with a request is answered; the rest is the peer's affair.
                        let _ = tokio::time::timeout(CONNECTION_LIMIT, connection).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!(%error, "Cannot accept a connection for admin HTTP");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

type NotFound = (StatusCode, Json<serde_json::Value>);

fn not_found(error: &str) -> NotFound {
    (StatusCode::NOT_FOUND, Json(serde_json::json!({ "error": error })))
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, &'static str) {
    if admin.draining.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, OPEN_METRICS)], admin.metrics.page(admin.registry.counts()))
}

async fn apps(State(admin): State<Admin>) -> Json<AppList> {
    let now = now();
    Json(AppList {
        apps: admin.registry.all().iter().map(|app| AppView::of(app, now)).collect(),
        expired: admin.registry.all_gone().iter().rev().map(|g| ExpiredView::of(g, now)).collect(),
    })
}

async fn app(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<AppDetail>, NotFound> {
    let app_id = AppId::from(id);
    let now = now();
    let app = admin.registry.app(&app_id);
    let gone = admin.registry.gone(&app_id);
    if app.is_none() && gone.is_none() {
        return Err(not_found(&format!(
            "application {app_id} is not registered, and is not among the last that expired"
        )));
    }
    let executors = app.iter().flat_map(|app| &app.executors).map(|(id, executor)| ExecutorView {
        id: id.to_string(),
        local_dirs: executor.local_dirs.iter().map(ToString::to_string).collect(),
        sub_dirs_per_local_dir: executor.sub_dirs_per_local_dir,
        shuffle_manager: executor.shuffle_manager.clone(),
    });
    Ok(Json(AppDetail {
        id: app_id.to_string(),
        executors: executors.collect(),
        app: app.as_ref().map(|app| AppView::of(app, now)),
        expired: gone.as_ref().map(|gone| ExpiredView::of(gone, now)),
    }))
}

impl AppView {
    fn of(app: &AppInfo, now: Instant) -> Self {
        Self {
            id: app.app_id.to_string(),
            age_ms: ago(app.since, now),
            driver: app.driver.map(|driver| DriverView {
                address: app.driver_addr.map(|addr| addr.to_string()),
                heartbeat_timeout_ms: timeout_ms(driver.timeout),
                last_heartbeat_ms_ago: ago(driver.last_beat, now),
                heartbeats: driver.beats,
            }),
            expires_in_ms: app.deadline.map(|at| millis(at.saturating_duration_since(now))),
            last_use_ms_ago: ago(app.last_use, now),
            executors: app.executors.len(),
            dirs: app.dirs,
            chunks_served: app.chunks,
            bytes_served: app.bytes,
        }
    }
}

impl ExpiredView {
    fn of(gone: &Gone, now: Instant) -> Self {
        Self {
            id: gone.app_id.to_string(),
            reason: gone.reason.as_str().to_owned(),
            expired_ms_ago: ago(gone.at, now),
            expired_at: rfc3339(gone.wall),
            silent_for_ms: gone.silent_for.map(millis),
            heartbeat_timeout_ms: gone.timeout.and_then(timeout_ms),
            executors: gone.executors,
            dirs: gone.dirs,
            dirs_removed: gone.removal.removed,
            dirs_kept: gone.removal.kept,
            dirs_failing: gone.removal.failing,
            files_removed: gone.removal.files,
            bytes_removed: gone.removal.bytes,
        }
    }
}

/// The clock that the registry's times are of; in tests it may stand still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn ago(then: Instant, now: Instant) -> u64 {
    millis(now.saturating_duration_since(then))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn timeout_ms(timeout: HeartbeatTimeout) -> Option<u64> {
    match timeout {
        HeartbeatTimeout::After(time) => Some(millis(time)),
        HeartbeatTimeout::Never => None,
    }
}

fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
