//! Users with password digests, clients with API keys, and secrets of OpenID Connect clients: one
//! `name:value` per line.
//!
//! Errors never contain a value.

use std::collections::BTreeMap;

use crate::salts::without_salt;
use crate::schema::CredentialSet;

const SHA1: &str = "{SHA}";
/// Length of a SHA-1 digest in Base64.
const SHA1_CHARACTERS: usize = 28;
const APR1: &str = "$apr1$";
const APR1_CHARACTERS: usize = 22;
const MAX_APR1_SALT: usize = 8;
const BCRYPT: [&str; 3] = ["$2a$", "$2b$", "$2y$"];
/// Lengths of the salt and the digest in bcrypt's Base64.
const BCRYPT_SALT: usize = 22;
const BCRYPT_CHARACTERS: usize = 31;
const MAX_NAME_BYTES: usize = 253;
const MAX_VALUE_BYTES: usize = 1024;
const SEPARATOR: char = ':';
const COMMENT: char = '#';

/// Format of a user's password digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordFormat {
    /// SHA-1, the only format that Envoy supports.
    Sha1,
    /// Apache's variant of MD5.
    Apr1,
    /// bcrypt. Checking a password takes `2^cost` rounds.
    Bcrypt {
        /// Base-2 logarithm of the number of rounds.
        cost: u32,
    },
}

impl PasswordFormat {
    /// Maximum cost of bcrypt. A higher one would let a few requests occupy a host's processors.
    pub const MAX_COST: u32 = 12;
    const MIN_COST: u32 = 4;

    /// Determines the format of a digest.
    pub fn of(digest: &str) -> Result<Self, String> {
        let format = if let Some(characters) = digest.strip_prefix(SHA1) {
            is_sha1(characters).then_some(Self::Sha1)
        } else if let Some(rest) = digest.strip_prefix(APR1) {
            is_apr1(rest).then_some(Self::Apr1)
        } else {
            let rest = BCRYPT.iter().find_map(|it| digest.strip_prefix(it));
            rest.and_then(bcrypt_cost).map(|cost| Self::Bcrypt { cost })
        };
        match format {
            Some(Self::Bcrypt { cost }) if !(Self::MIN_COST..=Self::MAX_COST).contains(&cost) => {
                Err(format!(
                    "bcrypt with cost {cost}; {} to {} are allowed",
                    Self::MIN_COST,
                    Self::MAX_COST
                ))
            }
            Some(format) => Ok(format),
            None => Err(
                "expected a digest as `htpasswd -B`, `-m` or `-s` writes it (bcrypt, apr1 or \
                 SHA-1); other digests are not supported"
                    .to_owned(),
            ),
        }
    }
}

/// Returns true if the agent must check the passwords of these users, because Envoy cannot.
pub fn need_agent(users: &BTreeMap<&str, &str>) -> bool {
    let mut digests = users.values();
    digests.any(|digest| PasswordFormat::of(digest) != Ok(PasswordFormat::Sha1))
}

/// Reads users and their passwords' digests from an htpasswd file.
pub fn users(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let users = read(text)?;
    check_users(&users)?;
    Ok(users)
}

/// Reads clients and their API keys.
pub fn api_keys(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let clients = read(text)?;
    check_api_keys(&clients)?;
    Ok(clients)
}

/// Returns an error unless all values are digests of a supported format.
pub fn check_users(users: &BTreeMap<&str, &str>) -> Result<(), String> {
    check(users)?;
    for (user, digest) in users {
        PasswordFormat::of(digest).map_err(|why| format!("user {user:?}: {why}"))?;
    }
    Ok(())
}

/// Returns an error if two clients have the same key.
pub fn check_api_keys(clients: &BTreeMap<&str, &str>) -> Result<(), String> {
    check(clients)?;
    let mut by_key: BTreeMap<&str, &str> = BTreeMap::new();
    for (client, key) in clients {
        if !key.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(format!(
                "client {client:?}: expected a key of visible ASCII characters"
            ));
        }
        if let Some(other) = by_key.insert(key, client) {
            return Err(format!(
                "clients {other:?} and {client:?} have the same key; each client needs its own"
            ));
        }
    }
    Ok(())
}

/// Secrets of a client of an OpenID Connect provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientSecrets<'t> {
    /// Authenticates the client to the provider.
    pub client: &'t str,
    /// Protects cookies.
    pub cookies: &'t str,
}

impl<'t> ClientSecrets<'t> {
    /// Name of the client's own secret.
    pub const CLIENT: &'static str = "client-secret";
    /// Name of the secret that protects cookies. By default, the client's own secret does.
    pub const COOKIES: &'static str = "hmac-secret";
    /// Minimum length of a secret that protects cookies, because their owners could guess a shorter
    /// one.
    pub const MIN_BYTES: usize = 16;

