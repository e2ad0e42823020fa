//! Parses the command line.
//!
//! The options in [`AgentArgs`] may precede or follow the name of a command that talks to an agent.
//! Other commands reject these options, except those that they declare themselves.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _};

use super::Cli;
use super::agent::AgentArgs;
use super::settings::arguments::AcceptedSetting;
use super::settings::complete::{Completed, complete};

pub(super) const WITHOUT_AGENT: [&str; 12] = [
    "run",
    "render",
    "validate",
    "launcher",
    "launch-envoy",
    "store-credentials",
    "bundle",
    "identity",
    "version",
    "trust",
    "man",
    "completion",
];

pub(super) fn parse(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Cli, clap::Error> {
    parse_with(arguments.into_iter().map(Into::into).collect(), &[])
}

pub(super) fn parse_with(
    arguments: Vec<OsString>,
    settings: &[AcceptedSetting],
) -> Result<Cli, clap::Error> {
    let Completed { arguments, added } = complete(&Cli::command(), arguments, settings);
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    if let Some((name, given)) = matches.subcommand()
        && WITHOUT_AGENT.contains(&name)
    {
        let declared = Cli::command();
        let alone = declared.find_subcommand(name);
        // A subcommand such as `bundle create` may declare options that `bundle` itself lacks.
        let below = alone
            .zip(given.subcommand_name())
            .and_then(|(command, below)| command.find_subcommand(below));
        for option in &alone.map(foreign).unwrap_or_default() {
            let option = option.get_id().as_str();
            let own =
                below.is_some_and(|below| below.get_arguments().any(|arg| arg.get_id() == option));
            if !own && named(given, option) {
                return Err(command.error(
                    ErrorKind::UnknownArgument,
                    format!(
                        "--{} is for commands that talk to a running agent; `sesame-agent {name}` does not",
                        option.replace('_', "-")
                    ),
                ));
            }
        }
    }
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    cli.agent.runtime_dir_named = named(&matches, "runtime_dir") && !added.contains("runtime-dir");
    let state = settings.iter().find(|entry| entry.key == "state-dir");
    let state = state.and_then(|entry| entry.arguments.first()?.split_once('='));
    cli.agent.state_dir_in_file = state.map(|(_, directory)| directory.into());
    cli.config.named = named(&matches, "config");
    Ok(cli)
}

/// Returns true if the option is on the command line, not only in an environment variable.
fn named(matches: &clap::ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn command() -> clap::Command {
    WITHOUT_AGENT.iter().fold(Cli::command(), |command, name| {
        // A build without the `cluster` feature lacks some of these commands.
        let Some(hidden) = command.find_subcommand(name).map(foreign) else {
            return command;
        };
        command.mut_subcommand(name, |alone| {
            alone.args(
                hidden
                    .into_iter()
                    .map(|option| option.global(false).hide(true)),
            )
        })
    })
}

fn foreign(alone: &clap::Command) -> Vec<clap::Arg> {
    let agent = AgentArgs::augment_args(clap::Command::new("agent"));
    let own = |option: &&clap::Arg| {
        let ids = alone.get_arguments().map(clap::Arg::get_id);
        ids.into_iter().all(|id| id != option.get_id())
    };
    agent.get_arguments().filter(own).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_declarations_fit_together() {
        super::command().debug_assert();
    }

    #[test]
    fn agent_options_are_accepted_before_and_after_command() {
        let options = [
            "--runtime-dir",
            "/r",
            "--output",
            "json",
            "--gateway",
            "a/b",
        ];
        let commands: [&[&str]; 8] = [
            &["status"],
            &["restart"],
            &["drain"],
            &["history"],
            &["diff", "1", "2"],
            &["rollback", "1"],
            &["resume"],
            &["accept"],
        ];
        for command in commands {
            let program = &["sesame-agent"][..];
            for line in [
                [program, command, &options].concat(),
                [program, &options, command].concat(),
            ] {
                let cli = parse(line.iter().copied()).expect("valid arguments");
                assert_eq!(cli.agent.runtime_dir.to_string_lossy(), "/r", "{line:?}");
                assert!(cli.agent.runtime_dir_named, "{line:?}");
                let gateway = cli.agent.gateway.expect("a Gateway");
                assert_eq!(gateway.to_string(), "a/b", "{line:?}");
                assert_eq!(cli.agent.output, crate::cli::output::Format::Json);
            }
        }
    }

    #[test]
    fn commands_without_agent_refuse_unused_options() {
        let good: [&[&str]; 6] = [
            &["bundle", "show", "FILE", "--output", "json"],
            &["trust", "list", "-o", "json"],
            &[
                "bundle",
                "create",
                "--manifests",
                "/m",
                "--gateway",
                "a/b",
                "-o",
                "x.bundle",
                "--signing-key",
                "k",
                "--output",
                "json",
            ],
            &["run", "--manifests", "/m", "--runtime-dir", "/r"],
            &["render", "--manifests", "/m", "--gateway", "a/b"],
            &["validate", "--manifests", "/m", "--output", "json"],
        ];
        let bad: [(&[&str], &str); 6] = [
            (&["--gateway", "a/b", "bundle", "show", "FILE"], "--gateway"),
            (
                &["run", "--manifests", "/m", "--output", "json"],
                "--output",
            ),
            (
                &["--output", "json", "run", "--manifests", "/m"],
                "--output",
            ),
            (
                &["render", "--manifests", "/m", "--runtime-dir", "/r"],
                "--runtime-dir",
            ),
            (
                &["validate", "--manifests", "/m", "--gateway", "a/b"],
                "--gateway",
            ),
            (
                &["--gateway", "a/b", "validate", "--manifests", "/m"],
                "--gateway",
            ),
        ];
        let line = |arguments: &[&'static str]| [&["sesame-agent"][..], arguments].concat();
        for arguments in good {
            parse(line(arguments)).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        }
        for (arguments, option) in bad {
            let error = parse(line(arguments)).expect_err("refused").to_string();
            let message = format!("{option} is for commands that talk to a running agent");
            assert!(error.contains(&message), "{arguments:?}: {error}");
        }
    }
}
