//! `sesame-agent compare`: sends the same requests to two gateways, and lists different answers.
//!
//! Never sends or shows credentials of the log.

mod client;
mod differences;
mod report;
mod requests;
mod secrets;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use sesame_explain::parse_log_host;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval};

use self::client::{GatewayAnswer, GatewayClient};
use self::differences::{AnswerComparison, AnswerDifference, DifferenceCause};
use self::report::{DifferenceTally, compare_text, left_out_notes};
use self::requests::{GatewayUrl, RequestSelection, SentRequest};
use super::EXIT_FAULT;
use super::agent::{self, AgentArgs};

/// Requests to the old gateway that show whether its answers vary.
const REPEATS: usize = 2;

/// Sends the same requests to two gateways, and lists the different answers by cause. Host, SNI and
/// path come from an access log; the URLs only say where to connect. Credentials in the log are not
/// sent. The exit code is 0 if all answers are equal, else 1.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Access log with the requests; `-` is standard input. Formats: JSON of Sesame, Contour, Envoy
    /// Gateway or Traefik, nginx's `combined`, Envoy's default, HAR. Equal requests are sent once,
    /// without bodies, headers such as Authorization and Cookie, and query parameters that look
    /// like secrets.
    #[arg(long, value_name = "FILE")]
    requests: PathBuf,
    /// Gateway whose answers are expected, such as `https://192.0.2.1`.
    #[arg(long, value_name = "URL", value_parser = GatewayUrl::parse)]
    old: GatewayUrl,
    /// Gateway to compare.
    #[arg(long, value_name = "URL", value_parser = GatewayUrl::parse)]
    new: GatewayUrl,
    /// Host for log lines without one; by default, the old URL's host.
    #[arg(long = "host", value_name = "NAME", value_parser = parse_log_host)]
    default_host: Option<String>,
    /// Cause to ignore; repeatable.
    #[arg(long, value_name = "CAUSE", value_enum)]
    ignore: Vec<DifferenceCause>,
    /// Response header to ignore; repeatable. Headers such as Date and Server are never compared.
    #[arg(long, value_name = "NAME")]
    ignore_header: Vec<String>,
    /// Response header that names the backend.
    #[arg(long, value_name = "NAME")]
    backend_header: Option<String>,
    /// Also send requests whose methods are not GET, HEAD or OPTIONS. They may change data.
    #[arg(long)]
    all_methods: bool,
    /// Maximum number of different requests to send.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000), value_name = "NUMBER")]
    limit: u32,
    /// Requests per second to each gateway.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "NUMBER")]
    rate: u32,
    /// Maximum number of concurrent requests to each gateway.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "NUMBER")]
    concurrency: u16,
    /// Timeout for each request, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=600), value_name = "SECONDS")]
    timeout: u16,
    /// Number of bytes of each body to compare.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=64 << 20), value_name = "BYTES")]
    max_body: u32,
    /// CA certificates to trust, in PEM; by default, the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long)]
    insecure: bool,
}

pub(crate) fn main(agent: &AgentArgs, args: &CompareArgs) -> anyhow::Result<u8> {
    let selection = RequestSelection {
        default_host: args.default_host.as_deref().unwrap_or(&args.old.host),
        scheme: args.old.scheme,
        all_methods: args.all_methods,
        limit: usize::try_from(args.limit)?,
    };
    let (requests, left_out) = selection.read(&args.requests)?;
    ensure!(
        !requests.is_empty(),
        "no request of the log can be sent: {}",
        left_out_notes(&left_out).join("; ")
    );
    let lower = |name: &String| name.to_ascii_lowercase();
    let comparison = AnswerComparison {
        ignored: args.ignore.iter().copied().collect(),
        ignored_headers: args
            .ignore_header
            .iter()
            .map(lower)
            .collect::<BTreeSet<_>>(),
        backend_header: args.backend_header.as_ref().map(lower),
    };
    let tls = client::tls(args.ca.as_deref(), args.insecure)?;
    let timeout = Duration::from_secs(args.timeout.into());
    let max_body = usize::try_from(args.max_body)?;
    let client =
        |url: &GatewayUrl| GatewayClient::new(url.clone(), Arc::clone(&tls), timeout, max_body);
    let (old, new) = (client(&args.old), client(&args.new));
    let mut tally = agent::runtime()?.block_on(async {
        let mut pace = interval(Duration::from_secs(1) / args.rate);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pace = Mutex::new(pace);
        let exchange = Arc::new(Exchange {
            old,
            new,
            comparison,
            pace,
        });
        exchange.send_all(requests, args.concurrency.into()).await
    })?;
    tally.report.left_out = left_out;
    let report = tally.finish();
    let all = report.requests;
    ensure!(
        report.unanswered < all,
        "{all} requests: neither gateway answers any, for example: {}",
        report.example_failure.unwrap_or_default()
    );
    agent.output.write(&report, || compare_text(&report))?;
    Ok(if report.different == 0 { 0 } else { EXIT_FAULT })
}

