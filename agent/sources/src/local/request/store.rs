//! Stores one request on disk, in its own directory:
//!
//! | file | content |
//! |---|---|
//! | `pair` | the pair in use and its acceptance time, sealed |
//! | `pending` | a key and its request, sealed |
//! | `request.pem` | the same request in plaintext, to be signed |
//! | `certificate.pem` | the answer |
//!
//! A key stays in `pending` until its pair is on disk, so a restarted agent can continue after a
//! crash. An answer for a different key is never accepted.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sesame_files::open::{self, Rule};
use sesame_kinds::certificate_facts::CertificateFacts;
use sesame_proto::digest::sha256;
use sesame_resolver::{CheckedPair, checked_pair};

use super::entry::{Answerer, CertificateRequest};
use super::{OpenRequest, RequestContext, RequestState, pkcs10};
use crate::problem::Severity;
use crate::seal::SealingKeys;
use sesame_host::durable::{self, create_directory};
use sesame_host::remove_if_exists;

const MAX_BYTES: u64 = 1 << 20;
/// Mode of files that contain no key.
const SHOWN: u32 = 0o644;

#[derive(Serialize, Deserialize)]
struct KeptPair {
    purpose: String,
    /// Unix timestamp.
    taken: i64,
    key: String,
    chain: String,
}

#[derive(Serialize, Deserialize)]
struct PendingKey {
    purpose: String,
    key: String,
    request: String,
}

/// Returns the age in seconds at which to renew the certificate: between three fifths and two
/// thirds of the lifetime. The certificate's digest determines the age, so hosts installed together
/// do not contact their CA at the same time.
pub(super) fn due_after(life: i64, chain: &str) -> i64 {
    let two_thirds = life / 3 * 2 + life % 3 * 2 / 3;
    let digest = sha256(chain.as_bytes());
    // Twelve hex digits always fit, and the value cannot be negative.
    let moment = i64::from_str_radix(&digest[..12], 16).unwrap_or(0);
    two_thirds - moment % (life / 15 + 1)
}

struct Current {
    kept: KeptPair,
    checked: CheckedPair,
    renew_at: i64,
    not_after: i64,
}

pub(in crate::local) fn step(
    request: &CertificateRequest,
    context: &RequestContext,
    now: i64,
) -> RequestState {
    let files = RequestFiles {
        request,
        sealing: &context.sealing,
    };
    let current = match files.current() {
        Ok(current) => current,
        Err(why) => return RequestState::broken(why),
    };
    let (current, waits) = files.advance(current, now);
    let reported = context.troubles.get(&format!("Secret/{}", request.secret));
    let (open, problem) = match waits {
        Ok(None) => (None, None),
        Ok(Some(open)) => {
            let problem = waiting(request, current.as_ref(), &open, reported, now);
            (Some(open.request), problem)
        }
        Err(why) => (None, Some((Severity::Error, why))),
    };
    RequestState {
        renew_at: current.as_ref().map(|current| current.renew_at),
        pair: current.map(|current| current.checked),
        open,
        problem,
    }
}

impl RequestState {
    fn broken(why: String) -> Self {
        Self {
            problem: Some((Severity::Error, why)),
            ..Self::default()
        }
    }
}

struct Waiting {
    request: OpenRequest,
    refused: Option<String>,
}

/// Returns `None` if the pair in use is still valid, no problem was reported, and no operator must
/// act.
fn waiting(
    request: &CertificateRequest,
    current: Option<&Current>,
    open: &Waiting,
    reported: Option<String>,
    now: i64,
) -> Option<(Severity, String)> {
    let good = current.is_some_and(|current| current.not_after > now);
    let severity = if good && open.refused.is_none() {
        Severity::Warning
    } else {
        Severity::Error
    };
    let (file, answer) = (request.request_file(), request.answer_file());
    let (file, answer) = (file.display(), answer.display());
    let how = match &request.answerer {
        Answerer::Operator => {
            format!("have your CA sign {file}, and save the certificate as {answer}")
        }
        Answerer::Command(words) => format!("it is passed to {}", words.join(" ")),
        Answerer::Signer { name, .. } => format!("the cluster's signer {name} must sign it"),
    };
    if let Some(why) = &open.refused {
        return Some((severity, format!("the answer is rejected: {why}; {how}")));
    }
    let is_quiet = request.answerer != Answerer::Operator && reported.is_none();
    if good && is_quiet {
        return None;
    }
    let reported = reported.map_or_else(String::new, |reported| format!(": {reported}"));
    let why = match current {
        None => "has no certificate yet",
        Some(_) if good => "is due for renewal",
        Some(_) => "has expired and is due for renewal",
    };
    Some((
        severity,
        format!("{why}, and its certificate request is unanswered; {how}{reported}"),
    ))
}

