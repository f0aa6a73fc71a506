//! Admin HTTP, on a port of its own: health, applications, metrics.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the pages, as text |
//! | `/healthz` | 200 while the process answers at all |
//! | `/readyz` | 200 while the service takes connections, 503 with the reason otherwise |
//! | `/v1/apps` | [`AppList`]: registered applications, and why others left |
//! | `/v1/apps/ID` | [`AppDetail`]; 404 for an id never seen |
//! | `/v1/apps/ID/hold`, `/release`, `/extend`, `/expire`, `/restore` | POST: [`Done`] |
//! | `/v1/explain/ID?exec=EXEC&block=BLOCK` | [`Explanation`] |
//! | `/v1/sweep?older_than_ms=N` | [`SweepView`]; a POST removes what may go |
//! | `/metrics` | OpenMetrics text, see [`crate::metrics`] |
//!
//! A POST has a JSON body, if only `{}`: so no web page can make a browser send one unasked. It is taken
//! from the service's own machine only. Errors are
//! `{"error": TEXT}`. Whoever can connect may ask; a peer that is slow, by accident or on
//! purpose, costs others nothing (`HEAD_TIMEOUT` and what stands beside it).

mod explain;
mod views;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::Router;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use shuffle_protocol::AppId;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::apps::{ExpireError, NotRegistered, RestoreError};
use crate::cleaner::Cleaner;
use crate::connection::Environment;
use crate::state::{StoreStatus, wall_now};
use crate::store::{Durability, Position, SETTLE};
use crate::sweeper::Sweeper;

pub use self::views::{
    AppDetail, AppList, AppView, CandidateView, DirView, Done, DriverView, ExecutorView,
    Explanation, RecordDirView, RecordView, SweepView,
};

/// Open connections; more wait in the backlog. Scrapers, probes and a few people need no more.
pub(crate) const MAX_CONNECTIONS: usize = 32;
/// How long a peer may take to send the head of a request, and be idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last in all, which bounds how slowly an answer may be read, and is enough
/// for a sweep of large disks. A client that is cut off between two requests connects again.
const CONNECTION_LIMIT: Duration = Duration::from_secs(900);
/// The largest head of a request.
const MAX_HEAD: usize = 64 << 10;

const INDEX: &str = concat!(
    "shuffled ",
    env!("CARGO_PKG_VERSION"),
    ", external shuffle service for Apache Spark\n\n\
     /healthz      200 while the process answers\n\
     /readyz       200 while the service takes connections, 503 otherwise\n\
     /v1/apps      registered applications, and why others left\n\
     /v1/apps/ID   one of them\n\
     /v1/explain/ID?exec=EXEC&block=BLOCK\n\
     \x20             why it is here, why it went, why a fetch failed\n\
     /v1/sweep     directories under the local dirs that no application has\n\
     /metrics      OpenMetrics\n",
);

/// What the pages show, and whom an operator's word goes to.
#[derive(Debug, Clone)]
pub struct Admin {
    /// The service.
    pub env: Arc<Environment>,
    /// Who sees to what an operator expires.
    pub cleaner: Arc<Cleaner>,
    /// Who looks for directories that nobody owns.
    pub sweeper: Arc<Sweeper>,
    /// How the store is.
    pub status: Arc<StoreStatus>,
}

impl Admin {
    /// The routes.
    pub fn router(self) -> Router {
        let changes = Router::new()
            .route("/v1/apps/{id}/hold", post(hold))
            .route("/v1/apps/{id}/release", post(release))
            .route("/v1/apps/{id}/extend", post(extend))
            .route("/v1/apps/{id}/expire", post(expire))
            .route("/v1/apps/{id}/restore", post(restore))
            .route("/v1/sweep", post(remove_unowned))
            .route_layer(from_fn(from_this_machine));
        Router::new()
            .route("/", get(|| async { INDEX }))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/v1/apps", get(apps))
            .route("/v1/apps/{id}", get(app))
            .route("/v1/explain/{id}", get(explain))
            .route("/v1/sweep", get(look_for_unowned))
            .merge(changes)
            .fallback(|| async { Refused::not_found("no such page; / lists them") })
            .with_state(self)
    }

