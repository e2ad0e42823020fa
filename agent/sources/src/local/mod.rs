//! Reads certificates, keys and CA certificates from local files, which replace Secrets and
//! ConfigMaps.
//!
//! Other tools, such as certbot or SPIRE, renew the files. The agent renews only certificates that
//! it requested. If content cannot be used, the previous content remains in use, even across
//! restarts. A message must never contain a key.

mod entry;
mod fields;
mod follow;
mod read;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_proto::encoded::Substitutes;
use sesame_resolver::ResolvedGateway;
use tokio::sync::watch;

pub use self::entry::{LocalFile, LocalFileError};
pub use self::request::{
    Answerer, CertificateRequest, OpenRequest, RequestContext, RequestedUsage, Troubles,
};
use super::problem::SourceProblem;
use crate::seal::SealingKeys;

/// Usable content of local files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalMaterial {
    /// Key pairs and bundles, by the object that they replace.
    pub usable: Substitutes,
    /// Problems with the files.
    pub problems: Vec<SourceProblem>,
    /// Usable files, by the object that they replace.
    pub files: BTreeMap<String, String>,
    /// Unanswered requests, by the object that the certificate will replace.
    pub open: BTreeMap<String, OpenRequest>,
    /// When the next certificate is due for renewal, as a Unix timestamp.
    pub renew_at: Option<i64>,
}

/// The newest content of local files.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    newest: watch::Receiver<Arc<LocalMaterial>>,
    troubles: Troubles,
}

impl Default for LocalFiles {
    fn default() -> Self {
        let (_, newest) = watch::channel(Arc::default());
        Self {
            newest,
            troubles: Troubles::default(),
        }
    }
}

impl LocalFiles {
    /// Reads the files now, and then in a thread whenever they change. Falls back to `accepted` for
    /// files that cannot be used.
    pub fn start(
        entries: &[LocalFile],
        accepted: &[ResolvedGateway],
        sealing: Arc<SealingKeys>,
    ) -> std::io::Result<Self> {
        let context = RequestContext {
            sealing,
            troubles: Troubles::default(),
        };
        let troubles = context.troubles.clone();
        if entries.is_empty() {
            return Ok(Self::default());
        }
        let first = read::read_all(entries, &accepted_before(entries, accepted), &context);
        for problem in &first.problems {
            follow::log(problem);
        }
        let (sender, newest) = watch::channel(Arc::new(first));
        follow::start(entries.to_vec(), context, sender)?;
        Ok(Self { newest, troubles })
    }

    /// Returns the newest content.
    pub fn newest(&self) -> Arc<LocalMaterial> {
        Arc::clone(&self.newest.borrow())
    }

    /// Returns a handle to the reasons for unanswered requests. Clones share them.
    pub fn troubles(&self) -> Troubles {
        self.troubles.clone()
    }

    /// Returns the newest content, and marks it as seen for [`Self::changed`].
    pub fn newest_seen(&mut self) -> Arc<LocalMaterial> {
        Arc::clone(&self.newest.borrow_and_update())
    }

    /// Waits for new content, or forever if no local files are configured.
    pub async fn changed(&mut self) {
        if self.newest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn accepted_before(entries: &[LocalFile], accepted: &[ResolvedGateway]) -> LocalMaterial {
    let mut before = LocalMaterial::default();
    let Substitutes { pairs, bundles } = &mut before.usable;
    for name in entries.iter().map(LocalFile::object) {
        for gateway in accepted {
            let pair = gateway.keys.iter().find(|pair| pair.name == name);
            let key = gateway.snapshot.keys.iter().find(|key| key.name == name);
            if let (Some(key), Some(pair)) = (key, pair) {
                pairs.insert(name.clone(), (key.clone(), pair.clone()));
            }
            let known = &gateway.snapshot.trust_bundles;
            if let Some(bundle) = known.iter().find(|bundle| bundle.name == name) {
                bundles.insert(name.clone(), bundle.clone());
            }
        }
    }
    before
}
