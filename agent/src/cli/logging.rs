//! The log: its options, and where its lines go.
//!
//! Text goes to the systemd journal with its fields where standard error is that journal, else to standard error.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use crate::host::journald;

#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct Logging {
    /// Log level (error, warn, info, debug or trace), or filters by module.
    #[arg(
        long,
        global = true,
        env = "SESAME_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    log: String,
    /// Format of the log, which goes to standard error; text goes to the systemd journal with its fields, where standard
    /// error is that.
    #[arg(long, global = true, env = "SESAME_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Changes what is logged.
pub(crate) type SetLog = Box<dyn Fn(&str) -> anyhow::Result<()> + Send + Sync>;

/// A place for lines, behind the filter.
type Lines = Box<dyn Layer<Filtered> + Send + Sync>;
type Filtered = tracing_subscriber::layer::Layered<reload::Layer<EnvFilter, Registry>, Registry>;

impl Logging {
    /// Starts the log; the answer changes its filter.
    pub(crate) fn start(&self) -> anyhow::Result<SetLog> {
        let (filter, handle) = reload::Layer::new(parse(&self.log)?);
        tracing_subscriber::registry()
            .with(filter)
            .with(lines(self.log_format))
            .init();
        Ok(Box::new(move |log| Ok(handle.reload(parse(log)?)?)))
    }
}

/// Parses a filter of the log.
fn parse(log: &str) -> anyhow::Result<EnvFilter> {
    // kube logs as errors what the agent itself reports once and more clearly, notify warns of each watched directory that is removed.
    // A filter that names them turns them on.
    EnvFilter::try_new(format!("kube_client=off,notify=off,{log}"))
        .map_err(|error| anyhow::anyhow!("--log {log:?}: {error}"))
}

fn lines(format: LogFormat) -> Lines {
    let stderr = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Json => stderr.json().boxed(),
        // A journal that does not listen is no reason to say nothing.
        LogFormat::Text if journald::is_standard_error() => match journald::layer() {
            Ok(journal) => journal.boxed(),
            Err(_) => stderr.with_target(false).boxed(),
        },
        LogFormat::Text => stderr.with_target(false).boxed(),
    }
}