#[derive(Debug)]
struct Exchange {
    old: GatewayClient,
    new: GatewayClient,
    comparison: AnswerComparison,
    /// One tick is one request to each gateway, or one more to the old one.
    pace: Mutex<Interval>,
}

#[derive(Debug)]
struct ComparedAnswers {
    differences: Vec<AnswerDifference>,
    unstable: bool,
    /// Why the old gateway does not answer, if neither does.
    unanswered: Option<String>,
}

impl Exchange {
    async fn send_all(
        self: Arc<Self>,
        requests: Vec<SentRequest>,
        concurrency: usize,
    ) -> anyhow::Result<DifferenceTally> {
        let mut tally = DifferenceTally::default();
        let mut running = JoinSet::new();
        let total = requests.len();
        let mut requests = requests.into_iter().enumerate();
        let scheme = self.old.url.scheme;
        let progress = std::io::stderr().is_terminal();
        loop {
            while running.len() < concurrency
                && let Some((at, request)) = requests.next()
            {
                let exchange = Arc::clone(&self);
                running.spawn(async move {
                    let answers = exchange.compare(&request).await;
                    (at, request.describe(scheme), answers)
                });
            }
            let Some(finished) = running.join_next().await else {
                break;
            };
            let (at, request, answers) = finished.context("a comparison failed")?;
            tally.report.requests += 1;
            tally.report.unstable += u64::from(answers.unstable);
            if let Some(reason) = answers.unanswered {
                tally.report.unanswered += 1;
                tally.report.example_failure.get_or_insert(reason);
            }
            tally.add(at, &request, answers.differences);
            if progress {
                let (done, different) = (tally.report.requests, tally.report.different);
                let end = if done == total as u64 { "\n" } else { "" };
                // Ignore failures: if standard error is closed, progress cannot be shown.
                let _ = write!(
                    std::io::stderr(),
                    "\r{done}/{total} sent, {different} different{end}"
                );
            }
        }
        Ok(tally)
    }

    async fn compare(&self, request: &SentRequest) -> ComparedAnswers {
        self.pace.lock().await.tick().await;
        let (old, new) = tokio::join!(self.old.send(request), self.new.send(request));
        let mut differences = self.comparison.compare(&old, &new);
        let found = differences.len();
        let unanswered = match (&old, &new) {
            (GatewayAnswer::Failed { reason, .. }, GatewayAnswer::Failed { .. }) => {
                Some(reason.clone())
            }
            _ => None,
        };
        // Sending an unsafe request again may change more data.
        let repeats = if request.method.is_safe() { REPEATS } else { 0 };
        for _ in 0..repeats {
            if differences.is_empty() {
                break;
            }
            self.pace.lock().await.tick().await;
            let again = self.old.send(request).await;
            let varying = self.comparison.compare(&old, &again);
            differences.retain(|it| {
                let mut varying = varying.iter();
                !varying.any(|other| (other.cause, &other.header) == (it.cause, &it.header))
            });
        }
        ComparedAnswers {
            unstable: differences.len() < found,
            differences,
            unanswered,
        }
    }
}
