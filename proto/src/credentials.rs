//! Users with password digests, and clients with API keys: one `name:value` per line.
//!
//! Errors never contain a value.

use std::collections::BTreeMap;

use crate::schema::CredentialSet;

const SHA1: &str = "{SHA}";
/// Length of a SHA-1 digest in Base64.
const SHA1_CHARACTERS: usize = 28;
const MAX_NAME_BYTES: usize = 253;
const MAX_VALUE_BYTES: usize = 1024;
const SEPARATOR: char = ':';
const COMMENT: char = '#';

/// Reads users and their passwords' SHA-1 digests from an htpasswd file, the only format that Envoy
/// supports.
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

/// Returns an error unless all values are SHA-1 digests.
pub fn check_users(users: &BTreeMap<&str, &str>) -> Result<(), String> {
    check(users)?;
    for (user, digest) in users {
        let characters = digest.strip_prefix(SHA1);
        let is_digest = characters.is_some_and(|it| {
            let (digits, padding) = it.split_at_checked(SHA1_CHARACTERS - 1).unwrap_or_default();
            let is_digit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
            padding == "=" && digits.bytes().all(is_digit)
        });
        if !is_digest {
            return Err(format!(
                "user {user:?}: expected a SHA-1 digest after `{SHA1}`, as `htpasswd -s` writes it; other digests are not supported"
            ));
        }
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

/// Returns the text that [`users`] and [`api_keys`] read. The credentials must be valid.
pub fn write(credentials: &BTreeMap<&str, &str>) -> String {
    let lines = credentials.iter();
    let lines = lines.map(|(name, value)| format!("{name}:{value}\n"));
    lines.collect()
}

fn read(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    check_size(text.len())?;
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
    fn users_need_sha1_digests() {
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
                "user \"ann\": expected a SHA-1",
            ),
            (format!("ann:{DIGEST}x"), "user \"ann\": expected a SHA-1"),
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
