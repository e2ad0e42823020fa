//! Edits the agent's settings file.
//!
//! `join` adds its settings between two marker lines, and comments out a conflicting `manifests`
//! setting.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};
use sesame_files::open::{self, Rule};
use sesame_published::host_access::HostScope;
use sesame_published::join_token::JoinToken;

/// Path of the packaged settings file.
pub const DEFAULT_CONFIG: &str = "/etc/sesame/agent.yaml";
const BEGIN: &str = "# From `sesame-agent join`; `sesame-agent leave` removes it:";
const END: &str = "# End of what `sesame-agent join` wrote.";
const ASIDE: &str = "# Commented out by `sesame-agent join`: ";
/// Value in the packaged settings file.
const DEFAULT_MANIFESTS: &str = "/etc/sesame/manifests";
const MAX_BYTES: u64 = 64 << 10;
/// Settings that select another source or specific Gateways.
const OTHERS: [&str; 5] = [
    "manifests",
    "snapshot-dir",
    "bundle-dir",
    "gateway",
    "fleet",
];

/// Returns the agent settings of a host that joins with `token`, by name.
pub fn settings(
    token: &JoinToken,
    kubeconfig: &Path,
    zone: Option<&str>,
    state_dir: Option<&Path>,
) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("kube", json!(true)),
        ("kubeconfig", json!(kubeconfig)),
        ("namespace", json!(token.namespace)),
        ("host", json!(token.host)),
    ];
    match &token.scope {
        HostScope::Gateways(gateways) => {
            let names: Vec<String> = gateways.iter().map(ToString::to_string).collect();
            all.push(("gateway", json!(names)));
        }
        HostScope::Fleet(fleet) => all.push(("fleet", json!(fleet))),
    }
    all.extend(zone.map(|zone| ("zone", json!(zone))));
    all.extend(state_dir.map(|dir| ("state-dir", json!(dir))));
    all
}

/// Replaces the settings from an earlier `join`. Comments out `manifests` if its directory is empty
/// (`holds_nothing`), or if it is the only setting and has the packaged value.
pub fn with(
    text: &str,
    settings: &[(&str, Value)],
    holds_nothing: impl Fn(&Path) -> bool,
) -> anyhow::Result<String> {
    let mut new = set_aside(&without(text), holds_nothing);
    // If a setting outside the markers already has the wanted value, leave it there.
    let there: Value = serde_saphyr::from_str(&new).unwrap_or_default();
    let (same, settings): (Vec<_>, Vec<_>) = settings
        .iter()
        .partition(|(name, value)| there.get(*name) == Some(value));
    for (number, line) in (1..).zip(new.lines()) {
        let key = key(line);
        let is = |settings: &[&(&str, Value)]| settings.iter().any(|(name, _)| *name == key);
        let taken = is(&settings) || OTHERS.contains(&key);
        ensure!(
            key != "manifests",
            "line {number} sets `manifests`, and this host serves that directory; move the manifests away or remove the line, then join"
        );
        ensure!(
            !taken || is(&same),
            "line {number} sets `{key}`, which conflicts with joining; remove that line, then join"
        );
    }
    if !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    new.push_str(BEGIN);
    new.push('\n');
    for (name, value) in &settings {
        // JSON is valid YAML and fits on one line.
        new.extend([*name, ": ", &value.to_string(), "\n"]);
    }
    new.push_str(END);
    new.push('\n');
    let read: Value = serde_saphyr::from_str(&new)
        .context("is not valid YAML; expected one `name: value` setting per line")?;
    ensure!(
        read.get("manifests").is_none(),
        "`manifests` is set on several lines; remove them, then join"
    );
    for (name, value) in &settings {
        if read.get(*name) != Some(value) {
            bail!("`{name}` cannot be rewritten safely; put each setting on a separate line");
        }
    }
    Ok(new)
}

fn set_aside(text: &str, holds_nothing: impl Fn(&Path) -> bool) -> String {
    let read: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let named = read.get("manifests").and_then(Value::as_str);
    let is_shipped = named == Some(DEFAULT_MANIFESTS) && read.as_object().map(Map::len) == Some(1);
    if !named.is_some_and(|directory| is_shipped || holds_nothing(Path::new(directory))) {
        return text.to_owned();
    }
    let lines = text.split_inclusive('\n');
    lines
        .flat_map(|line| [if key(line) == "manifests" { ASIDE } else { "" }, line])
        .collect()
}

