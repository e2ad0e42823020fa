//! Settings from arguments, environment and configuration file, in this order of precedence.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use sesame_files::open::{self, Rule};
use sesame_proto::dns_name::is_dns_label;
use sesame_proto::signature::SigningKeys;

use crate::engine::Mode;
use crate::publish::Signing;
use crate::run::ProcessSettings;
use sesame_gateway_api::api::Network;
use sesame_gateway_api::resolve::Options;
use sesame_published::names::DEFAULT_NAMESPACE;

/// Largest configuration file; ours are a few lines.
const MAX_FILE_BYTES: u64 = 64 * 1024;
const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);
const DEFAULT_LEASE_SECONDS: u64 = 15;
const DEFAULT_HOST_LOST_SECONDS: u64 = 180;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// YAML file with the same settings by the same names (`controller-name: …`); arguments and environment win.
    #[arg(long, env = "SESAME_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
}

/// All settings, each as an argument, a variable or an entry of the file.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Given {
    /// Name of this controller: only GatewayClasses that name it are served [default: projectsesame.io/gateway-controller]
    #[arg(long, env = "SESAME_CONTROLLER_NAME", value_name = "NAME")]
    controller_name: Option<String>,
    /// Namespace to publish in, which is Sesame's alone [default: sesame-system]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Gateways to serve [default: multiple]
    #[arg(long, env = "SESAME_MODE")]
    mode: Option<ModeArg>,
    /// Allow endpoints on loopback, link-local and metadata addresses
    #[arg(
        long,
        env = "SESAME_ALLOW_LOCAL_ENDPOINTS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    allow_local_endpoints: Option<bool>,
    /// Make a headless Service beside each Gateway, which resolves to the Gateway's addresses [default: true]
    #[arg(
        long,
        env = "SESAME_GATEWAY_SERVICES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    gateway_services: Option<bool>,
    /// Networks where hosts may serve besides the addresses of their Nodes, or without being Nodes, as in
    /// 192.0.2.0/24,2001:db8::/64. Any other address that a host reports is left out [default: none]
    #[arg(
        long,
        env = "SESAME_HOST_ADDRESSES",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    host_addresses: Option<Vec<String>>,
    /// Seconds of silence after which a host is lost and its addresses leave its Gateways: 90 to 86400. Hosts report at
    /// least every 75 seconds [default: 180]
    #[arg(long, env = "SESAME_HOST_LOST_SECONDS", value_name = "SECONDS")]
    host_lost_seconds: Option<u64>,
    /// Kubeconfig for the API server [default: $KUBECONFIG, ~/.kube/config, or the Pod's ServiceAccount]
    #[arg(long, env = "SESAME_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// File of Ed25519 private keys (PEM, PKCS#8), each of which signs everything that is published; agents check that with
    /// --trusted-key
    #[arg(long, env = "SESAME_SIGNING_KEY_FILE", value_name = "FILE")]
    signing_key_file: Option<PathBuf>,
    /// Address to serve /healthz, /readyz and /metrics on [default: 0.0.0.0:8081]
    #[arg(long, env = "SESAME_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Seconds that a leader may be silent before another replica takes over: 3 to 600 [default: 15]
    #[arg(long, env = "SESAME_LEASE_SECONDS", value_name = "SECONDS")]
    lease_seconds: Option<u64>,
    /// Log level: error, warn, info, debug, trace, or filters by module [default: info]
    #[arg(long, env = "SESAME_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Log format, on standard error [default: text]
    #[arg(long, env = "SESAME_LOG_FORMAT")]
    log_format: Option<LogFormat>,
    /// Resolve every change by itself where that is possible, or everything for every change: both give the same outcome.
    #[arg(
        long = "resolve",
        env = "SESAME_RESOLVE",
        hide = true,
        value_parser = PossibleValuesParser::new(["incremental", "full"]).map(|way| way == "incremental")
    )]
    #[serde(skip)]
    incremental: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeArg {
    /// All Gateways of all classes that name this controller
    Multiple,
    /// The oldest Gateway of the oldest such class; the statuses of the others say so
    Single,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object on each line
    Json,
}

impl RunArgs {
    /// Returns the settings, with the log filter and format.
    pub(super) fn settings(self) -> Result<(String, LogFormat, ProcessSettings)> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => Given::default(),
        };
        self.given.over(file)
    }
}

