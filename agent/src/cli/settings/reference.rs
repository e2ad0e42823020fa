//! Keeps the list of settings in `docs/settings.md` in sync with the command line.

use std::fmt::Write as _;

use clap::{ArgAction, CommandFactory as _};

use super::arguments::options;
use crate::cli::Cli;
use crate::run::reload::LIVE;

const BEGIN: &str = "<!-- What follows is written by a test; see CONTRIBUTING.md. -->\n";

/// Returns the list of settings, as Markdown.
fn list() -> String {
    let program = Cli::command();
    let mut variables = Vec::new();
    let mut rows: Vec<String> = options(&program)
        .filter(|option| !option.is_hide_set())
        .map(|option| {
            let key = option.get_long().unwrap_or_default();
            let names = option.get_value_names().unwrap_or_default();
            let name = names.first().map(ToString::to_string).unwrap_or_default();
            let setting = match option.get_action() {
                ArgAction::SetTrue => format!("`{key}: true`"),
                ArgAction::Append => format!("`{key}`, a list of `{name}`"),
                _ => {
                    let possible: Vec<String> = option
                        .get_possible_values()
                        .iter()
                        .map(|value| value.get_name().to_owned())
                        .collect();
                    if possible.is_empty() {
                        format!("`{key}: {name}`")
                    } else {
                        format!("`{key}: {}`", possible.join("|"))
                    }
                }
            };
            let defaults = option.get_default_values();
            let defaults: Vec<String> = defaults
                .iter()
                .map(|value| format!("`{}`", value.to_string_lossy()))
                .filter(|value| value != "``")
                .collect();
            let variable = option
                .get_env()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            if variable != format!("SESAME_{}", key.to_uppercase().replace('-', "_")) {
                variables.push(format!("`{variable}` for `{key}`"));
            }
            let help = option
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            // Omit this hint, because the word "list" already implies it.
            let help = help.replace('\n', " ").replace("; repeatable", "");
            let default = if defaults.is_empty() {
                String::new()
            } else {
                format!(" ({})", defaults.join(", "))
            };
            format!("- {setting}{default}: {help}\n")
        })
        .collect();
    rows.sort();
    let mut live: Vec<String> = LIVE.iter().map(|key| format!("`{key}`")).collect();
    live.sort();
    variables.sort();
    let mut list = format!(
        "- Changed by a reload: {}. All others need a restart of the agent.\n",
        live.join(", ")
    );
    let _ = write!(
        list,
        "- The environment variable is the name in capitals after `SESAME_`, with `_` for `-`; except {}.\n\nDefaults are in parentheses:\n\n",
        variables.join(", ")
    );
    list.push_str(&rows.concat());
    list
}

#[test]
#[cfg(feature = "cluster")]
fn settings_page_is_current() {
    sesame_kit::generated::check_end("docs/settings.md", BEGIN, &list());
}

#[test]
fn every_live_setting_is_an_option() {
    let program = Cli::command();
    for key in LIVE {
        let found = options(&program).any(|option| option.get_long() == Some(key));
        assert!(found, "{key}");
    }
}
