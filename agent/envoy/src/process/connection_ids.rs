//! Gives each Envoy its mark of HTTP/3 connection IDs, and the key that encrypts them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sesame_files::random;
use sesame_render::connection_ids::{ENCRYPTION_KEY, IdMark, KEY_BYTES, MARK, SECRET};

use sesame_host::durable;

/// Envoy merges this argument's value with its bootstrap.
pub(super) const ARGUMENT: &str = "--config-yaml";

pub(super) fn key_file(bootstrap: &Path) -> PathBuf {
    bootstrap.with_file_name("connection-ids.key")
}

/// Creates the key unless it exists. All Envoys of a runtime directory use the same key.
pub(crate) fn prepare_key(bootstrap: &Path) -> io::Result<()> {
    let path = key_file(bootstrap);
    if path.metadata().is_ok_and(|it| it.len() == KEY_BYTES as u64) {
        return Ok(());
    }
    let mut key = [0; KEY_BYTES];
    random::fill(&mut key)?;
    durable::replace_file(&path, &key)
}

pub(super) fn arguments(mark: IdMark, key: &Path) -> [OsString; 2] {
    let data = json!({
        ENCRYPTION_KEY: {"filename": key},
        MARK: {"inline_bytes": encoded(mark)},
    });
    let secret = json!({"name": SECRET, "generic_secret": {"secrets": data}});
    let bootstrap = json!({"static_resources": {"secrets": [secret]}});
    [ARGUMENT.into(), bootstrap.to_string().into()]
}

/// Returns `None` if the process does not have these arguments.
pub(super) fn mark_in(arguments: &[String]) -> Option<IdMark> {
    let mut arguments = arguments.iter();
    arguments.find(|it| *it == ARGUMENT)?;
    let bootstrap: Value = serde_json::from_str(arguments.next()?).ok()?;
    let data = bootstrap.pointer("/static_resources/secrets/0/generic_secret/secrets")?;
    let found = data[MARK]["inline_bytes"].as_str()?;
    IdMark::ALL.into_iter().find(|mark| encoded(*mark) == found)
}

fn encoded(mark: IdMark) -> String {
    STANDARD.encode([mark.number()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_found_in_arguments() {
        for mark in IdMark::ALL {
            let [name, value] = arguments(mark, Path::new("/run/key"));
            let text = |it: OsString| it.into_string().unwrap();
            let all = ["--log-level".to_owned(), text(name), text(value)];
            assert_eq!(mark_in(&all), Some(mark));
        }
        assert_eq!(mark_in(&["--log-level".to_owned()]), None);
    }
}
