//! `sesame-controller explain`: shows which route of a published Gateway handles a request, and
//! why.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use sesame_explain::{ExplainRequest, Explainer, TextDetail, text};
use sesame_kinds::api::NamespacedName;
use sesame_published::names::DEFAULT_NAMESPACE;

use super::hosts::{gateway, namespace};
use super::published;
use crate::connection::ClusterConnection;

#[derive(Debug, Args)]
#[command(
    override_usage = "sesame-controller explain --gateway <NAMESPACE/NAME> [OPTIONS] [METHOD] <URL>"
)]
pub(super) struct PublishedRequestArgs {
    /// Published name of the Gateway that receives the request.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = gateway)]
    gateway: NamespacedName,
    #[command(flatten)]
    request: RequestArgs,
    /// Show all routes for the host, including routes for other paths.
    #[arg(long)]
    all_routes: bool,
    /// Namespace in which the controller publishes.
    #[arg(long, env = "SESAME_NAMESPACE", default_value = DEFAULT_NAMESPACE, value_name = "NAMESPACE", value_parser = namespace)]
    namespace: String,
    /// Kubeconfig for the API server; by default $KUBECONFIG, ~/.kube/config, or the Pod's ServiceAccount.
    #[arg(long, env = "SESAME_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: ExplanationFormat,
}

/// A request to explain.
#[derive(Debug, Args)]
pub(super) struct RequestArgs {
    /// Request header; repeatable. `Host` overrides the host in the URL.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Server name in the TLS handshake; defaults to the host in the URL.
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Assume that the client presents a valid certificate if asked.
    #[arg(long)]
    client_cert: bool,
    /// Client address, assuming a direct connection; if unset, address filters do not apply.
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    /// Method (default GET), and URL with the port that clients connect to.
    #[arg(value_names = ["METHOD", "URL"], num_args = 1..=2, required = true)]
    request: Vec<String>,
}

impl RequestArgs {
    pub(super) fn parse(&self) -> Result<ExplainRequest> {
        let (method, url) = match self.request.as_slice() {
            [method, url] => (method.as_str(), url.as_str()),
            [url] => ("GET", url.as_str()),
            _ => ("GET", ""),
        };
        Ok(ExplainRequest {
            client_certificate: self.client_cert,
            client: self.client,
            ..ExplainRequest::parse(method, url, &self.headers, self.sni.as_deref())?
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ExplanationFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// JSON for scripts.
    Json,
    /// The same content as YAML.
    Yaml,
}

/// Returns true if a route matches the request.
pub(super) fn main(args: &PublishedRequestArgs) -> Result<bool> {
    let request = args.request.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let snapshot = runtime.block_on(async {
        let connection = ClusterConnection::open(args.kubeconfig.clone()).await?;
        let read = published::read(&connection.client, &args.namespace, &args.gateway);
        Ok::<_, anyhow::Error>(read.await?.snapshot)
    })?;
    let explanation = Explainer::new(&snapshot).explain(&request);
    let detail = if args.all_routes {
        TextDetail::AllRoutes
    } else {
        TextDetail::Brief
    };
    let document = match args.output {
        ExplanationFormat::Text => text(&explanation, detail),
        ExplanationFormat::Json => serde_json::to_string_pretty(&explanation)? + "\n",
        ExplanationFormat::Yaml => serde_saphyr::to_string(&explanation)?,
    };
    super::output(document.as_bytes())?;
    Ok(explanation.route.is_some())
}
