//! The settings that name local files, as `secret=NAMESPACE/NAME,certFile=PATH,keyFile=PATH`. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sesame_gateway_api::api::NamespacedName;
use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

/// Files that stand for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalFile {
    /// A certificate chain and its key, for a Secret.
    Certificate {
        /// The Secret.
        secret: NamespacedName,
        /// File of the certificates.
        cert_file: PathBuf,
        /// File of the key.
        key_file: PathBuf,
    },
    /// Authorities, for a ConfigMap.
    Bundle {
        /// The ConfigMap.
        config_map: NamespacedName,
        /// File of the certificates.
        ca_file: PathBuf,
        /// File of the lists of what they have revoked.
        crl_file: Option<PathBuf>,
    },
}

/// Reason for which a text names no local files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; expected {expected}")]
pub struct LocalFileError {
    why: String,
    expected: &'static str,
}

impl LocalFile {
    /// Form of a certificate.
    pub const CERTIFICATE: &'static str = "secret=NAMESPACE/NAME,certFile=/PATH,keyFile=/PATH";
    /// Form of a bundle.
    pub const BUNDLE: &'static str = "configMap=NAMESPACE/NAME,caFile=/PATH[,crlFile=/PATH]";

    /// Returns the object that the files stand for: `Secret/namespace/name` or `ConfigMap/namespace/name`.
    pub fn object(&self) -> String {
        match self {
            Self::Certificate { secret, .. } => format!("Secret/{secret}"),
            Self::Bundle { config_map, .. } => format!("ConfigMap/{config_map}"),
        }
    }

    /// Returns the files.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            Self::Certificate {
                cert_file,
                key_file,
                ..
            } => vec![cert_file, key_file],
            Self::Bundle {
                ca_file, crl_file, ..
            } => std::iter::once(ca_file)
                .chain(crl_file)
                .map(PathBuf::as_path)
                .collect(),
        }
    }

    /// Reads a certificate.
    pub fn certificate(text: &str) -> Result<Self, LocalFileError> {
        let read = || {
            let mut fields = Fields::of(text)?;
            let found = Self::Certificate {
                secret: fields.object("secret")?,
                cert_file: fields.file("certFile")?,
                key_file: fields.file("keyFile")?,
            };
            fields.end().map(|()| found)
        };
        let expected = Self::CERTIFICATE;
        read().map_err(|why| LocalFileError { why, expected })
    }

    /// Reads a bundle.
    pub fn bundle(text: &str) -> Result<Self, LocalFileError> {
        let read = || {
            let mut fields = Fields::of(text)?;
            let has_lists = fields.0.contains_key("crlFile");
            let found = Self::Bundle {
                config_map: fields.object("configMap")?,
                ca_file: fields.file("caFile")?,
                crl_file: has_lists.then(|| fields.file("crlFile")).transpose()?,
            };
            fields.end().map(|()| found)
        };
        let expected = Self::BUNDLE;
        read().map_err(|why| LocalFileError { why, expected })
    }
}

/// Fields of a text that nobody has taken yet.
struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    fn of(text: &'a str) -> Result<Self, String> {
        let mut fields = BTreeMap::new();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} has no `=`"))?;
            let (name, value) = (name.trim(), value.trim());
            if fields.insert(name, value).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
        Ok(Self(fields))
    }

    fn object(&mut self, field: &str) -> Result<NamespacedName, String> {
        let text = self.take(field)?;
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_label(namespace) && is_dns_subdomain(name) => {
                Ok(NamespacedName::new(namespace, name))
            }
            _ => Err(format!("{field} is {text:?}, which is no NAMESPACE/NAME")),
        }
    }

    fn file(&mut self, field: &str) -> Result<PathBuf, String> {
        let path = Path::new(self.take(field)?);
        if path.is_absolute() {
            Ok(path.to_owned())
        } else {
            let path = path.display().to_string();
            Err(format!("{field} is {path:?}, which is no absolute path"))
        }
    }

    fn take(&mut self, field: &str) -> Result<&'a str, String> {
        let value = self.0.remove(field);
        value.ok_or_else(|| format!("{field} is missing"))
    }

    /// Refuses what nobody has taken.
    fn end(self) -> Result<(), String> {
        match self.0.keys().next() {
            Some(other) => Err(format!("{other:?} has no place here")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_understood_and_what_is_wrong_is_named() {
        let pair = LocalFile::certificate("secret=default/edge,certFile=/a.crt,keyFile=/a.key");
        let pair = pair.unwrap();
        assert_eq!(pair.object(), "Secret/default/edge");
        assert_eq!(pair.files(), [Path::new("/a.crt"), Path::new("/a.key")]);
        let bundle = LocalFile::bundle("configMap=default/ca, caFile=/ca, crlFile=/crl").unwrap();
        assert_eq!(bundle.object(), "ConfigMap/default/ca");
        assert_eq!(bundle.files(), [Path::new("/ca"), Path::new("/crl")]);
        for (text, words) in [
            ("", "has no `=`"),
            ("certFile=/a,keyFile=/b", "secret is missing"),
            ("secret=a/b,certFile=/a", "keyFile is missing"),
            ("secret=a/b,certFile=a,keyFile=/b", "no absolute path"),
            ("secret=b,certFile=/a,keyFile=/b", "no NAMESPACE/NAME"),
            ("secret=a/B_,certFile=/a,keyFile=/b", "no NAMESPACE/NAME"),
            ("secret=a.b/c,certFile=/a,keyFile=/b", "no NAMESPACE/NAME"),
            ("secret=a/b,secret=a/c", "twice"),
            (
                "secret=a/b,certFile=/a,keyFile=/b,caFile=/c",
                "no place here",
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