    /// Reads secrets in the form of [`write()`].
    pub fn read(text: &'t str) -> Result<Self, String> {
        Self::new(&read(text)?)
    }

    /// Checks the secrets.
    pub fn new(secrets: &BTreeMap<&str, &'t str>) -> Result<Self, String> {
        check(secrets)?;
        for (name, secret) in secrets {
            if !matches!(*name, Self::CLIENT | Self::COOKIES) {
                return Err(format!("{name:?} is unknown"));
            }
            if !secret.bytes().all(|c| c.is_ascii_graphic()) {
                return Err(format!("{name:?}: expected visible ASCII characters"));
            }
        }
        let client = secrets.get(Self::CLIENT);
        let client = *client.ok_or_else(|| format!("{:?} is missing", Self::CLIENT))?;
        let own = secrets.get(Self::COOKIES).copied();
        let (name, cookies) = match own {
            Some(own) => (Self::COOKIES, own),
            None => (Self::CLIENT, client),
        };
        if cookies.len() < Self::MIN_BYTES {
            let least = Self::MIN_BYTES;
            let remedy = match own {
                Some(_) => String::new(),
                None => format!(", or a longer {:?}", Self::COOKIES),
            };
            return Err(format!(
                "{name:?} has {} bytes; expected at least {least}{remedy}",
                cookies.len()
            ));
        }
        Ok(Self { client, cookies })
    }
}

/// Returns the text that [`users`], [`api_keys`] and [`ClientSecrets`] read. The credentials must be valid.
pub fn write(credentials: &BTreeMap<&str, &str>) -> String {
    let lines = credentials.iter();
    let lines = lines.map(|(name, value)| format!("{name}:{value}\n"));
    lines.collect()
}

fn is_sha1(characters: &str) -> bool {
    let (digits, padding) = characters
        .split_at_checked(SHA1_CHARACTERS - 1)
        .unwrap_or_default();
    let is_digit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    padding == "=" && digits.bytes().all(is_digit)
}

fn is_apr1(salt_and_digest: &str) -> bool {
    salt_and_digest
        .split_once('$')
        .is_some_and(|(salt, digest)| {
            (1..=MAX_APR1_SALT).contains(&salt.len())
                && digest.len() == APR1_CHARACTERS
                && salt.bytes().chain(digest.bytes()).all(is_crypt_digit)
        })
}

/// Returns `None` if the digest is malformed.
fn bcrypt_cost(rest: &str) -> Option<u32> {
    let (cost, characters) = rest.split_once('$')?;
    let (salt, digest) = characters.split_at_checked(BCRYPT_SALT)?;
    let is_number = cost.len() == 2 && cost.bytes().all(|c| c.is_ascii_digit());
    // The last characters encode fewer than six bits, so only some are possible.
    let is_whole = digest.len() == BCRYPT_CHARACTERS
        && salt.ends_with(['.', 'O', 'e', 'u'])
        && digest.ends_with(|last| ".CGKOSWaeimquy26".contains(last));
    let is_valid = is_number && is_whole && characters.bytes().all(is_crypt_digit);
    is_valid.then(|| cost.parse().ok()).flatten()
}

fn is_crypt_digit(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'.' | b'/')
}

fn read(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    check_size(without_salt(text).len())?;
    let mut all = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with(COMMENT) {
            continue;
        }
        let number = index + 1;
        let (name, value) = (line.split_once(SEPARATOR))
            .ok_or_else(|| format!("line {number}: expected a name, `:` and a value"))?;
        check_name(name).map_err(|why| format!("line {number}: {why}"))?;
        if all.insert(name, value).is_some() {
            return Err(format!("{name:?} is listed twice"));
        }
    }
    Ok(all)
}

fn check(all: &BTreeMap<&str, &str>) -> Result<(), String> {
    let (count, most) = (all.len(), CredentialSet::MAX_CREDENTIALS);
    if count > most {
        return Err(format!("{count} credentials; at most {most} are allowed"));
    }
    if all.is_empty() {
        return Err("no credentials".to_owned());
    }
    for (name, value) in all {
        check_name(name)?;
        if !(1..=MAX_VALUE_BYTES).contains(&value.len()) {
            return Err(format!(
                "{name:?} has a value of {} bytes; 1 to {MAX_VALUE_BYTES} are allowed",
                value.len()
            ));
        }
    }
    let lines = all.iter().map(|(name, value)| name.len() + value.len() + 2);
    check_size(lines.sum())
}

