//! Tests hosts with a real systemd: installs packages and counts failed requests while the host
//! changes. Each scenario has its own machine without a network, so the load runs in the machine's
//! network namespace. Needs root, systemd-nspawn and mmdebstrap.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "this test program reports to the user"
)]

mod airgap;
mod checks;
mod doctor;
mod http3;
mod inside;
mod join;
mod life;
mod machine;
mod network;
mod objects;
mod packages;
mod reboot;
mod removal;
mod root;
mod telling;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sesame_tests::envoy::workspace;

use self::inside::Inside;
use self::packages::Packages;

/// Runs gateway hosts with a real systemd.
#[derive(Parser)]
struct Arguments {
    /// Scenarios to run; all by default.
    scenarios: Vec<String>,
    /// Run part of a scenario in the network namespace of the machine with this init PID.
    #[arg(long, hide = true)]
    init: Option<i32>,
    /// Run in the network created for the scenario, and use the existing build.
    #[arg(long, hide = true)]
    own_network: bool,
    /// Only check whether this machine can run scenarios: exit with 0, or print why not and exit
    /// with 2.
    #[arg(long)]
    can_run: bool,
}

/// Exit code for a scenario that does not exist or cannot run on this machine.
const EXIT_CANNOT_RUN: u8 = 2;

type Scenario = fn(&Packages);
/// Runs in the machine's network namespace.
type ScenarioPart = fn(&Inside);

const SCENARIOS: &[(&str, Scenario)] = &[
    ("packages", checks::packages),
    ("units", checks::units),
    ("life", life::scenario),
    ("reboot", reboot::scenario),
    ("removal", removal::scenario),
    ("join", join::scenario),
    ("airgap", airgap::scenario),
];

const PARTS: &[(&str, ScenarioPart)] = &[
    ("life", life::inside),
    ("full-disk", life::full_disk),
    ("http3", http3::serve),
    ("serve", reboot::serve),
    ("race", reboot::race),
    ("stop", removal::stop),
    ("bundles", airgap::serve),
    ("bundles-again", airgap::serve_again),
];

fn main() -> ExitCode {
    let Arguments {
        scenarios,
        init,
        own_network,
        can_run,
    } = Arguments::parse();
    if let Some(init) = init {
        let part = PARTS.iter().find(|(name, _)| scenarios == [*name]);
        let (_, part) = part.expect("a part of a scenario");
        part(&Inside::new(init));
        return ExitCode::SUCCESS;
    }
    if let Err(why) = machine::can_run() {
        eprintln!("error: {why}");
        return ExitCode::from(EXIT_CANNOT_RUN);
    }
    if can_run {
        return ExitCode::SUCCESS;
    }
    if let Some(unknown) = scenarios
        .iter()
        .find(|wanted| !SCENARIOS.iter().any(|(name, _)| name == wanted))
    {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "error: unknown scenario {unknown:?}; expected one of {}",
            known.join(", ")
        );
        return ExitCode::from(EXIT_CANNOT_RUN);
    }
    let directory = workspace().join("target/hosts");
    let packages = directory.join("packages");
    if own_network {
        let packages = Packages::at(&packages);
        let wanted = SCENARIOS.iter().find(|(name, _)| scenarios == [*name]);
        let (_, scenario) = wanted.expect("a scenario");
        scenario(&packages);
        return ExitCode::SUCCESS;
    }
    let packages = Packages::build(&packages);
    root::prepare(&directory);
    let mut failed = 0;
    for (name, scenario) in SCENARIOS {
        if !scenarios.is_empty() && !scenarios.iter().any(|wanted| wanted == name) {
            continue;
        }
        println!("host: {name}");
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(&packages)));
        println!(
            "host: {name}: {} ({} s)",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            begun.elapsed().as_secs()
        );
        failed += u8::from(outcome.is_err());
    }
    ExitCode::from(u8::from(failed > 0))
}
