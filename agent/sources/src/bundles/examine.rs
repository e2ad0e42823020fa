//! Turns a bundle's bytes into a revision, or rejects the bundle.

use std::path::Path;
use std::sync::Arc;

use sesame_files::bundle;
use sesame_kinds::api::NamespacedName;
use sesame_proto::bundle::sealed::{self, HostIdentity};
use sesame_proto::bundle::{BundleError, BundleFile};
use sesame_proto::encoded::EncodedSnapshot;
use sesame_proto::keys::KeyPair;
use sesame_proto::schema::Snapshot;
use sesame_proto::signature::TrustedKeys;

use super::ring;
use crate::update::{GatewayRevision, gateway_of, keys_of, needs_keys};

pub(super) struct BundleRules<'a> {
    pub(super) trusted: &'a TrustedKeys,
    pub(super) required: usize,
    /// Empty means all Gateways.
    pub(super) gateways: &'a [NamespacedName],
    pub(super) ring: Option<u8>,
    pub(super) identity: Option<&'a HostIdentity>,
    /// Returns key pairs from outside the bundle.
    pub(super) held: &'a dyn Fn(&NamespacedName) -> Vec<KeyPair>,
}

/// A valid bundle that has not been compared with others yet.
#[derive(Debug)]
pub(super) struct GoodBundle {
    pub(super) gateway: NamespacedName,
    pub(super) sequence: u64,
    pub(super) digest: String,
    pub(super) manifest_revision: String,
    pub(super) signers: Vec<String>,
    /// Dropped if the bundle is not served.
    pub(super) revision: Option<GatewayRevision>,
}

#[derive(Debug)]
pub(super) struct BadBundle {
    pub(super) reason: String,
    /// Empty unless the file is complete.
    pub(super) digest: String,
    /// The file may not be fully written yet.
    pub(super) unfinished: bool,
}

pub(super) fn examine(path: &Path, rules: &BundleRules<'_>) -> Result<GoodBundle, BadBundle> {
    let bad = |reason: String| BadBundle {
        reason,
        digest: String::new(),
        unfinished: false,
    };
    let bytes = bundle::read(path).map_err(|error| bad(error.to_string()))?;
    let file = BundleFile::read(&bytes).map_err(|error| BadBundle {
        unfinished: error.may_be_unfinished(),
        ..bad(error.to_string())
    })?;
    check(&file, rules).map_err(|reason| BadBundle {
        digest: file.digest(),
        ..bad(reason)
    })
}

fn check(file: &BundleFile<'_>, rules: &BundleRules<'_>) -> Result<GoodBundle, String> {
    let name = &file.label().gateway;
    let gateway = gateway_of(name).ok_or_else(|| format!("{name:?} is not a Gateway"))?;
    if !rules.gateways.is_empty() && !rules.gateways.contains(&gateway) {
        let ours: Vec<String> = rules.gateways.iter().map(ToString::to_string).collect();
        return Err(format!(
            "is for Gateway {gateway}, but this host serves only {} (--gateway)",
            ours.join(", ")
        ));
    }
    if rules.trusted.is_empty() {
        return Err(
            "no key is trusted here, so no bundle is applied; add one with `sesame-agent trust add FILE`".to_owned(),
        );
    }
    let message = |error: BundleError| error.to_string();
    let good = file
        .verify(rules.trusted, rules.required)
        .map_err(message)?;
    // The content is now trusted, but may still be malformed.
    let snapshot = file.snapshot().map_err(message)?;
    let keys = keys(file, &snapshot, &gateway, rules)?;
    let encoded = Arc::new(EncodedSnapshot::new(&snapshot, keys));
    let staging = ring::staging(snapshot.rollout.as_ref(), file.label().created, rules.ring);
    let revision = file.manifest().revision.clone();
    Ok(GoodBundle {
        sequence: file.label().sequence,
        digest: file.digest(),
        manifest_revision: revision.clone(),
        signers: good.signers,
        revision: Some(GatewayRevision {
            staging,
            ..GatewayRevision::of_manifest(gateway.clone(), revision, encoded)
        }),
        gateway,
    })
}

fn keys(
    file: &BundleFile<'_>,
    snapshot: &Snapshot,
    gateway: &NamespacedName,
    rules: &BundleRules<'_>,
) -> Result<Vec<KeyPair>, String> {
    if !needs_keys(snapshot) {
        return Ok(Vec::new());
    }
    let mut held = (rules.held)(gateway);
    let label = file.label();
    let why = match (file.keys(), rules.identity) {
        (None, _) => "the bundle omits them, and they are not in keys.pb next to it".to_owned(),
        (Some(_), None) => {
            "they are encrypted, but this host has no identity; create one with `sesame-agent identity`"
                .to_owned()
        }
        (Some(sealed), Some(identity)) => {
            match sealed::open(sealed, identity, &label.gateway, label.sequence) {
                Ok(pairs) => {
                    held.extend(pairs);
                    "they are not in the bundle either".to_owned()
                }
                Err(error) => error.to_string(),
            }
        }
    };
    keys_of(&snapshot.keys, &held).map_err(|missing| {
        format!(
            "needs keys that this host does not have ({}): {why}",
            missing.join(", ")
        )
    })
}
