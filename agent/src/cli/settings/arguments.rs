//! Converts the settings file to command-line arguments.

use clap::builder::Resettable;
use clap::{Arg, ArgAction, Command, Id};

use super::file::{SettingEntry, SettingFault, SettingValue};

const LIKENESS: f64 = 0.75;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedSetting {
    pub(crate) key: String,
    pub(crate) line: u64,
    /// Empty for a switch that is set to `false`.
    pub(crate) arguments: Vec<String>,
}

/// A settings file may set `run` options and logging options.
pub(crate) fn options(program: &Command) -> impl Iterator<Item = &Arg> {
    let run = program.find_subcommand("run");
    let own = run.into_iter().flat_map(Command::get_arguments);
    let logging = program.get_arguments().filter(|option| {
        option
            .get_long()
            .is_some_and(|name| name.starts_with("log"))
    });
    own.chain(logging).filter(|option| {
        option
            .get_long()
            .is_some_and(|name| !EXCLUDED_OPTIONS.contains(&name))
    })
}

const EXCLUDED_OPTIONS: [&str; 3] = ["config", "help", "version"];

pub(crate) fn judge(
    program: &Command,
    entries: &[SettingEntry],
) -> (Vec<AcceptedSetting>, Vec<SettingFault>) {
    let (mut accepted, mut faults) = (Vec::new(), Vec::new());
    for SettingEntry { key, line, value } in entries {
        let option = options(program).find(|option| option.get_long() == Some(key));
        let outcome = option
            .ok_or_else(|| unknown(program, key))
            .and_then(|option| {
                let arguments = arguments(option, key, value)?;
                judge_value(option, &arguments)?;
                Ok(arguments)
            });
        match outcome {
            Ok(arguments) => accepted.push(AcceptedSetting {
                key: key.clone(),
                line: *line,
                arguments,
            }),
            Err(message) => faults.push(SettingFault {
                line: *line,
                message: format!("{key}: {message}"),
            }),
        }
    }
    (accepted, faults)
}

fn unknown(program: &Command, key: &str) -> String {
    if key == "config" {
        return "a settings file cannot include another one; remove the key".to_owned();
    }
    let names = options(program)
        .filter(|option| !option.is_hide_set())
        .filter_map(Arg::get_long);
    let likely = names
        .map(|name| (strsim::jaro_winkler(name, &key.replace('_', "-")), name))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match likely {
        Some((likeness, name)) if likeness >= LIKENESS => {
            format!("unknown setting; did you mean `{name}`?")
        }
        _ => "unknown setting; `sesame-agent run --help` lists the options, which are written here without leading dashes"
            .to_owned(),
    }
}

fn arguments(option: &Arg, key: &str, value: &SettingValue) -> Result<Vec<String>, String> {
    let with = |text: String| format!("--{key}={text}");
    match (option.get_action(), value) {
        (_, SettingValue::Nothing) => Err("has no value; set one, or remove the key".to_owned()),
        (ArgAction::SetTrue, SettingValue::Switch(on)) => {
            Ok(on.then(|| format!("--{key}")).into_iter().collect())
        }
        (ArgAction::SetTrue, _) => Err("expected `true` or `false`".to_owned()),
        (ArgAction::Append, SettingValue::List(items)) => {
            items.iter().map(|item| Ok(with(scalar(item)?))).collect()
        }
        // A list or mapping for the port map becomes one value, in which commas separate the pairs.
        (_, SettingValue::List(items)) if takes_pairs(option) => {
            let pairs: Result<Vec<String>, String> = items.iter().map(scalar).collect();
            Ok(vec![with(pairs?.join(","))])
        }
        (_, SettingValue::Pairs(pairs)) if takes_pairs(option) => {
            let pair = |(from, to): &(String, SettingValue)| Ok(format!("{from}:{}", scalar(to)?));
            let pairs: Result<Vec<String>, String> = pairs.iter().map(pair).collect();
            Ok(vec![with(pairs?.join(","))])
        }
        (_, SettingValue::List(_)) => Err("expected one value, not a list".to_owned()),
        (_, SettingValue::Pairs(_)) => Err("expected a value, not a mapping".to_owned()),
        (_, one) => Ok(vec![with(scalar(one)?)]),
    }
}

