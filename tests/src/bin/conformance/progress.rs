//! Shows a summary of the suite's output on the terminal, and writes all of it to a file.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Child;

use anyhow::Context as _;

const SHOWN: usize = 40;

/// Returns true if everything passed.
pub(crate) fn follow(mut suite: Child, mut log: File) -> anyhow::Result<bool> {
    let output = suite.stdout.take().context("the suite's output")?;
    let mut summary = false;
    let mut last = LastLines::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        log.write_all(&line)?;
        log.write_all(b"\n")?;
        let line = String::from_utf8_lossy(&line);
        last.add(&line);
        summary = (summary || line.starts_with("Gateway API v")) && !line.starts_with("--- ");
        if summary {
            println!("{line}");
        } else if let Some(result) = line.strip_prefix("==> ") {
            println!("{result}");
            if let Some(test) = result.strip_prefix("failed: ") {
                last.print(test);
            }
        }
    }
    Ok(suite.wait()?.success())
}

/// Tests run concurrently. Go prints the test's name whenever the output switches to another test.
#[derive(Default)]
struct LastLines {
    current: String,
    by_test: BTreeMap<String, VecDeque<String>>,
}

impl LastLines {
    fn add(&mut self, line: &str) {
        let heading = ["=== RUN", "=== NAME", "=== CONT", "=== PAUSE"];
        if let Some(name) = heading.iter().find_map(|it| line.strip_prefix(it)) {
            let test = name.trim().split('/').nth(1).unwrap_or_default();
            test.clone_into(&mut self.current);
            return;
        }
        let lines = self.by_test.entry(self.current.clone()).or_default();
        if lines.len() == SHOWN {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    fn print(&self, test: &str) {
        for line in self.by_test.get(test).into_iter().flatten() {
            println!("    {line}");
        }
    }
}
