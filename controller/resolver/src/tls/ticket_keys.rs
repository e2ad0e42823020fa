//! Reads session ticket keys. Hosts with the same keys can resume each other's TLS sessions. Errors
//! never contain any part of a key.

use sesame_proto::keys::KeyPair;
use sesame_proto::schema::KeyRef;
use sesame_proto::tls_parameters::TICKET_KEY_BYTES;

use sesame_kinds::api::{NamespacedName, Secret};
use sesame_kinds::status::Grounds;

/// Only the first key encrypts; all keys decrypt.
const ENTRY: &str = "session-ticket-keys";
/// Maximum number of keys, limited because Envoy tries all keys for an unknown ticket.
const MAX_KEYS: usize = 16;
/// Secrets of this type must not contain ticket keys, because a certificate and ticket keys from
/// the same Secret would have the same name.
const TLS_SECRET: &str = "kubernetes.io/tls";

pub(crate) struct NamedTicketKeys {
    /// Set even without keys, so adding or removing keys does not change the listener.
    pub(crate) name: String,
    /// Why the keys in the Secret are not in use.
    pub(crate) fault: Option<Grounds>,
}

/// The error completes the sentence "Secret x …".
pub(super) fn read(key: &NamespacedName, secret: &Secret) -> Result<(KeyRef, KeyPair), String> {
    if secret.type_ == TLS_SECRET {
        return Err(format!(
            "has type {TLS_SECRET:?}; expected \"Opaque\" with {ENTRY}, so that no certificate has the same name"
        ));
    }
    let keys = secret.get(ENTRY).ok_or_else(|| format!("has no {ENTRY}"))?;
    let count = keys.len() / TICKET_KEY_BYTES;
    if keys.len() % TICKET_KEY_BYTES != 0 || !(1..=MAX_KEYS).contains(&count) {
        return Err(format!(
            "has {} bytes of {ENTRY}; expected 1 to {MAX_KEYS} concatenated keys of \
             {TICKET_KEY_BYTES} random bytes; generate each with openssl rand {TICKET_KEY_BYTES}",
            keys.len()
        ));
    }
    let mut each: Vec<&[u8]> = keys.chunks(TICKET_KEY_BYTES).collect();
    each.sort_unstable();
    let same = |pair: &[&[u8]]| pair.first() == pair.last();
    if each.windows(2).any(same) {
        return Err(format!(
            "has a duplicate key in {ENTRY}; remove one of them"
        ));
    }
    if each.iter().any(|key| key.iter().all(|byte| *byte == 0)) {
        return Err(format!("has an all-zero key in {ENTRY}; use random bytes"));
    }
    let pair = KeyPair {
        name: format!("Secret/{key}"),
        private_key: keys.to_vec(),
        ..KeyPair::default()
    };
    Ok(referred(pair))
}

/// Returns `None` if the Secret last contained a certificate.
pub(super) fn kept(pair: &KeyPair) -> Option<(KeyRef, KeyPair)> {
    pair.certificate_chain
        .is_empty()
        .then(|| referred(pair.clone()))
}

fn referred(keys: KeyPair) -> (KeyRef, KeyPair) {
    let reference = KeyRef {
        name: keys.name.clone(),
        digest: keys.digest(),
        ..KeyRef::default()
    };
    (reference, keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_kinds::api::SecretBytes;

    fn fault_of(entry: &str, bytes: Vec<u8>) -> String {
        let secret = Secret {
            type_: "Opaque".to_owned(),
            data: [(entry.to_owned(), SecretBytes(bytes))].into(),
            ..Secret::default()
        };
        let key = NamespacedName::new("ns", "tickets");
        read(&key, &secret).err().unwrap_or_default()
    }

    #[test]
    fn ticket_keys_must_be_whole_and_distinct() {
        let keys: Vec<u8> = (0..160_u8).collect();
        assert_eq!(fault_of(ENTRY, keys.clone()), "");
        assert_eq!(fault_of("keys", keys.clone()), "has no session-ticket-keys");
        for (bytes, words) in [
            (Vec::new(), "has 0 bytes"),
            (keys[..81].to_vec(), "has 81 bytes"),
            (vec![1; 17 * 80], "has 1360 bytes"),
            (keys[..80].repeat(2), "has a duplicate key"),
            (vec![0; 80], "has an all-zero key"),
        ] {
            assert!(fault_of(ENTRY, bytes).starts_with(words), "{words}");
        }
    }
}
