//! Connects to the cluster with the caller's credentials, and determines how new hosts reach it.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;
use kube::{Client, Config};

use super::HostsError;
use crate::connection;

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    config: Config,
    server: String,
    authority: String,
    server_name: Option<String>,
    is_verified: bool,
}

impl Cluster {
    pub(crate) async fn open(
        kubeconfig: Option<PathBuf>,
        namespace: String,
    ) -> anyhow::Result<Self> {
        let config = connection::config(kubeconfig.as_deref()).await?;
        let Config {
            cluster_url,
            root_cert,
            accept_invalid_certs,
            tls_server_name,
            ..
        } = &config;
        let server = cluster_url.to_string().trim_end_matches('/').to_owned();
        let authority = root_cert.iter().flatten().map(|der| pem(der)).collect();
        let server_name = tls_server_name.clone();
        let is_verified = !accept_invalid_certs;
        Ok(Self {
            client: Client::try_from(config.clone())?,
            namespace,
            config,
            server,
            authority,
            server_name,
            is_verified,
        })
    }

    pub(super) fn server(&self, named: Option<&str>) -> Result<String, HostsError> {
        let server = named.unwrap_or(&self.server).trim_end_matches('/');
        if !self.is_verified {
            return Err(HostsError::Insecure);
        }
        if !server.starts_with("https://") {
            return Err(HostsError::Server(server.to_owned()));
        }
        Ok(server.to_owned())
    }

    pub(super) fn bearing(&self, token: &str) -> Result<Client, HostsError> {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        config.auth_info.token = Some(token.to_owned().into());
        Client::try_from(config)
            .map_err(|error| HostsError::from_kube("use the join token", &error))
    }

    /// Returns PEM certificates, or an empty string if the kubeconfig has no certificate authority.
    pub(super) fn authority(&self) -> String {
        self.authority.clone()
    }

    /// Returns the name to verify in the server's certificate, instead of the URL's host name.
    pub(super) fn server_name(&self) -> Option<String> {
        self.server_name.clone()
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem + "-----END CERTIFICATE-----\n"
}
