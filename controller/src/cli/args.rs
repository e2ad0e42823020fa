//! Reads settings from arguments and environment variables, which override the configuration.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use sesame_files::open::{self, Rule};
use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};
use sesame_proto::signature::SigningKeys;

use super::metrics_address::MetricsAddressArgs;
use crate::configuration::{ConfigurationSource, read, settings};
use crate::publish::Signing;
use crate::replica::{WatchedLayers, WatchedNamespaces};
use crate::run::ProcessSettings;
use sesame_kinds::api::{
    FleetImages, FleetSettings, GatewaySelection, HostRules, NamespacedName, Publishing,
    PublishingType, SelectionMode, SesameConfigurationSpec,
};
use sesame_published::names::DEFAULT_NAMESPACE;
use sesame_spans::SpanArgs;

const MAX_FILE_BYTES: u64 = 64 * 1024;
const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);
/// Default lease duration, short because nothing is published without a leader. Failover is cheap,
/// because every replica is up to date.
const DEFAULT_LEASE_SECONDS: u64 = 6;
/// Default of `--memory-mib`, equal to the container's memory limit in `controller/deploy`.
const DEFAULT_MEMORY_MIB: u64 = 512;
/// Maximum number of namespaces, because each needs one watch per kind.
const MAX_NAMESPACES: usize = 100;

#[derive(Debug, Default, Args)]
pub(super) struct RunArgs {
    /// YAML file with a SesameConfiguration, reloaded on changes. Arguments and environment
    /// variables take precedence
    #[arg(
        long,
        env = "SESAME_CONFIG",
        value_name = "FILE",
        conflicts_with = "configuration"
    )]
    config: Option<PathBuf>,
    /// SesameConfiguration object to watch, as NAMESPACE/NAME, or NAME in the namespace to publish
    /// in; nothing is served until the object exists. Arguments and environment variables take
    /// precedence
    #[arg(long, env = "SESAME_CONFIGURATION", value_name = "NAME")]
    configuration: Option<String>,
    /// Controller name: only GatewayClasses with this spec.controllerName are served [default: projectsesame.io/gateway-controller]
    #[arg(long, env = "SESAME_CONTROLLER_NAME", value_name = "NAME")]
    controller_name: Option<String>,
    /// Namespace to publish in, reserved for Sesame [default: sesame-system]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Namespace to watch for Gateways, routes and referenced objects; repeatable. Objects in other
    /// namespaces are ignored, and the controller needs no permissions there [default: all]
    #[arg(
        long = "watch-namespace",
        env = "SESAME_WATCH_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    watch_namespaces: Vec<String>,
    /// Gateways to serve; overrides the configuration [default: multiple]
    #[arg(long, env = "SESAME_MODE")]
    mode: Option<ModeArg>,
    /// Allow endpoints on loopback, link-local and metadata addresses
    #[arg(
        long,
        env = "SESAME_ALLOW_LOCAL_ENDPOINTS",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    allow_local_endpoints: Option<bool>,
    /// Maintain a Service for each Gateway, unless configured otherwise; `false` disables Services
    /// regardless of the configuration [default: true]
    #[arg(
        long,
        env = "SESAME_GATEWAY_SERVICES",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    gateway_services: Option<bool>,
    /// Read Ingresses; `false` needs no permissions for them [default: true]
    #[arg(
        long,
        env = "SESAME_INGRESSES",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    ingresses: Option<bool>,
    /// Read HTTPProxies, ExtensionServices and TLSCertificateDelegations; `false` needs no
    /// permissions for them [default: true]
    #[arg(
        long,
        env = "SESAME_HTTP_PROXIES",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL"
    )]
    http_proxies: Option<bool>,
    /// Default image for agents in managed fleets; a configuration can override it
    #[arg(long, env = "SESAME_AGENT_IMAGE", value_name = "IMAGE")]
    agent_image: Option<String>,
    /// Default image for Envoy in managed fleets; a configuration can override it
    #[arg(long, env = "SESAME_ENVOY_IMAGE", value_name = "IMAGE")]
    envoy_image: Option<String>,
    /// Networks whose addresses hosts may report, in addition to their Nodes' addresses, such as
    /// 192.0.2.0/24,2001:db8::/64. Other reported addresses are ignored [default: none]
    #[arg(
        long,
        env = "SESAME_HOST_ADDRESSES",
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    host_addresses: Option<Vec<String>>,
    /// Seconds without a report after which a host is lost and its addresses are removed from its
    /// Gateways: 90 to 86400. By default, hosts report at least every 75 seconds [default: 180]
    #[arg(long, env = "SESAME_HOST_LOST_SECONDS", value_name = "SECONDS")]
    host_lost_seconds: Option<u64>,
    /// Kubeconfig for the API server; by default $KUBECONFIG, ~/.kube/config, or the Pod's
    /// ServiceAccount
    #[arg(long, env = "SESAME_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// File with Ed25519 private keys (PEM, PKCS#8). Each key signs every publication; agents
    /// verify the signatures with --trusted-key
    #[arg(long, env = "SESAME_SIGNING_KEY_FILE", value_name = "FILE")]
    signing_key_file: Option<PathBuf>,
    /// Program that adds and removes TXT records for certificates by ACME, with spec.acme.challenge
    /// DNS01. Run as `PROGRAM present|cleanup NAME VALUE`; `present` must end after the record is
    /// visible
    #[arg(long, env = "SESAME_ACME_DNS_HOOK", value_name = "PROGRAM")]
    acme_dns_hook: Option<PathBuf>,
    /// Address for /healthz, /readyz and, without --metrics-address, /metrics [default:
    /// 0.0.0.0:8081]
    #[arg(long, env = "SESAME_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsAddressArgs,
    /// Seconds that a leader may be silent before another replica takes over: 3 to 600 [default: 6]
    #[arg(long, env = "SESAME_LEASE_SECONDS", value_name = "SECONDS")]
    lease_seconds: Option<u64>,
    /// Controller memory in MiB: 16 to 16777216. The expanded routes of all Gateways may use a
    /// quarter of this memory; beyond that, the largest Gateways lose their newest routes [default:
    /// 512]
    #[arg(long, env = "SESAME_MEMORY_MIB", value_name = "MIB")]
    memory_mib: Option<u64>,
    #[command(flatten)]
    spans: SpanArgs,
    /// Log level: error, warn, info, debug, trace, or filters by module [default: info]
    #[arg(long, env = "SESAME_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Log format, on standard error [default: text]
    #[arg(long, env = "SESAME_LOG_FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// All Gateways of this controller's GatewayClasses
    Multiple,
    /// Only the oldest Gateway of the controller's oldest GatewayClass; the statuses of other
    /// Gateways explain why they are not served
    Single,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Human-readable text
    Text,
    /// One JSON object per line
    Json,
}

