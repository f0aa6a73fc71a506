//! Background tasks that outlive their own bugs (design, "What must always hold" 11).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::error;

use crate::metrics::Metrics;

/// A task that panics at once, every time, must not become a busy loop.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs `task` until it returns. When it panics, that is counted and logged, and it is started again.
pub(crate) fn supervise<F>(
    name: &'static str,
    metrics: Arc<Metrics>,
    task: impl Fn() -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        loop {
            let mut running = AbortOnDrop(tokio::spawn(task()));
            match (&mut running.0).await {
                Ok(()) => return,
                Err(failed) if failed.is_panic() => {
                    metrics.task_restart(name);
                    error!(task = name, "A background task panicked and is started again");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_cancelled) => return, // the runtime is going down
            }
        }
    })
}

/// The task goes with its supervisor.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::apps::Counts;

    #[tokio::test(start_paused = true)]
    async fn f8_a_panic_is_counted_and_the_task_started_again() {
        let metrics = Arc::new(Metrics::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let task = move || {
            let run = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run >= 2, "injected") }
        };
        supervise("test", metrics.clone(), task).await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 3);
        let page = metrics.page(Counts::default());
        assert!(page.contains("shuffled_task_restarts_total{task=\"test\"} 2"), "{page}");
    }
}