fn check_size(bytes: usize) -> Result<(), String> {
    let most = CredentialSet::MAX_BYTES;
    if bytes > most {
        return Err(format!(
            "{bytes} bytes of credentials; at most {most} are allowed"
        ));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    let is_short = (1..=MAX_NAME_BYTES).contains(&name.len());
    let is_visible = name.bytes().all(|c| c.is_ascii_graphic());
    if !is_short || !is_visible || name.contains(SEPARATOR) || name.starts_with(COMMENT) {
        return Err(format!(
            "expected a name of 1 to {MAX_NAME_BYTES} visible ASCII characters, without \
             `{SEPARATOR}` and not beginning with `{COMMENT}`; found {name:?}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=";

    #[test]
    fn users_need_supported_digests() {
        let text = format!("# shop\n\nbob:{DIGEST}\nann:{DIGEST}\n");
        let read = users(&text).unwrap();
        assert_eq!(write(&read), format!("ann:{DIGEST}\nbob:{DIGEST}\n"));
        for (text, words) in [
            (String::new(), "no credentials"),
            ("ann".to_owned(), "line 1: expected a name"),
            (format!(":{DIGEST}"), "line 1: expected a name of 1"),
            ("ann:".to_owned(), "\"ann\" has a value of 0 bytes"),
            (
                "ann:$2y$05$secret".to_owned(),
                "user \"ann\": expected a digest",
            ),
            (format!("ann:{DIGEST}x"), "user \"ann\": expected a digest"),
            (
                format!("ann:{}", BCRYPT_DIGEST.replace("$05$", "$13$")),
                "user \"ann\": bcrypt with cost 13; 4 to 12",
            ),
            (
                format!("ann:{DIGEST}\nann:{DIGEST}"),
                "\"ann\" is listed twice",
            ),
        ] {
            let error = users(&text).unwrap_err();
            assert!(error.starts_with(words), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    const BCRYPT_DIGEST: &str = "$2y$05$abcdefghijklmnopqrstuuA0vov2GDneHB3.8.cv9UF9g.RdvScIW";

    #[test]
    fn formats_of_digests_are_recognized() {
        for (digest, format) in [
            (DIGEST, Some(PasswordFormat::Sha1)),
            (
                "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/",
                Some(PasswordFormat::Apr1),
            ),
            (BCRYPT_DIGEST, Some(PasswordFormat::Bcrypt { cost: 5 })),
            ("$apr1$$HqJZimcKQFAMYayBlzkrA/", None),
            ("$apr1$123456789$HqJZimcKQFAMYayBlzkrA/", None),
            ("$apr1$salt$HqJZimcKQFAMYayBlzkrA", None),
            ("$1$r31.....$HqJZimcKQFAMYayBlzkrA/", None),
            (&BCRYPT_DIGEST.replace("2y", "2x"), None),
            (&BCRYPT_DIGEST.replace("uuA0", "vvA0"), None),
            (&BCRYPT_DIGEST.replace("05", "5"), None),
            (&BCRYPT_DIGEST[1..], None),
            ("rl.3StKT.4T8M", None),
            ("password", None),
        ] {
            assert_eq!(PasswordFormat::of(digest).ok(), format, "{digest}");
        }
        let users = |digest| BTreeMap::from([("ann", DIGEST), ("bob", digest)]);
        assert!(need_agent(&users(BCRYPT_DIGEST)));
        assert!(!need_agent(&users(DIGEST)));
    }

    #[test]
    fn client_secrets_must_be_long_and_known() {
        let long = "c".repeat(16);
        let read = |text: &str| match ClientSecrets::read(text) {
            Ok(ClientSecrets { client, cookies }) => format!("{client} {cookies}"),
            Err(why) => why,
        };
        let text = format!("client-secret:{long}:\n");
        assert_eq!(read(&text), format!("{long}: {long}:"));
        let text = format!("client-secret:a\nhmac-secret:{long}");
        assert_eq!(read(&text), format!("a {long}"));
        for (text, words) in [
            ("", "no credentials"),
            (
                "client-secret:hush",
                "\"client-secret\" has 4 bytes; expected",
            ),
            (
                "client-secret:a\nhmac-secret:hush",
                "\"hmac-secret\" has 4 bytes",
            ),
            ("hmac-secret:hush", "\"client-secret\" is missing"),
            ("other:hush", "\"other\" is unknown"),
            (
                "client-secret:hush hush",
                "\"client-secret\": expected visible",
            ),
        ] {
            let error = read(text);
            assert!(error.starts_with(words), "{text}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn api_keys_must_be_unique_and_visible() {
        assert_eq!(api_keys("shop:k1\nbank:k2").unwrap().len(), 2);
        for (text, words) in [
            ("shop:secret\nbank:secret", "clients \"bank\" and \"shop\""),
            ("shop:secret key", "client \"shop\""),
        ] {
            let error = api_keys(text).unwrap_err();
            assert!(error.starts_with(words), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
