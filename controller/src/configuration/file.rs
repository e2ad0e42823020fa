//! Reads the configuration from a file and polls it for changes.

use std::path::Path;
use std::time::Duration;

use super::settings::settings;
use super::{ConfigurationFollower, CurrentSettings};
use sesame_files::open::{self, Rule};
use sesame_kinds::api::SesameConfiguration;
use sesame_kinds::decode::{self, DecodeLimits};
use sesame_kinds::world::AnyObject;

const MAX_BYTES: u64 = 64 * 1024;
/// Interval between reads. Kubernetes updates a mounted file by replacing a symbolic link, which a
/// watch on the file would miss.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) fn read(path: &Path) -> Result<SesameConfiguration, String> {
    let at = |why: String| format!("{}: {why}", path.display());
    let bytes = open::read(path, Rule::Named, MAX_BYTES).map_err(|error| at(error.to_string()))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| at("expected UTF-8".to_owned()))?;
    parse(text).map_err(at)
}

fn parse(text: &str) -> Result<SesameConfiguration, String> {
    let mut found = Vec::new();
    for document in decode::split(text) {
        for outcome in decode::decode(document.text, &DecodeLimits::default()) {
            found.push(outcome.map_err(|error| error.to_string())?);
        }
    }
    let [decoded] = found.as_slice() else {
        return Err(format!(
            "expected one SesameConfiguration, found {} objects",
            found.len()
        ));
    };
    let AnyObject::SesameConfiguration(configuration) = &decoded.object else {
        let kind = decoded.object.kind();
        return Err(format!("expected a SesameConfiguration, found a {kind}"));
    };
    Ok((**configuration).clone())
}

/// Runs until the receivers are dropped.
pub(super) async fn follow(follower: &ConfigurationFollower, path: &Path) {
    let from = path.display().to_string();
    let mut before: Option<Result<SesameConfiguration, String>> = None;
    while !follower.current.is_closed() {
        let found = read(path);
        if before.as_ref() != Some(&found) {
            let outcome: CurrentSettings = found.clone().and_then(|configuration| {
                settings(&follower.flags, Some(&configuration), follower.memory_mib)
            });
            follower.accept(outcome, &from);
            before = Some(found);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: projectsesame.io/v1alpha1\nkind: SesameConfiguration\nmetadata: {name: sesame}\n";

    #[test]
    fn file_must_hold_exactly_one_configuration() {
        let good = parse(&format!("{HEAD}spec: {{hosts: {{lostAfter: 5m}}}}\n")).expect("good");
        assert_eq!(
            good.spec.hosts.expect("hosts").lost_after.as_deref(),
            Some("5m")
        );
        for (text, expected) in [
            (String::new(), "found 0 objects"),
            (
                format!("{HEAD}spec: {{}}\n---\n{HEAD}spec: {{}}\n"),
                "found 2 objects",
            ),
            (
                "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n".to_owned(),
                "found a Namespace",
            ),
            ("mode: single\n".to_owned(), "`kind` is missing"),
            (HEAD.to_owned(), "`spec` is missing"),
            (format!("{HEAD}spec: {{hosts: 3}}\n"), "spec.hosts"),
        ] {
            let why = parse(&text).expect_err(&text);
            assert!(why.contains(expected), "{expected}: {why}");
        }
    }

    #[test]
    fn unknown_field_is_refused_with_suggestion() {
        let text = format!("{HEAD}spec: {{hosts: {{lostAftr: 5m}}}}\n");
        let read = parse(&text).expect("the file can be decoded");
        let why =
            settings(&read.spec, Some(&read), 512).expect_err("the unknown field is rejected");
        assert!(
            why.contains("lostAftr") && why.contains("lostAfter"),
            "{why}"
        );
    }
}
