//! Certificates, keys and authorities in files of this host, which stand for Secrets and ConfigMaps: renewed here, by certbot, step or
//! SPIRE, and never anywhere else.
//!
//! `entry` is the setting, `read` judges what is in the files, `follow` reads them again when they change; of a `request` the agent
//! makes the files itself. What cannot be used takes the place of nothing: what was read before goes on being served, over restarts too. Must never put a key into a message.

mod entry;
mod fields;
mod follow;
mod read;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_gateway_api::resolve::ResolvedGateway;
use sesame_proto::encoded::Substitutes;
use tokio::sync::watch;

pub use self::entry::{LocalFile, LocalFileError};
pub use self::request::{
    Answerer, CertificateRequest, OpenRequest, RequestContext, RequestedUsage, Troubles,
};
use super::problem::SourceProblem;
use crate::seal::SealingKeys;

/// Everything that local files hold, as far as it can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalMaterial {
    /// Key pairs and bundles by the objects that they stand for.
    pub usable: Substitutes,
    /// Everything that is wrong with the files.
    pub problems: Vec<SourceProblem>,
    /// Files by the object that they stand for, where they can be used.
    pub files: BTreeMap<String, String>,
    /// Requests that wait for an answer, by the object that the certificate is for.
    pub open: BTreeMap<String, OpenRequest>,
    /// Time at which the next certificate is to be renewed, in seconds since 1970.
    pub renew_at: Option<i64>,
}

/// The newest content of local files.
#[derive(Clone, Debug)]
pub struct LocalFiles {
    newest: watch::Receiver<Arc<LocalMaterial>>,
    /// Troubles of those who answer requests.
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
    /// Reads the files, and reads them again when they change, in a thread of its own. Where they cannot be used, what was
    /// `accepted` last stands for them.
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

    /// Returns the place where troubles of requests are told.
    pub(crate) fn troubles(&self) -> Troubles {
        self.troubles.clone()
    }

    /// Returns the newest content, which is no change any more.
    pub(crate) fn newest_seen(&mut self) -> Arc<LocalMaterial> {
        Arc::clone(&self.newest.borrow_and_update())
    }

    /// Waits until there is something else; for ever if there are no local files.
    pub async fn changed(&mut self) {
        if self.newest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns what was accepted last under the names of these files.
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
