//! Keeps a revision from a host until its rollout reaches the host, and returns to the previous
//! revision if the rollout is undone.
//!
//! Nothing is stored: after a restart, the same comparison keeps the same revision. A host that
//! accepted no revision yet takes the newest.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sesame_proto::encoded::EncodedSnapshot;

use crate::target::Target;
use crate::{history, kept_keys};
use sesame_apply::state::StateDir;
use sesame_sources::seal::SealingKeys;
use sesame_sources::update::Staging;

/// Check at least this often, because the clock may be adjusted.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The accepted generations on disk.
pub(super) struct StoredGenerations<'a> {
    pub(super) directory: &'a Path,
    pub(super) sealing: &'a SealingKeys,
}

/// Returns the target to serve instead of `new` with the reason, or `None` if `new` may replace
/// `served`.
pub(super) fn hold(
    served: &Arc<Target>,
    new: &Target,
    stored: &StoredGenerations<'_>,
    now: Timestamp,
) -> Option<(Arc<Target>, String)> {
    let has_new = || served.staged_digest() == new.staged_digest();
    match &new.staging {
        Staging::Immediate | Staging::Released { .. } => None,
        Staging::Waits { .. } | Staging::Ring { .. } if has_new() => None,
        Staging::Ring { ring, opens } => {
            let opens = opens.and_then(|opens| Timestamp::from_second(opens).ok());
            let until = match opens {
                Some(opens) if now >= opens => return None,
                Some(opens) => format!("until {opens}, or until `sesame-agent accept`"),
                None => "until `sesame-agent accept`".to_owned(),
            };
            let why = format!("the newest bundle waits for rollout ring {ring}, {until}");
            Some((waiting(served, new), why))
        }
        Staging::Waits { why, .. } => Some((waiting(served, new), why.clone())),
        Staging::Undone(base) => {
            let is_back = served.staged_digest() == base;
            let found = (!is_back).then(|| stored.before(new, base)).flatten();
            let kept = match found {
                Some(before) => Arc::new(before.waiting_for(new)),
                None if is_back => waiting(served, new),
                None => {
                    let why = "the newest revision was undone, but this host does not have its \
                               predecessor; change the configuration back";
                    return Some((waiting(served, new), why.to_owned()));
                }
            };
            let why = "the newest revision was undone; its predecessor is served";
            Some((kept, why.to_owned()))
        }
    }
}

/// Returns the time at which a bundle may have to be served.
pub(super) fn next(source: &Target, now: Timestamp) -> Option<Instant> {
    let Staging::Ring { opens, .. } = source.staging else {
        return None;
    };
    let opens = Timestamp::from_second(opens?).ok()?;
    let left = Duration::try_from(opens.duration_since(now)).unwrap_or_default();
    Some(Instant::now() + left.min(POLL_INTERVAL))
}

fn waiting(served: &Arc<Target>, new: &Target) -> Arc<Target> {
    let kept = served.waiting_for(new);
    let is_same = kept.encoded == served.encoded && kept.options == served.options;
    if is_same {
        Arc::clone(served)
    } else {
        Arc::new(kept)
    }
}

impl StoredGenerations<'_> {
    /// Returns the revision with the digest `base`, or `None` if it is not stored.
    fn before(&self, new: &Target, base: &str) -> Option<Target> {
        let numbers = StateDir::view(self.directory).list();
        let mut numbers: Vec<u64> = match numbers {
            Ok(generations) => generations.iter().map(|meta| meta.number).collect(),
            Err(error) => {
                tracing::error!(%error, "cannot read the accepted generations");
                return None;
            }
        };
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        for number in numbers {
            let mut found = match history::load(self.directory, number, self.sealing) {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(generation = number, "cannot be read: {error:#}");
                    continue;
                }
            };
            let digest = EncodedSnapshot::new(&found.snapshot, Vec::new()).staged_digest();
            if digest != base {
                continue;
            }
            let present = new.encoded.keys();
            kept_keys::replace(&mut found.snapshot, &mut found.keys, present);
            let cause = format!("the undone rollout, to generation {number}");
            return Some(new.with(&found, &cause));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sesame_apply::state::Accepted;
    use sesame_kinds::api::NamespacedName;
    use sesame_proto::schema::{Backend, Snapshot};
    use sesame_sources::update::GatewayRevision;

    use super::*;
    use crate::directories::Directories;
    use crate::target::tests::host;
    use crate::target::{HostSettings, Origin, Targets, render_all};

    fn snapshot(revision: &str) -> Snapshot {
        Snapshot {
            gateway: "Gateway/ns/edge".to_owned(),
            backends: vec![Backend {
                name: format!("Service/ns/{revision}/80"),
                ..Backend::default()
            }],
            ..Snapshot::default()
        }
    }

    fn digest(revision: &str) -> String {
        EncodedSnapshot::new(&snapshot(revision), Vec::new()).staged_digest()
    }

    fn target(host: &HostSettings, revision: &str, staging: Staging) -> Arc<Target> {
        let gateway = NamespacedName::new("ns", "edge");
        let offer = GatewayRevision {
            gateway: gateway.clone(),
            encoded: Arc::new(EncodedSnapshot::new(&snapshot(revision), Vec::new())),
            manifest_revision: None,
            staging,
            others: Arc::default(),
        };
        let (before, origin) = (Targets::new(), Origin::Source("test"));
        let mut all = render_all(&[offer], host, &before, origin, Instant::now());
        all.remove(&gateway).unwrap()
    }

    fn accept(directory: &Path, revision: &str) {
        let state = StateDir::open(directory, StateDir::KEEP).unwrap();
        let bytes = snapshot(revision).encode_to_vec();
        let accepted = Accepted {
            revision,
            config: revision,
            cause: "test",
            time: Timestamp::UNIX_EPOCH,
            snapshot: &zstd::bulk::compress(&bytes, 1).unwrap(),
            keys: &[],
            addresses: &[],
        };
        state.accept(accepted).unwrap();
    }

    #[test]
    fn undone_revision_returns_every_host_to_base() {
        let root = tempfile::tempdir().unwrap();
        let (state, runtime) = (root.path().join("s"), root.path().join("r"));
        let host = host(Directories::create(&state, &runtime).unwrap());
        let directory = root.path().join("generations");
        let sealing = SealingKeys::clear();
        let new = target(&host, "new", Staging::Undone(digest("base")));
        let held = |revision: &str| {
            let served = target(&host, revision, Staging::Immediate);
            let stored = StoredGenerations {
                directory: &directory,
                sealing: &sealing,
            };
            let (kept, why) = hold(&served, &new, &stored, Timestamp::UNIX_EPOCH).unwrap();
            (
                kept.staged_digest().to_owned(),
                why.contains("does not have"),
            )
        };
        accept(&directory, "between");
        assert_eq!(held("between"), (digest("between"), true));
        assert_eq!(held("new"), (digest("new"), true));
        accept(&directory, "base");
        accept(&directory, "between");
        accept(&directory, "new");
        assert_eq!(held("between"), (digest("base"), false));
        assert_eq!(held("new"), (digest("base"), false));
        assert_eq!(held("base"), (digest("base"), false));
    }
}
