//! Compares a password with a digest from an htpasswd file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use sesame_proto::credentials::PasswordFormat;
use subtle::ConstantTimeEq as _;

use super::apr1;

/// Returns false for an unsupported digest. Takes the same time for right and wrong passwords.
pub(super) fn matches(stored: &str, password: &[u8]) -> bool {
    let computed = match PasswordFormat::of(stored) {
        Ok(PasswordFormat::Bcrypt { .. }) => {
            return bcrypt::verify(password, stored).unwrap_or_default();
        }
        Ok(PasswordFormat::Apr1) => {
            let mut parts = stored.split('$').skip(2);
            let salt = parts.next().unwrap_or_default();
            format!("$apr1${salt}${}", apr1::digest(password, salt.as_bytes()))
        }
        Ok(PasswordFormat::Sha1) => {
            let sha1 = digest(&SHA1_FOR_LEGACY_USE_ONLY, password);
            format!("{{SHA}}{}", STANDARD.encode(sha1))
        }
        Err(_) => return false,
    };
    computed.as_bytes().ct_eq(stored.as_bytes()).into()
}

/// Returns a value that grows with the cost of checking a password.
pub(super) fn cost(stored: &str) -> u32 {
    match PasswordFormat::of(stored) {
        Ok(PasswordFormat::Bcrypt { cost }) => cost,
        Ok(PasswordFormat::Apr1) => 1,
        Ok(PasswordFormat::Sha1) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_right_passwords_match_each_format() {
        // The digests are from `htpasswd -s`, `openssl passwd -apr1` and libxcrypt.
        for stored in [
            "{SHA}tiY7sUhYKUwI5L3866kDY+ENcrQ=",
            "$apr1$saltsalt$WoESZIlCyPaOHxFHP.vy51",
            "$2b$04$abcdefghijklmnopqrstuujZkTwHUiJ9XdZPwKfcfDo7dMp5DjlTu",
            "$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW",
        ] {
            assert!(matches(stored, b"wonderland"), "{stored}");
            for wrong in [&b""[..], b"wonderlan", b"wonderland\0", b"Wonderland"] {
                assert!(!matches(stored, wrong), "{stored}: {wrong:?}");
            }
        }
        for other in ["", "wonderland", "$1$saltsalt$x", "{SHA}wonderland"] {
            assert!(!matches(other, b"wonderland"), "{other}");
        }
    }
}