impl RunArgs {
    #[expect(
        clippy::too_many_lines,
        reason = "it destructures every argument, so that none is forgotten"
    )]
    pub(super) fn settings(self) -> Result<(String, LogFormat, ProcessSettings)> {
        let Self {
            config,
            configuration,
            controller_name,
            namespace,
            watch_namespaces,
            mode,
            allow_local_endpoints,
            gateway_services,
            ingresses,
            http_proxies,
            agent_image,
            envoy_image,
            host_addresses,
            host_lost_seconds,
            kubeconfig,
            signing_key_file,
            acme_dns_hook,
            listen,
            metrics,
            lease_seconds,
            memory_mib,
            spans,
            log,
            log_format,
        } = self;
        let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        ensure!(
            is_dns_label(&namespace),
            "namespace {namespace:?}: expected at most 63 lowercase letters, digits and `-`"
        );
        let lease = lease_seconds.unwrap_or(DEFAULT_LEASE_SECONDS);
        ensure!(
            (3..=600).contains(&lease),
            "lease-seconds {lease}: expected 3 to 600"
        );
        let flags = SesameConfigurationSpec {
            gateway: Some(GatewaySelection {
                controller_name,
                mode: mode.map(|mode| match mode {
                    ModeArg::Multiple => SelectionMode::Multiple,
                    ModeArg::Single => SelectionMode::Single,
                }),
                gateway_ref: None,
                allow_local_endpoints,
                extra_minimal_ocg: None,
            }),
            hosts: Some(HostRules {
                addresses: host_addresses,
                lost_after: host_lost_seconds.map(|seconds| format!("{seconds}s")),
            }),
            publishing: gateway_services.filter(|kept| !kept).map(|_| Publishing {
                type_: Some(PublishingType::None),
                ..Publishing::default()
            }),
            fleet: Some(FleetSettings {
                images: Some(FleetImages {
                    agent: agent_image,
                    envoy: envoy_image,
                }),
                ..FleetSettings::default()
            }),
            ..SesameConfigurationSpec::default()
        };
        if let Some(program) = acme_dns_hook.as_deref().filter(|it| !it.is_absolute()) {
            let program = program.display();
            bail!("acme-dns-hook {program}: expected an absolute path");
        }
        let memory = memory_mib.unwrap_or(DEFAULT_MEMORY_MIB);
        ensure!(
            (16..=16_777_216).contains(&memory),
            "memory-mib {memory}: expected 16 to 16777216"
        );
        let watched = watched_namespaces(watch_namespaces, &namespace)?;
        let source = match (config, configuration) {
            (Some(path), _) => ConfigurationSource::File(path),
            (None, Some(name)) => ConfigurationSource::Object(object(&name, &namespace)?),
            (None, None) => ConfigurationSource::Flags,
        };
        if let ConfigurationSource::Object(name) = &source {
            ensure!(
                name.namespace == namespace || watched.holds(&name.namespace),
                "--configuration {name}: expected a SesameConfiguration in {namespace}, or in a namespace that --watch-namespace names"
            );
        }
        let first = match &source {
            ConfigurationSource::File(path) => Some(read(path).map_err(anyhow::Error::msg)?),
            ConfigurationSource::Flags | ConfigurationSource::Object(_) => None,
        };
        settings(&flags, first.as_ref(), memory).map_err(anyhow::Error::msg)?;
        let process = ProcessSettings {
            source,
            flags,
            memory_mib: memory,
            namespace,
            watched,
            layers: WatchedLayers {
                ingresses: ingresses.unwrap_or(true),
                http_proxies: http_proxies.unwrap_or(true),
            },
            kubeconfig,
            signing: signing_keys(signing_key_file.as_deref())?,
            acme_dns_hook,
            listen: listen.unwrap_or(DEFAULT_LISTEN),
            metrics: metrics.address()?,
            lease_duration: Duration::from_secs(lease),
            spans: spans.settings()?,
        };
        let log = log.unwrap_or_else(|| "info".to_owned());
        Ok((log, log_format.unwrap_or(LogFormat::Text), process))
    }
}