struct RequestFiles<'a> {
    request: &'a CertificateRequest,
    sealing: &'a SealingKeys,
}

impl RequestFiles<'_> {
    fn advance(
        &self,
        current: Option<Current>,
        now: i64,
    ) -> (Option<Current>, Result<Option<Waiting>, String>) {
        let pending = match self.ask(current.as_ref(), now) {
            Ok(Some(pending)) => pending,
            Ok(None) => return (current, Ok(None)),
            Err(why) => return (current, Err(why)),
        };
        let refused = match self.answer(&pending, now) {
            Ok(Some(taken)) => {
                return match self.install(&taken) {
                    Ok(()) => (Some(taken), Ok(None)),
                    Err(why) => (current, Err(why)),
                };
            }
            Ok(None) => None,
            Err(why) => Some(why),
        };
        let request = OpenRequest {
            pem: pending.request,
            answer_file: self.request.answer_file(),
        };
        (current, Ok(Some(Waiting { request, refused })))
    }

    /// Returns `None` if no new certificate is needed.
    fn ask(&self, current: Option<&Current>, now: i64) -> Result<Option<PendingKey>, String> {
        let purpose = self.request.purpose();
        let pending = self.pending(current)?;
        let pending = pending.filter(|pending| pending.purpose == purpose);
        let is_good = |current: &Current| current.kept.purpose == purpose && now < current.renew_at;
        match pending {
            Some(pending) => self.show(pending).map(Some),
            None if current.is_some_and(is_good) => self.withdraw().map(|()| None),
            None => self.make(purpose).map(Some),
        }
    }

    fn current(&self) -> Result<Option<Current>, String> {
        let Some(kept) = self.read::<KeptPair>("pair")? else {
            return Ok(None);
        };
        let path = self.path("pair");
        let current = self.check(kept);
        current
            .map(Some)
            .map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Computes the renewal time from the lifetime left at acceptance. Otherwise, a certificate
    /// accepted late would be renewed repeatedly.
    fn check(&self, kept: KeptPair) -> Result<Current, String> {
        let chain = kept.chain.as_bytes();
        let checked = checked_pair(&self.request.secret, chain, kept.key.as_bytes())?;
        let chain = &checked.pair.certificate_chain;
        let leaf = CertificateFacts::from_pem(chain).into_iter().next();
        let leaf = leaf.ok_or("contains no certificate")?;
        let begin = leaf.not_before.max(kept.taken);
        let life = leaf.not_after.saturating_sub(begin).max(0);
        Ok(Current {
            renew_at: begin.saturating_add(due_after(life, &kept.chain)),
            not_after: leaf.not_after,
            kept,
            checked,
        })
    }

    /// Removes the pending key if its pair is already in use.
    fn pending(&self, current: Option<&Current>) -> Result<Option<PendingKey>, String> {
        let Some(pending) = self.read::<PendingKey>("pending")? else {
            return Ok(None);
        };
        if current.is_some_and(|current| current.kept.key == pending.key) {
            self.tidy()?;
            return Ok(None);
        }
        Ok(Some(pending))
    }

    fn make(&self, purpose: String) -> Result<PendingKey, String> {
        let directory = &self.request.directory;
        create_directory(directory).map_err(at(directory))?;
        self.tidy()?;
        let made = pkcs10::make(self.request)
            .map_err(|error| format!("cannot create a request: {error}"))?;
        let pkcs10::NewKey { key, request } = made;
        let pending = PendingKey {
            purpose,
            key,
            request,
        };
        self.write("pending", &pending)?;
        self.show(pending)
    }

    fn show(&self, pending: PendingKey) -> Result<PendingKey, String> {
        let path = self.request.request_file();
        let shown = open::read_text(&path, Rule::Own, MAX_BYTES);
        if shown.is_ok_and(|shown| shown == pending.request) {
            return Ok(pending);
        }
        let staged = path.with_extension("pem.new");
        durable::write_file(&staged, pending.request.as_bytes()).map_err(at(&staged))?;
        let mode = fs::Permissions::from_mode(SHOWN);
        fs::set_permissions(&staged, mode).map_err(at(&staged))?;
        durable::rename(&staged, &path).map_err(at(&path))?;
        Ok(pending)
    }

    /// Rejects an answer that is truncated, expired, or for a different key.
    fn answer(&self, pending: &PendingKey, now: i64) -> Result<Option<Current>, String> {
        let path = self.request.answer_file();
        let chain = match open::read_text(&path, Rule::GivenByLink, MAX_BYTES) {
            Ok(chain) => chain,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let kept = KeptPair {
            purpose: pending.purpose.clone(),
            taken: now,
            key: pending.key.clone(),
            chain,
        };
        let file = path.display();
        let current = self.check(kept).map_err(|why| {
            why.replace("tls.crt", &file.to_string())
                .replace("tls.key", "the key of the request")
        })?;
        if current.not_after <= now {
            return Err(format!("the certificate in {file} has expired"));
        }
        Ok(Some(current))
    }

    fn install(&self, taken: &Current) -> Result<(), String> {
        self.write("pair", &taken.kept)?;
        tracing::info!(
            object = taken.checked.pair.name,
            serial = taken.checked.key.serial,
            "installed the certificate from a certificate request"
        );
        self.tidy()
    }

    /// Removes an obsolete request, for example after a change to its names was reverted.
    fn withdraw(&self) -> Result<(), String> {
        if self.path("pending").exists() {
            self.tidy()?;
        }
        Ok(())
    }

    /// Removes `pending` last, because a restarted agent resumes the cleanup only if this file
    /// exists.
    fn tidy(&self) -> Result<(), String> {
        for path in [
            self.request.request_file(),
            self.request.answer_file(),
            self.path("pending"),
        ] {
            remove_if_exists(&path).map_err(at(&path))?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.request.directory.join(name)
    }

    /// Sealed content is bound to this path, so it cannot be used for another Secret.
    fn place(&self, name: &str) -> PathBuf {
        Path::new("requests")
            .join(self.request.secret.to_string())
            .join(name)
    }

    /// Reseals the file if it is not sealed with the current key.
    fn read<T: Serialize + for<'de> Deserialize<'de>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, String> {
        let path = self.path(name);
        let stored = match open::read(&path, Rule::Own, MAX_BYTES + 512) {
            Ok(stored) => stored,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let (text, is_current) = self
            .sealing
            .try_open_text(stored, &self.place(name))
            .map_err(|error| {
                let path = path.display();
                format!("{path} {error}; restore the sealing key, or remove the file to create a new key and request")
            })?;
        let content: T = serde_json::from_str(&text).map_err(|_| {
            let path = path.display();
            format!("{path} is damaged; remove it to create a new key and request")
        })?;
        // A file that cannot be resealed is still usable.
        if !is_current && let Err(why) = self.write(name, &content) {
            tracing::warn!("cannot reseal a key of a certificate request: {why}");
        }
        Ok(Some(content))
    }

    fn write<T: Serialize>(&self, name: &str, content: &T) -> Result<(), String> {
        let path = self.path(name);
        let text = serde_json::to_string(content).map_err(|error| error.to_string())?;
        let sealed = self.sealing.seal_text(&text, &self.place(name));
        let sealed = sealed.map_err(|error| format!("{}: {error}", path.display()))?;
        durable::replace_file(&path, &sealed).map_err(at(&path))
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}
