//! Protects a listening address with TLS, client certificates and a bearer token. A missing or
//! invalid file must never grant access. Never print a file's content.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sesame_files::open::{self, OpenError, Rule};
use sesame_proto::pem;
use sha2::{Digest as _, Sha256};

const MAX_FILE_BYTES: u64 = 1 << 20;
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

/// Files that control access, as arguments shared by the controller and the agent. If no file is
/// set, all clients are admitted without encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct GuardFiles {
    /// Certificate chain (PEM) for TLS on the metrics address, reloaded on changes.
    #[arg(long, env = "SESAME_METRICS_CERTIFICATE", value_name = "FILE")]
    pub metrics_certificate: Option<PathBuf>,
    /// Private key (PEM) for the metrics certificate.
    #[arg(long, env = "SESAME_METRICS_KEY", value_name = "FILE")]
    pub metrics_key: Option<PathBuf>,
    /// CA certificates (PEM) for client certificates, which the metrics address then requires.
    #[arg(long, env = "SESAME_METRICS_CLIENT_CA", value_name = "FILE")]
    pub metrics_client_ca: Option<PathBuf>,
    /// File with the bearer token that metrics clients must present.
    #[arg(long, env = "SESAME_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
}

impl GuardFiles {
    fn all(&self) -> impl Iterator<Item = &Path> {
        let Self {
            metrics_certificate,
            metrics_key,
            metrics_client_ca,
            metrics_token_file,
        } = self;
        [
            metrics_certificate,
            metrics_key,
            metrics_client_ca,
            metrics_token_file,
        ]
        .into_iter()
        .filter_map(Option::as_deref)
    }
}

/// Error for missing or invalid access control files.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// A file is set, but a file that it requires is not.
    #[error("{given} is set without {missing}; set both")]
    Incomplete {
        /// The file that is set.
        given: &'static str,
        /// The missing file.
        missing: &'static str,
    },
    /// A file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The content of a file is invalid.
    #[error("{path}: {reason}")]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Description of the expected content.
        reason: String,
    },
}

/// Inode, size and modification time of each file, or `None` if missing.
type Fingerprint = Vec<Option<(u64, u64, i64, i64)>>;

/// Access control for an address.
pub struct Guard {
    files: GuardFiles,
    current: Mutex<Current>,
}

struct Current {
    fingerprint: Fingerprint,
    guarding: Guarding,
}

#[derive(Clone)]
struct Guarding {
    tls: Option<Arc<ServerConfig>>,
    token: Option<[u8; 32]>,
}

impl Guard {
    /// Creates a guard from the files' current content.
    pub fn new(files: GuardFiles) -> Result<Self, GuardError> {
        let fingerprint = fingerprint(&files);
        let guarding = Guarding::read(&files)?;
        Ok(Self {
            files,
            current: Mutex::new(Current {
                fingerprint,
                guarding,
            }),
        })
    }

    /// Returns a 401 response, or `None` if the token is correct or not required.
    pub fn refusal(&self, headers: &HeaderMap) -> Option<Response<Bytes>> {
        if self.admits(headers) {
            return None;
        }
        let mut response = Response::new(Bytes::from_static(b"a bearer token is required\n"));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        Some(response)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = self.guarding().token else {
            return true;
        };
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else {
            return false;
        };
        let token = shown.as_bytes().split_at_checked("bearer ".len());
        // Compare digests to keep the comparison time independent of the token.
        token.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(b"bearer ") && digest(token) == wanted
        })
    }

    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.guarding().tls
    }

    /// Reloads changed files, but keeps the previous content if the new content is invalid.
    fn guarding(&self) -> Guarding {
        let now = fingerprint(&self.files);
        // The value is valid even if another thread panicked while holding the lock.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.fingerprint != now {
            match Guarding::read(&self.files) {
                Ok(guarding) => {
                    tracing::info!("reloaded the access control files");
                    current.guarding = guarding;
                }
                Err(error) => {
                    tracing::warn!(%error, "invalid access control files; \
                        keeping the previous ones");
                }
            }
            current.fingerprint = now;
        }
        current.guarding.clone()
    }
}

impl Guarding {
    fn read(files: &GuardFiles) -> Result<Self, GuardError> {
        let GuardFiles {
            metrics_certificate: certificate,
            metrics_key: key,
            metrics_client_ca: client_ca,
            metrics_token_file: token,
        } = files;
        let incomplete = |given, missing| Err(GuardError::Incomplete { given, missing });
        let tls = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Some(Arc::new(tls(certificate, key, client_ca.as_deref())?))
            }
            (Some(_), None) => return incomplete("a certificate", "its private key"),
            (None, Some(_)) => return incomplete("a private key", "its certificate"),
            (None, None) if client_ca.is_some() => {
                return incomplete("a client CA certificate", "a server certificate");
            }
            (None, None) => None,
        };
        let token = token.as_deref().map(read_token).transpose()?;
        Ok(Self { tls, token })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, GuardError> {
    Ok(open::read(path, Rule::Named, MAX_FILE_BYTES)?)
}

fn read_token(path: &Path) -> Result<[u8; 32], GuardError> {
    let bytes = read(path)?;
    let token = bytes.trim_ascii();
    if TOKEN_BYTES.contains(&token.len()) && token.iter().all(u8::is_ascii_graphic) {
        return Ok(digest(token));
    }
    let (least, most) = (TOKEN_BYTES.start(), TOKEN_BYTES.end());
    Err(GuardError::Content {
        path: path.to_owned(),
        reason: format!("expected one token of {least} to {most} visible ASCII characters"),
    })
}

fn tls(
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<ServerConfig, GuardError> {
    let chain = certificates(certificate)?;
    let private = pem::read_first::<PrivateKeyDer<'_>>(&read(key)?)
        .map_err(|error| content(key, "expected a private key in PEM", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| content(certificate, "cannot be used", &error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots
                    .add(authority)
                    .map_err(|error| content(path, "expected CA certificates", &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .map_err(|error| content(path, "expected CA certificates", &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, private).map_err(|error| {
        content(
            certificate,
            "expected the private key's certificate",
            &error,
        )
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, GuardError> {
    let all: Result<Vec<_>, _> = pem::read(&read(path)?).into_iter().collect();
    let all = all.map_err(|error| content(path, "expected certificates in PEM", &error))?;
    if all.is_empty() {
        let error = io::Error::other("there is none");
        return Err(content(path, "expected certificates in PEM", &error));
    }
    Ok(all)
}

fn content(path: &Path, expected: &str, error: &dyn std::error::Error) -> GuardError {
    GuardError::Content {
        path: path.to_owned(),
        reason: format!("{expected}: {error}"),
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn fingerprint(files: &GuardFiles) -> Fingerprint {
    let found = files.all().map(|path| {
        let found = fs::metadata(path).ok()?;
        Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    });
    found.collect()
}
