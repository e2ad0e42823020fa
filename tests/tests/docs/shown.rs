//! Console blocks: commands and their output.

use crate::commands::typed;
use crate::pages::Block;

pub(crate) fn steps(block: &Block) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let text = Block {
                text: format!("$ {command}"),
                ..block.clone()
            };
            steps.push((typed(&text).concat(), String::new()));
            goes_on = command.ends_with('\\');
        } else if let Some((command, shown)) = steps.last_mut() {
            if goes_on {
                command.push(' ');
                command.push_str(line.trim_end_matches('\\').trim());
                goes_on = line.ends_with('\\');
            } else {
                shown.push_str(line);
                shown.push('\n');
            }
        }
    }
    steps
}

/// `…` matches the rest of a line or, alone on a line, any number of lines.
pub(crate) fn matches(output: &str, shown: &str) -> bool {
    let output: Vec<&str> = output.lines().map(str::trim_end).collect();
    let shown: Vec<&str> = shown.lines().collect();
    all_match(&output, &shown)
}

fn all_match(output: &[&str], shown: &[&str]) -> bool {
    match shown {
        [] => output.is_empty() || output == [""],
        ["…", rest @ ..] => (0..=output.len()).any(|from| all_match(&output[from..], rest)),
        [first, rest @ ..] => output.split_first().is_some_and(|(line, others)| {
            let (begin, cut) = first
                .split_once('…')
                .map_or((*first, false), |(begin, _)| (begin, true));
            let good = if cut {
                line.starts_with(begin)
            } else {
                *line == begin
            };
            good && all_match(others, rest)
        }),
    }
}

#[test]
fn printed_output_must_match_documented_output() {
    for (output, shown, good) in [
        ("a\nb\n", "a\nb\n", true),
        ("a b c\n", "a b…\n", true),
        ("x\ny\nz\n", "x\n…\nz\n", true),
        ("a\nb\n", "a\n", false),
        ("a\n", "a\nb\n", false),
        ("404\n", "200\n", false),
        ("", "200\n", false),
        ("a\n", "", false),
    ] {
        assert_eq!(matches(output, shown), good, "{output:?} {shown:?}");
    }
}
