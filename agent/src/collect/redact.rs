//! Redacts known secrets and text that looks like a secret.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use regex::Regex;

pub(super) const REDACTED: &str = "<redacted>";
/// Minimum length of a string to redact. Shorter strings would match too often by chance.
const SHORTEST: usize = 8;

const SHAPES: [(&str, &str); 5] = [
    // Also matches keys that are escaped in a JSON string, and keys that are truncated.
    (
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
        REDACTED,
    ),
    (
        r"(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}",
        "$1 <redacted>",
    ),
    // A Kubernetes ServiceAccount token.
    (
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*",
        REDACTED,
    ),
    (
        r#"(?i)(token|password|passwd|client-key-data|client_secret|api[_-]?key|authorization|cookie)("?\s*[:=]\s*"?)[^\s",&]{4,}"#,
        "$1$2<redacted>",
    ),
    // Credentials in a URL: a user and password, or a token.
    (r#"://[^/\s@"']+@"#, "://<redacted>@"),
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretsError {
    #[error(transparent)]
    Shape(#[from] regex::Error),
    #[error("too many secrets: {0}")]
    Known(#[from] aho_corasick::BuildError),
}

#[derive(Debug)]
pub(crate) struct Secrets {
    /// If several secrets match at the same position, the longest one wins.
    known: AhoCorasick,
    shapes: Vec<(Regex, &'static str)>,
}

impl Secrets {
    /// Expects PEM keys, tokens and passwords exactly as stored on this host.
    pub(crate) fn new(secrets: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, SecretsError> {
        let known: BTreeSet<String> = secrets
            .into_iter()
            .flat_map(|secret| forms(&secret))
            .collect();
        let known = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&known)?;
        let shapes = SHAPES
            .iter()
            .map(|(shape, instead)| Ok((Regex::new(shape)?, *instead)));
        Ok(Self {
            known,
            shapes: shapes.collect::<Result<_, regex::Error>>()?,
        })
    }

    pub(crate) fn redact(&self, text: &str) -> String {
        // Replace known secrets before patterns, because a pattern might match only part of a known
        // secret.
        let count = self.known.patterns_len();
        let mut text = self.known.replace_all(text, &vec![REDACTED; count]);
        for (shape, instead) in &self.shapes {
            if let std::borrow::Cow::Owned(changed) = shape.replace_all(&text, *instead) {
                text = changed;
            }
        }
        text
    }
}

fn forms(secret: &[u8]) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let mut binary = vec![secret.to_vec()];
    if let Ok(text) = std::str::from_utf8(secret) {
        let text = text.trim();
        forms.insert(text.to_owned());
        let escaped = serde_json::Value::from(text).to_string();
        forms.insert(escaped.trim_matches('"').to_owned());
        binary.push(text.as_bytes().to_vec());
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("-----"));
        let body: String = lines.clone().collect();
        forms.extend(lines.map(str::to_owned));
        if text.starts_with("-----BEGIN ") {
            forms.insert(body.clone());
            binary.extend(STANDARD.decode(&body));
        }
    }
    for bytes in binary {
        // Within longer base64 data, the encoding of a secret depends on its offset modulo 3. Skip
        // up to two bytes at each end, because adjacent bytes affect their encoding.
        for skip in 0..3 {
            let Some(rest) = bytes.get(skip..) else {
                continue;
            };
            let whole = rest.get(..rest.len() - rest.len() % 3).unwrap_or_default();
            forms.insert(STANDARD.encode(whole));
            forms.insert(URL_SAFE_NO_PAD.encode(whole));
        }
        forms.insert(
            bytes
                .iter()
                .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")),
        );
    }
    forms.retain(|form| form.len() >= SHORTEST);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    const DER: &[u8] = b"this is a private key, or at least as secret as one is, and long enough";

    fn pem() -> String {
        let body = STANDARD.encode(DER);
        let lines: Vec<String> = body
            .as_bytes()
            .chunks(64)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect();
        format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            lines.join("\n")
        )
    }

    #[test]
    fn known_keys_are_redacted_in_every_encoding() {
        let secrets = Secrets::new([pem().into_bytes()]).unwrap();
        let pem = pem().trim().to_owned();
        let line = pem.lines().nth(1).unwrap().to_owned();
        let hex = DER
            .iter()
            .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        for (form, rest) in [
            (pem.clone(), 0),
            (pem.replace('\n', "\\n"), 0),
            (line, 0),
            (STANDARD.encode(DER), 4),
            (STANDARD.encode(&pem), 4),
            (STANDARD.encode(format!("a{pem}")), 8),
            (STANDARD.encode(format!("ab{pem}z")), 8),
            (hex, 0),
        ] {
            let text = secrets.redact(&format!("before {form} after"));
            assert!(
                text.starts_with("before ") && text.ends_with(" after"),
                "{text}"
            );
            assert!(text.contains(REDACTED), "{form}: {text}");
            let left = text.len() - "before  after".len() - REDACTED.len();
            assert!(left <= rest, "{form}: {text}");
        }
    }

    #[test]
    fn only_text_that_looks_secret_is_redacted() {
        let secrets = Secrets::new([b"s3cr3t-t0ken".to_vec()]).unwrap();
        for (before, after) in [
            (
                "Authorization: Bearer abcdefgh12345",
                "Authorization: <redacted> <redacted>",
            ),
            ("token: abcdefgh", "token: <redacted>"),
            (
                "\"password\":\"hunter22\",\"a\":1",
                "\"password\":\"<redacted>\",\"a\":1",
            ),
            ("x eyJhbGciOiJSUzI1.eyJzdWIiOiJ4.abc-_ y", "x <redacted> y"),
            ("https://user:pass@host/", "https://<redacted>@host/"),
            ("https://ghp_0123@host/", "https://<redacted>@host/"),
            (
                "GET /?access_token=abcdefgh&page=1",
                "GET /?access_token=<redacted>&page=1",
            ),
            ("a s3cr3t-t0ken b", "a <redacted> b"),
            ("-----BEGIN EC PRIVATE KEY-----\nabc", "<redacted>"),
            (
                "listener 0.0.0.0:443 is fine",
                "listener 0.0.0.0:443 is fine",
            ),
            (
                "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
                "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
            ),
        ] {
            assert_eq!(secrets.redact(before), after);
        }
    }
}
