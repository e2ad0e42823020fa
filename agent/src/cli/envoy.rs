//! Options shared by `run` and `launcher`: the Envoy binary, the runtime directory and drain times.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use sesame_engine::DEFAULT_RUNTIME_DIR;
use sesame_envoy::settings::DEFAULT_DRAIN_TIME;

#[derive(Debug, Args)]
pub(crate) struct EnvoyArgs {
    /// Directory for sockets and for the files that Envoy watches, preferably on tmpfs; shared by
    /// an agent and its launcher. Contains private keys.
    #[arg(long, env = "SESAME_RUNTIME_DIR", default_value = DEFAULT_RUNTIME_DIR, value_name = "DIR")]
    pub(crate) runtime_dir: PathBuf,
    /// Envoy binary; `envoy` on the PATH by default. An agent and its launcher must use the same
    /// version.
    #[arg(long, env = "ENVOY", value_name = "PATH")]
    pub(crate) envoy: Option<PathBuf>,
    /// Time for connections to finish when Envoy is stopped, or when Envoy or a listener is
    /// replaced.
    #[arg(
        long,
        env = "SESAME_DRAIN_SECONDS",
        default_value_t = DEFAULT_DRAIN_TIME.as_secs(),
        value_name = "SECONDS"
    )]
    drain_seconds: u64,
    /// Time to keep serving before Envoy drains, so that load balancers notice the loss of
    /// readiness. Applies with --on-stop drain, and when a launcher stops.
    #[arg(
        long,
        env = "SESAME_LAME_DUCK_SECONDS",
        default_value_t = 0,
        value_name = "SECONDS"
    )]
    lame_duck_seconds: u64,
}

impl EnvoyArgs {
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    pub(crate) fn lame_duck(&self) -> Duration {
        Duration::from_secs(self.lame_duck_seconds)
    }
}
