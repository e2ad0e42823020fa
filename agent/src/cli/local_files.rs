//! Options that replace Secrets and ConfigMaps with files on this host.

use std::path::Path;

use clap::Args;

use sesame_sources::local::LocalFile;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates of this host")]
pub(crate) struct LocalFilesArgs {
    /// Read the certificate and key of this Secret from files on this host, and reload them when
    /// they change; repeatable. In the environment variable, separate entries with `;`.
    #[arg(
        long = "local-certificate",
        env = "SESAME_LOCAL_CERTIFICATES",
        value_delimiter = ';',
        value_parser = LocalFile::certificate,
        value_name = "secret=NAMESPACE/NAME,certFile=PATH,keyFile=PATH"
    )]
    certificates: Vec<LocalFile>,
    /// Read the CA certificates of this ConfigMap from a file on this host, and its revocation
    /// lists from crlFile; repeatable. In the environment variable, separate entries with `;`.
    #[arg(
        long = "local-bundle",
        env = "SESAME_LOCAL_BUNDLES",
        value_delimiter = ';',
        value_parser = LocalFile::bundle,
        value_name = "configMap=NAMESPACE/NAME,caFile=PATH"
    )]
    bundles: Vec<LocalFile>,
    /// Replace this Secret with a key created on this host, and with a certificate requested for
    /// that key; repeatable. Further fields: at least one commonName, dnsName or uri; usage=server
    /// for a listener; and command=/PROGRAM ARGUMENTS or signerName=DOMAIN/NAME to obtain the
    /// certificate, which is otherwise read from a file in the state directory. In the environment
    /// variable, separate entries with `;`.
    #[arg(
        long = "certificate-request",
        env = "SESAME_CERTIFICATE_REQUESTS",
        value_delimiter = ';',
        value_parser = LocalFile::request,
        value_name = "secret=NAMESPACE/NAME,commonName=NAME"
    )]
    requests: Vec<LocalFile>,
}

impl LocalFilesArgs {
    /// Fails on duplicate objects. Files of certificate requests are in the state directory.
    pub(super) fn files(self, state_dir: &Path) -> anyhow::Result<Vec<LocalFile>> {
        let Self {
            certificates,
            bundles,
            requests,
        } = self;
        let requests = requests.into_iter().map(|file| match file {
            LocalFile::Requested(request) => LocalFile::Requested(request.kept_below(state_dir)),
            other => other,
        });
        let mut files: Vec<LocalFile> = Vec::new();
        for file in certificates.into_iter().chain(bundles).chain(requests) {
            let object = file.object();
            if files.iter().any(|other| other.object() == object) {
                anyhow::bail!(
                    "{object} is configured twice in local-certificate, local-bundle or certificate-request; remove one of the entries"
                );
            }
            files.push(file);
        }
        Ok(files)
    }
}
