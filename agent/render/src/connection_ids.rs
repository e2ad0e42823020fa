//! Connection IDs of HTTP/3, as in draft-ietf-quic-load-balancers. The first byte identifies the
//! Envoy that issued the ID, and the last byte its worker, so that the kernel can choose a socket.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::quic::connection_id_generator::quic_lb::v3::Config;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    GenericSecret, SdsSecretConfig, Secret, secret,
};
use envoy_types::util::pack_any;

use crate::wrappers;

/// Length of each ID in bytes.
pub const ID_BYTES: u8 = 14;
/// Bits of the first byte with the number of bytes between the first and the last.
pub const LENGTH_MASK: u8 = 0x1f;
/// Value of these bits.
pub const LENGTH_BITS: u8 = ID_BYTES - 2;
/// Length of the key that encrypts the bytes between the first and the last.
pub const KEY_BYTES: usize = 16;
/// Name of the static secret that each Envoy must have.
pub const SECRET: &str = "sesame-connection-ids";
/// Key of the secret's data with the encryption key.
pub const ENCRYPTION_KEY: &str = "encryption_key";
/// Key of the secret's data with the mark, as one byte.
pub const MARK: &str = "configuration_version";

const SERVER: &str = "s";
const NONCE_BYTES: u32 = 11;

/// Distinguishes the IDs of two Envoys that serve the same ports, from 1 to 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMark(u8);

impl IdMark {
    /// All marks.
    pub const ALL: [Self; 6] = [Self(1), Self(2), Self(3), Self(4), Self(5), Self(6)];

    /// Returns the mark with this number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.0 == number)
    }

    /// Returns the mark of the next Envoy, or of the first if `previous` is `None`.
    #[must_use]
    pub fn after(previous: Option<u8>) -> Self {
        Self(previous.map_or(0, |number| number % 6) + 1)
    }

    /// Returns the mark as a number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the first byte of the IDs that an Envoy with this mark issues.
    pub fn first_byte(self) -> u8 {
        self.0 << 5 | LENGTH_BITS
    }
}

pub(crate) fn generator() -> TypedExtensionConfig {
    let config = Config {
        server_id: Some(wrappers::text(SERVER)),
        nonce_length_bytes: NONCE_BYTES,
        encryption_parameters: Some(SdsSecretConfig {
            name: SECRET.to_owned(),
            sds_config: None,
        }),
        ..Default::default()
    };
    let name = "envoy.quic.connection_id_generator.quic_lb";
    wrappers::extension(name, pack_any(config))
}

/// Returns a secret for validation.
pub(crate) fn example() -> Secret {
    let data = [
        (ENCRYPTION_KEY.to_owned(), wrappers::bytes(&[0; KEY_BYTES])),
        (MARK.to_owned(), wrappers::bytes(&[1])),
    ];
    Secret {
        name: SECRET.to_owned(),
        r#type: Some(secret::Type::GenericSecret(GenericSecret {
            secrets: HashMap::from(data),
            ..Default::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successors_have_different_marks() {
        let marks: Vec<IdMark> = (0..=12)
            .map(|number| IdMark::after((number > 0).then_some(number)))
            .collect();
        assert!(marks.iter().all(|mark| IdMark::ALL.contains(mark)));
        assert!(marks.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(IdMark::after(None).first_byte(), 0x2c);
    }
}