fn takes_pairs(option: &Arg) -> bool {
    let names = option.get_value_names().into_iter().flatten();
    names.into_iter().any(|name| name.contains(':')) && option.get_id() == "port_map"
}

fn scalar(value: &SettingValue) -> Result<String, String> {
    match value {
        SettingValue::Text(text) => Ok(text.clone()),
        SettingValue::Switch(on) => Ok(on.to_string()),
        SettingValue::Fraction => {
            Err("YAML reads this as a number and would change it; put it in quotes".to_owned())
        }
        SettingValue::Nothing | SettingValue::List(_) | SettingValue::Pairs(_) => {
            Err("each value must be text or a number".to_owned())
        }
    }
}

/// Ignores conflicts with other options.
fn judge_value(option: &Arg, arguments: &[String]) -> Result<(), String> {
    let option = option
        .clone()
        .conflicts_with(Resettable::<Id>::Reset)
        .requires(Resettable::<Id>::Reset)
        .required(false)
        .global(false)
        .env(Resettable::<clap::builder::OsStr>::Reset);
    let command = Command::new("settings")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(option);
    match command.try_get_matches_from(arguments) {
        Ok(_) => Ok(()),
        Err(error) => Err(in_one_line(&error)),
    }
}

/// Omits the prefix `error:`, the usage and the hint.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::file::parse;
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn outcome(text: &str) -> (Vec<AcceptedSetting>, Vec<SettingFault>) {
        judge(&Cli::command(), &parse(text).unwrap())
    }

    #[test]
    fn valid_settings_become_equivalent_arguments() {
        let (accepted, faults) = outcome(
            "manifests: /m\nallow-local-endpoints: true\nfollow-links: false\naddress: [192.0.2.1, '::1']\nport-map:\n  80: 8080\n  443: 8443\nlog: debug\nreport-address: 192.0.2.9\n",
        );
        assert_eq!(faults, []);
        let arguments: Vec<String> = accepted.into_iter().flat_map(|a| a.arguments).collect();
        assert_eq!(
            arguments,
            [
                "--manifests=/m",
                "--allow-local-endpoints",
                "--address=192.0.2.1",
                "--address=::1",
                "--port-map=80:8080,443:8443",
                "--log=debug",
                "--report-address=192.0.2.9"
            ]
        );
    }

    #[test]
    fn settings_faults_name_line_key_and_remedy() {
        for (text, line, words) in [
            ("\ndrain-second: 3\n", 2, "did you mean `drain-seconds`?"),
            ("drain_seconds: 3\n", 1, "did you mean `drain-seconds`?"),
            ("colour: red\n", 1, "sesame-agent run --help"),
            ("config: /other\n", 1, "cannot include another"),
            (
                "drain-seconds: soon\n",
                1,
                "drain-seconds: invalid value 'soon'",
            ),
            ("drain-seconds: [1, 2]\n", 1, "not a list"),
            ("drain-seconds:\n", 1, "has no value"),
            ("launcher: 'yes'\n", 1, "expected `true` or `false`"),
            ("on-stop: explode\n", 1, "possible values: leave, drain"),
            ("controller-name: 1.10\n", 1, "put it in quotes"),
            (
                "port-map: {80: 8080, 81: 8080}\n",
                1,
                "port 8080 is bound twice",
            ),
            ("max-removal-share: 101\n", 1, "101 is not in 0..=100"),
            ("address: [here]\n", 1, "address: invalid value 'here'"),
            ("controller-name: {a: b}\n", 1, "not a mapping"),
        ] {
            let (accepted, faults) = outcome(text);
            assert_eq!(accepted, [], "{text}");
            let [fault] = faults.as_slice() else {
                panic!("{text}: {faults:?}");
            };
            assert_eq!(fault.line, line, "{text}");
            assert!(fault.message.contains(words), "{text}: {}", fault.message);
        }
    }
}
