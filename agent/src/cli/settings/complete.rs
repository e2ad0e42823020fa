//! Adds settings from the file, unless the command line or an environment variable sets them.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use super::arguments::{AcceptedSetting, options};
use crate::cli::options::WITHOUT_AGENT;

const SHARED: [&str; 17] = [
    "address",
    "allow-local-endpoints",
    "bundle-dir",
    "controller-name",
    "drain-seconds",
    "envoy",
    "extra-minimal-ocg",
    "fleet-hosts",
    "follow-links",
    "kubeconfig",
    "log",
    "log-format",
    "manifests",
    "port-map",
    "runtime-dir",
    "state-dir",
    "trusted-hops",
];

#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) arguments: Vec<OsString>,
    pub(crate) added: BTreeSet<String>,
}

/// Returns `None` if the command line asks for help.
pub(crate) fn parse_lenient(program: &Command, arguments: &[OsString]) -> Option<ArgMatches> {
    let program = program.clone().ignore_errors(true);
    program.try_get_matches_from(arguments).ok()
}

/// Skips settings that conflict with the command line or environment.
pub(crate) fn complete(
    program: &Command,
    arguments: Vec<OsString>,
    accepted: &[AcceptedSetting],
) -> Completed {
    let mut completed = Completed {
        arguments,
        added: BTreeSet::new(),
    };
    if accepted.is_empty() {
        return completed;
    }
    let Some(found) = parse_lenient(program, &completed.arguments) else {
        return completed;
    };
    let (command, found) = leaf(program, &found);
    let explicit = |option: &Arg| is_explicit(found, option.get_id().as_str());
    let mut more: Vec<OsString> = Vec::new();
    for entry in accepted {
        let option = options(program).find(|option| option.get_long() == Some(&entry.key));
        let Some(option) = option else { continue };
        if reads(program, command, &entry.key)
            && !explicit(option)
            && !rivals(command, option).into_iter().any(explicit)
        {
            more.extend(entry.arguments.iter().map(OsString::from));
            completed.added.insert(entry.key.clone());
        }
    }
    // Insert the settings before `--`, because clap does not parse options after it.
    let end = completed.arguments.iter().position(|part| part == "--");
    let end = end.unwrap_or(completed.arguments.len());
    completed.arguments.splice(end..end, more);
    completed
}

fn leaf<'a>(program: &'a Command, found: &'a ArgMatches) -> (&'a Command, &'a ArgMatches) {
    let (mut command, mut found) = (program, found);
    while let Some((name, more)) = found.subcommand() {
        let Some(next) = command.find_subcommand(name) else {
            break;
        };
        (command, found) = (next, more);
    }
    (command, found)
}

fn is_explicit(found: &ArgMatches, id: &str) -> bool {
    matches!(found.try_contains_id(id), Ok(true))
        && matches!(
            found.value_source(id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        )
}

fn reads(program: &Command, command: &Command, key: &str) -> bool {
    let has = |command: &Command, is_global: bool| {
        let mut options = command.get_arguments();
        options.any(|option| option.get_long() == Some(key) && option.is_global_set() == is_global)
    };
    let name = command.get_name();
    let logs = key == "log" || key == "log-format";
    match name {
        "run" => true,
        // With this option, these commands would read a state directory instead of asking the
        // agent.
        "history" | "diff" | "explain" | "why" if key == "state-dir" => false,
        // With this option, these commands would examine manifests instead of the served
        // configuration.
        "diff" | "explain" | "why" if key == "manifests" => false,
        _ => {
            SHARED.contains(&key)
                && (has(command, false)
                    || (has(program, true) && (logs || !WITHOUT_AGENT.contains(&name))))
        }
    }
}

fn rivals<'a>(command: &'a Command, option: &Arg) -> Vec<&'a Arg> {
    let find = |id: &clap::Id| command.get_arguments().find(|arg| arg.get_id() == id);
    let Some(option) = find(option.get_id()) else {
        return Vec::new();
    };
    let mut rivals = command.get_arg_conflicts_with(option);
    let others = command.get_arguments().filter(|other| {
        let conflicts = command.get_arg_conflicts_with(other);
        !other.is_global_set() && conflicts.iter().any(|one| one.get_id() == option.get_id())
    });
    rivals.extend(others);
    for group in command.get_groups() {
        let exclusive = !group.clone().is_multiple();
        if exclusive && group.get_args().any(|id| id == option.get_id()) {
            rivals.extend(
                group
                    .get_args()
                    .filter(|id| *id != option.get_id())
                    .filter_map(find),
            );
        }
    }
    rivals
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::arguments::judge;
    use super::super::file::parse;
    use super::*;
    use crate::cli::Cli;

    fn completed(line: &[&str], file: &str) -> Vec<String> {
        let (accepted, faults) = judge(&Cli::command(), &parse(file).unwrap());
        assert_eq!(faults, []);
        let line = line.iter().map(OsString::from).collect();
        let completed = complete(&Cli::command(), line, &accepted);
        let text = |part: &OsString| part.to_string_lossy().into_owned();
        completed.arguments.iter().map(text).skip(1).collect()
    }

    #[test]
    fn command_line_overrides_settings_file() {
        let file = "manifests: /file\nstate-dir: /file\nlog: debug\n";
        assert_eq!(
            completed(&["agent", "run", "--state-dir", "/line"], file),
            [
                "run",
                "--state-dir",
                "/line",
                "--manifests=/file",
                "--log=debug"
            ]
        );
        assert_eq!(
            completed(
                &["agent", "--log", "warn", "run", "--manifests=/line"],
                file
            ),
            [
                "--log",
                "warn",
                "run",
                "--manifests=/line",
                "--state-dir=/file"
            ]
        );
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn other_source_on_command_line_replaces_file_source() {
        let file = "kube: true\nkubeconfig: /k\nfleet: edge\nstate-dir: /s\n";
        assert_eq!(
            completed(&["agent", "run", "--manifests", "/m"], file),
            ["run", "--manifests", "/m", "--state-dir=/s"]
        );
        assert_eq!(
            completed(&["agent", "run", "--kube"], "manifests: /m\n"),
            ["run", "--kube"]
        );
    }

    #[test]
    fn other_commands_take_settings_with_same_meaning() {
        let file = "manifests: /m\nruntime-dir: /r\nstate-dir: /s\ndrain-seconds: 5\n";
        for (line, more) in [
            (&["status"][..], &["--runtime-dir=/r"][..]),
            (&["drain", "--stop"], &["--runtime-dir=/r"]),
            (&["history"], &["--runtime-dir=/r"]),
            (&["explain", "http://a/"], &["--runtime-dir=/r"]),
            (&["why", "gateway", "a/b"], &["--runtime-dir=/r"]),
            (&["render"], &["--manifests=/m"]),
            (&["validate"], &["--manifests=/m", "--state-dir=/s"]),
            (&["launcher"], &["--runtime-dir=/r", "--drain-seconds=5"]),
        ] {
            let line = [&["agent"][..], line].concat();
            assert_eq!(completed(&line, file), [&line[1..], more].concat());
        }
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn same_named_options_with_other_meaning_are_skipped() {
        let file = "kube: true\ngateway: a/b\nnamespace: sesame\n";
        for line in [&["agent", "status"], &["agent", "render"]] {
            assert_eq!(completed(line, file), line[1..]);
        }
    }

    #[test]
    fn settings_are_added_before_end_of_options() {
        assert_eq!(
            completed(&["agent", "status", "--", "gateway"], "runtime-dir: /r\n"),
            ["status", "--runtime-dir=/r", "--", "gateway"]
        );
    }
}
