//! Reference pages, which are generated from the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};
use sesame_gateway_api::status::{ConditionType, Reason};
use sesame_tests::envoy::workspace;
use sesame_tests::generated;

/// Everything after this line is generated. The text before it is kept.
const BEGIN: &str = "<!-- What follows is written by a test; see CONTRIBUTING.md. -->\n";

fn check(path: &str, written: &str) {
    generated::check_end(path, BEGIN, &format!("\n{}\n", written.trim()));
}

fn line(text: &str) -> String {
    let text = text.replace('<', "&lt;");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats an option or a positional argument as it is written on the command line.
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

/// A command with its options, without the global options of its parents.
struct Section<'a> {
    name: String,
    about: String,
    options: Vec<&'a Arg>,
}

/// Returns the program's commands, the program itself first.
fn sections<'a>(name: &str, command: &'a Command, above: &[&'a str], found: &mut Vec<Section<'a>>) {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let options: Vec<&Arg> = command
        .get_arguments()
        .filter(|one| !one.is_hide_set() && !above.contains(&one.get_id().as_str()))
        .filter(|one| !matches!(one.get_id().as_str(), "help" | "version"))
        .collect();
    let globals: Vec<&str> = options
        .iter()
        .copied()
        .filter(|one| one.is_global_set())
        .map(|one| one.get_id().as_str())
        .chain(above.iter().copied())
        .collect();
    found.push(Section {
        name: name.to_owned(),
        about: format!("{}.", line(about.trim_end_matches('.'))),
        options,
    });
    let subcommands = command.get_subcommands();
    for below in subcommands.filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        let name = format!("{name} {}", below.get_name());
        sections(&name, below, &globals, found);
    }
}

/// Formats an option as a list item.
fn item(argument: &Arg) -> String {
    let help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let (option, meaning) = (line(&written(argument)), line(help.trim_end_matches('.')));
    format!("- `{option}`: {meaning}.{}\n", notes(argument))
}

/// Returns the items followed by an empty line, or an empty string if there are none.
fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: String = items.collect();
    if items.is_empty() {
        return items;
    }
    format!("{items}\n")
}

/// Formats a line that lists options described elsewhere.
fn elsewhere(what: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("{what}: {}.\n\n", names.join(", "))
}

/// Returns the list items of options that several commands share.
fn shared(sections: &[Section<'_>], settings: &BTreeSet<String>) -> BTreeSet<String> {
    let mut counts: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for argument in sections.iter().flat_map(|section| &section.options) {
        let text = item(argument);
        if let Some(long) = argument.get_long()
            && !settings.contains(&text)
        {
            let items = counts.entry(long).or_default();
            *items.entry(text).or_default() += 1;
        }
    }
    let most = counts.into_values().filter_map(|items| {
        items
            .into_iter()
            .filter(|(_, count)| *count > 1)
            .max_by_key(|(_, count)| *count)
    });
    most.map(|(item, _)| item).collect()
}

/// Describes a program. The options of its command `run` are settings if `settings` is true.
fn program(program: &Command, settings: bool) -> String {
    let mut all = Vec::new();
    sections(program.get_name(), program, &[], &mut all);
    let run = format!("{} run", program.get_name());
    let run = settings
        .then(|| all.iter().find(|section| section.name == run))
        .flatten();
    let run_options = run
        .map(|section| section.options.clone())
        .unwrap_or_default();
    let settings: BTreeSet<String> = run_options.iter().map(|one| item(one)).collect();
    let shared = shared(&all, &settings);

    let mut text = String::new();
    for (number, section) in all.iter().enumerate() {
        let _ = write!(text, "## `{}`\n\n{}\n\n", section.name, section.about);
        if run.is_some_and(|run| run.name == section.name) {
            text.push_str("Each [setting](../settings.md) is an option: `--NAME VALUE`.\n\n");
            continue;
        }
        let items: Vec<(String, String)> = section
            .options
            .iter()
            .map(|one| {
                let long = one.get_long().unwrap_or_default();
                (item(one), format!("`--{long}`"))
            })
            .collect();
        let named = |known: &BTreeSet<String>| -> Vec<String> {
            let known = items.iter().filter(|(item, _)| known.contains(item));
            known.map(|(_, name)| name.clone()).collect()
        };
        let own = items
            .iter()
            .map(|(item, _)| item.as_str())
            .filter(|item| !settings.contains(*item) && !shared.contains(*item));
        text.push_str(&list(own));
        text.push_str(&elsewhere(
            "[Common](#options-of-several-commands)",
            &named(&shared),
        ));
        text.push_str(&elsewhere("[Settings](../settings.md)", &named(&settings)));
        if number == 0 && !shared.is_empty() {
            text.push_str("## Options of several commands\n\n");
            text.push_str(&list(shared.iter().map(String::as_str)));
        }
    }
    text
}

/// Asserts that the settings page has an item for each option of `run`.
fn assert_settings_page_has_options_of_run(program: &Command) {
    let page = std::fs::read_to_string(workspace().join("docs/settings.md")).expect("a page");
    let run = program.find_subcommand("run").expect("a command");
    for option in run.get_arguments().filter(|one| !one.is_hide_set()) {
        if let Some(long) = option.get_long()
            && long != "help"
        {
            let listed = page.contains(&format!("- `{long}`, a list"))
                || page.contains(&format!("- `{long}: "));
            assert!(listed, "docs/settings.md lacks `{long}`");
        }
    }
}

#[test]
fn program_pages_are_current() {
    let agent = sesame_agent::cli::command();
    assert_settings_page_has_options_of_run(&agent);
    check("docs/reference/sesame-agent.md", &program(&agent, true));
    check(
        "docs/reference/sesame-controller.md",
        &program(&sesame_controller::cli::command(), false),
    );
    check(
        "docs/reference/kubectl-sesame.md",
        &program(&sesame_controller::cli::plugin_command(), false),
    );
}

#[test]
fn conditions_page_is_current() {
    let item = |word: &str, meaning: &str| {
        assert!(
            !meaning.is_empty(),
            "{word} has no meaning: write it above the word, as its documentation"
        );
        format!("- `{word}`: {meaning}\n")
    };
    let types = ConditionType::ALL.iter();
    let types: String = types.map(|one| item(one.as_str(), one.meaning())).collect();
    let (good, bad): (Vec<&Reason>, Vec<&Reason>) = Reason::ALL
        .iter()
        .partition(|one| one.meaning().starts_with("All is well"));
    let good: Vec<String> = good.iter().map(|one| format!("`{one}`")).collect();
    let good = good.join(", ");
    let reasons: String = bad
        .iter()
        .map(|one| item(one.as_str(), one.meaning()))
        .collect();
    let text = format!("## Types\n\n{types}\n## Reasons\n\nNo problem: {good}.\n\n{reasons}");
    check("docs/reference/conditions.md", &text);
}
