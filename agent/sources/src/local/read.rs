//! Reads local files, with the same checks as for Secrets and ConfigMaps.
//!
//! A certificate and its key are accepted together or not at all. A message must never contain a
//! key.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use jiff::Timestamp;
use sesame_files::open::{self, OpenError, Rule};
use sesame_kinds::api::NamespacedName;
use sesame_proto::encoded::Substitutes;
use sesame_proto::schema::TrustBundle;
use sesame_resolver::{CheckedPair, checked_bundle, checked_pair};

use super::request::{RequestState, step};
use super::{CertificateRequest, LocalFile, LocalMaterial, RequestContext, RequestedUsage};
use crate::problem::{Severity, SourceProblem};

const MAX_BYTES: u64 = 1 << 20;
const TRIES: usize = 5;

/// Keeps the content from `before` for files that cannot be used.
pub(super) fn read_all(
    entries: &[LocalFile],
    before: &LocalMaterial,
    context: &RequestContext,
) -> LocalMaterial {
    let mut found = LocalMaterial::default();
    for entry in entries {
        let object = entry.object();
        let files = entry.files().into_iter();
        let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
        let files = files.join(", ");
        let broken = |why: String| (Severity::Error, why);
        let outcome = match entry {
            LocalFile::Requested(request) => requested(&object, request, context, &mut found),
            LocalFile::Certificate {
                secret,
                cert_file,
                key_file,
            } => pair(secret, cert_file, key_file)
                .map(|checked| add_pair(&object, checked, None, &mut found))
                .map_err(broken),
            LocalFile::Bundle {
                config_map: _,
                ca_file,
                crl_file,
            } => bundle(&object, ca_file, crl_file.as_deref())
                .map(|bundle| {
                    found.usable.bundles.insert(object.clone(), bundle);
                    Vec::new()
                })
                .map_err(broken),
        };
        let (severity, messages) = match outcome {
            Ok(advice) => (Severity::Warning, advice),
            Err((severity, why)) => {
                let consequence = if keep(&object, before, &mut found) {
                    "the last valid content stays in use"
                } else {
                    "the object is missing until this is fixed"
                };
                (severity, vec![format!("{why}; {consequence}")])
            }
        };
        found
            .problems
            .extend(messages.into_iter().map(|message| SourceProblem {
                object: Some(object.clone()),
                ..SourceProblem::of_file(severity, &files, message)
            }));
        let Substitutes { pairs, bundles } = &found.usable;
        if pairs.contains_key(&object) || bundles.contains_key(&object) {
            found.files.insert(object, files);
        }
    }
    found
}

fn requested(
    object: &str,
    request: &CertificateRequest,
    context: &RequestContext,
    found: &mut LocalMaterial,
) -> Result<Vec<String>, (Severity, String)> {
    let RequestState {
        pair,
        renew_at,
        open,
        problem,
    } = step(request, context, Timestamp::now().as_second());
    found.renew_at = [found.renew_at, renew_at].into_iter().flatten().min();
    let named = |open| (object.to_owned(), open);
    found.open.extend(open.map(named));
    let mut all = Vec::new();
    if let Some(checked) = pair {
        all = add_pair(object, checked, Some(request.usage), found);
    }
    problem.map_or(Ok(all), Err)
}

/// Adds the pair to `found`, and returns problems with it. If `usage` is `None`, the certificate
/// determines its usage.
fn add_pair(
    object: &str,
    checked: CheckedPair,
    usage: Option<RequestedUsage>,
    found: &mut LocalMaterial,
) -> Vec<String> {
    let CheckedPair {
        key,
        pair,
        mut advice,
        server_advice,
        for_clients,
    } = checked;
    let pairs = &mut found.usable.pairs;
    pairs.insert(object.to_owned(), (key, pair));
    let shown_to_clients = match usage {
        Some(RequestedUsage::Server) => true,
        Some(RequestedUsage::Client) => false,
        None => !for_clients,
    };
    if shown_to_clients {
        advice.extend(server_advice);
    }
    advice
}

/// Copies the previous content to `found`, unless `found` has a newer pair. Returns false if
/// neither exists.
fn keep(object: &str, before: &LocalMaterial, found: &mut LocalMaterial) -> bool {
    if found.usable.pairs.contains_key(object) {
        return true;
    }
    let pair = before.usable.pairs.get(object);
    let bundle = before.usable.bundles.get(object);
    let named = |name: &str| name.to_owned();
    found
        .usable
        .pairs
        .extend(pair.map(|it| (named(object), it.clone())));
    found
        .usable
        .bundles
        .extend(bundle.map(|it| (named(object), it.clone())));
    pair.is_some() || bundle.is_some()
}

/// Retries if the key changes while the certificate is read.
fn pair(secret: &NamespacedName, cert_file: &Path, key_file: &Path) -> Result<CheckedPair, String> {
    let mut key = key_of(key_file)?;
    for _ in 0..TRIES {
        let chain = content("certFile", cert_file)?;
        let again = key_of(key_file)?;
        if again == key {
            return checked_pair(secret, &chain, &key).map_err(|why| {
                why.replace("tls.crt", &format!("certFile {}", cert_file.display()))
                    .replace("tls.key", &format!("keyFile {}", key_file.display()))
            });
        }
        key = again;
    }
    let key_file = key_file.display();
    Err(format!("keyFile {key_file} keeps changing"))
}

/// Returns an error if every user on this host can access the key.
fn key_of(path: &Path) -> Result<Vec<u8>, String> {
    let opened = open::open(path, Rule::GivenByLink);
    let (_, metadata) = opened.map_err(|error| explain("keyFile", &error))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(format!(
            "keyFile {0}: every user of this host can access it (mode {mode:04o}); run `chmod o= {0}`",
            path.display()
        ));
    }
    content("keyFile", path)
}

fn content(field: &str, path: &Path) -> Result<Vec<u8>, String> {
    let read = open::read(path, Rule::GivenByLink, MAX_BYTES);
    read.map_err(|error| explain(field, &error))
}

fn explain(field: &str, error: &OpenError) -> String {
    let denied = |source: &std::io::Error| source.kind() == std::io::ErrorKind::PermissionDenied;
    let what_to_do = match error {
        OpenError::Io { source, .. } if denied(source) => format!(
            "; the agent runs as user {}, which must be able to read the file and traverse its directories, for example through a group",
            rustix::process::geteuid().as_raw()
        ),
        _ => String::new(),
    };
    format!("{field} {error}{what_to_do}")
}

fn bundle(object: &str, path: &Path, lists: Option<&Path>) -> Result<TrustBundle, String> {
    let text = |field: &str, path: &Path| {
        let read = String::from_utf8(content(field, path)?);
        read.map_err(|_| format!("{field} {}: is no PEM", path.display()))
    };
    let authorities = text("caFile", path)?;
    let crl = lists.map(|path| text("crlFile", path)).transpose()?;
    checked_bundle(object, &authorities, crl.as_deref().unwrap_or_default()).map_err(|why| {
        let why = why.replace("ca.crt", &format!("caFile {}", path.display()));
        match lists {
            Some(lists) => why.replace("ca.crl", &format!("crlFile {}", lists.display())),
            None => why,
        }
    })
}
