//! `sesame-agent validate --config FILE`: reports problems in a settings file, and shows the
//! effective settings.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::CommandFactory as _;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::output::Format;
use super::settings::LoadedSettings;
use super::settings::arguments::in_one_line;
use super::settings::effective::effective;
use super::{Cli, Command, EXIT_FAULT, options, run};
use sesame_engine::reload::{LIVE, Setting, SettingOrigin};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SettingsOutcome {
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    errors: Vec<String>,
    settings: Vec<Effective>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Effective {
    #[serde(flatten)]
    setting: Setting,
    /// False if a change requires an agent restart.
    live: bool,
}

pub(crate) fn main(loaded: &LoadedSettings, output: Format) -> anyhow::Result<u8> {
    let line: Vec<OsString> = ["sesame-agent", "run"].map(OsString::from).to_vec();
    let path = loaded.path.clone().unwrap_or_default();
    let mut errors: Vec<String> = loaded.faults.iter().map(|fault| fault.at(&path)).collect();
    if errors.is_empty()
        && let Err(error) = usable(line.clone(), loaded)
    {
        errors.push(format!("{}: {error}", path.display()));
    }
    let settings = effective(&Cli::command(), line, loaded);
    let outcome = SettingsOutcome {
        valid: errors.is_empty(),
        file: loaded.path.clone(),
        errors,
        settings: settings
            .into_iter()
            .map(|setting| Effective {
                live: LIVE.contains(&setting.key.as_str()),
                setting,
            })
            .collect(),
    };
    output.write(&outcome, || text(&outcome))?;
    Ok(if outcome.valid { 0 } else { EXIT_FAULT })
}

fn usable(line: Vec<OsString>, loaded: &LoadedSettings) -> Result<(), String> {
    let cli = options::parse_with(line, &loaded.accepted).map_err(|error| in_one_line(&error))?;
    match cli.command {
        Command::Run(args) => run::options(*args).map(|_| ()),
        _ => Ok(()),
    }
    .map_err(|error| format!("{error:#}"))
}

fn text(outcome: &SettingsOutcome) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["SETTING", "VALUE", "FROM", "CHANGES BY"]);
    for Effective { setting, live } in &outcome.settings {
        let from = match &setting.origin {
            SettingOrigin::Flag => "the command line".to_owned(),
            SettingOrigin::Environment { variable } => format!("${variable}"),
            SettingOrigin::File { line, .. } => format!("the file, line {line}"),
            SettingOrigin::Default => "default".to_owned(),
        };
        let value = match setting.values.as_slice() {
            [] => "-".to_owned(),
            values => values.join(", "),
        };
        let method = if *live { "reload" } else { "restart" };
        table.add_row([setting.key.clone(), value, from, method.to_owned()]);
    }
    let errors = outcome
        .errors
        .iter()
        .map(|error| format!("error: {error}\n"));
    let verdict = if outcome.valid { "valid" } else { "not valid" };
    format!("{table}\n{}{verdict}\n", errors.collect::<String>())
}
