//! Apache's variant of MD5-based password hashing, as `htpasswd -m` and `openssl passwd -apr1` use it.

use md5::{Digest as _, Md5};

const PREFIX: &[u8] = b"$apr1$";
const ROUNDS: usize = 1_000;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bytes of the result that each group of four characters encodes.
const GROUPS: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
const LAST: usize = 11;

type Md5Bytes = [u8; 16];

/// Returns the 22 characters after the salt.
pub(super) fn digest(password: &[u8], salt: &[u8]) -> String {
    let mut result = first(password, salt);
    for round in 0..ROUNDS {
        let is_odd = round % 2 == 1;
        let mut parts: [&[u8]; 4] = [&[]; 4];
        parts[0] = if is_odd { password } else { &result };
        if !round.is_multiple_of(3) {
            parts[1] = salt;
        }
        if !round.is_multiple_of(7) {
            parts[2] = password;
        }
        parts[3] = if is_odd { &result } else { password };
        result = md5(&parts);
    }
    encode(&result)
}

fn first(password: &[u8], salt: &[u8]) -> Md5Bytes {
    let mixed = md5(&[password, salt, password]);
    let mut hash = Md5::new();
    for part in [password, PREFIX, salt] {
        hash.update(part);
    }
    for chunk in password.chunks(mixed.len()) {
        hash.update(mixed.split_at(chunk.len()).0);
    }
    let mut bits = password.len();
    while bits > 0 {
        let first = password.first().copied().unwrap_or_default();
        hash.update([if bits % 2 == 1 { 0 } else { first }]);
        bits /= 2;
    }
    hash.finalize().into()
}

fn md5(parts: &[&[u8]]) -> Md5Bytes {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn encode(result: &Md5Bytes) -> String {
    let mut text = String::with_capacity(22);
    let mut write = |mut value: usize, characters: usize| {
        for _ in 0..characters {
            text.push(char::from(ALPHABET[value % ALPHABET.len()]));
            value /= ALPHABET.len();
        }
    };
    for [high, middle, low] in GROUPS.map(|group| group.map(|at| usize::from(result[at]))) {
        write(high << 16 | middle << 8 | low, 4);
    }
    write(usize::from(result[LAST]), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `openssl passwd -apr1`.
    #[test]
    fn digests_equal_those_of_openssl() {
        for (password, salt, expected) in [
            ("myPassword", "r31.....", "HqJZimcKQFAMYayBlzkrA/"),
            ("wonderland", "saltsalt", "WoESZIlCyPaOHxFHP.vy51"),
            ("a", "x", "16j9.5e7KiXmuYFAYpPJM/"),
            ("", "saltsalt", "a8ml/vK5HEjiZ5oypDWA7/"),
            (
                "a password that is longer than thirty-two bytes, € included",
                "ab/.CD12",
                "lCrGd4tpYfOAOlhVqNr0Q.",
            ),
        ] {
            let digest = digest(password.as_bytes(), salt.as_bytes());
            assert_eq!(digest, expected, "{password}");
        }
    }
}
