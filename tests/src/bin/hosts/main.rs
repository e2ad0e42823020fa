//! Gateway hosts with a real systemd: installs the packages, serves, and counts what fails while the host changes.
//!
//! Each scenario has a machine of its own (`machine`), in which nothing but the packages was installed. What sends requests
//! runs in the machine's network: there is no other. Needs root, systemd-nspawn and mmdebstrap.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it is a test, and talks to a person"
)]

mod checks;
mod inside;
mod life;
mod machine;
mod objects;
mod packages;
mod reboot;
mod removal;
mod telling;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;
use sesame_tests::envoy::workspace;

use self::inside::Inside;
use self::packages::Packages;

/// Runs gateway hosts with a real systemd.
#[derive(Parser)]
struct Arguments {
    /// Scenarios to run; all by default.
    scenarios: Vec<String>,
    /// Run a part of one in the network of the machine with this first process.
    #[arg(long, hide = true)]
    init: Option<i32>,
}

/// Scenario, which panics if something is wrong.
type Scenario = fn(&Packages);
/// Part of a scenario, in the network of its machine.
type ScenarioPart = fn(&Inside);

/// Scenarios by name.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("packages", checks::packages),
    ("units", checks::units),
    ("life", life::scenario),
    ("reboot", reboot::scenario),
    ("removal", removal::scenario),
];

/// The parts of scenarios that send requests.
const PARTS: &[(&str, ScenarioPart)] = &[
    ("life", life::inside),
    ("full-disk", life::full_disk),
    ("serve", reboot::serve),
    ("race", reboot::race),
    ("stop", removal::stop),
];

fn main() -> ExitCode {
    let Arguments { scenarios, init } = Arguments::parse();
    if let Some(init) = init {
        let part = PARTS.iter().find(|(name, _)| scenarios == [*name]);
        let (_, part) = part.expect("a part of a scenario");
        part(&Inside::new(init));
        return ExitCode::SUCCESS;
    }
    if !nix::unistd::geteuid().is_root() {
        eprintln!("error: machines need root; `sudo make test-hosts`");
        return ExitCode::from(2);
    }
    if let Some(unknown) = scenarios
        .iter()
        .find(|wanted| !SCENARIOS.iter().any(|(name, _)| name == wanted))
    {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "error: no scenario {unknown:?}; there are {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    }
    let directory = workspace().join("target/hosts");
    let packages = Packages::build(&directory.join("packages"));
    machine::prepare(&directory);
    let mut failed = 0;
    for (name, scenario) in SCENARIOS {
        if !scenarios.is_empty() && !scenarios.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("host: {name}");
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(&packages)));
        println!(
            "host: {name}: {}",
            if outcome.is_ok() { "ok" } else { "FAILED" }
        );
        failed += u8::from(outcome.is_err());
    }
    ExitCode::from(u8::from(failed > 0))
}
