//! The running quickstart: two echo backends, and a real agent that serves `tests/data/quickstart`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::client::{Reply, Request};

/// The host name that the quickstart serves.
pub const HOST: &str = "demo.example.com";

/// Names and ports of the backends in `backends.yaml`.
pub const BACKENDS: [(&str, u16); 2] = [("blue", 9001), ("green", 9002)];

const RENEW_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

const VALID_DAYS: i64 = 90;

/// Starts the quickstart's backends.
pub async fn backends() -> Result<Vec<Backend>> {
    let mut backends = Vec::new();
    for (name, port) in BACKENDS {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let backend = Backend::start_at(name, address).await;
        backends.push(backend.with_context(|| format!("start the backend {name} on {address}"))?);
    }
    Ok(backends)
}

/// Returns the quickstart's self-signed certificate in PEM. Replaces a file older than 30 days.
pub fn certificate(manifests: &Path) -> Result<String> {
    let path = manifests.join("certificate.yaml");
    if is_fresh(&path) {
        let text = std::fs::read_to_string(&path)?;
        let secret: DemoSecret = serde_saphyr::from_str(&text)
            .with_context(|| format!("read {}; remove it to get a new one", path.display()))?;
        return Ok(secret.string_data.certificate);
    }
    let secret = DemoSecret::generate()?;
    let text = format!(
        "# Written by `make demo`: a self-signed certificate for {HOST}. Remove it to get a new one.\n{}",
        serde_saphyr::to_string(&secret)?
    );
    let staged = manifests.join(".certificate.yaml.tmp");
    // An existing file may have the wrong permissions.
    let _ = std::fs::remove_file(&staged);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&staged)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&staged, &path)?;
    Ok(secret.string_data.certificate)
}

fn is_fresh(path: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else {
        return false;
    };
    let age = metadata
        .modified()
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    metadata.permissions().mode() & 0o777 == 0o600 && age.is_some_and(|age| age < RENEW_AFTER)
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DemoSecret {
    api_version: String,
    kind: String,
    metadata: DemoMetadata,
    #[serde(rename = "type")]
    type_: String,
    string_data: DemoPair,
}

#[derive(Serialize, Deserialize)]
struct DemoMetadata {
    name: String,
    namespace: String,
}

#[derive(Serialize, Deserialize)]
struct DemoPair {
    #[serde(rename = "tls.crt")]
    certificate: String,
    #[serde(rename = "tls.key")]
    key: String,
}

impl DemoSecret {
    fn generate() -> Result<Self> {
        let mut params = CertificateParams::new(vec![HOST.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, HOST);
        let now = jiff::Timestamp::now();
        let day = |timestamp: jiff::Timestamp| {
            let date = timestamp.to_zoned(jiff::tz::TimeZone::UTC).date();
            let part = |value: i8| u8::try_from(value).expect("months and days are positive");
            rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
        };
        params.not_before = day(now - jiff::SignedDuration::from_hours(24));
        params.not_after = day(now + jiff::SignedDuration::from_hours(24 * VALID_DAYS));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            metadata: DemoMetadata {
                name: "demo-certificate".to_owned(),
                namespace: "default".to_owned(),
            },
            type_: "kubernetes.io/tls".to_owned(),
            string_data: DemoPair {
                certificate: certificate.pem(),
                key: key.serialize_pem(),
            },
        })
    }
}

/// An example command with the equivalent request.
pub struct Example {
    /// Title of the example, which states the expected response.
    pub title: &'static str,
    /// The `curl` command.
    pub command: String,
    /// The equivalent request.
    pub request: Request,
    /// Returns true if the response matches the title.
    pub good: fn(&Reply) -> bool,
}

/// Returns the examples. The file `ca` must contain the PEM from [`certificate`].
pub fn examples(http: SocketAddr, https: SocketAddr, ca: &Path, pem: &str) -> Result<Vec<Example>> {
    let mut roots = RootCertStore::empty();
    roots.add(
        CertificateDer::from_pem_slice(pem.as_bytes()).context("the quickstart's certificate")?,
    )?;
    let roots = Arc::new(roots);
    let resolve =
        |address: SocketAddr| format!("--resolve {HOST}:{}:{}", address.port(), address.ip());
    let plain = |flags: &str, path: &str| {
        let (port, resolve) = (http.port(), resolve(http));
        format!("curl {flags}{resolve} http://{HOST}:{port}{path}")
    };
    let host = format!("{HOST}:{}", http.port());
    let secure_host = format!("{HOST}:{}", https.port());
    Ok(vec![
        Example {
            title: "Nine in ten responses come from blue, one from green",
            command: plain("", "/"),
            request: Request::get(http, &host, "/"),
            good: |reply| {
                reply.status == 200
                    && reply.header("x-greeting") == Some("open sesame")
                    && reply.echo().value("x-served-by") == Some("sesame")
            },
        },
        Example {
            title: "Over TLS and HTTP/2",
            command: format!(
                "curl --cacert {} {} https://{HOST}:{}/",
                ca.display(),
                resolve(https),
                https.port()
            ),
            request: Request::get(https, &secure_host, "/")
                .tls(HOST, &roots)
                .http2(),
            good: |reply| reply.status == 200,
        },
        Example {
            title: "The backend sees /v1/users",
            command: plain("", "/api/users"),
            request: Request::get(http, &host, "/api/users"),
            good: |reply| reply.status == 200 && reply.echo().path == "/v1/users",
        },
        Example {
            title: "Moved to /new/page",
            command: plain("--include ", "/old/page"),
            request: Request::get(http, &host, "/old/page"),
            good: |reply| {
                reply.status == 301
                    && reply
                        .header("location")
                        .is_some_and(|location| location.ends_with("/new/page"))
            },
        },
    ])
}

/// Returns the directory with the quickstart's manifests.
pub fn manifests() -> PathBuf {
    crate::envoy::workspace().join("tests/data/quickstart")
}

/// Fails unless the response matches the example's title.
pub async fn check(example: &Example) -> Result<()> {
    let reply = example
        .request
        .send()
        .await
        .with_context(|| example.command.clone())?;
    ensure!(
        (example.good)(&reply),
        "{}: status {}, {:?}, {}",
        example.command,
        reply.status,
        reply.headers,
        String::from_utf8_lossy(&reply.body)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_certificate_is_private_and_reused() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = certificate(directory.path()).expect("a certificate");
        let path = directory.path().join("certificate.yaml");
        let mode = std::fs::metadata(&path)
            .expect("written")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            certificate(directory.path()).expect("the same certificate"),
            first
        );

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        assert_ne!(
            certificate(directory.path()).expect("a new certificate"),
            first,
            "others could read the key"
        );
    }
}
