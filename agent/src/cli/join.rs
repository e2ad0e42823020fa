//! `sesame-agent join`: adds this host to a cluster, and starts its service.

use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use sesame_files::open::{self, Rule};
use sesame_published::credential::Credential;
use sesame_published::host_access::HostScope;
use sesame_published::join_token::{JoinToken, MAX_JOIN_TOKEN_BYTES};

use super::EXIT_FAULT;
use super::agent::{self, AgentArgs};
use super::seal::SealLikeAgentArgs;
use super::settings::LoadedSettings;
use super::store_credentials::CredentialStore;
use sesame_engine::DEFAULT_STATE_DIR;
use sesame_engine::report::Report;
use sesame_sources::cluster::stored_token::StoredToken;
use sesame_sources::join::credentials;
use sesame_sources::join::settings_file::DEFAULT_CONFIG;
use sesame_sources::join::{exchange, owner, service, settings_file};
use sesame_sources::seal::SealingKeys;

const EVERY: Duration = Duration::from_millis(250);

/// Joins a cluster with a token from `sesame-controller hosts token`: gets and stores credentials
/// for this host only, writes the settings and, with systemd, starts the service.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The token. Prefer standard input or a file, because command lines are visible to every user
    /// on this host.
    #[arg(value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// File with the token, readable only by you; `-` is standard input, the default.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// This host's zone, shown in the cluster's inventory.
    #[arg(long, value_name = "NAME", value_parser = super::host::label)]
    zone: Option<String>,
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    seal: SealLikeAgentArgs,
    /// Join even if this host has already joined.
    #[arg(long)]
    replace: bool,
    /// Time to wait until the started service serves everything.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait_seconds: u64,
}

