//! The suite's output on the terminal: one line per test, and the summary. The whole output goes to
//! a file.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Child;

use anyhow::Context as _;

/// Follows the suite to its end and returns true if everything passed.
pub(crate) fn follow(mut suite: Child, mut log: File) -> anyhow::Result<bool> {
    let output = suite.stdout.take().context("the suite's output")?;
    let mut summary = false;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        log.write_all(&line)?;
        log.write_all(b"\n")?;
        let line = String::from_utf8_lossy(&line);
        // The summary extends from its heading to the overall result.
        summary = (summary || line.starts_with("Gateway API v")) && !line.starts_with("--- ");
        if summary {
            println!("{line}");
        } else if let Some(result) = line.strip_prefix("==> ") {
            println!("{result}");
        }
    }
    Ok(suite.wait()?.success())
}
