//! Serves metrics and the status page at the guarded address. Never send content to a client that
//! the guard does not admit.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use sesame_http_server::GuardedCallers;
use sesame_http_server::page::{Cell, PATHS, Page};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::{METRICS, Metrics, UnreadyReason, not_found, text};

/// Minimum interval between builds of a page.
const PAGE_TTL: Duration = Duration::from_secs(1);
/// Time limit for building a page, which normally takes a few milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct PageAsk {
    /// `None` if the replica is ready.
    pub(crate) unready: Option<String>,
    pub(crate) answer: oneshot::Sender<Page>,
}

pub(crate) struct StatusPages {
    asks: mpsc::Sender<PageAsk>,
    readiness: UnreadyReason,
    fresh: Duration,
    patience: Duration,
    last: Mutex<Option<(Instant, Page)>>,
}

impl StatusPages {
    pub(crate) fn new(asks: mpsc::Sender<PageAsk>, readiness: UnreadyReason) -> Self {
        Self {
            asks,
            readiness,
            fresh: PAGE_TTL,
            patience: TIMEOUT,
            last: Mutex::new(None),
        }
    }

    async fn page(&self) -> Page {
        let mut last = self.last.lock().await;
        let known = last
            .as_ref()
            .filter(|(made, _)| made.elapsed() < self.fresh);
        if let Some((_, page)) = known {
            return page.clone();
        }
        let unready = (self.readiness)().err();
        let page = match timeout(self.patience, self.ask(unready.clone())).await {
            Ok(Some(page)) => page,
            _ => without_objects(unready),
        };
        *last = Some((Instant::now(), page.clone()));
        page
    }

    async fn ask(&self, unready: Option<String>) -> Option<Page> {
        let (answer, page) = oneshot::channel();
        self.asks.send(PageAsk { unready, answer }).await.ok()?;
        page.await.ok()
    }
}

/// Returns the page that is shown, for example, while the replica is starting.
fn without_objects(unready: Option<String>) -> Page {
    let mut page = Page::new("Sesame controller");
    let why = unready.unwrap_or_else(|| "its objects are currently unavailable".to_owned());
    page.paragraph(Cell::Bad(format!("This replica is not ready: {why}")));
    page
}

pub(crate) async fn serve_guarded(
    callers: GuardedCallers,
    metrics: Arc<Metrics>,
    pages: StatusPages,
) {
    let pages = Arc::new(pages);
    let answer = move |request: Request<Incoming>| {
        let (pages, metrics) = (Arc::clone(&pages), Arc::clone(&metrics));
        async move { answer(request.method(), request.uri().path(), &metrics, &pages).await }
    };
    callers.serve(answer).await;
}

async fn answer(
    method: &Method,
    path: &str,
    metrics: &Metrics,
    pages: &StatusPages,
) -> Response<Full<Bytes>> {
    match (method, path) {
        (&Method::GET, "/metrics") => text(StatusCode::OK, METRICS, metrics.text()),
        (&Method::GET, path) if PATHS.contains(&path) => {
            pages.page().await.response().map(Full::new)
        }
        _ => not_found("/status or /metrics"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(asks: mpsc::Sender<PageAsk>, fresh: Duration) -> StatusPages {
        let readiness: UnreadyReason = Arc::new(|| Err("nothing <was> read".to_owned()));
        StatusPages {
            fresh,
            patience: Duration::from_millis(1),
            ..StatusPages::new(asks, readiness)
        }
    }

    #[tokio::test]
    async fn page_is_rendered_once_while_fresh() {
        for (fresh, expected) in [(Duration::MAX, 1), (Duration::ZERO, 9)] {
            let (asks, mut asked) = mpsc::channel(1);
            let maker = tokio::spawn(async move {
                let mut made = 0;
                while let Some(PageAsk { answer, .. }) = asked.recv().await {
                    made += 1;
                    let _ = answer.send(Page::new(&format!("page {made}")));
                }
                made
            });
            let pages = StatusPages {
                patience: TIMEOUT,
                ..source(asks, fresh)
            };
            for _ in 0..9 {
                assert!(pages.page().await.html().contains("page "));
            }
            drop(pages);
            assert_eq!(maker.await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn unreadable_replica_explains_why_it_is_unready() {
        let (silent, _unread) = mpsc::channel(1);
        let (gone, _) = mpsc::channel(1);
        for asks in [silent, gone] {
            let html = source(asks, PAGE_TTL).page().await.html();
            assert!(
                html.contains("not ready: nothing &lt;was&gt; read"),
                "{html}"
            );
        }
    }
}
