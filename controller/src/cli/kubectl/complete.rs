//! Shell completion: kubectl runs `kubectl_complete-sesame` with the partial command line.

use clap::{Arg, ArgAction, Command};

use super::plugin_command;

pub(in crate::cli) const COMPLETION_NAME: &str = "kubectl_complete-sesame";

/// Completion directive that disables file names (`ShellCompDirectiveNoFileComp`).
const NO_FILES: &str = ":4";
const FILES: &str = ":0";

pub(in crate::cli) fn complete(words: &[String]) -> String {
    let program = plugin_command();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[] as &[String]),
    };
    let mut command = &program;
    let mut valued: Option<&Arg> = None;
    for word in before {
        if valued.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            valued = option(&program, command, word).filter(|found| takes_value(found));
        } else if let Some(found) = command.find_subcommand(word) {
            command = found;
        }
    }
    let mut lines: Vec<String> = Vec::new();
    let mut end = NO_FILES;
    if let Some(argument) = valued {
        let possible = argument.get_possible_values();
        lines.extend(possible.iter().map(|value| value.get_name().to_owned()));
        if matches!(argument.get_id().as_str(), "filename" | "kubeconfig") {
            end = FILES;
        }
    } else if last.starts_with('-') {
        let own = command.get_arguments().chain(program.get_arguments());
        let long = own.filter_map(|argument| Some(format!("--{}", argument.get_long()?)));
        lines.extend(long);
    } else {
        let names = command.get_subcommands().map(|it| it.get_name().to_owned());
        lines.extend(names.filter(|name| name != "help"));
    }
    lines.sort();
    lines.dedup();
    lines.retain(|line| line.starts_with(last));
    lines.push(end.to_owned());
    lines.join("\n") + "\n"
}

fn option<'a>(program: &'a Command, command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments().chain(program.get_arguments());
    all.find(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        long.as_deref() == Some(word) || short.as_deref() == Some(word)
    })
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_options_and_values_are_completed() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            complete(&words)
        };
        assert_eq!(of("ex"), "explain\n:4\n");
        assert_eq!(of("status --wa"), "--watch\n:4\n");
        assert_eq!(of("status -o y"), "yaml\n:4\n");
        assert_eq!(of("-n shop sta"), "status\n:4\n");
        assert_eq!(of("diff -f "), ":0\n");
        assert!(of("").starts_with(
            "access\nadopt\ncompletion\ndiff\nexplain\nhosts\nrollout\nstatus\nwhy\n"
        ));
    }
}
