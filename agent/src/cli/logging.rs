//! Options for the agent's own log.
//!
//! Text goes to the systemd journal if standard error is connected to it.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

use sesame_host::journald;

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
    /// Log format on standard error; if that is the systemd journal, `text` sends fields as journal
    /// fields.
    #[arg(long, global = true, env = "SESAME_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

pub(crate) type SetLog = Box<dyn Fn(&str) -> anyhow::Result<()> + Send + Sync>;

type Lines = Box<dyn Layer<Filtered> + Send + Sync>;
type Filtered = tracing_subscriber::layer::Layered<reload::Layer<EnvFilter, Registry>, Registry>;

impl Logging {
    /// The returned function replaces the log filter.
    pub(crate) fn start(&self) -> anyhow::Result<SetLog> {
        let (filter, handle) = reload::Layer::new(parse(&self.log)?);
        tracing_subscriber::registry()
            .with(filter)
            .with(lines(self.log_format))
            .init();
        Ok(Box::new(move |log| Ok(handle.reload(parse(log)?)?)))
    }
}

fn parse(log: &str) -> anyhow::Result<EnvFilter> {
    // `kube` logs errors that the agent reports itself, and `notify` warns about every removed
    // directory. The user's filter can turn these logs on again.
    EnvFilter::try_new(format!("kube_client=off,notify=off,{log}"))
        .map_err(|error| anyhow::anyhow!("--log {log:?}: {error}"))
}

fn lines(format: LogFormat) -> Lines {
    let stderr = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Json => stderr.json().boxed(),
        // If the journal does not respond, write to standard error.
        LogFormat::Text if journald::is_standard_error() => match journald::layer() {
            Ok(journal) => journal.boxed(),
            Err(_) => stderr.with_target(false).boxed(),
        },
        LogFormat::Text => stderr.with_target(false).boxed(),
    }
}