fn object(text: &str, namespace: &str) -> Result<NamespacedName> {
    let (namespace, name) = text.split_once('/').unwrap_or((namespace, text));
    ensure!(
        is_dns_label(namespace) && is_dns_subdomain(name),
        "--configuration {text:?}: expected NAMESPACE/NAME or NAME of a SesameConfiguration"
    );
    Ok(NamespacedName::new(namespace, name))
}

/// `own` is the namespace in which the controller publishes.
fn watched_namespaces(names: Vec<String>, own: &str) -> Result<WatchedNamespaces> {
    if names.is_empty() {
        return Ok(WatchedNamespaces::All);
    }
    for name in &names {
        ensure!(
            is_dns_label(name),
            "--watch-namespace {name:?}: expected at most 63 lowercase letters, digits and `-`"
        );
        ensure!(
            name != own,
            "--watch-namespace {name:?}: the controller publishes to this namespace, and does not \
            serve Gateways there"
        );
    }
    let names: BTreeSet<String> = names.into_iter().collect();
    let count = names.len();
    ensure!(
        count <= MAX_NAMESPACES,
        "--watch-namespace: {count} namespaces, expected at most {MAX_NAMESPACES}; omit it to watch all"
    );
    Ok(WatchedNamespaces::Only(names))
}

