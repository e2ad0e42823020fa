//! Writes to standard output and standard error. No other module should write to them.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

/// The output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable table.
    #[value(alias = "text")]
    Table,
    /// JSON for scripts.
    Json,
    /// The same content as YAML.
    Yaml,
}

impl Format {
    pub(crate) fn write(
        self,
        value: &impl Serialize,
        for_people: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self {
            Self::Table => text(&for_people()),
            Self::Json => json(value),
            Self::Yaml => yaml(value),
        }
    }

    /// Flushes each value. Returns false once standard output is closed.
    pub(crate) fn write_next(
        self,
        value: &impl Serialize,
        for_people: impl FnOnce() -> String,
    ) -> anyhow::Result<bool> {
        match self {
            Self::Table => put(&for_people()),
            Self::Json => put(&(serde_json::to_string(value)? + "\n")),
            Self::Yaml => put(&format!("---\n{}", serde_saphyr::to_string(value)?)),
        }
    }
}

/// Removes colors unless standard output is a terminal. A closed pipe (`| head`) is not an error.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    put(text).map(|_| ())
}

/// Returns false if standard output is closed.
fn put(text: &str) -> anyhow::Result<bool> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}

pub(crate) fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    text(&(serde_json::to_string_pretty(value)? + "\n"))
}

pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    text(&serde_saphyr::to_string(value)?)
}

pub(crate) fn note(text: &str) {
    // Ignore failures: if standard error is closed, they cannot be reported.
    let _ = writeln!(anstream::stderr(), "note: {text}");
}

pub(crate) fn error(error: &anyhow::Error) {
    // Ignore failures: if standard error is closed, they cannot be reported.
    let _ = writeln!(anstream::stderr(), "error: {error:#}");
}
