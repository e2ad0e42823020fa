//! Parses settings such as `secret=NAMESPACE/NAME,certFile=PATH,keyFile=PATH`.

use std::path::PathBuf;

use sesame_kinds::api::NamespacedName;

use super::fields::SettingFields;
use super::request::CertificateRequest;

/// Files that replace one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalFile {
    /// A certificate chain and its key, for a Secret.
    Certificate {
        /// Secret.
        secret: NamespacedName,
        /// Certificate chain.
        cert_file: PathBuf,
        /// Private key.
        key_file: PathBuf,
    },
    /// CA certificates, for a ConfigMap.
    Bundle {
        /// ConfigMap.
        config_map: NamespacedName,
        /// CA certificates.
        ca_file: PathBuf,
        /// Certificate revocation lists.
        crl_file: Option<PathBuf>,
    },
    /// A certificate for a key that the agent generates.
    Requested(CertificateRequest),
}

/// Invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; expected {expected}")]
pub struct LocalFileError {
    why: String,
    expected: &'static str,
}

impl LocalFileError {
    pub(super) fn new(why: String, expected: &'static str) -> Self {
        Self { why, expected }
    }
}

impl LocalFile {
    /// Syntax of a certificate setting.
    pub const CERTIFICATE: &'static str = "secret=NAMESPACE/NAME,certFile=/PATH,keyFile=/PATH";
    /// Syntax of a bundle setting.
    pub const BUNDLE: &'static str = "configMap=NAMESPACE/NAME,caFile=/PATH[,crlFile=/PATH]";

    /// Returns `Secret/namespace/name` or `ConfigMap/namespace/name`.
    pub fn object(&self) -> String {
        match self {
            Self::Certificate { secret, .. } => format!("Secret/{secret}"),
            Self::Requested(request) => format!("Secret/{}", request.secret),
            Self::Bundle { config_map, .. } => format!("ConfigMap/{config_map}"),
        }
    }

    /// Returns the paths of the files. For a request, this is the path of the answer.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Certificate {
                cert_file,
                key_file,
                ..
            } => vec![cert_file.clone(), key_file.clone()],
            Self::Bundle {
                ca_file, crl_file, ..
            } => std::iter::once(ca_file).chain(crl_file).cloned().collect(),
            Self::Requested(request) => vec![request.answer_file()],
        }
    }

    /// Parses a certificate setting.
    pub fn certificate(text: &str) -> Result<Self, LocalFileError> {
        let read = || {
            let mut fields = SettingFields::of(text)?;
            let found = Self::Certificate {
                secret: fields.object("secret")?,
                cert_file: fields.file("certFile")?,
                key_file: fields.file("keyFile")?,
            };
            fields.end().map(|()| found)
        };
        let expected = Self::CERTIFICATE;
        read().map_err(|why| LocalFileError::new(why, expected))
    }

    /// Parses a request setting.
    pub fn request(text: &str) -> Result<Self, LocalFileError> {
        let read = CertificateRequest::parse(text).map(Self::Requested);
        read.map_err(|why| LocalFileError::new(why, CertificateRequest::FORM))
    }

    /// Parses a bundle setting.
    pub fn bundle(text: &str) -> Result<Self, LocalFileError> {
        let read = || {
            let mut fields = SettingFields::of(text)?;
            let has_lists = fields.has("crlFile");
            let found = Self::Bundle {
                config_map: fields.object("configMap")?,
                ca_file: fields.file("caFile")?,
                crl_file: has_lists.then(|| fields.file("crlFile")).transpose()?,
            };
            fields.end().map(|()| found)
        };
        let expected = Self::BUNDLE;
        read().map_err(|why| LocalFileError::new(why, expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_files_parse_and_errors_name_fault() {
        let pair = LocalFile::certificate("secret=default/edge,certFile=/a.crt,keyFile=/a.key");
        let pair = pair.unwrap();
        assert_eq!(pair.object(), "Secret/default/edge");
        assert_eq!(
            pair.files(),
            [PathBuf::from("/a.crt"), PathBuf::from("/a.key")]
        );
        let bundle = LocalFile::bundle("configMap=default/ca, caFile=/ca, crlFile=/crl").unwrap();
        assert_eq!(bundle.object(), "ConfigMap/default/ca");
        assert_eq!(
            bundle.files(),
            [PathBuf::from("/ca"), PathBuf::from("/crl")]
        );
        for (text, words) in [
            ("", "has no `=`"),
            ("certFile=/a,keyFile=/b", "secret is missing"),
            ("secret=a/b,certFile=/a", "keyFile is missing"),
            (
                "secret=a/b,certFile=a,keyFile=/b",
                "expected an absolute path",
            ),
            ("secret=b,certFile=/a,keyFile=/b", "expected NAMESPACE/NAME"),
            (
                "secret=a/B_,certFile=/a,keyFile=/b",
                "expected NAMESPACE/NAME",
            ),
            (
                "secret=a.b/c,certFile=/a,keyFile=/b",
                "expected NAMESPACE/NAME",
            ),
            ("secret=a/b,secret=a/c", "twice"),
            (
                "secret=a/b,certFile=/a,keyFile=/b,caFile=/c",
                "unknown field",
            ),
        ] {
            let error = LocalFile::certificate(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(error.contains("; expected secret="), "{text}: {error}");
        }
        let error = LocalFile::bundle("configMap=a/b").unwrap_err().to_string();
        assert!(
            error.contains("caFile is missing; expected configMap="),
            "{error}"
        );
    }
}