fn key(line: &str) -> &str {
    let key = line.split(':').next().unwrap_or_default();
    key.trim_end().trim_matches(['"', '\''])
}

/// Returns the first line that `join` commented out, without its marker, or `None`.
pub fn aside(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(ASIDE))
}

/// Removes the settings that `join` added, and restores the line that it commented out.
pub fn without(text: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        match line.trim_end() {
            BEGIN => inside = true,
            END if inside => inside = false,
            _ if !inside => kept.push_str(line.strip_prefix(ASIDE).unwrap_or(line)),
            _ => {}
        }
    }
    kept
}

/// Returns an empty string if the file does not exist.
pub fn read(path: &Path) -> anyhow::Result<String> {
    match open::read_text(path, Rule::Named, MAX_BYTES) {
        Err(error) if error.is_not_found() => Ok(String::new()),
        result => Ok(result?),
    }
}

/// Ignores hidden files.
pub fn holds_nothing(directory: &Path) -> bool {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries
            .map_while(Result::ok)
            .all(|entry| entry.file_name().as_encoded_bytes().starts_with(b".")),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// The new file is world-readable.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let at = || format!("cannot write {}", path.display());
    std::fs::create_dir_all(directory).with_context(at)?;
    let mut staged = tempfile::NamedTempFile::new_in(directory).with_context(at)?;
    staged.write_all(text.as_bytes()).with_context(at)?;
    let mode = std::fs::Permissions::from_mode(0o644);
    staged.as_file().set_permissions(mode).with_context(at)?;
    staged.as_file().sync_all().with_context(at)?;
    staged.persist(path).with_context(at)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_replaces_its_own_entries_and_removes_them() {
        let own = "# Ours\nport-map: 80=8080\n";
        let full = |_: &Path| false;
        let first = with(own, &[("kube", json!(true)), ("host", json!("a"))], full).unwrap();
        let second = with(
            &first,
            &[("kube", json!(true)), ("gateway", json!(["a/b"]))],
            full,
        )
        .unwrap();
        assert!(second.contains("gateway: [\"a/b\"]\n") && !second.contains("host"));
        assert_eq!(without(&second), own);
        assert_eq!(without(own), own);
        let read: Value = serde_saphyr::from_str(&second).unwrap();
        assert_eq!(read["port-map"], "80=8080");
    }

    #[test]
    fn contradicting_settings_are_refused_with_their_line() {
        let wanted = [("kube", json!(true)), ("host", json!("a"))];
        for (text, word) in [
            ("manifests: /m\n", "this host serves that directory"),
            (
                "manifests: /etc/sesame/manifests\nlog: debug\n",
                "line 1 sets `manifests`",
            ),
            ("bundle-dir: /b\n", "`bundle-dir`"),
            ("a: b\nhost: c\n", "line 2 sets `host`"),
            ("{a: b}\n", "YAML"),
            ("- a\n", "YAML"),
        ] {
            let error = format!("{:#}", with(text, &wanted, |_| false).unwrap_err());
            assert!(error.contains(word), "{text}: {error}");
        }
        for text in ["# nothing\n", "host: a\n", ""] {
            assert!(with(text, &wanted, |_| false).is_ok());
        }
    }

    #[test]
    fn unused_source_is_set_aside_and_restored() {
        let wanted = [("kube", json!(true))];
        let shipped = "# Source:\nmanifests: /etc/sesame/manifests # YAML\n";
        let used = "log: debug\n\"manifests\": /srv/manifests\n# End\n";
        for (text, empty) in [(shipped, ""), (used, "/srv/manifests")] {
            let joined = with(text, &wanted, |directory| directory == Path::new(empty)).unwrap();
            let read: Value = serde_saphyr::from_str(&joined).unwrap();
            assert!(read.get("manifests").is_none(), "{joined}");
            assert!(aside(&joined).is_some(), "{joined}");
            let again = with(&joined, &wanted, |_| false);
            assert_eq!(again.is_ok(), text == shipped, "{again:?}");
            assert_eq!(without(&joined), text);
        }
        assert_eq!(aside(shipped), None);
    }
}
