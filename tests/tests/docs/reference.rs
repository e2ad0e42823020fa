//! Reference pages, which are generated from the code; `SESAME_SET_DOCS=1` updates them.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};
use sesame_gateway_api::status::{ConditionType, Reason};
use sesame_tests::envoy::workspace;

/// Everything after this line is generated; the text before it is kept.
const BEGIN: &str = "<!-- What follows is written by a test; see CONTRIBUTING.md. -->\n";

fn check(path: &str, written: &str) {
    let file = workspace().join(path);
    let text = std::fs::read_to_string(&file).expect("a page");
    let (before, _) = text
        .split_once(BEGIN)
        .unwrap_or_else(|| panic!("{path} does not say where the reference begins"));
    let wanted = format!("{before}{BEGIN}\n{}\n", written.trim());
    if std::env::var_os("SESAME_SET_DOCS").is_some() {
        std::fs::write(&file, wanted).expect("a page");
        return;
    }
    assert!(
        text == wanted,
        "{path} is out of date: run SESAME_SET_DOCS=1 cargo test --workspace --test docs reference"
    );
}

fn cell(text: &str) -> String {
    let text = text.replace('|', "\\|").replace('<', "&lt;");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats an option or a value as it is written on the command line.
fn written(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(clap::builder::Str::as_str).collect();
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let value = if takes {
        values.join(" ")
    } else {
        String::new()
    };
    let names = [
        argument.get_short().map(|short| format!("-{short}")),
        argument.get_long().map(|long| format!("--{long}")),
    ];
    let names: Vec<String> = names.into_iter().flatten().collect();
    format!("{} {value}", names.join(", ")).trim().to_owned()
}

/// Formats an option's possible values, default and environment variable, to append to its help.
fn notes(argument: &Arg) -> String {
    let mut notes = String::new();
    let possible: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && !matches!(value.get_name(), "true" | "false"))
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !possible.is_empty() {
        let _ = write!(notes, " One of {}.", possible.join(", "));
    }
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty() && argument.get_action().takes_values())
        .collect();
    if !defaults.is_empty() {
        let _ = write!(notes, " `{}` by default.", defaults.join(", "));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(notes, " Variable `{}`.", variable.to_string_lossy());
    }
    notes
}

/// Adds a section for each command with its own options.
fn commands(name: &str, command: &Command, above: &[&str], text: &mut String) {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let about = about.trim_end_matches('.');
    let _ = write!(text, "## `{name}`\n\n{}.\n\n", cell(about));
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|one| !one.is_hide_set() && !above.contains(&one.get_id().as_str()))
        .filter(|one| !matches!(one.get_id().as_str(), "help" | "version"))
        .collect();
    if !own.is_empty() {
        let _ = write!(text, "| option | meaning |\n|---|---|\n");
        for argument in &own {
            let help = argument
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let (option, meaning) = (cell(&written(argument)), cell(help.trim_end_matches('.')));
            let _ = writeln!(text, "| `{option}` | {meaning}.{} |", notes(argument));
        }
        text.push('\n');
    }
    let globals: Vec<&str> = own
        .iter()
        .filter(|one| one.is_global_set())
        .map(|one| one.get_id().as_str())
        .chain(above.iter().copied())
        .collect();
    let subcommands = command.get_subcommands();
    for below in subcommands.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        commands(
            &format!("{name} {}", below.get_name()),
            below,
            &globals,
            text,
        );
    }
}

fn program(program: &Command) -> String {
    let mut text = String::new();
    commands(program.get_name(), program, &[], &mut text);
    text
}

#[test]
fn reference_pages_match_program_options() {
    check(
        "docs/reference/sesame-agent.md",
        &program(&sesame_agent::cli::command()),
    );
    check(
        "docs/reference/sesame-controller.md",
        &program(&sesame_controller::cli::command()),
    );
    check(
        "docs/reference/kubectl-sesame.md",
        &program(&sesame_controller::cli::plugin_command()),
    );
}

#[test]
fn conditions_page_matches_code() {
    let row = |word: &str, meaning: &str| {
        assert!(
            !meaning.is_empty(),
            "{word} has no meaning: write it above the word, as its documentation"
        );
        format!("| `{word}` | {meaning} |\n")
    };
    let types = ConditionType::ALL.iter();
    let types: String = types.map(|one| row(one.as_str(), one.meaning())).collect();
    let reasons = Reason::ALL.iter();
    let reasons: String = reasons
        .map(|one| row(one.as_str(), one.meaning()))
        .collect();
    let text = format!(
        "## Types\n\n| type | what it judges |\n|---|---|\n{types}\n## Reasons\n\n| reason | what it says |\n|---|---|\n{reasons}"
    );
    check("docs/reference/conditions.md", &text);
}
