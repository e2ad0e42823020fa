//! Checks the commands in the documentation. Sesame commands must parse. For every other command,
//! `commands.txt` must name a test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::error::ErrorKind;
use sesame_tests::envoy::workspace;

use crate::pages::{Block, Page, all};
use crate::shell;

/// One command per line: its first words, and the test that runs it.
const KNOWN: &str = "tests/tests/docs/commands.txt";

/// [`crate::tasks`] runs the commands on these pages.
const TYPED: &str = "docs/tasks";

pub(crate) fn typed(block: &Block) -> Vec<String> {
    let prompts = block.text.lines().any(|line| line.starts_with("$ "));
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    let mut document = false;
    for line in block.text.lines() {
        if document {
            document = line != "YAML";
            continue;
        }
        let line = if prompts && !goes_on {
            let Some(line) = line.strip_prefix("$ ") else {
                continue;
            };
            line
        } else {
            line
        };
        document = line.contains("<<'YAML'");
        let more = line.strip_suffix('\\');
        let text = more.unwrap_or(line).trim_end();
        match found.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.push(' ');
                last.push_str(text.trim_start());
            }
            None => found.push(text.to_owned()),
        }
        goes_on = more.is_some();
    }
    found.retain(|line| !line.is_empty());
    found
}

/// Returns `None` if the command is valid.
fn fault(page: &Path, words: &[String], known: &Known) -> Option<String> {
    let line = words.join(" ");
    if let [kubectl, sesame, ..] = words
        && (kubectl.as_str(), sesame.as_str()) == ("kubectl", "sesame")
    {
        let error = sesame_controller::cli::plugin_command().try_get_matches_from(&words[1..]);
        let error = error.err().filter(clap::Error::use_stderr)?;
        return Some(format!("{line}: {error}"));
    }
    let program = match words.first().map(String::as_str) {
        None => return None,
        Some("sesame-agent") => sesame_agent::cli::command(),
        Some("sesame-controller") => sesame_controller::cli::command(),
        Some(_) if page.starts_with(TYPED) => return None,
        Some(_) => {
            let is_known = known.keys().any(|start| begins(&line, start));
            return (!is_known)
                .then(|| format!("{line}: commands.txt names no test for this command"));
        }
    };
    let error = program.try_get_matches_from(words).err()?;
    // An ellipsis is a placeholder for a value.
    let stands_for = line.contains('…') && error.kind() == ErrorKind::ValueValidation;
    (!stands_for && error.use_stderr()).then(|| format!("{line}: {error}"))
}

type Known = BTreeMap<String, String>;

fn known() -> Known {
    let text = std::fs::read_to_string(workspace().join(KNOWN)).expect("the list");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(" | ").expect("a command and a place"))
        .map(|(start, place)| (start.to_owned(), place.to_owned()))
        .collect()
}

fn begins(line: &str, start: &str) -> bool {
    line.strip_prefix(start)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn documented_commands(page: &Page) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for block in page.blocks() {
        if !matches!(block.language.as_str(), "sh" | "console") {
            continue;
        }
        for line in typed(&block) {
            let place = format!("{}:{}", page.path.display(), block.line);
            let commands = shell::commands(&line).into_iter();
            found.extend(commands.map(|words| (place.clone(), words)));
        }
    }
    found
}

#[test]
fn every_documented_command_is_accepted_or_run() {
    let known = known();
    let mut unused: BTreeSet<&String> = known.keys().collect();
    let mut wrong = Vec::new();
    let mut commands = 0;
    for page in all() {
        for (place, words) in documented_commands(&page) {
            commands += 1;
            wrong.extend(fault(&page.path, &words, &known).map(|why| format!("{place}: {why}")));
            let line = words.join(" ");
            unused.retain(|start| !begins(&line, start));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands > 80, "found only {commands} commands");
    assert!(
        unused.is_empty(),
        "commands.txt: no page contains {unused:?}"
    );
    for (start, place) in &known {
        let file = place.split(' ').next().unwrap_or_default();
        let good = file == "nowhere:" || workspace().join(file).exists();
        assert!(good, "commands.txt: {start}: {file} does not exist");
    }
}

#[test]
fn unknown_command_in_docs_is_reported() {
    let page = Path::new("docs/security.md");
    for line in [
        "sesame-agent status --gatway default/edge",
        "sesame-agent statsu",
        "sesame-controller export --gateway default/edge --signing-ky key",
        "sudo -u sesame sesame-agent trust ad key.pub",
        "FROM=1 kubectl explode pods",
    ] {
        let commands = shell::commands(line);
        let faults = commands
            .iter()
            .filter_map(|words| fault(page, words, &known()))
            .count();
        assert_eq!(faults, 1, "{line}: {commands:?}");
    }
}
