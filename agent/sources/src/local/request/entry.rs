//! Parses the setting for a certificate request: `secret=NAMESPACE/NAME,commonName=NAME,…`.

use std::path::{Path, PathBuf};

use sesame_kinds::api::NamespacedName;
use sesame_proto::dns_name::{is_dns_label, is_dns_subdomain};

use crate::local::fields::SettingFields;

const MAX_NAMES: usize = 16;
/// Maximum length of a common name (RFC 5280, `ub-common-name`).
const LONGEST_COMMON_NAME: usize = 64;
/// Maximum length of a SPIFFE ID.
const LONGEST_URI: usize = 2048;
/// The API server rejects shorter lifetimes.
const SECONDS: std::ops::RangeInclusive<i32> = 600..=31_536_000;

/// A certificate that replaces a Secret, for a key that the agent generates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Secret.
    pub secret: NamespacedName,
    /// Names that the certificate must contain.
    pub names: RequestedNames,
    /// Usage of the certificate.
    pub usage: RequestedUsage,
    /// Source of the answer.
    pub answerer: Answerer,
    /// Directory for the request, its answer and the key.
    pub directory: PathBuf,
}

/// Names in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedNames {
    /// Common name of the subject.
    pub common_name: Option<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// URIs, such as a SPIFFE ID.
    pub uris: Vec<String>,
}

/// Usage of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedUsage {
    /// The host presents the certificate to backends.
    Client,
    /// A listener presents the certificate.
    Server,
}

/// Source of the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// An operator has a CA sign the request, and copies the certificate back.
    Operator,
    /// A program, with its arguments.
    Command(Vec<String>),
    /// A signer in the cluster.
    Signer {
        /// Name of the signer.
        name: String,
        /// Lifetime to request.
        seconds: Option<i32>,
    },
}

impl CertificateRequest {
    /// Syntax of the setting.
    pub const FORM: &'static str = "secret=NAMESPACE/NAME with commonName=, dnsName= or uri=, and optionally usage=client|server, signerName=DOMAIN/NAME, expirationSeconds=600..31536000 or command=/PROGRAM ARGUMENTS";

    pub(in crate::local) fn parse(text: &str) -> Result<Self, String> {
        let mut fields = SettingFields::of(text)?;
        let secret = fields.object("secret")?;
        let names = RequestedNames {
            common_name: fields.optional("commonName")?.map(str::to_owned),
            dns_names: owned(fields.all("dnsName")),
            uris: owned(fields.all("uri")),
        };
        names.check()?;
        let usage = match fields.optional("usage")? {
            None | Some("client") => RequestedUsage::Client,
            Some("server") => RequestedUsage::Server,
            Some(other) => return Err(format!("usage is {other:?}, expected client or server")),
        };
        let answerer = answerer(&mut fields)?;
        fields.end()?;
        Ok(Self {
            secret,
            names,
            usage,
            answerer,
            directory: PathBuf::new(),
        })
    }

    /// The path is safe: the Secret's namespace and name are DNS names from the host's own
    /// settings.
    #[must_use]
    pub fn kept_below(mut self, state: &Path) -> Self {
        let NamespacedName { namespace, name } = &self.secret;
        self.directory = state.join("requests").join(namespace).join(name);
        self
    }

    /// Returns the path of the expected answer.
    pub fn answer_file(&self) -> PathBuf {
        self.directory.join("certificate.pem")
    }

    /// Returns the path of the request.
    pub fn request_file(&self) -> PathBuf {
        self.directory.join("request.pem")
    }

