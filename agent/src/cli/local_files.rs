//! Options that name files of this host in place of Secrets and ConfigMaps.

use clap::Args;

use crate::source::local::LocalFile;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates of this host")]
pub(crate) struct LocalFilesArgs {
    /// Take the certificate and key of this Secret from files of this host, which are followed when they are renewed; repeatable. The
    /// Secret need not exist anywhere else. In the variable, `;` separates several.
    #[arg(
        long = "local-certificate",
        env = "SESAME_LOCAL_CERTIFICATES",
        value_delimiter = ';',
        value_parser = LocalFile::certificate,
        value_name = "secret=NAMESPACE/NAME,certFile=PATH,keyFile=PATH"
    )]
    certificates: Vec<LocalFile>,
    /// Take the CA certificates of this ConfigMap from a file of this host, and with crlFile its revocation lists; repeatable. In the
    /// variable, `;` separates several.
    #[arg(
        long = "local-bundle",
        env = "SESAME_LOCAL_BUNDLES",
        value_delimiter = ';',
        value_parser = LocalFile::bundle,
        value_name = "configMap=NAMESPACE/NAME,caFile=PATH"
    )]
    bundles: Vec<LocalFile>,
}

impl LocalFilesArgs {
    /// Returns the files; refuses two for one object.
    pub(super) fn files(self) -> anyhow::Result<Vec<LocalFile>> {
        let Self {
            certificates,
            bundles,
        } = self;
        let mut files: Vec<LocalFile> = Vec::new();
        for file in certificates.into_iter().chain(bundles) {
            let object = file.object();
            if files.iter().any(|other| other.object() == object) {
                anyhow::bail!(
                    "local-certificate and local-bundle name {object} twice; remove one of them"
                );
            }
            files.push(file);
        }
        Ok(files)
    }
}