fn signing_keys(path: Option<&Path>) -> Result<Signing> {
    let Some(path) = path else {
        return Ok(Signing::default());
    };
    let at = || format!("--signing-key-file {}", path.display());
    let pem = open::read(path, Rule::Named, MAX_FILE_BYTES).with_context(at)?;
    let keys = SigningKeys::from_pem(&pem).with_context(at)?;
    Ok(Signing(Some(Arc::new(keys))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::SelectionRule;

    #[test]
    fn arguments_become_fields_of_the_configuration() {
        let given = RunArgs {
            namespace: Some("there".to_owned()),
            configuration: Some("sesame".to_owned()),
            mode: Some(ModeArg::Single),
            host_lost_seconds: Some(300),
            gateway_services: Some(false),
            ingresses: Some(false),
            ..RunArgs::default()
        };
        let (log, format, process) = given.settings().expect("settings");
        let layers = WatchedLayers {
            ingresses: false,
            http_proxies: true,
        };
        assert_eq!(process.layers, layers);
        let own = NamespacedName::new("there", "sesame");
        assert_eq!(process.source, ConfigurationSource::Object(own));
        assert_eq!((log.as_str(), format), ("info", LogFormat::Text));
        let made = settings(&process.flags, None, 512).expect("settings");
        assert_eq!(made.selection, SelectionRule::Single);
        assert_eq!(made.host_lost, Duration::from_secs(300));
        let publishing = &process.flags.publishing.expect("publishing type None");
        assert_eq!(publishing.type_, Some(PublishingType::None));
    }

    #[test]
    fn bool_options_take_a_value_either_way() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            run: RunArgs,
        }
        let given = |arguments: &[&str]| {
            let line = [&["run"], arguments].concat();
            let run = <Line as clap::Parser>::try_parse_from(line)
                .expect("options")
                .run;
            (run.allow_local_endpoints, run.gateway_services)
        };
        for (arguments, expected) in [
            (&["--allow-local-endpoints"][..], (Some(true), None)),
            (&["--allow-local-endpoints", "true"], (Some(true), None)),
            (&["--allow-local-endpoints=false"], (Some(false), None)),
            (
                &["--allow-local-endpoints", "--gateway-services", "false"],
                (Some(true), Some(false)),
            ),
        ] {
            assert_eq!(given(arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn invalid_arguments_are_reported() {
        let error = |given: RunArgs| match given.settings() {
            Err(error) => format!("{error:#}"),
            Ok(_) => panic!("accepted"),
        };
        let none = RunArgs::default;
        let text = |text: &str| Some(text.to_owned());
        for (given, expected) in [
            (
                RunArgs {
                    namespace: text("../x"),
                    ..none()
                },
                "../x",
            ),
            (
                RunArgs {
                    memory_mib: Some(8),
                    ..none()
                },
                "memory-mib 8",
            ),
            (
                RunArgs {
                    lease_seconds: Some(1),
                    ..none()
                },
                "3 to 600",
            ),
            (
                RunArgs {
                    host_lost_seconds: Some(60),
                    ..none()
                },
                "90s to 24h",
            ),
            (
                RunArgs {
                    acme_dns_hook: Some("hook".into()),
                    ..none()
                },
                "acme-dns-hook hook: expected an absolute path",
            ),
            (
                RunArgs {
                    controller_name: text("ours"),
                    ..none()
                },
                "example.com/controller",
            ),
            (
                RunArgs {
                    watch_namespaces: vec!["shop".to_owned(), String::new()],
                    ..none()
                },
                "--watch-namespace \"\"",
            ),
            (
                RunArgs {
                    watch_namespaces: vec!["sesame-system".to_owned()],
                    ..none()
                },
                "the controller publishes to this namespace",
            ),
            (
                RunArgs {
                    watch_namespaces: (0..=MAX_NAMESPACES).map(|n| format!("n{n}")).collect(),
                    ..none()
                },
                "at most 100",
            ),
            (
                RunArgs {
                    watch_namespaces: vec!["shop".to_owned()],
                    configuration: text("infra/sesame"),
                    ..none()
                },
                "a namespace that --watch-namespace names",
            ),
            (
                RunArgs {
                    configuration: text("a/b/c"),
                    ..none()
                },
                "NAMESPACE/NAME",
            ),
            (
                RunArgs {
                    config: Some("/nowhere/sesame.yaml".into()),
                    ..none()
                },
                "/nowhere/sesame.yaml",
            ),
        ] {
            let why = error(given);
            assert!(why.contains(expected), "{expected}: {why}");
        }
        let networks = Some(vec!["192.0.2.1".to_owned()]);
        let why = error(RunArgs {
            host_addresses: networks,
            ..none()
        });
        assert!(why.contains("192.0.2.0/24"), "{why}");
    }
}
