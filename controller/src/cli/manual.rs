//! `sesame-controller man` and `completion`: write manual pages and a completion script for
//! packages.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;

pub(super) fn man(dir: &Path) -> Result<()> {
    let at = || dir.display().to_string();
    std::fs::create_dir_all(dir).with_context(at)?;
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir).with_context(at)
}

pub(super) fn completion(shell: Shell) -> Result<()> {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sesame-controller", &mut bytes);
    super::output(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_man_page_and_completion() {
        let directory = tempfile::tempdir().expect("a directory");
        let dir = directory.path().join("man1");
        man(&dir).expect("pages");
        for page in [
            "sesame-controller",
            "sesame-controller-run",
            "sesame-controller-hosts-token",
        ] {
            let page = dir.join(format!("{page}.1"));
            assert!(page.is_file(), "{}", page.display());
        }
        let mut bytes = Vec::new();
        clap_complete::generate(
            Shell::Bash,
            &mut Cli::command(),
            "sesame-controller",
            &mut bytes,
        );
        let text = String::from_utf8(bytes).expect("text");
        assert!(text.contains("export"), "{text}");
    }
}
