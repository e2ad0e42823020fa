//! Determines the effective settings of `run`, and where each value comes from.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::LoadedSettings;
use super::arguments::options;
use super::complete::{complete, parse_lenient};
use sesame_engine::reload::{Setting, SettingOrigin};

/// Returns all settings, including defaults, sorted by name.
pub(crate) fn effective(
    program: &Command,
    arguments: Vec<OsString>,
    loaded: &LoadedSettings,
) -> Vec<Setting> {
    let completed = complete(program, arguments, &loaded.accepted);
    let Some(found) = parse_lenient(program, &completed.arguments) else {
        return Vec::new();
    };
    let Some((_, found)) = found.subcommand() else {
        return Vec::new();
    };
    let mut settings: Vec<Setting> = options(program)
        .filter(|option| !option.is_hide_set())
        .filter_map(|option| {
            let key = option.get_long()?.to_owned();
            let origin = if completed.added.contains(&key) {
                origin_in_file(loaded, &key)
            } else {
                origin(option, found)
            };
            Some(Setting {
                values: values(option, found),
                key,
                origin,
            })
        })
        .collect();
    settings.sort_by(|one, other| one.key.cmp(&other.key));
    settings
}

fn origin_in_file(loaded: &LoadedSettings, key: &str) -> SettingOrigin {
    let entry = loaded.accepted.iter().find(|entry| entry.key == key);
    SettingOrigin::File {
        path: loaded.path.clone().unwrap_or_default(),
        line: entry.map_or(0, |entry| entry.line),
    }
}

fn origin(option: &Arg, found: &ArgMatches) -> SettingOrigin {
    let id = option.get_id().as_str();
    let is_there = matches!(found.try_contains_id(id), Ok(true));
    match found.value_source(id).filter(|_| is_there) {
        Some(ValueSource::CommandLine) => SettingOrigin::Flag,
        Some(ValueSource::EnvVariable) => SettingOrigin::Environment {
            variable: option
                .get_env()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
        },
        _ => SettingOrigin::Default,
    }
}

fn values(option: &Arg, found: &ArgMatches) -> Vec<String> {
    let raw = found.try_get_raw(option.get_id().as_str());
    let raw = raw.ok().flatten().into_iter().flatten();
    raw.map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;

    use super::super::arguments::judge;
    use super::super::file::parse;
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_setting_reports_its_origin() {
        let text = "drain-seconds: 7\nstate-dir: /file\naddress: [192.0.2.1, 192.0.2.2]\n";
        let (accepted, _) = judge(&Cli::command(), &parse(text).unwrap());
        let loaded = LoadedSettings {
            path: Some("/etc/x.yaml".into()),
            accepted,
            faults: Vec::new(),
        };
        let line = ["agent", "run", "--manifests=/m", "--state-dir", "/line"];
        let line = line.iter().map(OsString::from).collect();
        let settings = effective(&Cli::command(), line, &loaded);
        let of = |key: &str| {
            let found = settings.iter().find(|setting| setting.key == key);
            let found = found.unwrap_or_else(|| panic!("{key}"));
            (found.values.join(" "), found.origin.clone())
        };
        let file = |line| SettingOrigin::File {
            path: Path::new("/etc/x.yaml").to_owned(),
            line,
        };
        assert_eq!(of("drain-seconds"), ("7".to_owned(), file(1)));
        assert_eq!(of("state-dir"), ("/line".to_owned(), SettingOrigin::Flag));
        assert_eq!(of("address"), ("192.0.2.1 192.0.2.2".to_owned(), file(3)));
        assert_eq!(of("manifests"), ("/m".to_owned(), SettingOrigin::Flag));
        assert_eq!(
            of("lame-duck-seconds"),
            ("0".to_owned(), SettingOrigin::Default)
        );
        assert_eq!(
            of("health-address"),
            (String::new(), SettingOrigin::Default)
        );
        assert!(settings.is_sorted_by(|one, other| one.key < other.key));
    }
}