/// Paths that a joined host uses.
#[derive(Debug, Args)]
pub(super) struct Places {
    /// State directory of the agent.
    #[arg(long, env = "SESAME_STATE_DIR", default_value = DEFAULT_STATE_DIR, value_name = "DIR")]
    pub(super) state_dir: PathBuf,
    /// Settings file of the agent.
    #[arg(long, env = "SESAME_CONFIG", default_value = DEFAULT_CONFIG, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Do not start or stop the systemd service.
    #[arg(long)]
    pub(super) no_service: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Joined {
    host: String,
    server: String,
    config: PathBuf,
    /// The setting of the previous source, which `join` has commented out and `leave` restores.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<String>,
    /// Time at which the credential expires unless the agent renews it.
    credential_expires: Option<Timestamp>,
    /// True if the command started the service.
    started: bool,
    /// True if the agent serves everything. `None` if the command did not wait for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    serving: Option<bool>,
    /// Why the agent does not serve everything yet. Empty if it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

pub(crate) fn main(
    agent: &AgentArgs,
    args: &JoinArgs,
    loaded: &LoadedSettings,
) -> anyhow::Result<u8> {
    let JoinArgs {
        token,
        token_file,
        zone,
        places,
        seal,
        replace,
        wait_seconds,
    } = args;
    let Places {
        state_dir,
        config,
        no_service,
    } = places;
    let token = usable_token(token.as_deref(), token_file.as_deref(), Timestamp::now())?;
    let runtime = agent::runtime()?;
    if !replace {
        let seal = seal.settings(loaded, state_dir);
        let found = runtime.block_on(SealingKeys::found(&seal));
        refuse_to_join_twice(state_dir, &agent.runtime_dir, found)?;
    }
    // The token can be used only once, so first do everything that can fail on this host.
    let owner = owner::find(state_dir)?;
    let state = resolved_state_dir(state_dir, owner.is_none())
        .with_context(|| format!("--state-dir {}", state_dir.display()))?;
    let other_dir = (state_dir != Path::new(DEFAULT_STATE_DIR)).then_some(state.as_path());
    let kubeconfig = credentials::kubeconfig_path(&state);
    let settings = settings_file::settings(&token, &kubeconfig, zone.as_deref(), other_dir);
    let at = || format!("--config {}", config.display());
    let text = settings_file::read(config).with_context(at)?;
    let joined = settings_file::with(&text, &settings, settings_file::holds_nothing);
    let joined = joined.with_context(at)?;
    settings_file::write(config, &text).with_context(at)?;

    let store = CredentialStore {
        owner,
        seal: seal.settings(loaded, &state),
        state: &state,
        runtime_dir: &agent.runtime_dir,
    };
    store.prepare()?;

    let (client, credential) = runtime.block_on(exchange::exchange(&token))?;
    let expires = Credential::parse(&credential).map(|claims| claims.expires);
    let stored = credentials::from_token(&token, credential, &state)?;
    store.store(&stored)?;
    settings_file::write(config, &joined).with_context(at)?;
    if let Err(error) = runtime.block_on(exchange::end_invitation(client, &token)) {
        // The invitation is used up, but stays in the list of hosts until it expires.
        tracing::warn!("{error}");
    }

    let set_aside = settings_file::aside(&joined).map(str::to_owned);
    let mut answer = Joined::new(&token, config, set_aside, expires);
    if !no_service && service::is_there() {
        service::start()?;
        answer.record_start(wait(agent, Duration::from_secs(*wait_seconds)));
    }
    agent
        .output
        .write(&answer, || text_of(&answer, &token.scope, &settings))?;
    Ok(answer.exit_code())
}

impl Joined {
    fn new(
        token: &JoinToken,
        config: &Path,
        set_aside: Option<String>,
        credential_expires: Option<Timestamp>,
    ) -> Self {
        Self {
            host: token.host.clone(),
            server: token.server.clone(),
            config: config.to_owned(),
            set_aside,
            credential_expires,
            started: false,
            serving: None,
            reasons: Vec::new(),
        }
    }

    fn record_start(&mut self, reasons: Vec<String>) {
        self.started = true;
        self.serving = Some(reasons.is_empty());
        self.reasons = reasons;
    }

    fn exit_code(&self) -> u8 {
        if self.serving == Some(false) {
            EXIT_FAULT
        } else {
            0
        }
    }
}

/// Resolves symbolic links.
fn resolved_state_dir(state_dir: &Path, may_create: bool) -> io::Result<PathBuf> {
    if may_create {
        sesame_host::create_directory(state_dir)?;
    }
    state_dir.canonicalize()
}

/// Fails if the token has expired according to this host's clock.
fn usable_token(
    argument: Option<&str>,
    file: Option<&Path>,
    now: Timestamp,
) -> anyhow::Result<JoinToken> {
    let token = JoinToken::parse(&read_token(argument, file)?)?;
    let expires = Credential::parse(&token.bearer).map(|claims| claims.expires);
    if let Some(at) = expires.filter(|at| *at <= now) {
        bail!(
            "this join token expired at {at}; request a new one (`sesame-controller hosts token`)"
        );
    }
    Ok(token)
}

/// Fails if this host has an unexpired or unreadable credential.
fn refuse_to_join_twice(
    state_dir: &Path,
    runtime_dir: &Path,
    found: SealingKeys,
) -> anyhow::Result<()> {
    let sealed = StoredToken::of_command(runtime_dir, found.into());
    let before = credentials::read(state_dir, &sealed);
    let is_good = |before: &Credential| before.expires > Timestamp::now();
    if before.map_or(true, |before| before.is_some_and(|before| is_good(&before))) {
        let host = credentials::host(state_dir).unwrap_or_default();
        bail!(
            "this host has already joined, as {host}; run `sesame-agent leave` first, or pass --replace to join again"
        );
    }
    Ok(())
}

/// Without an argument or a file, reads standard input.
fn read_token(argument: Option<&str>, file: Option<&Path>) -> anyhow::Result<String> {
    let limit = MAX_JOIN_TOKEN_BYTES as u64;
    if let Some(token) = argument {
        return Ok(token.to_owned());
    }
    if let Some(path) = file.filter(|path| *path != Path::new("-")) {
        return open::read_text(path, Rule::Named, limit)
            .with_context(|| format!("--token-file {}", path.display()));
    }
    let stdin = std::io::stdin();
    ensure!(
        file.is_some() || !stdin.is_terminal(),
        "no join token: pass it on standard input, or with --token-file"
    );
    let mut text = String::new();
    stdin.take(limit).read_to_string(&mut text)?;
    Ok(text)
}

fn wait(agent: &AgentArgs, limit: Duration) -> Vec<String> {
    let until = Instant::now() + limit;
    loop {
        let reasons = match agent::ask(&agent.socket(), "/status") {
            Ok(Some(answer)) => match serde_json::from_slice::<Report>(&answer) {
                Ok(report) if report.healthy && !report.gateways.is_empty() => return Vec::new(),
                Ok(report) if report.reasons.is_empty() => {
                    vec!["no Gateway to serve yet".to_owned()]
                }
                Ok(report) => report.reasons,
                Err(error) => vec![format!("cannot parse the agent's response: {error}")],
            },
            Ok(None) => {
                vec!["the agent is not running yet; see `journalctl -u sesame-agent`".to_owned()]
            }
            Err(error) => vec![format!("{error:#}")],
        };
        if Instant::now() >= until {
            return reasons;
        }
        std::thread::sleep(EVERY);
    }
}

fn text_of(
    answer: &Joined,
    scope: &HostScope,
    settings: &[(&'static str, serde_json::Value)],
) -> String {
    let Joined {
        host,
        server,
        config,
        set_aside,
        credential_expires: _,
        started,
        serving,
        reasons,
    } = answer;
    let scope = match scope {
        HostScope::Gateways(all) => {
            let names: Vec<String> = all.iter().map(|name| format!("Gateway {name}")).collect();
            names.join(", ")
        }
        HostScope::Fleet(fleet) => format!("the Gateways of fleet {fleet}"),
    };
    let mut text = format!("Host {host} has joined the cluster at {server}, for {scope}.\n");
    if let Some(setting) = set_aside {
        let hint = format!(
            "`{setting}` in {} is commented out; `sesame-agent leave` restores it.\n",
            config.display()
        );
        text.push_str(&hint);
    }
    match (started, serving) {
        (true, Some(true)) => text.push_str("Its service is running and serving.\n"),
        (true, _) => {
            text.push_str("Its service is running, but does not serve everything yet:\n");
            for reason in reasons {
                text.extend(["  ", reason, "\n"]);
            }
            text.push_str("`sesame-agent status` shows its progress.\n");
        }
        (false, _) => {
            let all: Vec<String> = settings
                .iter()
                .map(|(name, value)| option(name, value))
                .collect();
            let next = format!(
                "Its settings are in {}. Start the agent:\n  sesame-agent run {}\n",
                config.display(),
                all.join(" ")
            );
            text.push_str(&next);
        }
    }
    text
}

fn option(name: &str, value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => format!("--{name} {text}"),
        serde_json::Value::Array(all) => {
            let all: Vec<String> = all.iter().map(|value| option(name, value)).collect();
            all.join(" ")
        }
        _ => format!("--{name}"),
    }
}