    /// Answers on `listener` until dropped.
    pub async fn serve(&self, listener: &TcpListener) {
        let router = self.clone().router();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((socket, peer)) => {
                    let here = socket.local_addr().map(|address| address.ip());
                    let is_here = here.is_ok_and(|here| here == peer.ip());
                    let local = is_here || peer.ip().to_canonical().is_loopback();
                    let router = router.clone().layer(Extension(FromThisMachine(local)));
                    let service = TowerToHyperService::new(router);
                    let connection = http.serve_connection(TokioIo::new(socket), service);
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

/// Whether the peer of a connection is on the machine that the service is on.
#[derive(Debug, Clone, Copy)]
struct FromThisMachine(bool);

/// The port may be open to those who scrape metrics, and what changes something may end in directories
/// being removed. Whoever may do that can log in here.
async fn from_this_machine(
    Extension(FromThisMachine(local)): Extension<FromThisMachine>,
    request: Request,
    next: Next,
) -> Response {
    if local {
        return next.run(request).await;
    }
    let error = "changes are taken from the service's own machine only: run the command there";
    Refused { status: StatusCode::FORBIDDEN, error: error.to_owned() }.into_response()
}

/// Why a request is not done.
#[derive(Debug)]
struct Refused {
    status: StatusCode,
    error: String,
}

impl Refused {
    fn not_found(error: &(impl ToString + ?Sized)) -> Self {
        Self { status: StatusCode::NOT_FOUND, error: error.to_string() }
    }

    fn conflict(error: &impl ToString) -> Self {
        Self { status: StatusCode::CONFLICT, error: error.to_string() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(serde_json::json!({ "error": self.error }))).into_response()
    }
}

impl From<NotRegistered> for Refused {
    fn from(error: NotRegistered) -> Self {
        Self::not_found(&error)
    }
}

impl From<ExpireError> for Refused {
    fn from(error: ExpireError) -> Self {
        match error {
            ExpireError::NotRegistered(error) => error.into(),
            ExpireError::Held(_) => Self::conflict(&error),
        }
    }
}

impl From<RestoreError> for Refused {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::NoRecord(_) => Self::not_found(&error),
            RestoreError::TooLate { .. } => Self::conflict(&error),
        }
    }
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    if admin.env.draining.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    // It serves, so it is ready; but not as it should be.
    let complaints = admin.status.complaints();
    let degraded = complaints.iter().map(|line| format!("degraded: {line}\n"));
    (StatusCode::OK, "ok\n".to_owned() + &degraded.collect::<String>())
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let shared = &admin.env.shared;
    ([(header::CONTENT_TYPE, OPEN_METRICS)], shared.metrics.page(shared.registry.counts()))
}

async fn apps(State(admin): State<Admin>) -> Json<AppList> {
    let (now, wall, registry) = (now(), wall_now(), &admin.env.shared.registry);
    let (expired, swept): (Vec<_>, Vec<_>) =
        registry.records().into_iter().partition(|record| record.app_id.is_some());
    Json(AppList {
        cleanup: registry.rules().cleanup.as_str().to_owned(),
        complaints: admin.status.complaints(),
        apps: registry.all().iter().map(|app| AppView::of(app, now, wall)).collect(),
        expired: expired.iter().rev().map(|record| RecordView::of(record, wall)).collect(),
        swept: swept.iter().rev().map(|record| RecordView::of(record, wall)).collect(),
    })
}

async fn app(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<AppDetail>, Refused> {
    let app_id = AppId::from(id);
    let (now, wall, registry) = (now(), wall_now(), &admin.env.shared.registry);
    let (app, gone) = (registry.app(&app_id), registry.gone(&app_id));
    if app.is_none() && gone.is_none() {
        return Err(Refused::not_found(&format!(
            "application {app_id} is not registered, and is not among the last that expired"
        )));
    }
    let executors = app.iter().flat_map(|app| &app.executors);
    let dirs = app.iter().flat_map(|app| &app.dirs);
    let gone_dirs = gone.iter().flat_map(|record| &record.dirs);
    Ok(Json(AppDetail {
        id: app_id.to_string(),
        executors: executors.map(|(id, executor)| ExecutorView::of((id, executor))).collect(),
        dirs: dirs.map(DirView::of).collect(),
        app: app.as_ref().map(|app| AppView::of(app, now, wall)),
        expired_dirs: gone_dirs.map(RecordDirView::of).collect(),
        expired: gone.as_ref().map(|record| RecordView::of(record, wall)),
    }))
}

/// What an operator may add.
#[derive(Debug, Default, Deserialize)]
struct Note {
    note: Option<String>,
}

/// How long an application is kept.
#[derive(Debug, Deserialize)]
struct By {
    by_ms: u64,
}

impl Admin {
    async fn done(&self, done: String, position: Position) -> Json<Done> {
        let settled = self.env.journal.settled_within(position, SETTLE).await;
        let durable = settled == Durability::Durable;
        info!(done, "An operator said so");
        Json(Done { done, durable })
    }
}

async fn hold(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Json(Note { note }): Json<Note>,
) -> Result<Json<Done>, Refused> {
    let why = note.unwrap_or_else(|| "no reason given".to_owned());
    let position = admin.env.shared.registry.hold(&AppId::from(id.as_str()), why)?;
    Ok(admin.done(format!("application {id} is held until it is released"), position).await)
}

async fn release(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Json(Note { .. }): Json<Note>,
) -> Result<Json<Done>, Refused> {
    let position = admin.env.shared.registry.release(&AppId::from(id.as_str()), now())?;
    Ok(admin.done(format!("application {id} is released, with a full timeout"), position).await)
}

async fn extend(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Json(By { by_ms }): Json<By>,
) -> Result<Json<Done>, Refused> {
    let by = Duration::from_millis(by_ms);
    let position = admin.env.shared.registry.extend(&AppId::from(id.as_str()), by, now())?;
    let done = format!("application {id} is kept for {} at least", humantime::format_duration(by));
    Ok(admin.done(done, position).await)
}

async fn expire(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Json(Note { note }): Json<Note>,
) -> Result<Json<Done>, Refused> {
    let (now, registry) = (now(), &admin.env.shared.registry);
    let expired = registry.expire(&AppId::from(id.as_str()), note.as_deref(), now)?;
    let position = admin.env.journal.recorded();
    let dirs = expired.dirs.len();
    admin.cleaner.handle_expired([expired], now);
    Ok(admin.done(format!("application {id} is expired, {dirs} directories go"), position).await)
}

async fn restore(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Json(Note { .. }): Json<Note>,
) -> Result<Json<Done>, Refused> {
    let shared = &admin.env.shared;
    let restored = shared.registry.restore(&AppId::from(id.as_str()), &shared.roots, now())?;
    let lost = match restored.lost {
        0 => String::new(),
        lost => format!("; {lost} directories are lost, their files were going already"),
    };
    let done = format!(
        "application {id} is registered again with {} executors and held until it is released; {} \
         directories are brought back{lost}",
        restored.executors, restored.dirs
    );
    Ok(admin.done(done, restored.position).await)
}

#[derive(Debug, Deserialize)]
struct Asked {
    exec: Option<String>,
    block: Option<String>,
}

async fn explain(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Query(Asked { exec, block }): Query<Asked>,
) -> Json<Explanation> {
    Json(admin.explain(&AppId::from(id), exec.as_deref(), block.as_deref()).await)
}

#[derive(Debug, Deserialize)]
struct Age {
    older_than_ms: Option<u64>,
}

async fn look_for_unowned(
    State(admin): State<Admin>,
    Query(age): Query<Age>,
) -> Result<Json<SweepView>, Refused> {
    admin.sweep(&age, false).await
}

async fn remove_unowned(
    State(admin): State<Admin>,
    Query(age): Query<Age>,
    Json(Note { .. }): Json<Note>,
) -> Result<Json<SweepView>, Refused> {
    admin.sweep(&age, true).await
}

impl Admin {
    async fn sweep(&self, age: &Age, remove: bool) -> Result<Json<SweepView>, Refused> {
        let older_than = age.older_than_ms.map_or(self.sweeper.older_than, Duration::from_millis);
        let swept = self
            .sweeper
            .sweep(older_than, remove)
            .await
            .map_err(|error| Refused::conflict(&error))?;
        Ok(Json(SweepView::of(&swept, SystemTime::now())))
    }
}

/// The clock that the registry's times are of; in tests it may stand still.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use hyper::service::Service as _;

    use super::*;

    #[tokio::test]
    async fn changes_are_taken_from_this_machine_only() {
        for (local, status) in [(true, StatusCode::OK), (false, StatusCode::FORBIDDEN)] {
            let router = Router::new()
                .route("/change", post(|| async { "done" }))
                .route_layer(from_fn(from_this_machine))
                .route("/look", get(|| async { "seen" }))
                .layer(Extension(FromThisMachine(local)));
            let service = TowerToHyperService::new(router);
            let request = |method: &str, path: &str| {
                Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
            };
            let changed = service.call(request("POST", "/change")).await.unwrap();
            assert_eq!(changed.status(), status);
            let seen = service.call(request("GET", "/look")).await.unwrap();
            assert_eq!(seen.status(), StatusCode::OK);
        }
    }
}
