//! Writing to standard output and standard error: the only place that does.

use std::io::{self, Write as _};

use clap::{Args, ValueEnum};
use serde::Serialize;

/// How a command says what it has found.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// How to print it.
    #[arg(long, short, default_value = "table")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[value(alias = "text")]
    Table,
    /// For scripts.
    Json,
    /// For people who want all of it.
    Yaml,
}

impl OutputArgs {
    /// Writes the value, or what is for people.
    pub(crate) fn write(
        self,
        value: &impl Serialize,
        for_people: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self.output {
            Format::Table => text(&for_people()),
            Format::Json => json(value),
            Format::Yaml => yaml(value),
        }
    }
}

/// Writes text to standard output. A closed pipe (`| head`) ends quietly.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Writes bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Writes a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    text(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes a value as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    text(&serde_saphyr::to_string(value)?)
}

/// Writes an error with its causes to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    // There is nowhere else to say that standard error is gone.
    let _ = writeln!(anstream::stderr(), "error: {error:#}");
}