impl Given {
    // Long: one setting after the other.
    fn over(self, file: Self) -> Result<(String, LogFormat, ProcessSettings)> {
        let Self {
            controller_name,
            namespace,
            mode,
            allow_local_endpoints,
            gateway_services,
            host_addresses,
            host_lost_seconds,
            kubeconfig,
            signing_key_file,
            listen,
            lease_seconds,
            log,
            log_format,
            incremental,
        } = self;
        let namespace = namespace
            .or(file.namespace)
            .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        ensure!(
            is_dns_label(&namespace),
            "namespace {namespace:?}: expected at most 63 lower case letters, digits and `-`"
        );
        let defaults = Options::default();
        let controller_name = controller_name
            .or(file.controller_name)
            .unwrap_or(defaults.controller_name);
        ensure!(
            controller_name.contains('/') && controller_name.len() <= 253,
            "controller-name {controller_name:?}: expected a domain and a path, as example.com/controller"
        );
        let lease = lease_seconds
            .or(file.lease_seconds)
            .unwrap_or(DEFAULT_LEASE_SECONDS);
        ensure!(
            (3..=600).contains(&lease),
            "lease-seconds {lease}: expected 3 to 600"
        );
        let host_lost = host_lost_seconds
            .or(file.host_lost_seconds)
            .unwrap_or(DEFAULT_HOST_LOST_SECONDS);
        ensure!(
            (90..=86_400).contains(&host_lost),
            "host-lost-seconds {host_lost}: expected 90 to 86400"
        );
        let host_addresses = host_addresses.or(file.host_addresses).unwrap_or_default();
        let host_addresses = host_addresses
            .iter()
            .map(|network| network.parse().map_err(anyhow::Error::msg))
            .collect::<Result<Vec<Network>>>()
            .context("host-addresses")?;
        let settings = ProcessSettings {
            options: Options {
                controller_name,
                allow_local_endpoints: allow_local_endpoints
                    .or(file.allow_local_endpoints)
                    .unwrap_or(defaults.allow_local_endpoints),
                incremental: incremental.unwrap_or(defaults.incremental),
            },
            namespace,
            mode: match mode.or(file.mode).unwrap_or(ModeArg::Multiple) {
                ModeArg::Multiple => Mode::Multiple,
                ModeArg::Single => Mode::Single,
            },
            kubeconfig: kubeconfig.or(file.kubeconfig),
            signing: signing_keys(signing_key_file.or(file.signing_key_file).as_deref())?,
            listen: listen.or(file.listen).unwrap_or(DEFAULT_LISTEN),
            lease_duration: Duration::from_secs(lease),
            gateway_services: gateway_services.or(file.gateway_services).unwrap_or(true),
            host_addresses,
            host_lost: Duration::from_secs(host_lost),
        };
        let log = log.or(file.log).unwrap_or_else(|| "info".to_owned());
        let format = log_format.or(file.log_format).unwrap_or(LogFormat::Text);
        Ok((log, format, settings))
    }
}

/// Reads the keys from a file that nobody else may have written.
fn signing_keys(path: Option<&Path>) -> Result<Signing> {
    let Some(path) = path else {
        return Ok(Signing::default());
    };
    let at = || format!("--signing-key-file {}", path.display());
    let pem = open::read(path, Rule::Named, MAX_FILE_BYTES).with_context(at)?;
    let keys = SigningKeys::from_pem(&pem).with_context(at)?;
    Ok(Signing(Some(Arc::new(keys))))
}

fn read(path: &Path) -> Result<Given> {
    use std::io::Read as _;
    let at = || format!("--config {}", path.display());
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .with_context(at)?;
    ensure!(
        text.len() as u64 <= MAX_FILE_BYTES,
        "{}: more than {MAX_FILE_BYTES} bytes",
        at()
    );
    parse(&text).with_context(at)
}

fn parse(text: &str) -> Result<Given> {
    // A file with nothing but comments holds no document.
    let file: Option<Given> = serde_saphyr::from_str(text)?;
    Ok(file.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_win_over_the_file_and_the_file_over_defaults() {
        let file = parse(
            "mode: single\nnamespace: here\nlisten: 127.0.0.1:1\nallow-local-endpoints: true\n",
        );
        let given = Given {
            namespace: Some("there".to_owned()),
            incremental: Some(false),
            ..Given::default()
        };
        let (log, format, settings) = given.over(file.expect("a file")).expect("settings");
        assert_eq!(settings.namespace, "there");
        assert_eq!(settings.mode, Mode::Single);
        assert_eq!(settings.listen.port(), 1);
        assert!(settings.options.allow_local_endpoints);
        assert!(!settings.options.incremental);
        assert_eq!(
            settings.options.controller_name,
            Options::default().controller_name
        );
        assert_eq!((log.as_str(), format), ("info", LogFormat::Text));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| match parse(text) {
            Err(error) => format!("{error:#}"),
            Ok(file) => match Given::default().over(file) {
                Err(error) => format!("{error:#}"),
                Ok(_) => panic!("{text}: accepted"),
            },
        };
        assert!(error("mood: single").contains("mood"));
        assert!(error("namespace: ../x").contains("../x"));
        assert!(error("lease-seconds: 1").contains("3 to 600"));
        assert!(error("host-lost-seconds: 60").contains("90 to 86400"));
        assert!(error("host-addresses: [192.0.2.1]").contains("192.0.2.0/24"));
        assert!(error("controller-name: ours").contains("example.com/controller"));
        assert!(parse("# nothing\n").is_ok());
    }
}