    /// A new request is needed if this line changes.
    pub(super) fn purpose(&self) -> String {
        format!("{:?} {:?}", self.names, self.usage)
    }
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn answerer(fields: &mut SettingFields<'_>) -> Result<Answerer, String> {
    let signer = fields.optional("signerName")?;
    let command = fields.optional("command")?;
    let seconds = fields.optional("expirationSeconds")?;
    if seconds.is_some() && signer.is_none() {
        return Err("expirationSeconds needs a signerName".to_owned());
    }
    match (signer, command) {
        (None, None) => Ok(Answerer::Operator),
        (Some(_), Some(_)) => {
            Err("signerName and command are both set; remove one of them".to_owned())
        }
        (None, Some(command)) => {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            match words.first() {
                Some(program) if Path::new(program).is_absolute() => Ok(Answerer::Command(words)),
                _ => Err(format!(
                    "command is {command:?}, expected an absolute path first"
                )),
            }
        }
        (Some(name), None) => {
            let parts = name.split_once('/');
            let is_name = |(domain, path): (&str, &str)| {
                domain.contains('.') && is_dns_subdomain(domain) && is_dns_subdomain(path)
            };
            if !parts.is_some_and(is_name) {
                return Err(format!("signerName is {name:?}, expected DOMAIN/NAME"));
            }
            let read = |text: &str| {
                let seconds = text.parse().ok().filter(|it| SECONDS.contains(it));
                seconds.ok_or_else(|| format!("expirationSeconds is {text:?}"))
            };
            Ok(Answerer::Signer {
                name: name.to_owned(),
                seconds: seconds.map(read).transpose()?,
            })
        }
    }
}

impl RequestedNames {
    fn check(&self) -> Result<(), String> {
        let Self {
            common_name,
            dns_names,
            uris,
        } = self;
        if common_name.is_none() && dns_names.is_empty() && uris.is_empty() {
            return Err("it has no name".to_owned());
        }
        if dns_names.len() > MAX_NAMES || uris.len() > MAX_NAMES {
            return Err(format!(
                "it has more than {MAX_NAMES} names of the same kind"
            ));
        }
        if let Some(name) = common_name
            && (name.is_empty()
                || name.len() > LONGEST_COMMON_NAME
                || name.chars().any(char::is_control))
        {
            return Err(format!(
                "commonName is {name:?}, expected 1 to {LONGEST_COMMON_NAME} bytes of text"
            ));
        }
        for name in dns_names {
            let rest = name.strip_prefix("*.").unwrap_or(name);
            if !is_dns_subdomain(rest) || !rest.split('.').all(is_dns_label) {
                return Err(format!("dnsName is {name:?}, expected a DNS name"));
            }
        }
        for uri in uris {
            let scheme = uri.split_once("://").map_or("", |(scheme, _)| scheme);
            let is_uri = is_dns_label(scheme)
                && uri.len() <= LONGEST_URI
                && uri.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_uri {
                return Err(format!("uri is {uri:?}, expected a URI"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_request_parses_and_errors_name_fault() {
        let read = CertificateRequest::parse(
            "secret=default/edge,commonName=edge 1,dnsName=a.test,dnsName=*.b.test,uri=spiffe://a.test/edge,signerName=example.com/edge,expirationSeconds=3600",
        );
        let read = read.unwrap().kept_below(Path::new("/s"));
        assert_eq!(read.names.dns_names, ["a.test", "*.b.test"]);
        assert_eq!(read.names.uris, ["spiffe://a.test/edge"]);
        assert_eq!(
            read.request_file(),
            Path::new("/s/requests/default/edge/request.pem")
        );
        let signer = Answerer::Signer {
            name: "example.com/edge".to_owned(),
            seconds: Some(3600),
        };
        assert_eq!(read.answerer, signer);
        let run =
            CertificateRequest::parse("secret=a/b,dnsName=a.test,usage=server,command=/bin/a -b c");
        let run = run.unwrap();
        assert_eq!(run.usage, RequestedUsage::Server);
        let words = ["/bin/a", "-b", "c"].map(str::to_owned).to_vec();
        assert_eq!(run.answerer, Answerer::Command(words));
        for (rest, words) in [
            ("", "no `=`"),
            ("usage=client", "it has no name"),
            ("commonName=a,commonName=b", "commonName is set twice"),
            ("commonName=", "commonName is"),
            ("dnsName=a_b", "expected a DNS name"),
            ("uri=a b://c", "expected a URI"),
            ("uri=spiffe:a", "expected a URI"),
            ("commonName=a,usage=both", "expected client or server"),
            ("commonName=a,signerName=edge", "expected DOMAIN/NAME"),
            ("commonName=a,signerName=a.b/../c", "expected DOMAIN/NAME"),
            ("commonName=a,expirationSeconds=900", "needs a signerName"),
            (
                "commonName=a,signerName=a.b/c,expirationSeconds=9",
                "expirationSeconds is",
            ),
            ("commonName=a,command=openssl", "absolute path"),
            ("commonName=a,signerName=a.b/c,command=/x", "both set"),
            ("commonName=a,keyFile=/x", "unknown field"),
        ] {
            let error = CertificateRequest::parse(&format!("secret=a/b,{rest}")).unwrap_err();
            assert!(error.contains(words), "{rest}: {error}");
        }
    }
}
