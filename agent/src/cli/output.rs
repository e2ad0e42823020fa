//! Writing to standard output and standard error: the only place that does.

use std::io::{self, Write as _};

use serde::Serialize;

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
