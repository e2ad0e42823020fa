//! Answers certificate requests by running a command or asking a signer in the cluster. The code
//! that reads the answer file decides whether to accept it. This module must never have access to a
//! private key.

use std::process::Stdio;
use std::time::Duration;

use sesame_backoff::Backoff;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::cluster::{self, Clients};
use sesame_host::durable::replace_file;
use sesame_sources::local::{Answerer, CertificateRequest, LocalFile, LocalFiles, Troubles};

const TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for an answer to be accepted before requesting another one.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Maximum size of an answer in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Spawns one task per certificate, which runs until the agent exits.
pub(super) fn start(
    entries: &[LocalFile],
    local: &LocalFiles,
    clients: Option<&Clients>,
) -> anyhow::Result<()> {
    for entry in entries {
        let LocalFile::Requested(request) = entry else {
            continue;
        };
        if matches!(request.answerer, Answerer::Signer { .. }) && clients.is_none() {
            anyhow::bail!(
                "certificate-request for Secret/{}: signerName requires a cluster as the source (--kube); omit it to provide the certificate as a file, or set a command",
                request.secret
            );
        }
        if request.answerer != Answerer::Operator {
            let requester = Requester {
                object: entry.object(),
                request: request.clone(),
                troubles: local.troubles(),
                clients: clients.cloned(),
            };
            tokio::spawn(requester.run(local.clone()));
        }
    }
    Ok(())
}

struct Requester {
    object: String,
    request: CertificateRequest,
    troubles: Troubles,
    clients: Option<Clients>,
}

impl Requester {
    async fn run(self, mut local: LocalFiles) {
        let mut backoff = PAUSES;
        loop {
            let Some(open) = local.newest_seen().open.get(&self.object).cloned() else {
                self.troubles.set(&self.object, None);
                backoff.reset();
                local.changed().await;
                continue;
            };
            let answered = match self.ask(&open.pem).await {
                Ok(answer) => replace_file(&open.answer_file, answer.as_bytes())
                    .map_err(|error| format!("{}: {error}", open.answer_file.display())),
                Err(why) => Err(why),
            };
            match answered {
                Ok(()) => {
                    let gone = async {
                        while local.newest_seen().open.get(&self.object) == Some(&open) {
                            local.changed().await;
                        }
                    };
                    if timeout(ACCEPT_TIMEOUT, gone).await.is_ok() {
                        continue;
                    }
                }
                Err(why) => {
                    tracing::warn!(
                        object = self.object,
                        "cannot obtain the requested certificate: {why}"
                    );
                    self.troubles.set(&self.object, Some(why));
                }
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    async fn ask(&self, pem: &str) -> Result<String, String> {
        match (&self.request.answerer, &self.clients) {
            (Answerer::Command(words), _) => command(words, pem).await,
            (Answerer::Signer { name, seconds }, Some(clients)) => {
                let report = |what: String| self.troubles.set(&self.object, Some(what));
                let signing = cluster::SignerRequest {
                    signer: name,
                    seconds: *seconds,
                    usage: self.request.usage,
                    report: &report,
                };
                cluster::sign(clients, &signing, pem).await
            }
            _ => std::future::pending().await,
        }
    }
}

/// Passes the request on standard input and reads the certificate from standard output. Uses no
/// shell.
async fn command(argv: &[String], pem: &str) -> Result<String, String> {
    let [program, arguments @ ..] = argv else {
        return Err("no program is set".to_owned());
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    let mut stdin = child.stdin.take();
    let answer = async {
        if let Some(mut stdin) = stdin.take() {
            // Ignore errors: a program that exits without reading all input explains why on
            // standard error.
            let _ = stdin.write_all(pem.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(TIMEOUT, answer)
        .await
        .map_err(|_| format!("{program} did not finish within {TIMEOUT:?}"))?
        .map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last: String = stderr
            .lines()
            .last()
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect();
        return Err(format!("{program} failed ({}): {last}", output.status));
    }
    if output.stdout.len() > MAX_ANSWER {
        return Err(format!("{program} printed more than {MAX_ANSWER} bytes"));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{program} did not print PEM"))
}
